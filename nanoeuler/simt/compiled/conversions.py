"""Floats become integers as on a GPU, also where nobody wrote the cast: at a store, an atomic, a sum.

PTX ISA, cvt: out of range saturates, and NaN is 0 or, from float64 or to 64 bits, the top bit alone. To 8 bits NVVM
goes by way of 16 and cuts off. LLVM leaves all this open, and a CPU does as it likes. The rules hold while a kernel is
compiled, not for other functions that Numba compiles in the process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target

from nanoeuler.simt.compiled import float16

FLOAT_TO_INTEGER = (types.Float, types.Integer)


@contextmanager
def gpu_conversions() -> Iterator[None]:
    """Let what Numba compiles inside the block convert floats to integers as a GPU does."""
    float16.install()
    casts = cpu_target.target_context._casts
    place = next(i for i, (signature, _) in enumerate(casts.versions) if tuple(signature) == FLOAT_TO_INTEGER)
    usual = casts.versions[place]
    casts.versions[place] = usual[0], _to_integer
    casts._cache.clear()
    try:
        yield
    finally:
        casts.versions[place] = usual
        casts._cache.clear()


def _to_integer(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    """Convert a float to an integer type."""
    half = source == types.float16
    if half:  # numba-cuda's rounds to the nearest, and knows 8 bits
        single = ir.FloatType()
        value = builder.fpext(value, single)
        value = builder.call(builder.module.declare_intrinsic("llvm.rint", [single]), [value])
    width = target.bitwidth if half else max(target.bitwidth, 16)
    kind = ir.IntType(width)
    name = f"llvm.fpto{'s' if target.signed else 'u'}i.sat"
    convert = builder.module.declare_intrinsic(name, [kind, value.type], ir.FunctionType(kind, [value.type]))
    result = builder.call(convert, [value])
    if source == types.float64 or target.bitwidth == 64:
        unordered = builder.fcmp_unordered("uno", value, value)
        result = builder.select(unordered, ir.Constant(kind, 1 << (width - 1)), result)
    return builder.trunc(result, ir.IntType(target.bitwidth)) if target.bitwidth < width else result
