"""Embedding against PyTorch and by hand."""

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

# B, T, C, V
SHAPES = [(1, 1, 1, 1), (2, 5, 3, 7), (3, 1, 4, 5), (1, more_than_a_block(257), 257, 11)]


def tokens_of(B: int, T: int, V: int) -> np.ndarray:
    return np.random.default_rng(9).integers(0, V, (B, T), np.int32)


@needs_torch
@dtypes
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize(("B", "T", "C", "V"), SHAPES)
def test_equals_torch(B: int, T: int, C: int, V: int, learned: bool, dtype: type) -> None:
    start = 2 if learned else 0
    tokens, weight, dout = tokens_of(B, T, V), normal((V, C), dtype, 1), normal((B, T, C), dtype, 2)
    position = normal((T + 3, C), dtype, 3) if learned else None
    dweight, dposition = normal((V, C), dtype, 4), normal((T + 3, C), dtype, 5) if learned else None
    before = dweight.copy(), None if dposition is None else dposition.copy()
    out = unwritten((B, T, C), dtype)
    ops.embedding_forward(out, tokens, weight, position, start)
    ops.embedding_backward(dweight, dposition, dout, tokens, start)

    w, p = leaf(weight), leaf(position)
    expected = w[tokens.astype(np.int64)] + (p[start : start + T] if learned else 0)
    expected.backward(leaf(dout))
    assert_close(out, expected)
    assert_close(dweight, before[0] + w.grad.numpy())
    if learned:
        assert_close(dposition, before[1] + p.grad.numpy())


def test_repeated_tokens_sum_and_unused_ones_keep_their_gradient() -> None:
    tokens = np.array([[2, 0, 2], [2, 0, 4]], np.int32)
    dout = np.arange(6.0).reshape(2, 3, 1)
    dweight = np.full((5, 1), 100.0)
    ops.embedding_backward(dweight, None, dout, tokens)
    assert dweight[:, 0].tolist() == [100 + 1 + 4, 100, 100 + 0 + 2 + 3, 100, 100 + 5]


@pytest.mark.parametrize("shape", [(0, 5), (2, 0)])
def test_no_places_change_nothing(shape: tuple[int, int]) -> None:
    dweight, dposition = np.ones((7, 3)), np.ones((5, 3))
    ops.embedding_backward(dweight, dposition, np.ones((*shape, 3)), np.zeros(shape, np.int32))
    assert (dweight == 1).all()
    assert (dposition == 1).all()


def test_positions_start_where_they_are_told() -> None:
    weight, position = np.array([[10.0]]), np.array([[0.0], [1.0], [2.0], [3.0]])
    out = unwritten((2, 2, 1))
    ops.embedding_forward(out, np.zeros((2, 2), np.int32), weight, position, start=2)
    assert out[..., 0].tolist() == [[12, 13], [12, 13]]
    dposition = np.ones((4, 1))
    ops.embedding_backward(np.zeros((1, 1)), dposition, np.ones((2, 2, 1)), np.zeros((2, 2), np.int32), start=2)
    assert dposition[:, 0].tolist() == [1, 1, 3, 3]


def test_threads_give_the_same_bits() -> None:
    T = more_than_a_block(257)
    tokens, weight, position = tokens_of(2, T, 11), normal((11, 257)), normal((T, 257), seed=1)

    def run() -> list[np.ndarray]:
        out, dweight, dposition = unwritten((2, T, 257)), np.ones((11, 257)), np.ones((T, 257))
        ops.embedding_forward(out, tokens, weight, position)
        ops.embedding_backward(dweight, dposition, normal((2, T, 257), seed=2), tokens)
        return [out, dweight, dposition]

    assert_same_with_threads(run)
