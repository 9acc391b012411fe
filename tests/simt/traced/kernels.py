"""Kernels that the tests of traces run; what each does is plain from its lines."""

import numpy as np
from numba import cuda, float32, int32

TILE = 4
TABLE = np.array([1, 10], np.float32)


@cuda.jit
def copy(out, x):
    """Copy, with a guard."""
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i]


@cuda.jit
def product(c, a, b):
    """A matrix product by square tiles of TILE."""
    ta = cuda.shared.array((TILE, TILE), float32)
    tb = cuda.shared.array((TILE, TILE), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    row = cuda.blockIdx.y * TILE + ty
    column = cuda.blockIdx.x * TILE + tx
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        ta[ty, tx] = a[row, start + tx]
        tb[ty, tx] = b[start + ty, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += ta[ty, k] * tb[k, tx]
        cuda.syncthreads()
    c[row, column] = total


@cuda.jit(device=True)
def clipped(x, i):
    """Return early for some lanes."""
    if x[i] > float32(3):
        return float32(3)
    return x[i]


@cuda.jit
def ways(out, x):
    """Branches, a ``while``, a device function called twice on a line, an early end, an atomic."""
    i = cuda.threadIdx.x
    if i >= x.size:
        return
    n = int32(0)
    while n < i % 3:
        out[i] += float32(1)
        n += 1
    if i % 2 == 0:
        out[i] += clipped(x, i) * clipped(x, 0)
    else:
        cuda.atomic.add(out, x.size, float32(1))


@cuda.jit
def leaving(out, x):
    """Loops that lanes leave, or go on with, at different rounds."""
    i = cuda.threadIdx.x
    for k in range(4):
        if k == i:
            continue
        if k > i:
            break
        out[i, k] = x[k]
    out[i, 4] = x[4]


@cuda.jit
def rows(out, starts, x):
    """A loop whose bounds are loaded: sums of rows of a sparse matrix."""
    i = cuda.threadIdx.x
    total = float32(0)
    for k in range(starts[i], starts[i + 1]):
        total += x[k]
    out[i] = total


@cuda.jit
def exchanged(out, x):
    """A sum over the warp by shuffles, and a vote."""
    i = cuda.threadIdx.x
    value = x[i]
    step = 16
    while step > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
        step //= 2
    if cuda.any_sync(0xFFFFFFFF, i == 7):
        out[i] = value


@cuda.jit
def unordered(out):
    """A race: the barrier is missing."""
    s = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    s[i] = float32(i)
    out[i] = s[63 - i]


@cuda.jit
def parted(out):
    """A barrier that some threads never come to."""
    i = cuda.threadIdx.x
    out[i] = float32(1)
    if i < 3:
        cuda.syncthreads()
    out[i] = float32(2)


@cuda.jit
def sliced(out, x):
    """Whole rows at once: several elements by one instruction of a thread."""
    i = cuda.threadIdx.x
    row = cuda.local.array(3, float32)
    for k in range(3):
        row[k] = x[i, k]
    out[i, :] = row[:]


@cuda.jit
def fields(out, points):
    """Fields of records."""
    i = cuda.threadIdx.x
    out[i] = points[i].x + points[i].y


@cuda.jit
def nothing(x):
    """No access at all."""
    x.size  # noqa: B018


@cuda.jit
def arithmetic(out, x):
    """One of each kind that is counted."""
    i = cuda.threadIdx.x
    a = x[i] * x[i] + x[i] / float32(2) - float32(1)
    b = cuda.fma(a, a, a)
    n = i * 3 + 1
    if a < b:
        out[i] = max(a, b) + float32(n)


@cuda.jit
def scaled_by_table(out, x):
    """A table that is compiled into the kernel."""
    i = cuda.threadIdx.x
    out[i] = x[i] * TABLE[i % 2]


@cuda.jit
def reversed_rows(out, x):
    """Turn 64 elements round through shared memory."""
    s = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    s[i] = x[i]
    cuda.syncthreads()
    out[i] = s[63 - i]


@cuda.jit
def strided(out, x):
    """Touch every fifth element."""
    i = cuda.threadIdx.x * 5
    out[i] = x[i]


@cuda.jit
def strided_through_tile(out, x):
    """Loads 5 elements apart, and words of shared memory 8 apart."""
    s = cuda.shared.array(256, float32)
    i = cuda.threadIdx.x
    s[i * 8] = x[i * 5]
    cuda.syncthreads()
    out[i] = s[i * 8]


@cuda.jit
def columns(out, x):
    """Sum rows, a thread each: its lanes read down a column."""
    i = cuda.threadIdx.x
    total = float32(0)
    for k in range(x.shape[1]):
        total += x[i, k]
    out[i] = total


@cuda.jit
def histogram(out, x):
    """Count numbers into few bins."""
    i = cuda.threadIdx.x
    cuda.atomic.add(out, x[i] % out.size, 1)


@cuda.jit(device=True)
def doubled(x, i):
    """Go through a local array and a shared one, of the same names as another function's."""
    row = cuda.local.array(2, float32)
    tile = cuda.shared.array(4, float32)
    row[0] = x[i]
    tile[i] = row[0]
    cuda.syncthreads()
    return tile[3 - i] + tile[3 - i]


@cuda.jit
def namesakes(out, x):
    """Have arrays called as those of a function that it calls."""
    i = cuda.threadIdx.x
    row = cuda.local.array(2, float32)
    tile = cuda.shared.array(4, float32)
    row[1] = x[i]
    tile[i] = row[1]
    cuda.syncthreads()
    out[i] = doubled(x, i) + tile[i]


@cuda.jit
def two_kinds(out, x):
    """See one dynamic shared memory as float32 and as its bits; some threads fail an assertion."""
    i = cuda.threadIdx.x
    numbers = cuda.shared.array(0, float32)
    bits = cuda.shared.array(0, int32)
    numbers[i] = x[i]
    cuda.syncthreads()
    out[i] = bits[i]


@cuda.jit
def asserted(out, x):
    """Some threads fail an assertion."""
    i = cuda.threadIdx.x
    assert x[i] < float32(3)
    out[i] = x[i]


@cuda.jit
def over_elements(out, x, y):
    """Loops over the elements of arrays, some lanes by another way through their rounds."""
    i = cuda.threadIdx.x
    total = float32(0)
    for value in x:
        if value > float32(i):
            if value > float32(2):
                continue
            total += value
        total += float32(1)
    for n, value in enumerate(y):
        if n % 2 == i % 2:
            continue
        total += value
    out[i] = total


@cuda.jit(device=True)
def weighted(x, i, factor=1, other=0):
    """Take arguments by keyword."""
    return x[i] * factor + other


@cuda.jit
def ordered(out, x, points):
    """Expressions whose parts are not evaluated from left to right."""
    i = cuda.threadIdx.x
    out[i] = x[i + 1] if x[i] > float32(0) else x[i + 2]
    points[i32(x[i])].y += x[i + 3]
    out[i] += weighted(x, i, other=x[i + 1], factor=x[i + 2])


@cuda.jit(device=True)
def i32(value):
    """Return an index."""
    return int32(value)


@cuda.jit
def counting(out, n):
    """A long loop without an access."""
    total = int32(0)
    for k in range(n):
        total += int32(k)
    out[cuda.threadIdx.x] = total


def table_of(values):
    """Return a device function with a table of its own."""
    table = np.array(values, np.float32)

    @cuda.jit(device=True)
    def looked_up(i):
        return table[i]

    return looked_up


one, other = table_of([1, 2]), table_of([30, 40])


@cuda.jit
def two_tables(out):
    """Two tables of one name."""
    i = cuda.threadIdx.x
    out[i] = one(i) + other(i)


@cuda.jit(device=True)
def filled(row, value):
    """Fill a row and return its sum."""
    row[0] = value
    row[1] = value
    return row[0] + row[1]


@cuda.jit
def unnamed(out, x):
    """Hand on a local array that has no name."""
    i = cuda.threadIdx.x
    out[i] = filled(cuda.local.array(2, float32), x[i])
