"""The sum of an array, added to a number: a batch's loss, micro-batch by micro-batch, that need not leave the device.

    out = out + Σ_i x[i]

The sum is taken in float64 and rounded once, when it is added.
"""

import numpy as np


def total(out: np.ndarray, x: np.ndarray) -> None:
    """Add the sum of a flat array to a number.

    Args:
        out: (1,), added to.
        x: (n,).
    """
    out += x.sum(dtype=np.float64)
