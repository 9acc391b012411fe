"""PIQA: which of two ways reaches a goal? (Bisk et al. 2020, arXiv:1911.11641)

``valid.jsonl`` with ``valid-labels.lst`` beside it, as they are published.
"""

from pathlib import Path

from nanoeuler.errors import UserError
from nanoeuler.evaluate.items import Item, choices_after
from nanoeuler.evaluate.records import index_of, read_jsonl, read_lines

EXPECTED = "a line of PIQA: an object with goal, sol1 and sol2"


def read_piqa(path: Path) -> list[Item]:
    """Return the items of a file and the one beside it.

    Raises:
        UserError: these are no such files, one is missing, or they do not belong together.
    """
    labels_path = path.with_name(f"{path.stem}-labels.lst")
    records = list(read_jsonl(path, EXPECTED))
    if not labels_path.exists():
        raise UserError(f"{path}: {labels_path} is missing: it has the answers, a line with 0 or 1 for each of these")
    labels = list(read_lines(labels_path))
    if len(labels) != len(records):
        raise UserError(f"{labels_path}: {len(labels)} answers, and {path} has {len(records)} questions")
    items = []
    for record, (place, label) in zip(records, labels, strict=True):
        goal, *solutions = (record.text(key) for key in ("goal", "sol1", "sol2"))
        choices = choices_after(f"Question: {goal}\nAnswer:", solutions)
        items.append(Item(record.place, choices, index_of(label.strip(), 2, 0, f"{place}: the answer")))
    return items
