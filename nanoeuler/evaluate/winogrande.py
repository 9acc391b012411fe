"""WinoGrande: whom or what does a sentence mean? (Sakaguchi et al. 2019, arXiv:1907.10641)

``dev.jsonl`` as it is published. The blank is filled with either option, and the rest of the sentence, which is the
same for both, is what is scored: "partial evaluation" (Trinh and Le 2018, arXiv:1806.02847).
"""

from pathlib import Path

from nanoeuler.evaluate.items import Choice, Item
from nanoeuler.evaluate.records import read_jsonl

EXPECTED = "a line of WinoGrande: an object with sentence (with a blank, _), option1, option2 and answer (1 or 2)"


def read_winogrande(path: Path) -> list[Item]:
    """Return the items of a file.

    Raises:
        UserError: it is no such file, or a line has no answer.
    """
    items = []
    for record in read_jsonl(path, EXPECTED):
        sentence, *options = (record.text(key) for key in ("sentence", "option1", "option2"))
        before, blank, after = sentence.partition("_")
        if not blank or not after.strip():
            raise record.fault("'sentence' has no blank '_' with something after it")
        choices = tuple(Choice(before + option, " " + after.strip(), option) for option in options)
        items.append(Item(record.place, choices, record.index("answer", 2, first=1)))
    return items
