"""The operators of a checked kernel: Python's, with Numba's types and the GPU's values at the edges.

Each is a table from its operands' types to the function that computes it. An entry is made when it is first met:
Numba's own typing says what the operands are cast to and what the result is. A shift by the width or more gives 0 or
the sign (PTX ISA, shl and shr). Division by zero gives infinity, or 0 for integers, as in numba-cuda (its error model
is "numpy").
"""

import ast
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types
from numba.np.numpy_support import as_dtype

from nanoeuler.simt.checked.scalars import (
    BOOLEAN,
    CASTS,
    FLOAT64,
    SCALARS,
    WIDE,
    Compute,
    Literal,
    Unified,
    UntypedError,
    asked,
    cast,
    creep,
    described,
    kinds_of,
    signature,
    unchanged,
)


class Operation(dict):
    """The table of one operation: types of the operands -> the function that computes it."""

    def __init__(self, function: Callable, build: Callable[[Callable, tuple[type, ...]], Compute]) -> None:
        self.function, self.build = function, build

    def __missing__(self, scalars: tuple[type, ...]) -> Compute:
        self[scalars] = made = _watched(self.function, self.build(self.function, scalars), scalars)
        return made


def _watched(function: Callable, compute: Compute, scalars: tuple[type, ...]) -> Compute:
    """Return ``compute``, reporting its result when that is float64 though no operand is; literals stay literals."""
    if any(map(asked, scalars)):
        return compute
    if all(s is Literal for s in scalars):

        def keep(*values: Any) -> Any:
            result = compute(*values)
            return Literal(result) if type(result) is np.float64 else result

        return keep
    what = f"{_spelled(function)} of {' and '.join(map(described, scalars))}"

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


def natural(function: Callable, scalars: tuple[type, ...]) -> Compute:
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
    if result == BOOLEAN and operands[0] == FLOAT64 and (Literal in scalars or Unified in scalars):
        compute = _narrowed(function, compute, scalars)
    steps = [CASTS[s, SCALARS[k]] for s, k in zip(scalars, operands, strict=True)]
    if all(step is unchanged for step in steps) or _promotes(function, scalars, result, operands):
        return compute
    if len(steps) == 1:
        first = steps[0]
        return lambda a: compute(first(a))
    left, right = steps
    if left is unchanged:
        return lambda a, b: compute(a, right(b))
    if right is unchanged:
        return lambda a, b: compute(left(a), b)
    return lambda a, b: compute(left(a), right(b))


def _plain(function: Callable, operands: tuple[Any, ...]) -> Compute:
    return function


ARITHMETIC = {operator.add, operator.sub, operator.mul, operator.truediv}
IN_RESULT_TYPE = {operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod} | {
    *(operator.and_, operator.or_, operator.xor)
}


def _promotes(function: Callable, scalars: tuple[type, ...], result: Any, operands: tuple[Any, ...]) -> bool:
    """Whether NumPy's own promotion of the scalars casts as Numba does, so that no cast is needed before."""
    if function not in ARITHMETIC or Literal in scalars or Unified in scalars or np.bool_ in scalars or bool in scalars:
        return False
    return operands[0] == operands[1] and np.result_type(*scalars) == as_dtype(operands[0])


def _narrowed(function: Callable, compute: Compute, scalars: tuple[type, ...]) -> Compute:
    """Return a comparison with a literal: reported unless float32 holds it, for then the compiler narrows it."""
    if any(map(asked, scalars)) or all(s is Literal for s in scalars):
        return compute
    place = scalars.index(Literal) if Unified not in scalars else None
    what = f"{_spelled(function)} of {' and '.join(map(described, scalars))}"

    def compare(a: Any, b: Any) -> Any:
        if place is None or not _float32_holds((a, b)[place]):
            creep(what)
        return compute(a, b)

    return compare


def _float32_holds(value: Any) -> bool:
    return value != value or np.float32(value) == value


def _floor_division(function: Callable, operands: tuple[Any, ...]) -> Compute:
    """Return // or %: NumPy's, but that the lowest integer over -1 is 0 in Numba."""
    if operands[0] not in types.signed_domain:
        return function
    lowest, zero = operands[0].minval, SCALARS[operands[0]](0)
    return lambda a, b: zero if b == -1 and a == lowest else function(a, b)


def _power(function: Callable, operands: tuple[Any, ...]) -> Compute:
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


def _shift(function: Callable, operands: tuple[Any, ...]) -> Compute:
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


def _invert(function: Callable, operands: tuple[Any, ...]) -> Compute:
    return function if operands[0] == BOOLEAN else _result_wide(function, operands)


def _result_wide(function: Callable, operands: tuple[Any, ...]) -> Compute:
    """Return a unary operator whose result is wider than its operand: int32 becomes int64 first."""
    result = signature(function, operands)[0]
    if isinstance(result, types.Integer):
        widen = CASTS[SCALARS[operands[0]], SCALARS[result]]
        return lambda a: function(widen(a))
    return function


def _not(function: Callable, operands: tuple[Any, ...]) -> Compute:
    return lambda a: np.bool_(not a)


SPECIAL: dict[Callable, Callable[[Callable, tuple[Any, ...]], Compute]] = {
    **{operator.floordiv: _floor_division, operator.mod: _floor_division, operator.pow: _power, pow: _power},
    **{operator.lshift: _shift, operator.rshift: _shift, operator.invert: _invert},
    **{operator.neg: _result_wide, operator.pos: _result_wide, operator.not_: _not},
}
OWN_TYPES: set[Callable] = set()  # typed here, not by Numba's CPU target


def unary(function: Callable) -> Callable[[Any], Any]:
    """Return an operator of one number, with Numba's types."""
    table = Operation(function, natural)
    return lambda a: table[(type(a),)](a)


def binary(function: Callable) -> Callable[[Any, Any], Any]:
    """Return an operator of two numbers, with Numba's types."""
    table = Operation(function, natural)

    def operate(a: Any, b: Any) -> Any:
        """Return the result of an operator on two numbers, with Numba's types."""
        return table[type(a), type(b)](a, b)

    return operate


add = binary(operator.add)
divide = binary(operator.floordiv)
remainder = binary(operator.mod)
equal = binary(operator.eq)
OPERATORS: dict[type[ast.AST], Callable] = {
    **{ast.Add: add, ast.Sub: binary(operator.sub), ast.Mult: binary(operator.mul)},
    **{ast.Div: binary(operator.truediv), ast.FloorDiv: divide, ast.Mod: remainder},
    **{ast.Pow: binary(operator.pow), ast.LShift: binary(operator.lshift), ast.RShift: binary(operator.rshift)},
    **{ast.BitAnd: binary(operator.and_), ast.BitOr: binary(operator.or_), ast.BitXor: binary(operator.xor)},
    **{ast.Lt: binary(operator.lt), ast.LtE: binary(operator.le), ast.Gt: binary(operator.gt)},
    **{ast.GtE: binary(operator.ge), ast.Eq: equal, ast.NotEq: binary(operator.ne)},
    **{ast.USub: unary(operator.neg), ast.UAdd: unary(operator.pos), ast.Invert: unary(operator.invert)},
    **{ast.Not: unary(operator.not_)},
}
