"""Stores convert, atomics change one element, wide accesses need their alignment."""

from typing import Any

import numpy as np
import pytest
from numba import cuda, types

from nanoeuler.simt import faults
from nanoeuler.simt.checked.execute import collect_faults
from nanoeuler.simt.checked.memory import require_alignment
from nanoeuler.simt.faults import Fault, UnsupportedError
from nanoeuler.simt.launch import launch_shape

f32 = np.float32


def find(kernel: Any, *args: Any) -> list[Fault]:
    """Run a kernel in one thread and return its faults."""
    return collect_faults(kernel, launch_shape(1, 1), args)


def wide(out, x, i):
    require_alignment(x, i, 16)
    out[0] = x[i]


def wide_shared(out):
    short = cuda.shared.array(8, types.uint16)
    aligned = cuda.shared.array(8, types.uint16, 16)
    require_alignment(aligned, 0, 16)
    require_alignment(short, 0, 16)


def test_alignment() -> None:
    """Global memory starts at a multiple of 256 bytes; shared memory at that of its dtype unless more is asked for."""
    x, out = np.zeros(16, f32), np.zeros(1, f32)
    assert find(wide, out, x, 4) == []
    (fault,) = find(wide, out, x, 5)
    assert (fault.kind, fault.array, fault.index) == (faults.MISALIGNED, "x", (5,))
    (fault,) = find(wide_shared, out)
    assert (fault.kind, fault.array) == (faults.MISALIGNED, "short")


@pytest.mark.parametrize(
    ("name", "dtype", "old", "value", "new"),
    [
        ("add", np.uint32, 2**32 - 1, 2, 1),
        ("add", f32, 1.5, 2, 3.5),
        ("sub", np.int64, 1, 3, -2),
        ("max", np.int32, 1, 3, 3),
        ("min", f32, 1, 3, 1),
        ("max", f32, np.nan, 3, np.nan),
        ("max", f32, 1, np.nan, 1),
        ("nanmax", f32, np.nan, 3, 3),
        ("nanmin", np.float64, 2, np.nan, 2),
        ("and_", np.int32, 6, 3, 2),
        ("or_", np.uint64, 6, 3, 7),
        ("xor", np.int32, 6, 3, 5),
        ("inc", np.uint32, 3, 3, 0),
        ("inc", np.uint32, 2, 3, 3),
        ("dec", np.uint64, 0, 3, 3),
        ("dec", np.uint32, 5, 3, 3),
        ("dec", np.uint32, 2, 3, 1),
        ("exch", np.int64, 6, 3, 3),
    ],
)
def test_atomics(name: str, dtype: Any, old: Any, value: Any, new: Any) -> None:
    """Each returns what was there before."""
    a, before = np.array([old], dtype), np.zeros(1, dtype)
    assert find(ATOMICS[name], a, dtype(value), before) == []
    np.testing.assert_array_equal(a, np.array([new], dtype))
    np.testing.assert_array_equal(before, np.array([old], dtype))


def _kernels() -> dict[str, Any]:
    """Return a kernel for each atomic: the source must name it."""

    def add(a, v, out):
        out[0] = cuda.atomic.add(a, 0, v)

    def sub(a, v, out):
        out[0] = cuda.atomic.sub(a, 0, v)

    def max_(a, v, out):
        out[0] = cuda.atomic.max(a, 0, v)

    def min_(a, v, out):
        out[0] = cuda.atomic.min(a, 0, v)

    def nanmax(a, v, out):
        out[0] = cuda.atomic.nanmax(a, 0, v)

    def nanmin(a, v, out):
        out[0] = cuda.atomic.nanmin(a, 0, v)

    def and_(a, v, out):
        out[0] = cuda.atomic.and_(a, 0, v)

    def or_(a, v, out):
        out[0] = cuda.atomic.or_(a, 0, v)

    def xor(a, v, out):
        out[0] = cuda.atomic.xor(a, 0, v)

    def inc(a, v, out):
        out[0] = cuda.atomic.inc(a, 0, v)

    def dec(a, v, out):
        out[0] = cuda.atomic.dec(a, 0, v)

    def exch(a, v, out):
        out[0] = cuda.atomic.exch(a, 0, v)

    made = [add, sub, max_, min_, nanmax, nanmin, and_, or_, xor, inc, dec, exch]
    names = ["add", "sub", "max", "min", "nanmax", "nanmin", "and_", "or_", "xor", "inc", "dec", "exch"]
    return dict(zip(names, made, strict=True))


ATOMICS = _kernels()


def swaps(a, out):
    out[0] = cuda.atomic.cas(a, (0, 1), 5, 7)
    out[1] = cuda.atomic.cas(a, (0, 1), 5, 8)
    out[2] = cuda.atomic.compare_and_swap(a[0], 1, 9)


def atomic_of_half(a):
    cuda.atomic.add(a, 0, 1)


def test_compare_and_swap() -> None:
    """It writes only where the old value is what was expected; types that CUDA does not have are refused."""
    a, out = np.array([[1, 5]], np.int32), np.zeros(3, np.int32)
    assert find(swaps, a, out) == []
    assert (a.tolist(), out.tolist()) == ([[9, 7]], [5, 7, 1])
    with pytest.raises(UnsupportedError, match=r"atomic.add of float16"):
        find(atomic_of_half, np.zeros(1, np.float16))


def scalar_types(out, x):
    out[0] = x[0] * x[0]
    out[1] = 3e9


def test_stores_convert_as_the_gpu_does() -> None:
    """float16 is computed in float16; a float that an integer cannot hold saturates."""
    out = np.zeros(2, np.int32)
    find(scalar_types, out, np.full(1, 300, np.float16))
    assert out.tolist() == [2**31 - 1, 2**31 - 1]  # 300 * 300 is infinite in float16
