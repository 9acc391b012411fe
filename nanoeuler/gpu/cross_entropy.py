"""Cross-entropy and its gradient on the GPU: the row is read twice; see :mod:`nanoeuler.cpu.cross_entropy`.

Letters: N rows (tokens), V vocabulary. A block takes a row (a warp does, where rows are short) and each thread every
1024th logit of it. The first pass finds maximum and sum together, the online softmax of Milakov & Gimelshein 2018
(arXiv:1805.02867): a sum over exponentials of what exceeds the largest logit so far, rescaled when a larger one comes::

    top = max(maximum, x)        total = total e^(maximum - top) + e^(x - top)

The threads' maxima and sums are merged in the same way, by shuffles within a warp and through shared memory between
warps. The second pass writes the gradient. It goes backwards, since what was read last is still in the cache. In both a
thread first reads four logits and then uses them: loads that are under way together hide each other's latency.

Moved: the logits once or twice, depending on how much of the row is still in the cache, and the gradient once.

A logit of -inf is a probability of 0. One of inf or NaN makes its row NaN, since its distance from the maximum is.
"""

import math
from typing import Any

import numpy as np

from nanoeuler.gpu.backend import cuda, float32, uint32
from nanoeuler.gpu.bfloat16 import narrow, widen
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.variant import variant
from nanoeuler.gpu.warp import MAX_WARPS, WARP, block_max, block_sum, warp_max, warp_sum

Array = Any

THREADS = 1024  # for a row: few rows at a time, so that they stay in the cache until the second pass
SHORT = 1024  # up to so many logits a warp is enough for a row ...
ROWS = 4  # ... and a block takes so many rows
ITEMS = 4  # logits that a thread reads before it uses one
GRADIENT = True  # in evaluation not: a variant

#: Not -inf, from which the distance of -inf would be NaN.
LOWEST = np.finfo(np.float32).min
NOTHING = np.float32(-math.inf)  # in place of logits beyond the row: it adds e^-inf = 0
NO_NUMBER = np.float32(math.nan)  # loss and gradient of a target that is none, on which training stops


@cuda.jit(device=True)
def include(maximum: Any, total: Any, logits: Array) -> Any:
    """Return maximum and sum with these logits: the maximum moves once for all of them."""
    top = maximum
    for i in range(ITEMS):
        top = max(top, logits[i])
    total *= math.exp(maximum - top)
    for i in range(ITEMS):
        total += math.exp(logits[i] - top)
    return top, total


@cuda.jit(device=True)
def merge(maximum: Any, total: Any, shared: Array) -> Any:
    """Return the row's maximum and sum, to each of its threads, from those of the threads."""
    if cuda.blockDim.x == WARP:
        top = warp_max(maximum)
        return top, warp_sum(total * math.exp(maximum - top))
    top = block_max(maximum, shared)
    return top, block_sum(total * math.exp(maximum - top), shared)


@cuda.jit
def write_losses_and_gradient(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: Array) -> None:
    """Write losses and, if GRADIENT, gradients of ``blockDim.y`` rows.

    On the second pass whoever has the target's logit in hand writes the loss: it may be overwritten by its gradient.
    """
    shared = cuda.shared.array(MAX_WARPS, float32)
    some = cuda.local.array(ITEMS, float32)
    row = uint32(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
    if row >= logits.shape[0]:
        return
    thread, V, target = cuda.threadIdx.x, uint32(logits.shape[1]), targets[row]
    if target < 0:
        if GRADIENT:
            for v in range(thread, V, THREADS):
                dlogits[row, uint32(v)] = narrow(float32(0))
        if thread == 0:
            losses[row] = float32(0)
        return
    maximum, total = LOWEST, float32(0)
    for start in range(thread, V, ITEMS * THREADS):
        for i in range(ITEMS):
            v = uint32(start + i * THREADS)
            some[i] = widen(logits[row, v]) if v < V else NOTHING
        maximum, total = include(maximum, total, some)
    maximum, total = merge(maximum, total, shared)
    if not GRADIENT:
        if thread == 0:
            own = widen(logits[row, target]) if target < V else NO_NUMBER
            losses[row] = math.log(total) - (own - maximum)
        return
    weight = dloss[0]
    if target >= V:  # the gradient's factor is NaN, and no thread will meet the target
        weight = NO_NUMBER
        if thread == 0:
            losses[row] = NO_NUMBER
    scale = weight / total
    last = (V - 1) // (ITEMS * THREADS) * (ITEMS * THREADS)
    for start in range(last + thread, -1, -ITEMS * THREADS):
        for i in range(ITEMS):
            v = uint32(start + i * THREADS)
            some[i] = widen(logits[row, v]) if v < V else NOTHING
        for i in range(ITEMS):
            v = uint32(start + i * THREADS)
            if v < V:
                shifted = some[i] - maximum
                gradient = scale * math.exp(shifted)
                if v == target:
                    gradient -= weight
                    losses[row] = math.log(total) - shifted
                dlogits[row, v] = narrow(gradient)


def cross_entropy_forward(losses: Array, logits: Array, targets: Array) -> None:
    """Write each row's loss in nats and leave the logits alone (evaluation).

    Args:
        losses: (N,) float32, written; 0 where the target is ignored.
        logits: (N, V).
        targets: (N,) int32, each below V, negative to ignore; one that is not makes its row NaN.
    """
    unused = losses[:1]
    _launch(variant(write_losses_and_gradient, GRADIENT=False), losses, logits, logits, targets, unused)


def cross_entropy_backward(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: Array) -> None:
    """Write each row's loss and the gradient of ``dloss[0] * losses.sum()`` (training).

    Args:
        losses: (N,) float32, written; 0 where the target is ignored.
        dlogits: (N, V), written; may be ``logits`` itself, and in training is.
        logits: (N, V).
        targets: (N,) int32, each below V, negative to ignore; one that is not makes its row NaN.
        dloss: (1,) float32, gradient of the loss with respect to every row's loss.
    """
    _launch(write_losses_and_gradient, losses, dlogits, logits, targets, dloss)


def _launch(kernel: Any, losses: Array, *arrays: Array) -> None:
    N, V = arrays[0].shape
    if V <= SHORT:
        launch(variant(kernel, THREADS=WARP), -(-N // ROWS), (WARP, ROWS), losses, *arrays)
    else:
        launch(kernel, N, (THREADS, 1), losses, *arrays)
