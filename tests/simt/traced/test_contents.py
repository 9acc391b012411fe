"""What is in arrays at each step: by hand for small kernels, against the launch itself for the whole catalogue."""

import inspect
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba import complex128, cuda, float32, int32, uint8, uint32
from simt.traced.catalogue import CORRECT, FAULTY, contents, traced

from nanoeuler import simt
from nanoeuler.simt.checked.memory import _arrays
from nanoeuler.simt.traced.contents import Contents, elements, leaves
from nanoeuler.simt.traced.recorder import TracedArray
from nanoeuler.simt.traced.steps import Steps


@cuda.jit
def fills(out):
    tile = cuda.shared.array((2, 4), float32)
    t = cuda.threadIdx.x
    tile[0, t] = t
    if t < 2:
        tile[1, t] = -1
    cuda.syncthreads()
    tile[1, t] = tile[0, 3 - t]
    out[t] = tile[1, t]


@cuda.jit
def counts(bins, x):
    for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
        cuda.atomic.add(bins, x[i], 1)


@cuda.jit
def sums(total, x):
    local = cuda.shared.array(1, float32)
    if cuda.threadIdx.x == 0:
        local[0] = 0
    cuda.syncthreads()
    for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
        cuda.atomic.add(local, 0, x[i])
        cuda.atomic.sub(total, 0, x[i])
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(total, 1, local[0])


@cuda.jit
def greatest(most, x):
    for i in range(cuda.threadIdx.x, x.size, cuda.blockDim.x):
        cuda.atomic.max(most, 0, x[i])


@cuda.jit
def both_ends(x, y):
    t = cuda.threadIdx.x
    x[t] = 7
    cuda.syncthreads()
    y[t] += 1


@cuda.jit
def as_bits(out):
    numbers = cuda.shared.array(2, float32)
    t = cuda.threadIdx.x
    if t == 0:
        numbers[0] = 1
        bits = numbers.view(uint32)
        bits[1] = uint32(0x40000000)
        small = numbers.view(uint8)
        small[7] = uint8(0xC0)
    cuda.syncthreads()
    out[t] = numbers[t]


@cuda.jit(device=True)
def scratch(x, i):
    mine = cuda.local.array(2, int32)
    mine[0] = x[i]
    if i > 0:
        mine[1] = mine[0] + 1
    return mine[0]


@cuda.jit(device=True)
def put(mine, i):
    mine[i] = 10 + i


@cuda.jit
def local_arrays(out, x):
    mine = cuda.local.array(3, int32)
    t = cuda.threadIdx.x
    put(mine, t)
    out[t] = scratch(x, 1) + scratch(x, 0)
    mine[2] = out[t]


POINT = np.dtype([("x", np.float32), ("n", np.int16, (2,)), ("z", np.complex128)], align=True)


@cuda.jit
def records(points):
    t = cuda.threadIdx.x
    points[t].x = t
    points[t].n[1] = 5 + t
    points[t].z = complex128(t + 1j)


@cuda.jit
def neighbours(out, x):
    line = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    line[t] = x[t]
    cuda.syncthreads()
    out[t] = line[63 - t]


@cuda.jit
def never_written(out):
    line = cuda.shared.array(4, float32)
    t = cuda.threadIdx.x
    out[t] = line[t]
    line[t] = 1


def made(kernel, block, *args, grid=1, **how):
    """Trace a launch, and return its steps and contents."""
    steps = Steps(simt.trace(kernel, grid, block, args, variables=True, **how))
    return steps, Contents(steps)


def seen(of, name, step, *owner):
    """Return the elements of an array after a step, None where nothing is known."""
    for array in of.trace.arrays:
        for leaf in leaves(array):
            if leaf.name == name:
                values, known = of.history(array, leaf).at(step, owner)
                flat = zip(values.reshape(-1).tolist(), known.reshape(-1), strict=True)
                return [value if there else None for value, there in flat]
    raise AssertionError(name)


def changes(of, name, steps, *owner):
    """Return what is in an array whenever that changes."""
    found = [seen(of, name, step, *owner) for step in range(len(steps))]
    return [found[0], *(now for before, now in pairwise(found) if now != before)]


def test_a_shared_array_fills():
    steps, kept = made(fills, 4, np.zeros(4, np.float32))
    assert changes(kept, "tile", steps, 0) == [
        [None] * 8,
        [0, 1, 2, 3, None, None, None, None],
        [0, 1, 2, 3, -1, -1, None, None],
        [0, 1, 2, 3, 3, 2, 1, 0],
    ]
    assert changes(kept, "out", steps) == [[0, 0, 0, 0], [3, 2, 1, 0]]


def test_each_block_has_shared_arrays_of_its_own():
    steps, kept = made(fills, 4, np.zeros(4, np.float32), grid=2)
    first = [seen(kept, "tile", n, 0) for n in range(len(steps))]
    second = [seen(kept, "tile", n, 1) for n in range(len(steps))]
    start = next(s.number for s in steps.list if s.block == 1)
    assert all(value == [None] * 8 for value in second[:start])
    assert all(value == first[-1] for value in first[start:])
    assert second[start:] == first[:start]


def test_a_counter_grows_as_the_rounds_do():
    x = np.array([0, 1, 0, 1, 0, 0, 1, 1], np.int32)  # two threads, four rounds
    steps, kept = made(counts, 2, np.array([100, 0], np.int32), x)
    assert changes(kept, "bins", steps) == [[100, 0], [101, 1], [102, 2], [104, 2], [104, 4]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_floats_end_with_what_the_launch_left(dtype):
    x = np.random.default_rng(0).standard_normal(100).astype(dtype)
    total = np.array([3, 4], dtype)
    steps, kept = made(sums, 32, total, x)
    assert np.array_equal(seen(kept, "total", len(steps) - 1), total)
    partial = [state[0] for state in changes(kept, "local", steps, 0)]
    assert partial[:2] == [None, 0]
    rounds = [x[:n].sum(dtype=np.float64) for n in (32, 64, 96, 100)]
    np.testing.assert_allclose(partial[2:], rounds, rtol=1e-5, atol=1e-5)
    down = [state[0] for state in changes(kept, "total", steps)]
    np.testing.assert_allclose(down[:5], [3, *(3 - r for r in rounds)], rtol=1e-5, atol=1e-5)


def test_small_integers_wrap():
    bins = np.array([2**31 - 2, 0], np.int32)
    steps, kept = made(counts, 2, bins, np.zeros(4, np.int32))
    assert [state[0] for state in changes(kept, "bins", steps)] == [2**31 - 2, -(2**31), -(2**31) + 2]


def test_of_other_atomics_what_really_came_last_is_seen():
    x = np.array([5, 1, 2, 9, 3, 4], np.int32)  # thread 0 has 5, 2, 3 and thread 1 has 1, 9, 4
    steps, kept = made(greatest, 2, np.zeros(1, np.int32), x)
    assert [state[0] for state in changes(kept, "most", steps)] == [0, 5, 9]


def test_arrays_that_overlap_show_each_others_writes():
    x = np.zeros(5, np.int32)
    steps, kept = made(both_ends, 3, x, x[2:])
    assert changes(kept, "x", steps) == [[0] * 5, [7, 7, 7, 0, 0], [7, 7, 8, 1, 1]]
    assert changes(kept, "y", steps) == [[0] * 3, [7, 0, 0], [8, 1, 1]]
    steps, kept = made(both_ends, 3, np.zeros(5, np.int32)[::-2], np.zeros((3, 2), np.int32)[:, 1])
    assert seen(kept, "x", len(steps)) == [7, 7, 7]


def test_an_array_that_is_also_seen_as_other_numbers():
    steps, kept = made(as_bits, 2, np.zeros(2, np.float32))
    assert changes(kept, "numbers", steps, 0) == [[None, None], [1, None], [1, 2], [1, -2]]


def test_each_call_has_local_arrays_of_its_own():
    steps, kept = made(local_arrays, 2, np.zeros(2, np.int32), np.array([6, 8], np.int32))
    outer, inner = [a for a in steps.trace.arrays if a.scope == "local"]
    assert (outer.shape, inner.shape) == ((3,), (2,))
    kernel, _, *frames = sorted({steps.frame_of[s.execution] for s in steps.list})  # put, and scratch twice
    history = kept.history(outer, leaves(outer)[0])
    assert sorted(history.owners) == [(0, 0, kernel), (0, 1, kernel)]
    assert history.at(len(steps), (0, 1, kernel))[0].tolist() == [0, 11, 14]
    assert history.at(len(steps), (0, 1, kernel))[1].tolist() == [False, True, True]
    history = kept.history(inner, leaves(inner)[0])
    ends = [[p.tolist() for p in history.at(len(steps), (0, 0, frame))] for frame in frames]
    assert ends == [[[8, 9], [True, True]], [[6, 0], [True, False]]]


def test_records_are_seen_field_by_field():
    points = np.zeros(3, POINT)
    steps, kept = made(records, 3, points)
    array = steps.trace.arrays[0]
    assert [leaf.name for leaf in leaves(array)] == ["points.x", "points.n[0]", "points.n[1]", "points.z"]
    assert seen(kept, "points.x", len(steps)) == [0, 1, 2]
    assert changes(kept, "points.n[1]", steps) == [[0, 0, 0], [5, 6, 7]]
    assert changes(kept, "points.z", steps) == [[0, 0, 0], [1j, 1 + 1j, 2 + 1j]]
    which = np.flatnonzero(steps.trace.accesses["thread"] == 1)
    touched = kept.touched(array, which)
    assert (touched.leaf.tolist(), touched.element.tolist()) == ([0, 2, 3], [1, 1, 1])


def test_what_warps_write_that_are_not_followed_is_seen_when_it_is_read():
    x = np.arange(64, dtype=np.float32)
    steps, kept = made(neighbours, 64, np.zeros(64, np.float32), x, warps=0)
    found = changes(kept, "line", steps, 0)
    assert found == [[None] * 64, [*range(32), *[None] * 32], list(range(64))]
    assert seen(kept, "out", len(steps)) == [*range(63, 31, -1), *[0] * 32]


def test_a_read_of_what_nothing_wrote_shows_nothing():
    steps, kept = made(never_written, 4, np.zeros(4, np.float32))
    assert changes(kept, "line", steps, 0) == [[None] * 4, [1] * 4]


@pytest.mark.parametrize("array", [np.zeros(0, np.float32), np.zeros((2, 0, 3)), np.zeros(())])
def test_arrays_without_elements_or_axes(array):
    traced_array = TracedArray(0, "x", "global", array.shape, array.strides, array.dtype, 4, 0, 0, array)
    assert elements(traced_array, np.array([0, 4, 8])).tolist() == [-1, -1 if array.size == 0 else 0, -1]


# Any kernel


@pytest.mark.parametrize("name", [*CORRECT, *list(FAULTY)[::3]])
def test_in_the_end_arrays_are_as_the_launch_left_them(name):
    case, steps = traced(name)
    trace, found = steps.trace, contents(name)
    given = dict(_arrays(zip(inspect.signature(trace.function).parameters, case.args, strict=False)))
    compared = 0
    for array in trace.arrays:
        for leaf in leaves(array):
            values, known = found.history(array, leaf).at(len(steps) - 1)
            if array.scope == "global":
                wanted = _field(given[array.name], leaf.name.removeprefix(array.name))
                assert known.all()
                np.testing.assert_array_equal(values, wanted, err_msg=leaf.name)
                compared += 1
    assert compared


def _field(array, path):
    for field in path.split(".")[1:]:
        name, _, index = field.partition("[")
        array = array[name]
        array = array[..., int(index[:-1])] if index else array
    return array


WAITING = {"lock_per_warp", "lock_every_thread", "producer_and_consumer", "chained_scan"}  # in a loop, for a thread


@pytest.mark.parametrize("name", [name for name in CORRECT if name not in WAITING])
def test_what_a_thread_reads_is_what_the_array_shows(name):
    steps, found = traced(name)[1], contents(name)
    trace = steps.trace
    reads = np.flatnonzero(trace.accesses["kind"] == 0)
    reads = reads[:: max(1, len(reads) // 20)]
    for n, value in zip(reads, trace.values(trace.accesses[reads]), strict=True):
        record, array = trace.accesses[n], trace.arrays[trace.accesses["array"][n]]
        block, thread = int(record["block"]), int(record["thread"])
        local = block, thread, found.frame(array, int(record["execution"]))
        owner = {"shared": (block,), "local": local}.get(array.scope, ())
        touched = found.touched(array, np.array([n]))
        history = found.history(array, leaves(array)[int(touched.leaf[0])])
        values, known = history.at(int(steps.step_of_access[n]) - 1, owner)
        element = int(touched.element[0])
        assert known.reshape(-1)[element]
        np.testing.assert_array_equal(values.reshape(-1)[element], value)
