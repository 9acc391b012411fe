"""Every lesson: its text, its notebooks, its solutions, and the wrong solutions that its checks must reject.

The solved notebooks are run to their ends in test_course, which keeps the outputs that it makes pages of.
"""

import pytest

from nanoeuler.lessons import running, syllabus
from nanoeuler.lessons.notebooks import build
from nanoeuler.lessons.source import Lesson, lessons
from nanoeuler.lessons.trying import mutant_problems, open_problems, text_problems

LESSONS = lessons()
each = pytest.mark.parametrize("lesson", LESSONS, ids=[lesson.name for lesson in LESSONS])


def test_the_lessons_are_numbered_from_1() -> None:
    assert [lesson.number for lesson in LESSONS] == list(range(1, len(LESSONS) + 1))


def test_notebooks_and_syllabus_are_those_that_the_sources_make() -> None:
    assert build(LESSONS, check=True) + syllabus.build(check=True) == [], "run python -m nanoeuler.lessons build"


@each
def test_something_to_look_at_on_every_screen(lesson: Lesson) -> None:
    assert list(text_problems(lesson)) == []


@each
def test_hints_a_prediction_and_a_look_into_the_package(lesson: Lesson) -> None:
    text = "\n".join(cell.text for cell in lesson.cells)
    assert text.count("<summary>Hint") >= 3 * len(lesson.exercises)
    for part in (
        "lesson.predict(",
        "lesson.reveal(",
        "lesson.step(",
        "lesson.trace(",
        "repo:nanoeuler/",
        "urther reading",
    ):
        assert part in text, part
    assert len(lesson.exercises) >= 2


@each
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_checks_take_the_solutions_and_reject_each_wrong_one(lesson: Lesson, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "gpu", lambda: False)
    assert "\n\n".join(mutant_problems(lesson)) == ""


@each
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_with_blanks_open_every_message_is_for_people(lesson: Lesson) -> None:
    assert "\n\n".join(open_problems(lesson)) == ""
