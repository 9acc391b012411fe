"""QK-norm against PyTorch, on slices of packed q|k|v, and by its properties."""

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
SHAPES = [(1, 1, 1, 1), (2, 3, 2, 5), (3, 1, 4, 8), (2, more_than_a_block(3 * 33), 3, 33)]  # B, T, H, D


def packed(shape: tuple[int, ...], dtype: type, seed: int) -> np.ndarray:
    """Return heads that lie among others, as those of queries do."""
    B, T, H, D = shape
    return normal((B, T, H + 2, D), dtype, seed)[:, :, 1 : H + 1]


def forward(x: np.ndarray, weight: np.ndarray, eps: float = EPS) -> tuple[np.ndarray, np.ndarray]:
    B, T, H, D = x.shape
    out, rstd = unwritten((B, T, H + 1, D), x.dtype)[:, :, :H], unwritten(x.shape[:3], x.dtype)
    ops.head_rmsnorm_forward(out, rstd, x, weight, eps)
    return out, rstd


@needs_torch
@dtypes
@pytest.mark.parametrize("scale", [1, 1e4, 1e-4])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_torch(shape: tuple[int, ...], scale: float, dtype: type) -> None:
    D = shape[3]
    x, weight, dout = packed(shape, dtype, 1) * dtype(scale), normal((D,), dtype, 2), packed(shape, dtype, 3)
    dx, dweight = np.full_like(packed(shape, dtype, 0), np.nan), normal((D,), dtype, 4)
    before = dweight.copy()
    out, rstd = forward(x, weight)
    ops.head_rmsnorm_backward(dx, dweight, dout, x, weight, rstd)

    tx, tw = leaf(x), leaf(weight)
    expected = torch.nn.functional.rms_norm(tx, (D,), tw, EPS)
    expected.backward(leaf(dout))
    assert_close(out, expected)
    if D > 1:  # of one channel only the sign gets through: its gradient is what eps leaves of a difference
        assert_close(dx, tx.grad)
    assert_close(dweight, before + tw.grad.numpy())


def test_by_hand() -> None:
    out, rstd = forward(np.array([[[[3.0, 4], [-1, 1]]]]), np.array([1.0, 10]), eps=0)
    root = np.sqrt(12.5)
    assert_close(out, [[[[3 / root, 40 / root], [-1, 10]]]])
    assert_close(rstd, [[[1 / root, 1]]])


def test_is_rmsnorm_of_every_head() -> None:
    x, weight = packed((2, 3, 4, 6), np.float64, 1), normal((6,), np.float64, 2)
    rows = np.ascontiguousarray(x).reshape(-1, 6)
    expected, rstd = unwritten(rows.shape), unwritten(rows.shape[:1])
    ops.rmsnorm_forward(expected, rstd, rows, weight, EPS)
    assert_close(forward(x, weight)[0], expected.reshape(x.shape))


def test_neighbours_in_the_packed_array_are_left_alone() -> None:
    array = normal((2, 3, 6, 5))
    before, x = array.copy(), array[:, :, 1:3]
    rstd = unwritten((2, 3, 2))
    ops.head_rmsnorm_forward(x, rstd, x.copy(), normal((5,)), EPS)
    assert (array[:, :, 0] == before[:, :, 0]).all()
    assert (array[:, :, 3:] == before[:, :, 3:]).all()
    assert (array[:, :, 1:3] != before[:, :, 1:3]).all()


@dtypes
def test_a_head_of_zeros_stays_zeros(dtype: type) -> None:
    out, rstd = forward(np.zeros((1, 2, 3, 5), dtype), normal((5,), dtype))
    assert (out == 0).all()
    assert rstd == pytest.approx(1 / np.sqrt(EPS))


@dtypes
def test_dx_may_lie_over_dout(dtype: type) -> None:
    shape = (2, 5, 3, 8)
    x, weight, dout = packed(shape, dtype, 1), normal((8,), dtype, 2), packed(shape, dtype, 3)
    _, rstd = forward(x, weight)
    apart, dweight = unwritten(shape, dtype), [np.zeros(8, dtype), np.zeros(8, dtype)]
    ops.head_rmsnorm_backward(apart, dweight[0], dout, x, weight, rstd)
    ops.head_rmsnorm_backward(dout, dweight[1], dout, x, weight, rstd)
    assert (dout == apart).all()
    assert (dweight[0] == dweight[1]).all()


def test_threads_share_the_work() -> None:
    shape = SHAPES[-1]
    x, weight, dout = packed(shape, np.float32, 1), normal((33,), np.float32, 2), packed(shape, np.float32, 3)

    def run() -> list[np.ndarray]:
        out, rstd = forward(x, weight)
        dx, dweight = unwritten(shape, np.float32), np.zeros(33, np.float32)
        ops.head_rmsnorm_backward(dx, dweight, dout, x, weight, rstd)
        return [np.ascontiguousarray(out), rstd, dx, dweight]

    assert_same_with_threads(run, 1e-6)  # dweight is summed in other parts
