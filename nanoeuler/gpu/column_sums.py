"""Sums down the columns of a matrix, added to a vector: the last step of each gradient that all rows have a share in.

    total[c] += Σ_n x[n, c]

A bias's gradient is such a sum over the rows of dout, a norm weight's one over rows of partial sums, a row from each
block of its backward; the slices that a large product is cut into are added up in the same way.

A block has 32 columns, which a warp reads side by side. Its warps, ``WAYS`` at most, take the rows in turn, each
``AHEAD`` rows at a time so that their reads are under way together, and add up what they have through shared memory.
Where that makes too few blocks to keep a large GPU busy the rows are cut into slices: a block for each writes a row of
sums, and a second launch adds those. The order is fixed by the shape: the same bits in every run.

Moved: each element once.
"""

from typing import Any

import numpy as np

from nanoeuler.gpu.backend import cuda, float32, int64, uint32
from nanoeuler.gpu.bfloat16 import widen
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.memory import scratch
from nanoeuler.gpu.variant import variant
from nanoeuler.gpu.warp import WARP

Array = Any

WAYS = 16  # warps of a block, at most
AHEAD = 4  # rows that a thread reads before it adds the first
ADD = False  # exchanged in a variant

#: Blocks that keep a large GPU busy, about one for each of its multiprocessors.
BUSY = 128
#: Least number of terms in a slice of a sum, so that writing and adding its result is not what takes the time.
SLICE = 512

MIN_ROWS = 4  # that a block of a backward takes, if there are enough: a row of partial sums costs as much as one
PARTIAL_ELEMENTS = 1 << 19  # partial sums at most: 2 MB, and as many threads as a large GPU keeps busy


def sliced(blocks: int, terms: int) -> tuple[int, int]:
    """Return into how many slices sums of so many terms are cut, for so many blocks, and the terms of a slice.

    >>> sliced(24, 16384), sliced(24, 5)
    ((6, 2731), (1, 5))
    """
    wanted = min(-(-BUSY // blocks), max(1, terms // SLICE))
    each = max(1, -(-terms // wanted))
    return max(1, -(-terms // each)), each


def partial_rows(N: int, C: int) -> int:
    """Return the blocks that share N rows of C elements in a backward, each with a row of partial sums.

    >>> partial_rows(5, 33), partial_rows(16384, 768)
    (2, 682)
    """
    return max(1, min(-(-N // MIN_ROWS), PARTIAL_ELEMENTS // C))


@cuda.jit
def sum_columns(out: Array, x: Array, rows: Any) -> None:
    """Write the sums over each slice of so many rows, (slices, C); or, ADD, of a single slice, add them."""
    sums = cuda.shared.array((WAYS, WARP), float32)
    values = cuda.local.array(AHEAD, float32)
    lane, way, ways, part = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockDim.y, cuda.blockIdx.y
    column = int64(cuda.blockIdx.x) * WARP + lane  # of a large product laid flat, there may be many
    start = part * rows
    end = min(x.shape[0], start + rows)
    total = float32(0)
    if column < x.shape[1]:
        for some in range(start + way, end, AHEAD * ways):
            for k in range(AHEAD):
                row = some + k * ways
                values[k] = widen(x[uint32(row), column]) if row < end else float32(0)
            for k in range(AHEAD):
                total += values[k]
    sums[way, lane] = total
    cuda.syncthreads()
    if way == 0 and column < x.shape[1]:
        for other in range(1, ways):
            total += sums[other, lane]
        if ADD:
            total += out[part, column]
        out[part, column] = total


def add_column_sums(total: Array, x: Array) -> None:
    """Add the sum of each column.

    Args:
        total: (C,) float32, added to.
        x: (N, C).
    """
    N, C = x.shape
    blocks = -(-C // WARP)
    count, rows = sliced(blocks, N)
    if count > 1:
        partial = scratch("column sums", (count, C), np.float32, like=total)
        launch(sum_columns, (blocks, count), (WARP, min(WAYS, rows)), partial, x, rows)
        x, rows = partial, count
    launch(variant(sum_columns, ADD=True), (blocks, 1), (WARP, min(WAYS, rows)), total.reshape(1, C), x, rows)
