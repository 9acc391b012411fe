"""``python -m nanoeuler.lessons``: the course, what is done of it, and the way into each lesson."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec

from rich.console import Console
from rich.table import Table

from nanoeuler.config import Parser
from nanoeuler.errors import UserError, run_command, run_named
from nanoeuler.lessons import progress
from nanoeuler.lessons.source import Lesson, lessons
from nanoeuler.lessons.versions import INSTALL

USAGE = """\
python -m nanoeuler.lessons                the lessons, and what is done of each
python -m nanoeuler.lessons open 1         a lesson, as a copy of your own; --no-browser only names the file
python -m nanoeuler.lessons reset 1        begin a lesson anew; what you had is kept beside it
python -m nanoeuler.lessons solution 1     where the solved notebook is
python -m nanoeuler.lessons site FOLDER    all lessons as a website, to read without Jupyter
python -m nanoeuler.lessons build          for authors: make the notebooks from their sources
python -m nanoeuler.lessons try 1          for authors: run a lesson, and every wrong solution"""

#: Lessons that are planned, by number.
TO_COME = {
    11: "RoPE, both layouts",
    12: "SwiGLU and GELU, fusion, what to save",
    13: "Softmax and cross-entropy, fused",
    14: "Attention and grouped queries",
    15: "FlashAttention forward",
    16: "FlashAttention backward",
    17: "AdamW, clipping, schedules, mixed precision",
    18: "The whole model: CPU = GPU, overfit one batch",
    19: "Train Shakespeare: read the curves, resume, sample, KV cache",
    20: "Multi-token prediction, SFT and DPO, many workers",
}


def main(arguments: list[str]) -> int | None:
    """Run the command that the arguments name; without one, list the lessons.

    Raises:
        UserError: there is no such command or lesson, or something it needs is not there.
    """
    if not arguments:
        return _list()
    if arguments[0] in COMMANDS and find_spec("nbformat") is None:
        raise UserError(f"lessons are notebooks, and that takes Jupyter: {INSTALL}")
    return run_named(COMMANDS, USAGE, arguments)


def _list() -> int:
    table = Table("", "lesson", "minutes", "done", "next", title="The course", title_justify="left")
    found = lessons()
    for lesson in found:
        done = progress.done(lesson.number) & set(lesson.exercises)
        following = next((name for name in lesson.exercises if name not in done), None)
        count = f"{len(done)}/{len(lesson.exercises)}"
        row = (str(lesson.number), lesson.title, str(lesson.minutes), count, following or "all done")
        table.add_row(*row, style="green" if following is None else None)
    for number, title in TO_COME.items():
        if number > found[-1].number:
            table.add_row(str(number), title, "", "", "to come", style="dim")
    Console(highlight=False, width=None if sys.stdout.isatty() else 120).print(table)
    begun = next((lesson for lesson in found if not set(lesson.exercises) <= progress.done(lesson.number)), found[-1])
    print(f"to go on: python -m nanoeuler.lessons open {begun.number}")
    return 0


def _chosen(arguments: list[str], command: str, about: str, *options: tuple[str, str]) -> tuple[Lesson, dict]:
    """Return the lesson that a command's arguments name, and its options."""
    from nanoeuler.lessons.notebooks import lesson_number
    from nanoeuler.lessons.source import lesson_numbered

    parser = Parser(prog=f"python -m nanoeuler.lessons {command}", description=about)
    parser.add_argument("lesson", type=lesson_number, help="its number")
    for name, meaning in options:
        parser.add_argument(name, action="store_true", help=meaning)
    given = vars(parser.parse_args(arguments))
    return lesson_numbered(given["lesson"]), given


def _open(arguments: list[str]) -> int:
    from nanoeuler.lessons import desk

    lesson, given = _chosen(arguments, "open", "Open a lesson.", ("--no-browser", "only say where it is"))
    path, fresh = desk.laid_out(lesson)
    shown = os.path.relpath(path)
    if not fresh and desk.outdated(lesson):
        print(f"this lesson has changed since {shown} was made: reset {lesson.number} begins with the new one")
    print(f"lesson {lesson.number}: {shown}", flush=True)
    if given["no_browser"]:
        return 0
    if find_spec("jupyterlab") is None:
        raise UserError(f"opening it takes Jupyter: {INSTALL}; or open {shown} in VS Code")
    root = lesson.path.parents[2]  # the repository, so that links to its files lead there
    return subprocess.call([sys.executable, "-m", "jupyter", "lab", f"--ServerApp.root_dir={root}", str(path)])


def _reset(arguments: list[str]) -> int:
    from nanoeuler.lessons import desk

    lesson, given = _chosen(arguments, "reset", "Begin a lesson anew.", ("--yes", "do not ask"))
    if not given["yes"]:
        if not sys.stdin.isatty():
            raise UserError(f"reset forgets what you have done of lesson {lesson.number}: --yes says that it is meant")
        if input(f"begin lesson {lesson.number} anew, and forget what is done of it? [y/N] ").lower() not in (
            "y",
            "yes",
        ):
            print("nothing was changed")
            return 0
    aside = desk.reset(lesson)
    kept = f"; what you had is {os.path.relpath(aside)}" if aside else ""
    print(f"lesson {lesson.number} begins anew: {os.path.relpath(desk.copy_of(lesson))}{kept}")
    return 0


def _solution(arguments: list[str]) -> int:
    from nanoeuler.lessons.notebooks import paths

    lesson, _ = _chosen(arguments, "solution", "Say where the solved notebook of a lesson is.")
    print(os.path.relpath(paths(lesson)[1]))
    return 0


def _build(arguments: list[str]) -> int:
    from nanoeuler.lessons.notebooks import main_build

    return main_build(arguments)


def _try(arguments: list[str]) -> int:
    from nanoeuler.lessons.trying import main_try

    return main_try(arguments)


def _site(arguments: list[str]) -> int:
    from nanoeuler.lessons.site import main_site

    return main_site(arguments)


COMMANDS: dict[str, Callable[[list[str]], int | None]] = {
    "open": _open,
    "reset": _reset,
    "solution": _solution,
    "site": _site,
    "build": _build,
    "try": _try,
}

if __name__ == "__main__":
    sys.exit(run_command(main))
