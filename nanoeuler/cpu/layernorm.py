"""LayerNorm (Ba, Kiros & Hinton 2016, arXiv:1607.06450): each row to mean 0 and variance 1, times weight, plus bias.

Letters: N rows (tokens), C channels.

    mean[n] = mean_c x[n, c]      rstd[n] = 1 / √(mean_c (x - mean)² + eps)
    xhat = (x - mean) rstd        out = xhat weight + bias

Backward. With g = dout weight the gradient of xhat; mean and rstd both depend on every x of the row::

    dx      = rstd (g - mean_c(g) - xhat mean_c(g xhat))
    dweight = Σ_n dout xhat
    dbias   = Σ_n dout

The two means take from g what shifting or scaling the row would change: neither reaches the output.
"""

import numpy as np

from nanoeuler.cpu.parallel import blocks, ones, parallel, scratch


def layernorm_forward(
    out: np.ndarray,
    mean: np.ndarray,
    rstd: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    eps: float,
) -> None:
    """Write the normalised rows and what the backward needs of them.

    Args:
        out: (N, C), written.
        mean: (N,), written.
        rstd: (N,), written: one over each row's standard deviation.
        x: (N, C).
        weight: (C,).
        bias: (C,) or None.
        eps: added to the variance.
    """
    N, C = x.shape

    def block(rows: slice) -> None:
        one = ones(C, x.dtype)
        m = np.matmul(x[rows], one, out=mean[rows])
        m /= C
        centred = np.subtract(x[rows], m[:, None], out=out[rows])
        squares = np.square(centred, out=scratch("layernorm", centred.shape, x.dtype))
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


def layernorm_backward(
    dx: np.ndarray,
    dweight: np.ndarray,
    dbias: np.ndarray | None,
    dout: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    mean: np.ndarray,
    rstd: np.ndarray,
) -> None:
    """Write the input's gradient, add to the weight's and the bias's.

    Args:
        dx: (N, C), written; may be ``dout`` itself.
        dweight: (C,), added to.
        dbias: (C,), added to, or None.
        dout: (N, C).
        x: (N, C), the forward's.
        weight: (C,).
        mean: (N,), the forward's.
        rstd: (N,), the forward's.
    """
    N, C = x.shape
    parts = blocks(N, C)
    partial = scratch("layernorm partial", (len(parts), 2, C), x.dtype)  # dweight and dbias of each block

    def block(index: int) -> None:
        rows = parts[index]
        r, g = rstd[rows, None], dx[rows]
        xhat = np.subtract(x[rows], mean[rows, None], out=scratch("layernorm xhat", g.shape, x.dtype))
        xhat *= r
        product = np.multiply(dout[rows], xhat, out=scratch("layernorm product", g.shape, x.dtype))
        one = ones(len(product), x.dtype)
        np.matmul(one, product, out=partial[index, 0])
        np.matmul(one, dout[rows], out=partial[index, 1])
        mean_g_xhat = product @ weight
        mean_g_xhat /= C
        mean_g = dout[rows] @ weight
        mean_g /= C
        np.multiply(dout[rows], weight, out=g)
        g -= mean_g[:, None]
        xhat *= mean_g_xhat[:, None]
        g -= xhat
        g *= r

    parallel(block, range(len(parts)))
    total = ones(len(parts), x.dtype) @ partial.reshape(len(parts), 2 * C)
    dweight += total[:C]
    if dbias is not None:
        dbias += total[C:]
