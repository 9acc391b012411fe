"""The syllabus, ``lessons/README.md``: made of ``source/README.md`` and what each lesson says of itself."""

from pathlib import Path

from nanoeuler.console import plural
from nanoeuler.files import written_whole
from nanoeuler.lessons.source import FOLDER, Lesson, lessons

PLACE = "{{lessons}}"


def syllabus(folder: Path = FOLDER) -> str:
    """Return the syllabus as Markdown.

    Raises:
        UserError: a lesson is malformed, or there is none.
    """
    text = (folder / "source" / "README.md").read_text(encoding="utf-8")
    return text.replace(PLACE, "\n\n".join(map(_entry, lessons(folder))))


def _entry(lesson: Lesson) -> str:
    about = f"{lesson.minutes} minutes, {plural(len(lesson.exercises), 'exercise')}"
    notebook = f"[Notebook]({lesson.name}.ipynb) · [solved](solved/{lesson.name}.ipynb) · {about}"
    return (
        f"### {lesson.number}. {lesson.title}\n\n*{lesson.question}*\n\n"
        f"![{lesson.title}](pictures/{lesson.picture})\n\n{lesson.summary}\n\n{notebook}"
    )


def build(check: bool = False, folder: Path = FOLDER) -> list[Path]:
    """Write the syllabus if it is not up to date; with ``check`` write nothing. Return its path if it was not."""
    path = folder / "README.md"
    content = syllabus(folder).encode()
    if path.exists() and path.read_bytes() == content:
        return []
    if not check:
        with written_whole(path) as file:
            file.write(content)
    return [path]
