"""The residual connection's kernels against the CPU op."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, check, check_bfloat16, in_every_run, normal, unwritten

from nanoeuler.gpu import residual
from nanoeuler.gpu.bfloat16 import BFLOAT16
from nanoeuler.gpu.launch import recording

SHAPES = [(1,), (0, 3), (10, 33), (2, 5, 3, 7), (1025, 1), (2, 1025)]


def forward(random: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"out": unwritten(*shape), "x": normal(random, *shape), "branch": normal(random, *shape)}


def backward(random: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"dx": unwritten(*shape), "dbranch": unwritten(*shape), "dout": normal(random, *shape)}


CASES = [
    *(Case("residual_forward", str(shape), partial(forward, shape=shape), ("out",)) for shape in SHAPES),
    *(Case("residual_backward", str(shape), partial(backward, shape=shape), ("dx", "dbranch")) for shape in SHAPES),
    *(
        Case("residual_forward", f"out is {name}", partial(forward, shape=(5, 33)), ("out",), (("out", name),))
        for name in ("x", "branch")
    ),
    *(
        Case("residual_backward", f"{name} is dout", partial(backward, shape=(5, 33)), ("dx", "dbranch"),
             ((name, "dout"),))
        for name in ("dx", "dbranch")
    ),
    Case("residual_backward", "all one", partial(backward, shape=(5, 33)), ("dx", "dbranch"),
         (("dx", "dout"), ("dbranch", "dout"))),
]  # fmt: skip

MUTANTS = [
    ("if i < out.shape[0]:", "if i < out.shape[0] - 1:"),
    ("if i < out.shape[0]:", "if i <= out.shape[0]:"),
    ("i = first + k * THREADS", "i = first + k"),
    ("widen(x[i]) + widen(branch[i])", "widen(x[i]) + widen(x[i])"),
    ("-(-out.size // (THREADS * PER_THREAD))", "max(1, out.size // (THREADS * PER_THREAD))"),
    ("for target in (dx, dbranch)", "for target in (dx,)"),
]


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, residual, executor, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16(case: Case) -> None:
    check_bfloat16(case, residual)


def test_a_gradient_over_dout_is_not_copied() -> None:
    dout, other = np.ones((5, 33), np.float32), np.ones((5, 33), np.float32)
    with recording(execute=False) as work:
        residual.residual_backward(dout, dout, dout)
        assert not work
        residual.residual_backward(dout, other, dout)
        assert len(work) == 1


def test_a_copy_keeps_every_bit() -> None:
    dout = np.arange(0x7F00, 0x8000, dtype=BFLOAT16)  # the largest numbers, infinity, and all that are not numbers
    dx, dbranch = np.zeros_like(dout), np.zeros_like(dout)
    residual.residual_backward(dx, dbranch, dout)
    assert (dx == dout).all()
    assert (dbranch == dout).all()
