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
    N, C = x.shape

    def block(rows: slice) -> None:
        one = ones(C, x.dtype)
        t = np.add(x[rows], branch[rows], out=total[rows])
        m = np.matmul(t, one, out=mean[rows])
        m /= C
        centred = np.subtract(t, m[:, None], out=out[rows])
        squares = np.square(centred, out=scratch("residual_layernorm", centred.shape, x.dtype))
        r = np.matmul(squares, one, out=rstd[rows])
        r /= C
        r += eps
        np.sqrt(r, out=r)
        np.reciprocal(r, out=r)
        centred *= r[:, None]
        centred *= weight
        if bias is not None:
            centred += bias

    parallel(block, blocks(N, C))


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
        rows = parts[index]
        shape, r = total[rows].shape, rstd[rows, None]
        xhat = np.subtract(total[rows], mean[rows, None], out=scratch("residual_layernorm xhat", shape, total.dtype))
        xhat *= r
        product = np.multiply(dout[rows], xhat, out=scratch("residual_layernorm product", shape, total.dtype))
        one = ones(len(product), total.dtype)
        np.matmul(one, product, out=partial[index, 0])
        np.matmul(one, dout[rows], out=partial[index, 1])
        mean_g_xhat = product @ weight
        mean_g_xhat /= C
        mean_g = dout[rows] @ weight
        mean_g /= C
        g = np.multiply(dout[rows], weight, out=product)
        g -= mean_g[:, None]
        xhat *= mean_g_xhat[:, None]
        g -= xhat
        g *= r
        np.add(dtotal[rows], g, out=dx[rows])

    parallel(block, range(len(parts)))
    sums = ones(len(parts), total.dtype) @ partial.reshape(len(parts), 2 * C)
    dweight += sums[:C]
    if dbias is not None:
        dbias += sums[C:]
