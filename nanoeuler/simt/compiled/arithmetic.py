"""Arithmetic of a compiled kernel where a CPU would differ from a GPU, and numba.cuda's functions on numbers.

``min`` and ``max`` of floats pass over NaN, and -0 is below +0 (PTX ISA, min, max); a shift by the width or more gives
0, or the sign (PTX ISA, shl, shr).
"""

import math
import operator
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, overload, register_jitable

from nanoeuler.simt import names

# Comparing and shifting ---------------------------------------------------------------------------------------------


def smaller(a: Any, b: Any) -> Any:
    """``min(a, b)``."""


def larger(a: Any, b: Any) -> Any:
    """``max(a, b)``."""


def _passing_over_nan(function: Callable, builtin: Callable, first: Callable) -> None:
    """Give ``function`` the meaning of ``builtin`` on a GPU; ``first(a, b)`` tells that a is the result."""
    better = register_jitable(first)

    @overload(function, strict=False)
    def _pick(a: Any, b: Any) -> Any:
        if isinstance(a, types.Float) or isinstance(b, types.Float):
            kinds = {types.unliteral(a), types.unliteral(b)}
            wide = types.float32 if kinds <= {types.float16, types.float32} else types.float64
            result = types.float16 if kinds == {types.float16} else wide

            def pick(a: Any, b: Any) -> Any:
                left, right = wide(a), wide(b)
                if left != left:
                    return result(right)
                if right != right:
                    return result(left)
                return result(left if better(left, right) else right)

            return pick
        return lambda a, b: builtin(a, b)


_passing_over_nan(smaller, min, lambda a, b: a < b or (a == b and math.copysign(1.0, a) < 0))
_passing_over_nan(larger, max, lambda a, b: a > b or (a == b and math.copysign(1.0, a) > 0))


def _clamping(op: Any, python: Callable) -> Callable:
    """Return the shift ``op`` with Numba's types and the GPU's clamping of counts."""

    @intrinsic
    def shift(typingctx: Any, value: Any, count: Any) -> Any:
        known: Signature = typingctx.resolve_function_type(python, (types.unliteral(value), types.unliteral(count)), {})
        if known is None:
            raise TypingError(f"cannot shift {value} by {count}")

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            result = known.return_type
            x, n = (
                context.cast(builder, argument, given, result)
                for argument, given in zip(arguments, signature.args, strict=True)
            )
            last = ir.Constant(x.type, result.bitwidth - 1)
            over = builder.icmp_unsigned(">", n, last)
            if op == "shl":
                return builder.select(over, ir.Constant(x.type, 0), builder.shl(x, builder.select(over, last, n)))
            if result.signed:
                return builder.ashr(x, builder.select(over, last, n))
            return builder.select(over, ir.Constant(x.type, 0), builder.lshr(x, builder.select(over, last, n)))

        return known.return_type(value, count), codegen

    return shift


shift_left = _clamping("shl", operator.lshift)
shift_right = _clamping("shr", operator.rshift)


# numba.cuda's own ---------------------------------------------------------------------------------------------------


def _bit_function(name: str, result: Callable[[Any], Any], build: Callable) -> Callable:
    """Return an intrinsic on one integer. ``build(context, builder, value, kind)`` is its LLVM."""

    @intrinsic
    def function(typingctx: Any, value: Any) -> Any:
        kind = types.unliteral(value)
        if not isinstance(kind, types.Integer):
            raise TypingError(f"cuda.{name} takes an integer, not {value}: cast it")
        taken = _UNSIGNED.get(kind, kind) if name == "brev" else kind
        returned = result(taken)

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given = context.cast(builder, arguments[0], signature.args[0], taken)
            return context.cast(builder, build(builder, given), taken, returned)

        return returned(value), codegen

    return function


_UNSIGNED = {
    types.int8: types.uint32,
    types.int16: types.uint32,
    types.int32: types.uint32,
    types.int64: types.uint64,
} | {
    types.uint8: types.uint32,
    types.uint16: types.uint32,
}


def _first_set(builder: Any, value: Any) -> Any:
    """Return one more than the number of the lowest bit that is set, 0 where none is."""
    zero = ir.Constant(value.type, 0)
    lowest = builder.add(builder.cttz(value, ir.Constant(ir.IntType(1), 0)), ir.Constant(value.type, 1))
    return builder.select(builder.icmp_unsigned("==", value, zero), zero, lowest)


popc = _bit_function("popc", lambda kind: kind, lambda builder, value: builder.ctpop(value))
clz = _bit_function("clz", lambda kind: kind, lambda builder, value: builder.ctlz(value, ir.Constant(ir.IntType(1), 0)))
ffs = _bit_function("ffs", lambda kind: types.uint32, _first_set)
brev = _bit_function("brev", lambda kind: kind, lambda builder, value: builder.bitreverse(value))


@intrinsic
def fma(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """``x * y + z``, rounded once: float32 for three float32, else float64."""
    kind = types.float32 if {types.unliteral(t) for t in (x, y, z)} == {types.float32} else types.float64

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = [context.cast(builder, a, t, kind) for a, t in zip(arguments, signature.args, strict=True)]
        return builder.fma(*given)

    return kind(x, y, z), codegen


def selp(test: Any, a: Any, b: Any) -> Any:
    """``a`` where ``test`` is true, else ``b``; both are evaluated, and of one type."""


@overload(selp, strict=False)
def _selp(test: Any, a: Any, b: Any) -> Any:
    if types.unliteral(a) != types.unliteral(b):
        raise TypingError(f"cuda.selp takes two values of one type, not {a} and {b}: cast one")
    return lambda test, a, b: a if test else b


def cbrt(x: Any) -> Any:
    """The cube root: float32 of a float32, else float64."""


@overload(cbrt, strict=False)
def _cbrt(x: Any) -> Any:
    kind = types.float32 if types.unliteral(x) == types.float32 else types.float64
    return lambda x: kind(np.cbrt(x))


@register_jitable(boundscheck=True)
def store(array: Any, index: Any, value: Any) -> None:
    """``array[index] = value``, as an expression."""
    array[index] = value


@register_jitable
def lanemask_lt(dims: Any) -> Any:
    """The lanes of the warp below this one."""
    return types.uint32((1 << (dims[12] & 31)) - 1)


@register_jitable
def laneid(dims: Any) -> Any:
    """The number of the thread in its warp."""
    return types.int32(dims[12] & 31)


@register_jitable
def grid_1(dims: Any) -> Any:
    """cuda.grid(1)."""
    return types.int64(dims[3]) * dims[6] + dims[0]


@register_jitable
def grid_2(dims: Any) -> Any:
    """cuda.grid(2)."""
    return grid_1(dims), types.int64(dims[4]) * dims[7] + dims[1]


@register_jitable
def grid_3(dims: Any) -> Any:
    """cuda.grid(3)."""
    return grid_1(dims), types.int64(dims[4]) * dims[7] + dims[1], types.int64(dims[5]) * dims[8] + dims[2]


@register_jitable
def gridsize_1(dims: Any) -> Any:
    """cuda.gridsize(1)."""
    return types.int64(dims[6]) * dims[9]


@register_jitable
def gridsize_2(dims: Any) -> Any:
    """cuda.gridsize(2)."""
    return gridsize_1(dims), types.int64(dims[7]) * dims[10]


@register_jitable
def gridsize_3(dims: Any) -> Any:
    """cuda.gridsize(3)."""
    return gridsize_1(dims), types.int64(dims[7]) * dims[10], types.int64(dims[8]) * dims[11]


# Vector types: named tuples, x, y, z, w -----------------------------------------------------------------------------


def _vector(name: str, component: str, width: int) -> Callable:
    """Return the constructor of a vector type; scalars and shorter vectors together give the components."""
    fields = tuple("xyzw"[:width])
    make_kind: Any = namedtuple
    kind = make_kind(name, fields)
    cast = getattr(types, component)

    def make(*parts: Any) -> Any:
        """Stands for the constructor in Python."""

    @overload(make, strict=False)
    def _make(*parts: Any) -> Any:
        pieces = []
        for position, part in enumerate(parts):
            if isinstance(part, types.BaseTuple):
                pieces += [f"cast(parts[{position}][{i}])" for i in range(len(part))]
            else:
                pieces.append(f"cast(parts[{position}])")
        if len(pieces) != width:
            raise TypingError(f"cuda.{name} has {width} components, and {len(pieces)} were given")
        scope = {"kind": kind, "cast": cast}
        exec(f"def build(*parts):\n    return kind({', '.join(pieces)})", scope)
        return scope["build"]

    return make


VECTORS = {name: _vector(name, component, width) for name, (component, width) in names.VECTORS.items()}
