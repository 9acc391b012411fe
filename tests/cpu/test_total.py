"""The sum of an array, added to a number."""

import math

import numpy as np
import pytest
from oracle import assert_same_with_threads, dtypes, more_than_a_block, normal

from nanoeuler import cpu as ops

N = 3 * more_than_a_block(1)


@dtypes
@pytest.mark.parametrize("n", [1, 2, 7, N])
def test_equals_the_exact_sum(n: int, dtype: type) -> None:
    x, out = normal((n,), dtype) + dtype(1), np.full(1, 0.5, dtype)
    before = x.copy()
    ops.total(out, x)
    assert out[0] == pytest.approx(0.5 + math.fsum(x), rel=1e-12 if dtype == np.float64 else 1e-7)
    assert (x == before).all()


@dtypes
def test_adds_one_array_after_another(dtype: type) -> None:
    out = np.zeros(1, dtype)
    for values in ([1, 2, 3], [], [-10], [0.5]):
        ops.total(out, np.array(values, dtype))
    assert out[0] == -3.5


def test_small_numbers_are_not_lost_beside_a_large_sum() -> None:
    out = np.zeros(1, np.float32)
    ops.total(out, np.full(3 * 2**24, 1, np.float32))  # one at a time, a float32 stops at 2^24
    assert out[0] == 3 * 2**24


@dtypes
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_is_not_finite_if_an_element_is_not(bad: float, dtype: type) -> None:
    x, out = normal((100,), dtype), np.zeros(1, dtype)
    x[77] = bad
    ops.total(out, x)
    assert not np.isfinite(out[0])


def test_threads_give_the_same_bits() -> None:
    def run() -> list[np.ndarray]:
        out = np.ones(1)
        ops.total(out, normal((N,)))
        return [out]

    assert_same_with_threads(run)
