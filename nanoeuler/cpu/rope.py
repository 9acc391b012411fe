"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864), in Hugging Face's half-split layout.

Letters: B batch, T sequence, H heads, D head size. Channel i of the first half and channel i of the second form a
pair, which position t turns by the angle t θ_i with θ_i = base^(-2i/D)::

    out1 = x1 cos - x2 sin        out2 = x2 cos + x1 sin

so that the product of a query and a key depends on the distance between them alone.

Backward: the Jacobian is a rotation, whose transpose turns back, so the gradient is turned by the opposite angle::

    dx1 = dout1 cos + dout2 sin   dx2 = dout2 cos - dout1 sin
"""

import itertools
from dataclasses import dataclass

import numpy as np

from nanoeuler.cpu.parallel import blocks, parallel, scratch


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.1's stretching of the long waves (Grattafiori et al. 2024, arXiv:2407.21783, and Meta's published code).

    A pair whose wave, 2π / θ_i positions long, is longer than ``original_length / low_freq_factor`` turns ``factor``
    times slower; one shorter than ``original_length / high_freq_factor`` turns as before; in between the two blend.
    """

    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_length: int = 8192

    def scaled(self, frequencies: np.ndarray) -> np.ndarray:
        """Return the stretched θ_i, (D/2,) float64."""
        turns = self.original_length * frequencies / (2 * np.pi)  # of each pair in the original length
        share = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        share = np.clip(share, 0, 1)  # of the frequency as it was
        return frequencies * (share + (1 - share) / self.factor)


def rope_tables(
    positions: int, head_dim: int, base: float, dtype: type = np.float32, scaling: RopeScaling | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin of every angle, each (positions, D/2), computed in float64 and rounded to ``dtype``."""
    frequencies = base ** (-np.arange(0, head_dim, 2) / head_dim)
    if scaling is not None:
        frequencies = scaling.scaled(frequencies)
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
    """Write ``x * [cos, cos] + [x2, x1] * [-sin, sin]``: the two lines above, whole heads at a time."""
    B, T, H, D = x.shape
    both_cos = np.concatenate([cos, cos], axis=1)[:, None]  # (T, 1, D)
    signed_sin = np.stack([-sign * sin, sign * sin], axis=1)[:, None]  # (T, 1, 2, D/2)

    def block(part: tuple[slice, slice]) -> None:
        some, rows = part
        halves = x[some, rows].reshape(-1, rows.stop - rows.start, H, 2, D // 2)
        turned = scratch("rope", (*halves.shape[:3], D), x.dtype)
        np.multiply(x[some, rows], both_cos[rows], out=turned)
        cross = scratch("rope cross", halves.shape, x.dtype)
        np.multiply(halves[..., ::-1, :], signed_sin[rows], out=cross)
        np.add(turned, cross.reshape(turned.shape), out=out[some, rows])

    parallel(block, itertools.product(blocks(B, T * H * D), blocks(T, H * D)))  # short sequences together
