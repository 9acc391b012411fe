"""Errors in words: an open blank, a cell that was not run; everything else keeps its traceback."""

from nanoeuler.lessons.explain import words

NUMPY = "import numpy as np\nx = np.zeros(2)\nx += ..."


def raised(code: str) -> BaseException:
    try:
        exec(code, {})
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_an_open_blank() -> None:
    for code in ("x = ... + 1", "x = ...\nx.shape", "import math\nmath.exp(...)", "for x in ...: pass", NUMPY):
        told = words(raised(code))
        assert told is not None, code
        assert told.startswith("A blank above is still open")
        assert type(raised(code)).__name__ in told


def test_a_cell_that_was_not_run() -> None:
    told = words(raised("print(trace)"))
    assert told is not None
    assert words(raised("def f():\n    return y\nf()")) is not None
    assert told.splitlines()[0].startswith("'trace' is not there yet: the cell above that makes it was not run")


def test_others_keep_their_traceback() -> None:
    assert words(raised("1 / 0")) is None
    assert words(raised("import csv\ncsv.Dialect()")) is None
    assert words(raised("assert False")) is None
