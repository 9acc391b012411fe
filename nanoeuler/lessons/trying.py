"""Tries lessons as their readers would: the solved notebook, the open one, and every wrong solution there is.

:func:`problems` says in words what is not as it should be; ``python -m nanoeuler.lessons try`` and the tests ask it.
"""

import contextlib
import io
import linecache
import os
import re
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbformat import NotebookNode

from nanoeuler.config import Parser
from nanoeuler.console import plural
from nanoeuler.errors import UserError
from nanoeuler.lessons.blanks import filled
from nanoeuler.lessons.checking import CheckFailed
from nanoeuler.lessons.notebooks import chosen_lessons, learner_notebook, lesson_number, solved_notebook
from nanoeuler.lessons.source import Lesson, Mutant

if TYPE_CHECKING:
    from nbclient import NotebookClient

LEAST_MUTANTS = 3  # of each exercise
MOST_WORDS = 120  # of prose between two things to look at
MOST_SECONDS = 10  # of a check
TIMEOUT = 300  # seconds of a cell: something hangs


# Notebooks ------------------------------------------------------------------------------------------------------------


def executed(notebook: NotebookNode, folder: Path, allow_errors: bool = False) -> NotebookNode:
    """Return a notebook with the outputs of a run from its first cell to its last, in a process of its own.

    Progress is not kept. Each cell's metadata has when it began and ended.

    Raises:
        UserError: a cell fails, and ``allow_errors`` is false; the message has the cell and its error.
    """
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    with progress_apart():
        try:
            client(notebook, folder, allow_errors=allow_errors).execute(env=dict(os.environ))
        except (CellExecutionError, CellTimeoutError) as error:
            raise UserError(str(error)) from None
    return notebook


def client(notebook: NotebookNode, folder: Path, **more: Any) -> "NotebookClient":
    """Return what runs a notebook in a process of its own, as if the file were in ``folder``."""
    from nbclient import NotebookClient

    return NotebookClient(
        notebook,
        timeout=TIMEOUT,
        resources={"metadata": {"path": str(folder)}},
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        **more,
    )


def kind_of(cell: NotebookNode) -> str:
    """Return what kind of cell this is, as in the lesson's source."""
    return str(cell.metadata.get("nanoeuler", {}).get("kind", "text"))


def errors_of(cell: NotebookNode) -> list[NotebookNode]:
    """Return the errors among a cell's outputs."""
    return [output for output in cell.get("outputs", []) if output.output_type == "error"]


def seconds_of(cell: NotebookNode) -> float:
    """Return how long a cell took in the run whose outputs it has."""
    times = cell.metadata.get("execution", {})
    began, ended = times.get("iopub.status.busy"), times.get("shell.execute_reply")
    if not began or not ended:
        return 0.0
    begin, end = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (began, ended))
    return (end - begin).total_seconds()


def solved_problems(lesson: Lesson) -> Iterator[str]:
    """Yield what is wrong with the solved notebook, run to its end."""
    try:
        notebook = executed(solved_notebook(lesson), lesson.path.parents[1])
    except UserError as error:
        yield f"the solved notebook fails:\n{error}"
        return
    for cell in notebook.cells:
        if kind_of(cell) == "check" and seconds_of(cell) > MOST_SECONDS:
            yield f"a check takes {seconds_of(cell):.0f} s, and should answer within {MOST_SECONDS}: {cell.source}"
    if not any(kind_of(cell) == "solved" for cell in notebook.cells):
        yield "no cell of the solved notebook asserts anything"


def open_problems(lesson: Lesson) -> Iterator[str]:
    """Yield what is wrong with the learner's notebook, run with every blank open."""
    notebook = executed(learner_notebook(lesson), lesson.path.parents[1], allow_errors=True)
    untouched = True
    for cell in notebook.cells:
        kind, errors = kind_of(cell), errors_of(cell)
        untouched &= kind != "exercise"
        if kind == "check" and not errors:
            yield f"this check passes, though its blanks are open: {cell.source}"
        for error in errors:
            if untouched:
                yield f"a cell before any blank fails with {error.ename}: {error.evalue}\n{cell.source}"
            elif kind == "check" and not (error.ename == "CheckFailed" and "still open" in error.evalue):
                yield f"with its blanks open this check says '{error.ename}: {error.evalue}': {cell.source}"
            elif len(error.traceback) != 1:
                yield f"with blanks open a cell shows a traceback of {error.ename}: {error.evalue}\n{cell.source}"


# Wrong solutions ------------------------------------------------------------------------------------------------------


def mutant_problems(lesson: Lesson) -> Iterator[str]:
    """Yield which checks reject the solution, or take a wrong one, or do not say what is wrong with it."""
    from nanoeuler.lessons.running import begin
    from nanoeuler.simt.cuda.install import installed

    with installed(), progress_apart():
        with contextlib.redirect_stdout(io.StringIO()):
            running = begin(lesson.number)
        names: dict[str, Any] = {"lesson": running}
        for cell in lesson.cells:
            if cell.kind == "setup":
                run(cell.text, names)
            elif cell.kind == "exercise" and cell.exercise:
                yield from _tried(lesson, running, cell.exercise, names)


def _tried(lesson: Lesson, running: Any, exercise: str, names: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the check of one exercise; afterwards ``names`` has the solution's."""
    mutants = [mutant for mutant in lesson.mutants if mutant.exercise == exercise]
    thing = thing_checked(lesson, exercise)
    if len(mutants) < LEAST_MUTANTS:
        yield f"{exercise} has {plural(len(mutants), 'mutant')}, and should have {LEAST_MUTANTS} or more"
    for mutant in mutants:
        yield from _rejected(running, mutant, thing, dict(names))
    run(filled(lesson.solution(exercise)), names)
    began = time.monotonic()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            running.check(exercise, eval(thing, names))
    except UserError as error:
        yield f"{exercise}: its check rejects the solution:\n{error}"
    if time.monotonic() - began > MOST_SECONDS:
        yield f"{exercise}: its check took {time.monotonic() - began:.0f} s"


def _rejected(running: Any, mutant: Mutant, thing: str, names: dict[str, Any]) -> Iterator[str]:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run(filled(mutant.code), names)
            running.check(mutant.exercise, eval(thing, names))
    except CheckFailed as error:
        if not re.search(mutant.says, str(error), re.IGNORECASE):
            yield f"{mutant.exercise}, {mutant.wrong}: the check does not say '{mutant.says}' but:\n{error}"
    except Exception as error:
        yield f"{mutant.exercise}, {mutant.wrong}: not rejected by a message, but {type(error).__name__}: {error}"
    else:
        yield f"{mutant.exercise}, {mutant.wrong}: the check takes it for right"


def thing_checked(lesson: Lesson, exercise: str) -> str:
    """Return what a lesson's check cell gives to the check of an exercise, as its code has it.

    Raises:
        UserError: the lesson has no check cell for it.
    """
    for cell in lesson.cells:
        found = re.fullmatch(rf"lesson\.check\([\"']{exercise}[\"'], (.+)\)", cell.text.strip())
        if cell.kind == "check" and found:
            return found[1]
    raise UserError(f'{lesson.path}: {exercise} has no check cell: lesson.check("{exercise}", {exercise})')


def run(code: str, names: dict[str, Any]) -> None:
    """Run a cell's code, so that the source of what it defines can be found."""
    file = f"<cell {len(linecache.cache)}>"
    linecache.cache[file] = (len(code), None, [f"{line}\n" for line in code.splitlines()], file)
    exec(compile(code, file, "exec", dont_inherit=True), names)


@contextlib.contextmanager
def progress_apart() -> Iterator[None]:
    """Keep progress in a place that is thrown away."""
    before = os.environ.get("NANOEULER_PROGRESS")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["NANOEULER_PROGRESS"] = str(Path(scratch) / "progress.json")
        try:
            yield
        finally:
            if before is None:
                del os.environ["NANOEULER_PROGRESS"]
            else:
                os.environ["NANOEULER_PROGRESS"] = before


# Text -----------------------------------------------------------------------------------------------------------------

FOLDS = re.compile(r"<details>.*?</details>", re.DOTALL)
LOOKED_AT = re.compile(r"!\[[^\]]*\]\([^)]*\)|\$\$.*?\$\$|^```.*?^```$|(?:^\|.*\n?)+", re.DOTALL | re.MULTILINE)


def text_problems(lesson: Lesson) -> Iterator[str]:
    """Yield where there is more prose than one wants to read at a stretch; folded text does not count."""
    words = 0
    for cell in lesson.cells:
        if cell.kind in ("solved", "mutant") or cell.text.startswith("## Further reading"):
            continue
        if cell.kind != "text":
            words = 0
            continue
        for n, part in enumerate(LOOKED_AT.split(FOLDS.sub("", cell.text))):
            words = (words if n == 0 else 0) + len(part.split())
            if words > MOST_WORDS:
                told = " ".join(part.split()[-12:])
                yield f"{lesson.path.name}:{cell.line}: {words} words with nothing to look at, up to '{told}'"
                words = 0
    for exercise in lesson.exercises:
        if f"{{{{solution {exercise}}}}}" not in "\n".join(cell.text for cell in lesson.cells):
            yield f"the solution of {exercise} is shown nowhere"


def problems(lesson: Lesson) -> Iterator[str]:
    """Yield all that is wrong with a lesson."""
    yield from text_problems(lesson)
    yield from mutant_problems(lesson)
    yield from solved_problems(lesson)
    yield from open_problems(lesson)


def main_try(arguments: list[str]) -> int:
    """Try the lessons that the arguments name, or all; return 1 if something is wrong with one.

    Raises:
        UserError: there is no such lesson, or one is malformed.
    """
    parser = Parser(prog="python -m nanoeuler.lessons try", description="Run lessons, and every wrong solution.")
    parser.add_argument("lesson", nargs="*", type=lesson_number, help="numbers; default: all")
    wrong = 0
    for lesson in chosen_lessons(parser.parse_args(arguments).lesson):
        began = time.monotonic()
        for problem in problems(lesson):
            wrong += 1
            print(f"lesson {lesson.number}: {problem}", flush=True)
        mutants = plural(len(lesson.mutants), "wrong solution")
        exercises = plural(len(lesson.exercises), "exercise")
        print(f"lesson {lesson.number}: {exercises}, {mutants}, {time.monotonic() - began:.0f} s", flush=True)
    return int(wrong > 0)
