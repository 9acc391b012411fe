"""RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467): each row divided by its root mean square, times a weight.

Letters: N rows (tokens), C channels.

    rstd[n] = 1 / √(mean_c x[n, c]² + eps)        xhat = x rstd        out = xhat weight

Backward. With g = dout weight the gradient of xhat, and because rstd depends on every x of the row
(∂rstd/∂x[j] = -rstd³ x[j] / C), dx[j] = g[j] rstd + Σ_c g[c] x[c] ∂rstd/∂x[j], which is::

    dx      = rstd (g - xhat mean_c(g xhat))
    dweight = Σ_n dout xhat

The bracket takes from g its part along xhat: a change of x along itself only changes the length, which is divided out.
"""

import numpy as np

from nanoeuler.cpu.parallel import blocks, ones, parallel, scratch


def rmsnorm_forward(out: np.ndarray, rstd: np.ndarray, x: np.ndarray, weight: np.ndarray, eps: float) -> None:
    """Write the normalised rows and what the backward needs of them.

    Args:
        out: (N, C), written.
        rstd: (N,), written: one over each row's root mean square.
        x: (N, C), of numbers whose squares the dtype holds.
        weight: (C,).
        eps: added to the mean square, so that a row of zeros stays zeros.
    """
    N, C = x.shape

    def block(rows: slice) -> None:
        squares = np.square(x[rows], out=out[rows])
        r = np.matmul(squares, ones(C, x.dtype), out=rstd[rows])
        r /= C
        r += eps
        np.sqrt(r, out=r)
        np.reciprocal(r, out=r)
        xhat = np.multiply(x[rows], r[:, None], out=out[rows])
        xhat *= weight

    parallel(block, blocks(N, C))


def rmsnorm_backward(
    dx: np.ndarray, dweight: np.ndarray, dout: np.ndarray, x: np.ndarray, weight: np.ndarray, rstd: np.ndarray
) -> None:
    """Write the input's gradient, add to the weight's.

    Args:
        dx: (N, C), written; may be ``dout`` itself.
        dweight: (C,), added to.
        dout: (N, C).
        x: (N, C), the forward's.
        weight: (C,).
        rstd: (N,), the forward's.
    """
    N, C = x.shape
    parts = blocks(N, C)
    partial = scratch("rmsnorm partial", (len(parts), C), x.dtype)  # a row a block, summed in a fixed order

    def block(index: int) -> None:
        rows = parts[index]
        r, g = rstd[rows, None], dx[rows]
        xhat = np.multiply(x[rows], r, out=scratch("rmsnorm xhat", g.shape, x.dtype))
        product = np.multiply(dout[rows], xhat, out=scratch("rmsnorm product", g.shape, x.dtype))
        np.matmul(ones(len(product), x.dtype), product, out=partial[index])
        mean = product @ weight  # mean_c(g xhat) = Σ_c dout xhat weight / C
        mean /= C
        np.multiply(dout[rows], weight, out=g)  # dout is not needed any more: dx may lie over it
        xhat *= mean[:, None]
        g -= xhat
        g *= r

    parallel(block, range(len(parts)))
    dweight += ones(len(parts), x.dtype) @ partial
