"""Memory and threads of a kernel that was compiled for the CPU: arrays at addresses, and generators kept in memory.

A CUDA thread is a Numba generator. Its state is a plain struct, so a block's threads lie side by side in one buffer and
are resumed by a call through the address of the generator's compiled ``next``.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.callconv import excinfo_t
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload
from numba.np.arrayobj import populate_array

_INT64 = ir.IntType(64)
_BYTES = ir.IntType(8).as_pointer()
STOPPED = -3  # what a generator's `next` returns at its end (numba.core.callconv.RETCODE_STOPIT)


@intrinsic
def array_at(typingctx: Any, address: Any, shape: Any, dtype: Any) -> Any:
    """Return the C-contiguous array of ``shape`` and ``dtype`` that lies at ``address``; it owns nothing."""
    element = dtype.dtype
    packed = isinstance(shape, types.BaseTuple)
    lengths = shape.types if packed else (shape,)
    array_type = types.Array(element, len(lengths), "C")

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, given, _ = arguments
        dims = cgutils.unpack_tuple(builder, given, len(lengths)) if packed else [given]
        dims = [context.cast(builder, d, t, types.intp) for d, t in zip(dims, lengths, strict=True)]
        data_type = context.get_data_type(element)
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(data_type))
        strides: list[Any] = []
        step = itemsize
        for length in reversed(dims):
            strides.insert(0, step)
            step = builder.mul(step, length)
        array = context.make_array(array_type)(context, builder)
        pointer = builder.inttoptr(place, data_type.as_pointer())
        populate_array(array, data=pointer, shape=dims, strides=strides, itemsize=itemsize, meminfo=None)
        return array._getvalue()

    return array_type(types.intp, shape, dtype), codegen


@intrinsic
def fill_bytes(typingctx: Any, address: Any, count: Any, value: Any) -> Any:
    """Set the ``count`` bytes at ``address`` to ``value``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, count, value = arguments
        byte = builder.trunc(value, ir.IntType(8))
        cgutils.memset(builder, builder.inttoptr(place, _BYTES), count, byte)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.int64), codegen


# Generators ---------------------------------------------------------------------------------------------------------


@intrinsic
def state_size(typingctx: Any, generator: Any) -> Any:
    """Return how many bytes a generator's state takes, rounded up to 64."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        size = context.get_abi_sizeof(context.get_data_type(signature.args[0]))
        return context.get_constant(types.intp, -(-size // 64) * 64)

    return types.intp(generator), codegen


@intrinsic
def keep(typingctx: Any, address: Any, generator: Any) -> Any:
    """Copy a generator's state to ``address``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        state_type = context.get_data_type(signature.args[1])
        builder.store(builder.load(arguments[1]), builder.inttoptr(arguments[0], state_type.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.intp, generator), codegen


@intrinsic
def next_address(typingctx: Any, generator: Any) -> Any:
    """Return the address of the compiled function that resumes a generator of this type."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        context.get_generator_impl(kind)  # links the generator's code
        function = context.declare_function(builder.module, context.get_generator_desc(kind))
        return builder.ptrtoint(function, _INT64)

    return types.intp(generator), codegen


@intrinsic
def resume(typingctx: Any, function: Any, state: Any, failure: Any) -> Any:
    """Run the generator at ``state`` to its next yield; return what it yields, or a negative number at its end.

    Where it raised, the address of Numba's record of the exception is put at the address ``failure``.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        exception = ir.PointerType(excinfo_t)
        parameters = [_INT64.as_pointer(), ir.PointerType(exception), _BYTES]
        kind = ir.FunctionType(ir.IntType(32), parameters)
        yielded, raised = cgutils.alloca_once(builder, _INT64), cgutils.alloca_once(builder, exception)
        place = builder.inttoptr(arguments[1], _BYTES)
        status = builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [yielded, raised, place])
        fine = builder.icmp_signed("==", status, ir.Constant(ir.IntType(32), 0))
        result = cgutils.alloca_once_value(builder, builder.sext(status, _INT64))
        with builder.if_then(fine):
            builder.store(builder.load(yielded), result)
        with builder.if_then(builder.icmp_signed(">", status, ir.Constant(ir.IntType(32), 0))):
            record = builder.ptrtoint(builder.load(raised), _INT64)
            builder.store(record, builder.inttoptr(arguments[2], _INT64.as_pointer()))
            builder.store(ir.Constant(_INT64, -1), result)
        return builder.load(result)

    return types.int64(types.intp, types.intp, types.intp), codegen


@intrinsic
def schedule(typingctx: Any, scheduler: Any, arguments: Any) -> Any:
    """Call the compiled function at the address ``scheduler`` with a tuple of int64; return its int64."""

    def codegen(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = ir.FunctionType(_INT64, [_INT64] * len(arguments))
        function = builder.inttoptr(given[0], kind.as_pointer())
        return builder.call(function, cgutils.unpack_tuple(builder, given[1], len(arguments)))

    return types.int64(types.intp, arguments), codegen


@intrinsic
def interrupted(typingctx: Any, signals: Any) -> Any:
    """Let Python's signal handlers run, by its C function at the address ``signals``; tell whether one raised.

    The exception is dropped: the launch ends, and its caller raises KeyboardInterrupt.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [])
        raised = builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [])
        raised = builder.icmp_signed("!=", raised, ir.Constant(ir.IntType(32), 0))
        with builder.if_then(raised):
            context.get_python_api(builder).err_clear()
        return raised

    return types.boolean(types.intp), codegen


# Exchanges: what a thread hands in before it waits, and what it is given when it goes on ----------------------------
# Each thread has a slot of four int64: value (its bits), operand (lane, distance, predicate), mask, result.


def bits_of(value: Any) -> Any:
    """The bits of a number, as an int64."""


def number_of(bits: Any, like: Any) -> Any:
    """The number of the type of ``like`` whose bits these are."""


@overload(bits_of, strict=False)
def _bits_of(value: Any) -> Any:
    if value == types.float32:
        return lambda value: np.int64(np.float32(value).view(np.int32))
    if value == types.float64:
        return lambda value: np.float64(value).view(np.int64)
    return lambda value: types.int64(value)


@overload(number_of, strict=False)
def _number_of(bits: Any, like: Any) -> Any:
    if like == types.float32:
        return lambda bits, like: np.int32(bits).view(np.float32)
    if like == types.float64:
        return lambda bits, like: np.int64(bits).view(np.float64)
    kind = types.unliteral(like)
    return lambda bits, like: kind(bits)


@njit
def offer(code: Any, slot: Any, value: Any, operand: Any, mask: Any) -> Any:
    """Put what an operation needs into the thread's slot; return the code to be yielded."""
    place = array_at(slot, 4, types.int64)
    place[0] = bits_of(value)
    place[1] = operand
    place[2] = mask & 0xFFFFFFFF
    return code


SHUFFLED = (types.int32, types.int64, types.float32, types.float64)


def offer_shuffle(code: Any, slot: Any, value: Any, operand: Any, mask: Any) -> Any:
    """``offer`` for the values that numba.cuda's shuffles take."""


@overload(offer_shuffle, strict=False)
def _offer_shuffle(code: Any, slot: Any, value: Any, operand: Any, mask: Any) -> Any:
    if types.unliteral(value) not in SHUFFLED:
        raise TypingError(f"a shuffle takes int32, int64, float32 or float64, not {value}: cast the value")
    return lambda code, slot, value, operand, mask: offer(code, slot, value, operand, mask)


def offer_predicate(code: Any, slot: Any, predicate: Any, mask: Any) -> Any:
    """``offer`` for votes: any integer but 0 is true."""


@overload(offer_predicate, strict=False)
def _offer_predicate(code: Any, slot: Any, predicate: Any, mask: Any) -> Any:
    _only_integers(predicate)
    return lambda code, slot, predicate, mask: offer(code, slot, 1 if predicate != 0 else 0, 0, mask)


def offer_count(code: Any, slot: Any, predicate: Any, mask: Any) -> Any:
    """``offer`` for barriers that count: of an integer the lower 32 bits are taken, as numba.cuda takes them."""


@overload(offer_count, strict=False)
def _offer_count(code: Any, slot: Any, predicate: Any, mask: Any) -> Any:
    _only_integers(predicate)
    return lambda code, slot, predicate, mask: offer(code, slot, 1 if np.int32(predicate) != 0 else 0, 0, mask)


def _only_integers(predicate: Any) -> None:
    """Refuse a predicate that numba.cuda refuses."""
    if not isinstance(types.unliteral(predicate), types.Integer | types.Boolean):
        raise TypingError(f"a predicate is an integer or a bool, not {predicate}: compare it with something")


@njit
def taken(slot: Any, like: Any) -> Any:
    """Return the result of an operation, of the type of ``like``."""
    return number_of(array_at(slot, 4, types.int64)[3], like)


@njit
def taken_int32(slot: Any) -> Any:
    """Return the result of an operation as numba.cuda gives it: int32."""
    return types.int32(array_at(slot, 4, types.int64)[3])


@njit
def taken_uint32(slot: Any) -> Any:
    """Return the result of an operation as numba.cuda gives it: uint32."""
    return types.uint32(array_at(slot, 4, types.int64)[3])


@njit
def taken_bool(slot: Any) -> Any:
    """Return the result of a vote."""
    return array_at(slot, 4, types.int64)[3] != 0


@njit
def taken_match(slot: Any) -> Any:
    """Return match_all_sync's mask, and whether all lanes had the same value."""
    mask = types.int32(array_at(slot, 4, types.int64)[3])
    return mask, mask != 0
