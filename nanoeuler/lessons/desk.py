"""The learner's desk, ``lessons/my``: copies of the notebooks to work in, which nothing else touches."""

from datetime import datetime
from pathlib import Path

from nanoeuler.errors import UserError
from nanoeuler.files import writing, written_whole
from nanoeuler.lessons import progress
from nanoeuler.lessons.notebooks import DESK, desk_notebook, written
from nanoeuler.lessons.source import Lesson


def copy_of(lesson: Lesson) -> Path:
    """Return where the learner's copy of a lesson is, or would be."""
    folder = lesson.path.parents[1]
    return folder / DESK / f"{lesson.name}.ipynb"


def laid_out(lesson: Lesson) -> tuple[Path, bool]:
    """Make the learner's copy of a lesson unless there is one; return its path, and whether it was made.

    Raises:
        UserError: it cannot be written.
    """
    path = copy_of(lesson)
    if path.exists():
        return path, False
    _copy(lesson, path)
    return path, True


def _copy(lesson: Lesson, path: Path) -> None:
    with written_whole(path) as file:
        file.write(written(desk_notebook, lesson))


def outdated(lesson: Lesson) -> bool:
    """Whether the lesson has changed since the learner's copy was made: other text, or other exercises."""
    import nbformat

    path = copy_of(lesson)
    if not path.exists():
        return False
    try:
        theirs = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    except Exception:  # whatever a notebook is that was damaged
        return False
    ours = desk_notebook(lesson)
    have = {cell.get("id") for cell in theirs.cells}
    return not {cell["id"] for cell in ours.cells} <= have


def reset(lesson: Lesson) -> Path | None:
    """Begin a lesson anew: the copy steps aside, progress is forgotten, a fresh copy is made.

    Returns:
        Where the old copy is; None where there was none.

    Raises:
        UserError: a file cannot be moved or written.
    """
    path, aside = copy_of(lesson), None
    if path.exists():
        now = datetime.now().strftime("%Y-%m-%d-%H%M%S")
        aside = path.with_name(f"{lesson.name}.before-{now}.ipynb")
        with writing(aside):
            path.rename(aside)
    _copy(lesson, path)
    if (word := progress.forget(lesson.number)) is not None:
        raise UserError(word)
    return aside
