"""HellaSwag: which of four endings goes on with a situation? (Zellers et al. 2019, arXiv:1905.07830)

``hellaswag_val.jsonl`` as it is published. The text is cleaned as lm-evaluation-harness does it: what WikiHow marks in
brackets goes, and the second part of the context begins with a capital.
"""

import re
from pathlib import Path

from nanoeuler.evaluate.items import Item, choices_after
from nanoeuler.evaluate.records import read_jsonl

EXPECTED = "a line of HellaSwag: an object with activity_label, ctx_a, ctx_b, endings (strings) and label"


def read_hellaswag(path: Path) -> list[Item]:
    """Return the items of a file.

    Raises:
        UserError: it is no such file, or a line has no answer.
    """
    items = []
    for record in read_jsonl(path, EXPECTED):
        label, a, b = (record.text(key) for key in ("activity_label", "ctx_a", "ctx_b"))
        endings = record.values.get("endings")
        if not isinstance(endings, list) or not endings or not all(isinstance(ending, str) for ending in endings):
            raise record.fault("'endings' is not a list of strings")
        context = clean(f"{label}: {a} {b.capitalize()}")
        choices = choices_after(context, [clean(ending) for ending in endings])
        items.append(Item(record.place, choices, record.index("label", len(endings))))
    return items


def clean(text: str) -> str:
    """Return a text without WikiHow's marks.

    >>> clean("How to bake [title] Mix. [step] Stir  well ")
    'How to bake. Mix. Stir well'
    """
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")
