"""LayerNorm's kernels against the CPU op, and by their properties."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, arguments_of, check, check_bfloat16, in_every_run, normal, unwritten
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.gpu import layernorm
from nanoeuler.gpu.launch import executing
from nanoeuler.gpu.rmsnorm import fitted

EPS = 0.1  # large, so that two channels too have a gradient that is more than rounding
SHAPES = [(1, 2), (10, 33), (1, 127), (3, 130), (2, 1025)]  # N, C: of one warp, of two, wide
BIG = [(150, 70)]  # more rows of partial sums than are added up side by side


def forward(random: np.random.Generator, N: int, C: int, has_bias: bool = True) -> dict[str, Any]:
    x = normal(random, N, C) + np.float32(0.5)
    return {
        "out": unwritten(N, C), "mean": unwritten(N), "rstd": unwritten(N), "x": x, "weight": normal(random, C),
        "bias": normal(random, C) if has_bias else None, "eps": EPS,
    }  # fmt: skip


def backward(random: np.random.Generator, N: int, C: int, has_bias: bool = True) -> dict[str, Any]:
    x = normal(random, N, C) + np.float32(0.5)
    return {
        "dx": unwritten(N, C), "dweight": normal(random, C), "dbias": normal(random, C) if has_bias else None,
        "dout": normal(random, N, C), "x": x, "weight": normal(random, C),
        "mean": x.mean(axis=1), "rstd": 1 / np.sqrt(x.var(axis=1) + np.float32(EPS)),
    }  # fmt: skip


def forward_case(N: int, C: int, big: bool = False) -> Case:
    return Case("layernorm_forward", f"{N} x {C}", partial(forward, N=N, C=C), ("out", "mean", "rstd"), big=big)


def backward_case(N: int, C: int, big: bool = False) -> Case:
    return Case("layernorm_backward", f"{N} x {C}", partial(backward, N=N, C=C), ("dx", "dweight", "dbias"), big=big)


CASES = [
    forward_case(1, 1),  # for its gradient, which is 0, see below
    *(case(*shape) for shape in SHAPES for case in (forward_case, backward_case)),
    *(case(0, 3) for case in (forward_case, backward_case)),
    *(case(*shape, big=True) for shape in BIG for case in (forward_case, backward_case)),
    Case("layernorm_forward", "no bias", partial(forward, N=5, C=45, has_bias=False), ("out", "mean", "rstd")),
    Case("layernorm_backward", "no bias", partial(backward, N=5, C=45, has_bias=False), ("dx", "dweight")),
    Case("layernorm_backward", "dx is dout", partial(backward, N=5, C=45), ("dx", "dweight", "dbias"),
         (("dx", "dout"),)),
]  # fmt: skip

MUTANTS = [
    ("values[i] - m if c < C else float32(0)", "values[i] - m"),
    ("block_sum(squares, partial) / float32(C) + eps", "block_sum(squares, partial) / float32(C - 1) + eps"),
    ("if has_bias else float32(0)", "if has_bias else float32(1)"),
    ("widen(weight[c]) + b", "widen(weight[c])"),
    ("mean[row] = m", "mean[0] = m"),
    ("if thread == 0:\n        mean[row]", "if row == 0:\n        mean[row]"),
    ("range(cuda.blockIdx.x, x.shape[0], cuda.gridDim.x)", "range(cuda.blockIdx.x, x.shape[0], 1)"),
    ("(widen(x[row, c]) - m) * r", "widen(x[row, c]) * r"),
    ("db[i] += g[i]", "db[i] += g[i] * w[i]"),
    ("r * (g[i] - mean_g - xhat[i] * mean_g_xhat)", "r * (g[i] - xhat[i] * mean_g_xhat)"),
    ("dbias[cuda.blockIdx.x, c] = db[i]", "dbias[0, c] = db[i]"),
    ("add_column_sums(dbias, partial[1])", "add_column_sums(dbias, partial[0])"),
]


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, layernorm, executor, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16(case: Case) -> None:
    check_bfloat16(case, layernorm)


def test_bits_do_not_depend_on_the_order_of_the_threads() -> None:
    case = Case("layernorm_backward", "", partial(backward, N=37, C=45), ())
    results = []
    for order in ("forward", "reverse", "random"):
        arguments = arguments_of(case)
        with executing("compiled", order, seed=3):
            layernorm.layernorm_backward(**arguments)
        results.append([arguments[name] for name in ("dx", "dweight", "dbias")])
    for result in results[1:]:
        for a, b in zip(result, results[0], strict=True):
            assert (a == b).all()


def test_one_channel_is_its_bias_and_has_no_gradient() -> None:
    given = forward(np.random.default_rng(0), 3, 1)
    layernorm.layernorm_forward(**given)
    assert (given["out"] == given["bias"]).all()
    given = backward(np.random.default_rng(0), 3, 1)
    layernorm.layernorm_backward(**given)
    assert np.abs(given["dx"]).max() < 1e-6


def test_a_large_mean_does_not_drown_the_variance() -> None:
    """In float32 the textbook's E[x²] - E[x]² would be nothing but rounding here."""
    given = forward(np.random.default_rng(0), 10, 33)
    given["x"] += np.float32(1e4)
    layernorm.layernorm_forward(**given)
    exact = given["x"].astype(np.float64)
    exact -= exact.mean(axis=1, keepdims=True)
    exact /= np.sqrt((exact**2).mean(axis=1, keepdims=True) + EPS)
    assert np.abs(given["out"] - (exact * given["weight"] + given["bias"])).max() < 5e-3


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])  # the square of the last is infinite
def test_what_is_not_finite_stays_in_its_row(value: float) -> None:
    def arguments(random: np.random.Generator) -> dict[str, Any]:
        given = forward(random, 10, 33)
        given["x"][3, 7] = value
        return given

    with np.errstate(all="ignore"):
        check(Case("layernorm_forward", "not finite", arguments, ("out", "mean", "rstd")), layernorm)


def test_wide_rows_stay_in_registers() -> None:
    need_toolkit()
    rows, row = np.zeros((2, 2), np.float32), np.zeros(2, np.float32)
    kernel, threads = fitted(layernorm.standardise_rows, 4096)
    simt.gate(kernel, (rows, row, row, rows, row, row, True, np.float32(EPS)), "sm_75", block=threads)
    kernel, threads = fitted(layernorm.standardise_rows_backward, 4096)
    simt.gate(kernel, (rows, rows, rows, rows, rows, row, row, row), "sm_75", block=threads)
