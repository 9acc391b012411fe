"""The sum of gradients: in a fixed order, to the bit."""

import numpy as np
import pytest
from oracle import assert_same_with_threads, dtypes, more_than_a_block, normal

from nanoeuler import cpu as ops

N = 3 * more_than_a_block(2)


@dtypes
@pytest.mark.parametrize("parts", [0, 1, 4])
@pytest.mark.parametrize("n", [1, 7, N])
def test_adds_one_part_after_the_other(n: int, parts: int, dtype: type) -> None:
    arrays = [normal((n,), dtype, seed) for seed in range(parts)]
    out = np.full(n, 2, dtype)
    expected = out.copy()
    for array in arrays:
        expected = expected + array
    before = [array.copy() for array in arrays]
    ops.accumulate(out, arrays)
    assert (out == expected).all()
    assert all((a == b).all() for a, b in zip(arrays, before, strict=True))


def test_order_is_the_parts_order() -> None:
    big, small = np.array([2.0**53]), np.array([1.0])
    out = np.zeros(1)
    ops.accumulate(out, [big, small, -big, small])  # the first 1 is lost in rounding, the second is not
    assert out[0] == 1


def test_threads_give_the_same_bits() -> None:
    def run() -> list[np.ndarray]:
        out = np.ones(N)
        ops.accumulate(out, [normal((N,), seed=seed) for seed in range(3)])
        return [out]

    assert_same_with_threads(run)
