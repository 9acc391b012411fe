"""The scalars of a checked kernel: NumPy scalars that have Numba's types, what their operations give, and casts.

Where the CUDA target types differently from the CPU target (float16, ``min``, ``max``, ``math``), its rules are written
out here. Floats become integers as the PTX ISA's cvt and NVVM do it. Use all of it with
``numpy.errstate(all="ignore")``.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numba.core import types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.np.numpy_support import as_dtype, from_dtype

from nanoeuler.simt.signatures import SIGNATURES


class Literal(np.float64):
    """A float written in the kernel, global, or handed to it beside float32 arrays: float64 that nobody asked for."""

    __slots__ = ()


class Unified(np.float64):
    """A value that is float64 only because another branch gives the same variable another type.

    Nobody asked for that, and its first operation is the place to say so.
    """

    __slots__ = ()


class UntypedError(TypeError):
    """Numba has no such operation on these types."""


Compute = Callable[..., Any]  # computes one operation on operands of known types
BOOLEAN, FLOAT16, FLOAT32, FLOAT64 = types.boolean, types.float16, types.float32, types.float64
WIDE = (types.float64, types.complex128)
UNASKED = (Literal, Unified)

ZERO = np.int64(0)
NUMBERS: tuple[Any, ...] = (
    *(types.boolean, types.int8, types.int16, types.int32, types.int64),
    *(types.uint8, types.uint16, types.uint32, types.uint64),
    *(types.float16, types.float32, types.float64, types.complex64, types.complex128),
)
SCALARS: dict[Any, Any] = {kind: as_dtype(kind).type for kind in NUMBERS}
KINDS: dict[type, Any] = {scalar: kind for kind, scalar in SCALARS.items()}
KINDS |= {Literal: types.float64, Unified: types.float64, np.longlong: types.int64, np.ulonglong: types.uint64}
KINDS |= {bool: types.boolean, int: types.int64, float: types.float64, complex: types.complex128}

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(function: Callable[[str], None] | None) -> Iterator[None]:
    """Call ``function(what)`` at each operation of this thread whose result is float64 though no operand is."""
    before = _listener.set(function)
    try:
        yield
    finally:
        _listener.reset(before)


def creep(what: str) -> None:
    """Tell who listens that ``what`` became float64."""
    function = _listener.get()
    if function is not None:
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


def asked(scalar: type) -> bool:
    """Whether a type is float64, or complex128, because the kernel says so."""
    return KINDS.get(scalar) in WIDE and scalar not in UNASKED


def described(scalar: type) -> str:
    """Return how a type is called in a report."""
    if scalar is Unified:
        return "a float64 where branches meet"
    return "a float64 number" if scalar is Literal else str(KINDS.get(scalar, scalar.__name__))


# Typing -------------------------------------------------------------------------------------------------------------


@functools.cache
def _context() -> Any:
    cpu_target.typing_context.refresh()
    return cpu_target.typing_context


COMPARISONS = {operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne}
CUDA_CASES = {getattr(math, name): cases for name, cases in SIGNATURES.items() if hasattr(math, name)}
HALF = COMPARISONS | {operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, operator.pos, abs}


@functools.cache
@global_compiler_lock
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


@functools.cache
@global_compiler_lock
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
        name = error.args[0].__name__
        wrong = (
            "an array stands where a number is needed: give it an index" if name == "View" else f"a {name} is no number"
        )
        raise UntypedError(wrong) from error


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


def dtype_kind(dtype: Any) -> Any:
    """Return the Numba type of a NumPy dtype, of a NumPy scalar type or of a Numba type."""
    return dtype if isinstance(dtype, types.Type) else from_dtype(np.dtype(dtype))


def convert(value: Any, target: type) -> Any:
    """Do what ``cast`` does, for a type of NumPy scalars."""
    return CASTS[type(value), target](value)


class _Casts(dict):
    """Each conversion, made when it is first met: (type of the value, type of the result) -> function."""

    def __missing__(self, key: tuple[type, type]) -> Compute:
        self[key] = made = _cast(*key)
        return made


def _cast(source: type, target: Any) -> Compute:
    origin, kind = kinds_of((source, target))
    if source is target:
        return unchanged
    if target in UNASKED:
        return lambda value: target(convert(value, np.float64))
    if source in UNASKED:
        return lambda value: convert(np.float64(value), target)
    if isinstance(kind, types.Integer) and isinstance(origin, types.Float):
        return _saturating(origin, kind, target)
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


def unchanged(value: Any) -> Any:
    """Return a value: the cast to the type that it has."""
    return value


def _saturating(origin: Any, kind: Any, target: Any) -> Compute:
    """Return the conversion of a float to an integer: the PTX ISA's cvt, saturating.

    float32 and float64 are cut; to 8 bits NVVM makes 16, and drops the upper half. float16 is rounded to the nearest,
    ties to even, and saturates to 8 bits too: numba-cuda writes cvt.rni itself.
    """
    half = origin == FLOAT16
    width = kind.bitwidth if half else max(kind.bitwidth, 16)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if kind.signed else (0, (1 << width) - 1)
    nan = (low or 1 << width - 1) if width == 64 or origin == FLOAT64 else 0
    whole: Callable[[Any], int] = (lambda value: int(np.rint(value))) if half else int
    wide: Any = target if width == kind.bitwidth else np.int16 if kind.signed else np.uint16

    def convert(value: Any) -> Any:
        if value != value:
            number = nan
        elif math.isinf(value):
            number = high if value > 0 else low
        else:
            number = max(low, min(high, whole(value)))
        return wide(number) if wide is target else wide(number).astype(target)

    return convert


CASTS = _Casts()
