"""Correct kernels: every executor must give what NumPy gives, in every order of the threads, and the checker be silent.

A kernel is followed by the function that draws its arguments and computes what must come out. Threads and sizes are
drawn as well, so the kernels take any block size named in their entry, and sizes that fill no whole block.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import boolean, complex64, cuda, float32, int32, int64, uint8, uint32, uint64
from numba.types import float16

try:
    from numba.cuda import libdevice

    from .intrinsics import load_float4, warp_total
except ImportError:  # the stock simulator has neither
    libdevice = load_float4 = warp_total = None

from .cases import ANY, POWERS, WARPS, Array, Case, CorrectKernel

FULL = 0xFFFFFFFF  # every lane of a warp
MOST = 128  # the most threads that a block of this file has
MOST_AND_HALO = MOST + 4  # Numba takes a name or a number for a shape, no sum
WARP_OPERATIONS = "no warp operations in the stock simulator"

CORRECT: list[CorrectKernel] = []
Make = Callable[[np.random.Generator, int, int], Case]


def case(
    kernel: Any,
    sizes: tuple[int, int],
    threads: tuple[int, ...] = (64,),
    tolerance: float = 0.0,
    beyond_stock: str = "",
    name: str | None = None,
) -> Callable[[Make], Make]:
    """Enter ``kernel`` in the catalogue, with the function below as what draws its arguments."""

    def enter(make: Make) -> Make:
        called = name or kernel.__name__
        CORRECT.append(CorrectKernel(called, kernel, make, sizes, threads, tolerance, beyond_stock))
        return make

    return enter


def blocks(size: int, threads: int) -> int:
    """Return how many blocks of ``threads`` cover ``size``."""
    return -(-size // threads)


def normal(generator: np.random.Generator, *shape: int) -> Array:
    """Return float32 numbers around 0."""
    return generator.standard_normal(shape).astype(np.float32)


def whole(generator: np.random.Generator, *shape: int) -> Array:
    """Return small whole numbers as float32: their sums are exact in any order."""
    return generator.integers(-50, 50, shape).astype(np.float32)


# Grids


@cuda.jit
def vector_add(out, x, y):
    for i in range(cuda.grid(1), out.shape[0], cuda.gridsize(1)):
        out[i] = x[i] + y[i]


@case(vector_add, (1, 300), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x, y = normal(generator, size), normal(generator, size)
    return Case(2, threads, (np.zeros_like(x), x, y), {0: x + y})


@cuda.jit
def add_2d(out, x):
    i, j = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = x[i, j] + float32(100 * i + j)


@case(add_2d, (1, 40), (1, 3, 8, 16, 5))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = normal(generator, size, 13)
    row, column = np.indices(x.shape)
    expected = x + (100 * row + column).astype(np.float32)
    return Case((blocks(size, threads), 4), (threads, 4), (np.zeros_like(x), x), {0: expected})


@cuda.jit
def number_3d(out, where):
    x, y, z = cuda.grid(3)
    width, height, _ = cuda.gridsize(3)
    if z < out.shape[0] and y < out.shape[1] and x < out.shape[2]:
        out[z, y, x] = x + width * (y + height * z)
        where[z, y, x, 0] = cuda.blockIdx.x + 10 * cuda.blockIdx.y + 100 * cuda.blockIdx.z
        where[z, y, x, 1] = cuda.threadIdx.x + 10 * cuda.threadIdx.y + 100 * cuda.threadIdx.z
        where[z, y, x, 2] = cuda.blockDim.x + 10 * cuda.blockDim.y + 100 * cuda.blockDim.z
        where[z, y, x, 3] = cuda.gridDim.x + 10 * cuda.gridDim.y + 100 * cuda.gridDim.z


@case(number_3d, (1, 9), (1, 2, 3, 4))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    shape = (5, 4, size)  # z, y, x
    block, grid = (threads, 3, 2), (blocks(size, threads), 2, 3)
    z, y, x = np.indices(shape)
    code = (1, 10, 100)
    at = [z * 0 + sum(c * v for c, v in zip(code, part, strict=True)) for part in (
        (x // threads, y // 3, z // 2), (x % threads, y % 3, z % 2), block, grid)]  # fmt: skip
    numbers = x + grid[0] * threads * (y + 6 * z)
    expected = {0: numbers.astype(np.int64), 1: np.stack(at, axis=-1).astype(np.int32)}
    return Case(grid, block, (np.zeros(shape, np.int64), np.zeros((*shape, 4), np.int32)), expected)


@cuda.jit
def early_return(out, x):
    i = cuda.grid(1)
    if i >= out.shape[0]:
        return
    out[i] = float32(2) * x[i]


@case(early_return, (1, 150), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = normal(generator, size)
    return Case(blocks(size, threads), threads, (np.zeros_like(x), x), {0: 2 * x})


# Arguments


@cuda.jit
def scalar_arguments(signed, unsigned, real, i8, i16, i32, i64, u8, u16, u32, u64, f32, yes, z):
    if cuda.grid(1) == 0:
        signed[0] = i8
        signed[1] = i16
        signed[2] = i32
        signed[3] = i64
        unsigned[0] = u8
        unsigned[1] = u16
        unsigned[2] = u32
        unsigned[3] = u64
        real[0] = f32
        if yes:
            real[1] = z.imag - z.real


@case(scalar_arguments, (1, 1), (1, 32))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    signed = [np.iinfo(t).min for t in (np.int8, np.int16, np.int32, np.int64)]
    unsigned = [np.iinfo(t).max for t in (np.uint8, np.uint16, np.uint32, np.uint64)]
    scalars = [t(v) for t, v in zip((np.int8, np.int16, np.int32, np.int64), signed, strict=True)]
    scalars += [t(v) for t, v in zip((np.uint8, np.uint16, np.uint32, np.uint64), unsigned, strict=True)]
    scalars += [np.float32(0.1), np.bool_(True), np.complex64(1.5 - 2j)]
    out = (np.zeros(4, np.int64), np.zeros(4, np.uint64), np.zeros(2, np.float32))
    expected = {0: np.array(signed), 1: np.array(unsigned, np.uint64), 2: np.array([0.1, -3.5], np.float32)}
    return Case(2, threads, (*out, *scalars), expected)


@cuda.jit
def tuple_argument(out, arrays, shape, nested):
    i = cuda.grid(1)
    if i < shape[0] * shape[1]:
        out[i // shape[1], i % shape[1]] = nested[0] * arrays[0][i] + nested[1][1] * arrays[1][i]


@case(tuple_argument, (1, 60), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x, y = whole(generator, 2 * size), whole(generator, 2 * size)
    out = np.zeros((size, 2), np.float32)
    nested = (np.float32(2), (np.int32(7), np.float32(-3)))
    args = (out, (x, y), (size, 2), nested)
    return Case(blocks(2 * size, threads), threads, args, {0: (2 * x - 3 * y).reshape(size, 2)})


@cuda.jit
def strided_arguments(out, backwards, columns, every_third, plane):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = backwards[i] + columns[i % columns.shape[0], i // columns.shape[0]] + every_third[i] + plane[1, i, 0]


@case(strided_arguments, (1, 70), ANY, beyond_stock="a launch of the stock simulator takes contiguous arrays only")
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    even = size + size % 2
    backwards = whole(generator, size)[::-1]
    columns = np.asfortranarray(whole(generator, 2, even // 2))
    third = whole(generator, 3 * size)[1::3]
    plane = whole(generator, 3, 2, size).transpose(0, 2, 1)
    out = np.zeros(2 * size, np.float32)[::2]
    expected = backwards + columns.ravel(order="F")[:size] + third + plane[1, :, 0]
    return Case(blocks(size, threads), threads, (out, backwards, columns, third, plane), {0: expected})


@cuda.jit
def rows_and_slices(out, x):
    row = x[cuda.blockIdx.x]
    tail = row[2:]
    mine = out[cuda.blockIdx.x, 1:-1]
    for j in range(cuda.threadIdx.x, tail.shape[0], cuda.blockDim.x):
        mine[j] = tail[j] - row[j]


@case(rows_and_slices, (3, 70), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, 3, size)
    expected = np.zeros_like(x)
    expected[:, 1:-1] = x[:, 2:] - x[:, :-2]
    return Case(3, threads, (np.zeros_like(x), x), {0: expected})


POINT = np.dtype([("position", np.float32, (3,)), ("charge", np.int32), ("fixed", np.uint8)], align=True)


@cuda.jit
def record_array(points, scale):
    i = cuda.grid(1)
    if i < points.shape[0] and points[i].fixed == 0:
        for axis in range(3):
            points[i].position[axis] *= scale
        points[i].charge += 1


@case(record_array, (1, 60), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    points = np.zeros(size, POINT)
    points["position"] = normal(generator, size, 3)
    points["charge"] = generator.integers(-9, 9, size)
    points["fixed"] = generator.integers(0, 2, size)
    moved = points.copy()
    free = points["fixed"] == 0
    moved["position"][free] *= np.float32(1.5)
    moved["charge"][free] += 1
    return Case(blocks(size, threads), threads, (points, np.float32(1.5)), {0: moved})


TABLE = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.int32)
MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


@cuda.jit
def constant_arrays(out, x):
    table = cuda.const.array_like(TABLE)
    matrix = cuda.const.array_like(MATRIX)
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = float32(table[x[i] % table.shape[0]]) + matrix[i % 2, i % 3]


@case(constant_arrays, (1, 100), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x, i = generator.integers(0, 100, size).astype(np.int32), np.arange(size)
    expected = TABLE[x % 8] + MATRIX[i % 2, i % 3]
    return Case(blocks(size, threads), threads, (np.zeros(size, np.float32), x), {0: expected})


OFFSET = 5
WEIGHTS = (np.float32(0.5), np.float32(0.25))


def make_filter(scale: float, taps: int) -> Any:
    """Return a kernel with two constants of its own; a closure."""
    factor = np.float32(scale)

    @cuda.jit
    def closure(out, x):
        i = cuda.grid(1)
        if i < out.shape[0]:
            total = float32(OFFSET) + WEIGHTS[0] * x[i]
            for k in range(1, taps):
                total += WEIGHTS[1] * x[i + k]
            out[i] = factor * total

    return closure


@case(make_filter(3.0, 3), (1, 100), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = 4 * whole(generator, size + 2)
    expected = 3 * (5 + x[:-2] / 2 + x[1:-1] / 4 + x[2:] / 4)
    return Case(blocks(size, threads), threads, (np.zeros(size, np.float32), x), {0: expected})


@case(make_filter(-2.0, 1), (1, 100), ANY, name="closure_other_constants")
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = 4 * whole(generator, size)
    return Case(blocks(size, threads), threads, (np.zeros(size, np.float32), x), {0: -2 * (5 + x / 2)})


# Reductions


@cuda.jit(device=True)
def tree_sum(partial, count):
    """Leave the sum of ``partial[:count]`` in its first element; any count, every thread of the block takes part."""
    while count > 1:
        half = (count + 1) // 2
        if cuda.threadIdx.x < count - half:
            partial[cuda.threadIdx.x] += partial[cuda.threadIdx.x + half]
        cuda.syncthreads()
        count = half


@cuda.jit
def tree_reduction(out, x):
    partial = cuda.shared.array(MOST, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    partial[t] = x[i] if i < x.shape[0] else float32(0)
    cuda.syncthreads()
    width = cuda.blockDim.x
    while width > 1:
        half = (width + 1) // 2
        if t < width - half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        width = half
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@case(tree_reduction, (1, 200), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x, n = whole(generator, size), blocks(size, threads)
    expected = np.pad(x, (0, n * threads - size)).reshape(n, threads).sum(1)
    return Case(n, threads, (np.zeros(n, np.float32), x), {0: expected})


@cuda.jit
def warp_sum_down(out, x):
    i = cuda.grid(1)
    value = x[i]
    offset = 16
    while offset > 0:
        value += cuda.shfl_down_sync(FULL, value, offset)
        offset //= 2
    if cuda.laneid == 0:
        out[i // 32] = value


@case(warp_sum_down, (1, 3), WARPS, beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size * threads)
    expected = x.reshape(-1, 32).sum(1)
    return Case(size, threads, (np.zeros_like(expected), x), {0: expected})


@cuda.jit(device=True)
def warp_sum(value):
    """Return the sum over the warp to each of its lanes."""
    offset = 16
    while offset > 0:
        value += cuda.shfl_xor_sync(FULL, value, offset)
        offset //= 2
    return value


@cuda.jit
def warp_sum_xor(out, x):
    i = cuda.grid(1)
    out[i] = warp_sum(x[i])


@case(warp_sum_xor, (1, 3), WARPS, beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size * threads)
    return Case(size, threads, (np.zeros_like(x), x), {0: np.repeat(x.reshape(-1, 32).sum(1), 32)})


@cuda.jit(device=True)
def block_sum(value, partial):
    """Return the sum over the block to each of its threads; ``partial`` has an element for each warp."""
    lane, warp = cuda.threadIdx.x % 32, cuda.threadIdx.x // 32
    value = warp_sum(value)
    if lane == 0:
        partial[warp] = value
    cuda.syncthreads()
    value = partial[lane] if lane < cuda.blockDim.x // 32 else float32(0)
    return warp_sum(value)


@cuda.jit
def row_moments(mean, variance, x):
    partial = cuda.shared.array(32, float32)
    row, count = cuda.blockIdx.x, float32(x.shape[1])
    total = float32(0)
    for j in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        total += x[row, j]
    average = block_sum(total, partial) / count
    cuda.syncthreads()  # the second sum takes the same shared elements
    total = float32(0)
    for j in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        total += (x[row, j] - average) * (x[row, j] - average)
    spread = block_sum(total, partial) / count
    if cuda.threadIdx.x == 0:
        mean[row] = average
        variance[row] = spread


@case(row_moments, (1, 150), WARPS, tolerance=1e-5, beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = normal(generator, 3, size)
    out = (np.zeros(3, np.float32), np.zeros(3, np.float32))
    return Case(3, threads, (*out, x), {0: x.mean(1), 1: x.var(1)})


@cuda.jit
def atomic_sum(out, x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        cuda.atomic.add(out, (0, 0), x[i])
        cuda.atomic.max(out, (1, 0), x[i])


@case(atomic_sum, (1, 150), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size)
    out = np.array([[10], [-np.inf]], np.float32)
    return Case(blocks(size, threads), threads, (out, x), {0: np.array([[10 + x.sum()], [x.max()]])})


@cuda.jit
def row_argmax(out, x):
    row, lane = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y, cuda.threadIdx.x
    best, at = float32(-math.inf), int32(2147483647)
    if row < x.shape[0]:
        for j in range(lane, x.shape[1], 32):
            if x[row, j] > best:
                best, at = x[row, j], int32(j)
    offset = 16
    while offset > 0:
        other = cuda.shfl_xor_sync(FULL, best, offset)
        other_at = cuda.shfl_xor_sync(FULL, at, offset)
        if other > best or (other == best and other_at < at):
            best, at = other, other_at
        offset //= 2
    if lane == 0 and row < x.shape[0]:
        out[row] = at


@case(row_argmax, (1, 100), (1, 3, 2), beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, 5, size)
    return Case((blocks(5, threads),), (32, threads), (np.zeros(5, np.int32), x), {0: x.argmax(1).astype(np.int32)})


@cuda.jit
def last_block_sum(out, partial, counter, x):
    scratch = cuda.shared.array(MOST, float32)
    last = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    total = float32(0)
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        total += x[i]
    scratch[t] = total
    cuda.syncthreads()
    tree_sum(scratch, cuda.blockDim.x)
    if t == 0:
        partial[cuda.blockIdx.x] = scratch[0]
        cuda.threadfence()  # the partial sum is seen by whoever sees the counter
        ticket = cuda.atomic.inc(counter, 0, uint32(cuda.gridDim.x - 1))
        last[0] = 1 if ticket == cuda.gridDim.x - 1 else 0
    cuda.syncthreads()
    if last[0] == 1:  # the same for the whole block
        total = float32(0)
        for b in range(t, cuda.gridDim.x, cuda.blockDim.x):
            total += partial[b]
        scratch[t] = total
        cuda.syncthreads()
        tree_sum(scratch, cuda.blockDim.x)
        if t == 0:
            out[0] = scratch[0]


@case(last_block_sum, (1, 300), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x, grid = whole(generator, size), 1 + size % 5
    args = (np.zeros(1, np.float32), np.zeros(grid, np.float32), np.zeros(1, np.uint32), x)
    return Case(grid, threads, args, {0: x.sum(keepdims=True), 2: np.zeros(1, np.uint32)})


# Scans and sorting


@cuda.jit
def inclusive_scan(out, x):
    buffer = cuda.shared.array((2, MOST), float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    now = 0
    buffer[now, t] = x[i]
    cuda.syncthreads()
    reach = 1
    while reach < cuda.blockDim.x:
        value = buffer[now, t]
        if t >= reach:
            value += buffer[now, t - reach]
        buffer[1 - now, t] = value
        now = 1 - now
        reach *= 2
        cuda.syncthreads()
    out[i] = buffer[now, t]


@case(inclusive_scan, (1, 3), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size, threads)
    expected = x.cumsum(1, dtype=np.float32).ravel()
    return Case(size, threads, (np.zeros(size * threads, np.float32), x.ravel()), {0: expected})


@cuda.jit
def exclusive_scan(out, x):
    tree = cuda.shared.array(MOST, int32)
    t, i, n = cuda.threadIdx.x, cuda.grid(1), cuda.blockDim.x
    tree[t] = x[i]
    step = 1
    while step < n:  # up the tree
        cuda.syncthreads()
        right = (t + 1) * 2 * step - 1
        if right < n:
            tree[right] += tree[right - step]
        step *= 2
    cuda.syncthreads()
    if t == 0:
        tree[n - 1] = 0
    while step > 1:  # and down again
        step //= 2
        cuda.syncthreads()
        right = (t + 1) * 2 * step - 1
        if right < n:
            left = tree[right - step]
            tree[right - step] = tree[right]
            tree[right] += left
    cuda.syncthreads()
    out[i] = tree[t]


@case(exclusive_scan, (1, 3), POWERS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.integers(-9, 9, (size, threads)).astype(np.int32)
    expected = (x.cumsum(1) - x).astype(np.int32).ravel()
    return Case(size, threads, (np.zeros_like(expected), x.ravel()), {0: expected})


@cuda.jit
def warp_scan(out, x):
    i = cuda.grid(1)
    value = x[i]
    reach = 1
    while reach < cuda.warpsize:
        below = cuda.shfl_up_sync(FULL, value, reach)
        if cuda.laneid >= reach:
            value += below
        reach *= 2
    out[i] = value


@case(warp_scan, (1, 3), WARPS, beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size * threads)
    return Case(size, threads, (np.zeros_like(x), x), {0: x.reshape(-1, 32).cumsum(1, dtype=np.float32).ravel()})


@cuda.jit
def bitonic_sort(x):
    keys = cuda.shared.array(MOST, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    keys[t] = x[i]
    cuda.syncthreads()
    run = 2
    while run <= cuda.blockDim.x:
        distance = run // 2
        while distance > 0:
            other = t ^ distance
            if other > t and (keys[t] > keys[other]) == ((t & run) == 0):
                keys[t], keys[other] = keys[other], keys[t]
            cuda.syncthreads()
            distance //= 2
        run *= 2
    x[i] = keys[t]


@case(bitonic_sort, (1, 2), (1, 2, 8, 128, 32))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = normal(generator, size * threads)
    return Case(size, threads, (x,), {0: np.sort(x.reshape(size, threads)).ravel()})


@cuda.jit
def odd_even_sort(x):
    """Sort a block's part in place, in global memory, until nothing changes: the block decides together."""
    t, n = cuda.threadIdx.x, x.shape[1]
    row = x[cuda.blockIdx.x]
    changed = 1
    while cuda.syncthreads_or(changed):
        changed = 0
        for phase in range(2):
            left = 2 * t + phase
            if left + 1 < n and row[left] > row[left + 1]:
                row[left], row[left + 1] = row[left + 1], row[left]
                changed = 1
            cuda.syncthreads()


@case(odd_even_sort, (1, 24), (32, 16))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.integers(-99, 99, (2, size)).astype(np.int32)
    return Case(2, threads, (x,), {0: np.sort(x)})


@cuda.jit
def compaction(out, count, x):
    i = cuda.grid(1)
    keep = i < x.shape[0] and x[i] > 0
    chosen = cuda.ballot_sync(FULL, keep)
    lane = cuda.laneid
    base = int32(0)
    if lane == 0:
        base = cuda.atomic.add(count, 0, int32(cuda.popc(chosen)))
    base = cuda.shfl_sync(FULL, base, 0)
    if keep:
        out[base + cuda.popc(chosen & cuda.lanemask_lt())] = x[i]


@case(compaction, (1, 200), WARPS, beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.integers(-99, 99, size).astype(np.int32)
    kept = x[x > 0]
    out = np.full(size, -1, np.int32)
    expected = np.concatenate([kept, np.full(size - kept.size, -1, np.int32)])
    args = (out, np.zeros(1, np.int32), x)
    return Case(blocks(size, threads), threads, args, {0: expected, 1: np.array([kept.size])}, unordered=True)


# Tiles


@cuda.jit
def transpose(out, x):
    tile = cuda.shared.array((16, 17), float32)  # one more column: a column's elements lie in different banks
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * 16 + tx, cuda.blockIdx.y * 16
    for k in range(ty, 16, cuda.blockDim.y):
        if row + k < x.shape[0] and column < x.shape[1]:
            tile[k, tx] = x[row + k, column]
    cuda.syncthreads()
    column, row = cuda.blockIdx.y * 16 + tx, cuda.blockIdx.x * 16
    for k in range(ty, 16, cuda.blockDim.y):
        if row + k < out.shape[0] and column < out.shape[1]:
            out[row + k, column] = tile[tx, k]


@case(transpose, (1, 40), (1, 3, 16, 4))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = normal(generator, size, 19)
    return Case((2, blocks(size, 16)), (16, threads), (np.zeros((19, size), np.float32), x), {0: x.T})


@cuda.jit
def histogram(counts, x):
    local = cuda.shared.array(16, int32)
    for b in range(cuda.threadIdx.x, 16, cuda.blockDim.x):
        local[b] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        cuda.atomic.add(local, x[i] & 15, 1)
    cuda.syncthreads()
    for b in range(cuda.threadIdx.x, 16, cuda.blockDim.x):
        cuda.atomic.add(counts, b, local[b])


@case(histogram, (1, 400), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.integers(0, 256, size).astype(np.uint8)
    expected = np.bincount(x & 15, minlength=16).astype(np.int32)
    return Case(2, threads, (np.zeros(16, np.int32), x), {0: expected})


@cuda.jit
def stencil_1d(out, x):
    line = cuda.shared.array(MOST_AND_HALO, float32)
    t, n = cuda.threadIdx.x, x.shape[0]
    first = cuda.blockIdx.x * cuda.blockDim.x - 2
    for k in range(t, cuda.blockDim.x + 4, cuda.blockDim.x):
        line[k] = x[first + k] if 0 <= first + k < n else float32(0)
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < n:
        total = float32(0)
        for k in range(5):
            total += line[t + k]
        out[i] = total


@case(stencil_1d, (1, 150), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size)
    expected = np.convolve(x, np.ones(5, np.float32))[2:-2]
    return Case(blocks(size, threads), threads, (np.zeros_like(x), x), {0: expected})


@cuda.jit
def stencil_2d(out, x):
    tile = cuda.shared.array((10, 10), float32)
    rows, columns = x.shape
    top, left = cuda.blockIdx.y * 8 - 1, cuda.blockIdx.x * 8 - 1
    k = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    while k < 100:
        r, c = top + k // 10, left + k % 10
        inside = 0 <= r < rows and 0 <= c < columns
        tile[k // 10, k % 10] = x[r, c] if inside else float32(0)
        k += cuda.blockDim.x * cuda.blockDim.y
    cuda.syncthreads()
    j, i = cuda.grid(2)
    if i < rows and j < columns:
        y, z = cuda.threadIdx.y + 1, cuda.threadIdx.x + 1
        cross = tile[y - 1, z] + tile[y + 1, z] + tile[y, z - 1] + tile[y, z + 1]
        out[i, j] = cross - float32(4) * tile[y, z]


@case(stencil_2d, (1, 20), (8,))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size, 13)
    p = np.pad(x, 1)
    expected = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * x
    return Case((2, blocks(size, 8)), (8, 8), (np.zeros_like(x), x), {0: expected})


TILE, WIDE = 8, 16


@cuda.jit
def matmul_tiled(c, a, b):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for k0 in range(0, a.shape[1], TILE):
        left[ty, tx] = a[row, k0 + tx] if row < a.shape[0] and k0 + tx < a.shape[1] else float32(0)
        right[ty, tx] = b[k0 + ty, column] if k0 + ty < b.shape[0] and column < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


def product(generator: np.random.Generator, size: int, tile: int) -> Case:
    """Draw a matrix product with tails on all three sides."""
    a, b = whole(generator, size, 11), whole(generator, 11, 9)
    out = np.zeros((size, 9), np.float32)
    return Case((blocks(9, tile), blocks(size, tile)), (TILE, TILE), (out, a, b), {0: a @ b})


@case(matmul_tiled, (1, 20), (TILE,))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    return product(generator, size, TILE)


@cuda.jit
def matmul_registers(c, a, b):
    left = cuda.shared.array((WIDE, TILE), float32)
    right = cuda.shared.array((TILE, WIDE), float32)
    total = cuda.local.array((2, 2), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
    for i in range(2):
        for j in range(2):
            total[i, j] = float32(0)
    for k0 in range(0, a.shape[1], TILE):
        for i in range(2):
            r, s = ty + i * TILE, tx + i * TILE
            left[r, tx] = a[row + r, k0 + tx] if row + r < a.shape[0] and k0 + tx < a.shape[1] else float32(0)
            right[ty, s] = b[k0 + ty, column + s] if k0 + ty < b.shape[0] and column + s < b.shape[1] else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            for i in range(2):
                for j in range(2):
                    total[i, j] += left[ty + i * TILE, k] * right[k, tx + j * TILE]
        cuda.syncthreads()
    for i in range(2):
        for j in range(2):
            r, s = row + ty + i * TILE, column + tx + j * TILE
            if r < c.shape[0] and s < c.shape[1]:
                c[r, s] = total[i, j]


@case(matmul_registers, (1, 20), (TILE,))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    return product(generator, size, WIDE)


@cuda.jit(device=True)
def load_tiles(left, right, a, b, k0, row, column):
    """Fill one buffer of both tiles, zeros past the edges."""
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    left[ty, tx] = a[row, k0 + tx] if row < a.shape[0] and k0 + tx < a.shape[1] else float32(0)
    right[ty, tx] = b[k0 + ty, column] if k0 + ty < b.shape[0] and column < b.shape[1] else float32(0)


@cuda.jit
def matmul_double_buffered(c, a, b):
    left = cuda.shared.array((2, TILE, TILE), float32)
    right = cuda.shared.array((2, TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    now = 0
    load_tiles(left[0], right[0], a, b, 0, row, column)
    for k0 in range(0, a.shape[1], TILE):
        cuda.syncthreads()  # one barrier a tile: the next goes to the other buffer
        if k0 + TILE < a.shape[1]:
            load_tiles(left[1 - now], right[1 - now], a, b, k0 + TILE, row, column)
        for k in range(TILE):
            total += left[now, ty, k] * right[now, k, tx]
        now = 1 - now
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


@case(matmul_double_buffered, (1, 20), (TILE,))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    return product(generator, size, TILE)


@cuda.jit
def n_body(force, position):
    near = cuda.shared.array((MOST, 3), float32)
    t, i, n = cuda.threadIdx.x, cuda.grid(1), position.shape[0]
    x = y = float32(0)
    if i < n:
        x, y = position[i, 0], position[i, 1]
    fx = fy = float32(0)
    for first in range(0, n, cuda.blockDim.x):
        count = min(cuda.blockDim.x, n - first)
        if t < count:
            for axis in range(3):
                near[t, axis] = position[first + t, axis]
        cuda.syncthreads()
        for k in range(count):
            dx, dy = near[k, 0] - x, near[k, 1] - y
            square = dx * dx + dy * dy + float32(0.01)
            pull = near[k, 2] / (square * math.sqrt(square))
            fx += pull * dx
            fy += pull * dy
        cuda.syncthreads()
    if i < n:
        force[i, 0] = fx
        force[i, 1] = fy


@case(n_body, (1, 40), (1, 7, 32, 16), tolerance=1e-4)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    position = normal(generator, size, 3)
    delta = (position[None, :, :2] - position[:, None, :2]).astype(np.float64)
    square = (delta**2).sum(-1) + 0.01
    force = (position[:, 2] / square**1.5)[..., None] * delta
    args = (np.zeros((size, 2), np.float32), position)
    return Case(blocks(size, threads), threads, args, {0: force.sum(1).astype(np.float32)})


# Rows of a transformer


@cuda.jit
def softmax_row(out, x):
    top = cuda.shared.array(MOST, float32)
    mass = cuda.shared.array(MOST, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    high, total = float32(-math.inf), float32(0)
    for j in range(t, x.shape[1], cuda.blockDim.x):  # one pass: the mass is rescaled when the maximum grows
        value = x[row, j]
        if value > high:
            total *= math.exp(high - value)
            high = value
        total += math.exp(value - high)
    top[t] = high
    mass[t] = total
    cuda.syncthreads()
    width = cuda.blockDim.x
    while width > 1:
        half = (width + 1) // 2
        if t < width - half and top[t + half] > float32(-math.inf):
            high = max(top[t], top[t + half])
            mass[t] = mass[t] * math.exp(top[t] - high) + mass[t + half] * math.exp(top[t + half] - high)
            top[t] = high
        cuda.syncthreads()
        width = half
    for j in range(t, x.shape[1], cuda.blockDim.x):
        out[row, j] = math.exp(x[row, j] - top[0]) / mass[0]


@case(softmax_row, (1, 100), ANY, tolerance=1e-5)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = 5 * normal(generator, 2, size)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return Case(2, threads, (np.zeros_like(x), x), {0: (e / e.sum(1, keepdims=True)).astype(np.float32)})


@cuda.jit
def rmsnorm_row(out, rstd, x, weight, eps):
    partial = cuda.shared.array(32, float32)
    row = cuda.blockIdx.x
    total = float32(0)
    for j in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        total += x[row, j] * x[row, j]
    scale = float32(1) / math.sqrt(block_sum(total, partial) / float32(x.shape[1]) + eps)
    for j in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        out[row, j] = x[row, j] * scale * weight[j]
    if cuda.threadIdx.x == 0:
        rstd[row] = scale


@case(rmsnorm_row, (1, 150), WARPS, tolerance=1e-5, beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x, weight = normal(generator, 2, size), normal(generator, size)
    rstd = 1 / np.sqrt((x.astype(np.float64) ** 2).mean(1) + 1e-5)
    args = (np.zeros_like(x), np.zeros(2, np.float32), x, weight, np.float32(1e-5))
    return Case(2, threads, args, {0: (x * rstd[:, None] * weight).astype(np.float32), 1: rstd.astype(np.float32)})


HEAD, ROWS = 4, 8


@cuda.jit
def flash_attention(out, q, k, v, scale):
    keys = cuda.shared.array((ROWS, HEAD), float32)
    values = cuda.shared.array((ROWS, HEAD), float32)
    mine = cuda.local.array(HEAD, float32)
    mixed = cuda.local.array(HEAD, float32)
    t, n = cuda.threadIdx.x, q.shape[0]
    row = cuda.blockIdx.x * ROWS + t
    for d in range(HEAD):
        mine[d] = q[row, d] if row < n else float32(0)
        mixed[d] = float32(0)
    high, mass = float32(-math.inf), float32(0)
    for first in range(0, cuda.blockIdx.x * ROWS + 1, ROWS):
        for d in range(HEAD):
            keys[t, d] = k[first + t, d] if first + t < n else float32(0)
            values[t, d] = v[first + t, d] if first + t < n else float32(0)
        cuda.syncthreads()
        for j in range(ROWS):
            if first + j > row or first + j >= n:
                break
            score = float32(0)
            for d in range(HEAD):
                score += mine[d] * keys[j, d]
            score *= scale
            higher = max(high, score)
            old, new = math.exp(high - higher), math.exp(score - higher)
            mass = mass * old + new
            for d in range(HEAD):
                mixed[d] = mixed[d] * old + new * values[j, d]
            high = higher
        cuda.syncthreads()
    if row < n:
        for d in range(HEAD):
            out[row, d] = mixed[d] / mass


@case(flash_attention, (1, 20), (ROWS,), tolerance=1e-5)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    q, k, v = (normal(generator, size, HEAD) for _ in range(3))
    scores = 0.5 * (q @ k.T).astype(np.float64)
    scores[np.triu_indices(size, 1)] = -np.inf
    weights = np.exp(scores - scores.max(1, keepdims=True))
    expected = ((weights / weights.sum(1, keepdims=True)) @ v).astype(np.float32)
    return Case(blocks(size, ROWS), ROWS, (np.zeros_like(q), q, k, v, np.float32(0.5)), {0: expected})


# Warps


@cuda.jit
def votes(out, ballots, x):
    i = cuda.grid(1)
    positive = x[i] > 0
    everyone, someone = cuda.all_sync(FULL, positive), cuda.any_sync(FULL, positive)
    agreed = cuda.eq_sync(FULL, positive)
    ballot = cuda.ballot_sync(FULL, positive)
    if cuda.laneid == 0:
        out[i // 32, 0] = everyone
        out[i // 32, 1] = someone
        out[i // 32, 2] = agreed
        ballots[i // 32] = ballot


@case(votes, (1, 3), WARPS, beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.integers(-1, 2, (size * threads // 32, 32)).astype(np.int32)
    x[::3] = -1
    x[1::3] = 1
    yes = x > 0
    out = np.stack([yes.all(1), yes.any(1), yes.all(1) | ~yes.any(1)], axis=1)
    ballots = (yes << np.arange(32)).sum(1).astype(np.uint32)
    args = (np.zeros_like(out), np.zeros_like(ballots), x.ravel())
    return Case(size, threads, args, {0: out, 1: ballots})


@cuda.jit
def matches(same, all_same, agreed, x):
    i = cuda.grid(1)
    same[i] = cuda.match_any_sync(FULL, x[i])
    mask, yes = cuda.match_all_sync(FULL, x[i])
    all_same[i] = mask
    agreed[i] = yes


@case(matches, (1, 2), WARPS, beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.integers(0, 4, (size * threads // 32, 32)).astype(np.int32)
    x[0] = 7
    equal = x[:, :, None] == x[:, None, :]
    same = (equal << np.arange(32)).sum(-1).astype(np.uint32)
    agreed = np.broadcast_to(equal.all((1, 2))[:, None], x.shape)
    args = (np.zeros(x.size, np.uint32), np.zeros(x.size, np.uint32), np.zeros(x.size, np.bool_), x.ravel())
    whole_warp = np.where(agreed, 0xFFFFFFFF, 0).astype(np.uint32)
    return Case(size, threads, args, {0: same.ravel(), 1: whole_warp.ravel(), 2: agreed.ravel()})


@cuda.jit
def segmented_rotation(out, x):
    """Rotate inside each group of eight lanes: a shuffle's width, by arithmetic on the lane."""
    i, lane = cuda.grid(1), cuda.laneid
    out[i] = cuda.shfl_sync(FULL, x[i], (lane & 24) | ((lane + 1) & 7))


@case(segmented_rotation, (1, 2), WARPS, beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = normal(generator, size * threads)
    return Case(size, threads, (np.zeros_like(x), x), {0: np.roll(x.reshape(-1, 8), -1, 1).ravel()})


@cuda.jit
def shuffle_edges(up, down, xor, index, wide, real):
    """Write what each shuffle gives where its source lies outside the warp, and numbers of 64 bits."""
    i = cuda.grid(1)
    up[i] = cuda.shfl_up_sync(FULL, int32(i), 5)
    down[i] = cuda.shfl_down_sync(FULL, int32(i), 7)
    xor[i] = cuda.shfl_xor_sync(FULL, int32(i), 21)
    index[i] = cuda.shfl_sync(FULL, int32(i), 37)
    wide[i] = cuda.shfl_xor_sync(FULL, wide[i], 1)
    real[i] = cuda.shfl_xor_sync(FULL, real[i], 2)


@case(shuffle_edges, (1, 2), WARPS, beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    n = size * threads
    i = np.arange(n, dtype=np.int32)
    lane, base = i % 32, i - i % 32
    up, down = np.where(lane < 5, i, i - 5), np.where(lane + 7 > 31, i, i + 7)
    xor, index = base + (lane ^ 21), base + 5
    wide, real = generator.integers(-(2**62), 2**62, n), normal(generator, n).astype(np.float64) / 3
    args = (*(np.zeros(n, np.int32) for _ in range(4)), wide, real)
    return Case(size, threads, args, {0: up, 1: down, 2: xor, 3: index, 4: wide[i ^ 1], 5: real[i ^ 2]})


@cuda.jit
def half_warps(out, x):
    """Let each half of a warp sum by itself, on its own path, with a mask of its own."""
    i, lane = cuda.grid(1), cuda.laneid
    value = x[i]
    if lane < 16:
        for k in range(4):
            value += cuda.shfl_xor_sync(0x0000FFFF, value, 1 << k)
    else:
        for k in range(4):
            value += cuda.shfl_xor_sync(0xFFFF0000, value, 8 >> k)
        value = -value
    cuda.syncwarp()
    out[i] = value


@case(half_warps, (1, 2), WARPS, beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size * threads)
    sums = x.reshape(-1, 2, 16).sum(2) * np.array([1, -1], np.float32)
    return Case(size, threads, (np.zeros_like(x), x), {0: np.repeat(sums.ravel(), 16)})


@cuda.jit
def specialised_warps(out, x):
    """Give the first warp other work than the rest: a warp operation concerns its own warp only."""
    line = cuda.shared.array(MOST, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if t < 32:
        line[t] = warp_sum(x[i])
    else:
        line[t] = x[i] if cuda.any_sync(FULL, x[i] > 0) else float32(0)
        cuda.syncwarp()
        line[t] += float32(1)
    cuda.syncthreads()
    out[i] = line[(t + 32) % cuda.blockDim.x]


@case(specialised_warps, (1, 2), WARPS, beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size, threads // 32, 32)
    line = np.where((x > 0).any(2, keepdims=True), x, 0) + 1
    line[:, 0] = x[:, 0].sum(1, keepdims=True)
    return Case(size, threads, (np.zeros(x.size, np.float32), x.ravel()), {0: np.roll(line, -1, 1).ravel()})


@cuda.jit
def tail_warp(out, x):
    """Use warp operations where the last warp has fewer than 32 threads: its mask names those that exist."""
    i, lane = cuda.grid(1), cuda.laneid
    present = min(32, cuda.blockDim.x - (cuda.threadIdx.x - lane))
    mask = uint32(0xFFFFFFFF) >> uint32(32 - present)
    total = cuda.popc(cuda.ballot_sync(mask, x[i] > 0))
    first = cuda.shfl_sync(mask, x[i], 0)
    out[i] = first * float32(100) + float32(total)


@case(tail_warp, (1, 2), (1, 2, 7, 31, 32, 33, 97, 70), beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size, threads)
    expected = np.empty_like(x)
    for first in range(0, threads, 32):
        warp = x[:, first : first + 32]
        expected[:, first : first + 32] = 100 * warp[:, :1] + (warp > 0).sum(1, keepdims=True)
    return Case(size, threads, (np.zeros(x.size, np.float32), x.ravel()), {0: expected.ravel()})


@cuda.jit
def active_lanes(out, total, x):
    i = cuda.grid(1)
    out[i] = cuda.activemask()
    if x[i] > 0:  # whoever is here together counts together; how they are grouped does not matter
        together = cuda.activemask()
        leader = cuda.ffs(together) - 1
        if cuda.laneid == leader:
            cuda.atomic.add(total, 0, int32(cuda.popc(together)))


@case(active_lanes, (1, 2), (1, 7, 32, 33, 97, 64), beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.integers(-3, 4, size * threads).astype(np.int32)
    t = np.arange(size * threads) % threads
    present = np.minimum(32, threads - (t - t % 32))
    masks = ((1 << present.astype(np.int64)) - 1).astype(np.uint32)
    args = (np.zeros(x.size, np.uint32), np.zeros(1, np.int32), x)
    return Case(size, threads, args, {0: masks, 1: np.array([(x > 0).sum()], np.int32)})


@cuda.jit
def warp_exchange(out, x):
    """Exchange through shared memory inside each warp: ``syncwarp`` orders the lanes."""
    line = cuda.shared.array(MOST, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    mirror = t ^ 31
    for _ in range(3):
        line[t] = x[i]
        cuda.syncwarp()
        out[i] += line[mirror]
        cuda.syncwarp()


@case(warp_exchange, (1, 2), WARPS, beyond_stock=WARP_OPERATIONS)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size * threads)
    return Case(size, threads, (np.zeros_like(x), x), {0: 3 * x.reshape(-1, 32)[:, ::-1].ravel()})


# Blocks


@cuda.jit
def barrier_votes(out, x):
    positive = 1 if x[cuda.grid(1)] > 0 else 0
    count = cuda.syncthreads_count(positive)
    everyone = cuda.syncthreads_and(positive)
    someone = cuda.syncthreads_or(positive)
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x, 0] = count
        out[cuda.blockIdx.x, 1] = 1 if everyone else 0  # any number but 0 means yes
        out[cuda.blockIdx.x, 2] = 1 if someone else 0


@case(barrier_votes, (1, 4), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.integers(-1, 2, (size, threads)).astype(np.int32)
    x[::3] = -1
    x[1::3] = 1
    yes = x > 0
    expected = np.stack([yes.sum(1), yes.all(1), yes.any(1)], axis=1).astype(np.int32)
    return Case(size, threads, (np.zeros((size, 3), np.int32), x.ravel()), {0: expected})


@cuda.jit
def uniform_barriers(out, rounds):
    """Return, branch and loop around barriers, the whole block together: none is missed."""
    line = cuda.shared.array(MOST, int32)
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if rounds[b] == 0:
        return
    line[t] = t
    if b % 2 == 0:
        cuda.syncthreads()
        value = line[cuda.blockDim.x - 1 - t]
        cuda.syncthreads()
        line[t] = value
    for _ in range(rounds[b]):
        cuda.syncthreads()
        value = line[(t + 1) % cuda.blockDim.x]
        cuda.syncthreads()
        line[t] = value
    out[b, t] = line[t]


@case(uniform_barriers, (1, 5), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    rounds = generator.integers(0, 4, size).astype(np.int32)
    expected = np.zeros((size, threads), np.int32)
    for b, count in enumerate(rounds.tolist()):
        if count:
            expected[b] = np.roll(np.arange(threads)[:: -1 if b % 2 == 0 else 1], -count)
    return Case(size, threads, (np.zeros_like(expected), rounds), {0: expected})


@cuda.jit
def own_elements(out, x):
    """Write and read one's own elements as often as one likes, through two slices: no barrier is needed."""
    line = cuda.shared.array(MOST, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    upper = line[1:]
    line[t] = x[i]
    line[t] += float32(1)
    if t > 0:
        upper[t - 1] *= float32(2)
    out[i] = line[t]
    out[i] += x[i]


@case(own_elements, (1, 3), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size, threads)
    expected = (x + 1) * 2 + x
    expected[:, 0] = 2 * x[:, 0] + 1
    return Case(size, threads, (np.zeros(x.size, np.float32), x.ravel()), {0: expected.ravel()})


@cuda.jit
def cube_in_shared(out, x):
    cube = cuda.shared.array((4, 3, 5), int32)
    a, b, c = cuda.threadIdx.x, cuda.threadIdx.y, cuda.threadIdx.z
    cube[a, b, c] = x[cuda.blockIdx.x, a, b, c]
    cuda.syncthreads()
    out[cuda.blockIdx.x, c, a, b] = cube[3 - a, 2 - b, 4 - c] + cube.shape[1]


@case(cube_in_shared, (1, 3))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.integers(-99, 99, (size, 4, 3, 5)).astype(np.int32)
    expected = x[:, ::-1, ::-1, ::-1].transpose(0, 3, 1, 2) + 3
    return Case(size, (4, 3, 5), (np.zeros((size, 5, 4, 3), np.int32), x), {0: expected.astype(np.int32)})


@cuda.jit
def dynamic_shared(out, x):
    memory = cuda.shared.array(0, float32)
    n, t, i = cuda.blockDim.x, cuda.threadIdx.x, cuda.grid(1)
    first, second = memory[:n], memory[n : 2 * n]
    first[t] = x[i]
    second[n - 1 - t] = x[i]
    cuda.syncthreads()
    out[i] = first[(t + 1) % n] - second[t]


@case(dynamic_shared, (1, 3), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size, threads)
    expected = (np.roll(x, -1, 1) - x[:, ::-1]).ravel()
    return Case(size, threads, (np.zeros(x.size, np.float32), x.ravel()), {0: expected}, shared_bytes=8 * threads)


@cuda.jit
def dynamic_shared_two_types(out, x):
    """Two arrays of different types in the same dynamic memory, one behind the other."""
    n, t, i = cuda.blockDim.x, cuda.threadIdx.x, cuda.grid(1)
    reals = cuda.shared.array(0, float32)[:n]
    codes = cuda.shared.array(0, int32)[n : 2 * n]
    reals[t] = x[i]
    codes[t] = int32(2 * t)
    cuda.syncthreads()
    out[i] = reals[n - 1 - t] + float32(codes[(t + 1) % n])


@case(dynamic_shared_two_types, (1, 3), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size, threads)
    expected = (x[:, ::-1] + 2 * ((np.arange(threads) + 1) % threads)).astype(np.float32)
    args = (np.zeros(x.size, np.float32), x.ravel())
    return Case(size, threads, args, {0: expected.ravel()}, shared_bytes=8 * threads)


@cuda.jit
def local_sort(out, x):
    mine = cuda.local.array(5, int32)
    i = cuda.grid(1)
    if i < x.shape[0]:
        for k in range(5):
            value, place = x[i, k], k
            while place > 0 and mine[place - 1] > value:
                mine[place] = mine[place - 1]
                place -= 1
            mine[place] = value
        for k in range(5):
            out[i, k] = mine[k]


@case(local_sort, (1, 60), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.integers(-99, 99, (size, 5)).astype(np.int32)
    return Case(blocks(size, threads), threads, (np.zeros_like(x), x), {0: np.sort(x)})


# Atomics

INTEGERS = (np.int32, np.uint32, np.int64, np.uint64)


@cuda.jit
def atomic_integers(cells, x, tickets, winner):
    i = cuda.grid(1)
    if i < x.shape[0]:
        value = x[i]
        cuda.atomic.add(cells, 0, value)
        cuda.atomic.sub(cells, 1, value)
        cuda.atomic.max(cells, 2, value)
        cuda.atomic.min(cells, 3, value)
        cuda.atomic.and_(cells, 4, value)
        cuda.atomic.or_(cells, 5, value)
        cuda.atomic.xor(cells, 6, value)
        cuda.atomic.exch(cells, 7, x[0])
        cuda.atomic.nanmax(cells, 8, value)
        cuda.atomic.nanmin(cells, 9, value)
        ticket = cuda.atomic.add(cells, 10, x[0])  # the old value: each thread has another
        tickets[ticket // x[0]] = 1
        if cuda.atomic.cas(cells, 11, x[1], x[0]) == x[1]:  # one thread wins
            cuda.atomic.add(winner, 0, 1)
        if cuda.atomic.compare_and_swap(cells[12:], x[1], x[0]) == x[1]:
            cuda.atomic.add(winner, 1, 1)


def atomic_integers_of(kind: type) -> Make:
    """Return what draws arguments of one integer type; the numbers reach its limits, so that sums wrap."""

    def make(generator: np.random.Generator, size: int, threads: int) -> Case:
        limits = np.iinfo(kind)
        x = generator.integers(limits.min, limits.max, size, kind, endpoint=True)
        x[:2] = 3, 9
        cells = np.zeros(13, kind)
        cells[4], cells[3], cells[9], cells[11], cells[12] = limits.max, limits.max, limits.max, 9, 9
        expected = cells.copy()
        expected[:1] = x.sum(dtype=kind, keepdims=True)
        expected[1:2] = -expected[:1]
        expected[2], expected[3] = max(0, x.max()), x.min()
        expected[4] &= np.bitwise_and.reduce(x)
        expected[5], expected[6] = np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)
        expected[7], expected[8], expected[9], expected[10] = 3, max(0, x.max()), x.min(), 3 * size
        expected[11] = expected[12] = 3
        args = (cells, x, np.zeros(size, np.int32), np.zeros(2, np.int32))
        return Case(
            blocks(size, threads), threads, args, {0: expected, 2: np.ones(size, np.int32), 3: np.ones(2, np.int32)}
        )

    return make


for _type in INTEGERS:
    case(atomic_integers, (2, 100), ANY, name=f"atomic_{_type.__name__}")(atomic_integers_of(_type))


@cuda.jit
def atomic_counters(cells, x, tickets):
    i = cuda.grid(1)
    if i < x.shape[0]:
        ticket = cuda.atomic.inc(cells, 0, x[0])  # 0 … x[0], and round again
        cuda.atomic.add(tickets, ticket, 1)
        ticket = cuda.atomic.dec(cells, 1, x[0])
        cuda.atomic.add(tickets, ticket, 1)
        cuda.atomic.exch(cells, 2, x[0])


def atomic_counters_of(kind: type) -> Make:
    """Return what draws arguments of one unsigned type."""

    def make(generator: np.random.Generator, size: int, threads: int) -> Case:
        x = np.full(size, 6, kind)
        seen = np.arange(size) % 7
        tickets = np.bincount(seen, minlength=7) + np.bincount(-seen % 7, minlength=7)
        expected = {0: np.array([size % 7, -size % 7, 6], kind), 2: tickets.astype(np.int32)}
        return Case(blocks(size, threads), threads, (np.zeros(3, kind), x, np.zeros(7, np.int32)), expected)

    return make


for _type in (np.uint32, np.uint64):
    case(atomic_counters, (1, 100), ANY, name=f"atomic_counters_{_type.__name__}")(atomic_counters_of(_type))


@cuda.jit
def atomic_reals(cells, x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        cuda.atomic.add(cells, 0, x[i])
        cuda.atomic.sub(cells, 1, x[i])
        cuda.atomic.max(cells, 2, x[i])
        cuda.atomic.min(cells, 3, x[i])
        cuda.atomic.nanmax(cells, 4, x[i])
        cuda.atomic.nanmin(cells, 5, x[i])
        cuda.atomic.nanmax(cells, 6, cells[7] if i % 2 else x[i])  # cells[7] is no number: passed over


def atomic_reals_of(kind: type) -> Make:
    """Return what draws arguments of one floating-point type."""

    def make(generator: np.random.Generator, size: int, threads: int) -> Case:
        x = whole(generator, size).astype(kind)
        cells = np.array([0, 0, -np.inf, np.inf, -np.inf, np.inf, -np.inf, np.nan], kind)
        sums = [x.sum(), -x.sum(), x.max(), x.min(), x.max(), x.min(), x[::2].max(), np.nan]
        return Case(blocks(size, threads), threads, (cells, x), {0: np.array(sums, kind)})

    return make


for _type in (np.float32, np.float64):
    case(atomic_reals, (1, 100), ANY, name=f"atomic_{_type.__name__}")(atomic_reals_of(_type))


@cuda.jit
def lock_per_warp(total, lock):
    """Add to a plain number under a spin lock; one lane of each warp takes it."""
    if cuda.threadIdx.x % 32 == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()  # what the last owner wrote is seen
        total[0] += 1
        total[1] = total[0] * 2
        cuda.threadfence()  # what is written here is seen before the lock is open
        cuda.atomic.exch(lock, 0, 0)


@case(lock_per_warp, (1, 2), (32, 96, 64))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    n = size * threads // 32
    return Case(size, threads, (np.zeros(2, np.int32), np.zeros(1, np.int32)), {0: np.array([n, 2 * n], np.int32)})


@cuda.jit
def lock_every_thread(total, x):
    """Let every thread take a lock of its block: it opens on the path of the thread that has it, so no lane starves."""
    lock = cuda.shared.array(1, int32)
    if cuda.threadIdx.x == 0:
        lock[0] = 0
    cuda.syncthreads()
    waiting = True
    while waiting:
        if cuda.atomic.cas(lock, 0, 0, 1) == 0:
            cuda.threadfence_block()
            total[cuda.blockIdx.x] += x[cuda.grid(1)]
            cuda.threadfence_block()
            cuda.atomic.exch(lock, 0, 0)
            waiting = False


@case(lock_every_thread, (1, 2), (1, 7, 33, 40))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size, threads)
    return Case(size, threads, (np.zeros(size, np.float32), x.ravel()), {0: x.sum(1)})


@cuda.jit
def producer_and_consumer(out, x):
    """Hand numbers from a thread to one of another warp through one box, each waiting for the other."""
    box = cuda.shared.array(1, float32)
    full = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        full[0] = 0
    cuda.syncthreads()
    if t == 0:
        for k in range(x.shape[0]):
            while cuda.atomic.cas(full, 0, 1, 1) == 1:
                pass
            cuda.threadfence_block()
            box[0] = x[k]
            cuda.threadfence_block()
            cuda.atomic.exch(full, 0, 1)
    elif t == 32:
        for k in range(x.shape[0]):
            while cuda.atomic.cas(full, 0, 0, 0) == 0:
                pass
            cuda.threadfence_block()
            out[k] = box[0]
            cuda.threadfence_block()
            cuda.atomic.exch(full, 0, 0)


@case(producer_and_consumer, (1, 8), (64, 33))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = normal(generator, size)
    return Case(1, threads, (np.zeros_like(x), x), {0: x})


@cuda.jit
def chained_scan(out, x, sums, ready, counter):
    """Scan in one launch: a block waits for the one before it, which is running already, for it drew a lower number."""
    line = cuda.shared.array(MOST, float32)
    drawn = cuda.shared.array(1, int32)
    before = cuda.shared.array(1, float32)
    t, n = cuda.threadIdx.x, cuda.blockDim.x
    if t == 0:
        drawn[0] = cuda.atomic.add(counter, 0, 1)
    cuda.syncthreads()
    b = drawn[0]
    i = b * n + t
    line[t] = x[i] if i < x.shape[0] else float32(0)
    reach = 1
    while reach < n:
        cuda.syncthreads()
        value = line[t - reach] if t >= reach else float32(0)
        cuda.syncthreads()
        line[t] += value
        reach *= 2
    cuda.syncthreads()
    if t == 0:
        total = float32(0)
        if b > 0:
            while cuda.atomic.cas(ready, b - 1, 1, 1) == 0:
                pass
            cuda.threadfence()
            total = sums[b - 1]
        before[0] = total
        sums[b] = total + line[n - 1]
        cuda.threadfence()
        cuda.atomic.exch(ready, b, 1)
    cuda.syncthreads()
    if i < x.shape[0]:
        out[i] = before[0] + line[t]


@case(chained_scan, (1, 150), (7, 31, 33, 97, 128, 32))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x, grid = whole(generator, size), blocks(size, threads)
    state = (np.zeros(grid, np.float32), np.zeros(grid, np.int32), np.zeros(1, np.int32))
    return Case(grid, threads, (np.zeros_like(x), x, *state), {0: x.cumsum(dtype=np.float32)})


# Numbers


@cuda.jit(device=True)
def philox_round(a, b, key):
    """Return the two words after one round of Philox-2x32 (Salmon et al., 2011)."""
    product = uint64(0xD256D193) * uint64(a)
    return uint32(product >> uint64(32)) ^ key ^ b, uint32(product)


@cuda.jit
def philox(out, key):
    i = cuda.grid(1)
    if i < out.shape[0]:
        a, b = uint32(i), uint32(0)
        for _ in range(10):
            a, b = philox_round(a, b, key)
            key = uint32(key + uint32(0x9E3779B9))
        out[i, 0] = a
        out[i, 1] = b


@case(philox, (1, 70), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    a, b, key = np.arange(size, dtype=np.uint64), np.zeros(size, np.uint64), 0xDEADBEEF
    for _ in range(10):
        high, low = a * np.uint64(0xD256D193) >> np.uint64(32), a * np.uint64(0xD256D193) & np.uint64(FULL)
        a, b = high ^ np.uint64(key) ^ b, low
        key = (key + 0x9E3779B9) & FULL
    args = (np.zeros((size, 2), np.uint32), np.uint32(0xDEADBEEF))
    return Case(blocks(size, threads), threads, args, {0: np.stack([a, b], 1).astype(np.uint32)})


@cuda.jit
def wrapping_integers(narrow, unsigned, wide, huge, x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        narrow[i, 0] = x[i] * x[i]  # 64 bits in Numba, cut to 32 when stored
        narrow[i, 1] = int32(x[i] + int32(2147483647)) >> 3
        narrow[i, 2] = int32(x[i] << 20)
        word = uint32(x[i])
        word ^= uint32(word << uint32(13))
        word ^= word >> uint32(17)
        word ^= uint32(word << uint32(5))
        unsigned[i, 0] = word
        unsigned[i, 1] = uint32(x[i]) * uint32(2654435769)
        wide[i, 0] = int64(x[i]) * int64(x[i]) * int64(x[i])
        wide[i, 1] = int64(x[i]) >> int64(7)
        huge[i, 0] = uint64(x[i]) * uint64(6364136223846793005) + uint64(1442695040888963407)
        huge[i, 1] = uint64(x[i]) >> uint64(60)


@case(wrapping_integers, (1, 70), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.integers(-(2**31), 2**31, size).astype(np.int32)
    x[0] = -1
    wide = x.astype(np.int64)
    word, huge = x.view(np.uint32).copy(), wide.view(np.uint64)
    narrow = np.stack([wide * wide, (wide + 2147483647).astype(np.int32) >> 3, wide << 20], 1).astype(np.int32)
    word ^= word << np.uint32(13)
    word ^= word >> np.uint32(17)
    word ^= word << np.uint32(5)
    unsigned = np.stack([word, x.view(np.uint32) * np.uint32(2654435769)], 1)
    cubes = np.stack([wide * wide * wide, wide >> 7], 1)
    mixed = huge * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    huge = np.stack([mixed, huge >> np.uint64(60)], 1)
    out = [np.zeros_like(a) for a in (narrow, unsigned, cubes, huge)]
    return Case(blocks(size, threads), threads, (*out, x), {0: narrow, 1: unsigned, 2: cubes, 3: huge})


@cuda.jit
def small_integers(bytes_out, shorts, x, y):
    i = cuda.grid(1)
    if i < x.shape[0]:
        bytes_out[i] = x[i] + uint8(200)  # wraps when stored
        shorts[i] = y[i] * y[i]


@case(small_integers, (1, 70), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.integers(0, 256, size).astype(np.uint8)
    y = generator.integers(-(2**15), 2**15, size).astype(np.int16)
    args = (np.zeros_like(x), np.zeros_like(y), x, y)
    return Case(blocks(size, threads), threads, args, {0: x + np.uint8(200), 1: y * y})


@cuda.jit
def division(quotient, remainder, real, a, b, x, y):
    """Divide as Python does: towards minus infinity, the remainder with the divisor's sign."""
    i = cuda.grid(1)
    if i < a.shape[0]:
        quotient[i] = a[i] // b[i]
        remainder[i] = a[i] % b[i]
        real[i, 0] = x[i] // y[i]
        real[i, 1] = x[i] % y[i]
        real[i, 2] = float32(int32(x[i]))  # towards zero
        real[i, 3] = math.floor(x[i])


@case(division, (1, 100), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    a, b = (generator.integers(-99, 99, size).astype(np.int32) for _ in range(2))
    b[b == 0] = 7
    x, y = a.astype(np.float32) / 4, b.astype(np.float32) / 2
    real = np.stack([x // y, x % y, np.trunc(x), np.floor(x)], 1)
    args = (np.zeros_like(a), np.zeros_like(a), np.zeros((size, 4), np.float32), a, b, x, y)
    return Case(blocks(size, threads), threads, args, {0: a // b, 1: a % b, 2: real})


@cuda.jit
def bits(out, reverse, chosen, word, wide):
    i = cuda.grid(1)
    if i < word.shape[0]:
        out[i, 0] = cuda.popc(word[i])
        out[i, 1] = cuda.clz(word[i])
        out[i, 2] = cuda.ffs(word[i])
        out[i, 3] = cuda.popc(wide[i])
        out[i, 4] = cuda.clz(wide[i])
        out[i, 5] = cuda.ffs(wide[i])
        reverse[i] = cuda.brev(word[i])
        chosen[i] = cuda.selp(word[i] > uint32(2**31), float32(1), float32(-1))


def count_bits(value: int, width: int) -> tuple[int, int, int]:
    """Return the bits that are set, the zeros before the first, and the place of the last, from 1."""
    return value.bit_count(), width - value.bit_length(), (value & -value).bit_length()


@case(bits, (1, 70), ANY, beyond_stock="clz takes every number for one of 32 bits in the stock simulator")
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    word = generator.integers(0, 2**32, size, np.uint32) >> generator.integers(0, 32, size, np.uint32)
    wide = generator.integers(0, 2**63, size, np.uint64)
    word[0] = wide[0] = 0
    pairs = zip(word.tolist(), wide.tolist(), strict=True)
    counts = [[n for v, b in ((w, 32), (d, 64)) for n in count_bits(v, b)] for w, d in pairs]
    reverse = np.array([int(f"{w:032b}"[::-1], 2) for w in word.tolist()], np.uint32)
    chosen = np.where(word > 2**31, 1, -1).astype(np.float32)
    args = (np.zeros((size, 6), np.int32), np.zeros_like(word), np.zeros_like(chosen), word, wide)
    expected = {0: np.array(counts, np.int32), 1: reverse, 2: chosen}
    return Case(blocks(size, threads), threads, args, expected)


@cuda.jit
def mathematics(out, x):
    """Take the functions past their limits: no exception, the numbers of IEEE 754."""
    i = cuda.grid(1)
    if i < x.shape[0]:
        v = x[i]
        out[i, 0] = math.exp(v)
        out[i, 1] = math.log(v)
        out[i, 2] = math.sqrt(v)
        out[i, 3] = float32(1) / v
        out[i, 4] = math.tanh(v)
        out[i, 5] = math.sin(v)
        out[i, 6] = math.erf(v)
        out[i, 7] = abs(v)
        out[i, 8] = max(v, float32(0.5))
        out[i, 9] = math.pow(v, float32(2))
        out[i, 10] = math.log1p(v)
        out[i, 11] = math.atan2(v, float32(-2))
        out[i, 12] = float32(1) if math.isinf(v) or math.isnan(v) else float32(0)
        out[i, 13] = math.ceil(v)
        out[i, 14] = math.fmod(v, float32(3))
        out[i, 15] = v * v * v


@case(mathematics, (10, 60), ANY, tolerance=1e-5, beyond_stock="math raises in the stock simulator")
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = 4 * normal(generator, size)
    x[:10] = 0, -0.0, 1000, -1000, np.inf, -np.inf, np.nan, 1e38, 89, -1
    v = x.astype(np.float64)
    with np.errstate(all="ignore"):
        columns = [np.exp(v), np.log(v), np.sqrt(v), 1 / v, np.tanh(v), np.sin(v), [math.erf(a) for a in v], np.abs(v)]
        columns += [np.fmax(v, 0.5), v * v, np.log1p(v), np.arctan2(v, -2), ~np.isfinite(v), np.ceil(v), np.fmod(v, 3)]
        columns += [v * v * v]
        expected = np.stack(columns, 1).astype(np.float32)
    return Case(blocks(size, threads), threads, (np.zeros_like(expected), x), {0: expected})


@cuda.jit
def fused(out, x):
    """Show that ``fma`` rounds once: the error of a product, exactly."""
    i = cuda.grid(1)
    if i < x.shape[0]:
        product = x[i] * x[i]
        out[i, 0] = cuda.fma(x[i], x[i], -product) * float32(1 << 24)
        out[i, 1] = cuda.cbrt(x[i])


@case(fused, (1, 60), ANY, tolerance=1e-6, beyond_stock="fma rounds twice in the stock simulator")
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = normal(generator, size)
    exact = x.astype(np.float64) ** 2
    error = ((exact - x * x) * 2**24).astype(np.float32)
    expected = np.stack([error, np.cbrt(x)], 1)
    return Case(blocks(size, threads), threads, (np.zeros_like(expected), x), {0: expected})


@cuda.jit
def half_storage(out, x, scale):
    i = cuda.grid(1)
    if i < x.shape[0]:
        out[i] = float16(float32(x[i]) * scale)


@case(half_storage, (1, 70), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = normal(generator, size).astype(np.float16)
    x[0] = 60000
    with np.errstate(over="ignore"):
        expected = (x.astype(np.float32) * np.float32(1.7)).astype(np.float16)
    return Case(blocks(size, threads), threads, (np.zeros_like(x), x, np.float32(1.7)), {0: expected})


@cuda.jit
def complex_numbers(out, modulus, z, w):
    i = cuda.grid(1)
    if i < z.shape[0]:
        out[i] = z[i] * w[i] + complex64(z[i].real - w[i].imag)
        modulus[i] = abs(z[i])


@case(complex_numbers, (1, 70), ANY, tolerance=1e-5)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    z, w = (normal(generator, size) + 1j * normal(generator, size) for _ in range(2))
    args = (np.zeros_like(z), np.zeros(size, np.float32), z, w)
    return Case(blocks(size, threads), threads, args, {0: z * w + (z.real - w.imag), 1: np.abs(z)})


@cuda.jit
def boolean_arrays(out, x, mask):
    flags = cuda.shared.array(MOST, boolean)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    flags[t] = mask[i] and not x[i] < 0
    cuda.syncthreads()
    out[i] = flags[cuda.blockDim.x - 1 - t] or x[i] == 0


@case(boolean_arrays, (1, 3), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size, threads)
    mask = generator.integers(0, 2, x.shape).astype(np.bool_)
    expected = (mask & (x >= 0))[:, ::-1] | (x == 0)
    return Case(size, threads, (np.zeros(x.size, np.bool_), x.ravel(), mask.ravel()), {0: expected.ravel()})


@cuda.jit
def vector_types(out, x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        v = cuda.float32x4(x[i, 0], x[i, 1], x[i, 2], x[i, 3])
        pair = cuda.float32x2(v.x + v.y, v.z - v.w)
        both = cuda.float32x4(pair, v.w, v.z)
        count = cuda.int32x3(int32(i), int32(2 * i), int32(3))
        out[i, 0] = both.x * both.y
        out[i, 1] = both.z - both.w + float32(count.y * count.z)


@case(vector_types, (1, 60), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size, 4)
    a, b, c, d = x.T
    expected = np.stack([(a + b) * (c - d), d - c + 6 * np.arange(size, dtype=np.float32)], 1)
    return Case(blocks(size, threads), threads, (np.zeros((size, 2), np.float32), x), {0: expected})


@cuda.jit
def device_library(out, x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        v = x[i]
        out[i, 0] = libdevice.rsqrtf(v)
        out[i, 1] = libdevice.fmaf(v, v, float32(1))
        out[i, 2] = libdevice.expf(v)
        out[i, 3] = libdevice.logf(v)
        out[i, 4] = libdevice.tanhf(v)
        out[i, 5] = libdevice.fmaxf(v, float32(1))
        sine, cosine = libdevice.sincosf(v)
        out[i, 6] = sine - cosine
        out[i, 7] = libdevice.erff(v)
        out[i, 8] = libdevice.saturatef(v)
        out[i, 9] = libdevice.exp2f(v)


@case(device_library, (1, 60), ANY, tolerance=1e-5, beyond_stock="no libdevice in the stock simulator")
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = np.abs(normal(generator, size)) + np.float32(0.1)
    v = x.astype(np.float64)
    columns = [v**-0.5, v * v + 1, np.exp(v), np.log(v), np.tanh(v), np.fmax(v, 1), np.sin(v) - np.cos(v)]
    columns += [[math.erf(a) for a in v], v.clip(0, 1), np.exp2(v)]
    expected = np.stack(columns, 1).astype(np.float32)
    return Case(blocks(size, threads), threads, (np.zeros_like(expected), x), {0: expected})


@cuda.jit
def bfloat16_storage(out, x, scale):
    """Keep bfloat16 as the upper half of a float32, rounded to the nearest even."""
    i = cuda.grid(1)
    if i < x.shape[0]:
        value = libdevice.int_as_float(int32(uint32(x[i]) << uint32(16))) * scale
        bits = uint32(libdevice.float_as_int(value))
        out[i] = (bits + uint32(0x7FFF) + ((bits >> uint32(16)) & uint32(1))) >> uint32(16)


@case(bfloat16_storage, (1, 70), ANY, beyond_stock="no libdevice in the stock simulator")
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = (normal(generator, size).view(np.uint32) >> 16).astype(np.uint16)
    value = (x.astype(np.uint32) << 16).view(np.float32) * np.float32(1.1)
    word = value.view(np.uint32)
    expected = ((word + 0x7FFF + ((word >> 16) & 1)) >> 16).astype(np.uint16)
    return Case(blocks(size, threads), threads, (np.zeros_like(x), x, np.float32(1.1)), {0: expected})


@cuda.jit
def inline_instructions(out, total, x):
    i = cuda.grid(1)
    a, b, c, d = load_float4(x, 4 * i)
    out[i] = a + b - c - d
    total[i] = warp_total(int32(i))


@case(inline_instructions, (1, 2), WARPS, beyond_stock="no inline instructions in the stock simulator")
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, 4 * size * threads)
    i = np.arange(size * threads, dtype=np.int32)
    sums = np.repeat(i.reshape(-1, 32).sum(1, dtype=np.int32), 32)
    args = (np.zeros(i.size, np.float32), np.zeros_like(i), x)
    return Case(size, threads, args, {0: x.reshape(-1, 4) @ np.array([1, 1, -1, -1], np.float32), 1: sums})


@cuda.jit
def double_precision(out, a, x):
    """Compute in float64 on purpose: it comes in with the arguments."""
    i = cuda.grid(1)
    if i < x.shape[0]:
        out[i] = math.sqrt(a * x[i] * x[i] + 0.1)


@case(double_precision, (1, 70), ANY, tolerance=1e-12)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.standard_normal(size)
    expected = np.sqrt(1.5 * x * x + 0.1)
    return Case(blocks(size, threads), threads, (np.zeros_like(x), np.float64(1.5), x), {0: expected})


# The language


@cuda.jit
def iteration(out, x, y):
    """Go through ranges backwards, through arrays by their elements, and out of a loop without end."""
    i = cuda.grid(1)
    if i >= out.shape[0]:
        return
    total = int64(len(x) + x.size * x.ndim)
    for k in range(10, 0, -3):
        total += k * i
    for k, value in enumerate(x):
        if k > 5:
            break
        total += value * k
    for a, b in zip(x, y):  # noqa: B905 (Numba's zip has no strict)
        total += a * b
    while True:
        total -= 1
        if total % 3 == 0:
            break
    if 3 < i <= 9 < 20:
        total = -total
    out[i] = total


@case(iteration, (1, 50), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x, y = (generator.integers(-99, 99, 8).astype(np.int32) for _ in range(2))
    i = np.arange(size)
    total = 8 + 8 + (10 + 7 + 4 + 1) * i + int(x[:6] @ np.arange(6)) + int(x @ y) - 1
    total -= total % 3
    expected = np.where((i > 3) & (i <= 9), -total, total)
    return Case(blocks(size, threads), threads, (np.zeros(size, np.int64), x, y), {0: expected})


@cuda.jit(device=True)
def find(row, wanted, first=0, step=1):
    """Return where ``wanted`` is and how many were looked at, or -1 and all of them."""
    looked = 0
    for k in range(first, row.shape[0], step):
        looked += 1
        if row[k] == wanted:
            return k, looked
    return -1, looked


@cuda.jit
def device_function_arguments(out, x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        out[i, 0], out[i, 1] = find(x[i], 3)
        out[i, 2], out[i, 3] = find(x[i], 3, step=2, first=1)
        out[i, 4] = max(find(x[i], 1, 4))


@case(device_function_arguments, (1, 70), ANY, beyond_stock="no keywords for device functions in the stock simulator")
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = generator.integers(0, 5, (size, 8)).astype(np.int32)

    def look(row: Array, wanted: int, first: int, step: int) -> tuple[int, int]:
        places = list(range(first, 8, step))
        hits = [n for n, k in enumerate(places) if row[k] == wanted]
        return (places[hits[0]], hits[0] + 1) if hits else (-1, len(places))

    rows = [(*look(row, 3, 0, 1), *look(row, 3, 1, 2), max(look(row, 1, 4, 1))) for row in x]
    expected = np.array(rows, np.int32)
    return Case(blocks(size, threads), threads, (np.zeros_like(expected), x), {0: expected})


@cuda.jit(device=True)
def reversed_in_block(value):
    """Return the value of the thread that mirrors this one in its block; the shared array is this function's own."""
    line = cuda.shared.array(shape=(MOST,), dtype=float32)
    line[cuda.threadIdx.x] = value
    cuda.syncthreads()
    mirrored = line[cuda.blockDim.x - 1 - cuda.threadIdx.x]
    cuda.syncthreads()
    return mirrored


@cuda.jit
def shared_in_a_device_function(out, x):
    line = cuda.shared.array(MOST, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    line[t] = x[i]
    out[i] = reversed_in_block(x[i]) + reversed_in_block(float32(t)) * line[t]


@case(shared_in_a_device_function, (1, 3), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    x = whole(generator, size, threads)
    expected = x[:, ::-1] + np.arange(threads, dtype=np.float32)[::-1] * x
    return Case(size, threads, (np.zeros(x.size, np.float32), x.ravel()), {0: expected.ravel()})


@cuda.jit
def empty_and_scalar_arrays(out, nothing, single):
    for k in range(nothing.shape[0]):
        out[k] = nothing[k]
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] += single[()]


@case(empty_and_scalar_arrays, (1, 40), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    args = (np.zeros(size, np.float32), np.zeros(0, np.float32), np.array(2.5, np.float32))
    return Case(blocks(size, threads), threads, args, {0: np.full(size, 2.5, np.float32)})


# Whole little programs


@cuda.jit
def monte_carlo_pi(inside, rounds):
    state = uint32(cuda.grid(1) + 1)
    hits = 0
    for _ in range(rounds):
        state = uint32(state * uint32(1664525) + uint32(1013904223))
        x = float32(state >> uint32(16)) / float32(65536)
        state = uint32(state * uint32(1664525) + uint32(1013904223))
        y = float32(state >> uint32(16)) / float32(65536)
        if x * x + y * y <= float32(1):
            hits += 1
    cuda.atomic.add(inside, 0, hits)


@case(monte_carlo_pi, (1, 20), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    state = np.arange(1, 2 * threads + 1, dtype=np.uint32)
    hits = 0
    for _ in range(size):
        point = []
        for _ in range(2):
            state = state * np.uint32(1664525) + np.uint32(1013904223)
            point.append((state >> np.uint32(16)).astype(np.float32) / np.float32(65536))
        hits += int((point[0] ** 2 + point[1] ** 2 <= 1).sum())
    return Case(2, threads, (np.zeros(1, np.int32), size), {0: np.array([hits], np.int32)})


@cuda.jit
def mandelbrot(out, left, top, step):
    j, i = cuda.grid(2)
    if i >= out.shape[0] or j >= out.shape[1]:
        return
    a, b = left + float32(j) * step, top - float32(i) * step
    x = y = float32(0)
    for n in range(20):
        x, y = x * x - y * y + a, x * y + x * y + b
        if x * x + y * y > float32(4):
            out[i, j] = n
            return
    out[i, j] = 20


@case(mandelbrot, (1, 20), (4, 8))
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    expected = np.full((size, 15), 20, np.int32)
    for i in range(size):
        for j in range(15):
            c, z = complex(-2 + j * 0.125, 1.25 - i * 0.125), 0j
            for n in range(20):
                z = z * z + c
                if z.real * z.real + z.imag * z.imag > 4:
                    expected[i, j] = n
                    break
    args = (np.zeros_like(expected), np.float32(-2), np.float32(1.25), np.float32(0.125))
    return Case((blocks(15, threads), blocks(size, threads)), (threads, threads), args, {0: expected})


@cuda.jit
def primes(out):
    """Search with for, else, break and continue."""
    i = cuda.grid(1)
    if i >= out.shape[0]:
        return
    out[i] = 0
    if i >= 2:
        for divisor in range(2, i):
            if divisor != 2 and divisor % 2 == 0:
                continue
            if i % divisor == 0:
                break
        else:
            out[i] = 1


@case(primes, (1, 80), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    expected = np.array([n > 1 and all(n % d for d in range(2, n)) for n in range(size)], np.int32)
    return Case(blocks(size, threads), threads, (np.zeros(size, np.int32),), {0: expected})


@cuda.jit
def greatest_divisor(out, a, b):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        x, y = a[i], b[i]
        while y:
            x, y = y, x % y
        out[i] = x


@case(greatest_divisor, (1, 80), ANY)
def _(generator: np.random.Generator, size: int, threads: int) -> Case:
    a, b = (generator.integers(1, 1000, size).astype(np.int32) for _ in range(2))
    return Case(1, threads, (np.zeros_like(a), a, b), {0: np.gcd(a, b)})
