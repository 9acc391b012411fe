"""MMLU: questions of 57 subjects with four choices (Hendrycks et al. 2020, arXiv:2009.03300).

The published folders: ``test/SUBJECT_test.csv`` and, for the examples that are shown before a question,
``dev/SUBJECT_dev.csv``; no header, and in each row the question, four choices, and the letter of the right one. Scored
are the letters.
"""

import csv
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nanoeuler.errors import UserError
from nanoeuler.evaluate.items import Item, choices_after
from nanoeuler.tokenizer.files import read_utf8

LETTERS = "ABCD"
EXPECTED = "a row of MMLU: question, four choices, and A, B, C or D, with no header"


@dataclass(frozen=True)
class Question:
    """A row of a file."""

    place: str
    text: str
    choices: list[str]
    answer: int

    def prompt(self) -> str:
        """Return all that is shown before the answer."""
        lines = (f"{letter}. {choice}" for letter, choice in zip(LETTERS, self.choices, strict=True))
        return "\n".join([self.text.strip(), *lines, "Answer:"])


def read_mmlu(path: Path, shots: int) -> list[Item]:
    """Return the items of a subject's file, or of all in a folder, in the order of the subjects' names.

    Args:
        path: a file; or a folder with files, or with a folder ``test`` of them.
        shots: questions of ``dev``, with their answers, that stand before each.

    Raises:
        UserError: these are no such files, or those in ``dev`` are missing or too few.
    """
    return [item for file in subject_files(path) for item in _read_subject(file, shots)]


def subject_files(path: Path) -> list[Path]:
    """Return the files that a path stands for.

    Raises:
        UserError: there are none in a folder.
    """
    if not path.is_dir():
        return [path]
    folder = path / "test" if (path / "test").is_dir() else path
    found = sorted(folder.glob("*_test.csv")) or sorted(folder.glob("*_val.csv"))
    if not found:
        raise UserError(f"{folder}: no file of MMLU here: expected are SUBJECT_test.csv")
    return found


def _read_subject(path: Path, shots: int) -> list[Item]:
    subject = path.stem.removesuffix("_test").removesuffix("_val")
    words = subject.replace("_", " ")
    head = f"The following are multiple choice questions (with answers) about {words}.\n\n"
    for example in _examples(path, subject, shots) if shots else []:
        head += f"{example.prompt()} {LETTERS[example.answer]}\n\n"
    return [Item(q.place, choices_after(head + q.prompt(), [*LETTERS]), q.answer, words) for q in _questions(path)]


def _examples(path: Path, subject: str, shots: int) -> list[Question]:
    """Return the first questions of a subject's file in ``dev``, which is a folder beside that of ``path``."""
    dev = path.resolve().parent.parent / "dev" / f"{subject}_dev.csv"
    if not dev.exists():
        raise UserError(f"{dev} is missing: {shots} of its questions stand before each of {path}; --shots 0 for none")
    found = list(islice(_questions(dev), shots))
    if len(found) < shots:
        raise UserError(f"{dev}: {len(found)} questions, and --shots asks for {shots}")
    return found


def _questions(path: Path) -> list[Question]:
    reader = csv.reader(read_utf8(path).removeprefix("\ufeff").splitlines(keepends=True), strict=True)
    found, line = [], 1
    try:
        for row in reader:
            place, line = f"{path}:{line}", reader.line_num + 1
            if not row:
                continue
            if len(row) != 6:
                raise UserError(f"{place}: {len(row)} columns; expected is {EXPECTED}")
            if len(row[5].strip()) != 1 or row[5].strip() not in LETTERS:
                raise UserError(f"{place}: the answer is {row[5]!r}; expected is {EXPECTED}")
            found.append(Question(place, row[0], row[1:5], LETTERS.index(row[5].strip())))
    except csv.Error as error:
        raise UserError(f"{path}:{line}: not CSV: {error}; expected is {EXPECTED}") from None
    if not found:
        raise UserError(f"{path}: nothing in it; expected is {EXPECTED}")
    return found
