"""Memory of the GPU: what the model asks of a device besides the ops; see :mod:`nanoeuler.cpu.memory`.

All of it is one arena. A run knows what it needs before it starts (:mod:`nanoeuler.plan`) and reserves it with
:func:`reserve`; :func:`empty` then hands it out piece by piece, and a step allocates nothing. Without a reservation
each piece is an allocation of its own, which is as well for a test or a sample.

Scratch memory is what an op needs only while it runs. Launches run one after the other, so a name's memory serves every
call in turn; it grows while a step is first recorded, and is kept.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.gpu.backend import cuda, device_array, int64, sliceable
from nanoeuler.gpu.bfloat16 import (
    BFLOAT16,
    from_bfloat16,
    narrow,
    narrow_bfloat16,
    to_bfloat16,
    widen,
    widen_bfloat16,
)
from nanoeuler.gpu.launch import launch, on_gpu, refuse_while_recording
from nanoeuler.gpu.variant import variant

Array = Any
THREADS = 256  # of a block
PER_THREAD = 4  # elements, where they lie flat
#: Pieces of the arena start at multiples of this many bytes, as those of cudaMalloc do.
ALIGNMENT = 256


def rounded_up(size: int) -> int:
    """Return a number of bytes rounded up to what a piece of the arena takes."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Arena:
    """One allocation on the GPU, handed out from its start to its end."""

    def __init__(self, size: int) -> None:
        self.memory, self.used = device_array(size, np.uint8), 0

    def take(self, size: int, dtype: Any) -> Array:
        """Return the next ``size`` elements.

        Raises:
            UserError: so many are not left.
        """
        start = rounded_up(self.used)
        end = start + size * np.dtype(dtype).itemsize
        if end > self.memory.size:
            raise UserError(
                f"the plan of this run reserved {self.memory.size} bytes of GPU memory, and it needs {end}: this is a "
                "fault of nanoeuler, which its makers would like to hear of"
            )
        self.used = end
        return sliceable(self.memory[start:end].view(dtype))


_arena: Arena | None = None
_scratch: dict[tuple[str, np.dtype, bool], Array] = {}
_host_empty: Callable[[int, Any], Array] = np.empty


def reserve(size: int) -> None:
    """Allocate an arena of so many bytes, from which :func:`empty` and :func:`scratch` take from now on."""
    global _arena
    _scratch.clear()
    _arena = Arena(size)


def free_bytes() -> int:
    """Return how many bytes of the GPU's memory are free."""
    return int(cuda.current_context().get_memory_info()[0])


def empty(size: int, dtype: Any) -> Array:
    """Return an uninitialised flat array in the GPU's memory."""
    return device_array(size, np.dtype(dtype)) if _arena is None else _arena.take(size, dtype)


def scratch(name: str, shape: tuple[int, ...], dtype: Any, like: Array) -> Array:
    """Return an uninitialised array in the memory where ``like`` lies, valid until the next call with this name."""
    size, dtype, device = math.prod(shape), np.dtype(dtype), on_gpu(like)
    buffer = _scratch.get((name, dtype, device))
    if buffer is None or buffer.size < size:
        buffer = empty(size, dtype) if device else _host_empty(size, dtype)
        _scratch[name, dtype, device] = buffer
    return buffer[:size].reshape(shape)


@contextmanager
def scratch_from(allocate: Callable[[int, Any], Array]) -> Iterator[None]:
    """Take scratch memory on the host from ``allocate(size, dtype)``, anew, for as long as this lasts."""
    global _scratch, _host_empty
    before = _scratch, _host_empty
    _scratch, _host_empty = {}, allocate
    try:
        yield
    finally:
        _scratch, _host_empty = before


@cuda.jit
def fill_flat(out: Array, value: Any) -> None:
    """Write a value to every element: a thread for each."""
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = narrow(value)


@cuda.jit
def copy_flat(out: Array, x: Array) -> None:
    """Copy (n,) elements: a thread for four, a block's width apart, whose reads are under way together."""
    first = int64(cuda.blockIdx.x) * (THREADS * PER_THREAD) + cuda.threadIdx.x
    for k in range(PER_THREAD):
        i = first + k * THREADS
        if i < out.shape[0]:
            out[i] = narrow(widen(x[i]))


@cuda.jit
def copy_rows(out: Array, x: Array) -> None:
    """Copy (N, C) elements: a block for each row."""
    row = cuda.blockIdx.x
    for c in range(cuda.threadIdx.x, out.shape[1], THREADS):
        out[row, c] = narrow(widen(x[row, c]))


@cuda.jit
def copy_heads(out: Array, x: Array) -> None:
    """Copy (B, T, H, D) elements: a block for each head of each token."""
    t, h, b = cuda.blockIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
    for d in range(cuda.threadIdx.x, out.shape[3], THREADS):
        out[b, t, h, d] = narrow(widen(x[b, t, h, d]))


def fill(out: Array, value: float) -> None:
    """Set every element of a flat array."""
    launch(fill_flat, -(-out.size // THREADS), THREADS, out, float(value))


def copy(out: Array, x: Array) -> None:
    """Write the elements of another array, rounded where ``out`` has a shorter type.

    Args:
        out: (N, C), (B, T, H, D) or flat, written; rows may lie apart.
        x: as ``out``.
    """
    if out.ndim == 4:
        B, T, H, _ = out.shape
        kernel, grid = copy_heads, (T, H, B)
    elif out.ndim == 2:
        kernel, grid = copy_rows, (out.shape[0], 1, 1)
    else:
        kernel, grid = copy_flat, (-(-out.size // (THREADS * PER_THREAD)), 1, 1)
    # Each side has a type of its own here, so the variant is chosen by hand; of one type bits are copied as they are.
    read = widen_bfloat16 if x.dtype == BFLOAT16 != out.dtype else widen
    write = narrow_bfloat16 if out.dtype == BFLOAT16 != x.dtype else narrow
    launch(variant(kernel, widen=read, narrow=write), grid, THREADS, out, x, low=False)


def from_numpy(out: Array, x: np.ndarray) -> None:
    """Write an array of the host.

    Args:
        out: any shape, written; C-contiguous. Where it holds bfloat16 floats are rounded to it.
        x: as ``out``, in the host's memory, of any type that ``out`` can hold.
    """
    refuse_while_recording("an array of the host is copied to the device")
    x = np.asarray(x)
    if out.dtype == BFLOAT16 and x.dtype != BFLOAT16:
        x = to_bfloat16(x)
    if on_gpu(out):
        out.copy_to_device(np.ascontiguousarray(x, out.dtype).reshape(out.shape))
    else:
        out[...] = x


def to_numpy(x: Array) -> np.ndarray:
    """Return an array where the host can read it; bfloat16 becomes float32."""
    refuse_while_recording("an array of the device is copied to the host")
    host = x.copy_to_host() if on_gpu(x) else x
    return from_bfloat16(host) if host.dtype == BFLOAT16 else host
