"""Residual connection and LayerNorm in one kernel, against the CPU op and against the two ops one after the other."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, arguments_of, check, check_bfloat16, in_every_run, normal, unwritten
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.gpu import layernorm, residual, residual_layernorm
from nanoeuler.gpu.launch import executing
from nanoeuler.gpu.rmsnorm import fitted

EPS = 0.1  # large, so that a few channels too have a gradient that is more than rounding
SHAPES = [(1, 1), (10, 33), (1, 127), (3, 130), (2, 1025)]  # N, C: of one warp, of two, wide
BIG = [(150, 70)]  # more rows of partial sums than are added up side by side


def forward(random: np.random.Generator, N: int, C: int, has_bias: bool = True) -> dict[str, Any]:
    return {
        "out": unwritten(N, C), "total": unwritten(N, C), "mean": unwritten(N), "rstd": unwritten(N),
        "x": normal(random, N, C), "branch": normal(random, N, C), "weight": normal(random, C),
        "bias": normal(random, C) if has_bias else None, "eps": EPS,
    }  # fmt: skip


def backward(random: np.random.Generator, N: int, C: int, has_bias: bool = True) -> dict[str, Any]:
    total = normal(random, N, C) + np.float32(0.5)
    return {
        "dx": unwritten(N, C), "dweight": normal(random, C), "dbias": normal(random, C) if has_bias else None,
        "dout": normal(random, N, C), "dtotal": normal(random, N, C), "total": total, "weight": normal(random, C),
        "mean": total.mean(axis=1), "rstd": 1 / np.sqrt(total.var(axis=1) + np.float32(EPS)),
    }  # fmt: skip


WRITTEN, GRADIENTS = ("out", "total", "mean", "rstd"), ("dx", "dweight", "dbias")


def forward_case(N: int, C: int, big: bool = False) -> Case:
    return Case("residual_layernorm_forward", f"{N} x {C}", partial(forward, N=N, C=C), WRITTEN, big=big)


def backward_case(N: int, C: int, big: bool = False) -> Case:
    return Case("residual_layernorm_backward", f"{N} x {C}", partial(backward, N=N, C=C), GRADIENTS, big=big)


CASES = [
    *(case(*shape) for shape in SHAPES for case in (forward_case, backward_case)),
    *(case(0, 3) for case in (forward_case, backward_case)),
    *(case(*shape, big=True) for shape in BIG for case in (forward_case, backward_case)),
    Case("residual_layernorm_forward", "no bias", partial(forward, N=5, C=45, has_bias=False), WRITTEN),
    Case("residual_layernorm_backward", "no bias", partial(backward, N=5, C=45, has_bias=False), GRADIENTS[:-1]),
    *(
        Case("residual_layernorm_forward", f"total is {name}", partial(forward, N=5, C=45), WRITTEN, (("total", name),))
        for name in ("x", "branch")
    ),
    *(
        Case("residual_layernorm_backward", f"dx is {name}", partial(backward, N=5, C=45), GRADIENTS, (("dx", name),))
        for name in ("dout", "dtotal")
    ),
]

MUTANTS = [
    ("total[row, c] = narrow(values[i])", "total[row, c] = x[row, c]"),
    ("widen(x[row, c]) + widen(branch[row, c]) if c < C", "widen(x[row, c]) + widen(branch[row, c]) if c < C - 1"),
    ("values[i] - m if c < C else float32(0)", "values[i] - m"),
    ("if has_bias else float32(0)", "if has_bias else float32(1)"),
    ("if thread == 0:\n        mean[row]", "if row == 0:\n        mean[row]"),
    ("(widen(total[row, c]) - m) * r", "(widen(total[row, c]) - r) * r"),
    ("range(cuda.blockIdx.x, total.shape[0], cuda.gridDim.x)", "range(cuda.blockIdx.x, cuda.gridDim.x)"),
    ("others[i] + r * (g[i] - mean_g - ", "others[i] + r * (g[i] - "),
    ("others[i] + r *", "widen(dtotal[0, c]) + r *"),
    ("db[i] += g[i]", "db[i] = g[i]"),
    ("dweight[cuda.blockIdx.x, c] = dw[i]", "dweight[0, c] = dw[i]"),
    ("add_column_sums(dbias, partial[1])", "add_column_sums(dbias, partial[0])"),
]


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, residual_layernorm, executor, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16(case: Case) -> None:
    check_bfloat16(case, residual_layernorm)


@pytest.mark.parametrize(("N", "C"), SHAPES)
def test_forward_gives_the_bits_of_the_two_ops(N: int, C: int) -> None:
    one = forward(np.random.default_rng(0), N, C)
    two = forward(np.random.default_rng(0), N, C)
    residual_layernorm.residual_layernorm_forward(**one)
    x, branch = two.pop("x"), two.pop("branch")
    residual.residual_forward(two["total"], x, branch)
    layernorm.layernorm_forward(x=two.pop("total"), **two)
    for name in ("out", "mean", "rstd"):
        assert (one[name] == two[name]).all()


@pytest.mark.parametrize(("N", "C"), SHAPES)
def test_backward_gives_what_the_two_ops_give(N: int, C: int) -> None:
    one = backward(np.random.default_rng(0), N, C)
    two = backward(np.random.default_rng(0), N, C)
    residual_layernorm.residual_layernorm_backward(**one)
    dtotal, total = two.pop("dtotal"), two.pop("total")
    layernorm.layernorm_backward(x=total, **two)
    residual.residual_forward(two["dx"], two["dx"], dtotal)
    for name in GRADIENTS:
        np.testing.assert_allclose(one[name], two[name], rtol=1e-5, atol=1e-5)


def test_bits_do_not_depend_on_the_order_of_the_threads() -> None:
    case = Case("residual_layernorm_backward", "", partial(backward, N=37, C=45), ())
    results = []
    for order in ("forward", "reverse", "random"):
        arguments = arguments_of(case)
        with executing("compiled", order, seed=3):
            residual_layernorm.residual_layernorm_backward(**arguments)
        results.append([arguments[name] for name in GRADIENTS])
    for result in results[1:]:
        for a, b in zip(result, results[0], strict=True):
            assert (a == b).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])  # the square of the last is infinite
def test_what_is_not_finite_stays_in_its_row(value: float) -> None:
    def arguments(random: np.random.Generator) -> dict[str, Any]:
        given = forward(random, 10, 33)
        given["branch"][3, 7] = value
        return given

    with np.errstate(all="ignore"):
        check(Case("residual_layernorm_forward", "not finite", arguments, WRITTEN), residual_layernorm)


def test_wide_rows_stay_in_registers() -> None:
    need_toolkit()
    rows, row = np.zeros((2, 2), np.float32), np.zeros(2, np.float32)
    kernel, threads = fitted(residual_layernorm.add_and_standardise_rows, 4096)
    simt.gate(kernel, (rows, rows, row, row, rows, rows, row, row, True, np.float32(EPS)), "sm_75", block=threads)
    kernel, threads = fitted(residual_layernorm.add_and_standardise_rows_backward, 4096)
    simt.gate(kernel, (rows, rows, rows, rows, rows, rows, row, row, row), "sm_75", block=threads)
