"""Faulty kernels: one for each kind of fault and for each place where one can hide, its line marked ``# fault``.

Where two accesses or two barriers make the fault together, both lines are marked, and a report of either will do.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, float32, int32, uint8

from nanoeuler.simt.faults import (
    BARRIER_DIVERGENCE,
    DEADLOCK,
    FLOAT64,
    MISALIGNED,
    MISSING_LANES,
    NEGATIVE_INDEX,
    OUT_OF_BOUNDS,
    RACE,
    RACE_BETWEEN_BLOCKS,
    RAISED,
    UNINITIALISED,
)

from .cases import Array, Case, FaultyKernel

try:
    from .intrinsics import load_float4
except ImportError:  # the stock simulator has no inline instructions
    load_float4 = None

FULL = 0xFFFFFFFF
CHECKED = ("checked",)
SOURCE = ("compiled", "checked")  # the executors that run the source
TEXT = ("checked", "ptx")
ALL = ("compiled", "checked", "ptx")
Position = tuple[int, int, int]

FAULTY: list[FaultyKernel] = []


def fault(
    kind: str,
    kernel: Any,
    executors: tuple[str, ...] = CHECKED,
    functions: tuple[Any, ...] = (),
    block: Position | None = None,
    thread: Position | None = None,
    index: tuple[int, ...] | None = None,
    orders_differ: bool = False,
) -> Callable[[Callable[[], Case]], None]:
    """Enter ``kernel`` in the catalogue, with the function below as what makes its arguments."""

    def enter(make: Callable[[], Case]) -> None:
        entry = (kernel.__name__, kernel, make, kind, executors, functions, block, thread, index, orders_differ)
        FAULTY.append(FaultyKernel(*entry))

    return enter


def zeros(*shape: int) -> Array:
    """Return float32 zeros."""
    return np.zeros(shape, np.float32)


def numbers(*shape: int) -> Array:
    """Return the float32 numbers 1, 2, 3 …"""
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


# Out of bounds


@cuda.jit
def one_past_the_end(out, x):
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        out[i] = x[i + 1]  # fault


@fault(OUT_OF_BOUNDS, one_past_the_end, ALL, block=(0, 0, 0), thread=(9, 0, 0), index=(10,))
def _() -> Case:
    return Case(1, 32, (zeros(10), numbers(10)))


@cuda.jit
def no_guard_in_the_last_block(out, x):
    i = cuda.grid(1)
    out[i] = float32(2) * x[i]  # fault


@fault(OUT_OF_BOUNDS, no_guard_in_the_last_block, ALL, block=(2, 0, 0), thread=(31, 0, 0), index=(95,))
def _() -> Case:
    return Case(3, 32, (zeros(95), numbers(95)))


@cuda.jit
def transposed_guard(out, x):
    column, row = cuda.grid(2)
    if row < x.shape[1] and column < x.shape[0]:
        out[row, column] = x[row, column]  # fault


@fault(OUT_OF_BOUNDS, transposed_guard, ALL)
def _() -> Case:
    return Case(1, (9, 9), (zeros(5, 9), numbers(5, 9)))


@cuda.jit
def next_row(out, x):
    """Read one past a row's end: another row's memory, so only the shape tells."""
    j, i = cuda.grid(2)
    if i < x.shape[0] - 1:
        out[i, j] = x[i, j + 1]  # fault


@fault(OUT_OF_BOUNDS, next_row, SOURCE, block=(0, 0, 0), thread=(7, 0, 0), index=(0, 8))
def _() -> Case:
    return Case(1, (8, 1), (zeros(2, 8), numbers(2, 8)))


@cuda.jit
def while_loop_too_long(out, x):
    k = cuda.threadIdx.x
    while k <= x.shape[0]:
        out[0, cuda.threadIdx.x] += x[k]  # fault
        k += cuda.blockDim.x


@fault(OUT_OF_BOUNDS, while_loop_too_long, ALL, block=(0, 0, 0), thread=(0, 0, 0), index=(64,))
def _() -> Case:
    return Case(1, 32, (zeros(1, 32), numbers(64)))


@cuda.jit
def second_round(out):
    i = cuda.threadIdx.x
    for k in range(2):
        out[i + 32 * k] = float32(k)  # fault


@fault(OUT_OF_BOUNDS, second_round, ALL, block=(0, 0, 0), thread=(31, 0, 0), index=(63,))
def _() -> Case:
    return Case(1, 32, (zeros(63),))


@cuda.jit(device=True)
def fetch(x, i):
    return x[i]  # fault


@cuda.jit(device=True)
def fetch_pair(x, i):
    return fetch(x, i) + fetch(x, i + 1)


@cuda.jit
def behind_a_device_function(out, x):
    i = cuda.grid(1)
    if i <= x.shape[0]:
        out[i] = fetch(x, i)


@fault(OUT_OF_BOUNDS, behind_a_device_function, ALL, (fetch,), (1, 0, 0), (8, 0, 0), (40,))
def _() -> Case:
    return Case(2, 32, (zeros(64), numbers(40)))


@cuda.jit
def behind_two_device_functions(out, x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        out[i] = fetch_pair(x, i)


@fault(OUT_OF_BOUNDS, behind_two_device_functions, ALL, (fetch,), (1, 0, 0), (7, 0, 0), (40,))
def _() -> Case:
    return Case(2, 32, (zeros(64), numbers(40)))


@cuda.jit
def through_a_row(out, x):
    row = x[cuda.blockIdx.x]
    j = cuda.threadIdx.x
    if j <= row.shape[0]:
        out[cuda.blockIdx.x, j] = row[j]  # fault


@fault(OUT_OF_BOUNDS, through_a_row, SOURCE, thread=(20, 0, 0), index=(20,))
def _() -> Case:
    return Case(3, 32, (zeros(3, 32), numbers(3, 20)))


@cuda.jit
def through_a_slice(out, x):
    i = cuda.grid(1)
    tail = x[4:]
    if i < x.shape[0]:
        out[i] = tail[i]  # fault


@fault(OUT_OF_BOUNDS, through_a_slice, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


@cuda.jit
def beyond_a_slice_inside_its_array(out, x):
    head = x[: out.shape[0] - 1]
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = head[i]  # fault


@fault(OUT_OF_BOUNDS, beyond_a_slice_inside_its_array, SOURCE, block=(0, 0, 0), thread=(15, 0, 0), index=(15,))
def _() -> Case:
    return Case(1, 32, (zeros(16), numbers(32)))


@cuda.jit
def shared_neighbour(out, x):
    line = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    line[t] = x[t]
    cuda.syncthreads()
    out[t] = line[t] + line[t + 1]  # fault


@fault(OUT_OF_BOUNDS, shared_neighbour, ALL, block=(0, 0, 0), thread=(63, 0, 0), index=(64,))
def _() -> Case:
    return Case(1, 64, (zeros(64), numbers(64)))


@cuda.jit
def local_overrun(out, x):
    mine = cuda.local.array(4, float32)
    i = cuda.grid(1)
    for k in range(x[i]):
        mine[k] = float32(k)  # fault
    out[i] = mine[0]


@fault(OUT_OF_BOUNDS, local_overrun, SOURCE, block=(1, 0, 0), thread=(2, 0, 0), index=(4,))
def _() -> Case:
    x = np.full(64, 4, np.int32)
    x[34] = 5
    return Case(2, 32, (zeros(64), x))


@cuda.jit
def dynamic_memory_too_small(out, x):
    memory = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    memory[t] = x[t]  # fault
    cuda.syncthreads()
    out[t] = memory[0]


@fault(OUT_OF_BOUNDS, dynamic_memory_too_small, ALL, block=(0, 0, 0), thread=(31, 0, 0), index=(31,))
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)), shared_bytes=124)


@cuda.jit
def histogram_of_a_bad_value(counts, x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        cuda.atomic.add(counts, x[i], 1)  # fault


@fault(OUT_OF_BOUNDS, histogram_of_a_bad_value, ALL, block=(3, 0, 0), thread=(5, 0, 0), index=(16,))
def _() -> Case:
    x = np.arange(4 * 60, dtype=np.int32).reshape(4, 60) % 16
    x[3, 5] = 16
    return Case(4, 60, (np.zeros(16, np.int32), x.ravel()))


@cuda.jit
def one_thread_of_a_cube(out):
    x, y, z = cuda.grid(3)
    if x < 5 and y < 4 and z < 3:
        out[z, y, x + (x + y + z) // 9] = x  # fault


@fault(OUT_OF_BOUNDS, one_thread_of_a_cube, ALL, block=(1, 1, 1), thread=(0, 1, 0), index=(2, 3, 5))
def _() -> Case:
    return Case((2, 2, 2), (4, 2, 2), (np.zeros((3, 4, 5), np.int32),))


# Negative indices: Numba wraps them round to the array's end, so nothing crashes


@cuda.jit
def left_neighbour(out, x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        out[i] = x[i] - x[i - 1]  # fault


@fault(NEGATIVE_INDEX, left_neighbour, block=(0, 0, 0), thread=(0, 0, 0), index=(-1,))
def _() -> Case:
    return Case(2, 32, (zeros(50), numbers(50)))


@cuda.jit
def halo_guard_on_one_side(out, x):
    line = cuda.shared.array(36, float32)
    t, n = cuda.threadIdx.x, x.shape[0]
    first = cuda.blockIdx.x * cuda.blockDim.x - 2
    for k in range(t, 36, cuda.blockDim.x):
        line[k] = x[first + k] if first + k < n else float32(0)  # fault
    cuda.syncthreads()
    if cuda.grid(1) < n:
        out[cuda.grid(1)] = line[t] + line[t + 4]


@fault(NEGATIVE_INDEX, halo_guard_on_one_side, block=(0, 0, 0))
def _() -> Case:
    return Case(2, 32, (zeros(50), numbers(50)))


@cuda.jit
def shared_left_neighbour(out, x):
    line = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    line[t] = x[t]
    cuda.syncthreads()
    out[t] = line[t - 1]  # fault


@fault(NEGATIVE_INDEX, shared_left_neighbour, block=(0, 0, 0), thread=(0, 0, 0), index=(-1,))
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


@cuda.jit
def last_row(out, x):
    i = cuda.grid(1)
    row = x[i - 1]  # fault
    out[i] = row[0]


@fault(NEGATIVE_INDEX, last_row, block=(0, 0, 0), thread=(0, 0, 0))
def _() -> Case:
    return Case(1, 8, (zeros(8), numbers(8, 3)))


# Reads of what nothing wrote


@cuda.jit
def shared_never_written(out):
    line = cuda.shared.array(32, float32)
    out[cuda.threadIdx.x] = line[cuda.threadIdx.x]  # fault


@fault(UNINITIALISED, shared_never_written, TEXT, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 32, (zeros(32),))


@cuda.jit
def one_shared_element_missing(out, x):
    line = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    if t < 63:
        line[t] = x[t]
    cuda.syncthreads()
    out[t] = line[63 - t]  # fault


@fault(UNINITIALISED, one_shared_element_missing, TEXT, block=(0, 0, 0), thread=(0, 0, 0), index=(63,))
def _() -> Case:
    return Case(1, 64, (zeros(64), numbers(64)))


@cuda.jit
def tail_of_a_tile(out, x):
    tile = cuda.shared.array(32, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if i < x.shape[0]:
        tile[t] = x[i]
    cuda.syncthreads()
    if t == 0:
        total = float32(0)
        for k in range(32):
            total += tile[k]  # fault
        out[cuda.blockIdx.x] = total


@fault(UNINITIALISED, tail_of_a_tile, TEXT, block=(1, 0, 0), thread=(0, 0, 0), index=(18,))
def _() -> Case:
    return Case(2, 32, (zeros(2), numbers(50)))


@cuda.jit
def partial_sums_of_absent_warps(out, x):
    partial = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    if t % 32 == 0:
        partial[t // 32] = x[t]
    cuda.syncthreads()
    if t < 32:
        out[t] = partial[t]  # fault


@fault(UNINITIALISED, partial_sums_of_absent_warps, TEXT, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 64, (zeros(32), numbers(64)))


@cuda.jit
def local_sum_from_nothing(out, x):
    total = cuda.local.array(2, float32)
    i = cuda.grid(1)
    total[0] = float32(0)
    for k in range(4):
        total[k % 2] += x[i, k]  # fault
    out[i] = total[0] + total[1]


@fault(UNINITIALISED, local_sum_from_nothing, index=(1,))
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32, 4)))


@cuda.jit
def histogram_from_nothing(counts, x):
    local = cuda.shared.array(16, int32)
    cuda.atomic.add(local, x[cuda.threadIdx.x], 1)  # fault
    cuda.syncthreads()
    if cuda.threadIdx.x < 16:
        cuda.atomic.add(counts, cuda.threadIdx.x, local[cuda.threadIdx.x])


@fault(UNINITIALISED, histogram_from_nothing, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 32, (np.zeros(16, np.int32), np.arange(32, dtype=np.int32) % 16))


@cuda.jit
def dynamic_memory_never_written(out):
    second = cuda.shared.array(0, float32)[32:]
    out[cuda.threadIdx.x] = second[cuda.threadIdx.x]  # fault


@fault(UNINITIALISED, dynamic_memory_never_written, TEXT, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 32, (zeros(32),), shared_bytes=256)


# Races inside a block


@cuda.jit
def missing_barrier(out, x):
    """Read after write, between warps."""
    line = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    line[t] = float32(0)
    cuda.syncthreads()
    line[t] = x[t]  # fault
    out[t] = line[63 - t]  # fault


@fault(RACE, missing_barrier, block=(0, 0, 0), orders_differ=True)
def _() -> Case:
    return Case(1, 64, (zeros(64), numbers(64)))


@cuda.jit
def missing_second_barrier(c, a, b):
    """Write after read: the next tile is loaded while others still read this one."""
    left = cuda.shared.array((8, 8), float32)
    right = cuda.shared.array((8, 8), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k0 in range(0, a.shape[1], 8):
        left[ty, tx] = a[ty, k0 + tx]  # fault
        right[ty, tx] = b[k0 + ty, tx]  # fault
        cuda.syncthreads()
        for k in range(8):
            total += left[ty, k] * right[k, tx]  # fault
    c[ty, tx] = total


@fault(RACE, missing_second_barrier, block=(0, 0, 0), orders_differ=True)
def _() -> Case:
    return Case(1, (8, 8), (zeros(8, 8), numbers(8, 16), numbers(16, 8)))


@cuda.jit
def two_writers_on_one_line(out, x):
    line = cuda.shared.array(16, float32)
    t = cuda.threadIdx.x
    line[t // 2] = x[t]  # fault
    cuda.syncthreads()
    if t < 16:
        out[t] = line[t]


@fault(RACE, two_writers_on_one_line, block=(0, 0, 0), orders_differ=True)
def _() -> Case:
    return Case(1, 32, (zeros(16), numbers(32)))


@cuda.jit
def clash_of_two_writers(out):
    """Write one element in two warps, on two lines."""
    cell = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 3:
        cell[0] = 1  # fault
    if t == 35:
        cell[0] = 2  # fault
    cuda.syncthreads()
    if t == 0:
        out[0] = cell[0]


@fault(RACE, clash_of_two_writers, block=(0, 0, 0), index=(0,), orders_differ=True)
def _() -> Case:
    return Case(1, 64, (np.zeros(1, np.int32),))


@cuda.jit
def lanes_without_syncwarp(out, x):
    line = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    line[t] = float32(0)
    cuda.syncwarp()
    line[t] = x[t]  # fault
    out[t] = line[t ^ 1]  # fault


@fault(RACE, lanes_without_syncwarp, block=(0, 0, 0), orders_differ=True)
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


@cuda.jit
def shuffle_is_no_fence(out, x):
    """Exchange around a shuffle: it moves registers and orders no memory."""
    line = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    line[t] = x[t]  # fault
    other = cuda.shfl_xor_sync(FULL, x[t], 1)
    out[t] = line[t ^ 1] - other  # fault


@fault(RACE, shuffle_is_no_fence, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


@cuda.jit
def syncwarp_is_no_barrier(out, x):
    line = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    line[t] = float32(0)
    cuda.syncthreads()
    line[t] = x[t]  # fault
    cuda.syncwarp()
    out[t] = line[t ^ 1] + line[t ^ 32]  # fault


@fault(RACE, syncwarp_is_no_barrier, block=(0, 0, 0), orders_differ=True)
def _() -> Case:
    return Case(1, 64, (zeros(64), numbers(64)))


@cuda.jit
def race_in_the_second_round(out, x):
    line = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    for k in range(2):
        line[t] = x[t] * float32(k + 1)  # fault
        cuda.syncthreads()
        out[k, t] = line[31 - t]  # fault


@fault(RACE, race_in_the_second_round, block=(0, 0, 0), orders_differ=True)
def _() -> Case:
    return Case(1, 32, (zeros(2, 32), numbers(32)))


@cuda.jit
def race_in_one_warp(out, x):
    """Let only the second of three warps touch what is not its own."""
    line = cuda.shared.array(96, float32)
    t = cuda.threadIdx.x
    line[t] = x[t]
    cuda.syncthreads()
    if t // 32 == 1:
        line[t - 32] = -x[t]  # fault
    out[t] = line[t]  # fault


@fault(RACE, race_in_one_warp, block=(0, 0, 0), orders_differ=True)
def _() -> Case:
    return Case(1, 96, (zeros(96), numbers(96)))


@cuda.jit
def race_of_one_thread(out, x):
    line = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    line[t] = x[t]
    cuda.syncthreads()
    if t == 17:
        line[50] += float32(1)  # fault
    out[t] = line[t]  # fault


@fault(RACE, race_of_one_thread, block=(0, 0, 0), index=(50,), orders_differ=True)
def _() -> Case:
    return Case(1, 64, (zeros(64), numbers(64)))


@cuda.jit
def race_in_the_last_block(out, x):
    line = cuda.shared.array(32, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    line[t] = float32(0)
    cuda.syncthreads()
    line[t] = x[i]  # fault
    if cuda.blockIdx.x < cuda.gridDim.x - 1:
        cuda.syncthreads()
    out[i] = line[31 - t]  # fault


@fault(RACE, race_in_the_last_block, block=(2, 0, 0), orders_differ=True)
def _() -> Case:
    return Case(3, 32, (zeros(96), numbers(96)))


@cuda.jit
def plain_read_beside_atomic(out, x):
    total = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        total[0] = 0
    cuda.syncthreads()
    cuda.atomic.add(total, 0, x[t])  # fault
    if t == 0:
        out[0] = total[0]  # fault


@fault(RACE, plain_read_beside_atomic, block=(0, 0, 0), index=(0,), orders_differ=True)
def _() -> Case:
    return Case(1, 64, (np.zeros(1, np.int32), np.arange(64, dtype=np.int32)))


@cuda.jit
def lost_updates(count):
    count[0] += 1  # fault


@fault(RACE, lost_updates, block=(0, 0, 0), index=(0,))
def _() -> Case:
    return Case(1, 64, (np.zeros(1, np.int32),))


@cuda.jit
def overlapping_halves(out, x):
    """Split dynamic memory in two arrays that share an element."""
    memory = cuda.shared.array(0, float32)
    n, t = cuda.blockDim.x, cuda.threadIdx.x
    first, second = memory[: n + 1], memory[n:]
    second[t] = x[t]  # fault
    if t == 40:
        first[n] = float32(-1)  # fault
    cuda.syncthreads()
    out[t] = second[t]


@fault(RACE, overlapping_halves, block=(0, 0, 0), orders_differ=True)
def _() -> Case:
    return Case(1, 64, (zeros(64), numbers(64)), shared_bytes=512)


@cuda.jit
def two_types_in_one_place(out, x):
    """Take dynamic memory twice and forget that both begin at its start."""
    reals = cuda.shared.array(0, float32)
    codes = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    reals[t] = x[t]  # fault
    codes[31 - t] = int32(7)  # fault
    cuda.syncthreads()
    out[t] = reals[t]


@fault(RACE, two_types_in_one_place, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)), shared_bytes=128)


@cuda.jit(device=True)
def put(line, i, value):
    line[i] = value  # fault


@cuda.jit(device=True)
def mirrored(line, i):
    return line[31 - i]  # fault


@cuda.jit
def race_behind_device_functions(out, x):
    line = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    line[t] = float32(0)
    cuda.syncthreads()
    put(line, t, x[t])
    out[t] = mirrored(line, t)


@fault(RACE, race_behind_device_functions, functions=(put, mirrored), block=(0, 0, 0), orders_differ=True)
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


@cuda.jit
def shift_in_place(x):
    """Shift to the left: right when the threads run forward, wrong when they do not."""
    t = cuda.threadIdx.x
    if t < x.shape[0] - 1:
        x[t] = x[t + 1]  # fault


@fault(RACE, shift_in_place, block=(0, 0, 0), orders_differ=True)
def _() -> Case:
    return Case(1, 64, (numbers(64),))


@cuda.jit
def lock_opened_too_early(total, lock):
    if cuda.threadIdx.x % 32 == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        total[0] += 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)
        total[1] += 1  # fault


@fault(RACE, lock_opened_too_early, block=(0, 0, 0), index=(1,))
def _() -> Case:
    return Case(1, 64, (np.zeros(2, np.int32), np.zeros(1, np.int32)))


# Races between blocks


@cuda.jit
def stencil_in_place(x):
    i = cuda.grid(1)
    if 0 < i < x.shape[0] - 1:
        x[i] = x[i - 1] + x[i + 1]  # fault


@fault(RACE_BETWEEN_BLOCKS, stencil_in_place, orders_differ=True)
def _() -> Case:
    return Case(8, 1, (numbers(8),))


@cuda.jit
def last_block_wins(out, x):
    if cuda.threadIdx.x == 0:
        out[0] = x[cuda.blockIdx.x]  # fault


@fault(RACE_BETWEEN_BLOCKS, last_block_wins, index=(0,), orders_differ=True)
def _() -> Case:
    return Case(3, 32, (zeros(1), numbers(3)))


@cuda.jit
def edge_of_the_next_block(out, x):
    """Read, in one thread only, what another block writes."""
    i, t = cuda.grid(1), cuda.threadIdx.x
    x[i] = x[i] * float32(2)  # fault
    cuda.syncthreads()
    out[i] = x[i]
    if t == 31 and cuda.blockIdx.x == 1:
        out[i] += x[i + 1]  # fault


@fault(RACE_BETWEEN_BLOCKS, edge_of_the_next_block, index=(64,), orders_differ=True)
def _() -> Case:
    return Case(3, 32, (zeros(96), numbers(96)))


@cuda.jit
def no_fence_before_the_counter(out, partial, counter, x):
    """Hand a partial sum to the last block without a fence: the counter may be seen first."""
    if cuda.threadIdx.x == 0:
        partial[cuda.blockIdx.x] = x[cuda.blockIdx.x]  # fault
        if cuda.atomic.add(counter, 0, 1) == cuda.gridDim.x - 1:
            total = float32(0)
            for b in range(cuda.gridDim.x):
                total += partial[b]  # fault
            out[0] = total


@fault(RACE_BETWEEN_BLOCKS, no_fence_before_the_counter)
def _() -> Case:
    return Case(3, 32, (zeros(1), zeros(3), np.zeros(1, np.int32), numbers(3)))


# Barriers


@cuda.jit
def barrier_in_a_branch(out):
    t = cuda.threadIdx.x
    if t < 16:
        cuda.syncthreads()  # fault
    out[t] = float32(t)


@fault(BARRIER_DIVERGENCE, barrier_in_a_branch, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 32, (zeros(32),))


@cuda.jit
def barrier_in_one_warp(out):
    t = cuda.threadIdx.x
    if t // 32 == 1:
        cuda.syncthreads()  # fault
    out[t] = float32(t)


@fault(BARRIER_DIVERGENCE, barrier_in_one_warp, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 96, (zeros(96),))


@cuda.jit
def barrier_after_return(out, x):
    i = cuda.grid(1)
    if i >= x.shape[0]:
        return  # fault
    out[i] = x[i]
    cuda.syncthreads()  # fault
    out[i] += x[0]


@fault(BARRIER_DIVERGENCE, barrier_after_return, ALL, block=(2, 0, 0))
def _() -> Case:
    return Case(3, 32, (zeros(70), numbers(70)))


@cuda.jit
def two_different_barriers(out):
    t = cuda.threadIdx.x
    if t < 32:
        cuda.syncthreads()  # fault
    else:
        cuda.syncthreads()  # fault
    out[t] = float32(t)


@fault(BARRIER_DIVERGENCE, two_different_barriers, SOURCE, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 64, (zeros(64),))


@cuda.jit
def barriers_of_two_kinds(out, x):
    t = cuda.threadIdx.x
    if x[t] > 32:
        out[t] = cuda.syncthreads_count(1)  # fault
    else:
        cuda.syncthreads()  # fault


@fault(BARRIER_DIVERGENCE, barriers_of_two_kinds, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 64, (zeros(64), numbers(64)))


@cuda.jit
def barrier_once_too_often(out):
    t = cuda.threadIdx.x
    for _ in range(3 + (t == 5)):
        cuda.syncthreads()  # fault
    out[t] = float32(t)


@fault(BARRIER_DIVERGENCE, barrier_once_too_often, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 64, (zeros(64),))


@cuda.jit
def barrier_while_data_last(x):
    t = cuda.threadIdx.x
    while x[t] > 1:
        x[t] = x[t] // 2
        cuda.syncthreads()  # fault


@fault(BARRIER_DIVERGENCE, barrier_while_data_last, ALL, block=(0, 0, 0))
def _() -> Case:
    x = np.full(64, 8, np.int32)
    x[50] = 16
    return Case(1, 64, (x,))


@cuda.jit
def barrier_behind_and(out, x):
    t = cuda.threadIdx.x
    if x[t] > 1 and cuda.syncthreads_or(1):  # fault
        out[t] = x[t]


@fault(BARRIER_DIVERGENCE, barrier_behind_and, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 64, (zeros(64), numbers(64)))


@cuda.jit(device=True)
def settle(line, t):
    cuda.syncthreads()  # fault
    return line[t]


@cuda.jit
def barrier_behind_a_device_function(out, x):
    line = cuda.shared.array(64, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    line[t] = float32(1)
    if i < x.shape[0]:
        out[i] = settle(line, t)


@fault(BARRIER_DIVERGENCE, barrier_behind_a_device_function, ALL, (settle,), (1, 0, 0))
def _() -> Case:
    return Case(2, 64, (zeros(100), numbers(100)))


# Warps


@cuda.jit
def shuffle_in_a_branch(out, x):
    t = cuda.threadIdx.x
    if cuda.laneid < 16:
        out[t] = cuda.shfl_xor_sync(FULL, x[t], 1)  # fault
    cuda.syncthreads()  # the other lanes wait here


@fault(MISSING_LANES, shuffle_in_a_branch, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


@cuda.jit
def ballot_in_a_branch(out, x):
    t = cuda.threadIdx.x
    if x[t] > 40:
        out[t] = cuda.ballot_sync(FULL, x[t] > 50)  # fault
    cuda.syncthreads()


@fault(MISSING_LANES, ballot_in_a_branch, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 64, (np.zeros(64, np.uint32), numbers(64)))


@cuda.jit
def syncwarp_in_a_branch(out, x):
    t = cuda.threadIdx.x
    if cuda.laneid != 7:
        cuda.syncwarp()  # fault
    out[t] = x[t]
    cuda.syncthreads()


@fault(MISSING_LANES, syncwarp_in_a_branch, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


@cuda.jit
def shuffle_after_return(out, x):
    """Read from lanes that have left the kernel, in the last block only."""
    i = cuda.grid(1)
    if i >= x.shape[0]:
        return
    out[i] = x[i] + cuda.shfl_down_sync(FULL, x[i], 1)  # fault


@fault(MISSING_LANES, shuffle_after_return, ALL, block=(1, 0, 0))
def _() -> Case:
    return Case(2, 32, (zeros(50), numbers(50)))


@cuda.jit
def shuffle_from_outside_the_mask(out, x):
    t = cuda.threadIdx.x
    if cuda.laneid < 16:
        out[t] = cuda.shfl_down_sync(0xFFFF, x[t], 8)  # fault


@fault(MISSING_LANES, shuffle_from_outside_the_mask, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


@cuda.jit
def lane_not_in_its_mask(out, x):
    t = cuda.threadIdx.x
    out[t] = cuda.shfl_xor_sync(0xFFFF, x[t], 1)  # fault


@fault(MISSING_LANES, lane_not_in_its_mask, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


@cuda.jit
def masks_that_disagree(out, x):
    t = cuda.threadIdx.x
    mask = 0xFFFFFFFF if t % 2 == 0 else 0xFFFFFFFE
    out[t] = cuda.shfl_xor_sync(mask, x[t], 2)  # fault


@fault(MISSING_LANES, masks_that_disagree, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


@cuda.jit
def whole_mask_in_half_a_warp(out, x):
    """Launch 40 threads: the second warp reads from lanes that do not exist."""
    t = cuda.threadIdx.x
    out[t] = cuda.shfl_xor_sync(FULL, x[t], 16)  # fault


@fault(MISSING_LANES, whole_mask_in_half_a_warp, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 40, (zeros(40), numbers(40)))


@cuda.jit
def vote_once_too_often(out, x):
    t = cuda.threadIdx.x
    for k in range(1 + (cuda.laneid < 31)):
        out[k, t] = cuda.all_sync(FULL, x[t] > 3)  # fault
    cuda.syncwarp()


@fault(MISSING_LANES, vote_once_too_often, ALL, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 32, (np.zeros((2, 32), np.bool_), numbers(32)))


@cuda.jit(device=True)
def neighbour(value):
    return cuda.shfl_sync(FULL, value, cuda.laneid + 1)  # fault


@cuda.jit
def shuffle_behind_a_device_function(out, x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        out[i] = neighbour(x[i])


@fault(MISSING_LANES, shuffle_behind_a_device_function, ALL, (neighbour,), (1, 0, 0))
def _() -> Case:
    return Case(2, 32, (zeros(50), numbers(50)))


# Alignment


@cuda.jit
def odd_view_of_bytes(out, x):
    """View bytes as float32 from an address that is no multiple of four."""
    reals = cuda.shared.array(0, uint8)[2:].view(np.float32)  # fault
    t = cuda.threadIdx.x
    reals[t] = x[t]  # fault
    cuda.syncthreads()
    out[t] = reals[t]


@fault(MISALIGNED, odd_view_of_bytes, TEXT, block=(0, 0, 0))
def _() -> Case:
    return Case(1, 16, (zeros(16), numbers(16)), shared_bytes=66)


@cuda.jit
def wide_view_of_an_odd_half(out, x):
    wide = x[cuda.blockIdx.x :][:2].view(np.int64)  # fault
    out[cuda.blockIdx.x] = wide[0]  # fault


@fault(MISALIGNED, wide_view_of_an_odd_half, TEXT, block=(1, 0, 0), thread=(0, 0, 0))
def _() -> Case:
    return Case(2, 1, (np.zeros(2, np.int64), np.arange(4, dtype=np.int32)))


@cuda.jit
def vector_load_off_its_boundary(out, x):
    """Load 16 bytes at once from every fourth element: from one too far, in one thread."""
    i = cuda.grid(1)
    if i < out.shape[0]:
        a, b, c, d = load_float4(x, 4 * i + i // 7)  # fault
        out[i] = a + b + c + d


@fault(MISALIGNED, vector_load_off_its_boundary, TEXT, block=(1, 0, 0), thread=(3, 0, 0), index=(29,))
def _() -> Case:
    return Case(2, 4, (zeros(8), numbers(40)))


# float64 that nobody asked for


@cuda.jit
def bare_literal(out, x):
    i = cuda.grid(1)
    out[i] = 0.1 * x[i]  # fault


@fault(FLOAT64, bare_literal)
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


@cuda.jit
def bare_infinity(out, x):
    highest = -math.inf  # fault
    for j in range(x.shape[0]):
        highest = max(highest, x[j])  # fault
    out[cuda.grid(1)] = highest


@fault(FLOAT64, bare_infinity)
def _() -> Case:
    return Case(1, 4, (zeros(4), numbers(8)))


@cuda.jit
def quotient_of_integers(out, x):
    i = cuda.grid(1)
    out[i] = x[i] * (1 / x.shape[0])  # fault


@fault(FLOAT64, quotient_of_integers)
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


@cuda.jit
def integer_times_real(out, x):
    i = cuda.grid(1)
    out[i] = i * x[i]  # fault


@fault(FLOAT64, integer_times_real)
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


@cuda.jit
def root_of_an_integer(out, n):
    out[cuda.grid(1)] = math.sqrt(n)  # fault


@fault(FLOAT64, root_of_an_integer)
def _() -> Case:
    return Case(1, 32, (zeros(32), np.int32(2)))


@cuda.jit
def float64_argument(out, x, scale):
    i = cuda.grid(1)
    out[i] = x[i] * scale  # fault


@fault(FLOAT64, float64_argument)
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32), np.float64(0.5)))


@cuda.jit(device=True)
def smoothed(value):
    return math.sqrt(value + 1e-5)  # fault


@cuda.jit
def float64_behind_a_device_function(out, x):
    i = cuda.grid(1)
    if i == 31:
        out[i] = smoothed(x[i])


@fault(FLOAT64, float64_behind_a_device_function, functions=(smoothed,), block=(0, 0, 0), thread=(31, 0, 0))
def _() -> Case:
    return Case(1, 32, (zeros(32), numbers(32)))


# No end, no result


@cuda.jit
def barrier_between_blocks(out, arrived):
    """Wait until every block has come: on a GPU too this ends only if all are resident at once."""
    cuda.atomic.add(arrived, 0, 1)
    while cuda.atomic.cas(arrived, 0, -1, -1) < cuda.gridDim.x:  # fault
        pass  # fault
    out[cuda.blockIdx.x] = 1


@fault(DEADLOCK, barrier_between_blocks, SOURCE, thread=(0, 0, 0))
def _() -> Case:
    return Case(2, 1, (np.zeros(2, np.int32), np.zeros(1, np.int32)))


@cuda.jit
def raises(out, x):
    i = cuda.grid(1)
    if x[i] > 40:
        raise ValueError("too large")  # fault
    out[i] = x[i]


@fault(RAISED, raises, SOURCE, block=(0, 0, 0), thread=(40, 0, 0))
def _() -> Case:
    return Case(1, 41, (zeros(41), numbers(41)))
