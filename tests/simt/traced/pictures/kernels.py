"""Kernels that the tests of pictures draw, with some that all tests of traces have; each is plain from its lines."""

from numba import cuda, float32, float64, int32
from simt.traced.kernels import copy as copy
from simt.traced.kernels import exchanged as exchanged
from simt.traced.kernels import fields as fields
from simt.traced.kernels import nothing as nothing
from simt.traced.kernels import parted as parted
from simt.traced.kernels import product as product


@cuda.jit
def transposed(out, x):
    """Read by rows, write by columns."""
    j, i = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        out[j, i] = x[i, j]


@cuda.jit
def row_sum(out, x):
    """Sums of rows: a tree in shared memory."""
    partial = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    for column in range(t, x.shape[1], cuda.blockDim.x):
        total += x[cuda.blockIdx.x, column]
    partial[t] = total
    cuda.syncthreads()
    step = cuda.blockDim.x // 2
    while step > 0:
        if t < step:
            partial[t] += partial[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[cuda.blockIdx.x] = partial[0]


@cuda.jit
def cube(out, x):
    """Three axes, each thread one element."""
    k, j, i = cuda.grid(3)
    if i < x.shape[0] and j < x.shape[1] and k < x.shape[2]:
        out[i, j, k] = x[i, j, k]


@cuda.jit
def histogram(counts, x):
    """Atomics."""
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, x[i], 1)


@cuda.jit
def scalar(out, x):
    """An array without axes."""
    if cuda.threadIdx.x == 3:
        out[()] = x[()]


@cuda.jit
def both(x, y):
    """Two arrays that may overlap."""
    i = cuda.threadIdx.x
    y[i] = x[i]


@cuda.jit
def strided(out, x, step):
    """Loads ``step`` elements apart, and two of them on a line."""
    i = cuda.threadIdx.x
    out[i] = x[i * step] + x[0]


@cuda.jit
def banked(out, step):
    """Shared stores ``step`` words apart; a broadcast; 8 bytes a lane."""
    s = cuda.shared.array(1056, float32)
    d = cuda.shared.array(64, float64)
    i = cuda.threadIdx.x
    s[i * step] = float32(i)
    d[i] = float64(i)
    cuda.syncthreads()
    out[i] = s[i * step] + s[0] + float32(d[i])


@cuda.jit
def counted(out):
    """Shared atomics on one element."""
    s = cuda.shared.array(2, int32)
    i = cuda.threadIdx.x
    if i < 2:
        s[i] = 0
    cuda.syncthreads()
    cuda.atomic.add(s, 0, 1)
    cuda.syncthreads()
    out[i] = s[0]


@cuda.jit
def shared_histogram(counts, x):
    """Shared atomics on the elements that ``x`` says."""
    s = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    for k in range(t, 64, cuda.blockDim.x):
        s[k] = 0
    cuda.syncthreads()
    cuda.atomic.add(s, x[t], 1)
    cuda.syncthreads()
    counts[t] = s[t]


@cuda.jit
def uneven(out):
    """Warps with more and less to do before a barrier; lanes that part."""
    i = cuda.threadIdx.x
    total = float32(0)
    for _ in range(i // 8):
        total += float32(1)
    cuda.syncthreads()
    if i % 2 == 0:
        total += float32(2)
        total *= float32(3)
    else:
        total -= float32(1)
    cuda.syncthreads()
    out[i] = total


@cuda.jit
def four_axes(out):
    """One thread for each pair of the first two axes."""
    i = cuda.threadIdx.x
    j = cuda.threadIdx.y
    for k in range(out.shape[2]):
        for n in range(out.shape[3]):
            out[i, j, k, n] = i


@cuda.jit
def shifted(x, step):
    """Each thread reads one element and writes another."""
    i = cuda.grid(1)
    if i + step < x.size:
        x[i + step] = x[i]


@cuda.jit
def sums(x, y):
    """``x < y & "z"``: text that has to be escaped ]]> <b>."""
    i = cuda.threadIdx.x
    if x[i] < 2 and "<&>" != "\"'":  # <script>alert("&")</script> ]]>
        y[i] += x[i]  # a < b & c > "d" ]]> é 漢


@cuda.jit
def large(x):
    """Few elements of a large array."""
    i = cuda.threadIdx.x
    x[50000 + 7 * i] = i


@cuda.jit
def wide(x):
    """Elements all over a large array."""
    i = cuda.threadIdx.x
    x[i * 1000] = i


@cuda.jit(device=True)
def loaded(x, i):
    """Load in another function."""
    return x[i]


@cuda.jit
def calling(out, x, y):
    """One instruction that comes to two arrays."""
    i = cuda.threadIdx.x
    out[i] = loaded(x, i) + loaded(y, i)


@cuda.jit
def two_tiles(out):
    """Two shared arrays of one name, and a local one."""
    i = cuda.threadIdx.x
    s = cuda.shared.array(4, float32)
    mine = cuda.local.array(2, float32)
    s[i % 4] = i
    mine[0] = i
    s = cuda.shared.array((2, 2), float32)
    s[i % 2, 0] = mine[0]
    out[i] = s[0, 0]


@cuda.jit
def gathered(out, x, where):
    """Loads from wherever ``where`` says."""
    i = cuda.threadIdx.x
    if where[i] >= 0:
        out[i] = x[where[i]]


@cuda.jit
def many_barriers(out, rounds):
    """Barriers, and shuffles that some lanes do."""
    s = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    s[i] = i
    for k in range(rounds):
        cuda.syncthreads()
        if i < 32:
            out[i] = cuda.shfl_xor_sync(0xFFFFFFFF, s[i], k % 32)
            cuda.syncwarp(0xFFFFFFFF)
    out[i] = s[i]


@cuda.jit
def missing(out):
    """A shuffle that names lanes which wait at a barrier."""
    i = cuda.threadIdx.x
    if i < 4:
        out[i] = cuda.shfl_sync(0xFFFFFFFF, i, 0)
    cuda.syncthreads()


@cuda.jit
def early(out):
    """Threads that end before a barrier of the others' device function."""
    i = cuda.threadIdx.x
    out[i] = waiting(out, i)
    if i % 2:
        return
    out[i] = 0


@cuda.jit(device=True)
def waiting(out, i):
    """A barrier in a function."""
    if i < 8:
        out[i] += 1
    cuda.syncthreads()
    return out[i] + 1


@cuda.jit
def leaving_marks(x):
    """Writes, then reads elsewhere, then reads all, then goes back to the first."""
    i = cuda.threadIdx.x
    x[i] = float32(1)
    a = x[i + 4]
    b = x[i] + x[i + 4]
    x[i] = float32(2)
    a += x[i + 4]
    if a > b:
        cuda.syncthreads()


@cuda.jit
def transposing(out, x):
    """Through a tile that is written by rows and read by columns."""
    tile = cuda.shared.array((4, 4), float32)
    j = cuda.threadIdx.x
    i = cuda.threadIdx.y
    tile[i, j] = x[i, j]
    cuda.syncthreads()
    out[i, j] = tile[j, i]


@cuda.jit
def mirrored(x):
    """Each thread writes an element and reads the one on the other side of the diagonal."""
    j, i = cuda.grid(2)
    x[i, j] = 1
    if x[j, i] < 0:
        x[i, j] = 2


@cuda.jit
def rewritten(x, rounds):
    """All elements, again and again."""
    i = cuda.grid(1)
    for k in range(rounds):
        x[i // 64, i % 64] = k
