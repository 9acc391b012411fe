"""Residual connection and RMSNorm in one, against PyTorch and against the two ops one after the other."""

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
shapes = pytest.mark.parametrize(("N", "C"), SHAPES)


def forward(
    x: np.ndarray, branch: np.ndarray, weight: np.ndarray, total: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    out, rstd = unwritten(x.shape, x.dtype), unwritten(x.shape[:1], x.dtype)
    total = unwritten(x.shape, x.dtype) if total is None else total
    ops.residual_rmsnorm_forward(out, total, rstd, x, branch, weight, EPS)
    return out, total, rstd


@needs_torch
@dtypes
@shapes
def test_equals_torch(N: int, C: int, dtype: type) -> None:
    x, branch, weight = normal((N, C), dtype, 1), normal((N, C), dtype, 2), normal((C,), dtype, 3)
    dout, dtotal = normal((N, C), dtype, 4), normal((N, C), dtype, 5)
    dx, dweight = unwritten((N, C), dtype), normal((C,), dtype, 6)
    before = dweight.copy()
    out, total, rstd = forward(x, branch, weight)
    ops.residual_rmsnorm_backward(dx, dweight, dout, dtotal, total, weight, rstd)

    tx, tb, tw = leaf(x), leaf(branch), leaf(weight)
    expected_total = tx + tb
    expected = torch.nn.functional.rms_norm(expected_total, (C,), tw, EPS)
    torch.autograd.backward([expected, expected_total], [torch.tensor(dout, dtype=torch.float64), leaf(dtotal)])
    assert_close(out, expected)
    assert_close(total, expected_total)
    assert_close(dx, tx.grad)
    assert_close(dx, tb.grad)
    assert_close(dweight, before + tw.grad.numpy())


@dtypes
@shapes
def test_gives_the_bits_of_the_two_ops(N: int, C: int, dtype: type) -> None:
    x, branch, weight = normal((N, C), dtype, 1), normal((N, C), dtype, 2), normal((C,), dtype, 3)
    dout, dtotal = normal((N, C), dtype, 4), normal((N, C), dtype, 5)
    out, total, rstd = forward(x, branch, weight)
    dx, dweight = unwritten((N, C), dtype), np.zeros(C, dtype)
    ops.residual_rmsnorm_backward(dx, dweight, dout, dtotal, total, weight, rstd)

    two_out, two_total, two_rstd = unwritten((N, C), dtype), unwritten((N, C), dtype), unwritten((N,), dtype)
    two_dx, two_dweight = unwritten((N, C), dtype), np.zeros(C, dtype)
    ops.residual_forward(two_total, x, branch)
    ops.rmsnorm_forward(two_out, two_rstd, two_total, weight, EPS)
    ops.rmsnorm_backward(two_dx, two_dweight, dout, two_total, weight, two_rstd)
    ops.residual_forward(two_dx, dtotal, two_dx)
    for one, two in [(out, two_out), (total, two_total), (rstd, two_rstd), (dx, two_dx)]:
        assert (one == two).all()
    assert_close(dweight, two_dweight)


def test_total_may_be_written_over_either_term() -> None:
    x, branch, weight = normal((5, 13)), normal((5, 13), seed=1), normal((13,), seed=2)
    apart = forward(x, branch, weight)
    over_x, over_branch = x.copy(), branch.copy()
    for together in (forward(over_x, branch, weight, over_x), forward(x, over_branch, weight, over_branch)):
        for a, b in zip(apart, together, strict=True):
            assert (a == b).all()


@pytest.mark.parametrize("over", ["dout", "dtotal"])
def test_gradient_may_be_written_over_either_gradient(over: str) -> None:
    N = more_than_a_block(257)
    x, branch, weight = normal((N, 257)), normal((N, 257), seed=1), normal((257,), seed=2)
    given = {"dout": normal((N, 257), seed=3), "dtotal": normal((N, 257), seed=4)}
    _, total, rstd = forward(x, branch, weight)
    dx, apart, together = unwritten((N, 257)), np.ones(257), np.ones(257)
    ops.residual_rmsnorm_backward(dx, apart, **given, total=total, weight=weight, rstd=rstd)
    ops.residual_rmsnorm_backward(given[over], together, **given, total=total, weight=weight, rstd=rstd)
    assert (given[over] == dx).all()
    assert (together == apart).all()


def test_threads_give_the_same_bits() -> None:
    N = 2 * more_than_a_block(257)
    x, branch, weight = normal((N, 257)), normal((N, 257), seed=1), normal((257,), seed=2)
    dout, dtotal = normal((N, 257), seed=3), normal((N, 257), seed=4)

    def run() -> list[np.ndarray]:
        out, total, rstd = forward(x, branch, weight)
        dx, dweight = unwritten(x.shape), np.ones(257)
        ops.residual_rmsnorm_backward(dx, dweight, dout, dtotal, total, weight, rstd)
        return [out, total, rstd, dx, dweight]

    assert_same_with_threads(run)
