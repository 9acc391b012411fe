"""The kernels of bias and GELU against the CPU op, and by their properties."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, arguments_of, check, check_bfloat16, in_every_run, normal, unwritten

from nanoeuler.gpu import gelu
from nanoeuler.gpu.launch import executing

SHAPES = [(1, 1), (10, 33), (1, 37), (5, 257)]  # N, F: one element, rows of three blocks, two blocks of columns
BIG = [(2, 1025), (150, 70)]


def forward(random: np.random.Generator, N: int, F: int, with_bias: bool = True) -> dict[str, Any]:
    return {
        "out": unwritten(N, F), "x": 2 * normal(random, N, F), "bias": normal(random, F) if with_bias else None,
    }  # fmt: skip


def backward(
    random: np.random.Generator, N: int, F: int, with_bias: bool = True, with_dbias: bool = True
) -> dict[str, Any]:
    return {
        "dx": unwritten(N, F), "dbias": normal(random, F) if with_dbias else None, "dout": normal(random, N, F),
        "x": 2 * normal(random, N, F), "bias": normal(random, F) if with_bias else None,
    }  # fmt: skip


def cases(N: int, F: int, big: bool = False) -> list[Case]:
    return [
        Case("gelu_forward", f"{N} x {F}", partial(forward, N=N, F=F), ("out",), big=big),
        Case("gelu_backward", f"{N} x {F}", partial(backward, N=N, F=F), ("dx", "dbias"), big=big),
    ]


no_dbias = partial(backward, N=6, F=35, with_dbias=False)
CASES = [
    *(case for shape in SHAPES for case in cases(*shape)),
    *cases(0, 3),
    *(case for shape in BIG for case in cases(*shape, big=True)),
    Case("gelu_forward", "no bias", partial(forward, N=6, F=35, with_bias=False), ("out",)),
    Case("gelu_backward", "no bias", partial(backward, N=6, F=35, with_bias=False), ("dx", "dbias")),
    Case("gelu_backward", "no dbias", no_dbias, ("dx",)),
    Case("gelu_backward", "neither", partial(no_dbias, with_bias=False), ("dx",)),
    Case("gelu_backward", "dx is dout", partial(backward, N=6, F=35), ("dx", "dbias"), (("dx", "dout"),)),
    Case("gelu_backward", "dx is x", partial(backward, N=6, F=35), ("dx", "dbias"), (("dx", "x"),)),
]

MUTANTS = [
    ("out[row, column] = narrow(z * ", "out[row, column] = narrow("),
    ("            values[k] = widen(x[row, column]) + b\n                incoming",
     "            values[k] = widen(x[row, column])\n                incoming"),
    ("total += gradient", "total = gradient"),
    ("range(0, rows, ROWS)", "range(ROWS, rows, ROWS)"),
    ("(-(-N // ROWS), -(-F // threads))", "(max(1, N // ROWS), -(-F // threads))"),
    ("(parts, -(-F // threads))", "(parts, max(1, F // threads))"),
    ("if sums_columns:", "if True:"),
]  # fmt: skip


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, gelu, executor, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16(case: Case) -> None:
    check_bfloat16(case, gelu)


def test_bits_do_not_depend_on_the_order_of_the_threads() -> None:
    case = Case("gelu_backward", "", partial(backward, N=37, F=45), ())
    results = []
    for order in ("forward", "reverse", "random"):
        arguments = arguments_of(case)
        with executing("compiled", order, seed=3):
            gelu.gelu_backward(**arguments)
        results.append(arguments["dbias"])
    assert (results[1] == results[0]).all()
    assert (results[2] == results[0]).all()


def test_far_inputs_give_themselves_or_nothing() -> None:
    x = np.array([[0, 1e4, -1e4, 30, -30, 1e12, -1e12]], np.float32)
    out, dx = unwritten(1, 7), unwritten(1, 7)
    gelu.gelu_forward(out, x, None)
    gelu.gelu_backward(dx, None, np.full((1, 7), 2, np.float32), x, None)
    np.testing.assert_allclose(out, [[0, 1e4, 0, 30, 0, 1e12, 0]], rtol=1e-6, atol=1e-30)
    np.testing.assert_allclose(dx, [[1, 2, 0, 2, 0, 2, 0]], rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_place(value: float) -> None:
    def given(arguments: Any, random: np.random.Generator) -> dict[str, Any]:
        made = arguments(random, N=6, F=35)
        made["x"][3, 7] = value
        return made

    with np.errstate(all="ignore"):
        check(Case("gelu_forward", "not finite", partial(given, forward), ("out",)), gelu)
        check(Case("gelu_backward", "not finite", partial(given, backward), ("dx", "dbias")), gelu)
