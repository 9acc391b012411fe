"""Teaches CPU Numba float16, which it types but cannot compile: stored, cast, and computed with as numba.cuda does.

A sum or product of two float16 is worked out in float32 and rounded to float16. That is the float16 operation exactly:
float32 has more than twice its bits and two more (Figueroa, "When is double rounding innocuous?", 1995).
"""

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models, register_default
from numba.core.imputils import Registry
from numba.core.registry import cpu_target
from numba.extending import overload

_registry = Registry(
    "nanoeuler.simt.compiled.float16"
)  # of its own: numba-cuda reads the common one, and keeps float16 as i16
lower_cast, lower_constant = _registry.lower_cast, _registry.lower_constant
_HALF, _SINGLE, _INT32 = ir.HalfType(), ir.FloatType(), ir.IntType(32)


@register_default(types.Float)
class _FloatModel(models.PrimitiveModel):
    """Numba's model of floats, with float16 among them."""

    def __init__(self, manager: Any, kind: Any) -> None:
        backing = {types.float16: _HALF, types.float32: _SINGLE, types.float64: ir.DoubleType()}
        super().__init__(manager, kind, backing[kind])


@lower_constant(types.float16)
def _constant(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return builder.fptrunc(ir.Constant(_SINGLE, float(value)), _HALF)


@lower_cast(types.float16, types.Float)
def _widen(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    return builder.fpext(value, context.get_value_type(target))


@lower_cast(types.float16, types.Boolean)
def _to_boolean(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    return context.cast(builder, builder.fpext(value, _SINGLE), types.float32, target)


@lower_cast(types.float16, types.Complex)
def _to_complex(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    return context.cast(builder, builder.fpext(value, _SINGLE), types.float32, target)


@lower_cast(types.float32, types.float16)
def _narrow(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    return builder.fptrunc(value, _HALF)


@lower_cast(types.float64, types.float16)
def _narrow_twice(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    """Round once: to float32 toward zero with the last bit set where that is not exact ("round to odd"), then on."""
    single = builder.fptrunc(value, _SINGLE)
    back = builder.fpext(single, ir.DoubleType())
    size, wanted = (builder.call(_absolute(builder), [v]) for v in (back, value))
    bits = builder.bitcast(single, _INT32)
    over = builder.zext(builder.fcmp_ordered(">", size, wanted), _INT32)
    inexact = builder.zext(builder.fcmp_ordered("!=", back, value), _INT32)
    odd = builder.or_(builder.sub(bits, over), inexact)
    return builder.fptrunc(builder.bitcast(odd, _SINGLE), _HALF)


def _absolute(builder: Any) -> Any:
    """Return LLVM's fabs of a double."""
    return builder.module.declare_intrinsic("llvm.fabs", [ir.DoubleType()])


@lower_cast(types.Integer, types.float16)
@lower_cast(types.Boolean, types.float16)
def _from_integer(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    wide = context.cast(builder, value, source, types.float64)
    return context.cast(builder, wide, types.float64, target)


def _in_float16(operation: Any) -> None:
    """Let ``operation`` on two float16 give a float16."""

    @overload(operation, target="cpu", strict=False)  # before what Numba has for all targets, which is float32
    def typed(a: Any, b: Any) -> Any:
        if a == types.float16 and b == types.float16:
            return lambda a, b: types.float16(operation(types.float32(a), types.float32(b)))


for _operation in (operator.add, operator.sub, operator.mul, operator.truediv):
    _in_float16(_operation)


def install() -> None:
    """Make CPU Numba's context know float16; to do it once more costs nothing."""
    cpu_target.target_context.install_registry(_registry)
