"""The global norm of a gradient: the Euclidean length of all of it, taken as one vector (Pascanu et al. 2013).

    norm = √(Σ_i x[i]²)

Partial sums of fixed blocks are added up in float64 in a fixed order, so that the same gradient gives the same bits
however many threads there are. It is clipped inside :func:`~nanoeuler.cpu.adamw.adamw`.
"""

import math

import numpy as np

from nanoeuler.cpu.parallel import blocks, parallel, scratch


def global_norm(out: np.ndarray, x: np.ndarray) -> None:
    """Write the norm of a flat array; not finite if any element is not.

    Args:
        out: (1,), written.
        x: (n,).
    """
    parts = blocks(x.size)
    partial = scratch("global_norm", (len(parts),), np.float64)

    def block(index: int) -> None:
        partial[index] = np.dot(x[parts[index]], x[parts[index]])

    parallel(block, range(len(parts)))
    out[0] = math.sqrt(partial.sum())
