"""One call that finds results which depend on the order of threads."""

import numpy as np
import pytest
from numba import cuda

from nanoeuler.errors import UserError
from nanoeuler.simt.faults import KernelFaults
from nanoeuler.simt.orders import compare_orders


def slots(out, next_):
    out[cuda.atomic.add(next_, 0, 1)] = cuda.grid(1)


def last_wins(out):
    out[0, 0] = cuda.grid(1)


def sums(total, x):
    cuda.atomic.add(total, 0, x[cuda.grid(1)])


def doubled(out, x):
    i = cuda.grid(1)
    out[i] = x[i] + x[i]


def test_a_right_kernel() -> None:
    """Its arguments are as before: it ran, and what it wrote was taken back."""
    out, x = np.full(8, 3, np.float32), np.full(8, np.nan, np.float32)
    compare_orders(doubled, 2, 4, (out, x))
    assert (out == 3).all()
    compare_orders(doubled, 2, 2, (x[::2], x[1::2]))


def test_the_element_and_both_values_are_named() -> None:
    """Slots given out by an atomic: no race, and another order."""
    out, next_ = np.zeros(8, np.int64), np.zeros(1, np.int32)
    with pytest.raises(
        UserError, match=r"kernel slots .* out\[0\] is 0 in forward order and 7 in reverse order \(8 of 8"
    ):
        compare_orders(slots, 2, 4, (out, next_))
    assert not out.any()
    assert not next_.any()


def test_random_orders_are_tried() -> None:
    """A palindrome of blocks would not see it: the middle block wins in forward and in reverse order alike."""
    with pytest.raises(UserError, match=r"order, seed \d|reverse"):
        compare_orders(last_wins, 3, 1, (np.zeros((1, 1), np.int32),), executor="compiled")


def test_faults_come_first() -> None:
    """The checked executor finds the race before any result is compared."""
    with pytest.raises(KernelFaults):
        compare_orders(last_wins, 3, 1, (np.zeros((1, 1), np.int32),))


def test_an_unknown_executor() -> None:
    """The name is one of simt.run's."""
    with pytest.raises(UserError, match="unknown executor 'check'"):
        compare_orders(doubled, 1, 4, (np.zeros(4), np.zeros(4)), executor="check")


def test_tolerance() -> None:
    """The sum of floats depends on the order in its last bits only."""
    x = (10.0 ** np.arange(-8, 8)).astype(np.float32) / np.float32(3)
    total = np.zeros(1, np.float32)
    with pytest.raises(UserError, match="atomics of floats"):
        compare_orders(sums, 1, 16, (total, x))
    compare_orders(sums, 1, 16, (total, x), tolerance=1e-5)
