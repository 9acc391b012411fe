"""The ladder of cross-entropy with its gradient, one idea at a time; float32, see :mod:`nanoeuler.cpu.cross_entropy`.

1. naive: a thread for each row. Right, and easy to read. But neighbouring threads read addresses V apart, so each load
   fetches a cache line for the sake of one number, and there are only N threads.
2. block: a block for each row. Neighbouring threads read neighbouring logits, each thread takes every 256th. Maximum
   and sum over the block are trees in shared memory: half of the values is added to the other half, then half of that
   to the rest, and so on.
3. shuffles: inside a warp a tree needs no shared memory and no barrier, values pass from register to register.
4. online: the sum is kept relative to the largest logit so far and rescaled when a larger one comes (arXiv:1805.02867).
   Maximum and sum are then one pass, and the row is read twice instead of three times.
5. in use: several logits in flight per thread, one rescaling for all of them, the second pass backwards for the cache's
   sake; a warp for each short row.

Letters: N rows (tokens), V vocabulary.
"""

import math
from typing import Any

import numpy as np

from nanoeuler.gpu import cross_entropy
from nanoeuler.gpu.backend import cuda, float32, uint32
from nanoeuler.gpu.ladder.version import Version
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.warp import MAX_WARPS, block_max, block_sum

Array = Any

THREADS = 256  # a power of two, for the trees

#: Not -inf, from which the distance of -inf would be NaN.
LOWEST = np.finfo(np.float32).min


@cuda.jit
def thread_per_row(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: Array) -> None:
    """Write loss and gradient of a row, in one thread."""
    row = uint32(cuda.grid(1))
    if row >= logits.shape[0]:
        return
    V, target = logits.shape[1], targets[row]
    if target < 0:
        for v in range(V):
            dlogits[row, uint32(v)] = float32(0)
        losses[row] = float32(0)
        return
    maximum = LOWEST
    for v in range(V):
        maximum = max(maximum, logits[row, uint32(v)])
    total = float32(0)
    for v in range(V):
        total += math.exp(logits[row, uint32(v)] - maximum)
    losses[row] = math.log(total) - (logits[row, target] - maximum)
    scale = dloss[0] / total
    for v in range(V):
        dlogits[row, uint32(v)] = scale * math.exp(logits[row, uint32(v)] - maximum)
    dlogits[row, target] -= dloss[0]


@cuda.jit(device=True)
def tree_max(value: Any, tree: Array) -> Any:
    """Return the largest of all threads' values, to every thread; ``tree`` is shared float32 (THREADS,)."""
    thread, half = cuda.threadIdx.x, THREADS // 2
    tree[thread] = value
    cuda.syncthreads()
    while half > 0:
        if thread < half:
            tree[thread] = max(tree[thread], tree[thread + half])
        cuda.syncthreads()
        half //= 2
    largest = tree[0]
    cuda.syncthreads()  # all have read it before the tree is used again
    return largest


@cuda.jit(device=True)
def tree_sum(value: Any, tree: Array) -> Any:
    """Return the sum of all threads' values, as :func:`tree_max` the largest."""
    thread, half = cuda.threadIdx.x, THREADS // 2
    tree[thread] = value
    cuda.syncthreads()
    while half > 0:
        if thread < half:
            tree[thread] += tree[thread + half]
        cuda.syncthreads()
        half //= 2
    total = tree[0]
    cuda.syncthreads()
    return total


@cuda.jit(device=True)
def write_row(
    losses: Array, dlogits: Array, logits: Array, row: Any, target: Any, maximum: Any, total: Any, weight: Any
) -> None:
    """Write a row's loss and gradient with all threads of a block; an ignored target's row is 0."""
    thread, V = cuda.threadIdx.x, logits.shape[1]
    if target < 0 and thread == 0:
        losses[row] = float32(0)
    scale = weight / total
    for v in range(thread, V, THREADS):
        shifted = logits[row, uint32(v)] - maximum
        gradient = scale * math.exp(shifted)
        if v == target:
            gradient -= weight
            losses[row] = math.log(total) - shifted
        dlogits[row, uint32(v)] = gradient if target >= 0 else float32(0)


@cuda.jit
def trees(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: Array) -> None:
    """Write loss and gradient of a row: maximum, then sum, each a tree over the block."""
    tree = cuda.shared.array(THREADS, float32)
    row, thread, V = cuda.blockIdx.x, cuda.threadIdx.x, logits.shape[1]
    maximum = LOWEST
    for v in range(thread, V, THREADS):
        maximum = max(maximum, logits[row, uint32(v)])
    maximum = tree_max(maximum, tree)
    total = float32(0)
    for v in range(thread, V, THREADS):
        total += math.exp(logits[row, uint32(v)] - maximum)
    total = tree_sum(total, tree)
    write_row(losses, dlogits, logits, row, targets[row], maximum, total, dloss[0])


@cuda.jit
def shuffles(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: Array) -> None:
    """Write loss and gradient of a row: maximum, then sum, by shuffles."""
    shared = cuda.shared.array(MAX_WARPS, float32)
    row, thread, V = cuda.blockIdx.x, cuda.threadIdx.x, logits.shape[1]
    maximum = LOWEST
    for v in range(thread, V, THREADS):
        maximum = max(maximum, logits[row, uint32(v)])
    maximum = block_max(maximum, shared)
    total = float32(0)
    for v in range(thread, V, THREADS):
        total += math.exp(logits[row, uint32(v)] - maximum)
    total = block_sum(total, shared)
    write_row(losses, dlogits, logits, row, targets[row], maximum, total, dloss[0])


@cuda.jit
def online(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: Array) -> None:
    """Write loss and gradient of a row: maximum and sum in one pass."""
    shared = cuda.shared.array(MAX_WARPS, float32)
    row, thread, V = cuda.blockIdx.x, cuda.threadIdx.x, logits.shape[1]
    maximum, total = LOWEST, float32(0)
    for v in range(thread, V, THREADS):
        x = logits[row, uint32(v)]
        top = max(maximum, x)
        total = total * math.exp(maximum - top) + math.exp(x - top)
        maximum = top
    top = block_max(maximum, shared)
    total = block_sum(total * math.exp(maximum - top), shared)
    write_row(losses, dlogits, logits, row, targets[row], top, total, dloss[0])


def run_thread_per_row(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: Array) -> None:
    """Launch a thread for each row; parameters as of cross_entropy_backward, all float32."""
    blocks = -(-logits.shape[0] // THREADS)
    launch(thread_per_row, blocks, THREADS, losses, dlogits, logits, targets, dloss)


def run_trees(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: Array) -> None:
    """Launch a block for each row, reductions in shared memory."""
    launch(trees, logits.shape[0], THREADS, losses, dlogits, logits, targets, dloss)


def run_shuffles(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: Array) -> None:
    """Launch a block for each row, reductions by shuffles."""
    launch(shuffles, logits.shape[0], THREADS, losses, dlogits, logits, targets, dloss)


def run_online(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: Array) -> None:
    """Launch a block for each row, maximum and sum in one pass."""
    launch(online, logits.shape[0], THREADS, losses, dlogits, logits, targets, dloss)


VERSIONS = [
    Version("naive", "a thread for each row", run_thread_per_row),
    Version("block", "a block for each row, neighbours read neighbours, trees in shared memory", run_trees),
    Version("shuffles", "reductions from register to register", run_shuffles),
    Version("online", "maximum and sum in one pass", run_online),
    Version("in use", "four loads in flight, second pass backwards", cross_entropy.cross_entropy_backward),
]
