"""Sums and maxima over the threads of a warp and of a block, in an order that is the same in every run.

Within a warp values pass from register to register (``shfl``), in five steps; between warps through a few elements of
shared memory. Every thread of the warp or block must call these, and all get the result.
"""

from typing import Any

from nanoeuler.gpu.backend import cuda, float32, int32

WARP = 32
FULL = 0xFFFFFFFF  # the mask of all lanes
#: Shared float32 elements that a reduction over a block needs: one for each of its warps.
MAX_WARPS = 32


def whole_warps(columns: int, most: int) -> int:
    """Return the threads of a block that has so many columns, or part of them, a thread each: whole warps.

    >>> whole_warps(33, 256), whole_warps(1000, 256)
    (64, 256)
    """
    return min(most, -(-columns // WARP) * WARP)


@cuda.jit(device=True)
def warp_sum(value: Any) -> Any:
    """Return the sum of the 32 lanes' float32 values, to every lane."""
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(FULL, value, step)
    return value


@cuda.jit(device=True)
def warp_max(value: Any) -> Any:
    """Return the largest of the 32 lanes' float32 values, to every lane."""
    for step in (16, 8, 4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(FULL, value, step))
    return value


@cuda.jit(device=True)
def block_sum(value: Any, partial: Any) -> Any:
    """Return the sum of all threads' float32 values, to every thread of a block of whole warps.

    Args:
        value: this thread's.
        partial: shared float32 (MAX_WARPS,); free for other use after the next barrier.
    """
    thread, warps = int32(cuda.threadIdx.x), int32(cuda.blockDim.x) // int32(WARP)
    total = warp_sum(value)
    cuda.syncthreads()  # whoever used ``partial`` before has read it
    if thread % WARP == 0:
        partial[thread // WARP] = total
    cuda.syncthreads()
    lane = thread % WARP
    return warp_sum(partial[lane] if lane < warps else float32(0))


@cuda.jit(device=True)
def block_max(value: Any, partial: Any) -> Any:
    """Return the largest of all threads' float32 values, as :func:`block_sum` the sum."""
    thread, warps = int32(cuda.threadIdx.x), int32(cuda.blockDim.x) // int32(WARP)
    largest = warp_max(value)
    cuda.syncthreads()
    if thread % WARP == 0:
        partial[thread // WARP] = largest
    cuda.syncthreads()
    lane = thread % WARP
    return warp_max(partial[lane] if lane < warps else partial[0])
