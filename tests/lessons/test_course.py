"""The course itself as a website: every solved notebook runs to its end, and no link is dead."""

import contextlib
from pathlib import Path

import pytest
from lessons.ruler import browser, require_fitting

from nanoeuler.lessons.site import runs
from nanoeuler.lessons.site.command import main_site
from nanoeuler.lessons.source import lessons
from nanoeuler.lessons.trying import MOST_SECONDS, kind_of, seconds_of


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the site of the real lessons; their outputs are kept in the cache, as anybody's are."""
    folder = tmp_path_factory.mktemp("course") / "site"
    with contextlib.redirect_stdout(None):
        assert main_site([str(folder)]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_course_is_a_site_without_a_dead_link(course: Path) -> None:
    assert {path.stem for path in course.glob("[0-9]*.html")} == {lesson.name for lesson in lessons()}
    for lesson in lessons():
        page = (course / f"{lesson.name}.html").read_text(encoding="utf-8")
        assert f'src="pictures/{lesson.picture}"' in page


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_check_answers_soon_and_every_lesson_asserts_something(course: Path) -> None:
    for lesson, notebook in zip(lessons(), runs.executed(lessons()), strict=True):
        slow = {
            c.source: seconds_of(c) for c in notebook.cells if kind_of(c) == "check" and seconds_of(c) > MOST_SECONDS
        }
        assert slow == {}, lesson.name
        assert any(kind_of(cell) == "solved" for cell in notebook.cells), lesson.name


@browser
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_course_fits_a_telephone(course: Path, tmp_path: Path) -> None:
    require_fitting(course, tmp_path / "profile")
