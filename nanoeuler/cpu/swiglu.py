"""SwiGLU (Shazeer 2020, arXiv:2002.05202): one half of the channels, through SiLU, gates the other half.

Letters: N rows (tokens), F feed-forward channels.

    s = 1 / (1 + e^-gate)        out = gate s up

Backward. silu(g) = g s with s' = s (1 - s), so silu'(g) = s + g s (1 - s) = s (1 - a) + a::

    dup   = dout gate s
    dgate = dout up (s (1 - a) + a)        where a = gate s
"""

import numpy as np

from nanoeuler.cpu.parallel import blocks, parallel, scratch


def swiglu_forward(out: np.ndarray, gate_up: np.ndarray) -> None:
    """Write ``silu(gate) * up``.

    Args:
        out: (N, F), written.
        gate_up: (N, 2F), gate in the first F columns, up in the last.
    """
    N, F = out.shape

    def block(rows: slice) -> None:
        gate, up, o = gate_up[rows, :F], gate_up[rows, F:], out[rows]
        denominator = _one_plus_exp_minus(gate)
        np.multiply(gate, up, out=o)
        o /= denominator

    parallel(block, blocks(N, F))


def swiglu_backward(dgate_up: np.ndarray, dout: np.ndarray, gate_up: np.ndarray) -> None:
    """Write the gradient of both halves.

    Args:
        dgate_up: (N, 2F), written; may be ``gate_up`` itself.
        dout: (N, F).
        gate_up: (N, 2F), the forward's.
    """
    N, F = dout.shape

    def block(rows: slice) -> None:
        gate, up, d = gate_up[rows, :F], gate_up[rows, F:], dout[rows]
        dgate, dup = dgate_up[rows, :F], dgate_up[rows, F:]
        s = _one_plus_exp_minus(gate)
        np.reciprocal(s, out=s)
        a = np.multiply(gate, s, out=scratch("swiglu silu", d.shape, d.dtype))
        np.subtract(1, a, out=dgate)  # gate is not needed any more: dgate may lie over it
        dgate *= s
        dgate += a
        dgate *= d
        dgate *= up
        np.multiply(d, a, out=dup)

    parallel(block, blocks(N, F))


def _one_plus_exp_minus(gate: np.ndarray) -> np.ndarray:
    """Return ``1 + e^-gate`` in scratch memory: infinite for a very negative gate, and then out is 0 as it should."""
    t = np.negative(gate, out=scratch("swiglu", gate.shape, gate.dtype))
    with np.errstate(over="ignore"):
        np.exp(t, out=t)
    t += 1
    return t
