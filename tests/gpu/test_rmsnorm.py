"""RMSNorm's kernels against the CPU op, and by their properties."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, arguments_of, check, check_bfloat16, in_every_run, normal, unwritten
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.gpu import rmsnorm
from nanoeuler.gpu.launch import executing

EPS = 0.1  # large, so that one channel too has a gradient that is more than rounding
SHAPES = [(1, 1), (10, 33), (1, 127), (3, 130), (2, 1025)]  # N, C: of one warp, of two, wide
BIG = [(150, 70)]  # more rows of partial sums than are added up side by side


def forward(random: np.random.Generator, N: int, C: int) -> dict[str, Any]:
    x = normal(random, N, C)
    return {"out": unwritten(N, C), "rstd": unwritten(N), "x": x, "weight": normal(random, C), "eps": EPS}


def backward(random: np.random.Generator, N: int, C: int) -> dict[str, Any]:
    x = normal(random, N, C)
    return {
        "dx": unwritten(N, C), "dweight": normal(random, C), "dout": normal(random, N, C), "x": x,
        "weight": normal(random, C), "rstd": (1 / np.sqrt((x**2).mean(axis=1) + EPS)).astype(np.float32),
    }  # fmt: skip


def forward_case(N: int, C: int, big: bool = False) -> Case:
    return Case("rmsnorm_forward", f"{N} x {C}", partial(forward, N=N, C=C), ("out", "rstd"), big=big)


def backward_case(N: int, C: int, big: bool = False) -> Case:
    return Case("rmsnorm_backward", f"{N} x {C}", partial(backward, N=N, C=C), ("dx", "dweight"), big=big)


CASES = [
    *(case(*shape) for shape in SHAPES for case in (forward_case, backward_case)),
    *(case(*shape, big=True) for shape in BIG for case in (forward_case, backward_case)),
    *(case(0, 3) for case in (forward_case, backward_case)),
    Case("rmsnorm_backward", "dx is dout", partial(backward, N=5, C=45), ("dx", "dweight"), (("dx", "dout"),)),
]

MUTANTS = [
    ("for i in range(PER_THREAD):\n        c = uint32(thread + i * threads)\n        values[i]",
     "for i in range(PER_THREAD - 1):\n        c = uint32(thread + i * threads)\n        values[i]"),
    ("float32(C) + eps)", "float32(C))"),
    ("WARP * -(-C // (WARP * per_thread))", "WARP * max(1, C // (WARP * per_thread))"),
    ("if thread == 0:\n        rstd[row] = r", "if row == 0:\n        rstd[thread] = r"),
    ("range(cuda.blockIdx.x, x.shape[0], cuda.gridDim.x)", "range(cuda.blockIdx.x, cuda.gridDim.x)"),
    ("g[i] *= w[i]", "g[i] *= w[0]"),
    ("r * (g[i] - xhat[i] * mean)", "r * (g[i] - xhat[i] * mean * float32(1.001))"),
    ("dw[i] += g[i] * xhat[i]", "dw[i] = g[i] * xhat[i]"),
]  # fmt: skip


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, rmsnorm, executor, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16(case: Case) -> None:
    check_bfloat16(case, rmsnorm)


def test_bits_do_not_depend_on_the_order_of_the_threads() -> None:
    case = Case("rmsnorm_backward", "", partial(backward, N=37, C=45), ())
    results = []
    for order in ("forward", "reverse", "random"):
        arguments = arguments_of(case)
        with executing("compiled", order, seed=3):
            rmsnorm.rmsnorm_backward(**arguments)
        results.append((arguments["dx"], arguments["dweight"]))
    for dx, dweight in results[1:]:
        assert (dx == results[0][0]).all()
        assert (dweight == results[0][1]).all()


def test_a_row_of_zeros_stays_zeros() -> None:
    arguments = {**forward(np.random.default_rng(0), 10, 33), "x": np.zeros((10, 33), np.float32)}
    rmsnorm.rmsnorm_forward(**arguments)
    assert (arguments["out"] == 0).all()
    assert arguments["rstd"] == pytest.approx(1 / np.sqrt(EPS))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])  # the square of the last is infinite
def test_what_is_not_finite_stays_in_its_row(value: float) -> None:
    def arguments(random: np.random.Generator) -> dict[str, Any]:
        given = forward(random, 10, 33)
        given["x"][3, 7] = value
        return given

    with np.errstate(all="ignore"):
        check(Case("rmsnorm_forward", "not finite", arguments, ("out", "rstd")), rmsnorm)


@pytest.mark.parametrize("C", [1, 32, 33, 768, 1024, 1025, 4096, 5000, 70000])
def test_threads_keep_every_element_and_can_always_be_launched(C: int) -> None:
    kernel, threads = rmsnorm.fitted(rmsnorm.normalise_rows, C)
    per_thread = kernel.py_func.__globals__["PER_THREAD"]
    assert threads <= 256
    assert threads % 32 == 0
    assert (threads - 32) * per_thread < C <= threads * per_thread


def test_wide_rows_stay_in_registers() -> None:
    need_toolkit()
    rows, row = np.zeros((2, 2), np.float32), np.zeros(2, np.float32)
    kernel, threads = rmsnorm.fitted(rmsnorm.normalise_rows, 4096)
    simt.gate(kernel, (rows, row, rows, row, np.float32(EPS)), "sm_75", block=threads)
    kernel, threads = rmsnorm.fitted(rmsnorm.normalise_rows_backward, 4096)
    simt.gate(kernel, (rows, rows, rows, rows, row, row), "sm_75", block=threads)
