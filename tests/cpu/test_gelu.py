"""Bias and GELU against PyTorch and at the ends."""

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

SHAPES = [(1, 1), (1, 7), (15, 2), (more_than_a_block(257), 257)]


@needs_torch
@dtypes
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("scale", [1, 1e4, 1e-4])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_torch(shape: tuple[int, int], scale: float, with_bias: bool, dtype: type) -> None:
    x, dout = normal(shape, dtype, 1) * dtype(scale), normal(shape, dtype, 2)
    bias, before = normal(shape[1:], dtype, 3) * dtype(scale), normal(shape[1:], dtype, 4)
    out, dx, dbias = unwritten(shape, dtype), unwritten(shape, dtype), before.copy()
    if not with_bias:
        bias = dbias = None
    ops.gelu_forward(out, x, bias)
    ops.gelu_backward(dx, dbias, dout, x, bias)
    tx, tbias = leaf(x), leaf(bias)
    expected = torch.nn.functional.gelu(tx + tbias if with_bias else tx, approximate="tanh")
    expected.backward(leaf(dout))
    assert_close(out, expected)
    assert_close(dx, tx.grad)
    if with_bias:
        assert_close(dbias, before + tbias.grad.numpy())


@dtypes
def test_by_hand(dtype: type) -> None:
    """At 0 the slope is ½; far out the function is the identity or 0."""
    x = np.array([[0, 1e4, -1e4, 30, -30]], dtype)
    out, dx = unwritten(x.shape, dtype), unwritten(x.shape, dtype)
    ops.gelu_forward(out, x, None)
    ops.gelu_backward(dx, None, np.full((1, 5), 2, dtype), x, None)
    assert_close(out, [[0, 1e4, 0, 30, 0]])
    assert_close(dx, [[1, 2, 0, 2, 0]])


@dtypes
def test_the_bias_shifts_every_row_and_collects_from_all(dtype: type) -> None:
    x = np.array([[1, -5, 0], [1, 35, 0]], dtype)
    out, dx, dbias = unwritten(x.shape, dtype), unwritten(x.shape, dtype), np.array([1, 2, 3], dtype)
    bias = np.array([-1, 30 - 5, -30], dtype)
    ops.gelu_forward(out, x, bias)
    ops.gelu_backward(dx, dbias, np.full((2, 3), 2, dtype), x, bias)
    assert_close(out, [[0, 20, 0], [0, 60, 0]])
    assert_close(dx, [[1, 2, 0], [1, 2, 0]])
    assert_close(dbias, [1 + 2, 2 + 4, 3])


def test_is_close_to_the_exact_gaussian() -> None:
    """x Φ(x), which the tanh form approximates to about 5e-4 (Hendrycks & Gimpel, section 2)."""
    from math import erf, sqrt

    x = np.linspace(-5, 5, 101)[None]
    out = unwritten(x.shape)
    ops.gelu_forward(out, x, None)
    exact = np.array([value * (1 + erf(value / sqrt(2))) / 2 for value in x[0]])
    assert 1e-5 < np.abs(out[0] - exact).max() < 5e-4


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("over", ["dout", "x"])
def test_gradient_may_be_written_over_dout_or_x(over: str, with_bias: bool) -> None:
    x, dout, bias = normal((5, 13)), normal((5, 13), seed=1), normal((13,), seed=2) if with_bias else None
    dx, dbias = unwritten(x.shape), np.zeros(13)
    ops.gelu_backward(dx, dbias, dout, x, bias)
    place, again = dout if over == "dout" else x, np.zeros(13)
    ops.gelu_backward(place, again, dout, x, bias)
    assert (place == dx).all()
    assert (again == dbias).all()


def test_threads_give_the_same_bits() -> None:
    shape = 2 * more_than_a_block(257), 257
    x, dout, bias = normal(shape), normal(shape, seed=1), normal(shape[1:], seed=2)

    def run() -> list[np.ndarray]:
        out, dx, dbias = unwritten(shape), unwritten(shape), np.zeros(257)
        ops.gelu_forward(out, x, bias)
        ops.gelu_backward(dx, dbias, dout, x, bias)
        return [out, dx, dbias]

    assert_same_with_threads(run)
