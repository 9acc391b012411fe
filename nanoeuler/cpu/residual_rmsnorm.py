"""Residual connection and RMSNorm in one: ``total = x + branch``, and out is total normalised.

Letters: N rows (tokens), C channels.

    total = x + branch        out = total rstd weight, rstd as in :mod:`nanoeuler.cpu.rmsnorm`

Backward. total has two uses, the norm and whatever takes it up later (the next residual connection), which hands in
dtotal. The two gradients add up, and a sum hands its gradient unchanged to both terms::

    dx = dbranch = dtotal + (RMSNorm's dx for dout)

The two ops alone would carry total, and its gradient, to memory and back between them. Here each block of rows goes
through both while it is in the cache.
"""

import numpy as np

from nanoeuler.cpu.parallel import blocks, ones, parallel, scratch


def residual_rmsnorm_forward(
    out: np.ndarray,
    total: np.ndarray,
    rstd: np.ndarray,
    x: np.ndarray,
    branch: np.ndarray,
    weight: np.ndarray,
    eps: float,
) -> None:
    """Write ``x + branch``, its normalised rows, and what the backward needs of them.

    Args:
        out: (N, C), written.
        total: (N, C), written; may be ``x`` or ``branch`` itself.
        rstd: (N,), written: one over the root mean square of each row of ``total``.
        x: (N, C).
        branch: (N, C).
        weight: (C,).
        eps: added to the mean square, so that a row of zeros stays zeros.
    """
    N, C = x.shape

    def block(rows: slice) -> None:
        t = np.add(x[rows], branch[rows], out=total[rows])
        squares = np.square(t, out=out[rows])
        r = np.matmul(squares, ones(C, x.dtype), out=rstd[rows])
        r /= C
        r += eps
        np.sqrt(r, out=r)
        np.reciprocal(r, out=r)
        xhat = np.multiply(t, r[:, None], out=out[rows])
        xhat *= weight

    parallel(block, blocks(N, C))


def residual_rmsnorm_backward(
    dx: np.ndarray,
    dweight: np.ndarray,
    dout: np.ndarray,
    dtotal: np.ndarray,
    total: np.ndarray,
    weight: np.ndarray,
    rstd: np.ndarray,
) -> None:
    """Write the gradient that both terms of the sum have, add to the weight's.

    Args:
        dx: (N, C), written; may be ``dout`` or ``dtotal`` itself.
        dweight: (C,), added to.
        dout: (N, C).
        dtotal: (N, C), what other uses of ``total`` hand back.
        total: (N, C), the forward's.
        weight: (C,).
        rstd: (N,), the forward's.
    """
    N, C = total.shape
    parts = blocks(N, C)
    partial = scratch("residual_rmsnorm partial", (len(parts), C), total.dtype)  # a row a block

    def block(index: int) -> None:
        rows = parts[index]
        shape, r = total[rows].shape, rstd[rows, None]
        xhat = np.multiply(total[rows], r, out=scratch("residual_rmsnorm xhat", shape, total.dtype))
        product = np.multiply(dout[rows], xhat, out=scratch("residual_rmsnorm product", shape, total.dtype))
        np.matmul(ones(len(product), total.dtype), product, out=partial[index])
        mean = product @ weight  # mean_c(g xhat) = Σ_c dout xhat weight / C
        mean /= C
        g = np.multiply(dout[rows], weight, out=product)
        xhat *= mean[:, None]
        g -= xhat
        g *= r
        np.add(dtotal[rows], g, out=dx[rows])

    parallel(block, range(len(parts)))
    dweight += ones(len(parts), total.dtype) @ partial
