"""Bits, and sums and products rounded once: what CUDA has as instructions, as plain device functions.

Everything here is written in the kernel language, with a cast wherever Numba and NumPy would disagree on a type, so
that it runs alike in Python on NumPy scalars and compiled by Numba. 32-bit arithmetic is done in int64 or float64,
where no intermediate result overflows.
"""

import math
from typing import Any

import numpy as np
from numpy import float32, float64, int32, int64, uint32, uint64

# Casts of bits: CUDA's __float_as_int, __int_as_float, __double_as_longlong, __longlong_as_double --------------------


def float_bits(x: float32) -> int32:
    """Return the bits of a float32 as an int32."""
    return float32(x).view(int32)


def bits_float(bits: int32) -> float32:
    """Return the float32 that has these bits."""
    return int32(bits).view(float32)


def double_bits(x: float64) -> int64:
    """Return the bits of a float64 as an int64."""
    return float64(x).view(int64)


def bits_double(bits: int64) -> float64:
    """Return the float64 that has these bits."""
    return int64(bits).view(float64)


# Counting and reversing bits (PTX ISA, popc, clz, bfind, brev) -------------------------------------------------------
# The argument is any integer: only its low bits count.


def popc32(x: Any) -> int32:
    """Return how many of the low 32 bits are set. Source: Warren, Hacker's Delight, figure 5-2."""
    v = int64(x) & 0xFFFFFFFF
    v = v - ((v >> 1) & 0x55555555)
    v = (v & 0x33333333) + ((v >> 2) & 0x33333333)
    v = (v + (v >> 4)) & 0x0F0F0F0F
    return int32(((v * 0x01010101) & 0xFFFFFFFF) >> 24)


def popc64(x: Any) -> int32:
    """Return how many of 64 bits are set."""
    return int32(int64(popc32(x)) + int64(popc32(int64(x) >> 32)))


def clz32(x: Any) -> int32:
    """Return how many zeros lead the low 32 bits, 32 for 0."""
    v = int64(x) & 0xFFFFFFFF
    v = v | (v >> 1)
    v = v | (v >> 2)
    v = v | (v >> 4)
    v = v | (v >> 8)
    v = v | (v >> 16)
    return int32(32 - int64(popc32(v)))


def clz8(x: Any) -> int32:
    """Return how many zeros lead the low 8 bits, 8 for 0."""
    return int32(int64(clz32(int64(x) & 0xFF)) - 24)


def clz16(x: Any) -> int32:
    """Return how many zeros lead the low 16 bits, 16 for 0."""
    return int32(int64(clz32(int64(x) & 0xFFFF)) - 16)


def clz64(x: Any) -> int32:
    """Return how many zeros lead 64 bits, 64 for 0."""
    high = (int64(x) >> 32) & 0xFFFFFFFF
    if high != 0:
        return clz32(high)
    return int32(32 + int64(clz32(x)))


def ffs32(x: Any) -> int32:
    """Return the position of the lowest bit set in the low 32, counted from 1; 0 where none is."""
    v = int64(x) & 0xFFFFFFFF
    if v == 0:
        return int32(0)
    return int32(int64(popc32((v & -v) - 1)) + 1)


def ffs64(x: Any) -> int32:
    """Return the position of the lowest bit set, counted from 1; 0 where none is."""
    low = int64(ffs32(x))
    high = int64(ffs32(int64(x) >> 32))
    if low == 0 and high != 0:
        return int32(32 + high)
    return int32(low)


def brev32(x: Any) -> uint32:
    """Return the low 32 bits in reverse order. Source: Warren, Hacker's Delight, figure 7-1."""
    v = int64(x) & 0xFFFFFFFF
    v = ((v & 0x55555555) << 1) | ((v >> 1) & 0x55555555)
    v = ((v & 0x33333333) << 2) | ((v >> 2) & 0x33333333)
    v = ((v & 0x0F0F0F0F) << 4) | ((v >> 4) & 0x0F0F0F0F)
    v = ((v & 0x00FF00FF) << 8) | ((v >> 8) & 0x00FF00FF)
    return uint32(((v << 16) | (v >> 16)) & 0xFFFFFFFF)


def brev64(x: Any) -> uint64:
    """Return 64 bits in reverse order."""
    high, low = int64(brev32(x)), int64(brev32(int64(x) >> 32))
    return uint64((high << 32) | low)


# Rounding: the four modes of IEEE 754 that CUDA has, as the suffixes _rn, _rz, _rd, _ru ------------------------------

NEAREST, ZERO, DOWN, UP = 0, 1, 2, 3
SPLITTER = 134217729.0  # 2**27 + 1


def two_sum(a: float64, b: float64) -> tuple[float64, float64]:
    """Return a + b rounded, and the rounding error: their sum is exact. Source: Knuth, TAOCP 2, 4.2.2, theorem B."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_product(a: float64, b: float64) -> tuple[float64, float64]:
    """Return a * b rounded, and the rounding error. Source: Dekker, Numer. Math. 18 (1971), with Veltkamp's splitting.

    Exact while neither overflow nor underflow comes near: |a|, |b| below 2**990, the error above 2**-1074.
    """
    p = a * b
    t = SPLITTER * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = SPLITTER * b
    b_high = t - (t - b)
    b_low = b - b_high
    return p, a_low * b_low - (((p - a_high * b_high) - a_low * b_high) - a_high * b_low)


def odd(high: float64, low: float64) -> float64:
    """Return high + low rounded to odd, where high is that sum rounded to nearest and low the error.

    A sum rounded to odd can be rounded again, to a format at least two bits shorter, in any mode, with no harm.
    Source: Boldo and Melquiond, Emulation of a FMA and correctly rounded sums, IEEE Trans. Computers 57 (2008).
    """
    if double_bits(high) & 1 == 0:
        if low > 0.0:
            return np.nextafter(high, float64(math.inf))
        if low < 0.0:
            return np.nextafter(high, float64(-math.inf))
    return high


def round32(x: float64, mode: int) -> float32:
    """Return the float32 that x, exact or rounded to odd, rounds to in ``mode``."""
    q = float32(x)
    error = x - float64(q)
    if error < 0.0 and (mode == DOWN or (mode == ZERO and x > 0.0)):
        return np.nextafter(q, float32(-math.inf))
    if error > 0.0 and (mode == UP or (mode == ZERO and x < 0.0)):
        return np.nextafter(q, float32(math.inf))
    return q


def round64(high: float64, low: float64, exponent: Any, mode: int) -> float64:
    """Return the float64 that (high + low) * 2**exponent rounds to in ``mode``.

    high is the sum rounded to nearest, finite and not 0; of low the sign counts, and that it is below half a unit in
    the last place of high.
    """
    e = int32(exponent)
    q = np.ldexp(high, e)
    rest = high - np.ldexp(q, int32(-int64(e)))
    error = rest + low
    if mode == NEAREST:
        # below 2**-1022 ldexp has rounded for a second time: a tie there was none if low points away from q
        tie = np.ldexp(1.0, int32(-1075 - int64(e)))
        if abs(rest) == tie and rest * low > 0.0:
            return np.nextafter(q, float64(math.inf) if rest > 0.0 else float64(-math.inf))
        return q
    if error < 0.0 and (mode == DOWN or (mode == ZERO and high > 0.0)):
        return np.nextafter(q, float64(-math.inf))
    if error > 0.0 and (mode == UP or (mode == ZERO and high < 0.0)):
        return np.nextafter(q, float64(math.inf))
    return q


def zero_sum(a: float64, b: float64, mode: int) -> float64:
    """Return a + b where that is exactly 0: rounding down makes it -0 unless both were +0 (IEEE 754, 6.3)."""
    if mode == DOWN and np.signbit(a) != np.signbit(b):
        return float64(-0.0)
    return float64(a + b)


def fma32_in_mode(a: float32, b: float32, c: float32, mode: int) -> float32:
    """Return a * b + c, rounded once in ``mode``: the product is exact in float64, the sum rounded to odd."""
    product, addend = float64(a) * float64(b), float64(c)
    s, error = two_sum(product, addend)
    if s == 0.0:
        return float32(zero_sum(product, addend, mode))
    return round32(odd(s, error), mode)


def fma64_in_mode(a: float64, b: float64, c: float64, mode: int) -> float64:
    """Return a * b + c, rounded once in ``mode``, at any scale, subnormal results included.

    The three significands are in [1/2, 1), the exponents apart, and c is brought within 2**200 of the product, where it
    counts as a rest only. Source of the sum: Boldo and Melquiond, as for ``odd``.
    """
    if not (np.isfinite(a) and np.isfinite(b)):
        return a * b + c
    if not np.isfinite(c):
        return c
    if a == 0.0 or b == 0.0:
        return c if c != 0.0 else zero_sum(a * b, c, mode)
    a_part, a_exponent = math.frexp(a)
    b_part, b_exponent = math.frexp(b)
    exponent = int64(a_exponent) + int64(b_exponent)
    addend = float64(0.0)
    if c != 0.0:
        c_part, c_exponent = math.frexp(c)
        distance = int64(c_exponent) - exponent
        if distance > 200:
            exponent, distance = exponent + distance - 200, int64(200)
        addend = np.ldexp(float64(c_part), int32(distance) if distance > -200 else int32(-200))
    product, product_error = two_product(float64(a_part), float64(b_part))
    t, t_error = two_sum(addend, product_error)
    v, v_error = two_sum(product, t)
    rest, rest_error = two_sum(t_error, v_error)
    high, low = two_sum(v, odd(rest, rest_error))
    if high == 0.0:
        return float64(-0.0) if mode == DOWN else float64(0.0)
    return round64(high, low, exponent, mode)


def fma32(a: float32, b: float32, c: float32) -> float32:
    """Return a * b + c rounded once, to nearest even: cuda.fma of float32, PTX fma.rn.f32."""
    return fma32_in_mode(a, b, c, NEAREST)


def fma64(a: float64, b: float64, c: float64) -> float64:
    """Return a * b + c rounded once, to nearest even: cuda.fma of float64, PTX fma.rn.f64."""
    return fma64_in_mode(a, b, c, NEAREST)


def cbrt(x: float64) -> float64:
    """Return the cube root, of negative numbers too; within 1 ulp."""
    return np.cbrt(float64(x))
