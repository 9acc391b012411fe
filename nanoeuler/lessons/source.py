"""A lesson's source: one Markdown file, of which the learner's notebook and the solved one are made.

A file begins with ``key: value`` lines between two ``---``. Fenced blocks are cells, by their info strings:

- ``python``: code, in both notebooks; ``python setup``: imports and constants, which mutants need as well;
- ``python exercise NAME``: a solution with its blanks marked (see ``blanks``), open in the learner's notebook;
- ``python check``: the cell that checks an exercise; ``python solved``: assertions, in the solved notebook alone;
- ``mutant NAME``: a wrong solution that the check must reject, in no notebook.

Any other fence is part of the text. Headings begin a new cell of text. ``{{solution NAME}}`` on a line of its own
stands for the whole solution.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from nanoeuler.errors import UserError, nearest

FOLDER = Path(__file__).parents[2] / "lessons"
KEYS = ("title", "question", "minutes", "picture", "summary")

Kind = Literal["text", "code", "setup", "exercise", "check", "solved", "mutant"]
KINDS: dict[str, Kind] = {"": "code", "setup": "setup", "exercise": "exercise", "check": "check", "solved": "solved"}


@dataclass(frozen=True)
class Cell:
    """A piece of a lesson: its text without the fence; ``exercise`` is the name where it has one."""

    kind: Kind
    text: str
    line: int  # of the source file, where it begins
    exercise: str | None = None


@dataclass(frozen=True)
class Mutant:
    """A wrong solution: what is wrong with it, the whole code, and a pattern that the check's message must have."""

    exercise: str
    wrong: str
    code: str
    says: str


@dataclass(frozen=True)
class Lesson:
    """A lesson as its source file has it."""

    number: int
    name: str
    path: Path
    title: str
    question: str
    minutes: int
    picture: str
    summary: str
    cells: tuple[Cell, ...] = field(repr=False)

    @property
    def exercises(self) -> list[str]:
        """The names of its exercises, in order."""
        return [cell.exercise for cell in self.cells if cell.kind == "exercise" and cell.exercise]

    def solution(self, exercise: str) -> str:
        """Return the code of an exercise, with its blanks marked as in the source.

        Raises:
            UserError: there is none of that name.
        """
        for cell in self.cells:
            if cell.kind == "exercise" and cell.exercise == exercise:
                return cell.text
        raise UserError(f"{self.path}: no exercise '{exercise}'{nearest(exercise, self.exercises)}")

    @cached_property
    def mutants(self) -> list[Mutant]:
        """The wrong solutions.

        Raises:
            UserError: one does not fit its exercise.
        """
        return [_mutant(self, cell) for cell in self.cells if cell.kind == "mutant"]


def lessons(folder: Path = FOLDER) -> list[Lesson]:
    """Return the lessons in a folder's ``source``, in order.

    Raises:
        UserError: the folder is not there, as where nanoeuler was installed without it; or a lesson is malformed.
    """
    paths = sorted((folder / "source").glob("[0-9][0-9]_*.md"))
    if not paths:
        raise UserError(f"{folder / 'source'}: there are no lessons here; they come with a clone of the repository")
    return [read_lesson(path) for path in paths]


def lesson_numbered(number: int, folder: Path = FOLDER) -> Lesson:
    """Return one lesson.

    Raises:
        UserError: there is none of that number.
    """
    found = lessons(folder)
    for lesson in found:
        if lesson.number == number:
            return lesson
    raise UserError(f"there is no lesson {number}: they are {found[0].number} to {found[-1].number}")


def read_lesson(path: Path) -> Lesson:
    """Read a lesson's source.

    Raises:
        UserError: the file cannot be read, or is not as the module describes; the message has the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror}") from None
    keys, begin = _front_matter(path, lines)
    number = re.match(r"(\d\d)_\w+$", path.stem)
    if not number:
        raise UserError(f"{path}: a lesson is called NN_name.md")
    if not keys["minutes"].isdecimal():
        raise UserError(f"{path}: minutes is '{keys['minutes']}', and should be a whole number")
    plain = {name: keys[name] for name in ("title", "question", "picture", "summary")}
    cells = tuple(_cells(path, lines, begin))
    lesson = Lesson(int(number[1]), path.stem, path, minutes=int(keys["minutes"]), cells=cells, **plain)
    doubled = {name for name in lesson.exercises if lesson.exercises.count(name) > 1}
    if doubled:
        raise UserError(f"{path}: two exercises are called {', '.join(sorted(doubled))}")
    return lesson


def _front_matter(path: Path, lines: list[str]) -> tuple[dict[str, str], int]:
    """Return the keys at the top, and the number of the first line after them."""
    if not lines or lines[0] != "---" or "---" not in lines[1:]:
        raise UserError(f"{path}: a lesson begins with its {', '.join(KEYS)} between two lines of ---")
    end = lines.index("---", 1)
    keys = dict(re.split(r":\s*", line, maxsplit=1) for line in lines[1:end] if re.match(r"\w+:", line))
    if missing := [key for key in KEYS if not keys.get(key)]:
        raise UserError(f"{path}: at its top, {', '.join(missing)} is missing")
    if unknown := [key for key in keys if key not in KEYS]:
        raise UserError(f"{path}: at its top, {unknown[0]} is unknown{nearest(unknown[0], KEYS)}")
    return keys, end + 1


FENCE = re.compile(r"(```+)(.*)")
HEADING = re.compile(r"#{2,4} ")


def _cells(path: Path, lines: list[str], begin: int) -> list[Cell]:
    cells: list[Cell] = []
    text: list[str] = []
    start = n = begin

    def flush() -> None:
        nonlocal text
        if any(map(str.strip, text)):
            cells.append(Cell("text", "\n".join(text).strip("\n"), start + 1))
        text = []

    while n < len(lines):
        fence = FENCE.match(lines[n])
        end = _end_of_fence(path, lines, n, fence[1]) if fence else n
        kind = _kind(path, n, fence[2].split()) if fence else None
        if kind is None:
            if HEADING.match(lines[n]):
                flush()
            if not text:
                start = n
            text += lines[n : end + 1]
        else:
            flush()
            cells.append(Cell(kind[0], "\n".join(lines[n + 1 : end]), n + 1, kind[1]))
        n = end + 1
    flush()
    return cells


def _end_of_fence(path: Path, lines: list[str], begin: int, ticks: str) -> int:
    for n in range(begin + 1, len(lines)):
        if lines[n].rstrip() == ticks:
            return n
        if (other := FENCE.match(lines[n])) and other[1] == ticks:  # another one begins
            break
    raise UserError(f"{path}:{begin + 1}: this block is not closed by {ticks}")


def _kind(path: Path, line: int, info: list[str]) -> tuple[Kind, str | None] | None:
    """Return what a fence's info string says: kind and exercise; None for one that is part of the text."""
    if info[:1] == ["mutant"] and len(info) == 2:
        return "mutant", info[1]
    if info[:1] != ["python"]:
        return None
    word = info[1] if len(info) > 1 else ""
    if word not in KINDS or len(info) != {"": 1, "exercise": 3}.get(word, 2):
        kinds = ", ".join(f"python {kind}".strip() for kind in KINDS)
        raise UserError(f"{path}:{line + 1}: '{' '.join(info)}' is no kind of cell: use {kinds} NAME, mutant NAME")
    return KINDS[word], info[2] if word == "exercise" else None


# Mutants --------------------------------------------------------------------------------------------------------------


def _mutant(lesson: Lesson, cell: Cell) -> Mutant:
    assert cell.exercise is not None
    where = f"{lesson.path}:{cell.line}: mutant of {cell.exercise}"
    wrong, *changes = [line for line in cell.text.splitlines() if line.strip()]
    if not changes or not changes[-1].startswith("says: ") or wrong.startswith(("- ", "+ ")):
        raise UserError(f"{where}: it has what is wrong, lines of '- old' and '+ new', and 'says: PATTERN'")
    code = lesson.solution(cell.exercise).splitlines()
    old: int | None = None
    for line in changes[:-1]:
        sign, content = line[:2].strip(), line[2:]
        if sign == "-":
            same = [n for n, each in enumerate(code) if each.strip() == content.strip()]
            at = same or [n for n, each in enumerate(code) if _bare(each) == _bare(content)]
            if len(at) != 1:
                raise UserError(f"{where}: '{content.strip()}' are {len(at)} lines of the solution, and should be one")
            old = at[0]
            indent = code[old][: len(code[old]) - len(code[old].lstrip())]
            first = None
            del code[old]
        elif sign == "+" and old is not None:
            first = len(content) - len(content.lstrip()) if first is None else first
            extra = " " * max(0, len(content) - len(content.lstrip()) - first)
            code.insert(old, indent + extra + content.strip())
            old += 1
        else:
            raise UserError(f"{where}: '{line}' is neither '- old' nor '+ new' after one")
    return Mutant(cell.exercise, wrong.strip(), "\n".join(code), changes[-1].removeprefix("says: ").strip())


def _bare(line: str) -> str:
    """Return a line of a solution without indentation, and without the mark of a blank."""
    return re.sub(r"\s*# blank \d+.*$", "", line).strip() or line.strip()
