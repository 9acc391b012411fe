"""From a lesson's source to its two notebooks: the learner's, with blanks, and the solved one."""

import base64
import hashlib
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from nanoeuler.config import Parser
from nanoeuler.console import plural
from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.lessons.blanks import filled, opened
from nanoeuler.lessons.home import REPOSITORY
from nanoeuler.lessons.source import FOLDER, Cell, Lesson, lesson_numbered, lessons

SOLVED, DESK = "solved", "my"  # folders of lessons, beside those that the learner's notebooks are in
PICTURE = "data:image/svg+xml;name="  # what the address of a picture begins with; its name follows
COLAB = "https://colab.research.google.com/assets/colab-badge.svg"
START = """\
try:
    from nanoeuler.lessons import start
except ModuleNotFoundError:  # in Colab, say
    %pip install --quiet "nanoeuler[lessons-kernel] @ git+{repository}"
    from nanoeuler.lessons import start
lesson = start({arguments})"""


def learner_notebook(lesson: Lesson) -> NotebookNode:
    """Return the notebook with open blanks."""
    return _notebook(lesson, "")


def solved_notebook(lesson: Lesson) -> NotebookNode:
    """Return the notebook with every blank filled, and assertions on what the cells computed."""
    return _notebook(lesson, SOLVED)


def desk_notebook(lesson: Lesson) -> NotebookNode:
    """Return the learner's own copy: the one with open blanks, with links that lead from its folder."""
    return _notebook(lesson, DESK)


def paths(lesson: Lesson) -> tuple[Path, Path]:
    """Return where the two notebooks of a lesson are: the learner's, and the solved one."""
    folder = lesson.path.parents[1]
    return folder / f"{lesson.name}.ipynb", folder / SOLVED / f"{lesson.name}.ipynb"


def _notebook(lesson: Lesson, folder: str) -> NotebookNode:
    """Return a notebook for ``lessons/folder``."""
    solved = folder == SOLVED
    cells = [_title(lesson, folder), _start(lesson, solved)]
    for cell in lesson.cells:
        if cell.kind == "text":
            cells.append(_text(lesson, cell, folder))
        elif cell.kind != "mutant" and (solved or cell.kind != "solved"):
            cells.append(_code(cell, solved))
    seen: set[str] = set()
    for made in cells:  # an id of its own for each, the same in every build
        made["id"] = _id(made["source"], seen)
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata["language_info"] = {"name": "python"}
    notebook.metadata["nanoeuler"] = {"lesson": lesson.number, "solved": solved}
    return notebook


def _id(text: str, seen: set[str]) -> str:
    """Return a cell's id, made of its text."""
    n = 0
    while (made := hashlib.sha256(f"{n}{text}".encode()).hexdigest()[:12]) in seen:
        n += 1
    seen.add(made)
    return made


def _title(lesson: Lesson, folder: str) -> NotebookNode:
    solved = folder == SOLVED
    file = f"lessons/{'solved/' if solved else ''}{lesson.name}.ipynb"
    github = REPOSITORY.removeprefix("https://github.com/")
    colab = f"https://colab.research.google.com/github/{github}/blob/main/{file}"
    head = f"# Lesson {lesson.number}: {lesson.title}"
    told = f" · about {lesson.minutes} minutes · [all lessons](lesson:0)"
    badge = f"[![Open in Colab]({COLAB})]({colab}){told}"
    which = "\n\nThis is the solved notebook: every blank filled, every output checked." if solved else ""
    return _text(lesson, Cell("text", f"{head}\n\n**{lesson.question}**\n\n{badge}{which}", 1), folder)


def _start(lesson: Lesson, solved: bool) -> NotebookNode:
    arguments = f"{lesson.number}, keep=False" if solved else str(lesson.number)
    code = START.format(repository=REPOSITORY, arguments=arguments)
    return nbformat.v4.new_code_cell(code, metadata={"nanoeuler": {"kind": "start"}})


def _code(cell: Cell, solved: bool) -> NotebookNode:
    meant: dict[str, Any] = {"kind": cell.kind}
    code = cell.text
    if cell.kind == "exercise":
        meant["exercise"] = cell.exercise
        code = filled(code) if solved else opened(code)
    return nbformat.v4.new_code_cell(code.strip("\n"), metadata={"nanoeuler": meant})


# Text -----------------------------------------------------------------------------------------------------------------

LINK = re.compile(r"(?<=\]\()(repo|lesson|picture):([^)\s]+)(?=\))")
SOLUTION = re.compile(r"^\{\{solution (\w+)\}\}$", re.MULTILINE)


def _text(lesson: Lesson, cell: Cell, folder: str) -> NotebookNode:
    """Return a cell of text: solutions and pictures put in, links made to fit the notebook's folder.

    Pictures are part of the address that shows them: JupyterLab shows SVG in no other way wherever the file is.
    """
    up = "../../" if folder else "../"

    def solution(found: re.Match) -> str:
        return f"```python\n{filled(lesson.solution(found[1])).strip()}\n```"

    def link(found: re.Match) -> str:
        kind, name = found[1], found[2]
        if kind == "picture":
            return f"{PICTURE}{name};base64,{base64.b64encode(picture(lesson, name).encode()).decode()}"
        return up + name if kind == "repo" else _lesson_link(lesson, name, folder)

    try:
        source = LINK.sub(link, SOLUTION.sub(solution, cell.text))
    except UserError as error:
        raise UserError(f"{lesson.path}:{cell.line}: {error}") from None
    return nbformat.v4.new_markdown_cell(source, metadata={"nanoeuler": {"kind": "text"}})


def _lesson_link(lesson: Lesson, number: str, folder: str) -> str:
    if number == "0":
        return "../README.md" if folder else "README.md"
    named = sorted(lesson.path.parent.glob(f"{int(number):02}_*.md")) if number.isdecimal() else []
    if not named:
        raise UserError(f"there is no lesson {number} to link to")
    return f"{'../' if folder == DESK else ''}{named[0].stem}.ipynb"


def picture(lesson: Lesson, name: str) -> str:
    """Return an SVG of a lesson.

    Raises:
        UserError: it is not there.
    """
    path = lesson.path.parents[1] / "pictures" / name
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot read this picture: {error.strerror}") from None


# The command ----------------------------------------------------------------------------------------------------------


def build(chosen: list[Lesson], check: bool = False) -> list[Path]:
    """Write the notebooks of lessons; with ``check`` only return those that are not as they would be written.

    Returns:
        The paths that were written, or would be.

    Raises:
        UserError: a lesson is malformed, or a file cannot be written.
    """
    changed = []
    for lesson in chosen:
        for path, make in zip(paths(lesson), (learner_notebook, solved_notebook), strict=True):
            content = written(make, lesson)
            if path.exists() and path.read_bytes() == content:
                continue
            changed.append(path)
            if not check:
                with written_whole(path) as file:
                    file.write(content)
    return changed


def written(make: Callable[[Lesson], NotebookNode], lesson: Lesson) -> bytes:
    """Return a notebook's file."""
    notebook = make(lesson)
    nbformat.validate(notebook)
    return (nbformat.writes(notebook) + "\n").encode()


def main_build(arguments: list[str]) -> int:
    """Write the notebooks of the lessons that the arguments name, or of all; with --check say which are stale.

    Raises:
        UserError: there is no such lesson, or one is malformed.
    """
    parser = Parser(prog="python -m nanoeuler.lessons build", description="Make the notebooks from the sources.")
    parser.add_argument("lesson", nargs="*", type=lesson_number, help="numbers; default: all")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a notebook is stale")
    options = parser.parse_args(arguments)
    from nanoeuler.lessons import syllabus

    changed = build(list(chosen_lessons(options.lesson)), options.check)
    changed += syllabus.build(options.check)
    for path in changed:
        print(f"{'stale' if options.check else 'wrote'}: {path.relative_to(FOLDER.parent)}")
    if options.check and changed:
        print(f"{plural(len(changed), 'file')} to be made anew: python -m nanoeuler.lessons build")
    elif not changed:
        print("every notebook is up to date")
    return int(options.check and bool(changed))


def lesson_number(text: str) -> int:
    """Return a lesson's number as a command's argument has it."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"'{text}' is no lesson: give its number")
    return int(text)


def chosen_lessons(numbers: list[int]) -> Iterator[Lesson]:
    """Yield the lessons of some numbers, or all where there is none."""
    yield from (lesson_numbered(number) for number in numbers) if numbers else lessons()
