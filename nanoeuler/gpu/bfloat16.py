"""bfloat16: the upper half of a float32, kept in uint16 arrays, since NumPy and Numba have no such type.

    widen     the 16 bits become the upper half of a float32, exactly
    narrow    rounded to the nearest, ties to the even one

A kernel computes in float32 whatever its arrays hold: it reads an activation or a weight as ``widen(x[i])`` and writes
one as ``out[i] = narrow(value)``. For float32 arrays both are the identity; :func:`in_bfloat16` gives the same kernel
with the conversions in their place. Statistics, losses and gradients of parameters are float32 in both, and read and
written as they are.
"""

from typing import Any

import numpy as np

from nanoeuler.gpu.backend import cuda, int32, libdevice, uint16, uint32
from nanoeuler.gpu.variant import variant

#: The array type that holds bfloat16.
BFLOAT16 = np.dtype(np.uint16)


@cuda.jit(device=True)
def widen(value: Any) -> Any:
    """Return a float32 element of an array as it is."""
    return value


@cuda.jit(device=True)
def narrow(value: Any) -> Any:
    """Return a float32 as it is stored in a float32 array: as it is."""
    return value


@cuda.jit(device=True)
def widen_bfloat16(bits: Any) -> Any:
    """Return the float32 whose upper half these 16 bits are."""
    return libdevice.int_as_float(int32(uint32(bits) << uint32(16)))


@cuda.jit(device=True)
def narrow_bfloat16(value: Any) -> Any:
    """Return the bits of the bfloat16 nearest to a float32; of two equally near ones, the even one."""
    bits = uint32(libdevice.float_as_int(value))
    if bits & uint32(0x7FFFFFFF) > uint32(0x7F800000):  # not a number: rounding could carry it to infinity
        return uint16(0x7FFF)
    odd = (bits >> uint32(16)) & uint32(1)
    return uint16((bits + uint32(0x7FFF) + odd) >> uint32(16))


def in_bfloat16(kernel: Any) -> Any:
    """Return a kernel that does the same with arrays of bfloat16; itself, where it converts nothing."""
    conversions = {"widen": widen_bfloat16, "narrow": narrow_bfloat16}
    return variant(kernel, **{name: f for name, f in conversions.items() if name in kernel.py_func.__globals__})


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """Return numbers of any float type rounded to bfloat16, as uint16."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(x), np.uint32(0x7FFF), rounded).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Return the float32 numbers that uint16 arrays of bfloat16 hold."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
