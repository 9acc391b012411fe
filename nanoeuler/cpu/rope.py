"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864), in Hugging Face's half-split layout.

Letters: B batch, T sequence, H heads, D head size. Channel i of the first half and channel i of the second form a
pair, which position t turns by the angle t θ_i with θ_i = base^(-2i/D)::

    out1 = x1 cos - x2 sin        out2 = x2 cos + x1 sin

so that the product of a query and a key depends on the distance between them alone.

Backward: the Jacobian is a rotation, whose transpose turns back, so the gradient is turned by the opposite angle::

    dx1 = dout1 cos + dout2 sin   dx2 = dout2 cos - dout1 sin
"""

import numpy as np

from nanoeuler.cpu.parallel import blocks, parallel, scratch


def rope_tables(positions: int, head_dim: int, base: float, dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin of every angle, each (positions, D/2), computed in float64 and rounded to ``dtype``."""
    frequencies = base ** (-np.arange(0, head_dim, 2) / head_dim)
    angles = np.arange(positions)[:, None] * frequencies
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def rope_forward(out: np.ndarray, x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> None:
    """Turn every pair of channels by its position's angle.

    Args:
        out: (B, T, H, D), written; may be ``x`` itself.
        x: (B, T, H, D), D even; rows may lie apart (a slice of packed q|k|v).
        cos: (T, D/2), of the positions of x.
        sin: (T, D/2).
    """
    _rotate(out, x, cos, sin, 1)


def rope_backward(dx: np.ndarray, dout: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> None:
    """Turn the gradient back.

    Args:
        dx: (B, T, H, D), written; may be ``dout`` itself.
        dout: (B, T, H, D).
        cos: (T, D/2), the forward's.
        sin: (T, D/2), the forward's.
    """
    _rotate(dx, dout, cos, sin, -1)


def _rotate(out: np.ndarray, x: np.ndarray, cos: np.ndarray, sin: np.ndarray, sign: int) -> None:
    B, T, H, D = x.shape
    half = D // 2

    def block(item: tuple[int, slice]) -> None:
        b, rows = item
        c, s = cos[rows, None], sin[rows, None] * sign
        x1, x2 = x[b, rows, :, :half], x[b, rows, :, half:]
        first = np.multiply(x1, c, out=scratch("rope first", x1.shape, x.dtype))
        cross = np.multiply(x2, s, out=scratch("rope cross", x1.shape, x.dtype))
        first -= cross
        np.multiply(x1, s, out=cross)
        np.multiply(x2, c, out=out[b, rows, :, half:])
        out[b, rows, :, half:] += cross
        out[b, rows, :, :half] = first

    parallel(block, [(b, rows) for b in range(B) for rows in blocks(T, H * D)])
