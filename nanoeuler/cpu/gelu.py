"""GELU, the tanh form that GPT-2 uses (Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2).

    u = √(2/π) (x + 0.044715 x³)        out = ½ x (1 + tanh u)

Backward. With t = tanh u, tanh' = 1 - t² and u' = √(2/π) (1 + 3 · 0.044715 x²)::

    dx = dout ½ (1 + t + x (1 - t²) u')
"""

import math

import numpy as np

from nanoeuler.cpu.parallel import blocks, parallel, scratch

ROOT = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def gelu_forward(out: np.ndarray, x: np.ndarray) -> None:
    """Write ``gelu(x)``.

    Args:
        out: any shape, written.
        x: as ``out``.
    """
    flat, inputs = out.reshape(-1), x.reshape(-1)

    def block(part: slice) -> None:
        o = _tanh(flat[part], inputs[part])
        o += 1
        o *= inputs[part]
        o *= 0.5

    parallel(block, blocks(flat.size))


def gelu_backward(dx: np.ndarray, dout: np.ndarray, x: np.ndarray) -> None:
    """Write the input's gradient.

    Args:
        dx: as ``x``, written; may be ``dout`` or ``x`` itself.
        dout: as ``x``.
        x: any shape, the forward's input; of a size whose cube the dtype holds.
    """
    gradients, incoming, inputs = dx.reshape(-1), dout.reshape(-1), x.reshape(-1)

    def block(part: slice) -> None:
        x = inputs[part]
        t = _tanh(scratch("gelu tanh", x.shape, x.dtype), x)
        slope = np.square(x, out=scratch("gelu slope", x.shape, x.dtype))  # becomes x (1 - t²) u'
        slope *= 3 * CUBIC * ROOT
        slope += ROOT
        slope *= x
        rest = np.square(t, out=scratch("gelu rest", x.shape, x.dtype))
        np.subtract(1, rest, out=rest)
        slope *= rest
        t += 1
        t += slope
        t *= 0.5
        np.multiply(incoming[part], t, out=gradients[part])

    parallel(block, blocks(gradients.size))


def _tanh(out: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Write ``tanh(√(2/π) (x + 0.044715 x³))`` and return it; infinite inside for a huge x, and then ±1."""
    with np.errstate(over="ignore"):
        np.square(x, out=out)
        out *= CUBIC * ROOT
        out += ROOT
        out *= x
    return np.tanh(out, out=out)
