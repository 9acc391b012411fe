"""Lessons' sources: cells, mutants, and messages with the line for whatever is malformed."""

from pathlib import Path

import pytest
from lessons.small import LESSON, written

from nanoeuler.errors import UserError
from nanoeuler.lessons.source import lesson_numbered, lessons, read_lesson


def test_a_lesson_is_read_into_cells(tmp_path: Path) -> None:
    lesson = written(tmp_path)
    assert (lesson.number, lesson.name, lesson.title, lesson.minutes) == (2, "02_small", "A small lesson", 5)
    assert lesson.exercises == ["add", "count"]
    kinds = [cell.kind for cell in lesson.cells if cell.kind != "mutant"]
    assert kinds == [
        *("text", "text", "setup", "text", "exercise", "check", "code", "solved"),
        *("text", "exercise", "check", "text"),
    ]
    assert lesson.solution("count").startswith("threads = 64")
    text = lesson.path.read_text().splitlines()
    assert all(text[cell.line].startswith(cell.text.splitlines()[0]) for cell in lesson.cells if cell.kind == "check")


def test_other_fences_are_text(tmp_path: Path) -> None:
    lesson = written(tmp_path)
    assert "```text\n## no heading" in lesson.cells[3].text


def test_a_mutant_is_the_solution_with_lines_changed(tmp_path: Path) -> None:
    first, second, *_ = written(tmp_path).mutants
    assert (first.exercise, first.wrong, first.says) == ("add", "no guard", "out of bounds")
    assert "    if True:\n        # blank 3: add\n        out[i] = x[i] + y[i]" in first.code
    assert "        for _ in range(2):\n            out[i] = x[i] + y[i]\n        out[i] += x[i]" in second.code


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("title: A small lesson", "titel: A small lesson", "title is missing"),
        ("minutes: 5", "minutes: five", "minutes is 'five'"),
        ("minutes: 5", "minutes: 5\nmaths: no", "maths is unknown"),
        ("---\n", "", "between two lines of ---"),
        ("```python setup", "```python set", ":14: 'python set' is no kind of cell"),
        ("```python exercise add", "```python exercise", "'python exercise' is no kind of cell"),
        ("assert out[3] == 6\n```", "assert out[3] == 6", r":43: this block is not closed by ```"),
        ("- if i < out.size:", "- if i > out.size:", "'if i > out.size:' are 0 lines of the solution"),
        ("+ if True:", "* if True:", "is neither '- old' nor"),
        ("says: out of bounds", "", "it has what is wrong"),
        ("```mutant count", "```mutant counts", "no exercise 'counts' \\(did you mean 'count'"),
        ("```python exercise count", "```python exercise add", "two exercises are called add"),
    ],
)
def test_what_is_malformed_is_told(old: str, new: str, words: str, tmp_path: Path) -> None:
    assert old in LESSON
    with pytest.raises(UserError, match=words):
        _ = written(tmp_path, LESSON.replace(old, new, 1)).mutants


def test_a_fence_that_is_not_closed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"02_small.md:\d+: this block is not closed"):
        written(tmp_path, LESSON + "\n```text\n")


def test_names_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="they come with a clone of the repository"):
        lessons(tmp_path)
    written(tmp_path)
    assert [lesson.number for lesson in lessons(tmp_path)] == [2]
    with pytest.raises(UserError, match="there is no lesson 7: they are 2 to 2"):
        lesson_numbered(7, tmp_path)
    with pytest.raises(UserError, match="cannot read it"):
        read_lesson(tmp_path / "source" / "03_none.md")
    (tmp_path / "source" / "03-bad.md").write_text(LESSON)
    with pytest.raises(UserError, match=r"NN_name\.md"):
        read_lesson(tmp_path / "source" / "03-bad.md")
