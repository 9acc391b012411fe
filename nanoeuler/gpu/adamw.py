"""AdamW on the GPU: one launch, a thread for each weight; see :mod:`nanoeuler.cpu.adamw` for the formulas.

Constant factors are drawn together on the host, in float64, where 1 - beta2^step keeps its digits. Clipping is a factor
that each thread computes from the norm in the GPU's memory: the host need not wait for it.

Moved: four numbers read and three written for each weight, 28 bytes.
"""

import math
from typing import Any

from nanoeuler.gpu.backend import cuda, float32
from nanoeuler.gpu.launch import launch

Array = Any

THREADS = 256


@cuda.jit
def update(
    weight: Array, m: Array, v: Array, gradient: Array, norm: Array, max_norm: Any,
    beta1: Any, rest1: Any, beta2: Any, rest2: Any, keep: Any, rate: Any, eps: Any,
) -> None:  # fmt: skip
    """Update one weight and its moments; ``rest1`` is 1 - beta1; ``rate`` and ``eps`` are corrected for the bias."""
    i = cuda.grid(1)
    if i >= weight.shape[0]:
        return
    clip = float32(1)
    if max_norm > float32(0) and norm[0] > max_norm:
        clip = max_norm / norm[0]
    g = gradient[i] * clip
    first = beta1 * m[i] + rest1 * g
    second = beta2 * v[i] + rest2 * (g * g)
    m[i] = first
    v[i] = second
    weight[i] = keep * weight[i] - rate * (first / (math.sqrt(second) + eps))


def adamw(
    weight: Array,
    m: Array,
    v: Array,
    gradient: Array,
    norm: Array,
    max_norm: float,
    learning_rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> None:
    """Update weights and moments in place; all arrays are float32.

    Args:
        weight: (n,), updated.
        m: (n,), first moment, updated.
        v: (n,), second moment, updated.
        gradient: (n,), left as it is.
        norm: (1,), global norm of the whole gradient (:func:`~nanoeuler.gpu.global_norm.global_norm`).
        max_norm: largest norm; 0 does not clip.
        learning_rate: of this step.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        eps: added to the root of the second moment.
        weight_decay: share of the weight, times the learning rate, that is taken away.
        step: counts from 1, for the bias correction of moments that start at 0.
    """
    root = math.sqrt(1 - beta2**step)
    rate = learning_rate * root / (1 - beta1**step)
    constants = (max_norm, beta1, 1 - beta1, beta2, 1 - beta2, 1 - learning_rate * weight_decay, rate, eps * root)
    blocks = -(-weight.size // THREADS)
    launch(update, blocks, THREADS, weight, m, v, gradient, norm, *(float(c) for c in constants))
