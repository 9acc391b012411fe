"""Floating-point instructions (PTX ISA sections 9.7.3 and 9.7.4): f32 and f64, f16 and bf16, and packed pairs of those.

Results that the ISA defines by IEEE 754 are exact in every rounding mode. Those it calls approximate (``.approx``) are
computed in float64 and rounded to nearest: inside the error it allows, but not the bits that a GPU gives.
"""

from collections.abc import Callable

import numpy as np

from nanoeuler.simt.ptx import rounding
from nanoeuler.simt.ptx.decode import Decoder, opcode
from nanoeuler.simt.ptx.integer import add_or_sub, multiply, multiply_add
from nanoeuler.simt.ptx.integer import divide as divide_integers
from nanoeuler.simt.ptx.kinds import DTYPES, UNSIGNED, Array, Step
from nanoeuler.simt.ptx.program import Instruction

Function = Callable[..., Array]
FLOAT_KINDS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
_LOW, _HALF = np.uint32(0xFFFF), np.uint32(16)


def lifted(function: Function, kind: str) -> Function:
    """Return ``function``, which works on float arrays, for operands as registers hold them.

    f16 operands reach it as float16, bf16 as float32; each half of a packed pair is computed by itself.
    """
    if kind == "bf16":
        return lambda *operands: as_bf16(function(*(rounding.from_bf16(operand) for operand in operands)))
    if kind == "f16x2":
        return _packed(lambda *halves: as_float16(function(*(h.view(np.float16) for h in halves))).view(np.uint16))
    if kind == "bf16x2":
        return _packed(lambda *halves: as_bf16(function(*(rounding.from_bf16(half) for half in halves))))
    if kind == "f16":
        return lambda *operands: as_float16(function(*operands))
    return function


def _packed(function: Function) -> Function:
    """Return ``function``, which works on 16-bit words, for both halves of 32-bit words."""

    def compute(*operands: Array) -> Array:
        low = function(*((operand & _LOW).astype(np.uint16) for operand in operands))
        high = function(*((operand >> _HALF).astype(np.uint16) for operand in operands))
        return low.astype(np.uint32) | high.astype(np.uint32) << _HALF

    return compute


def as_float16(value: Array) -> Array:
    """Return ``value`` (a float64 may be rounded to odd) as float16."""
    return value.astype(np.float16)


def as_bf16(value: Array) -> Array:
    """Return ``value`` (a float64 may be rounded to odd) as bfloat16 bits."""
    return rounding.to_bf16(value if value.dtype == np.float32 else rounding.odd_float32(value))


def flush(value: Array) -> Array:
    """Return ``value`` with subnormals replaced by zero of their sign (``.ftz``)."""
    return np.where(
        np.abs(value) < np.finfo(value.dtype).smallest_normal, np.copysign(value.dtype.type(0), value), value
    )


def saturate(value: Array) -> Array:
    """Return ``value`` held to 0 to 1, NaN as 0 (``.sat``)."""
    one, zero = value.dtype.type(1), value.dtype.type(0)
    return np.where(value > zero, np.minimum(value, one), zero)


def finished(function: Function, modifiers: frozenset[str]) -> Function:
    """Return ``function`` with what ``.ftz``, ``.sat`` and ``.relu`` do before and after it."""
    before = [flush] if "ftz" in modifiers else []
    after = [*before, *(change for name, change in (("sat", saturate), ("relu", rectified)) if name in modifiers)]
    if not after:
        return function

    def whole(*operands: Array) -> Array:
        for change in before:
            operands = tuple(change(operand) for operand in operands)
        value = function(*operands)
        for change in after:
            value = change(value)
        return value

    return whole


def rectified(value: Array) -> Array:
    """Return ``value`` with negative values as zero, NaN kept (``.relu``)."""
    return np.where(value <= 0, value.dtype.type(0), value)


def mode_of(modifiers: frozenset[str]) -> str:
    """Return the rounding mode that the modifiers name, or to nearest."""
    return next((mode for mode in rounding.MODES if mode in modifiers), "rn")


def arithmetic(decoder: Decoder, instruction: Instruction, operation: Callable[[Array, Array, str], Array]) -> Step:
    """Return the step of a binary operation that is exactly rounded."""
    modifiers = decoder.modifiers(instruction, *rounding.MODES, "ftz", "sat")
    kind, mode = decoder.kind(instruction), mode_of(modifiers)
    if mode != "rn" and kind not in ("f32", "f64"):
        decoder.refuse(instruction)
    function = finished(lambda a, b: operation(a, b, mode), modifiers)
    return decoder.binary(instruction, lifted(function, kind), kind)


@opcode("add", "sub")
def add(decoder: Decoder, instruction: Instruction) -> Step:
    """``add``, ``sub`` of integers or floats."""
    if decoder.kind(instruction) not in FLOAT_KINDS:
        return add_or_sub(decoder, instruction)
    if instruction.parts[0] == "add":
        return arithmetic(decoder, instruction, rounding.add)
    return arithmetic(decoder, instruction, lambda a, b, mode: rounding.add(a, -b, mode))


@opcode("mul")
def mul(decoder: Decoder, instruction: Instruction) -> Step:
    """``mul`` of integers or floats."""
    if decoder.kind(instruction) not in FLOAT_KINDS:
        return multiply(decoder, instruction)
    return arithmetic(decoder, instruction, rounding.multiply)


@opcode("div")
def div(decoder: Decoder, instruction: Instruction) -> Step:
    """``div`` of integers or floats; ``.full`` is exact here, ``.approx`` keeps the zeros of large divisors."""
    kind = decoder.kind(instruction)
    if kind not in FLOAT_KINDS:
        return divide_integers(decoder, instruction)
    modifiers = decoder.modifiers(instruction, *rounding.MODES, "ftz", "approx", "full")
    mode = mode_of(modifiers)
    if "approx" in modifiers:
        return decoder.binary(instruction, finished(divide_approximately, modifiers), kind)
    return decoder.binary(instruction, finished(lambda a, b: rounding.divide(a, b, mode), modifiers), kind)


def divide_approximately(a: Array, b: Array) -> Array:
    """Return a * (1 / b): zero (NaN for an infinite a) where the reciprocal of b would be subnormal."""
    tiny = (np.abs(b) > 2.0**126) & np.isfinite(b)
    return np.where(tiny, a * np.copysign(np.float32(0), b), a / b)


@opcode("fma", "mad")
def fma(decoder: Decoder, instruction: Instruction) -> Step:
    """``fma``: a * b + c, rounded once; ``mad`` of floats is the same."""
    if decoder.kind(instruction) not in FLOAT_KINDS:
        return multiply_add(decoder, instruction)
    modifiers = decoder.modifiers(instruction, *rounding.MODES, "ftz", "sat", "relu")
    kind, mode = decoder.kind(instruction), mode_of(modifiers)
    if kind in ("f32", "f64"):
        function: Function = finished(lambda a, b, c: rounding.fma(a, b, c, mode), modifiers)
    elif mode == "rn" and not modifiers & {"ftz", "sat"}:
        function = finished(rounding.odd_sum_of_product, modifiers)
    else:
        decoder.refuse(instruction)
    return decoder.ternary(instruction, lifted(function, kind), (kind,) * 3)


@opcode("min", "max")
def extreme(decoder: Decoder, instruction: Instruction) -> Step:
    """``min``, ``max``: of floats the number where one is NaN (``.NaN``: NaN), and -0 below +0."""
    kind = decoder.kind(instruction)
    largest = instruction.parts[0] == "max"
    modifiers = decoder.modifiers(instruction, "ftz", "NaN", "relu")
    if kind not in FLOAT_KINDS:
        if modifiers & {"ftz", "NaN", "relu"}:
            decoder.refuse(instruction)
        return decoder.binary(instruction, np.maximum if largest else np.minimum, kind)
    choose: Function = extreme_of(largest, "NaN" in modifiers)
    return decoder.binary(instruction, lifted(finished(choose, modifiers), kind), kind)


def extreme_of(largest: bool, keep_nan: bool = False) -> Callable[[Array, Array], Array]:
    """Return the function for the larger or smaller of two floats."""
    ignoring = np.fmax if largest else np.fmin
    keeping = np.maximum if largest else np.minimum

    def choose(a: Array, b: Array) -> Array:
        value = keeping(a, b) if keep_nan else ignoring(a, b)
        zeros = (a == 0) & (b == 0)
        if zeros.any():
            signs = np.signbit(a) & np.signbit(b) if largest else np.signbit(a) | np.signbit(b)
            value = np.where(zeros, np.where(signs, value.dtype.type(-0.0), value.dtype.type(0)), value)
        return value

    return choose


@opcode("abs", "neg")
def sign(decoder: Decoder, instruction: Instruction) -> Step:
    """``abs``, ``neg``: of floats the sign bit alone, also of NaN."""
    modifiers = decoder.modifiers(instruction, "ftz")
    kind = decoder.kind(instruction)
    absolute = instruction.parts[0] == "abs"
    if kind not in FLOAT_KINDS:
        return decoder.unary(instruction, np.abs if absolute else np.negative, kind)
    dtype = DTYPES[kind]
    bits = UNSIGNED[dtype.itemsize]
    mask = bits.type({"f16x2": 0x80008000, "bf16x2": 0x80008000}.get(kind, 1 << 8 * bits.itemsize - 1))

    def change(a: Array) -> Array:
        a = flush(a) if "ftz" in modifiers and kind == "f32" else a
        word = a.view(bits)
        return (word & ~mask if absolute else word ^ mask).view(dtype)

    return decoder.unary(instruction, change, kind)


@opcode("sqrt", "rcp", "rsqrt")
def root(decoder: Decoder, instruction: Instruction) -> Step:
    """``sqrt``, ``rcp``, ``rsqrt``: exact with a rounding mode; ``.approx.ftz.f64`` has the upper 20 bits."""
    modifiers = decoder.modifiers(instruction, *rounding.MODES, "ftz", "approx")
    kind, name = decoder.kind(instruction), instruction.parts[0]
    function = root_of(name, kind, modifiers)
    if kind == "f64":
        modifiers = modifiers - {"ftz"}  # flushes only what the coarse result cannot hold
    return decoder.unary(instruction, lifted(finished(function, modifiers), kind), kind)


def root_of(name: str, kind: str, modifiers: frozenset[str]) -> Function:
    """Return the function of ``sqrt``, ``rcp`` or ``rsqrt`` on floats, before what the modifiers make of its result."""
    mode = mode_of(modifiers)
    if name == "sqrt":
        return lambda a: rounding.square_root(a, mode)
    if name == "rcp" and "approx" not in modifiers:
        return lambda a: rounding.divide(np.ones(1, a.dtype), a, mode)
    wide: Function = (lambda a: 1.0 / a) if name == "rcp" else (lambda a: 1.0 / np.sqrt(a))
    # rsqrt.approx.f64 without .ftz is emulated in software and keeps its precision (PTX ISA, rsqrt)
    return (lambda a: _coarse(wide(a))) if kind == "f64" and "ftz" in modifiers else approximately(wide)


def _coarse(a: Array) -> Array:
    """Return float64 with the low 32 bits of each word zero, as ``rcp.approx.ftz.f64`` gives it."""
    return np.where(np.isfinite(a), (a.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64), a)


def approximately(function: Callable[[Array], Array]) -> Function:
    """Return ``function`` computed in float64 and rounded to the operand's type."""
    return lambda a: function(a.astype(np.float64)).astype(a.dtype)


@opcode("ex2", "lg2", "sin", "cos", "tanh")
def transcendental(decoder: Decoder, instruction: Instruction) -> Step:
    """``ex2``, ``lg2``, ``sin``, ``cos``, ``tanh``: the approximate functions."""
    modifiers = decoder.modifiers(instruction, "approx", "ftz")
    function = {"ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh}[instruction.parts[0]]
    kind = decoder.kind(instruction)
    return decoder.unary(instruction, lifted(finished(approximately(function), modifiers), kind), kind)


@opcode("copysign")
def copysign(decoder: Decoder, instruction: Instruction) -> Step:
    """``copysign d, a, b``: b with the sign of a."""
    decoder.modifiers(instruction)
    return decoder.binary(instruction, lambda a, b: np.copysign(b, a), decoder.kind(instruction))


@opcode("testp")
def testp(decoder: Decoder, instruction: Instruction) -> Step:
    """``testp``: whether a float is of a class."""
    modifiers = decoder.modifiers(instruction, *_CLASSES)
    test = next(_CLASSES[name] for name in _CLASSES if name in modifiers)
    return decoder.unary(instruction, test, decoder.kind(instruction), "pred")


def _subnormal(a: Array) -> Array:
    return (a != 0) & (np.abs(a) < np.finfo(a.dtype).smallest_normal)


_CLASSES: dict[str, Callable[[Array], Array]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    "normal": lambda a: np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).smallest_normal),
    "subnormal": _subnormal,
}
