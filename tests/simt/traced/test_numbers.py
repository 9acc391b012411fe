"""The numbers of a trace: divergence, accesses, arithmetic, arrays and sums, by hand and against plain loops."""

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba import cuda, float32
from simt.traced import kernels
from simt.traced.hand_counted import CASES, first_for_all

from nanoeuler import simt
from nanoeuler.simt.traced.numbers import LineNumbers, Numbers, numbers


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def line(found: Numbers, kernel: Any, below: int) -> LineNumbers:
    """Return the line so many below a kernel's decorator."""
    code = kernel.py_func.__code__
    return found.lines[code.co_filename, code.co_firstlineno + below]


def lanes(found: Numbers, kernel: Any, below: int) -> tuple[int, int, int]:
    one = line(found, kernel, below)
    return one.executions, one.lanes_active, one.lanes_there


# Divergence ---------------------------------------------------------------------------------------------------------


@cuda.jit
def ways(out, x):
    i = cuda.grid(1)
    if i >= x.size:
        return
    if i % 2:
        out[i] = x[i]
    else:
        out[i] = -x[i]
    n = 0
    while n < i:
        n += 1
    for k in range(2):
        out[i] += k


def test_lanes_of_branches_and_loops() -> None:
    """Two warps of 32 and 8 lanes, of which 35 go on: 32 and 3; 17 + 1 odd ones."""
    found = numbers(simt.trace(ways, 1, 40, (floats(35), floats(35))))
    assert lanes(found, ways, 2) == (2, 40, 40)
    assert lanes(found, ways, 3) == (2, 40, 40)
    assert lanes(found, ways, 4) == (1, 5, 8)  # the return: lanes 3 to 7 of the second warp
    assert lanes(found, ways, 5) == (2, 35, 40)
    assert lanes(found, ways, 6) == (2, 17, 40)  # threads 1 to 31, and 33
    assert lanes(found, ways, 8) == (2, 18, 40)
    # thread i tests i + 1 times; the warps test 32 and 35 times
    assert lanes(found, ways, 10) == (67, sum(range(1, 36)), 32 * 32 + 35 * 8)
    assert lanes(found, ways, 11) == (65, sum(range(35)), 31 * 32 + 34 * 8)
    assert lanes(found, ways, 12) == (2 + 4, 35 * 3, 40 * 3)  # for: once, and each round
    assert lanes(found, ways, 13) == (4, 70, 80)
    assert line(found, ways, 4).lanes == 5
    assert line(found, ways, 6).lane_share == 17 / 40
    assert (*found.lines,) == tuple(sorted(found.lines))


@cuda.jit
def short(out, x):
    i = cuda.threadIdx.x
    if i < 3: out[i] = 1  # fmt: skip  # noqa: E701
    out[i] = (x[i] +
              x[2 * i])  # fmt: skip


def test_a_line_may_be_a_branch_or_part_of_a_statement() -> None:
    found = numbers(simt.trace(short, 1, 32, (floats(32), floats(64))))
    assert lanes(found, short, 3) == (2, 35, 64)  # the condition, then what hangs on it
    assert lanes(found, short, 4) == (1, 32, 32)
    assert lanes(found, short, 5) == (1, 32, 32)
    assert line(found, short, 4).loads.sectors == 4
    assert line(found, short, 5).loads.sectors == 8
    assert line(found, short, 4).stores.sectors == 4


def test_blocks_of_any_shape() -> None:
    """A block of 3 x 5 x 7 is 105 threads: three warps of 32 and one of 9."""
    found = numbers(simt.trace(cube, (2, 1, 2), (3, 5, 7), (floats(4 * 105),)))
    assert lanes(found, cube, 4) == (16, 420, 420)
    assert found.totals.stores.requests == 16
    # A block's 105 words start at multiples of 420 bytes: 0, 420, 840, 1260, that is 0, 4, 8, 12 behind a sector.
    # Warps of 128 bytes: 4 sectors when aligned, else 5. The last 36 bytes start 384 further: at 0, 4, 8, 12: 2 each.
    assert found.totals.stores.sectors == (3 * 4 + 2) + 3 * (3 * 5 + 2)


@cuda.jit
def cube(out):
    t = cuda.threadIdx.x + 3 * (cuda.threadIdx.y + 5 * cuda.threadIdx.z)
    b = cuda.blockIdx.x + 2 * cuda.blockIdx.z
    out[105 * b + t] = 1


# Accesses -----------------------------------------------------------------------------------------------------------


@cuda.jit
def scopes(out, x):
    s = cuda.shared.array(32, float32)
    mine = cuda.local.array(2, float32)
    i = cuda.threadIdx.x
    s[i] = x[i]
    mine[0] = s[i] * TABLE[1]
    cuda.atomic.add(out, 0, mine[0])
    cuda.atomic.max(s, 0, mine[0])


TABLE = np.array([1, 2], np.float32)


def test_accesses_by_scope_and_action() -> None:
    found = numbers(simt.trace(scopes, 1, 32, (floats(1), floats(32))))
    assert dict(line(found, scopes, 5).accesses) == {("global", "reads"): 32, ("shared", "writes"): 32}
    assert dict(line(found, scopes, 6).accesses) == {
        ("shared", "reads"): 32,
        ("constant", "reads"): 32,
        ("local", "writes"): 32,
    }
    assert dict(line(found, scopes, 7).accesses) == {("local", "reads"): 32, ("global", "atomically updates"): 32}
    assert dict(line(found, scopes, 8).accesses) == {("local", "reads"): 32, ("shared", "atomically updates"): 32}
    assert line(found, scopes, 7).atomics.collisions == 31
    assert found.totals.traffic.accesses == 64
    assert found.totals.banks.accesses == 96
    assert found.totals.traffic.requests == 2  # local and constant memory make none here
    assert sum(found.totals.accesses.values()) == 32 * 9


def test_traffic_by_array() -> None:
    case = CASES["gather far apart"]
    found = numbers(simt.trace(case.kernel, 1, 32, case.args()))
    of = line(found, case.kernel, 3).global_memory
    assert {touch: (t.requests, t.sectors, t.efficiency) for touch, t in of.items()} == {
        ("index", "reads"): (1, 8, 1.0),
        ("x", "reads"): (1, 32, 0.125),
        ("out", "writes"): (1, 4, 1.0),
    }


def test_repeated_loads_are_told_where_they_are() -> None:
    found = numbers(simt.trace(first_for_all, 1, 64, (floats(64), floats(1))))
    loads = line(found, first_for_all, 3).loads
    assert (loads.repeated, loads.read_back, loads.repeated_in_block, loads.spared) == (0, 0, 32, 32)


@cuda.jit(device=True)
def helper(x, i):
    return x[i] * x[i]


@cuda.jit
def calling(out, x):
    i = cuda.threadIdx.x
    out[i] = helper(x, i)
    out[i] += helper(x, 2 * i)


def test_a_device_function_has_its_own_lines() -> None:
    found = numbers(simt.trace(calling, 1, 32, (floats(32), floats(64))))
    assert lanes(found, helper, 2) == (2, 64, 64)
    assert line(found, helper, 2).loads.sectors == 2 * 4 + 2 * 8
    assert line(found, helper, 2).flops == 64
    assert line(found, calling, 3).loads.requests == 0
    assert line(found, calling, 4).flops == 32


# Arithmetic ---------------------------------------------------------------------------------------------------------


@cuda.jit
def sums(out, x, c):
    i = cuda.threadIdx.x
    a = x[i] * x[i] + x[i]
    b = math.sqrt(a) / a
    z = c[i] * c[i] + c[i]
    j = (i * 2 + 1) % 4
    d = np.float64(a) * 2
    out[i] = cuda.fma(a, b, float32(d)) if j < 2 and a > b else min(z.real, b)


def test_operations() -> None:
    """4 threads; j is 1, 3, 1, 3, and a = 2, b = sqrt(2) / 2: two threads call fma."""
    args = floats(4), np.ones(4, np.float32), np.ones(4, np.complex64)
    found = numbers(simt.trace(sums, 1, 4, args))
    assert dict(line(found, sums, 3).operations) == {("*", "float32"): 4, ("+", "float32"): 4}
    assert [line(found, sums, n).flops for n in range(3, 9)] == [8, 4, 4 * 8, 0, 4, 2 * 2]
    assert [line(found, sums, n).special for n in range(3, 9)] == [0, 4, 0, 0, 0, 0]
    assert [line(found, sums, n).integer for n in range(3, 9)] == [0, 0, 0, 12, 0, 0]
    assert found.totals.flops_by_precision == {"float32": 8 + 4 + 32 + 4, "float64": 4}
    assert found.totals.flops == 52


def test_intensity() -> None:
    """Two additions for each of 32 threads; 16 sectors, each once."""
    case = CASES["structure of arrays"]
    totals = numbers(simt.trace(case.kernel, 1, 32, case.args())).totals
    assert (totals.flops, totals.bytes_moved, totals.bytes_distinct) == (64, 512, 512)
    assert totals.intensity == totals.intensity_distinct == 0.125


@cuda.jit
def increment(x):
    i = cuda.threadIdx.x
    x[i] += x[0]
    x[i] += 1


def test_distinct_bytes_count_once_for_reading_and_once_for_writing() -> None:
    """x has 4 sectors: read and written twice, and the first once more by each load of x[0]."""
    totals = numbers(simt.trace(increment, 1, 32, (floats(32),))).totals
    assert totals.bytes_moved == 32 * (4 + 1 + 4 + 4 + 4)
    assert totals.bytes_distinct == 32 * 8


# Arrays, parts of a launch, odd cases -------------------------------------------------------------------------------


def test_arrays() -> None:
    x = np.zeros((8, 8), np.float32)
    found = numbers(simt.trace(kernels.product, (2, 2), (4, 4), (x.copy(), x, x.copy())))
    arrays = {a.name: a for a in found.arrays}
    counts = {n: (a.loads, a.stores, a.elements, a.loads_per_element, a.bytes) for n, a in arrays.items()}
    assert counts["c"] == (0, 64, 64, 0, 256)
    assert counts["a"] == (128, 0, 64, 2, 256)  # 64 threads, a load for each of 2 tiles
    # 4 blocks with 16 elements each; a thread loads 8 of each tile
    assert counts["ta"] == (512, 128, 64, 8, 256)
    assert arrays["ta"].scope == "shared"
    assert arrays["a"].shape == (8, 8)


def test_local_arrays_are_each_thread_s_own() -> None:
    found = numbers(simt.trace(scopes, 2, 32, (floats(1), floats(32))))
    mine = next(a for a in found.arrays if a.name == "mine")
    assert (mine.loads, mine.stores, mine.elements, mine.loads_per_element) == (128, 64, 64, 2)


def test_a_part_of_a_launch() -> None:
    args = floats(256), floats(256)
    whole = numbers(simt.trace(ways, 4, 64, args)).totals
    part = numbers(simt.trace(ways, 4, 64, args, blocks=[(1,), (3,)], warps=1)).totals
    assert (whole.stores.requests, part.stores.requests) == (32, 8)  # a warp of 2 blocks instead of 2 of 4
    first = ways.py_func.__code__.co_firstlineno
    found = numbers(simt.trace(ways, 1, 32, args, lines=first + 6))
    assert found.totals.loads.accesses == 16
    assert found.totals.stores.accesses == 16
    assert found.totals.flops == 0
    assert lanes(found, ways, 8) == (1, 16, 32)  # divergence is known of all lines


@cuda.jit
def faulty(out, x):
    s = cuda.shared.array(4, float32)
    i = cuda.threadIdx.x
    s[i] = x[i + 1]
    if i == 0:
        cuda.syncthreads()
    out[i] = s[0]


def test_a_faulty_kernel_has_numbers_too() -> None:
    trace = simt.trace(faulty, 1, 8, (floats(8), floats(8)))
    assert {f.kind for f in trace.faults} >= {"out of bounds", "barrier divergence"}
    found = numbers(trace)
    assert line(found, faulty, 4).loads.accesses == 7


@cuda.jit
def nothing():
    pass


def test_nothing_happens() -> None:
    found = numbers(simt.trace(nothing, 2, 33, ()))
    assert found.lines == {}
    assert found.totals.bytes_moved == found.totals.flops == found.totals.lanes_there == 0
    assert (found.totals.traffic.efficiency, found.totals.banks.ways, found.totals.intensity) == (1, 1, 0)


# Against plain loops ------------------------------------------------------------------------------------------------


@cuda.jit
def scattered(out, x, index, flags):
    t = cuda.threadIdx.x + cuda.blockDim.x * (cuda.threadIdx.y + cuda.blockDim.y * cuda.threadIdx.z)
    i = t + cuda.blockIdx.x * index.shape[1]
    value = x[index[0, t]]
    if flags[t]:
        value += x[index[1, t]]
    else:
        out[index[2, t]] = value
    out[i] = value
    out[index[3, t]] = value + x[index[4, t]]


DTYPES = ["?", "u1", "i2", "f2", "f4", "i8", "f8"]
SHAPES = [(1,), (7,), (32,), (33,), (5, 3), (4, 4, 4), (3, 1, 13), (64, 1)]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(SHAPES),
    st.sampled_from(DTYPES),
    st.integers(0, 40),
    st.integers(1, 3),
    st.integers(1, 2),
)
def test_transactions_against_plain_loops(
    seed: int, block: tuple, dtype: str, start: int, step: int, blocks: int
) -> None:
    random = np.random.default_rng(seed)
    threads = math.prod(block)
    size = int(random.integers(1, 300)) + blocks * threads
    x, out = np.zeros(start + step * size, dtype)[start::step], np.zeros(size + start, dtype)[start:]
    index, flags = random.integers(0, size, (5, threads)), random.integers(0, 2, threads).astype(np.bool_)
    trace = simt.trace(scattered, blocks, block, (out, x, index, flags))
    itemsize = np.dtype(dtype).itemsize
    places = {
        "x": lambda i: itemsize * (start + step * i[0]),
        "out": lambda i: itemsize * (start + i[0]),
        "index": lambda i: 8 * (i[0] * threads + i[1]),
        "flags": lambda i: i[0],
    }
    sizes = {"x": itemsize, "out": itemsize, "index": 8, "flags": 1}
    groups: dict[tuple, list] = defaultdict(list)
    for e in trace.events():
        x_, y_, z_ = e.thread
        wide = (*block, 1, 1)
        number = x_ + wide[0] * (y_ + wide[1] * z_)
        groups[e.line, e.array, e.action, e.text, e.block, number // 32].append((e.array, places[e.array](e.index)))
    expected: dict[tuple, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for (at, array, action, *_), accesses in groups.items():
        asked = {byte for name, place in accesses for byte in range(place, place + sizes[name])}
        counted = len(accesses), 1, len({byte // 32 for byte in asked}), len(asked)
        expected[at, array, action] = [a + b for a, b in zip(expected[at, array, action], counted, strict=True)]
    found = {
        (one.line, *touch): [t.accesses, t.requests, t.sectors, t.bytes_asked]
        for one in numbers(trace).lines.values()
        for touch, t in one.global_memory.items()
    }
    assert found == expected
