"""Rotary position embedding on the GPU; the formulas are in :mod:`nanoeuler.cpu.rope`.

Letters: B batch, T sequence, H heads, D head size.

A block has one position of ``ROWS`` sequences: D/2 threads side by side have a head's pairs, further threads further
heads. A thread loads its angle's cos and sin once and turns that pair in all its heads and sequences. It reads both
channels of a pair before it writes them, so the op may run in place; cos and sin are float32 whatever x is.

Moved: 2 elements for each element of ``out``, and the tables, which stay in cache. Backward is the same with the
opposite angle.
"""

from typing import Any

from nanoeuler.cpu.rope import rope_tables
from nanoeuler.gpu.backend import cuda, float32, uint32
from nanoeuler.gpu.bfloat16 import narrow, widen
from nanoeuler.gpu.launch import launch

__all__ = ["rope_backward", "rope_forward", "rope_tables"]

Array = Any

THREADS = 256  # of a block, at most
ROWS = 4  # sequences whose pairs a thread turns


@cuda.jit
def turn_pairs(out: Array, x: Array, cos: Array, sin: Array, sign: Any) -> None:
    """Turn the pairs of one position by ``sign`` times its angles."""
    B, H, half = uint32(x.shape[0]), uint32(x.shape[2]), uint32(cos.shape[1])
    t, pair = uint32(cuda.blockIdx.x), uint32(cuda.blockIdx.z * cuda.blockDim.x + cuda.threadIdx.x)
    if pair >= half:
        return
    c, s, other = cos[t, pair], sign * sin[t, pair], uint32(pair + half)
    x1, x2 = cuda.local.array(ROWS, float32), cuda.local.array(ROWS, float32)
    h = uint32(cuda.threadIdx.y)
    while h < H:
        for k in range(ROWS):
            b = uint32(cuda.blockIdx.y * ROWS + k)
            if b < B:
                x1[k], x2[k] = widen(x[b, t, h, pair]), widen(x[b, t, h, other])
        for k in range(ROWS):
            b = uint32(cuda.blockIdx.y * ROWS + k)
            if b < B:
                out[b, t, h, pair] = narrow(x1[k] * c - x2[k] * s)
                out[b, t, h, other] = narrow(x2[k] * c + x1[k] * s)
        h += uint32(cuda.blockDim.y)


def rope_forward(out: Array, x: Array, cos: Array, sin: Array) -> None:
    """Turn every pair of channels by its position's angle.

    Args:
        out: (B, T, H, D), written; may be ``x`` itself.
        x: (B, T, H, D), D even; rows may lie apart (a slice of packed q|k|v).
        cos: (T, D/2) float32, of the positions of x.
        sin: (T, D/2) float32.
    """
    _turn(out, x, cos, sin, 1.0)


def rope_backward(dx: Array, dout: Array, cos: Array, sin: Array) -> None:
    """Turn the gradient back.

    Args:
        dx: (B, T, H, D), written; may be ``dout`` itself.
        dout: (B, T, H, D).
        cos: (T, D/2) float32, the forward's.
        sin: (T, D/2) float32, the forward's.
    """
    _turn(dx, dout, cos, sin, -1.0)


def _turn(out: Array, x: Array, cos: Array, sin: Array, sign: float) -> None:
    B, T, H, D = x.shape
    pairs = min(D // 2, THREADS)
    grid = T, -(-B // ROWS), -(-D // 2 // pairs)
    launch(turn_pairs, grid, (pairs, min(H, THREADS // pairs)), out, x, cos, sin, sign)
