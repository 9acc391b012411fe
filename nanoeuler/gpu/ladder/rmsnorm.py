"""The ladder of RMSNorm's forward, in float32: four ways to normalise N rows of C channels, one idea at a time.

    thread per row      every thread goes through a row of its own, twice. Neighbouring threads are a row apart in
                        memory, so each read of 32 bytes from memory brings 4 that are wanted now, and there are only N
                        threads. Up to 32 + 32 + 32 bytes an element where the cache forgets the rest
    block per row       256 threads share a row, neighbours read neighbours, and their sums are added up in a tree in
                        shared memory: eight levels, with a barrier after each. 12 bytes an element; the second 4, which
                        a row is read again for, come from the cache if it is not too wide
    warp per row        the 32 threads of a warp hand each other their sums from register to register: five steps, no
                        shared memory, no barrier, and several rows to a block. Still 12 bytes an element
    row in registers    the op in use: a block as large as the row asks for, each thread keeping a few elements, all of
                        which it reads before it needs the first. 8 bytes an element: x read once, out written once

Formulas and letters are those of :mod:`nanoeuler.cpu.rmsnorm`.
"""

import math
from typing import Any

from nanoeuler.gpu.backend import cuda, float32, uint32
from nanoeuler.gpu.ladder.version import Version
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.rmsnorm import rmsnorm_forward
from nanoeuler.gpu.warp import WARP, warp_sum

Array = Any

THREADS = 256  # of a block, and a power of two: the tree halves it
ROWS = 8  # of a block of warps


@cuda.jit
def thread_per_row(out: Array, rstd: Array, x: Array, weight: Array, eps: Any) -> None:
    """Write a row: every thread goes through one by itself."""
    row, C = cuda.grid(1), x.shape[1]
    if row >= x.shape[0]:
        return
    squares = float32(0)
    for c in range(C):
        squares += x[row, uint32(c)] * x[row, uint32(c)]
    r = float32(1) / math.sqrt(squares / float32(C) + eps)
    for c in range(C):
        out[row, uint32(c)] = x[row, uint32(c)] * r * weight[uint32(c)]
    rstd[row] = r


@cuda.jit
def block_per_row(out: Array, rstd: Array, x: Array, weight: Array, eps: Any) -> None:
    """Write a row: a block's threads share it, and add up their sums in a tree in shared memory."""
    sums = cuda.shared.array(THREADS, float32)
    row, thread, C = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    squares = float32(0)
    for c in range(thread, C, THREADS):
        squares += x[row, uint32(c)] * x[row, uint32(c)]
    sums[thread] = squares
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            sums[thread] += sums[thread + half]
        cuda.syncthreads()
        half //= 2
    r = float32(1) / math.sqrt(sums[0] / float32(C) + eps)
    for c in range(thread, C, THREADS):
        out[row, uint32(c)] = x[row, uint32(c)] * r * weight[uint32(c)]
    if thread == 0:
        rstd[row] = r


@cuda.jit
def warp_per_row(out: Array, rstd: Array, x: Array, weight: Array, eps: Any) -> None:
    """Write a row: a warp's lanes share it, and hand each other their sums."""
    row, lane, C = cuda.blockIdx.x * ROWS + cuda.threadIdx.y, cuda.threadIdx.x, x.shape[1]
    if row >= x.shape[0]:
        return  # the whole warp does
    squares = float32(0)
    for c in range(lane, C, WARP):
        squares += x[row, uint32(c)] * x[row, uint32(c)]
    r = float32(1) / math.sqrt(warp_sum(squares) / float32(C) + eps)
    for c in range(lane, C, WARP):
        out[row, uint32(c)] = x[row, uint32(c)] * r * weight[uint32(c)]
    if lane == 0:
        rstd[row] = r


def run_thread_per_row(out: Array, rstd: Array, x: Array, weight: Array, eps: float) -> None:
    """Do what :func:`nanoeuler.gpu.rmsnorm.rmsnorm_forward` does: a thread for each row."""
    launch(thread_per_row, -(-x.shape[0] // THREADS), THREADS, out, rstd, x, weight, eps)


def run_block_per_row(out: Array, rstd: Array, x: Array, weight: Array, eps: float) -> None:
    """Do what :func:`nanoeuler.gpu.rmsnorm.rmsnorm_forward` does: a block for each row."""
    launch(block_per_row, x.shape[0], THREADS, out, rstd, x, weight, eps)


def run_warp_per_row(out: Array, rstd: Array, x: Array, weight: Array, eps: float) -> None:
    """Do what :func:`nanoeuler.gpu.rmsnorm.rmsnorm_forward` does: a warp for each row."""
    launch(warp_per_row, -(-x.shape[0] // ROWS), (WARP, ROWS), out, rstd, x, weight, eps)


VERSIONS = (
    Version("thread per row", "every thread goes through a row of its own", run_thread_per_row),
    Version("block per row", "a block's threads share a row, with a tree of sums in shared memory", run_block_per_row),
    Version("warp per row", "a warp's lanes share a row, with sums from register to register", run_warp_per_row),
    Version("row in registers", "a thread keeps its few elements in registers: x is read once", rmsnorm_forward),
)
