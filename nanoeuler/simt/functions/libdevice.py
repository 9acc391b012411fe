"""``numba.cuda.libdevice`` for the executors that run source: every function of it, as a device function.

The names and types are those of numba-cuda, where an unsigned argument or result is the signed integer with its bits
and what C returns by pointer comes in a tuple. What NVIDIA's library computes to a few units in the last place, or an
instruction approximates (``fast_sinf``, ``rsqrt``), is computed here as exactly as it is simple to: float32 functions
in float64, rounded once; float64 functions to 1e-13 relative (see ``special``). Conversions, roundings, and
operations on bits are exact. Source of what they mean: CUDA Math API Reference, PTX ISA.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy import float32, float64, int16, int32, int64, uint64

from nanoeuler.simt.functions import special
from nanoeuler.simt.functions.half import float_to_half, half_to_float
from nanoeuler.simt.functions.primitives import (
    DOWN,
    NEAREST,
    UP,
    ZERO,
    bits_double,
    bits_float,
    brev32,
    brev64,
    clz32,
    clz64,
    double_bits,
    ffs32,
    ffs64,
    float_bits,
    fma32_in_mode,
    fma64_in_mode,
    odd,
    popc32,
    popc64,
    round32,
    round64,
    two_product,
    two_sum,
)
from nanoeuler.simt.functions.special import cospi, remquo, sinpi


class Emulation(NamedTuple):
    """One function: the numba types of its parameters and of what it returns, by name, and what to run instead."""

    arguments: tuple[str, ...]
    returns: tuple[str, ...]
    function: Callable


# float64 functions of which the float32 one, with an f at its name's end, is the same rounded ------------------------


def exp10(x: float64) -> float64:
    """Return 10 to the power of x."""
    return np.power(10.0, x)


def power(x: float64, y: float64) -> float64:
    """Return x to the power of y. NumPy takes a square root for y = 1/2, which differs at -0 and -inf."""
    if y == 0.5:
        return float64(math.inf) if x == -math.inf else np.sqrt(x) + 0.0
    return np.power(x, y)


def rsqrt(x: float64) -> float64:
    """Return 1 / sqrt(x)."""
    return 1.0 / np.sqrt(x)


def rcbrt(x: float64) -> float64:
    """Return 1 / cbrt(x)."""
    return 1.0 / np.cbrt(x)


def round_half_away(x: float64) -> float64:
    """Return the nearest integer, away from 0 on a tie."""
    whole = np.trunc(x)
    if abs(x - whole) >= 0.5:
        return whole + np.copysign(1.0, x)
    return whole


def logb(x: float64) -> float64:
    """Return the exponent of x, as a float: -inf for 0, inf for the infinite."""
    if x == 0.0:
        return float64(-math.inf)
    if not np.isfinite(x):
        return abs(x)
    return float64(math.frexp(x)[1] - 1)


def fmax(x: float64, y: float64) -> float64:
    """Return the larger: passing over what is not a number, +0 above -0 (PTX ISA, max)."""
    if x != x:
        return y
    if y != y or x > y:
        return x
    if x == y and not np.signbit(x):
        return x
    return y


def fmin(x: float64, y: float64) -> float64:
    """Return the smaller: passing over what is not a number, -0 below +0 (PTX ISA, min)."""
    if x != x:
        return y
    if y != y or x < y:
        return x
    if x == y and np.signbit(x):
        return x
    return y


def fdim(x: float64, y: float64) -> float64:
    """Return x - y where that is positive, else 0."""
    return float64(0.0) if x <= y else x - y


def remainder(x: float64, y: float64) -> float64:
    """Return x - n * y, n the integer nearest to x / y, even on a tie."""
    return remquo(x, y)[0]


def powi(x: float64, n: int32) -> float64:
    """Return x to the power of n, by repeated squaring; of a negative n that is 1 divided by x to the power of -n."""
    power, square, rest = float64(1.0), x, abs(int64(n))
    while rest != 0:
        if rest & 1 != 0:
            power = power * square
        square = square * square
        rest = rest >> 1
    return 1.0 / power if n < 0 else power


def frexp(x: float64) -> tuple[float64, int32]:
    """Return x as (part, exponent), part in [1/2, 1): x = part * 2**exponent; exponent 0 where x is 0 or not finite."""
    if x == 0.0 or not np.isfinite(x):
        return x, int32(0)
    part, exponent = math.frexp(x)
    return float64(part), int32(exponent)


def modf(x: float64) -> tuple[float64, float64]:
    """Return the fraction and the integer part, both with the sign of x."""
    whole = np.trunc(x)
    if x == whole:
        return np.copysign(0.0, x), whole
    return x - whole, whole


def sincos(x: float64) -> tuple[float64, float64]:
    """Return sine and cosine."""
    return np.sin(x), np.cos(x)


def sincospi(x: float64) -> tuple[float64, float64]:
    """Return sine and cosine of pi * x."""
    return sinpi(x), cospi(x)


ONE = {
    **{"acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan},
    **{"atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil, "cos": np.cos, "cosh": np.cosh, "exp": np.exp},
    **{"exp2": np.exp2, "expm1": np.expm1, "fabs": np.fabs, "floor": np.floor, "log": np.log, "log10": np.log10},
    **{"log1p": np.log1p, "log2": np.log2, "nearbyint": np.rint, "rint": np.rint, "sin": np.sin, "sinh": np.sinh},
    **{"sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc, "erf": math.erf, "erfc": math.erfc},
    **{"cospi": cospi, "erfcinv": special.erfcinv, "erfcx": special.erfcx, "erfinv": special.erfinv},
    **{"j0": special.j0, "j1": special.j1, "y0": special.y0, "y1": special.y1, "lgamma": special.lgamma},
    **{"normcdf": special.normcdf, "normcdfinv": special.normcdfinv, "sinpi": sinpi},
    **{"tgamma": special.tgamma, "exp10": exp10, "logb": logb, "rcbrt": rcbrt, "round": round_half_away},
    "rsqrt": rsqrt,
}
TWO = {
    **{"atan2": np.arctan2, "copysign": np.copysign, "fmod": np.fmod, "hypot": np.hypot, "pow": power},
    **{"fdim": fdim, "fmax": fmax, "fmin": fmin, "remainder": remainder},
}
AND_INTEGER = {"ldexp": np.ldexp, "scalbn": np.ldexp, "powi": powi}
INTEGER_AND = {"jn": special.jn, "yn": special.yn}
PAIR = {"modf": modf, "sincos": sincos, "sincospi": sincospi}


def _one(f: Any, real: Any) -> Callable:
    def emulation(x: Any) -> Any:
        return real(f(float64(x)))

    return emulation


def _two(f: Any, real: Any) -> Callable:
    def emulation(x: Any, y: Any) -> Any:
        return real(f(float64(x), float64(y)))

    return emulation


def _and_integer(f: Any, real: Any) -> Callable:
    def emulation(x: Any, n: Any) -> Any:
        return real(f(float64(x), n))

    return emulation


def _integer_and(f: Any, real: Any) -> Callable:
    def emulation(n: Any, x: Any) -> Any:
        return real(f(n, float64(x)))

    return emulation


def _pair(f: Any, real: Any) -> Callable:
    def emulation(x: Any) -> Any:
        first, second = f(float64(x))
        return real(first), real(second)

    return emulation


def _frexp(real: Any) -> Callable:
    def emulation(x: Any) -> Any:
        part, exponent = frexp(float64(x))
        return real(part), exponent

    return emulation


def _remquo(real: Any) -> Callable:
    def emulation(x: Any, y: Any) -> Any:
        rest, quotient = remquo(float64(x), float64(y))
        return real(rest), quotient

    return emulation


def _real_functions(suffix: str, real: Any) -> dict[str, Emulation]:
    """Return the functions above on ``real``, float32 or float64."""
    t = real.__name__
    shapes: tuple[tuple[dict[str, Any], tuple[str, ...], tuple[str, ...], Callable], ...] = (
        (ONE, (t,), (t,), _one),
        (TWO, (t, t), (t,), _two),
        (AND_INTEGER, (t, "int32"), (t,), _and_integer),
        (INTEGER_AND, ("int32", t), (t,), _integer_and),
        (PAIR, (t,), (t, t), _pair),
    )
    table = {
        name + suffix: Emulation(arguments, returns, make(f, real))
        for functions, arguments, returns, make in shapes
        for name, f in functions.items()
    }
    table["frexp" + suffix] = Emulation((t,), (t, "int32"), _frexp(real))
    table["remquo" + suffix] = Emulation((t, t), (t, "int32"), _remquo(real))
    return table


# Functions of float32 or float64 alone -------------------------------------------------------------------------------


def nextafterf(x: float32, y: float32) -> float32:
    """Return the float32 next to x towards y."""
    return np.nextafter(x, y)


def nextafter(x: float64, y: float64) -> float64:
    """Return the float64 next to x towards y."""
    return np.nextafter(x, y)


def ilogb(x: Any) -> int32:
    """Return the exponent of x: -2147483648 for 0 and for what is no number, 2147483647 for the infinite."""
    wide = float64(x)
    if wide == 0.0 or wide != wide:
        return int32(-2147483648)
    if abs(wide) == math.inf:
        return int32(2147483647)
    return int32(math.frexp(wide)[1] - 1)


def isinf(x: Any) -> int32:
    """Return 1 for an infinite x, else 0."""
    return int32(1 if abs(x) == math.inf else 0)


def isnan(x: Any) -> int32:
    """Return 1 where x is not a number, else 0."""
    return int32(1 if x != x else 0)


def isfinite(x: Any) -> int32:
    """Return 1 for a finite x, else 0."""
    return int32(1 if abs(x) < math.inf else 0)


def signbit(x: Any) -> int32:
    """Return 1 where the sign bit is set, else 0."""
    return int32(1 if np.signbit(x) else 0)


def saturatef(x: float32) -> float32:
    """Return x clamped to [0, 1]; 0 for what is not a number."""
    if x >= float32(1.0):
        return float32(1.0)
    return x if x > float32(0.0) else float32(0.0)


def fast_fdividef(x: float32, y: float32) -> float32:
    """Return x / y; for |y| above 2**126, 0 or, where x is infinite, not a number (PTX ISA, div.approx)."""
    size, wide = abs(float64(y)), float64(x)
    if size > 2.0**126 and size < math.inf:
        return float32(math.nan) if abs(wide) == math.inf else float32(wide * 0.0)
    return float32(wide / float64(y))


def fast_powf(x: float32, y: float32) -> float32:
    """Return 2 to the power of y * log2(x): not a number for a negative x."""
    return float32(np.exp2(float64(y) * np.log2(float64(x))))


def _other_functions() -> dict[str, Emulation]:
    """Return the functions above, and the fast ones, computed here as the others are."""
    f, d, i = "float32", "float64", "int32"
    fast = {"fast_cosf": np.cos, "fast_expf": np.exp, "fast_exp10f": exp10, "fast_sinf": np.sin, "fast_tanf": np.tan}
    fast |= {"fast_log10f": np.log10, "fast_log2f": np.log2, "fast_logf": np.log}
    return {name: Emulation((f,), (f,), _one(function, float32)) for name, function in fast.items()} | {
        "fast_sincosf": Emulation((f,), (f, f), _pair(sincos, float32)),
        "fast_fdividef": Emulation((f, f), (f,), fast_fdividef),
        "fast_powf": Emulation((f, f), (f,), fast_powf),
        "nextafterf": Emulation((f, f), (f,), nextafterf),
        "nextafter": Emulation((d, d), (d,), nextafter),
        "ilogbf": Emulation((f,), (i,), ilogb),
        "ilogb": Emulation((d,), (i,), ilogb),
        "isinff": Emulation((f,), (i,), isinf),
        "isinfd": Emulation((d,), (i,), isinf),
        "isnanf": Emulation((f,), (i,), isnan),
        "isnand": Emulation((d,), (i,), isnan),
        "finitef": Emulation((f,), (i,), isfinite),
        "isfinited": Emulation((d,), (i,), isfinite),
        "signbitf": Emulation((f,), (i,), signbit),
        "signbitd": Emulation((d,), (i,), signbit),
        "saturatef": Emulation((f,), (f,), saturatef),
    }


# Arithmetic in the four rounding modes -------------------------------------------------------------------------------


def divide32(x: float32, y: float32, mode: int) -> float32:
    """Return x / y rounded in ``mode``."""
    a, b = float64(x), float64(y)
    quotient = a / b
    if not np.isfinite(quotient) or abs(b) == math.inf:
        return float32(quotient)
    product, rest = two_product(quotient, b)
    return round32(odd(quotient, ((a - product) - rest) / b), mode)


def root32(x: float32, mode: int) -> float32:
    """Return the square root rounded in ``mode``."""
    wide = float64(x)
    root = np.sqrt(wide)
    if not np.isfinite(root):
        return float32(root)
    product, rest = two_product(root, root)
    return round32(odd(root, (wide - product) - rest), mode)


def divide64(x: float64, y: float64, mode: int) -> float64:
    """Return x / y rounded in ``mode``."""
    if x == 0.0 or y == 0.0 or not (np.isfinite(x) and np.isfinite(y)):
        return x / y
    x_part, x_exponent = math.frexp(x)
    y_part, y_exponent = math.frexp(y)
    a, b = float64(x_part), float64(y_part)
    quotient = a / b
    product, rest = two_product(quotient, b)
    return round64(quotient, ((a - product) - rest) / b, x_exponent - y_exponent, mode)


def root64(x: float64, mode: int) -> float64:
    """Return the square root rounded in ``mode``."""
    if not (x > 0.0 and x < math.inf):
        return np.sqrt(x)
    part, power = math.frexp(x)
    wide, exponent = float64(part), int64(power)
    if exponent & 1 != 0:
        wide, exponent = wide * 2.0, exponent - 1
    root = np.sqrt(wide)
    product, rest = two_product(root, root)
    return round64(root, (wide - product) - rest, exponent >> 1, mode)


def multiply64(x: float64, y: float64, mode: int) -> float64:
    """Return x * y rounded in ``mode``."""
    if x == 0.0 or y == 0.0:
        return x * y
    return fma64_in_mode(x, y, float64(0.0), mode)


def _arithmetic32(mode: int) -> dict[str, tuple[int, Callable]]:
    """Return the float32 operations in one mode, each with the number of its arguments."""

    def add(x: float32, y: float32) -> float32:
        return fma32_in_mode(x, float32(1.0), y, mode)

    def subtract(x: float32, y: float32) -> float32:
        return fma32_in_mode(x, float32(1.0), -y, mode)

    def multiply(x: float32, y: float32) -> float32:
        return round32(float64(x) * float64(y), mode)

    def divide(x: float32, y: float32) -> float32:
        return divide32(x, y, mode)

    def reciprocal(x: float32) -> float32:
        return divide32(float32(1.0), x, mode)

    def root(x: float32) -> float32:
        return root32(x, mode)

    def fused(x: float32, y: float32, z: float32) -> float32:
        return fma32_in_mode(x, y, z, mode)

    one, two = {"frcp": reciprocal, "fsqrt": root}, {"fadd": add, "fsub": subtract, "fmul": multiply, "fdiv": divide}
    return {**{n: (1, f) for n, f in one.items()}, **{n: (2, f) for n, f in two.items()}, "fmaf": (3, fused)}


def _arithmetic64(mode: int) -> dict[str, tuple[int, Callable]]:
    """Return the float64 operations in one mode, each with the number of its arguments."""

    def add(x: float64, y: float64) -> float64:
        return fma64_in_mode(x, float64(1.0), y, mode)

    def multiply(x: float64, y: float64) -> float64:
        return multiply64(x, y, mode)

    def divide(x: float64, y: float64) -> float64:
        return divide64(x, y, mode)

    def reciprocal(x: float64) -> float64:
        return divide64(float64(1.0), x, mode)

    def root(x: float64) -> float64:
        return root64(x, mode)

    def fused(x: float64, y: float64, z: float64) -> float64:
        return fma64_in_mode(x, y, z, mode)

    one, two = {"drcp": reciprocal, "dsqrt": root}, {"dadd": add, "dmul": multiply, "ddiv": divide}
    return {**{n: (1, f) for n, f in one.items()}, **{n: (2, f) for n, f in two.items()}, "fma": (3, fused)}


MODES = {"_rn": NEAREST, "_rz": ZERO, "_rd": DOWN, "_ru": UP}


def _arithmetic() -> dict[str, Emulation]:
    """Return every operation of float32 and float64 in every mode; ``fma`` and ``fmaf`` are also to nearest."""
    table = {}
    for suffix, mode in MODES.items():
        for real, operations in (("float32", _arithmetic32(mode)), ("float64", _arithmetic64(mode))):
            for name, (count, function) in operations.items():
                table[name + suffix] = Emulation((real,) * count, (real,), function)
    table["fmaf"], table["fma"] = table["fmaf_rn"], table["fma_rn"]
    table["frsqrt_rn"] = Emulation(("float32",), ("float32",), _one(rsqrt, float32))
    return table


# Conversions ---------------------------------------------------------------------------------------------------------

INT64_MIN, INT64_MAX = int64(-(2**63)), int64(2**63 - 1)


def to_int32(whole: float64, nan: int64) -> int32:
    """Return a whole number as int32, saturated; ``nan`` for what is not a number (PTX ISA, cvt)."""
    if whole != whole:
        return int32(nan)
    return int32(min(max(whole, -2147483648.0), 2147483647.0))


def to_uint32(whole: float64, nan: int64) -> int32:
    """Return the bits of a whole number as an unsigned 32-bit integer, saturated."""
    if whole != whole:
        return int32(nan)
    return int32(int64(min(max(whole, 0.0), 4294967295.0)))


def to_int64(whole: float64, nan: int64) -> int64:
    """Return a whole number as int64, saturated; the smallest for what is not a number."""
    if whole >= 2.0**63:
        return INT64_MAX
    return int64(whole) if whole > -(2.0**63) else INT64_MIN


def to_uint64(whole: float64, nan: int64) -> int64:
    """Return the bits of a whole number as an unsigned 64-bit integer, saturated; 2**63 for what is not a number."""
    if whole != whole:
        return INT64_MIN
    if whole <= 0.0:
        return int64(0)
    if whole >= 2.0**64:
        return int64(-1)
    return int64(whole) if whole < 2.0**63 else int64(whole - 2.0**63) + INT64_MIN


def _to_integer(convert: Any, whole: Any, nan: int) -> Callable:
    def emulation(x: Any) -> Any:
        return convert(whole(float64(x)), int64(nan))

    return emulation


def low_unsigned(x: Any) -> float64:
    """Return the low 32 bits as an unsigned number."""
    return float64(int64(x) & 0xFFFFFFFF)


def sum_of_halves(x: int64) -> tuple[float64, float64]:
    """Return an int64 as (nearest float64, the rest)."""
    return two_sum(float64(x >> 32) * 4294967296.0, low_unsigned(x))


def sum_of_unsigned_halves(x: int64) -> tuple[float64, float64]:
    """Return the bits of an int64, taken as unsigned, as (nearest float64, the rest)."""
    return two_sum(low_unsigned(x >> 32) * 4294967296.0, low_unsigned(x))


def _from_integer32(read: Any, mode: int) -> Callable:
    def emulation(x: Any) -> Any:
        return round32(read(x), mode)

    return emulation


def _from_integer64(halves: Any, mode: int, real: Any) -> Callable:
    if real is float64:

        def emulation(x: Any) -> Any:
            high, low = halves(x)
            return high if low == 0.0 else round64(high, low, 0, mode)

    else:

        def emulation(x: Any) -> Any:
            high, low = halves(x)
            return round32(odd(high, low), mode)

    return emulation


def _narrowed(mode: int) -> Callable:
    def emulation(x: Any) -> Any:
        return round32(x, mode)

    return emulation


def hiloint2double(high: int32, low: int32) -> float64:
    """Return the float64 with these upper and lower bits."""
    return bits_double((int64(high) << 32) | (int64(low) & 0xFFFFFFFF))


def double2hiint(x: float64) -> int32:
    """Return the upper 32 bits."""
    return int32(double_bits(x) >> 32)


def double2loint(x: float64) -> int32:
    """Return the lower 32 bits."""
    return int32(double_bits(x) & 0xFFFFFFFF)


def float2half_rn(x: float32) -> int16:
    """Return the bits of x as a float16."""
    return int16(float_to_half(x))


def _conversions() -> dict[str, Emulation]:
    """Return the conversions between integers and floats, in every mode, and of bits."""
    f, d, i, q = "float32", "float64", "int32", "int64"
    table = {}
    for suffix, whole in {"_rn": np.rint, "_rz": np.trunc, "_rd": np.floor, "_ru": np.ceil}.items():
        for kind, source, nan in (("float", f, 0), ("double", d, -(2**31))):
            for to, target, convert in (
                *(("int", i, to_int32), ("uint", i, to_uint32)),
                *(("ll", q, to_int64), ("ull", q, to_uint64)),
            ):
                table[f"{kind}2{to}{suffix}"] = Emulation((source,), (target,), _to_integer(convert, whole, nan))
    for suffix, mode in MODES.items():
        table["double2float" + suffix] = Emulation((d,), (f,), _narrowed(mode))
        for kind, read in (("int", float64), ("uint", low_unsigned)):
            table[f"{kind}2float{suffix}"] = Emulation((i,), (f,), _from_integer32(read, mode))
        for kind, halves in (("ll", sum_of_halves), ("ull", sum_of_unsigned_halves)):
            table[f"{kind}2float{suffix}"] = Emulation((q,), (f,), _from_integer64(halves, mode, float32))
            table[f"{kind}2double{suffix}"] = Emulation((q,), (d,), _from_integer64(halves, mode, float64))
    for source, suffix in ((d, ""), (f, "f")):
        table["llrint" + suffix] = Emulation((source,), (q,), _to_integer(to_int64, np.rint, 0))
        table["llround" + suffix] = Emulation((source,), (q,), _to_integer(to_int64, round_half_away, 0))
    return table | {
        "int2double_rn": Emulation((i,), (d,), _one(float64, float64)),
        "uint2double_rn": Emulation((i,), (d,), low_unsigned),
        "float_as_int": Emulation((f,), (i,), float_bits),
        "int_as_float": Emulation((i,), (f,), bits_float),
        "double_as_longlong": Emulation((d,), (q,), double_bits),
        "longlong_as_double": Emulation((q,), (d,), bits_double),
        "hiloint2double": Emulation((i, i), (d,), hiloint2double),
        "double2hiint": Emulation((d,), (i,), double2hiint),
        "double2loint": Emulation((d,), (i,), double2loint),
        "float2half_rn": Emulation((f,), ("int16",), float2half_rn),
        "half2float": Emulation(("int16",), (f,), half_to_float),
    }


# Integers: unsigned ones come as the signed integer with their bits --------------------------------------------------

LOW, HALF = uint64(0xFFFFFFFF), uint64(32)


def unsigned(x: int32) -> int64:
    """Return the value of 32 bits taken as unsigned."""
    return int64(x) & 0xFFFFFFFF


def absolute(x: int32) -> int32:
    """Return the absolute value; of -2147483648 that is itself."""
    return int32(-int64(x) if x < 0 else int64(x))


def llabs(x: int64) -> int64:
    """Return the absolute value; of the smallest number that is itself."""
    return int64(-x if x < 0 else x)


def larger(x: Any, y: Any) -> Any:
    """Return the larger of two signed integers."""
    return x if x > y else y


def smaller(x: Any, y: Any) -> Any:
    """Return the smaller of two signed integers."""
    return x if x < y else y


def umax(x: int32, y: int32) -> int32:
    """Return the larger of two unsigned integers."""
    return x if unsigned(x) > unsigned(y) else y


def umin(x: int32, y: int32) -> int32:
    """Return the smaller of two unsigned integers."""
    return x if unsigned(x) < unsigned(y) else y


def ullmax(x: int64, y: int64) -> int64:
    """Return the larger of two unsigned 64-bit integers."""
    return x if uint64(x) > uint64(y) else y


def ullmin(x: int64, y: int64) -> int64:
    """Return the smaller of two unsigned 64-bit integers."""
    return x if uint64(x) < uint64(y) else y


def hadd(x: int32, y: int32) -> int32:
    """Return (x + y) / 2, rounded down, with no overflow."""
    return int32((int64(x) + int64(y)) >> 1)


def rhadd(x: int32, y: int32) -> int32:
    """Return (x + y + 1) / 2, rounded down, with no overflow."""
    return int32((int64(x) + int64(y) + 1) >> 1)


def uhadd(x: int32, y: int32) -> int32:
    """Return ``hadd`` of unsigned integers."""
    return int32((unsigned(x) + unsigned(y)) >> 1)


def urhadd(x: int32, y: int32) -> int32:
    """Return ``rhadd`` of unsigned integers."""
    return int32((unsigned(x) + unsigned(y) + 1) >> 1)


def sad(x: int32, y: int32, z: int32) -> int32:
    """Return abs(x - y) + z."""
    return int32(abs(int64(x) - int64(y)) + int64(z))


def usad(x: int32, y: int32, z: int32) -> int32:
    """Return abs(x - y) + z of unsigned integers."""
    return int32(abs(unsigned(x) - unsigned(y)) + unsigned(z))


def low24(x: int32) -> int64:
    """Return the value of the low 24 bits, taken as signed."""
    return ((int64(x) & 0xFFFFFF) ^ 0x800000) - 0x800000


def mul24(x: int32, y: int32) -> int32:
    """Return the low 32 bits of the product of the low 24 bits."""
    return int32(low24(x) * low24(y))


def umul24(x: int32, y: int32) -> int32:
    """Return ``mul24`` of unsigned integers."""
    return int32((int64(x) & 0xFFFFFF) * (int64(y) & 0xFFFFFF))


def mulhi(x: int32, y: int32) -> int32:
    """Return the upper 32 bits of the product."""
    return int32((int64(x) * int64(y)) >> 32)


def umulhi(x: int32, y: int32) -> int32:
    """Return the upper 32 bits of the product of unsigned integers."""
    return int32(umul64hi(unsigned(x) << 32, unsigned(y)))


def umul64hi(x: int64, y: int64) -> int64:
    """Return the upper 64 bits of the product of unsigned integers. Source: Warren, Hacker's Delight, figure 8-2."""
    a, b = uint64(x), uint64(y)
    middle = (a >> HALF) * (b & LOW) + (((a & LOW) * (b & LOW)) >> HALF)
    other = (a & LOW) * (b >> HALF) + (middle & LOW)
    return int64((a >> HALF) * (b >> HALF) + (middle >> HALF) + (other >> HALF))


def mul64hi(x: int64, y: int64) -> int64:
    """Return the upper 64 bits of the product."""
    high = umul64hi(x, y)
    if x < 0:
        high = high - y
    if y < 0:
        high = high - x
    return high


def byte_perm(x: int32, y: int32, selector: int32) -> int32:
    """Return four of the eight bytes of y and x, picked by the low three bits of each hex digit of ``selector``.

    >>> hex(byte_perm(np.int32(0x33221100), np.int32(0x77665544), np.int32(0x7531)))
    '0x77553311'
    """
    result = int64(0)
    for i in range(4):
        which = (int64(selector) >> (4 * i)) & 7
        word = unsigned(x) if which < 4 else unsigned(y)
        result = result | (((word >> (8 * (which & 3))) & 0xFF) << (8 * i))
    return int32(result)


def brev(x: int32) -> int32:
    """Return the bits in reverse order."""
    return int32(brev32(x))


def brevll(x: int64) -> int64:
    """Return the bits in reverse order."""
    return int64(brev64(x))


def _integers() -> dict[str, Emulation]:
    """Return the functions of integers."""
    i, q = "int32", "int64"
    one = {"abs": absolute, "brev": brev, "clz": clz32, "ffs": ffs32, "popc": popc32}
    two = {"max": larger, "min": smaller, "umax": umax, "umin": umin, "hadd": hadd, "rhadd": rhadd, "uhadd": uhadd}
    two |= {"urhadd": urhadd, "mul24": mul24, "umul24": umul24, "mulhi": mulhi, "umulhi": umulhi}
    three = {"byte_perm": byte_perm, "sad": sad, "usad": usad}
    long_one = {"llabs": llabs, "brevll": brevll}
    long_count = {"clzll": clz64, "ffsll": ffs64, "popcll": popc64}
    long_two = {"llmax": larger, "llmin": smaller, "ullmax": ullmax, "ullmin": ullmin}
    long_two |= {"mul64hi": mul64hi, "umul64hi": umul64hi}
    groups: tuple[tuple[dict[str, Any], tuple[str, ...], str], ...] = (
        *((one, (i,), i), (two, (i, i), i), (three, (i, i, i), i)),
        *((long_one, (q,), q), (long_count, (q,), i), (long_two, (q, q), q)),
    )
    return {
        name: Emulation(arguments, (result,), function)
        for functions, arguments, result in groups
        for name, function in functions.items()
    }


FUNCTIONS: dict[str, Emulation] = {
    **_real_functions("", float64),
    **_real_functions("f", float32),
    **_other_functions(),
    **_arithmetic(),
    **_conversions(),
    **_integers(),
}
