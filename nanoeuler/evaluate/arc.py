"""ARC, easy and challenge: questions of science for a school (Clark et al. 2018, arXiv:1803.05457).

``ARC-Easy-Test.jsonl`` and its like, as they are published. Choices are called A to E, or 1 to 5.
"""

from pathlib import Path
from typing import Any

from nanoeuler.evaluate.items import Item, choices_after
from nanoeuler.evaluate.records import read_jsonl

EXPECTED = "a line of ARC: an object with question.stem, question.choices (each with text and label) and answerKey"


def read_arc(path: Path) -> list[Item]:
    """Return the items of a file.

    Raises:
        UserError: it is no such file, or a line has no answer.
    """
    items = []
    for record in read_jsonl(path, EXPECTED):
        question = record.values.get("question")
        choices = question.get("choices") if isinstance(question, dict) else None
        if not isinstance(question, dict) or not isinstance(question.get("stem"), str) or not _are_choices(choices):
            raise record.fault("'question' is not a stem with choices")
        assert choices  # as _are_choices has it
        labels = [choice["label"] for choice in choices]
        answer = record.text("answerKey")
        if answer not in labels:
            raise record.fault(f"'answerKey' is {answer!r}, and the choices are {', '.join(labels)}")
        context = f"Question: {question['stem']}\nAnswer:"
        texts = [choice["text"] for choice in choices]
        items.append(Item(record.place, choices_after(context, texts), labels.index(answer)))
    return items


def _are_choices(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(c, dict) and isinstance(c.get("text"), str) and isinstance(c.get("label"), str) for c in value
        )
    )
