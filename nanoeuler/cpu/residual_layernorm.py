"""Residual connection and LayerNorm in one: ``total = x + branch``, and out is total normalised.

Letters: N rows (tokens), C channels.

    total = x + branch        out = (total - mean) rstd weight + bias, all as in :mod:`nanoeuler.cpu.layernorm`

Backward. total has two uses, the norm and whatever takes it up later (the next residual connection), which hands in
dtotal. The two gradients add up, and a sum hands its gradient unchanged to both terms::

    dx = dbranch = dtotal + (LayerNorm's dx for dout)

The two ops alone would carry total, and its gradient, to memory and back between them. Here each block of rows goes
through both while it is in the cache.
"""

import numpy as np

from nanoeuler.cpu.layernorm import layernorm_backward, layernorm_forward
from nanoeuler.cpu.parallel import blocks, ones, parallel, scratch


def residual_layernorm_forward(
    out: np.ndarray,
    total: np.ndarray,
    mean: np.ndarray,
    rstd: np.ndarray,
    x: np.ndarray,
    branch: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    eps: float,
) -> None:
    """Write ``x + branch``, its normalised rows, and what the backward needs of them.

    Args:
        out: (N, C), written.
        total: (N, C), written; may be ``x`` or ``branch`` itself.
        mean: (N,), written: of each row of ``total``.
        rstd: (N,), written: one over the standard deviation of each row of ``total``.
        x: (N, C).
        branch: (N, C).
        weight: (C,).
        bias: (C,) or None.
        eps: added to the variance.
    """

    def block(rows: slice) -> None:
        np.add(x[rows], branch[rows], out=total[rows])
        layernorm_forward(out[rows], mean[rows], rstd[rows], total[rows], weight, bias, eps)

    parallel(block, blocks(*x.shape))


def residual_layernorm_backward(
    dx: np.ndarray,
    dweight: np.ndarray,
    dbias: np.ndarray | None,
    dout: np.ndarray,
    dtotal: np.ndarray,
    total: np.ndarray,
    weight: np.ndarray,
    mean: np.ndarray,
    rstd: np.ndarray,
) -> None:
    """Write the gradient that both terms of the sum have, add to the weight's and the bias's.

    Args:
        dx: (N, C), written; may be ``dout`` or ``dtotal`` itself.
        dweight: (C,), added to.
        dbias: (C,), added to, or None.
        dout: (N, C).
        dtotal: (N, C), what other uses of ``total`` hand back.
        total: (N, C), the forward's.
        weight: (C,).
        mean: (N,), the forward's.
        rstd: (N,), the forward's.
    """
    N, C = total.shape
    parts = blocks(N, C)
    partial = scratch("residual_layernorm partial", (len(parts), 2, C), total.dtype)  # dweight and dbias of each block

    def block(index: int) -> None:
        rows, own = parts[index], partial[index]
        own[:] = 0
        dnorm = scratch("residual_layernorm dnorm", total[rows].shape, total.dtype)
        layernorm_backward(dnorm, own[0], own[1], dout[rows], total[rows], weight, mean[rows], rstd[rows])
        np.add(dtotal[rows], dnorm, out=dx[rows])

    parallel(block, range(len(parts)))
    sums = ones(len(parts), total.dtype) @ partial.reshape(len(parts), 2 * C)
    dweight += sums[:C]
    if dbias is not None:
        dbias += sums[C:]
