"""GELU against PyTorch and at its ends."""

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

SHAPES = [(1,), (1, 7), (3, 5, 2), (more_than_a_block(257), 257)]


@needs_torch
@dtypes
@pytest.mark.parametrize("scale", [1, 1e4, 1e-4])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_torch(shape: tuple[int, ...], scale: float, dtype: type) -> None:
    x, dout = normal(shape, dtype, 1) * dtype(scale), normal(shape, dtype, 2)
    out, dx = unwritten(shape, dtype), unwritten(shape, dtype)
    ops.gelu_forward(out, x)
    ops.gelu_backward(dx, dout, x)
    tx = leaf(x)
    expected = torch.nn.functional.gelu(tx, approximate="tanh")
    expected.backward(leaf(dout))
    assert_close(out, expected)
    assert_close(dx, tx.grad)


@dtypes
def test_by_hand(dtype: type) -> None:
    """At 0 the slope is ½; far out the function is the identity or 0."""
    x = np.array([0, 1e4, -1e4, 30, -30], dtype)
    out, dx = unwritten(x.shape, dtype), unwritten(x.shape, dtype)
    ops.gelu_forward(out, x)
    ops.gelu_backward(dx, np.full(5, 2, dtype), x)
    assert_close(out, [0, 1e4, 0, 30, 0])
    assert_close(dx, [1, 2, 0, 2, 0])


def test_is_close_to_the_exact_gaussian() -> None:
    """x Φ(x), which the tanh form approximates to about 5e-4 (Hendrycks & Gimpel, section 2)."""
    from math import erf, sqrt

    x = np.linspace(-5, 5, 101)
    out = unwritten(x.shape)
    ops.gelu_forward(out, x)
    exact = np.array([value * (1 + erf(value / sqrt(2))) / 2 for value in x])
    assert 1e-5 < np.abs(out - exact).max() < 5e-4


def test_gradient_may_be_written_over_dout() -> None:
    x, dout = normal((5, 13)), normal((5, 13), seed=1)
    dx = unwritten(x.shape)
    ops.gelu_backward(dx, dout, x)
    ops.gelu_backward(dout, dout, x)
    assert (dout == dx).all()


def test_threads_give_the_same_bits() -> None:
    x, dout = normal((2 * more_than_a_block(257), 257)), normal((2 * more_than_a_block(257), 257), seed=1)

    def run() -> list[np.ndarray]:
        out, dx = unwritten(x.shape), unwritten(x.shape)
        ops.gelu_forward(out, x)
        ops.gelu_backward(dx, dout, x)
        return [out, dx]

    assert_same_with_threads(run)
