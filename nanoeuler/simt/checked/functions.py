"""The functions that a checked kernel calls on numbers: Python's, ``math``'s, NumPy's and numba.cuda's.

``min`` and ``max`` pass over NaN, and have +0 above -0 (PTX ISA, min and max). ``math`` is computed in float64 and
rounded to the type that the CUDA target gives it.
"""

import builtins
import functools
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numba.core import types

from nanoeuler.simt.checked.operators import OWN_TYPES, Operation, add, binary, divide, natural, remainder, unary
from nanoeuler.simt.checked.scalars import (
    BOOLEAN,
    CASTS,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    KINDS,
    SCALARS,
    UNASKED,
    ZERO,
    Compute,
    UntypedError,
    asked,
    cast,
    creep,
    described,
    kinds_of,
    signature,
    unify,
)


def call(function: Callable, values: tuple[Any, ...]) -> Any:
    """Return what ``function`` of Python, ``math``, ``operator`` or NumPy gives for ``values`` inside a kernel.

    Raises:
        UntypedError: it does not exist for these types, or at all.
    """
    table = TABLES.get(function)
    if table is None:
        TABLES[function] = table = _table(function)
    return table[tuple(map(type, values))](*values)


def _table(function: Callable) -> Operation:
    if isinstance(function, np.ufunc):
        return Operation(function, _ufunc)
    name = getattr(function, "__name__", "")
    if getattr(function, "__module__", "") in ("_operator", "operator"):
        same = getattr(operator, name[1:], None) if name.startswith("i") and name != "invert" else None
        return Operation(same if callable(same) else function, natural)
    if name in MATH and getattr(math, name, None) is function:
        OWN_TYPES.add(function)
        return Operation(function, _math)
    own = FUNCTIONS.get(function)
    if own is None:
        raise UntypedError(f"{getattr(function, '__module__', '')}.{name} does not exist in Numba's CUDA kernels")
    OWN_TYPES.add(function)
    return Operation(function, lambda function, scalars: own)


TABLES: dict[Callable, Operation] = {}


def _ufunc(function: Callable, scalars: tuple[type, ...]) -> Compute:
    return lambda *values: function(*(np.float64(v) if type(v) in UNASKED else v for v in values))


def _minmax(better: Callable, ufunc: Callable) -> Compute:
    def choose(*values: Any) -> Any:
        """Return the least or greatest, of the type that the operands have in common."""
        if len(values) == 1:
            values = values[0]
        if len(values) == 2 and all(KINDS.get(type(v)) in (FLOAT16, FLOAT32, FLOAT64) for v in values):
            kind = unify(kinds_of(tuple(map(type, values))))
            a, b = cast(values[0], kind), cast(values[1], kind)
            if a == b:  # they may be -0 and +0: below each other in the order of min and max
                return a if np.signbit(a) == (better is operator.lt) else b
            return b if a != a else a if b != b else ufunc(a, b)
        best = values[0]
        for value in values[1:]:
            kind = unify(kinds_of((type(best), type(value))))
            best, value = cast(best, kind), cast(value, kind)
            best = value if better(value, best) else best
        return best

    return choose


def _least(*values: Any) -> Any:
    return _fast_minmax(values, _slow_least, operator.lt)


def _greatest(*values: Any) -> Any:
    return _fast_minmax(values, _slow_greatest, operator.gt)


def _fast_minmax(values: tuple[Any, ...], slow: Compute, better: Callable) -> Any:
    """Return at once what two values of one type give, when neither is NaN or they differ."""
    if len(values) == 2 and type(values[0]) is type(values[1]):
        a, b = values
        if better(b, a):
            return b
        if better(a, b):
            return a
    return slow(*values)


_slow_least = _minmax(operator.lt, np.minimum)
_slow_greatest = _minmax(operator.gt, np.maximum)


def _float(value: Any = 0.0) -> Any:
    return value if isinstance(value, (np.float16, np.float32, np.float64)) else cast(value, FLOAT64)


def _int(value: Any = 0) -> Any:
    (kind,) = kinds_of((type(value),))
    return value if isinstance(kind, types.Integer) else cast(value, types.int64)


def _complex(real: Any, imaginary: Any = None) -> Any:
    values = (real,) if imaginary is None else (real, imaginary)
    result = signature(complex, kinds_of(tuple(map(type, values))))[0]
    return SCALARS[result](complex(*values))


def _round(value: Any, digits: Any = None) -> Any:
    if digits is None:
        return cast(np.rint(value), types.int64)
    if not np.isfinite(value):
        return value
    factor = 10.0 ** float(abs(int(digits)))
    exact = float(value)
    scaled = exact * factor if digits >= 0 else exact / factor
    rounded = np.rint(scaled) / factor if digits >= 0 else np.rint(scaled) * factor
    return value if not np.isfinite(scaled) else cast(np.float64(rounded), KINDS[type(value)])


def _sum(values: tuple[Any, ...], start: Any = ZERO) -> Any:
    return functools.reduce(add, values, start)


def _divmod(a: Any, b: Any) -> Any:
    return divide(a, b), remainder(a, b)


FUNCTIONS: dict[Any, Compute] = {
    **{min: _least, max: _greatest, float: _float, int: _int, complex: _complex, round: _round, sum: _sum},
    **{bool: lambda value=False: np.bool_(bool(value)), divmod: _divmod, pow: binary(operator.pow)},
    **{abs: unary(abs), len: lambda value: np.int64(len(value)), tuple: tuple, builtins.slice: slice},
}


# math ---------------------------------------------------------------------------------------------------------------


def _special(function: Callable[[float], float], at_pole: float) -> Callable[[float], float]:
    """Return a function of Python's math that gives a number where Python would raise."""

    def compute(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return at_pole

    return compute


def _ieee_remainder(x: float, y: float) -> float:
    return math.nan if y == 0 or math.isinf(x) else math.remainder(x, y)


UNARY_MATH: dict[str, Callable] = {
    **{name: getattr(np, name) for name in ("exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "fabs", "exp2")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc")},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{"degrees": np.degrees, "radians": np.radians, "erf": math.erf, "erfc": math.erfc},
    **{"gamma": _special(math.gamma, math.nan), "lgamma": _special(math.lgamma, math.inf)},
}
PREDICATES: dict[str, Callable] = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
BINARY_MATH: dict[str, Callable] = {
    **{"atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign, "fmod": np.fmod, "pow": np.power},
    **{"remainder": _ieee_remainder, "nextafter": np.nextafter},
}
MATH = {*UNARY_MATH, *PREDICATES, *BINARY_MATH, "frexp", "ldexp", "modf"}


def _math(function: Callable, scalars: tuple[type, ...]) -> Compute:
    """Return a function of ``math``, computed in float64 and rounded: a float32 result is the nearest but for ties."""
    name = function.__name__
    result, operands = signature(function, kinds_of(scalars))
    steps = [CASTS[s, SCALARS[k]] for s, k in zip(scalars, operands, strict=True)]
    if name in PREDICATES:
        return lambda x: np.bool_(PREDICATES[name](x))
    target: Any = SCALARS[operands[0] if name in ("frexp", "modf") else result]
    if name == "nextafter":
        return lambda x, y: np.nextafter(target(x), target(y))
    if name in UNARY_MATH:
        compute = UNARY_MATH[name]
        return lambda x: target(compute(np.float64(x)))
    if name in BINARY_MATH:
        compute, (left, right) = BINARY_MATH[name], steps
        return lambda x, y: target(compute(np.float64(left(x)), np.float64(right(y))))
    if name == "ldexp":
        return lambda x, n: target(np.ldexp(np.float64(x), max(-5000, min(5000, int(steps[1](n))))))
    if name == "modf":
        return lambda x: tuple(target(v) for v in np.modf(np.float64(x)))
    return lambda x: (target(np.frexp(np.float64(x))[0]), np.int32(np.frexp(np.float64(x))[1]))


# numba.cuda's functions on numbers ----------------------------------------------------------------------------------


def _bits(value: Any) -> tuple[int, int, Any]:
    """Return the bits of an integer as a number, how many they are, and its type."""
    kind = type(value)
    if not issubclass(kind, np.integer):
        raise UntypedError(f"{described(kind)} has no bits to count: an integer does")
    width = value.itemsize * 8
    return int(value) & (1 << width) - 1, width, kind


def popc(value: Any) -> Any:
    """Return how many bits are set."""
    bits, _, kind = _bits(value)
    return kind(bits.bit_count())


def clz(value: Any) -> Any:
    """Return how many of the highest bits are 0."""
    bits, width, kind = _bits(value)
    return kind(width - bits.bit_length())


def ffs(value: Any) -> Any:
    """Return the place of the lowest bit that is set, counted from 1; 0 when there is none."""
    bits, _, _ = _bits(value)
    return np.uint32((bits & -bits).bit_length())


def brev(value: Any) -> Any:
    """Return the bits in reverse, in 32 of them or in 64."""
    bits, width, _ = _bits(value)
    width = max(width, 32)
    if width > value.itemsize * 8:
        bits = int(value) & 0xFFFFFFFF
    return (np.uint32 if width == 32 else np.uint64)(int(f"{bits:0{width}b}"[::-1], 2))


def selp(test: Any, a: Any, b: Any) -> Any:
    """Return ``a`` if ``test`` else ``b``; both of one type."""
    if KINDS.get(type(a)) != KINDS.get(type(b)):
        raise UntypedError(f"selp of {described(type(a))} and {described(type(b))}: both must have one type")
    return a if test else b


def fma(a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c``, rounded once."""
    narrow = all(_fits_float32(KINDS.get(type(v))) for v in (a, b, c))
    if not narrow and not any(asked(type(v)) for v in (a, b, c)):
        creep("`fma` of " + ", ".join(described(type(v)) for v in (a, b, c)))
    target: Any = np.float32 if narrow else np.float64
    x, y, z = (float(v) for v in (a, b, c))
    rough = np.float64(x) * np.float64(y) + np.float64(z)
    if not (math.isfinite(rough) and math.isfinite(x) and math.isfinite(y)):
        return target(rough)
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return target(rough)
    return target(_round_to_odd(exact)) if narrow else _nearest(exact)


def _fits_float32(kind: Any) -> bool:
    return kind in (FLOAT16, FLOAT32, BOOLEAN, types.int8, types.int16, types.uint8, types.uint16)


def _round_to_odd(exact: Fraction) -> float:
    """Return a float64 that rounds to float32 as ``exact`` does: inexact results get an odd last bit."""
    near = float(exact)
    if Fraction(near) == exact or np.float64(near).view(np.int64) & 1:
        return near
    return math.nextafter(near, math.inf if exact > Fraction(near) else -math.inf)


def _nearest(exact: Fraction) -> Any:
    try:
        return np.float64(float(exact))
    except OverflowError:
        return np.float64(math.inf if exact > 0 else -math.inf)


def cbrt(value: Any) -> Any:
    """Return the cube root: float32 of a float32."""
    if KINDS.get(type(value)) in (FLOAT16, FLOAT32):
        return np.float32(np.cbrt(np.float64(value)))
    if not asked(type(value)):
        creep(f"`cbrt` of {described(type(value))}")
    return np.cbrt(np.float64(value))


CUDA_FUNCTIONS: dict[str, Callable] = {
    **{"popc": popc, "clz": clz, "ffs": ffs, "brev": brev, "selp": selp, "fma": fma, "cbrt": cbrt}
}


# Loops --------------------------------------------------------------------------------------------------------------


def numbers(*bounds: Any) -> Any:
    """Return what ``range(*bounds)`` runs over, each of the type that Numba gives it."""
    target = range_type(tuple(map(type, bounds)))
    run = range(*map(operator.index, bounds))
    return _short_range(run, target) if len(run) <= 4096 else map(target, run)


@functools.cache
def range_type(scalars: tuple[type, ...]) -> Any:
    """Return the type of NumPy scalars that a range over bounds of these types gives."""
    return SCALARS[signature(range, kinds_of(scalars))[0].dtype]


@functools.lru_cache(maxsize=4096)
def _short_range(run: range, target: Any) -> tuple[Any, ...]:
    return tuple(map(target, run))


def numbered(values: Any, start: Any = ZERO) -> Any:
    """Return what ``enumerate`` gives: int64 and each value."""
    return ((np.int64(i), value) for i, value in builtins.enumerate(values, int(start)))
