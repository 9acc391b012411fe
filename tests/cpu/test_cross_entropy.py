"""Cross-entropy and its gradient against PyTorch and by hand."""

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

DLOSS = 0.3
SHAPES = [(1, 1), (1, 7), (3, 2), (5, 13), (more_than_a_block(401), 401)]  # N, V


def targets_of(N: int, V: int) -> np.ndarray:
    """Return targets of which every third is ignored."""
    targets = np.random.default_rng(9).integers(0, V, N, np.int32)
    targets[1::3] = -1
    targets[2::6] = -100
    return targets


def run(logits: np.ndarray, targets: np.ndarray, dloss: float = DLOSS) -> tuple[np.ndarray, np.ndarray]:
    """Return losses and dlogits, after a check that the forward alone gives the same losses."""
    before = logits.copy()
    forward, losses = unwritten(logits.shape[:1], logits.dtype), unwritten(logits.shape[:1], logits.dtype)
    dlogits = unwritten(logits.shape, logits.dtype)
    ops.cross_entropy_forward(forward, logits, targets)
    ops.cross_entropy_backward(losses, dlogits, logits, targets, np.full(1, dloss, logits.dtype))
    assert (logits == before).all()
    assert (forward == losses).all()
    return losses, dlogits


@needs_torch
@dtypes
@pytest.mark.parametrize("scale", [1, 1e4, 1e-4])
@pytest.mark.parametrize(("N", "V"), SHAPES)
def test_equals_torch(N: int, V: int, scale: float, dtype: type) -> None:
    logits, targets = normal((N, V), dtype, 1) * dtype(scale), targets_of(N, V)
    losses, dlogits = run(logits, targets)
    t, wanted = leaf(logits), torch.tensor(np.where(targets < 0, -1, targets), dtype=torch.long)
    expected = torch.nn.functional.cross_entropy(t, wanted, ignore_index=-1, reduction="none")
    (DLOSS * expected.sum()).backward()
    assert_close(losses, expected)
    assert_close(dlogits, t.grad)


@dtypes
def test_by_hand(dtype: type) -> None:
    logits = np.log(np.array([[1, 2, 5], [1, 2, 5], [4, 4, 4]], dtype))
    losses, dlogits = run(logits, np.array([2, -1, 0], np.int32), dloss=8.0)
    assert_close(losses, [np.log(8 / 5), 0, np.log(3)], tolerance=1e-6)
    assert_close(dlogits, [[1, 2, 5 - 8], [0, 0, 0], [8 / 3 - 8, 8 / 3, 8 / 3]], tolerance=1e-6)


@dtypes
@pytest.mark.parametrize("scale", [1, 1e4])
def test_all_targets_ignored(scale: float, dtype: type) -> None:
    losses, dlogits = run(normal((5, 7), dtype) * dtype(scale), np.full(5, -1, np.int32))
    assert (losses == 0).all()
    assert (dlogits == 0).all()


@dtypes
def test_huge_logits_are_certain_and_finite(dtype: type) -> None:
    logits = np.array([[1e4, 0, -1e4], [1e4, 0, -1e4], [1e30, 1e30, 0]], dtype)
    losses, dlogits = run(logits, np.array([0, 2, 1], np.int32), dloss=1.0)
    assert_close(losses, [0, 2e4, np.log(2)])
    assert_close(dlogits, [[0, 0, 0], [1, 0, -1], [0.5, -0.5, 0]])


def test_shifting_a_row_changes_nothing_and_its_gradient_sums_to_zero() -> None:
    logits, targets = normal((5, 13)), targets_of(5, 13)
    losses, dlogits = run(logits, targets)
    assert_close(run(logits + 7, targets)[0], losses)
    assert np.abs(dlogits.sum(axis=1)).max() < 1e-15


@dtypes
def test_gradient_may_be_written_over_the_logits(dtype: type) -> None:
    logits, targets = normal((5, 13), dtype), targets_of(5, 13)
    expected = run(logits, targets)
    losses = unwritten((5,), dtype)
    ops.cross_entropy_backward(losses, logits, logits, targets, np.full(1, DLOSS, dtype))
    assert (losses == expected[0]).all()
    assert (logits == expected[1]).all()


def test_threads_give_the_same_bits() -> None:
    N = 2 * more_than_a_block(401)
    assert_same_with_threads(lambda: list(run(normal((N, 401)), targets_of(N, 401))))


@pytest.mark.parametrize("row", [[np.nan, 1.0, 2.0], [-np.inf, -np.inf, -np.inf]])
def test_an_ignored_row_has_no_gradient_whatever_its_logits(row):
    logits, losses = np.array([row, [0.0, 1.0, 2.0]]), np.empty(2)
    with np.errstate(all="ignore"):
        ops.cross_entropy_backward(losses, logits, logits, np.array([-1, 2], np.int32), np.ones(1))
    assert losses[0] == 0
    assert not logits[0].any()
    assert np.isfinite(logits[1]).all()


def test_dloss_is_read_and_left_alone() -> None:
    dloss, targets = np.full(1, DLOSS), targets_of(5, 13)
    losses, dlogits = unwritten((5,)), unwritten((5, 13))
    ops.cross_entropy_backward(losses, dlogits, normal((5, 13)), targets, dloss)
    assert dloss[0] == DLOSS
    dloss[0] *= -4
    again = unwritten((5, 13))
    ops.cross_entropy_backward(losses, again, normal((5, 13)), targets, dloss)
    assert_close(again, -4 * dlogits)
