"""Arrays of a checked kernel: what an index selects, what was never written, and what atomics do."""

from typing import Any

import numpy as np
import pytest
from numba import cuda, float32, int32, types

from nanoeuler.simt import faults
from nanoeuler.simt.checked.execute import collect_faults
from nanoeuler.simt.checked.memory import mark_written, never_written
from nanoeuler.simt.faults import Fault, UnsupportedError
from nanoeuler.simt.launch import launch_shape

f32 = np.float32


def find(kernel: Any, *args: Any, grid: Any = 1, block: Any = 1, shared_bytes: int = 0, **more: Any) -> list[Fault]:
    """Run a kernel and return its faults."""
    return collect_faults(kernel, launch_shape(grid, block, shared_bytes, **more), args)


def kinds(found: list[Fault]) -> list[str]:
    """Return what kinds of faults were found."""
    return [fault.kind for fault in found]


def sliced(a, out):
    row = a[1]
    middle = a[:, 1]
    window = a[0:2, 1:]
    back = a[1, ::-1]
    last = row[1:][1:]
    last[0] = 50
    out[0], out[1], out[2], out[3] = row[2], middle[1], window[1, 1], back[0]
    out[4] = a.T[2, 1] + window.shape[0] * 100 + back.strides[0]
    out[5] = a.size + a.ndim + len(a)
    window[0] = 7
    back[1:] = row[:2]


def test_views() -> None:
    """Rows, columns, windows and reversed rows are views of the same elements."""
    a = np.arange(6, dtype=np.int64).reshape(2, 3)
    out = np.zeros(6, np.int64)
    assert find(sliced, a, out) == []
    assert out.tolist() == [50, 4, 50, 50, 50 + 200 - 8, 6 + 2 + 2]
    assert a.tolist() == [[0, 7, 7], [3, 3, 50]]  # element by element: back[1] is row[1]


def past(a):
    a[cuda.threadIdx.x, 2] = 1


def past_read(a, out):
    out[0] = a[3]


def past_row(a, out):
    out[0] = a[7, :][0]


def before(a):
    a[cuda.threadIdx.x - 1, 0] = 1


def past_atomic(a):
    cuda.atomic.add(a, 9, 1)


def past_record(a):
    a[5].x = 1
    a[cuda.threadIdx.x].x = 2


def test_outside() -> None:
    """A read outside gives NaN or 0, a write is dropped; the message has the axis and the shape."""
    a = np.zeros((2, 2), f32)
    (fault,) = find(past, a, block=2)
    assert (fault.kind, fault.array, fault.index) == (faults.OUT_OF_BOUNDS, "a", (0, 2))
    assert "along axis 1" in fault.message
    assert "(2, 2)" in fault.message
    assert not a.any()
    out = np.ones(1, f32)
    assert kinds(find(past_read, np.zeros(3, f32), out)) == [faults.OUT_OF_BOUNDS]
    assert np.isnan(out[0])
    out = np.ones(1, np.int64)
    assert kinds(find(past_row, np.zeros((2, 2), np.int64), out)) == [faults.OUT_OF_BOUNDS]
    assert out[0] == 0
    assert kinds(find(past_atomic, np.zeros(9, np.int32))) == [faults.OUT_OF_BOUNDS]


def test_negative() -> None:
    """Numba would wrap it round: the row that it would have hit is untouched."""
    a = np.zeros((2, 2), f32)
    (fault,) = find(before, a, block=2)
    assert (fault.kind, fault.index, fault.parties[0].thread) == (faults.NEGATIVE_INDEX, (-1, 0), (0, 0, 0))
    assert a.tolist() == [[1, 0], [0, 0]]


RECORD = np.dtype([("x", f32), ("n", np.int32), ("v", f32, (2,))])


def records(a, out):
    i = cuda.threadIdx.x
    a[i].x = a[i]["n"] * 2
    a[i].v[1] = 5
    out[i] = a["n"][i]
    a[i].n += 1


def test_records() -> None:
    """Fields are read and written by attribute, by name, and as an array of the field."""
    a, out = np.zeros(3, RECORD), np.zeros(3, np.int32)
    a["n"] = [1, 2, 3]
    assert find(records, a, out, block=3) == []
    assert a["x"].tolist() == [2, 4, 6]
    assert a["v"].tolist() == [[0, 5]] * 3
    assert a["n"].tolist() == [2, 3, 4]
    assert out.tolist() == [1, 2, 3]
    assert kinds(find(past_record, np.zeros(1, RECORD))) == [faults.OUT_OF_BOUNDS]


def two_fields(a):
    if cuda.threadIdx.x == 0:
        a[0].x = 1
    else:
        a[0].n = 1


def test_fields_of_one_record_are_two_locations() -> None:
    """Two threads that write different fields do not race."""
    assert find(two_fields, np.zeros(1, RECORD), block=2) == []


def uninitialised_local(out):
    kept = cuda.local.array(4, float32)
    kept[1] = 2
    for i in range(2):
        inner = cuda.local.array(1, int32)
        if i == 0:
            inner[0] = 5
        out[i + 2] = inner[0]
    out[0] = kept[1]
    out[1] = kept[2]


def uninitialised_shared(out):
    kept = cuda.shared.array((2, 2), int32)
    kept[0, 0] = 2
    out[0] = kept[1, 1]


def test_uninitialised() -> None:
    """Local arrays keep what was written in an earlier round of a loop, and have nothing else."""
    out = np.zeros(4, f32)
    (fault,) = find(uninitialised_local, out)
    assert (fault.kind, fault.array, fault.index) == (faults.UNINITIALISED, "kept", (2,))
    assert np.isnan(out[1])
    assert out[2:].tolist() == [5, 5]
    (fault,) = find(uninitialised_shared, np.zeros(1, f32))
    assert (fault.kind, fault.array, fault.index) == (faults.UNINITIALISED, "kept", (1, 1))


def add_one(out, x):
    i = cuda.grid(1)
    out[i] = x[i] + 1


def test_device_memory_that_was_never_written() -> None:
    """What the host or an earlier kernel wrote counts, through slices too; the rest is uninitialised."""
    x = never_written(4, np.int32)
    mark_written(x[1:3])
    x[...] = 3
    out = never_written(4, np.int32)
    assert find(add_one, out[1:3], x[1:3], block=2) == []
    assert find(add_one, np.zeros(2, np.int32), out[1:3], block=2) == []
    (fault,) = find(add_one, out, x, block=4)
    assert (fault.kind, fault.array, fault.index) == (faults.UNINITIALISED, "x", (0,))
    strided = never_written((2, 4), np.int32)
    mark_written(strided[:, ::2])
    assert strided.written is not None
    assert strided.written.reshape(2, 4, 4)[:, :, 0].tolist() == [[True, False, True, False]] * 2


def shifted(a, b):
    i = cuda.threadIdx.x
    b[i] = a[i]


def test_arguments_that_overlap_share_their_memory() -> None:
    """a and a[1:] are one memory: thread 1 reads what thread 0 writes. Interleaved halves are not."""
    a = np.arange(9, dtype=f32)
    assert kinds(find(shifted, a[:8], a[1:], block=8)) == [faults.RACE]
    assert find(shifted, a[::2], a[1::2], block=4) == []
    assert a[1::2].tolist() == a[:8:2].tolist()


def dynamic_parts(out):
    t = cuda.threadIdx.x
    reals = cuda.shared.array(0, float32)
    numbers = cuda.shared.array((0,), int32)[4:]
    bytes_ = cuda.shared.array(0, types.uint8)
    reals[t] = t
    numbers[t] = 2 * t
    cuda.syncthreads()
    out[t] = numbers[3 - t]
    if t == 0:
        out[4] = bytes_[7]
        bytes_[0] = 0


def dynamic_race(out):
    t = cuda.threadIdx.x
    cuda.shared.array(0, int32)[t] = 1
    out[t] = cuda.shared.array(0, types.uint8)[4 * ((t + 1) % 4)]


def test_dynamic_shared_memory() -> None:
    """All dynamic arrays are one memory, whatever their types: the unit is the byte."""
    out = np.zeros(5, f32)
    assert find(dynamic_parts, out, block=4, shared_bytes=32) == []
    assert out.tolist() == [6, 4, 2, 0, f32(1).view(np.int32) >> 24]
    assert set(kinds(find(dynamic_race, out, block=4, shared_bytes=16))) == {faults.RACE}
    assert kinds(find(dynamic_parts, out, block=4, shared_bytes=20))[0] == faults.OUT_OF_BOUNDS


def constants(out):
    table = cuda.const.array_like(TABLE)
    i = cuda.threadIdx.x
    out[i] = table[i] + TABLE[1]


TABLE = np.array([1, 2, 3], np.int32)


def change_constant(out):
    TABLE[0] = out[0]


def test_constants() -> None:
    """Global arrays and constant memory are read only, and have bounds."""
    out = np.zeros(4, np.int64)
    assert kinds(find(constants, out, block=4)) == [faults.OUT_OF_BOUNDS]
    assert out.tolist() == [3, 4, 5, 2]
    with pytest.raises(UnsupportedError, match="constant"):
        find(change_constant, out)


def reshaped(a, out):
    out[0] = a.reshape(2, 3)[1, 0] + a.reshape((3, 2)).ravel()[5]


def too_many(a):
    a[0, 0] = 1


def unknown_field(a, out):
    out[0] = a[0].y


def test_shapes() -> None:
    """reshape and ravel give views; what an array does not have is refused with its line."""
    out = np.zeros(1, np.int64)
    assert find(reshaped, np.arange(6), out) == []
    assert out[0] == 8
    with pytest.raises(UnsupportedError, match="1 axes"):
        find(too_many, out)
    with pytest.raises(UnsupportedError, match="no field 'y'"):
        find(unknown_field, np.zeros(1, RECORD), out)


def loops(out, a):
    for row in a:
        for i, v in enumerate(row):
            out[i] += v
    for u, v in zip(a[0], a[1]):  # noqa: B905 (a kernel has no strict)
        out[2] += u * v


def test_loops_over_arrays() -> None:
    """A loop's elements are loads, a matrix gives its rows."""
    out = np.zeros(3, np.int64)
    assert find(loops, out, np.arange(4).reshape(2, 2)) == []
    assert out.tolist() == [2, 4, 3]
    (fault,) = find(loops, np.zeros(3, np.int64), never_written((2, 2), np.int64))
    assert (fault.kind, fault.line) == (faults.UNINITIALISED, loops.__code__.co_firstlineno + 2)
