"""float16 and bfloat16 as the 16 bits that are stored, and float32 as what is computed with.

Device functions in the kernel language, as in ``primitives``. Not a number becomes 0x7FFF (PTX ISA, cvt).
"""

import math
from typing import Any

import numpy as np
from numpy import float32, float64, int32, int64, uint16

from nanoeuler.simt.functions.primitives import bits_float, float_bits


def half_to_float(bits: Any) -> float32:
    """Return the float16 with these 16 bits (uint16 or int16) as a float32: exact."""
    h = int64(bits) & 0xFFFF
    field, fraction = (h >> 10) & 31, h & 1023
    if field == 31:
        return bits_float(int32(((h & 0x8000) << 16) | 0x7F800000 | (fraction << 13)))
    if field == 0:
        size = float64(fraction) * 2.0**-24
    else:
        size = np.ldexp(float64(1024 + fraction), int32(field - 25))
    return float32(-size if h & 0x8000 != 0 else size)


def float_to_half(x: float32) -> uint16:
    """Return the bits of x rounded to float16, to nearest even; from 65520 on it is infinite (PTX cvt.rn.f16.f32)."""
    wide = float64(x)
    if wide != wide:
        return uint16(0x7FFF)
    size = abs(wide)
    if size >= 65520.0:
        bits = int64(0x7C00)
    elif size < 2.0**-14:
        bits = int64(np.rint(size * 2.0**24))  # subnormal, or just rounded up to the smallest normal number
    else:
        part, exponent = math.frexp(size)
        bits = ((int64(exponent) + 14) << 10) + int64(np.rint(part * 2048.0)) - 1024
    return uint16(bits | (0x8000 if np.signbit(wide) else 0))


def bfloat_to_float(bits: Any) -> float32:
    """Return the bfloat16 with these 16 bits (uint16 or int16) as a float32: exact."""
    return bits_float(int32((int64(bits) & 0xFFFF) << 16))


def float_to_bfloat(x: float32) -> uint16:
    """Return the bits of x rounded to bfloat16, to nearest even (PTX cvt.rn.bf16.f32)."""
    if x != x:
        return uint16(0x7FFF)
    bits = int64(float_bits(x)) & 0xFFFFFFFF
    return uint16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
