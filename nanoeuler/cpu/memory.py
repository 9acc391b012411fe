"""Memory of the CPU: what the model asks of a device besides the ops."""

from typing import Any

import numpy as np

from nanoeuler.cpu.parallel import blocks, parallel


def empty(size: int, dtype: Any) -> np.ndarray:
    """Return an uninitialised flat array, aligned to a cache line of 64 bytes."""
    itemsize = np.dtype(dtype).itemsize
    raw = np.empty(size * itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size * itemsize].view(dtype)


def fill(out: np.ndarray, value: float) -> None:
    """Set every element of a flat array."""
    parallel(lambda part: out[part].fill(value), blocks(out.size))


def copy(out: np.ndarray, x: np.ndarray) -> None:
    """Write the elements of another array, rounded where ``out`` has a shorter type.

    Args:
        out: (N, C), (B, T, H, D) or flat, written; rows may lie apart.
        x: as ``out``.
    """
    np.copyto(out, x, casting="same_kind")


def from_numpy(out: np.ndarray, x: np.ndarray) -> None:
    """Write an array of the host.

    Args:
        out: any shape, written.
        x: as ``out``, in the host's memory, of any type that ``out`` can hold.
    """
    out[...] = x


def to_numpy(x: np.ndarray) -> np.ndarray:
    """Return an array where the host can read it: on a CPU, the array itself."""
    return x
