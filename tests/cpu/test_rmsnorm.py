"""RMSNorm against PyTorch and by its properties."""

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
SHAPES = [(1, 1), (1, 7), (3, 1), (5, 13), (more_than_a_block(257), 257)]  # N, C


def forward(x: np.ndarray, weight: np.ndarray, eps: float = EPS) -> tuple[np.ndarray, np.ndarray]:
    out, rstd = unwritten(x.shape, x.dtype), unwritten(x.shape[:1], x.dtype)
    ops.rmsnorm_forward(out, rstd, x, weight, eps)
    return out, rstd


@needs_torch
@dtypes
@pytest.mark.parametrize("scale", [1, 1e4, 1e-4])
@pytest.mark.parametrize(("N", "C"), SHAPES)
def test_equals_torch(N: int, C: int, scale: float, dtype: type) -> None:
    x, weight, dout = normal((N, C), dtype, 1) * dtype(scale), normal((C,), dtype, 2), normal((N, C), dtype, 3)
    dx, dweight = unwritten((N, C), dtype), normal((C,), dtype, 4)
    before = dweight.copy()
    out, rstd = forward(x, weight)
    ops.rmsnorm_backward(dx, dweight, dout, x, weight, rstd)

    tx, tw = leaf(x), leaf(weight)
    expected = torch.nn.functional.rms_norm(tx, (C,), tw, EPS)
    expected.backward(leaf(dout))
    assert_close(out, expected)
    if C > 1:  # of one channel only the sign gets through: its gradient is what eps leaves of a difference
        assert_close(dx, tx.grad)
    assert_close(dweight, before + tw.grad.numpy())


def test_by_hand() -> None:
    out, rstd = forward(np.array([[3.0, 4], [-1, 1]]), np.array([1.0, 10]), eps=0)
    root = np.sqrt(12.5)
    assert_close(out, [[3 / root, 40 / root], [-1, 10]])
    assert_close(rstd, [1 / root, 1])


@dtypes
def test_a_row_of_zeros_stays_zeros(dtype: type) -> None:
    x, weight = np.zeros((2, 5), dtype), normal((5,), dtype)
    out, rstd = forward(x, weight)
    assert (out == 0).all()
    dx, dweight, dout = unwritten((2, 5), dtype), np.zeros(5, dtype), normal((2, 5), dtype, 1)
    ops.rmsnorm_backward(dx, dweight, dout, x, weight, rstd)
    assert_close(dx, dout.astype(np.float64) * weight / np.sqrt(EPS))
    assert (dweight == 0).all()


def test_length_of_a_row_is_divided_out() -> None:
    x, weight = normal((5, 13)), normal((13,), seed=1)
    assert_close(forward(7 * x, weight, 1e-30)[0], forward(x, weight, 1e-30)[0])
    dx = unwritten((5, 13))
    ops.rmsnorm_backward(dx, np.zeros(13), normal((5, 13), seed=2), x, weight, forward(x, weight, 1e-30)[1])
    assert np.abs((dx * x).sum(axis=1)).max() < 1e-13  # so a change along x has no gradient


def test_gradient_may_be_written_over_dout() -> None:
    x, weight, dout = normal((5, 13)), normal((13,), seed=1), normal((5, 13), seed=2)
    rstd = forward(x, weight)[1]
    dx, apart, together = unwritten((5, 13)), np.ones(13), np.ones(13)
    ops.rmsnorm_backward(dx, apart, dout, x, weight, rstd)
    ops.rmsnorm_backward(dout, together, dout, x, weight, rstd)
    assert (dout == dx).all()
    assert (together == apart).all()


def test_threads_give_the_same_bits() -> None:
    N = 2 * more_than_a_block(257)
    x, weight, dout = normal((N, 257)), normal((257,), seed=1), normal((N, 257), seed=2)

    def run() -> list[np.ndarray]:
        out, rstd = forward(x, weight)
        dx, dweight = unwritten(x.shape), np.ones(257)
        ops.rmsnorm_backward(dx, dweight, dout, x, weight, rstd)
        return [out, rstd, dx, dweight]

    assert_same_with_threads(run)
