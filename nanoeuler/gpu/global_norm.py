"""The global norm of a gradient on the GPU: one launch over all of it; see :mod:`nanoeuler.cpu.global_norm`.

    norm = √(Σ_i x[i]²)

A block adds up the squares of SPAN elements that lie together and writes the partial sum. The last block to finish, and
an atomic counter tells a block whether it is that, adds up the partial sums. Which block is last differs from run to
run; what it adds, and in which order, does not, so the bits are the same in every run.

A fence before the counter makes a block's partial sum visible to whoever counts after it, a fence behind it lets the
last block see them all. The counter goes round to 0 with the last block, ready for the next launch. It is the one thing
here that has to hold a value before a launch, so on the GPU it has memory of its own, 4 bytes beside the arena, that is
set to 0 once. Two launches, the second over the partial sums, would do without it, for one launch more in every step.

Float32 keeps its digits since no sum is long: a thread adds eight squares, then eight such sums, a block the sums of
its 256 threads by shuffles, and the last block goes about the partial sums in the same way. With 10⁸ elements no number
passes through more than some fifty additions. A square beyond float32 makes the norm infinite, as on the CPU.

Moved: 4 bytes per element.
"""

import functools
import math
from typing import Any

import numpy as np

from nanoeuler.gpu.backend import cuda, float32, int32, int64, uint32
from nanoeuler.gpu.launch import launch, on_gpu
from nanoeuler.gpu.memory import scratch
from nanoeuler.gpu.warp import MAX_WARPS, block_sum

Array = Any

THREADS = 256
ITEMS = 8  # elements that a thread adds up before it adds them to its sum: their loads are under way together
SPAN = 8 * ITEMS * THREADS  # elements of a block


@cuda.jit
def write_norm(out: Array, partial: Array, arrived: Array, x: Array) -> None:
    """Write a partial sum of squares, and in the last block the root of the sum of all."""
    shared = cuda.shared.array(MAX_WARPS, float32)
    is_last = cuda.shared.array(1, int32)
    thread, block, blocks = cuda.threadIdx.x, cuda.blockIdx.x, cuda.gridDim.x
    first = int64(block) * SPAN + thread
    squares = float32(0)
    for turn in range(0, SPAN, ITEMS * THREADS):
        some = float32(0)
        for item in range(ITEMS):
            i = first + turn + item * THREADS
            value = x[i] if i < x.shape[0] else float32(0)
            some += value * value
        squares += some
    squares = block_sum(squares, shared)
    if thread == 0:
        partial[block] = squares
        cuda.threadfence()
        before = cuda.atomic.inc(arrived, 0, uint32(blocks - 1))  # from blocks - 1 it goes on to 0
        is_last[0] = 1 if before == blocks - 1 else 0
        cuda.threadfence()
    cuda.syncthreads()
    if is_last[0] == 1:
        squares = float32(0)
        for turn in range(0, blocks, ITEMS * THREADS):
            some = float32(0)
            for item in range(ITEMS):
                i = turn + item * THREADS + thread
                some += partial[i] if i < blocks else float32(0)
            squares += some
        squares = block_sum(squares, shared)
        if thread == 0:
            out[0] = math.sqrt(squares)


def global_norm(out: Array, x: Array) -> None:
    """Write the norm of a flat float32 array; not finite if any element is not.

    Args:
        out: (1,), written.
        x: (n,).
    """
    blocks = max(1, -(-x.size // SPAN))
    partial = scratch("global_norm", (blocks,), np.float32, like=x)
    arrived = _counter_on_gpu() if on_gpu(x) else np.zeros(1, np.uint32)
    launch(write_norm, blocks, THREADS, out, partial, arrived, x)


@functools.cache
def _counter_on_gpu() -> Array:
    """Return a counter that is 0; every launch leaves it so."""
    return cuda.to_device(np.zeros(1, np.uint32))
