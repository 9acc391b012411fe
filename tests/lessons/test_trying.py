"""Trying a lesson finds what is wrong with it: in its text, its check, its notebooks."""

from pathlib import Path

import pytest
from lessons.small import LESSON, written

from nanoeuler.lessons import running
from nanoeuler.lessons.checks import lesson_02
from nanoeuler.lessons.trying import main_try, mutant_problems, open_problems, solved_problems, text_problems


@pytest.fixture(autouse=True)
def _with_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the exercise ``count`` of the small lesson have a check, and ``add`` a quick one; there is no GPU."""
    from nanoeuler.lessons.checking import different, empty, run_kernel, same

    def add(kernel: object) -> None:
        x, y = different(40), different(40, seed=1)
        run_kernel(kernel, 2, 32, {"out": empty(40), "x": x, "y": y}, {"out": x + y}, label="40 numbers")

    def count(threads: object) -> None:
        same(threads, 64, "threads")

    for function in (add, count):
        function.__module__ = lesson_02.__name__
        monkeypatch.setattr(lesson_02, function.__name__, function, raising=False)
    monkeypatch.setattr(running, "gpu", lambda: False)


MORE = """
```mutant count
too many
- threads = 64
+ threads = 65
says: should be 64
```

```mutant count
a text
- threads = 64
+ threads = "64"
says: should be a number
```
"""


def test_nothing_is_wrong_with_a_good_lesson(tmp_path: Path) -> None:
    lesson = written(tmp_path, LESSON + MORE)
    assert list(text_problems(lesson)) == []
    assert list(mutant_problems(lesson)) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("+ threads = 65", "+ threads = 64", "count, too many: the check takes it for right"),
        ("says: out of bounds", "says: race", "add, no guard: the check does not say 'race' but:"),
        ("+ threads = 65", "+ threads = nothing", "count, too many: not rejected by a message, but NameError"),
        ("```mutant count\ntoo many", "```text\ntoo many", "count has 2 mutants, and should have 3 or more"),
        ("        out[i] = x[i] + y[i]", "        out[i] = y[i]", "add: its check rejects the solution:"),
    ],
)
def test_a_check_that_is_not_good_enough_is_told(old: str, new: str, words: str, tmp_path: Path) -> None:
    text = LESSON + MORE
    assert old in text
    text = text.replace("- out[i] = x[i] + y[i]", "- out[i] = y[i]") if "y[i]" in old else text
    assert words in "\n".join(mutant_problems(written(tmp_path, text.replace(old, new, 1))))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Some words", "word " * 130, "with nothing to look at, up to 'word word"),
        ("{{solution count}}", "", "the solution of count is shown nowhere"),
    ],
)
def test_a_wall_of_text_is_told(old: str, new: str, words: str, tmp_path: Path) -> None:
    assert words in "\n".join(text_problems(written(tmp_path, LESSON.replace(old, new))))


def test_folded_text_and_formulas_break_no_wall(tmp_path: Path) -> None:
    folded = "<details><summary>Hint</summary>\n" + "word " * 200 + "\n</details>"
    text = LESSON.replace("Some words", f"{'word ' * 100}\n$$a = b$$\n{'word ' * 100}\n{folded}")
    assert list(text_problems(written(tmp_path, text))) == []


@pytest.mark.slow
def test_notebooks_are_run(tmp_path: Path) -> None:
    only_add = LESSON[: LESSON.index("## Count")]
    lesson = written(tmp_path, only_add)
    assert list(solved_problems(lesson)) == []
    assert list(open_problems(lesson)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("assert out[3] == 6", "assert out[3] == 7", "the solved notebook fails:"),
        ("```python solved\nassert out[3] == 6\n```\n", "", "no cell of the solved notebook asserts anything"),
    ],
)
def test_a_solved_notebook_that_fails_is_told(old: str, new: str, words: str, tmp_path: Path) -> None:
    text = LESSON[: LESSON.index("## Count")].replace(old, new)
    assert words in "\n".join(solved_problems(written(tmp_path, text)))


@pytest.mark.slow
def test_what_an_open_notebook_must_not_show_is_told(tmp_path: Path) -> None:
    text = LESSON[: LESSON.index("## Count")]
    text = text.replace("from numba import cuda", "from numba import cuda\n1 / 0", 1)
    text = text.replace("add[1, 32](out, x, x)", "out.shape.none", 1)
    found = "\n".join(open_problems(written(tmp_path, text)))
    assert "a cell before any blank fails with ZeroDivisionError" in found
    assert "with blanks open a cell shows a traceback of AttributeError" in found


def test_the_command_refuses_what_is_no_lesson() -> None:
    from nanoeuler.errors import UserError

    with pytest.raises(UserError, match="'x' is no lesson"):
        main_try(["x"])
    with pytest.raises(UserError, match="there is no lesson 99"):
        main_try(["99"])
