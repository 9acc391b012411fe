"""SwiGLU against PyTorch and at its ends."""

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

SHAPES = [(1, 1), (1, 7), (3, 1), (5, 13), (more_than_a_block(257), 257)]  # N, F


@needs_torch
@dtypes
@pytest.mark.parametrize("scale", [1, 1e4, 1e-4])
@pytest.mark.parametrize(("N", "F"), SHAPES)
def test_equals_torch(N: int, F: int, scale: float, dtype: type) -> None:
    gate_up, dout = normal((N, 2 * F), dtype, 1) * dtype(scale), normal((N, F), dtype, 2)
    out, dgate_up = unwritten((N, F), dtype), unwritten((N, 2 * F), dtype)
    ops.swiglu_forward(out, gate_up)
    ops.swiglu_backward(dgate_up, dout, gate_up)

    t = leaf(gate_up)
    expected = torch.nn.functional.silu(t[:, :F]) * t[:, F:]
    expected.backward(leaf(dout))
    assert_close(out, expected)
    assert_close(dgate_up, t.grad)


@dtypes
def test_by_hand(dtype: type) -> None:
    """A gate of 0 is shut but has slope ½; one of ±1e4 is the identity or nothing, without a warning of overflow."""
    gate_up = np.array([[0, 1e4, -1e4, 3, 3, 3]], dtype)
    out, dgate_up = unwritten((1, 3), dtype), unwritten((1, 6), dtype)
    ops.swiglu_forward(out, gate_up)
    ops.swiglu_backward(dgate_up, np.ones((1, 3), dtype), gate_up)
    assert_close(out, [[0, 3e4, 0]])
    assert_close(dgate_up, [[1.5, 3, 0, 0, 1e4, 0]])


def test_threads_give_the_same_bits() -> None:
    gate_up, dout = normal((2 * more_than_a_block(257), 514)), normal((2 * more_than_a_block(257), 257), seed=1)

    def run() -> list[np.ndarray]:
        out, dgate_up = unwritten(dout.shape), unwritten(gate_up.shape)
        ops.swiglu_forward(out, gate_up)
        ops.swiglu_backward(dgate_up, dout, gate_up)
        return [out, dgate_up]

    assert_same_with_threads(run)
