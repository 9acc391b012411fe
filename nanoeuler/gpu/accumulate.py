"""Sum of several gradients on the GPU: a launch for each, a thread for an element; see :mod:`nanoeuler.cpu.accumulate`.

    out[i] += parts[0][i], then parts[1][i], ...

The launches run in the order of the parts, so the sum is the CPU's to the bit. Each moves 12 bytes per element: two
numbers read and one written.
"""

from collections.abc import Sequence
from typing import Any

from nanoeuler.gpu.backend import cuda
from nanoeuler.gpu.launch import launch

Array = Any

THREADS = 256


@cuda.jit
def add(out: Array, part: Array) -> None:
    """Add one element to another."""
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] += part[i]


def accumulate(out: Array, parts: Sequence[Array]) -> None:
    """Add flat float32 arrays to another.

    Args:
        out: (n,), added to.
        parts: arrays of shape (n,).
    """
    for part in parts:
        launch(add, -(-out.size // THREADS), THREADS, out, part)
