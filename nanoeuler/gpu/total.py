"""The sum of an array, added to a number in the GPU's memory: one block; see :mod:`nanoeuler.cpu.total`.

    out = out + Σ_i x[i]

Each thread adds up every 1024th element, the block then its threads' sums, by shuffles and through shared memory. The
order depends on n alone, so the bits are the same in every run. A thread adds up eight elements before it adds them to
its sum, which keeps float32's rounding small, and their loads are under way together.

One block has one multiprocessor's share of the memory's speed. That is enough for the losses of a micro-batch, n to 10⁵
or so, and right for any n; a gradient is for many blocks, as in :mod:`nanoeuler.gpu.global_norm`.
"""

from typing import Any

from nanoeuler.gpu.backend import cuda, float32
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.warp import MAX_WARPS, block_sum

Array = Any

THREADS = 1024
ITEMS = 8  # elements that a thread adds up before it adds them to its sum


@cuda.jit
def add_sum(out: Array, x: Array) -> None:
    """Add the sum to ``out``; for a single block."""
    shared = cuda.shared.array(MAX_WARPS, float32)
    thread, n = cuda.threadIdx.x, x.shape[0]
    own = float32(0)
    for start in range(thread, n, ITEMS * THREADS):
        some = float32(0)
        for item in range(ITEMS):
            i = start + item * THREADS
            some += x[i] if i < n else float32(0)
        own += some
    whole = block_sum(own, shared)
    if thread == 0:
        out[0] += whole


def total(out: Array, x: Array) -> None:
    """Add the sum of a flat float32 array to a number.

    Args:
        out: (1,), added to.
        x: (n,).
    """
    launch(add_sum, 1, THREADS, out, x)
