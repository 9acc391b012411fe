"""Exactly rounded floating-point arithmetic in NumPy, in the four rounding modes of PTX.

Two old tricks carry it: the error of a float64 sum or product is itself a float64 (Knuth, Dekker), and a result rounded
to odd in float64 may be rounded once more, to fewer bits, as if it had been exact (Boldo and Melquiond, "Emulation of a
FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Transactions on Computers 57, 2008).
Modes: rn to nearest even, rz toward zero, rm toward minus infinity, rp toward plus infinity.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from nanoeuler.simt.ptx.kinds import Array

MODES = ("rn", "rz", "rm", "rp")


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the rounded sum and its error, exactly; the error of an infinite sum is NaN."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the rounded float64 product and its error, exactly while no exponent is extreme."""
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(a: Array) -> tuple[Array, Array]:
    """Cut a float64 into two of 26 bits (Veltkamp)."""
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def round_to_odd(value: Array, error: Array) -> Array:
    """Return value + error rounded to odd: if inexact, the neighbour whose last bit is 1."""
    bits = value.view(np.int64)
    inexact = (error != 0) & np.isfinite(value) & np.isfinite(error) & (bits & 1 == 0)
    away = (error > 0) == (value > 0)
    return np.where(inexact, np.where(away, bits + 1, bits - 1), bits).view(np.float64)


def narrow(value: Array, mode: str, dtype: np.dtype[Any] | type = np.float32) -> Array:
    """Return float64 ``value`` (exact, or rounded to odd) as ``dtype``, rounded by ``mode``."""
    nearest = value.astype(dtype)
    if mode == "rn":
        return nearest
    wide = nearest.astype(np.float64)
    info = nearest.dtype.type
    if mode == "rz":
        beyond = np.abs(wide) > np.abs(value)
        return np.where(beyond, np.nextafter(nearest, info(0)), nearest)
    beyond = wide > value if mode == "rm" else wide < value
    return np.where(beyond, np.nextafter(nearest, info(-np.inf if mode == "rm" else np.inf)), nearest)


def nudge(nearest: Array, error: Array, mode: str) -> Array:
    """Return ``nearest``, from which the exact value is ``error`` away (its sign counts), rounded by ``mode``."""
    if mode == "rn":
        return nearest
    if mode == "rz":
        return np.where(np.sign(error) * np.sign(nearest) < 0, np.nextafter(nearest, 0.0), nearest)
    if mode == "rm":
        return np.where(error < 0, np.nextafter(nearest, -np.inf), nearest)
    return np.where(error > 0, np.nextafter(nearest, np.inf), nearest)


def add(a: Array, b: Array, mode: str) -> Array:
    """Return a + b of float32 or float64, rounded by ``mode``."""
    if mode == "rn":
        return a + b
    total, error = two_sum(a.astype(np.float64), b.astype(np.float64))
    if a.dtype == np.float64:
        result = nudge(total, np.where(np.isinf(total), -total, error), mode)
        result = np.where(np.isinf(a) | np.isinf(b), total, result)
    else:
        result = narrow(round_to_odd(total, error), mode)
    return _zero_down(result, a, b, total, mode)


def multiply(a: Array, b: Array, mode: str) -> Array:
    """Return a * b of float32 or float64, rounded by ``mode``."""
    if mode == "rn":
        return a * b
    if a.dtype == np.float32:
        return narrow(a.astype(np.float64) * b.astype(np.float64), mode)
    zero = np.where(np.signbit(a) != np.signbit(b), -0.0, 0.0)
    return fma64(a, b, zero, mode)


def fma(a: Array, b: Array, c: Array, mode: str) -> Array:
    """Return a * b + c of float32 or float64, rounded once, by ``mode``."""
    if a.dtype == np.float64:
        return fma64(a, b, c, mode)
    product = a.astype(np.float64) * b.astype(np.float64)  # exact: 48 bits
    total = product + c
    if mode == "rn":
        # Rounding twice goes wrong only where the float64 sum lies half way between two float32 (or may, if tiny).
        half_way = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000
        if not (half_way | (np.abs(total) < 2.0**-125)).any():
            return total.astype(np.float32)
    total, error = two_sum(product, c.astype(np.float64))
    return _zero_down(narrow(round_to_odd(total, error), mode), product, c, total, mode)


def _zero_down(result: Array, a: Array, b: Array, total: Array, mode: str) -> Array:
    """Return ``result`` with the zero of a sum of opposite terms negative where the mode is rm."""
    if mode != "rm":
        return result
    return np.where((total == 0) & (np.signbit(a) | np.signbit(b)), result.dtype.type(-0.0), result)


def odd_sum_of_product(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c of short floats (24 bits at most), as float64 rounded to odd."""
    return round_to_odd(*two_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)))


def fma64(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """Return a * b + c of float64, rounded once, by ``mode``."""
    a, b, c = np.broadcast_arrays(a, b, c)
    upper, lower = two_product(a, b)
    top, rest = two_sum(c, lower)
    high, low = two_sum(upper, top)
    tail = round_to_odd(*two_sum(rest, low))
    result, error = two_sum(high, tail)
    plain = a * b + c
    result = np.where(result == 0, plain, nudge(result, error, mode))  # an exact zero has the sign that a sum gives it
    result = _zero_down(result, a * b, c, result, mode)
    result = np.where(np.isfinite(a) & np.isfinite(b) & np.isfinite(c), result, plain)
    for at in np.flatnonzero(_extreme(a, b, c)):
        result[at] = _fma_of_fractions(float(a[at]), float(b[at]), float(c[at]), mode)
    return result


def _extreme(a: Array, b: Array, c: Array) -> Array:
    """Return where an exponent might make an intermediate of ``fma64`` overflow or lose bits."""
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    product = np.frexp(a)[1] + np.frexp(b)[1]
    far = (np.abs(product) > 900) | (np.abs(np.frexp(a)[1]) > 900) | (np.abs(np.frexp(b)[1]) > 900)
    return finite & (far | ((c != 0) & (np.abs(np.frexp(c)[1]) > 900)))


def _fma_of_fractions(a: float, b: float, c: float, mode: str) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        down = mode == "rm" and (math.copysign(1, a) != math.copysign(1, b) or math.copysign(1, c) < 0)
        return -0.0 if down else a * b + c
    try:
        nearest = float(exact)
    except OverflowError:
        nearest = float("inf") if exact > 0 else float("-inf")
        error = -nearest
    else:
        error = float((exact > Fraction(nearest)) - (exact < Fraction(nearest)))
        if nearest == 0:
            nearest = 0.0 if exact > 0 else -0.0
            if mode == "rz":
                return nearest
    return float(nudge(np.array([nearest]), np.array([error]), mode)[0])


def divide(a: Array, b: Array, mode: str) -> Array:
    """Return a / b of float32 or float64, rounded by ``mode``."""
    if mode == "rn":
        return a / b
    x, y = np.broadcast_arrays(a.astype(np.float64), b.astype(np.float64))
    quotient = x / y
    # The sign of x - quotient * y over y's says on which side the exact value is; mantissas alone cannot underflow.
    (mx, ex), (my, ey), (mq, eq) = np.frexp(x), np.frexp(y), np.frexp(quotient)
    left = fma64(-np.ldexp(mq, eq + ey - ex), my, mx)
    error = np.where(np.isfinite(left) & np.isfinite(quotient), np.sign(left) * np.sign(y), 0.0)
    error = np.where(np.isinf(quotient) & np.isfinite(x) & (y != 0), -quotient, error)
    return nudge(quotient, error, mode) if a.dtype == np.float64 else narrow(round_to_odd(quotient, error), mode)


def square_root(a: Array, mode: str) -> Array:
    """Return the square root of float32 or float64, rounded by ``mode``."""
    root = np.sqrt(a)
    if mode == "rn":
        return root
    wide = np.sqrt(a.astype(np.float64))
    scale = np.where(np.abs(a) < 2.0**-800, 2.0**100, 1.0)  # so that the square of a tiny root does not underflow
    left = fma64(-wide * scale, wide * scale, a.astype(np.float64) * scale * scale)
    error = np.where(np.isfinite(left), left, 0.0)
    return nudge(wide, error, mode) if a.dtype == np.float64 else narrow(round_to_odd(wide, error), mode)


def from_bf16(bits: Array) -> Array:
    """Return bfloat16 bits as float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(value: Array, mode: str = "rn") -> Array:
    """Return float32 ``value`` as bfloat16 bits, rounded by ``mode`` (rn, rz); NaN becomes 0x7fff."""
    bits = value.view(np.uint32)
    if mode == "rn":
        bits = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return np.where(np.isnan(value), np.uint16(0x7FFF), (bits >> np.uint32(16)).astype(np.uint16))


def odd_float32(value: Array) -> Array:
    """Return float64 ``value`` as float32, rounded to odd."""
    cut = narrow(value, "rz")
    inexact = (cut.astype(np.float64) != value) & np.isfinite(cut)
    return np.where(inexact, cut.view(np.uint32) | np.uint32(1), cut.view(np.uint32)).view(np.float32)
