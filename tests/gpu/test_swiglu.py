"""SwiGLU's kernels against the CPU op, and at the ends of the range."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, check, check_bfloat16, in_every_run, normal, unwritten

from nanoeuler.gpu import swiglu

SHAPES = [(1, 1), (10, 33), (1, 37), (4, 257)]  # N, F: one element, rows of two blocks, two blocks of columns
BIG = [(9, 1025)]


def forward(random: np.random.Generator, N: int, F: int) -> dict[str, Any]:
    return {"out": unwritten(N, F), "gate_up": 3 * normal(random, N, 2 * F)}


def backward(random: np.random.Generator, N: int, F: int) -> dict[str, Any]:
    return {"dgate_up": unwritten(N, 2 * F), "dout": normal(random, N, F), "gate_up": 3 * normal(random, N, 2 * F)}


def cases(N: int, F: int, big: bool = False) -> list[Case]:
    return [
        Case("swiglu_forward", f"{N} x {F}", partial(forward, N=N, F=F), ("out",), big=big),
        Case("swiglu_backward", f"{N} x {F}", partial(backward, N=N, F=F), ("dgate_up",), big=big),
    ]


IN_PLACE = Case(
    "swiglu_backward", "dgate_up is gate_up", partial(backward, N=6, F=35), ("dgate_up",), (("dgate_up", "gate_up"),)
)
CASES = [
    *(case for shape in SHAPES for case in cases(*shape)),
    *cases(0, 3),
    *(case for shape in BIG for case in cases(*shape, big=True)),
    IN_PLACE,
]

MUTANTS = [
    ("sigmoid(gates[k]) * ups[k]", "sigmoid(ups[k]) * ups[k]"),
    ("narrow(incoming[k] * a)", "narrow(incoming[k] * gates[k])"),
    ("dgate_up[row, uint32(F + column)]", "dgate_up[row, uint32(F - column)]"),
    ("-(-N // ROWS)", "max(1, N // ROWS)"),
    ("-(-F // threads)", "max(1, F // threads)"),
    ("N, F = uint32(dout.shape[0]), uint32(dout.shape[1])", "N, F = uint32(dout.shape[0]), uint32(dout.shape[1] + 1)"),
]  # fmt: skip


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, swiglu, executor, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16(case: Case) -> None:
    check_bfloat16(case, swiglu)


def test_far_gates_give_up_or_nothing() -> None:
    """e^-gate is infinite at -200, and nothing at 200."""
    gate_up = np.array([[200, -200, 88.9, -88.9, 0, 2, 3, 5, 7, 11]], np.float32)
    out, dgate_up = unwritten(1, 5), unwritten(1, 10)
    swiglu.swiglu_forward(out, gate_up)
    swiglu.swiglu_backward(dgate_up, np.full((1, 5), 2, np.float32), gate_up)
    np.testing.assert_allclose(out, [[400, 0, 88.9 * 5, 0, 0]], rtol=1e-6, atol=1e-30)
    np.testing.assert_allclose(dgate_up, [[4, 0, 10, 0, 11, 400, 0, 177.8, 0, 0]], rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_place(value: float) -> None:
    def given(arguments: Any, random: np.random.Generator) -> dict[str, Any]:
        made = arguments(random, N=6, F=35)
        made["gate_up"][3, 7] = value
        return made

    with np.errstate(all="ignore"):
        check(Case("swiglu_forward", "not finite", partial(given, forward), ("out",)), swiglu)
        check(Case("swiglu_backward", "not finite", partial(given, backward), ("dgate_up",)), swiglu)
