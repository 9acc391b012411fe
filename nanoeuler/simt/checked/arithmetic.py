"""Numbers of a checked kernel: NumPy scalars that have Numba's types and the GPU's arithmetic.

Each operator is a table from its operands' types to the function that computes it. An entry is made when it is first
met: Numba's own typing says what the operands are cast to and what the result is. Where the CUDA target types
differently from the CPU target (float16, ``min``, ``max``, ``math``), its rules are written out here. What a GPU does
at the edges is from the PTX ISA: float to integer saturates and NaN is 0 (cvt), a shift by the width or more gives 0 or
the sign (shl, shr), ``min`` and ``max`` pass over NaN. Division by zero gives infinity, or 0 for integers, as in
numba-cuda (its error model is "numpy").

Call these with ``numpy.errstate(all="ignore")``.
"""

import ast
import builtins
import functools
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numba.core import types
from numba.core.registry import cpu_target
from numba.np.numpy_support import as_dtype, from_dtype

from nanoeuler.simt.signatures import SIGNATURES


class Literal(np.float64):
    """A float written in the kernel, global, or handed to it beside float32 arrays: float64 that nobody asked for."""

    __slots__ = ()


class UntypedError(TypeError):
    """Numba has no such operation on these types."""


Kernel = Callable[..., Any]  # computes one operation on operands of known types
BOOLEAN, FLOAT16, FLOAT32, FLOAT64 = types.boolean, types.float16, types.float32, types.float64
WIDE = (types.float64, types.complex128)

ZERO = np.int64(0)
NUMBERS: tuple[Any, ...] = (
    *(types.boolean, types.int8, types.int16, types.int32, types.int64),
    *(types.uint8, types.uint16, types.uint32, types.uint64),
    *(types.float16, types.float32, types.float64, types.complex64, types.complex128),
)
SCALARS: dict[Any, Any] = {kind: as_dtype(kind).type for kind in NUMBERS}
KINDS: dict[type, Any] = {scalar: kind for kind, scalar in SCALARS.items()}
KINDS |= {Literal: types.float64, bool: types.boolean, np.longlong: types.int64, np.ulonglong: types.uint64}
KINDS |= {int: types.int64, float: types.float64, complex: types.complex128}

_listener: list[Callable[[str], None]] = []  # told of each result that is float64 without cause


def listen(function: Callable[[str], None] | None) -> None:
    """Let ``function(what)`` be called at each operation whose result is float64 though no operand is; None: nobody."""
    _listener[:] = [function] if function else []


def creep(what: str) -> None:
    """Tell the listener that ``what`` became float64."""
    for function in _listener:
        function(what)


def scalar(value: Any) -> Any:
    """Return a Python or NumPy value as Numba types it when it is an argument of a kernel.

    >>> scalar(3)
    np.int64(3)
    """
    if isinstance(value, (bool, np.bool_)):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int64(value) if -(2**63) <= value < 2**63 else np.uint64(value)
    if isinstance(value, np.generic):
        return value
    if isinstance(value, float):
        return np.float64(value)
    if isinstance(value, complex):
        return np.complex128(value)
    return tuple(scalar(v) for v in value) if isinstance(value, tuple) else value


def literal(value: Any) -> Any:
    """Return a number that is written in a kernel, or global: as an argument, but a float64 is a ``Literal``."""
    if type(value) in (float, np.float64):
        return Literal(value)
    return tuple(literal(v) for v in value) if type(value) is tuple else scalar(value)


# Typing -------------------------------------------------------------------------------------------------------------


@functools.cache
def _context() -> Any:
    cpu_target.typing_context.refresh()
    return cpu_target.typing_context


COMPARISONS = {operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne}
HALF = COMPARISONS | {operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, operator.pos, abs}


@functools.cache
def signature(function: Callable, kinds: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return the type of ``function``'s result for operands of ``kinds``, and what they are cast to before.

    Raises:
        UntypedError: Numba has no such operation.
    """
    if function in HALF and FLOAT16 in kinds and set(kinds) <= {FLOAT16, types.int8, BOOLEAN}:
        # numba.cuda.fp16: the CPU target has no arithmetic of float16
        return BOOLEAN if function in COMPARISONS else FLOAT16, tuple(FLOAT16 for _ in kinds)
    try:
        if function in CUDA_CASES:
            found = _context().resolve_overload(function, CUDA_CASES[function], kinds, {})
        else:
            found = _context().resolve_function_type(function, kinds, {})
    except Exception as error:
        raise UntypedError(_untyped(function, kinds)) from error
    if found is None:
        raise UntypedError(_untyped(function, kinds))
    return found.return_type, tuple(found.args)


def _untyped(function: Callable, kinds: tuple[Any, ...]) -> str:
    return f"{getattr(function, '__name__', function)}({', '.join(map(str, kinds))}) does not exist in Numba"


def unify(kinds: tuple[Any, ...]) -> Any:
    """Return the one type that a variable has which is assigned values of ``kinds``."""
    known = _context().unify_types(*kinds)
    if known is None:
        raise UntypedError(f"Numba finds no common type for {', '.join(map(str, kinds))}")
    return known


def kinds_of(scalars: tuple[type, ...]) -> tuple[Any, ...]:
    """Return the Numba types of NumPy scalar types."""
    try:
        return tuple(KINDS[s] for s in scalars)
    except KeyError as error:
        raise UntypedError(f"a {error.args[0].__name__} is no number") from error


# Casts --------------------------------------------------------------------------------------------------------------


def cast(value: Any, kind: Any) -> Any:
    """Return ``value`` as the Numba type ``kind``, as the GPU converts it.

    >>> cast(np.float32(3e9), types.int32), cast(np.int64(-1), types.uint8)
    (np.int32(2147483647), np.uint8(255))
    """
    return convert(value, scalar_type(kind))


def scalar_type(kind: Any) -> Any:
    """Return the type of NumPy scalars that stands for a Numba type of numbers."""
    if kind not in SCALARS:
        raise UntypedError(f"{kind} is no type of numbers")
    return SCALARS[kind]


def convert(value: Any, target: type) -> Any:
    """Do what ``cast`` does, for a type of NumPy scalars."""
    return CASTS[type(value), target](value)


class _Casts(dict):
    """Each conversion, made when it is first met: (type of the value, type of the result) -> function."""

    def __missing__(self, key: tuple[type, type]) -> Kernel:
        self[key] = made = _cast(*key)
        return made


def _cast(source: type, target: Any) -> Kernel:
    origin, kind = kinds_of((source, target))
    if source is target:
        return _same
    if source is Literal:
        return lambda value: convert(np.float64(value), target)
    if isinstance(kind, types.Integer) and isinstance(origin, types.Float):
        return _saturating(kind, target)
    if isinstance(origin, types.Complex) and not isinstance(kind, types.Complex):
        raise UntypedError(f"{origin} cannot become {kind}")
    if target in (np.int64, np.uint64) and issubclass(source, np.integer) and np.result_type(source, target) == target:
        zero = target(0)
        return lambda value: value + zero  # several times faster than the constructor
    if target is np.float64 and issubclass(source, np.generic):
        one = np.float64(1)
        return lambda value: value * one
    if issubclass(source, (bool, int, float, complex)):
        return lambda value: np.asarray(value).astype(target)[()]
    return target


def _same(value: Any) -> Any:
    return value


def _saturating(kind: types.Integer, target: Any) -> Kernel:
    low, high = kind.minval, kind.maxval

    def convert(value: Any) -> Any:
        if value != value:
            return target(0)
        if math.isinf(value):
            return target(high if value > 0 else low)
        return target(max(low, min(high, int(value))))

    return convert


CASTS = _Casts()


# Operators ----------------------------------------------------------------------------------------------------------


class Operation(dict):
    """The table of one operation: types of the operands -> the function that computes it."""

    def __init__(self, function: Callable, build: Callable[[Callable, tuple[type, ...]], Kernel]) -> None:
        self.function, self.build = function, build

    def __missing__(self, scalars: tuple[type, ...]) -> Kernel:
        self[scalars] = made = _watched(self.function, self.build(self.function, scalars), scalars)
        return made


def _watched(function: Callable, compute: Kernel, scalars: tuple[type, ...]) -> Kernel:
    """Return ``compute``, reporting its result when that is float64 though no operand is; literals stay literals."""
    if any(KINDS.get(s) in WIDE and s is not Literal for s in scalars):
        return compute
    if all(s is Literal for s in scalars):

        def keep(*values: Any) -> Any:
            result = compute(*values)
            return Literal(result) if type(result) is np.float64 else result

        return keep
    what = f"{_spelled(function)} of {' and '.join(map(_described, scalars))}"

    def watch(*values: Any) -> Any:
        result = compute(*values)
        if type(result) is np.float64 or type(result) is np.complex128:
            creep(what)
        return result

    try:
        result = signature(function, kinds_of(scalars))[0]
    except UntypedError:
        return watch
    return watch if result in WIDE or function in OWN_TYPES else compute


SYMBOLS: dict[Callable, str] = {
    **{operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//"},
    **{operator.mod: "%", operator.pow: "**", operator.lt: "<", operator.le: "<=", operator.gt: ">"},
    **{operator.ge: ">=", operator.eq: "==", operator.ne: "!=", operator.neg: "-"},
}


def _spelled(function: Callable) -> str:
    return f"`{SYMBOLS.get(function, getattr(function, '__name__', function))}`"


def _described(scalar: type) -> str:
    return "a float64 number" if scalar is Literal else str(KINDS.get(scalar, scalar.__name__))


def _natural(function: Callable, scalars: tuple[type, ...]) -> Kernel:
    """Return an operator: operands cast as Numba says, then NumPy's own operator."""
    if any(issubclass(s, (tuple, str, type(None))) for s in scalars):
        return function
    kinds = kinds_of(scalars)
    result, operands = signature(function, kinds)
    if isinstance(result, types.Integer) and function in (operator.pow, pow):
        operands = result, operands[1]
    elif isinstance(result, types.Integer) and function in IN_RESULT_TYPE:
        operands = tuple(result for _ in operands)  # numba.cpython.numbers casts both to it: uint64 + int64 is int64
    compute = SPECIAL.get(function, _plain)(function, operands)
    if Literal in scalars and operands[0] == FLOAT64 and result == BOOLEAN:
        compute = _narrowed(function, compute, scalars)
    steps = [CASTS[s, SCALARS[k]] for s, k in zip(scalars, operands, strict=True)]
    if all(step is _same for step in steps) or _promotes(function, scalars, result, operands):
        return compute
    if len(steps) == 1:
        first = steps[0]
        return lambda a: compute(first(a))
    left, right = steps
    if left is _same:
        return lambda a, b: compute(a, right(b))
    if right is _same:
        return lambda a, b: compute(left(a), b)
    return lambda a, b: compute(left(a), right(b))


def _plain(function: Callable, operands: tuple[Any, ...]) -> Kernel:
    return function


ARITHMETIC = {operator.add, operator.sub, operator.mul, operator.truediv}
IN_RESULT_TYPE = {operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod} | {
    *(operator.and_, operator.or_, operator.xor)
}


def _promotes(function: Callable, scalars: tuple[type, ...], result: Any, operands: tuple[Any, ...]) -> bool:
    """Whether NumPy's own promotion of the scalars casts as Numba does, so that no cast is needed before."""
    if function not in ARITHMETIC or Literal in scalars or np.bool_ in scalars or bool in scalars:
        return False
    return operands[0] == operands[1] and np.result_type(*scalars) == as_dtype(operands[0])


def _narrowed(function: Callable, compute: Kernel, scalars: tuple[type, ...]) -> Kernel:
    """Return a comparison with a literal: reported unless float32 holds it, for then the compiler narrows it."""
    if any(KINDS[s] in WIDE and s is not Literal for s in scalars) or all(s is Literal for s in scalars):
        return compute
    place = scalars.index(Literal)
    what = f"{_spelled(function)} of {' and '.join(map(_described, scalars))}"

    def compare(a: Any, b: Any) -> Any:
        value = (a, b)[place]
        if np.float32(value) != value and value == value:
            creep(what)
        return compute(a, b)

    return compare


def _floor_division(function: Callable, operands: tuple[Any, ...]) -> Kernel:
    """Return // or %: NumPy's, but that the lowest integer over -1 is 0 in Numba."""
    if operands[0] not in types.signed_domain:
        return function
    lowest, zero = operands[0].minval, SCALARS[operands[0]](0)
    return lambda a, b: zero if b == -1 and a == lowest else function(a, b)


def _power(function: Callable, operands: tuple[Any, ...]) -> Kernel:
    """Return **: by squaring where the exponent is an integer, as in numba.cpython.numbers."""
    base, exponent = operands
    if not isinstance(exponent, types.Integer):
        return function
    one = SCALARS[base](1)

    def power(a: Any, b: Any) -> Any:
        count = abs(int(b))
        if b < 0 and isinstance(base, types.Integer):
            if a == 0:
                return type(one)(base.minval)
            if a != 1 and a != -1:
                return one - one
        if count > 0x10000:
            return cast(np.float64(a) ** np.float64(b), base)
        result = one
        while count:
            if count & 1:
                result = result * a
            a, count = a * a, count >> 1
        return result if b >= 0 or isinstance(base, types.Integer) else one / result

    return power


def _shift(function: Callable, operands: tuple[Any, ...]) -> Kernel:
    """Return << or >>: the operand has 64 bits, and what is shifted out is 0 or the sign."""
    kind = types.int64 if operands[0] in types.signed_domain else types.uint64
    target = SCALARS[kind]
    widen = CASTS[SCALARS[operands[0]], target]

    def shift(a: Any, b: Any) -> Any:
        amount, value = int(b) & 0xFFFFFFFF, widen(a)
        if amount < 64:
            return function(value, target(amount))
        return target(-1) if function is operator.rshift and value < 0 else target(0)

    return shift


def _invert(function: Callable, operands: tuple[Any, ...]) -> Kernel:
    return function if operands[0] == BOOLEAN else _result_wide(function, operands)


def _result_wide(function: Callable, operands: tuple[Any, ...]) -> Kernel:
    """Return a unary operator whose result is wider than its operand: int32 becomes int64 first."""
    result = signature(function, operands)[0]
    if isinstance(result, types.Integer):
        widen = CASTS[SCALARS[operands[0]], SCALARS[result]]
        return lambda a: function(widen(a))
    return function


def _not(function: Callable, operands: tuple[Any, ...]) -> Kernel:
    return lambda a: np.bool_(not a)


SPECIAL: dict[Callable, Callable[[Callable, tuple[Any, ...]], Kernel]] = {
    **{operator.floordiv: _floor_division, operator.mod: _floor_division, operator.pow: _power, pow: _power},
    **{operator.lshift: _shift, operator.rshift: _shift, operator.invert: _invert},
    **{operator.neg: _result_wide, operator.pos: _result_wide, operator.not_: _not},
}
OWN_TYPES: set[Callable] = set()  # typed here, not by Numba's CPU target


def _unary(function: Callable) -> Callable[[Any], Any]:
    table = Operation(function, _natural)
    return lambda a: table[(type(a),)](a)


def _binary(function: Callable) -> Callable[[Any, Any], Any]:
    table = Operation(function, _natural)

    def operate(a: Any, b: Any) -> Any:
        """Return the result of an operator on two numbers, with Numba's types."""
        return table[type(a), type(b)](a, b)

    return operate


add = _binary(operator.add)
divide = _binary(operator.floordiv)
remainder = _binary(operator.mod)
equal = _binary(operator.eq)
OPERATORS: dict[type[ast.AST], Callable] = {
    **{ast.Add: add, ast.Sub: _binary(operator.sub), ast.Mult: _binary(operator.mul)},
    **{ast.Div: _binary(operator.truediv), ast.FloorDiv: divide, ast.Mod: remainder},
    **{ast.Pow: _binary(operator.pow), ast.LShift: _binary(operator.lshift), ast.RShift: _binary(operator.rshift)},
    **{ast.BitAnd: _binary(operator.and_), ast.BitOr: _binary(operator.or_), ast.BitXor: _binary(operator.xor)},
    **{ast.Lt: _binary(operator.lt), ast.LtE: _binary(operator.le), ast.Gt: _binary(operator.gt)},
    **{ast.GtE: _binary(operator.ge), ast.Eq: equal, ast.NotEq: _binary(operator.ne)},
    **{ast.USub: _unary(operator.neg), ast.UAdd: _unary(operator.pos), ast.Invert: _unary(operator.invert)},
    **{ast.Not: _unary(operator.not_)},
}


# Functions ----------------------------------------------------------------------------------------------------------


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
        return Operation(same if callable(same) else function, _natural)
    if name in MATH and getattr(math, name, None) is function:
        OWN_TYPES.add(function)
        return Operation(function, _math)
    own = FUNCTIONS.get(function)
    if own is None:
        raise UntypedError(f"{getattr(function, '__module__', '')}.{name} does not exist in Numba's CUDA kernels")
    OWN_TYPES.add(function)
    return Operation(function, lambda function, scalars: own)


TABLES: dict[Callable, Operation] = {}


def _ufunc(function: Callable, scalars: tuple[type, ...]) -> Kernel:
    return lambda *values: function(*(np.float64(v) if type(v) is Literal else v for v in values))


def _minmax(better: Callable, ufunc: Callable) -> Kernel:
    def choose(*values: Any) -> Any:
        """Return the least or greatest, of the type that the operands have in common."""
        if len(values) == 1:
            values = values[0]
        if len(values) == 2 and all(KINDS.get(type(v)) in (FLOAT16, FLOAT32, FLOAT64) for v in values):
            kind = unify(kinds_of(tuple(map(type, values))))
            a, b = cast(values[0], kind), cast(values[1], kind)
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


def _fast_minmax(values: tuple[Any, ...], slow: Kernel, better: Callable) -> Any:
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


FUNCTIONS: dict[Any, Kernel] = {
    **{min: _least, max: _greatest, float: _float, int: _int, complex: _complex, round: _round, sum: _sum},
    **{bool: lambda value=False: np.bool_(bool(value)), divmod: _divmod, pow: _binary(operator.pow)},
    **{abs: _unary(abs), len: lambda value: np.int64(len(value)), tuple: tuple, builtins.slice: slice},
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


def _math(function: Callable, scalars: tuple[type, ...]) -> Kernel:
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


CUDA_CASES = {getattr(math, name): cases for name, cases in SIGNATURES.items() if hasattr(math, name)}


# numba.cuda's functions on numbers ----------------------------------------------------------------------------------


def _bits(value: Any) -> tuple[int, int, Any]:
    """Return the bits of an integer as a number, how many they are, and its type."""
    kind = type(value)
    if not issubclass(kind, np.integer):
        raise UntypedError(f"{_described(kind)} has no bits to count: an integer does")
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
        raise UntypedError(f"selp of {_described(type(a))} and {_described(type(b))}: both must have one type")
    return a if test else b


def fma(a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c``, rounded once."""
    narrow = all(_fits_float32(KINDS.get(type(v))) for v in (a, b, c))
    if not narrow and not any(KINDS.get(type(v)) == FLOAT64 and type(v) is not Literal for v in (a, b, c)):
        creep("`fma` of " + ", ".join(_described(type(v)) for v in (a, b, c)))
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
    if type(value) is Literal or not isinstance(value, np.float64):
        creep(f"`cbrt` of {_described(type(value))}")
    return np.cbrt(np.float64(value))


CUDA_FUNCTIONS: dict[str, Callable] = {
    **{"popc": popc, "clz": clz, "ffs": ffs, "brev": brev, "selp": selp, "fma": fma, "cbrt": cbrt}
}


# Loops --------------------------------------------------------------------------------------------------------------


def numbers(*bounds: Any) -> Any:
    """Return what ``range(*bounds)`` runs over, each of the type that Numba gives it."""
    target = _range_type(tuple(map(type, bounds)))
    run = range(*map(operator.index, bounds))
    return _short_range(run, target) if len(run) <= 4096 else map(target, run)


@functools.cache
def _range_type(scalars: tuple[type, ...]) -> Any:
    return SCALARS[signature(range, kinds_of(scalars))[0].dtype]


@functools.lru_cache(maxsize=4096)
def _short_range(run: range, target: Any) -> tuple[Any, ...]:
    return tuple(map(target, run))


def numbered(values: Any, start: Any = ZERO) -> Any:
    """Return what ``enumerate`` gives: int64 and each value."""
    return ((np.int64(i), value) for i, value in builtins.enumerate(values, int(start)))


def dtype_kind(dtype: Any) -> Any:
    """Return the Numba type of a NumPy dtype, of a NumPy scalar type or of a Numba type."""
    return dtype if isinstance(dtype, types.Type) else from_dtype(np.dtype(dtype))
