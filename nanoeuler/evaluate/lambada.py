"""LAMBADA: the last word of a passage, which takes the whole passage to guess (Paperno et al. 2016, arXiv:1606.06031).

A ``.jsonl`` file whose lines have the passage as ``text`` (OpenAI's ``lambada_test.jsonl``), or a file with a passage
in each line.
"""

from pathlib import Path

from nanoeuler.errors import UserError
from nanoeuler.evaluate.items import Choice, Item
from nanoeuler.evaluate.records import read_jsonl, read_lines

EXPECTED = 'a line of LAMBADA: {"text": PASSAGE}, or the passage as it is'


def read_lambada(path: Path) -> list[Item]:
    """Return the items of a file.

    Raises:
        UserError: it is no such file, or a passage has no word before its last one.
    """
    passages = list(read_lines(path))
    if passages[0][1].lstrip().startswith("{"):
        passages = [(record.place, record.text("text")) for record in read_jsonl(path, EXPECTED)]
    items = []
    for place, passage in passages:
        context, _, word = passage.rstrip().rpartition(" ")
        if not context.strip():
            raise UserError(f"{place}: a passage of one word, which nothing is before")
        items.append(Item(place, (Choice(context, " " + word, word),), 0))
    return items
