"""The ladder of the linear layer's forward, one idea at a time; float32, see :mod:`nanoeuler.cpu.linear`.

A product reads two numbers for every multiply-add. All that follows is about where from. In one cycle a multiprocessor
of an H200 can do 128 multiply-adds, read 32 numbers from shared memory, and have its share of global memory's: five.

===============  ========================  ====================  ==================================================
version          elements read from        elements read from    idea
                 global memory for each    shared memory for
                 multiply-add              each multiply-add
===============  ========================  ====================  ==================================================
1 naive          2, strided                0                     a thread for each element of ``out``
2 coalesced      2                         0                     a warp for each, neighbours read neighbours
3 shared tiles   1 / 8 + 1 / 32            2, in conflict        a block shares what it has read
4 padded tiles   1 / 8 + 1 / 32            2                     a tile's columns spread over the banks
5 register row   2 / 32                    1 + 1 / 8             8 elements a thread use one number of ``weight``
6 registers      2 / 64                    2 / 4                 4 x 4 elements a thread use 4 numbers of each
7 in use         2 / 128                   2 / 8, four at once   8 x 8; the next tile is on its way meanwhile
===============  ========================  ====================  ==================================================

1. Neighbouring threads have neighbouring rows of ``x``, whose elements are I apart: each load of a warp fetches up to
   16 pieces of 32 bytes for the sake of 4 bytes each.
2. ``x`` and ``weight`` are both contiguous along I, so along I a warp has to go. Its lanes share a sum, and add it up
   by shuffles. What is read is used once all the same: each row of ``x`` is read O times, each of ``weight`` N times.
3. A block of 8 x 32 threads with as many elements of ``out`` needs 8 rows of ``x`` and 32 of ``weight``. It copies 32
   columns of those to shared memory at a time, coalesced, and each number of ``x`` is then used 32 times, each of
   ``weight`` 8 times. But ``weight_tile[column, i]`` lies 32 elements from its neighbour's, in the same one of the 32
   banks: the lanes of a warp, which have a column each, read one after the other.
4. With 33 elements a row each lane reads from a bank of its own.
5. Still two loads for a multiply-add. A thread with 8 rows of a column loads a number of ``weight`` into a register and
   uses it 8 times. Tiles can be larger for the same number of threads, so global memory is read less, too.
6. Rows and columns: 4 + 4 loads serve 16 multiply-adds.
7. The one in use, :mod:`nanoeuler.gpu.linear`: larger still; shared memory is read 16 bytes at a time; a tile is
   fetched while the one before is multiplied, which takes two places for tiles and only one barrier; the size of the
   tiles depends on how many there are; a few rows are done as in 2; and the same kernel does the backward's products.

Letters: N rows (tokens), I input channels, O output channels.
"""

from typing import Any

from nanoeuler.gpu import linear
from nanoeuler.gpu.backend import cuda, float32, uint32
from nanoeuler.gpu.ladder.version import Version
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.variant import variant
from nanoeuler.gpu.warp import WARP, warp_sum

Array = Any

BIAS = True  # exchanged in variants, as is WIDTH
SIDE = 16  # rows and columns of threads, in 1 and 6
WARPS = 4  # of a block of 2
ROWS, WIDTH = 8, 32  # of 3 and 4: rows of threads, elements from a row of a tile to the next
ROW_TILE, ROW_EACH = 32, 8  # of 5: rows and columns of a tile, elements of ``out`` a thread
TILE, EACH = 64, 4  # of 6
DEPTH, PADDED = 8, 9  # of 5 and 6: columns copied at a time, elements from row to row


@cuda.jit
def naive(out: Array, x: Array, weight: Array, bias: Array) -> None:
    """A thread for each element, neighbours in neighbouring rows."""
    n, o = uint32(cuda.blockIdx.x * SIDE + cuda.threadIdx.x), uint32(cuda.blockIdx.y * SIDE + cuda.threadIdx.y)
    if n < uint32(x.shape[0]) and o < uint32(weight.shape[0]):
        total = float32(0)
        for i in range(uint32(x.shape[1])):
            total += x[n, i] * weight[o, i]
        out[n, o] = total + bias[o] if BIAS else total


@cuda.jit
def coalesced(out: Array, x: Array, weight: Array, bias: Array) -> None:
    """A warp for each element, its lanes along the row."""
    lane, n, o = cuda.threadIdx.x, uint32(cuda.blockIdx.x), uint32(cuda.blockIdx.y * WARPS + cuda.threadIdx.y)
    if o >= uint32(weight.shape[0]):
        return
    total = float32(0)
    for i in range(uint32(lane), uint32(x.shape[1]), uint32(WARP)):
        total += x[n, i] * weight[o, i]
    total = warp_sum(total)
    if lane == 0:
        out[n, o] = total + bias[o] if BIAS else total


@cuda.jit
def shared_tiles(out: Array, x: Array, weight: Array, bias: Array) -> None:
    """A block for 8 x 32 elements, a row a warp, through tiles of 32 columns; padded if WIDTH is more."""
    x_tile, weight_tile = cuda.shared.array((ROWS, WIDTH), float32), cuda.shared.array((WARP, WIDTH), float32)
    N, O, I = uint32(x.shape[0]), uint32(weight.shape[0]), uint32(x.shape[1])
    lane, row = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    n, first_o = uint32(cuda.blockIdx.x * ROWS) + row, uint32(cuda.blockIdx.y * WARP)
    total = float32(0)
    for first_i in range(uint32(0), I, uint32(WARP)):
        i = first_i + lane
        x_tile[row, lane] = x[n, i] if n < N and i < I else float32(0)
        for line in range(row, uint32(WARP), uint32(ROWS)):
            o = first_o + line
            weight_tile[line, lane] = weight[o, i] if o < O and i < I else float32(0)
        cuda.syncthreads()
        for k in range(uint32(WARP)):
            total += x_tile[row, k] * weight_tile[lane, k]
        cuda.syncthreads()  # before the next tiles are written over these
    o = first_o + lane
    if n < N and o < O:
        out[n, o] = total + bias[o] if BIAS else total


@cuda.jit
def register_row(out: Array, x: Array, weight: Array, bias: Array) -> None:
    """A block for 32 x 32 elements, a thread for 8 rows of one column; 128 threads."""
    x_tile = cuda.shared.array((ROW_TILE, PADDED), float32)
    weight_tile = cuda.shared.array((ROW_TILE, PADDED), float32)
    total = cuda.local.array(ROW_EACH, float32)
    N, O, I = uint32(x.shape[0]), uint32(weight.shape[0]), uint32(x.shape[1])
    thread = uint32(cuda.threadIdx.x)
    first_n, first_o = uint32(cuda.blockIdx.x * ROW_TILE), uint32(cuda.blockIdx.y * ROW_TILE)
    column, first_row = thread % uint32(ROW_TILE), thread // uint32(ROW_TILE) * uint32(ROW_EACH)
    for r in range(ROW_EACH):
        total[r] = float32(0)
    for first_i in range(uint32(0), I, uint32(DEPTH)):
        for place in range(thread, uint32(ROW_TILE * DEPTH), uint32(ROW_TILE * ROW_TILE // ROW_EACH)):
            line, k = place // uint32(DEPTH), place % uint32(DEPTH)
            n, o, i = first_n + line, first_o + line, first_i + k
            x_tile[line, k] = x[n, i] if n < N and i < I else float32(0)
            weight_tile[line, k] = weight[o, i] if o < O and i < I else float32(0)
        cuda.syncthreads()
        for k in range(uint32(DEPTH)):
            w = weight_tile[column, k]
            for r in range(ROW_EACH):
                total[r] += x_tile[first_row + uint32(r), k] * w
        cuda.syncthreads()
    o = first_o + column
    for r in range(ROW_EACH):
        n = first_n + first_row + uint32(r)
        if n < N and o < O:
            out[n, o] = total[r] + bias[o] if BIAS else total[r]


@cuda.jit
def registers(out: Array, x: Array, weight: Array, bias: Array) -> None:
    """A block for 64 x 64 elements, a thread for 4 x 4, every 16th row and column."""
    x_tile, weight_tile = cuda.shared.array((TILE, PADDED), float32), cuda.shared.array((TILE, PADDED), float32)
    total = cuda.local.array((EACH, EACH), float32)
    x_own, weight_own = cuda.local.array(EACH, float32), cuda.local.array(EACH, float32)
    N, O, I = uint32(x.shape[0]), uint32(weight.shape[0]), uint32(x.shape[1])
    tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
    first_n, first_o = uint32(cuda.blockIdx.x * TILE), uint32(cuda.blockIdx.y * TILE)
    for r in range(EACH):
        for c in range(EACH):
            total[r, c] = float32(0)
    for first_i in range(uint32(0), I, uint32(DEPTH)):
        for place in range(ty * uint32(SIDE) + tx, uint32(TILE * DEPTH), uint32(SIDE * SIDE)):
            line, k = place // uint32(DEPTH), place % uint32(DEPTH)
            n, o, i = first_n + line, first_o + line, first_i + k
            x_tile[line, k] = x[n, i] if n < N and i < I else float32(0)
            weight_tile[line, k] = weight[o, i] if o < O and i < I else float32(0)
        cuda.syncthreads()
        for k in range(uint32(DEPTH)):
            for r in range(EACH):
                x_own[r] = x_tile[ty + uint32(r * SIDE), k]
                weight_own[r] = weight_tile[tx + uint32(r * SIDE), k]
            for r in range(EACH):
                for c in range(EACH):
                    total[r, c] += x_own[r] * weight_own[c]
        cuda.syncthreads()
    for r in range(EACH):
        n = first_n + ty + uint32(r * SIDE)
        for c in range(EACH):
            o = first_o + tx + uint32(c * SIDE)
            if n < N and o < O:
                out[n, o] = total[r, c] + bias[o] if BIAS else total[r, c]


def _launch(
    kernel: Any, tile: tuple[int, int], block: tuple[int, int], out: Array, x: Array, weight: Array, bias: Array | None
) -> None:
    """Launch a block for each tile of rows and columns of ``out``."""
    (N, O), (rows, columns) = out.shape, tile
    grid = (-(-N // rows), -(-O // columns))
    unused = weight[0]  # something of the right type
    launch(
        variant(kernel, BIAS=bias is not None), grid, block, out, x, weight, unused if bias is None else bias
    )  # fmt: skip


def run_naive(out: Array, x: Array, weight: Array, bias: Array | None) -> None:
    """Launch a thread for each element; parameters as of linear_forward, all float32."""
    _launch(naive, (SIDE, SIDE), (SIDE, SIDE), out, x, weight, bias)


def run_coalesced(out: Array, x: Array, weight: Array, bias: Array | None) -> None:
    """Launch a warp for each element."""
    _launch(coalesced, (1, WARPS), (WARP, WARPS), out, x, weight, bias)


def run_shared_tiles(out: Array, x: Array, weight: Array, bias: Array | None) -> None:
    """Launch a block for each 8 x 32 elements."""
    _launch(shared_tiles, (ROWS, WARP), (WARP, ROWS), out, x, weight, bias)


def run_padded_tiles(out: Array, x: Array, weight: Array, bias: Array | None) -> None:
    """Launch a block for each 8 x 32 elements, with tiles whose rows are 33 apart."""
    _launch(variant(shared_tiles, WIDTH=WARP + 1), (ROWS, WARP), (WARP, ROWS), out, x, weight, bias)


def run_register_row(out: Array, x: Array, weight: Array, bias: Array | None) -> None:
    """Launch a block for each 32 x 32 elements."""
    threads = ROW_TILE * ROW_TILE // ROW_EACH
    _launch(register_row, (ROW_TILE, ROW_TILE), (threads, 1), out, x, weight, bias)


def run_registers(out: Array, x: Array, weight: Array, bias: Array | None) -> None:
    """Launch a block for each 64 x 64 elements."""
    _launch(registers, (TILE, TILE), (SIDE, SIDE), out, x, weight, bias)


VERSIONS = [
    Version("naive", "a thread for each element", run_naive),
    Version("coalesced", "a warp for each element, neighbours read neighbours", run_coalesced),
    Version("shared tiles", "a block shares what it has read", run_shared_tiles),
    Version("padded tiles", "a tile's columns spread over the banks", run_padded_tiles),
    Version("register row", "a thread for 8 elements of a column", run_register_row),
    Version("registers", "a thread for 4 x 4 elements", run_registers),
    Version("in use", "8 x 8, four loads in one, fetching while multiplying", linear.linear_forward),
]
