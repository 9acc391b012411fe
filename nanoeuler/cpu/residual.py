"""Residual connection (He et al. 2015, arXiv:1512.03385): ``out = x + branch``.

Backward: a sum hands its gradient unchanged to both terms, dx = dbranch = dout. Where x also feeds the branch, the
two gradients that come back to x add up, which is this op's forward again: ``residual_forward(dx, dout, dbranch)``.
"""

import numpy as np

from nanoeuler.cpu.parallel import blocks, parallel


def residual_forward(out: np.ndarray, x: np.ndarray, branch: np.ndarray) -> None:
    """Write ``x + branch``.

    Args:
        out: any shape, written; may be ``x`` or ``branch`` itself.
        x: as ``out``.
        branch: as ``out``.
    """
    flat, a, b = out.reshape(-1), x.reshape(-1), branch.reshape(-1)
    parallel(lambda part: np.add(a[part], b[part], out=flat[part]), blocks(flat.size))


def residual_backward(dx: np.ndarray, dbranch: np.ndarray, dout: np.ndarray) -> None:
    """Write the gradient of both terms, which is ``dout``.

    Args:
        dx: as ``dout``, written; may be ``dout`` itself, and then nothing is copied.
        dbranch: as ``dout``, written; may be ``dout`` itself.
        dout: any shape.
    """
    for target in (dx, dbranch):
        if target is not dout:
            np.copyto(target, dout)
