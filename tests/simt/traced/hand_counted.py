"""Small kernels whose memory transactions are counted by hand, in the comment above each.

A sector has 32 bytes, a bank 4, and memory of an argument starts at a multiple of 256 bytes. The numbers in ``CASES``
come from the comments, never from a run. The kernels run as they are on a GPU too, for a profiler to compare.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import complex64, complex128, cuda, float32, float64, int32, types, uint8
from simt.kernels.intrinsics import load_float4

NONE = (0, 0, 0)


@dataclass(frozen=True)
class Case:
    """A launch and its counts.

    Of global memory (requests, sectors, bytes asked for) by loads, stores, atomics, and ``used``, the share of the
    bytes moved by loads and stores that was asked for; of shared memory (requests, wavefronts, conflicts) by the same.
    """

    kernel: Any
    block: int | tuple[int, ...]
    args: Callable[[], tuple]
    loads: tuple[int, int, int] = NONE
    stores: tuple[int, int, int] = NONE
    atomics: tuple[int, int, int] = NONE
    used: float = 1.0
    shared_loads: tuple[int, int, int] = NONE
    shared_stores: tuple[int, int, int] = NONE
    shared_atomics: tuple[int, int, int] = NONE


CASES: dict[str, Case] = {}


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


def pair(n: int, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Return an output and an input of n elements."""
    return np.zeros(n, dtype), np.ones(n, dtype)


# Global memory: elements side by side ------------------------------------------------------------------------------


# 32 lanes want 32 * 4 = 128 bytes from 0 on: sectors 0 to 3. So do the stores.
@cuda.jit
def copy(out, x):
    i = cuda.grid(1)
    out[i] = x[i]


CASES["float32"] = Case(copy, 32, lambda: pair(32), loads=(1, 4, 128), stores=(1, 4, 128))
# 32 * 8 = 256 bytes, 8 sectors.
CASES["float64"] = Case(copy, 32, lambda: pair(32, np.float64), loads=(1, 8, 256), stores=(1, 8, 256))
# 32 * 1 byte: one sector.
CASES["uint8"] = Case(copy, 32, lambda: pair(32, np.uint8), loads=(1, 1, 32), stores=(1, 1, 32))
# 32 * 2 bytes: two sectors.
CASES["float16"] = Case(copy, 32, lambda: pair(32, np.float16), loads=(1, 2, 64), stores=(1, 2, 64))
# 256 bytes lie in 8 sectors, and two instructions go over them: real parts are bytes 0-3 of every 8, imaginary ones
# 4-7. So 2 requests with 8 sectors and 128 bytes each: half of what is moved is used by each.
CASES["complex64"] = Case(copy, 32, lambda: pair(32, np.complex64), loads=(2, 16, 256), stores=(2, 16, 256), used=0.5)
# 512 bytes, 16 sectors; two instructions with 8 bytes of every 16: 2 requests, 32 sectors, 512 bytes.
CASES["complex128"] = Case(copy, 32, lambda: pair(32, np.complex128), loads=(2, 32, 512), stores=(2, 32, 512), used=0.5)
# 40 threads: a warp of 32 lanes with 128 bytes in 4 sectors, and one of 8 lanes with 32 bytes in 1.
CASES["partial warp"] = Case(copy, 40, lambda: pair(40), loads=(2, 5, 160), stores=(2, 5, 160))
# A slice from element 1 on: bytes 4 to 131 of its memory, sectors 0 to 4: 5 loads' sectors, 128 of 160 bytes used.
# With the stores' 4 sectors: 256 of 288.
CASES["slice from 1"] = Case(
    copy, 32, lambda: (zeros(32), zeros(33)[1:]), loads=(1, 5, 128), stores=(1, 4, 128), used=256 / 288
)
# A slice from element 8 on: bytes 32 to 159, sectors 1 to 4: no more than without a slice.
CASES["slice from 8"] = Case(copy, 32, lambda: (zeros(32), zeros(40)[8:]), loads=(1, 4, 128), stores=(1, 4, 128))
# A slice of bytes from 1 on: bytes 1 to 32, sectors 0 and 1. 32 of 64 bytes used; with the stores 64 of 96.
CASES["bytes from 1"] = Case(
    copy,
    32,
    lambda: (zeros(32, dtype=np.uint8), zeros(33, dtype=np.uint8)[1:]),
    loads=(1, 2, 32),
    stores=(1, 1, 32),
    used=64 / 96,
)
# Backwards: x[::-1] makes lane 0 read the last of 32 elements. The same 128 bytes, the same 4 sectors.
CASES["reversed"] = Case(copy, 32, lambda: (zeros(32), zeros(32)[::-1]), loads=(1, 4, 128), stores=(1, 4, 128))
# Every second element of x, as a slice: bytes 8 i to 8 i + 3, up to 251: 8 sectors for 128 bytes.
# With the stores' 4 sectors 256 of 384 bytes are used.
CASES["slice by 2"] = Case(
    copy, 32, lambda: (zeros(32), zeros(64)[::2]), loads=(1, 8, 128), stores=(1, 4, 128), used=256 / 384
)


# Global memory: elements further apart ------------------------------------------------------------------------------


# As "slice by 2", from inside the kernel.
@cuda.jit
def every_second(out, x):
    i = cuda.grid(1)
    out[i] = x[2 * i]


CASES["stride 2"] = Case(
    every_second, 32, lambda: (zeros(32), zeros(64)), loads=(1, 8, 128), stores=(1, 4, 128), used=256 / 384
)


# 128 bytes apart: each lane in a sector of its own, 32 sectors = 1024 bytes for 128. With the stores 256 of 1152.
@cuda.jit
def every_32nd(out, x):
    i = cuda.grid(1)
    out[i] = x[32 * i]


CASES["stride 32"] = Case(
    every_32nd, 32, lambda: (zeros(32), zeros(1024)), loads=(1, 32, 128), stores=(1, 4, 128), used=256 / 1152
)


# Elements 1 to 32: bytes 4 to 131, sectors 0 to 4.
@cuda.jit
def next_one(out, x):
    i = cuda.grid(1)
    out[i] = x[i + 1]


CASES["shifted by 1"] = Case(
    next_one, 32, lambda: (zeros(32), zeros(33)), loads=(1, 5, 128), stores=(1, 4, 128), used=256 / 288
)


# A block of 32 x 2: two warps, the second in row 1. A row of 32 elements is 128 bytes: 4 sectors for each warp.
@cuda.jit
def along_rows(out, x):
    i = cuda.threadIdx.x
    j = cuda.threadIdx.y
    out[j, i] = x[j, i]


CASES["rows"] = Case(along_rows, (32, 2), lambda: (zeros(2, 32), zeros(2, 32)), loads=(2, 8, 256), stores=(2, 8, 256))
# A block of 8 x 4, one warp: lanes 0-7 in row 0, 8-15 in row 1 ... Rows of 8 elements: 32 bytes, a sector each: 4.
CASES["four short rows"] = Case(
    along_rows, (8, 4), lambda: (zeros(4, 8), zeros(4, 8)), loads=(1, 4, 128), stores=(1, 4, 128)
)
# The same, but rows of 9 elements, 36 bytes: row j has bytes 36 j to 36 j + 31: 0-31, 36-67, 72-103, 108-139.
# Sectors 0; 1, 2; 2, 3; 3, 4: together 0 to 4, five. So 128 of 160 bytes, and as much for the stores.
CASES["four rows of 9"] = Case(
    along_rows, (8, 4), lambda: (zeros(4, 9), zeros(4, 9)), loads=(1, 5, 128), stores=(1, 5, 128), used=0.8
)


# Lane i in row i of 32 float32: 128 bytes apart, 32 sectors. The stores are side by side.
@cuda.jit
def down_a_column(out, x):
    i = cuda.threadIdx.x
    out[i] = x[i, 3]


CASES["column"] = Case(
    down_a_column, 32, lambda: (zeros(32), zeros(32, 32)), loads=(1, 32, 128), stores=(1, 4, 128), used=256 / 1152
)
# In Fortran's order a column lies together: column 3 has bytes 384 to 511, sectors 12 to 15.
CASES["column in Fortran's order"] = Case(
    down_a_column, 32, lambda: (zeros(32), zeros(32, 32).T), loads=(1, 4, 128), stores=(1, 4, 128)
)


# All lanes want the same 4 bytes: one sector of 32 bytes, 4 asked for. With the stores' 128 bytes: 132 of 160.
@cuda.jit
def first_for_all(out, x):
    i = cuda.threadIdx.x
    out[i] = x[0]


CASES["broadcast"] = Case(first_for_all, 32, lambda: pair(32), loads=(1, 1, 4), stores=(1, 4, 128), used=132 / 160)


# The indices are 32 int64: 256 bytes, 8 sectors. What they look up is a permutation of 32 elements: 4 sectors,
# whatever the order. Loads: 2 requests, 12 sectors, 384 bytes.
@cuda.jit
def gather(out, x, index):
    i = cuda.threadIdx.x
    out[i] = x[index[i]]


SHUFFLED = 7 * np.arange(32) % 32
CASES["gather nearby"] = Case(
    gather, 32, lambda: (zeros(32), zeros(32), SHUFFLED.copy()), loads=(2, 12, 384), stores=(1, 4, 128)
)
# Elements 8 * permutation are each in a sector of their own: 8 + 32 = 40 sectors for 256 + 128 bytes.
# With the stores 512 of 44 * 32 = 1408 bytes.
CASES["gather far apart"] = Case(
    gather,
    32,
    lambda: (zeros(32), zeros(256), 8 * SHUFFLED),
    loads=(2, 40, 384),
    stores=(1, 4, 128),
    used=512 / 1408,
)

# Records of three float32, 12 bytes: 32 of them are 384 bytes, 12 sectors.
FIELDS = [("x", np.float32), ("y", np.float32), ("z", np.float32)]
POINT, PACKED_POINT = np.dtype(FIELDS, align=True), np.dtype(FIELDS)


# Lane i wants bytes 12 i to 12 i + 3 (y: 4 further on, z: 8), 8 bytes between two: all 12 sectors, three times.
# 3 requests, 36 sectors = 1152 bytes, 384 asked for. With the stores (4 sectors, 128 bytes): 512 of 1280.
@cuda.jit
def array_of_structures(out, p):
    i = cuda.threadIdx.x
    out[i] = p[i].x + p[i].y + p[i].z


CASES["array of structures"] = Case(
    array_of_structures,
    32,
    lambda: (zeros(32), zeros(32, dtype=POINT)),
    loads=(3, 36, 384),
    stores=(1, 4, 128),
    used=512 / 1280,
)


# Packed records are moved byte by byte: 4 requests for each field, with a byte of every 12, so again all 12 sectors.
# 12 requests, 144 sectors = 4608 bytes for 384. With the stores 512 of 4736.
CASES["packed structures"] = Case(
    array_of_structures,
    32,
    lambda: (zeros(32), zeros(32, dtype=PACKED_POINT)),
    loads=(12, 144, 384),
    stores=(1, 4, 128),
    used=512 / 4736,
)


# Three arrays side by side: 3 requests of 4 sectors, all used.
@cuda.jit
def structure_of_arrays(out, x, y, z):
    i = cuda.threadIdx.x
    out[i] = x[i] + y[i] + z[i]


CASES["structure of arrays"] = Case(
    structure_of_arrays,
    32,
    lambda: (zeros(32), zeros(32), zeros(32), zeros(32)),
    loads=(3, 12, 384),
    stores=(1, 4, 128),
)


# One instruction with 16 bytes a lane: 512 bytes, 16 sectors. Then four stores, lane i at 16 i (+ 4, 8, 12): each over
# all 16 sectors for 128 bytes. Loads 512 of 512 bytes, stores 512 of 2048: together 1024 of 2560.
@cuda.jit
def by_fours(out, x):
    i = cuda.threadIdx.x
    a, b, c, d = load_float4(x, 4 * i)
    out[4 * i] = a
    out[4 * i + 1] = b
    out[4 * i + 2] = c
    out[4 * i + 3] = d


CASES["vector of 4"] = Case(by_fours, 32, lambda: pair(128), loads=(1, 16, 512), stores=(4, 64, 512), used=1024 / 2560)


# Branches and atomics -----------------------------------------------------------------------------------------------


# Lanes 0-15 go one way with 64 bytes in 2 sectors, then 16-31 the other, with as many: 2 requests each way in and out.
@cuda.jit
def two_half_warps(out, x):
    i = cuda.threadIdx.x
    if i < 16:
        out[i] = x[i]
    else:
        out[i] = -x[i]


CASES["two half warps"] = Case(two_half_warps, 32, lambda: pair(32), loads=(2, 4, 128), stores=(2, 4, 128))


# Even lanes, then odd ones: each way every second element of 128 bytes, so 4 sectors for 64 bytes, twice.
@cuda.jit
def even_and_odd(out, x):
    i = cuda.threadIdx.x
    if i % 2 == 0:
        out[i] = x[i]
    else:
        out[i] = -x[i]


CASES["even and odd lanes"] = Case(even_and_odd, 32, lambda: pair(32), loads=(2, 8, 128), stores=(2, 8, 128), used=0.5)


# 32 lanes add to one element: one request, one sector, 4 bytes.
@cuda.jit
def count_all(out):
    cuda.atomic.add(out, 0, float32(1))


CASES["atomics on one address"] = Case(count_all, 32, lambda: (zeros(1),), atomics=(1, 1, 4))


# Each lane adds to an element of its own: 128 bytes, 4 sectors.
@cuda.jit
def count_each(out):
    cuda.atomic.add(out, cuda.threadIdx.x, float32(1))


CASES["atomics side by side"] = Case(count_each, 32, lambda: (zeros(32),), atomics=(1, 4, 128))


# Shared memory ------------------------------------------------------------------------------------------------------


# 32 warps. Row y of the tile is 32 words, one in each bank: 1 wavefront. Column x: words 32 apart, all in bank x:
# 32 wavefronts, 31 more than needed, 32 times. Global memory goes by rows: 4 sectors a warp, in and out.
@cuda.jit
def transpose(out, x):
    tile = cuda.shared.array((32, 32), float32)
    i = cuda.threadIdx.x
    j = cuda.threadIdx.y
    tile[j, i] = x[j, i]
    cuda.syncthreads()
    out[j, i] = tile[i, j]


CASES["tile"] = Case(
    transpose,
    (32, 32),
    lambda: (zeros(32, 32), zeros(32, 32)),
    loads=(32, 128, 4096),
    stores=(32, 128, 4096),
    shared_loads=(32, 1024, 992),
    shared_stores=(32, 32, 0),
)


# Rows of 33 words: down a column words are 33 apart, so in banks one after the other: 1 wavefront.
@cuda.jit
def transpose_padded(out, x):
    tile = cuda.shared.array((32, 33), float32)
    i = cuda.threadIdx.x
    j = cuda.threadIdx.y
    tile[j, i] = x[j, i]
    cuda.syncthreads()
    out[j, i] = tile[i, j]


CASES["padded tile"] = Case(
    transpose_padded,
    (32, 32),
    lambda: (zeros(32, 32), zeros(32, 32)),
    loads=(32, 128, 4096),
    stores=(32, 128, 4096),
    shared_loads=(32, 32, 0),
    shared_stores=(32, 32, 0),
)


# In shared memory both parts of a complex64 go at once, 8 bytes a lane. 16 lanes fill all 32 banks, forwards as
# backwards, so two half warps, 2 wavefronts: the least. In global memory: 2 requests, 8 sectors each, half used.
@cuda.jit
def backwards(out, x):
    s = cuda.shared.array(32, complex64)
    i = cuda.threadIdx.x
    s[i] = x[i]
    cuda.syncthreads()
    out[i] = s[31 - i]


CASES["shared complex64"] = Case(
    backwards,
    32,
    lambda: pair(32, np.complex64),
    loads=(2, 16, 256),
    stores=(2, 16, 256),
    used=0.5,
    shared_loads=(1, 2, 0),
    shared_stores=(1, 2, 0),
)


def through_shared(kind: Any, size: int, index: Callable) -> Any:
    """Return a kernel whose lanes store side by side in shared memory and load from ``index`` of their number."""

    @cuda.jit
    def kernel(out, x):
        s = cuda.shared.array(size, kind)
        i = cuda.threadIdx.x
        for n in range(i, size, 32):
            s[n] = x[n]
        cuda.syncthreads()
        out[i] = s[index(i)]

    return kernel


@cuda.jit(device=True)
def same(i):
    return i


@cuda.jit(device=True)
def doubled(i):
    return 2 * i


@cuda.jit(device=True)
def zero(i):
    return 0


@cuda.jit(device=True)
def half(i):
    return i // 16


@cuda.jit(device=True)
def fourfold(i):
    return 4 * i


# All lanes want word 0: broadcast, 1 wavefront. (Global: 128 bytes in and out.)
CASES["shared broadcast"] = Case(
    through_shared(float32, 32, zero),
    32,
    lambda: pair(32),
    loads=(1, 4, 128),
    stores=(1, 4, 128),
    shared_loads=(1, 1, 0),
    shared_stores=(1, 1, 0),
)
# Half the lanes want word 0, half word 1, two banks: 1 wavefront.
CASES["shared, two words"] = Case(
    through_shared(float32, 32, half),
    32,
    lambda: pair(32),
    loads=(1, 4, 128),
    stores=(1, 4, 128),
    shared_loads=(1, 1, 0),
    shared_stores=(1, 1, 0),
)
# Words 0, 2 ... 62: the 16 even banks have two each: 2 wavefronts. 64 elements are stored in two rounds.
CASES["shared stride 2"] = Case(
    through_shared(float32, 64, doubled),
    32,
    lambda: (zeros(32), zeros(64)),
    loads=(2, 8, 256),
    stores=(1, 4, 128),
    shared_loads=(1, 2, 1),
    shared_stores=(2, 2, 0),
)
# 8 bytes a lane: 16 lanes fill all 32 banks, so two half warps, 2 wavefronts: the least.
CASES["shared float64"] = Case(
    through_shared(float64, 32, same),
    32,
    lambda: pair(32, np.float64),
    loads=(1, 8, 256),
    stores=(1, 8, 256),
    shared_loads=(1, 2, 0),
    shared_stores=(1, 2, 0),
)
# In a half warp lane i has words 4 i and 4 i + 1: lanes i and i + 8 share their banks. 2 wavefronts for each half, 4;
# the least is 2.
CASES["shared float64 stride 2"] = Case(
    through_shared(float64, 64, doubled),
    32,
    lambda: (zeros(32, dtype=np.float64), zeros(64, dtype=np.float64)),
    loads=(2, 16, 512),
    stores=(1, 8, 256),
    shared_loads=(1, 4, 2),
    shared_stores=(2, 4, 0),
)
# 16 bytes a lane: 8 lanes fill all banks, four quarters, 4 wavefronts.
CASES["shared complex128"] = Case(
    through_shared(complex128, 32, same),
    32,
    lambda: pair(32, np.complex128),
    loads=(2, 32, 512),
    stores=(2, 32, 512),
    used=0.5,
    shared_loads=(1, 4, 0),
    shared_stores=(1, 4, 0),
)
# In a quarter lane i has words 8 i to 8 i + 3: lanes i and i + 4 share their banks. 2 wavefronts for each quarter: 8.
# Elements: 64 * 16 bytes are loaded in two rounds, 32 sectors each, and stored in shared memory with 4 wavefronts each.
CASES["shared complex128 stride 2"] = Case(
    through_shared(complex128, 64, doubled),
    32,
    lambda: (zeros(32, dtype=np.complex128), zeros(64, dtype=np.complex128)),
    loads=(4, 64, 1024),
    stores=(2, 32, 512),
    used=0.5,
    shared_loads=(1, 8, 4),
    shared_stores=(2, 8, 0),
)
# 32 bytes are 8 words, each wanted by 4 lanes: no two words of a bank. Stores of bytes of one word do not conflict.
CASES["shared uint8"] = Case(
    through_shared(uint8, 32, same),
    32,
    lambda: pair(32, np.uint8),
    loads=(1, 1, 32),
    stores=(1, 1, 32),
    shared_loads=(1, 1, 0),
    shared_stores=(1, 1, 0),
)
# Byte 4 i is in word i, in bank i: no conflict. 128 bytes are stored in four rounds of 32 bytes, a sector each.
CASES["shared uint8 stride 4"] = Case(
    through_shared(uint8, 128, fourfold),
    32,
    lambda: (zeros(32, dtype=np.uint8), zeros(128, dtype=np.uint8)),
    loads=(4, 4, 128),
    stores=(1, 1, 32),
    shared_loads=(1, 1, 0),
    shared_stores=(4, 4, 0),
)
# float16 2 i is in word i: no conflict. 64 elements in two rounds of 64 bytes, 2 sectors each.
CASES["shared float16 stride 2"] = Case(
    through_shared(types.float16, 64, doubled),
    32,
    lambda: (zeros(32, dtype=np.float16), zeros(64, dtype=np.float16)),
    loads=(2, 4, 128),
    stores=(1, 2, 64),
    shared_loads=(1, 1, 0),
    shared_stores=(2, 2, 0),
)
# float16 4 i is in word 2 i: two words in each even bank, 2 wavefronts. 128 elements in four rounds.
CASES["shared float16 stride 4"] = Case(
    through_shared(types.float16, 128, fourfold),
    32,
    lambda: (zeros(32, dtype=np.float16), zeros(128, dtype=np.float16)),
    loads=(4, 8, 256),
    stores=(1, 2, 64),
    shared_loads=(1, 2, 1),
    shared_stores=(4, 4, 0),
)


# Lane 0 stores one word: 1 wavefront. Then 32 atomics on this word, one after the other: 32 wavefronts, 31 too many.
# Lane 0 loads and stores the sum: one word, one sector, 4 of 32 bytes.
@cuda.jit
def count_in_shared(out):
    counter = cuda.shared.array(1, int32)
    i = cuda.threadIdx.x
    if i == 0:
        counter[0] = 0
    cuda.syncthreads()
    cuda.atomic.add(counter, 0, 1)
    cuda.syncthreads()
    if i == 0:
        out[0] = counter[0]


CASES["shared atomics on one word"] = Case(
    count_in_shared,
    32,
    lambda: (zeros(1, dtype=np.int32),),
    stores=(1, 1, 4),
    used=0.125,
    shared_loads=(1, 1, 0),
    shared_stores=(1, 1, 0),
    shared_atomics=(1, 32, 31),
)


# 32 counters, a bank each: 1 wavefront for all 32 atomics. Each lane stores, updates and loads its own.
@cuda.jit
def count_apart_in_shared(out):
    counters = cuda.shared.array(32, int32)
    i = cuda.threadIdx.x
    counters[i] = 0
    cuda.atomic.add(counters, i, 1)
    out[i] = counters[i]


CASES["shared atomics apart"] = Case(
    count_apart_in_shared,
    32,
    lambda: (zeros(32, dtype=np.int32),),
    stores=(1, 4, 128),
    shared_loads=(1, 1, 0),
    shared_stores=(1, 1, 0),
    shared_atomics=(1, 1, 0),
)
