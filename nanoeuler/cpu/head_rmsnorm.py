"""QK-norm: RMSNorm over the channels of each head (Henry et al. 2020, arXiv:2010.04245; as Qwen3 has it).

Letters: B batch, T sequence, H heads, D head size. For every head of every position, with one weight for all heads::

    rstd = 1 / √(mean_d x[d]² + eps)        xhat = x rstd        out = xhat weight

so that the logits of attention cannot grow with the length of queries and keys. Backward as in
:mod:`nanoeuler.cpu.rmsnorm`, with g = dout weight::

    dx      = rstd (g - xhat mean_d(g xhat))
    dweight = Σ over B, T, H of dout xhat

The op differs from that one in its arrays: queries and keys are slices of the packed q|k|v, whose rows lie apart.
"""

import numpy as np

from nanoeuler.cpu.parallel import blocks, ones, parallel, scratch


def head_rmsnorm_forward(out: np.ndarray, rstd: np.ndarray, x: np.ndarray, weight: np.ndarray, eps: float) -> None:
    """Write the normalised heads and what the backward needs of them.

    Args:
        out: (B, T, H, D), written; rows may lie apart.
        rstd: (B, T, H), written: one over each head's root mean square.
        x: (B, T, H, D); rows may lie apart (a slice of packed q|k|v).
        weight: (D,).
        eps: added to the mean square.
    """
    B, T, H, D = x.shape

    def block(part: tuple[int, slice]) -> None:
        b, rows = part
        squares = np.square(x[b, rows], out=out[b, rows])
        r = np.matmul(squares, ones(D, x.dtype), out=rstd[b, rows])
        r /= D
        r += eps
        np.sqrt(r, out=r)
        np.reciprocal(r, out=r)
        xhat = np.multiply(x[b, rows], r[..., None], out=out[b, rows])
        xhat *= weight

    parallel(block, [(b, rows) for b in range(B) for rows in blocks(T, H * D)])


def head_rmsnorm_backward(
    dx: np.ndarray, dweight: np.ndarray, dout: np.ndarray, x: np.ndarray, weight: np.ndarray, rstd: np.ndarray
) -> None:
    """Write the input's gradient, add to the weight's.

    Args:
        dx: (B, T, H, D), written; may be ``dout`` itself; rows may lie apart, as those of dout and x.
        dweight: (D,), added to.
        dout: (B, T, H, D).
        x: (B, T, H, D), the forward's.
        weight: (D,).
        rstd: (B, T, H), the forward's.
    """
    B, T, H, D = x.shape
    parts = [(b, rows) for b in range(B) for rows in blocks(T, H * D)]
    partial = scratch("head_rmsnorm partial", (len(parts), D), x.dtype)  # a row a block, summed in a fixed order

    def block(index: int) -> None:
        b, rows = parts[index]
        r, g = rstd[b, rows, :, None], dx[b, rows]
        xhat = np.multiply(x[b, rows], r, out=scratch("head_rmsnorm xhat", g.shape, x.dtype))
        product = np.multiply(dout[b, rows], xhat, out=scratch("head_rmsnorm product", g.shape, x.dtype))
        np.matmul(ones(product.size // D, x.dtype), product.reshape(-1, D), out=partial[index])
        mean = product @ weight  # mean_d(g xhat)
        mean /= D
        np.multiply(dout[b, rows], weight, out=g)  # dout is not needed any more: dx may lie over it
        xhat *= mean[..., None]
        g -= xhat
        g *= r

    parallel(block, range(len(parts)))
    dweight += ones(len(parts), x.dtype) @ partial
