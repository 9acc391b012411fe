"""Residual connection and LayerNorm in one, against PyTorch and against the two ops one after the other."""

import numpy as np
import pytest
from oracle import (
    assert_close,
    assert_same_with_threads,
    dtypes,
    leaf,
    more_than_a_block,
    needs_torch,
    normal,
    torch,
    unwritten,
)

from nanoeuler import cpu as ops

EPS = 1e-5
SHAPES = [(1, 1), (1, 7), (3, 2), (5, 13), (more_than_a_block(257), 257)]  # N, C
shapes = pytest.mark.parametrize(("N", "C"), SHAPES)
biases = pytest.mark.parametrize("with_bias", [False, True])


def forward(
    x: np.ndarray, branch: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, total: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    out, mean, rstd = (unwritten(shape, x.dtype) for shape in (x.shape, x.shape[:1], x.shape[:1]))
    total = unwritten(x.shape, x.dtype) if total is None else total
    ops.residual_layernorm_forward(out, total, mean, rstd, x, branch, weight, bias, EPS)
    return out, total, mean, rstd


@needs_torch
@dtypes
@biases
@shapes
def test_equals_torch(N: int, C: int, with_bias: bool, dtype: type) -> None:
    x, branch, weight = normal((N, C), dtype, 1), normal((N, C), dtype, 2), normal((C,), dtype, 3)
    dout, dtotal = normal((N, C), dtype, 4), normal((N, C), dtype, 5)
    bias, dbias = (normal((C,), dtype, 6), normal((C,), dtype, 7)) if with_bias else (None, None)
    dx, dweight = unwritten((N, C), dtype), normal((C,), dtype, 8)
    before = dweight.copy(), None if dbias is None else dbias.copy()
    out, total, mean, rstd = forward(x, branch, weight, bias)
    ops.residual_layernorm_backward(dx, dweight, dbias, dout, dtotal, total, weight, mean, rstd)

    tx, tb, tw, tbias = leaf(x), leaf(branch), leaf(weight), leaf(bias)
    expected_total = tx + tb
    expected = torch.nn.functional.layer_norm(expected_total, (C,), tw, tbias, EPS)
    torch.autograd.backward([expected, expected_total], [torch.tensor(dout, dtype=torch.float64), leaf(dtotal)])
    assert_close(total, expected_total)
    if C > 1:  # of one channel nothing but its bias gets through, and rounding
        assert_close(out, expected)
    if C > 2:  # of two channels only the order gets through: their gradient is what eps leaves of a difference
        assert_close(dx, tx.grad)
        assert_close(dx, tb.grad)
        assert_close(dweight, before[0] + tw.grad.numpy())
    if with_bias:
        assert_close(dbias, before[1] + tbias.grad.numpy())


@dtypes
@biases
@shapes
def test_gives_the_bits_of_the_two_ops(N: int, C: int, with_bias: bool, dtype: type) -> None:
    x, branch, weight = normal((N, C), dtype, 1), normal((N, C), dtype, 2), normal((C,), dtype, 3)
    dout, dtotal = normal((N, C), dtype, 4), normal((N, C), dtype, 5)
    bias, dbias, two_dbias = (normal((C,), dtype, 6), *np.zeros((2, C), dtype)) if with_bias else (None, None, None)
    out, total, mean, rstd = forward(x, branch, weight, bias)
    dx, dweight = unwritten((N, C), dtype), np.zeros(C, dtype)
    ops.residual_layernorm_backward(dx, dweight, dbias, dout, dtotal, total, weight, mean, rstd)

    two_out, two_total, two_mean, two_rstd = (unwritten(shape, dtype) for shape in ((N, C), (N, C), (N,), (N,)))
    two_dx, two_dweight = unwritten((N, C), dtype), np.zeros(C, dtype)
    ops.residual_forward(two_total, x, branch)
    ops.layernorm_forward(two_out, two_mean, two_rstd, two_total, weight, bias, EPS)
    ops.layernorm_backward(two_dx, two_dweight, two_dbias, dout, two_total, weight, two_mean, two_rstd)
    ops.residual_forward(two_dx, dtotal, two_dx)
    for one, two in [(out, two_out), (total, two_total), (mean, two_mean), (rstd, two_rstd), (dx, two_dx)]:
        assert (one == two).all()
    assert np.abs(dweight - two_dweight).max() <= 1e-5 * max(1, np.abs(two_dweight).max())
    if with_bias:
        assert_close(dbias, two_dbias)


def test_total_may_be_written_over_either_term() -> None:
    x, branch, weight, bias = (normal(shape, seed=i) for i, shape in enumerate([(5, 13), (5, 13), (13,), (13,)]))
    apart = forward(x, branch, weight, bias)
    over_x, over_branch = x.copy(), branch.copy()
    for together in (
        forward(over_x, branch, weight, bias, over_x),
        forward(x, over_branch, weight, bias, over_branch),
    ):
        for a, b in zip(apart, together, strict=True):
            assert (a == b).all()


@pytest.mark.parametrize("over", ["dout", "dtotal"])
def test_gradient_may_be_written_over_either_gradient(over: str) -> None:
    N = more_than_a_block(257)
    x, branch, weight = normal((N, 257)), normal((N, 257), seed=1), normal((257,), seed=2)
    given = {"dout": normal((N, 257), seed=3), "dtotal": normal((N, 257), seed=4)}
    _, total, mean, rstd = forward(x, branch, weight, None)
    rest = {"total": total, "weight": weight, "mean": mean, "rstd": rstd}
    dx, apart, together = unwritten((N, 257)), np.ones((2, 257)), np.ones((2, 257))
    ops.residual_layernorm_backward(dx, *apart, **given, **rest)
    ops.residual_layernorm_backward(given[over], *together, **given, **rest)
    assert (given[over] == dx).all()
    assert (together == apart).all()


def test_threads_give_the_same_bits() -> None:
    N = 2 * more_than_a_block(257)
    x, branch, weight, bias = (normal(s, seed=i) for i, s in enumerate([(N, 257), (N, 257), (257,), (257,)]))
    dout, dtotal = normal((N, 257), seed=4), normal((N, 257), seed=5)

    def run() -> list[np.ndarray]:
        out, total, mean, rstd = forward(x, branch, weight, bias)
        dx, dweight, dbias = unwritten(x.shape), np.ones(257), np.ones(257)
        ops.residual_layernorm_backward(dx, dweight, dbias, dout, dtotal, total, weight, mean, rstd)
        return [out, total, mean, rstd, dx, dweight, dbias]

    assert_same_with_threads(run)
