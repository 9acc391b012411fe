"""What the model asks of a device besides the ops."""

import numpy as np
import pytest
from oracle import dtypes, more_than_a_block, normal, unwritten

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


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_memory_for_integers_too(dtype: type) -> None:
    assert ops.empty(5, dtype).dtype == dtype


@dtypes
def test_copy_writes_every_element_and_reads_only(dtype: type) -> None:
    for shape in ((1,), (7, 5), (2, 3, 4, 5), (more_than_a_block(1),)):
        x, out = normal(shape, dtype), unwritten(shape, dtype)
        before = x.copy()
        ops.copy(out, x)
        assert (out == x).all()
        assert (x == before).all()
        assert not np.shares_memory(out, x)


def test_copy_between_rows_that_lie_apart() -> None:
    """As keys and values are: some heads of q|k|v into some tokens of a cache, whose others stay as they are."""
    qkv, cache = normal((2, 3, 6, 4)), unwritten((3, 9, 2, 4))
    ops.copy(cache[:2, 4:7], qkv[:, :, 2:4])
    assert (cache[:2, 4:7] == qkv[:, :, 2:4]).all()
    assert np.isnan(cache).sum() == cache.size - 2 * 3 * 2 * 4
    last = unwritten((2, 24))
    ops.copy(last, qkv.reshape(2, 3, 24)[:, 2])
    assert (last == qkv.reshape(2, 3, 24)[:, 2]).all()


def test_copy_rounds_and_widens_but_turns_no_number_into_an_integer() -> None:
    x = normal((5, 3))
    short, long = unwritten((5, 3), np.float32), unwritten((5, 3))
    ops.copy(short, x)
    assert (short == x.astype(np.float32)).all()
    ops.copy(long, short)
    assert (long == short).all()
    with pytest.raises(TypeError):
        ops.copy(np.zeros((5, 3), np.int32), x)
    with pytest.raises(ValueError, match="broadcast"):
        ops.copy(np.zeros((5, 2)), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_from_numpy_takes_whatever_numbers_the_array_can_hold(dtype: type) -> None:
    for given in (np.uint8, np.int32, np.int64, np.float32, np.float64):
        x = np.arange(24, dtype=given).reshape(4, 6)
        for values in (x, x[::-1], np.asfortranarray(x)):
            out = ops.empty(24, dtype).reshape(4, 6)
            ops.from_numpy(out, values)
            assert out.dtype == dtype
            assert (out == values).all()
            assert not np.shares_memory(out, values)


def test_from_numpy_refuses_another_shape() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        ops.from_numpy(np.zeros((2, 3)), np.ones((3, 2)))


def test_there_and_back() -> None:
    x = normal((3, 4), np.float32)
    out = ops.empty(12, np.float32).reshape(3, 4)
    ops.from_numpy(out, x)
    assert (ops.to_numpy(out) == x).all()


def test_to_numpy_copies_nothing() -> None:
    array = ops.empty(3, np.float32)
    assert ops.to_numpy(array) is array
