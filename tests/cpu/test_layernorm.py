"""LayerNorm against PyTorch and by its properties."""

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
SHAPES = [(1, 2), (1, 7), (3, 2), (5, 13), (more_than_a_block(257), 257)]  # N, C


def forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, eps: float = EPS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    out, mean, rstd = (unwritten(shape, x.dtype) for shape in (x.shape, x.shape[:1], x.shape[:1]))
    ops.layernorm_forward(out, mean, rstd, x, weight, bias, eps)
    return out, mean, rstd


@needs_torch
@dtypes
@pytest.mark.parametrize("scale", [1, 1e4, 1e-2])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("N", "C"), SHAPES)
def test_equals_torch(N: int, C: int, with_bias: bool, scale: float, dtype: type) -> None:
    x, weight, dout = normal((N, C), dtype, 1) * dtype(scale), normal((C,), dtype, 2), normal((N, C), dtype, 3)
    bias, dbias = (normal((C,), dtype, 4), normal((C,), dtype, 5)) if with_bias else (None, None)
    dx, dweight = unwritten((N, C), dtype), normal((C,), dtype, 6)
    before = dweight.copy(), None if dbias is None else dbias.copy()
    out, mean, rstd = forward(x, weight, bias)
    ops.layernorm_backward(dx, dweight, dbias, dout, x, weight, mean, rstd)

    tx, tw, tb = leaf(x), leaf(weight), leaf(bias)
    expected = torch.nn.functional.layer_norm(tx, (C,), tw, tb, EPS)
    expected.backward(leaf(dout))
    assert_close(out, expected)
    if C > 2:  # of two channels only the order gets through: their gradient is what eps leaves of a difference
        assert_close(dx, tx.grad)
    assert_close(dweight, before[0] + tw.grad.numpy())
    if with_bias:
        assert_close(dbias, before[1] + tb.grad.numpy())


def test_by_hand() -> None:
    out, mean, rstd = forward(np.array([[1.0, 3], [5, 5]]), np.array([1.0, 10]), np.array([100.0, 200]), eps=1e-30)
    assert_close(out, [[99, 210], [100, 200]])
    assert mean.tolist() == [2, 5]
    assert rstd[0] == pytest.approx(1)


@dtypes
def test_one_channel_is_its_bias(dtype: type) -> None:
    x, weight, bias = normal((3, 1), dtype), normal((1,), dtype, 1), normal((1,), dtype, 2)
    out, mean, rstd = forward(x, weight, bias)
    assert (out == bias).all()
    dx, dweight, dbias, dout = unwritten((3, 1), dtype), np.ones(1, dtype), np.ones(1, dtype), normal((3, 1), dtype, 3)
    ops.layernorm_backward(dx, dweight, dbias, dout, x, weight, mean, rstd)
    assert np.abs(dx).max() < 1e-3  # rounding, times 1 / √eps
    assert dweight == 1
    assert dbias == pytest.approx(1 + dout.sum(), rel=1e-6)


def test_a_shift_of_a_row_is_taken_away() -> None:
    x, weight, bias = normal((5, 13)), normal((13,), seed=1), normal((13,), seed=2)
    out, mean, rstd = forward(x, weight, bias)
    assert_close(forward(x + 3, weight, bias)[0], out)
    dx = unwritten((5, 13))
    ops.layernorm_backward(dx, np.zeros(13), np.zeros(13), normal((5, 13), seed=3), x, weight, mean, rstd)
    assert np.abs(dx.sum(axis=1)).max() < 1e-13


def test_a_large_mean_does_not_drown_the_variance() -> None:
    """In float32 the textbook's E[x²] - E[x]² would be nothing but rounding here."""
    x = (normal((5, 64)) + 1e4).astype(np.float32)
    exact = x.astype(np.float64) - x.astype(np.float64).mean(axis=1, keepdims=True)
    exact /= np.sqrt((exact**2).mean(axis=1, keepdims=True) + EPS)
    assert_close(forward(x, np.ones(64, np.float32), None)[0], exact, tolerance=1e-3)


def test_gradient_may_be_written_over_dout() -> None:
    x, weight, dout = normal((5, 13)), normal((13,), seed=1), normal((5, 13), seed=2)
    _, mean, rstd = forward(x, weight, None)
    dx, apart, together = unwritten((5, 13)), np.ones((2, 13)), np.ones((2, 13))
    ops.layernorm_backward(dx, apart[0], apart[1], dout, x, weight, mean, rstd)
    ops.layernorm_backward(dout, together[0], together[1], dout, x, weight, mean, rstd)
    assert (dout == dx).all()
    assert (together == apart).all()


def test_threads_give_the_same_bits() -> None:
    N = 2 * more_than_a_block(257)
    x, weight, bias, dout = (
        normal((N, 257)),
        normal((257,), seed=1),
        normal((257,), seed=2),
        normal((N, 257), seed=3),
    )

    def run() -> list[np.ndarray]:
        out, mean, rstd = forward(x, weight, bias)
        dx, dweight, dbias = unwritten(x.shape), np.ones(257), np.ones(257)
        ops.layernorm_backward(dx, dweight, dbias, dout, x, weight, mean, rstd)
        return [out, mean, rstd, dx, dweight, dbias]

    assert_same_with_threads(run)
