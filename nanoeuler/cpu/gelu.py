"""Bias and GELU, the tanh form that GPT-2 uses (Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2).

Letters: N rows (tokens), F feed-forward channels.

    z = x + bias        u = √(2/π) (z + 0.044715 z³)        out = ½ z (1 + tanh u)

The bias is that of the linear layer before: added here, where x passes through the caches anyway, it costs nothing.

Backward, which computes z again. With t = tanh u, tanh' = 1 - t² and u' = √(2/π) (1 + 3 · 0.044715 z²)::

    dx    = dout ½ (1 + t + z (1 - t²) u')
    dbias = Σ_n dx
"""

import math

import numpy as np

from nanoeuler.cpu.parallel import blocks, ones, parallel, scratch

ROOT = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def gelu_forward(out: np.ndarray, x: np.ndarray, bias: np.ndarray | None) -> None:
    """Write ``gelu(x + bias)``.

    Args:
        out: (N, F), written.
        x: (N, F).
        bias: (F,), or None.
    """

    def block(rows: slice) -> None:
        z, o = _biased(x[rows], bias), out[rows]
        _tanh(o, z)
        o += 1
        o *= z
        o *= 0.5

    parallel(block, blocks(*out.shape))


def gelu_backward(
    dx: np.ndarray, dbias: np.ndarray | None, dout: np.ndarray, x: np.ndarray, bias: np.ndarray | None
) -> None:
    """Write the input's gradient, add to the bias's.

    Args:
        dx: (N, F), written; may be ``dout`` or ``x`` itself.
        dbias: (F,), added to, or None.
        dout: (N, F).
        x: (N, F), the forward's input; of a size whose cube the dtype holds.
        bias: (F,), the forward's, or None.
    """
    N, F = x.shape
    parts = blocks(N, F)
    partial = None if dbias is None else scratch("gelu partial", (len(parts), F), x.dtype)  # summed in a fixed order

    def block(index: int) -> None:
        rows = parts[index]
        z = _biased(x[rows], bias)
        t = _tanh(scratch("gelu tanh", z.shape, z.dtype), z)
        slope = np.square(z, out=scratch("gelu slope", z.shape, z.dtype))  # becomes z (1 - t²) u'
        slope *= 3 * CUBIC * ROOT
        slope += ROOT
        slope *= z
        rest = np.square(t, out=scratch("gelu rest", z.shape, z.dtype))
        np.subtract(1, rest, out=rest)
        slope *= rest
        t += 1
        t += slope
        t *= 0.5
        np.multiply(dout[rows], t, out=dx[rows])
        if partial is not None:
            np.matmul(ones(len(z), z.dtype), dx[rows], out=partial[index])

    parallel(block, range(len(parts)))
    if dbias is not None:
        dbias += ones(len(parts), x.dtype) @ partial


def _biased(x: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return ``x + bias`` in scratch memory, or x itself where there is no bias."""
    return x if bias is None else np.add(x, bias, out=scratch("gelu biased", x.shape, x.dtype))


def _tanh(out: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Write ``tanh(√(2/π) (z + 0.044715 z³))`` and return it; infinite inside for a huge z, and then ±1."""
    with np.errstate(over="ignore"):
        np.square(z, out=out)
        out *= CUBIC * ROOT
        out += ROOT
        out *= z
    return np.tanh(out, out=out)
