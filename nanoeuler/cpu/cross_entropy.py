"""Cross-entropy of a softmax, fused with its gradient.

Letters: N rows (tokens), V vocabulary. A negative target is ignored: loss 0, gradient 0.

    p[n, v] = e^(logits[n, v] - max) / Σ_u e^(logits[n, u] - max)        loss[n] = -log p[n, target[n]]

Backward. ∂(log Σ e^z)/∂z[v] = p[v], and -z[target] adds -1 at one place::

    dlogits[n, v] = dloss (p[n, v] - [v = target[n]])

The maximum is subtracted so that no exponential overflows; it cancels in p. The gradient is written over the logits,
which are by far the largest array of a small model and are never held twice.
"""

import numpy as np

from nanoeuler.cpu.parallel import blocks, ones, parallel, scratch


def cross_entropy_forward(losses: np.ndarray, logits: np.ndarray, targets: np.ndarray) -> None:
    """Write each row's loss in nats and leave the logits alone (evaluation).

    Args:
        losses: (N,), written; 0 where the target is ignored.
        logits: (N, V).
        targets: (N,) int32, each below V, negative to ignore.
    """
    N, V = logits.shape

    def block(rows: slice) -> None:
        shifted = scratch("cross_entropy", (rows.stop - rows.start, V), logits.dtype)
        np.subtract(logits[rows], logits[rows].max(axis=1, keepdims=True), out=shifted)
        _losses(losses[rows], shifted, targets[rows])

    parallel(block, blocks(N, V))


def cross_entropy_backward(
    losses: np.ndarray, dlogits: np.ndarray, logits: np.ndarray, targets: np.ndarray, dloss: np.ndarray
) -> None:
    """Write each row's loss and the gradient of ``dloss[0] * losses.sum()``, in one pass (training).

    Args:
        losses: (N,), written; 0 where the target is ignored.
        dlogits: (N, V), written; may be ``logits`` itself, and in training is.
        logits: (N, V).
        targets: (N,) int32, each below V, negative to ignore.
        dloss: (1,), gradient of the loss with respect to every row's loss; 1 / (number of targets) for a mean.
    """
    N, V = logits.shape

    def block(rows: slice) -> None:
        d, target = dlogits[rows], targets[rows]
        np.subtract(logits[rows], logits[rows].max(axis=1, keepdims=True), out=d)
        scale = _losses(losses[rows], d, target)  # d holds the exponentials now, scale their sums
        np.divide(dloss, scale, out=scale)
        d *= scale[:, None]
        d[target < 0] = 0
        kept = np.flatnonzero(target >= 0)
        d[kept, target[kept]] -= dloss

    parallel(block, blocks(N, V))


def _losses(losses: np.ndarray, shifted: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Write the losses, turn the shifted logits into their exponentials, and return the sums of these, (N,)."""
    own = shifted[np.arange(len(targets)), np.maximum(targets, 0)]
    np.exp(shifted, out=shifted)
    sums = shifted @ ones(shifted.shape[1], shifted.dtype)
    np.subtract(np.log(sums), own, out=losses)
    losses[targets < 0] = 0
    return sums
