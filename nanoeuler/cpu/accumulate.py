"""Sum of several gradients, each from its own piece of a batch: what an all-reduce is between machines.

    out[i] += parts[0][i] + parts[1][i] + ...      added one after the other, in their order

Addition of floats is not associative, so the order is fixed: the same parts give the same bits in every run.
"""

from collections.abc import Sequence

import numpy as np

from nanoeuler.cpu.parallel import blocks, parallel


def accumulate(out: np.ndarray, parts: Sequence[np.ndarray]) -> None:
    """Add flat arrays to another.

    Args:
        out: (n,), added to.
        parts: arrays of shape (n,).
    """

    def block(span: slice) -> None:
        for part in parts:
            out[span] += part[span]

    parallel(block, blocks(out.size, 2))
