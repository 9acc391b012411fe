"""Blanks in solutions: how they look open and filled, and which of a function are open still."""

import pytest

from nanoeuler.errors import UserError
from nanoeuler.lessons.blanks import filled, open_blanks, opened

KERNEL = """\
def add(out, x):
    i = grid(1)  # blank 1: the number of this thread
    if i < x.size:  # blank 2: the guard
        # blank 3: read, add
        a = x[i]
        out[i] = a + 1
        # end
    return out  # a comment of its own
"""


def test_a_solution_with_its_blanks_open() -> None:
    assert opened(KERNEL).splitlines() == [
        "def add(out, x):",
        "    i = ...  # 1: the number of this thread",
        "    if ...:  # 2: the guard",
        "        # 3: read, add",
        "        ...",
        "    return out  # a comment of its own",
    ]


def test_a_solution_filled_is_whole_and_keeps_the_words() -> None:
    lines = filled(KERNEL).splitlines()
    assert lines[1] == "    i = grid(1)  # 1: the number of this thread"
    assert lines[3:6] == ["        # 3: read, add", "        a = x[i]", "        out[i] = a + 1"]
    assert "blank" not in filled(KERNEL)
    assert "# end" not in filled(KERNEL)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("total += x[i] * y[i]", "total += ..."),
        ("total //= 2", "total //= ..."),
        ("a, b = f(x, k=3)", "a, b = ..."),
        ("a = b = c", "a = b = ..."),
        ("n: int = 3", "n: int = ..."),
        ("out[i, 2 * j + 1] = x[i]", "out[i, 2 * j + 1] = ..."),
        ("same = a == b", "same = ..."),
        ("y = (a + b) * c", "y = ..."),
        ("y = (a + b)", "y = ..."),
        ('y = "ä", é', "y = ..."),
        ("f(x, k=3)", "..."),
        ("cuda.syncthreads()", "..."),
        ("return x + 1", "return ..."),
        ("return", "..."),
        ("if a == b:", "if ...:"),
        ("elif a:", "elif ...:"),
        ("while step > 0:", "while ...:"),
        ("for k in range(0, n, 2):", "for k in ...:"),
        ("for i, x in enumerate(y):", "for i, x in ...:"),
        ("x = {1: 2}", "x = ..."),
    ],
)
def test_what_a_blank_leaves_of_a_statement(line: str, expected: str) -> None:
    assert opened(f"    {line}  # blank 1: words") == f"    {expected}  # 1: words"
    assert filled(f"    {line}  # blank 1: words") == f"    {line}  # 1: words"
    assert opened(f"{line}  # blank 12") == f"{expected}  # 12"


def test_a_blank_that_is_no_statement_or_does_not_end_is_refused() -> None:
    with pytest.raises(UserError, match="a whole statement"):
        opened("a = (  # blank 1: half")
    with pytest.raises(UserError, match="not closed by '# end'"):
        filled("# blank 1: all\nx = 1")


def open_function(x):  # type: ignore[no-untyped-def]
    y = ...  # 1: twice x
    if ...:  # 2: is it large?
        y = x[..., 0]
    # 3: the end
    ...
    return y


def test_open_blanks_are_found_in_order_by_their_words() -> None:
    assert open_blanks(open_function) == ["1: twice x", "2: is it large?", "3: the end"]


def test_an_index_with_dots_is_no_blank() -> None:
    assert open_blanks(None, "def f(x):\n    return x[..., 1] + x[...]") == []
    assert open_blanks(None, "def f(x):\n    return g(...)[1]") == ["return g(...)[1]"]


def test_values() -> None:
    assert open_blanks(...) == [""]
    assert open_blanks(3) == []
    assert open_blanks(None) == []
    assert open_blanks(len) == []  # without a source
