"""Instructions that kernels of the catalogues write as inline code, and what each does in the language of kernels."""

from typing import Any

from llvmlite import ir
from numba import cuda, types
from numba.cuda.extending import intrinsic

from nanoeuler.simt import emulates
from nanoeuler.simt.checked.memory import require_alignment

REAL, WORD = ir.FloatType(), ir.IntType(32)


@intrinsic
def load_float4(typing_context: Any, array: Any, index: Any) -> Any:
    """Return four float32 of a one-dimensional array from ``index`` on, by one load of 16 bytes (``ld.v4.f32``)."""
    result = types.UniTuple(types.float32, 4)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, args[0]).data
        vector = ir.VectorType(REAL, 4)
        address = builder.bitcast(builder.gep(start, [args[1]]), vector.as_pointer())
        value = builder.load(address, align=16)
        return context.make_tuple(builder, result, [builder.extract_element(value, WORD(k)) for k in range(4)])

    return result(array, types.int64), generate


@emulates(load_float4)
def _(array, index):
    require_alignment(array, index, 16)
    return array[index], array[index + 1], array[index + 2], array[index + 3]


@intrinsic
def warp_total(typing_context: Any, value: Any) -> Any:
    """Return the sum of an int32 over the whole warp (PTX ISA, ``redux.sync``)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        text = "redux.sync.add.s32 $0, $1, 0xffffffff;"
        return builder.call(ir.InlineAsm(ir.FunctionType(WORD, [WORD]), text, "=r,r", side_effect=True), args)

    return types.int32(types.int32), generate


@emulates(warp_total)
def _(value):
    for k in range(5):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, 1 << k)
    return value
