"""What the model asks of a device besides the ops."""

import numpy as np
import pytest
from oracle import dtypes, more_than_a_block

from nanoeuler import cpu as ops


@dtypes
@pytest.mark.parametrize("size", [1, 17, 100_003])
def test_empty_is_aligned_to_a_cache_line(size: int, dtype: type) -> None:
    array = ops.empty(size, dtype)
    assert array.shape == (size,)
    assert array.dtype == dtype
    assert array.ctypes.data % 64 == 0
    assert array.flags.c_contiguous
    assert array.flags.writeable


def test_fill_reaches_every_element() -> None:
    array = np.zeros(2 * more_than_a_block(1))
    ops.fill(array, 2.5)
    assert (array == 2.5).all()


def test_to_numpy_copies_nothing() -> None:
    array = ops.empty(3, np.float32)
    assert ops.to_numpy(array) is array
