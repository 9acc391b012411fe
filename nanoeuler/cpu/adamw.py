"""AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2): the update of a flat range of weights.

    g     = gradient clip                          clip = min(1, max_norm / norm)
    m     = beta1 m + (1 - beta1) g                v = beta2 v + (1 - beta2) g²
    w    -= learning_rate decay w                  decoupled: the decay does not pass through m and v
    w    -= learning_rate (m / (1 - beta1^step)) / (√(v / (1 - beta2^step)) + eps)

The decay is multiplied by the learning rate, as PyTorch and the field do; in the paper by the schedule alone.
Clipping (Pascanu et al. 2013, arXiv:1211.5063) is a factor on the gradient, so it costs no pass of its own. The field
decays weight matrices and embeddings but not norms and biases: the caller passes the two ranges with their own decay.
"""

import math

import numpy as np

from nanoeuler.cpu.parallel import blocks, parallel, scratch

#: Blocks are cut for so many arrays: five go through the cache at once, but smaller blocks cost more calls of NumPy.
STREAMS = 2


def adamw(
    weight: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    gradient: np.ndarray,
    norm: np.ndarray,
    max_norm: float,
    learning_rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> None:
    """Update weights and moments in place.

    Args:
        weight: (n,), updated.
        m: (n,), first moment, updated.
        v: (n,), second moment, updated.
        gradient: (n,), left as it is.
        norm: (1,), global norm of the whole gradient (:func:`~nanoeuler.cpu.global_norm.global_norm`).
        max_norm: largest norm; 0 does not clip.
        learning_rate: of this step.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        eps: added to the root of the second moment.
        weight_decay: share of the weight, times the learning rate, that is taken away.
        step: counts from 1, for the bias correction of moments that start at 0.
    """
    clip = max_norm / float(norm[0]) if 0 < max_norm < float(norm[0]) else 1.0
    root = math.sqrt(1 - beta2**step)
    rate = learning_rate * root / (1 - beta1**step)
    keep = 1 - learning_rate * weight_decay

    def block(part: slice) -> None:
        """Apply the four lines above with their constant factors drawn together: each is a pass less."""
        w, first, second = weight[part], m[part], v[part]
        g = np.multiply(gradient[part], clip * (1 - beta1), out=scratch("adamw gradient", w.shape, w.dtype))
        first *= beta1
        first += g
        t = np.square(g, out=g)
        t *= (1 - beta2) / (1 - beta1) ** 2
        second *= beta2
        second += t
        np.sqrt(second, out=t)
        t += eps * root
        np.divide(first, t, out=t)
        t *= rate
        w *= keep
        w -= t

    parallel(block, blocks(weight.size, STREAMS))
