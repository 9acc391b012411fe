"""The linear layer against PyTorch and by hand."""

import numpy as np
import pytest
from oracle import assert_close, assert_same_with_threads, dtypes, leaf, needs_torch, normal, unwritten

from nanoeuler import cpu as ops

# N, I, O; the last two have more than one tile each way
SHAPES = [(1, 1, 1), (1, 7, 5), (5, 1, 3), (13, 7, 1), (3, 19, 401), (389, 67, 131)]


@needs_torch
@dtypes
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("N", "I", "O"), SHAPES)
def test_equals_torch(N: int, I: int, O: int, with_bias: bool, dtype: type) -> None:
    x, weight, dout = normal((N, I), dtype, 1), normal((O, I), dtype, 2), normal((N, O), dtype, 3)
    bias, dbias = (normal((O,), dtype, 4), normal((O,), dtype, 5)) if with_bias else (None, None)
    dweight = normal((O, I), dtype, 6)
    before = dweight.copy(), None if dbias is None else dbias.copy()
    out, dx = unwritten((N, O), dtype), unwritten((N, I), dtype)
    ops.linear_forward(out, x, weight, bias)
    ops.linear_backward(dx, dweight, dbias, dout, x, weight)

    tx, tw, tb = leaf(x), leaf(weight), leaf(bias)
    expected = tx @ tw.T + (tb if with_bias else 0)
    expected.backward(leaf(dout))
    assert_close(out, expected)
    assert_close(dx, tx.grad)
    assert_close(dweight, before[0] + tw.grad.numpy())
    if with_bias:
        assert_close(dbias, before[1] + tb.grad.numpy())


def test_by_hand() -> None:
    x, weight, bias = np.array([[1.0, 2], [3, 4], [5, 6]]), np.array([[1.0, 10]]), np.array([100.0])
    out = unwritten((3, 1))
    ops.linear_forward(out, x, weight, bias)
    assert out[:, 0].tolist() == [121, 143, 165]
    dx, dweight, dbias = unwritten((3, 2)), np.array([[0.5, 0.25]]), np.array([0.125])
    ops.linear_backward(dx, dweight, dbias, np.array([[1.0], [0], [-1]]), x, weight)
    assert dx.tolist() == [[1, 10], [0, 0], [-1, -10]]
    assert dweight.tolist() == [[0.5 + 1 - 5, 0.25 + 2 - 6]]
    assert dbias.tolist() == [0.125]


def test_inputs_gradient_can_be_left_out() -> None:
    x, weight, dout = normal((5, 7)), normal((3, 7), seed=1), normal((5, 3), seed=2)
    dweight = np.zeros((3, 7))
    ops.linear_backward(None, dweight, None, dout, x, weight)
    assert_close(dweight, dout.T @ x)


@pytest.mark.parametrize(("N", "I", "O"), SHAPES)
def test_threads_give_the_same_result(N: int, I: int, O: int) -> None:
    """Not the same bits: a team's tiles have other shapes, and BLAS may sum them in another order."""
    x, weight, bias, dout = normal((N, I)), normal((O, I), seed=1), normal((O,), seed=2), normal((N, O), seed=3)

    def run() -> list[np.ndarray]:
        out, dx, dweight, dbias = unwritten((N, O)), unwritten((N, I)), np.ones((O, I)), np.ones(O)
        ops.linear_forward(out, x, weight, bias)
        ops.linear_backward(dx, dweight, dbias, dout, x, weight)
        return [out, dx, dweight, dbias]

    assert_same_with_threads(run, tolerance=1e-13)
