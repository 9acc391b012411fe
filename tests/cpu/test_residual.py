"""The residual connection: a sum, and its gradient handed to both terms."""

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
    unwritten,
)

from nanoeuler import cpu as ops

SHAPES = [(1,), (1, 1), (3, 5, 7), (more_than_a_block(257), 257)]


@needs_torch
@dtypes
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_torch(shape: tuple[int, ...], dtype: type) -> None:
    x, branch, dout = normal(shape, dtype, 1), normal(shape, dtype, 2), normal(shape, dtype, 3)
    out, dx, dbranch = (unwritten(shape, dtype) for _ in range(3))
    ops.residual_forward(out, x, branch)
    ops.residual_backward(dx, dbranch, dout)
    tx, tb = leaf(x), leaf(branch)
    expected = tx + tb
    expected.backward(leaf(dout))
    assert_close(out, expected)
    assert_close(dx, tx.grad)
    assert_close(dbranch, tb.grad)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_array_may_be_another(shape: tuple[int, ...]) -> None:
    x, branch = normal(shape), normal(shape, seed=1)
    over_x, over_branch = x.copy(), branch.copy()
    ops.residual_forward(over_x, over_x, branch)
    ops.residual_forward(over_branch, x, over_branch)
    assert (over_x == x + branch).all()
    assert (over_branch == x + branch).all()
    for in_place in ((0,), (1,), (0, 1)):
        dout = x.copy()
        dx, dbranch = (dout if i in in_place else unwritten(shape) for i in range(2))
        ops.residual_backward(dx, dbranch, dout)
        assert (dx == x).all()
        assert (dbranch == x).all()


def test_threads_give_the_same_bits() -> None:
    def run() -> list[np.ndarray]:
        out = unwritten((2 * more_than_a_block(257), 257))
        ops.residual_forward(out, normal(out.shape), normal(out.shape, seed=1))
        return [out]

    assert_same_with_threads(run)
