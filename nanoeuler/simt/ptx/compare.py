"""Comparisons: ``setp`` and ``set`` (PTX ISA sections 9.7.6 and 9.7.7)."""

from collections.abc import Callable

import numpy as np

from nanoeuler.simt.ptx.decode import Decoder, opcode
from nanoeuler.simt.ptx.floating import FLOAT_KINDS, flush
from nanoeuler.simt.ptx.kinds import DTYPES, Array, Fetch, Step
from nanoeuler.simt.ptx.machine import Lanes, Machine
from nanoeuler.simt.ptx.program import Instruction
from nanoeuler.simt.ptx.rounding import from_bf16

Compare = Callable[[Array, Array], Array]
_ORDERED: dict[str, Compare] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_UNORDERED = {f"{name}u": name for name in _ORDERED}
_COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
COMPARISONS = (*_ORDERED, *_UNSIGNED, *_UNORDERED, "num", "nan")


def comparison(name: str, is_float: bool) -> Compare:
    """Return the comparison ``name``: with a NaN, an ordered one of floats is false, an unordered one true."""
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name in _UNORDERED:
        ordered = _ORDERED[_UNORDERED[name]]
        return lambda a, b: ordered(a, b) | np.isnan(a) | np.isnan(b)
    if name == "ne" and is_float:
        return lambda a, b: (a < b) | (a > b)
    return _ORDERED[_UNSIGNED.get(name, name)]


def compared(decoder: Decoder, instruction: Instruction, kind: str, a: str, b: str) -> Fetch:
    """Return the fetch of the comparison of ``a`` and ``b``, combined with a predicate where the opcode says so.

    Raises:
        UnsupportedError: the opcode has no comparison.
    """
    name = next((part for part in instruction.parts if part in COMPARISONS), None)
    if name is None:
        decoder.refuse(instruction, "no comparison")
    compare = comparison(name, kind in FLOAT_KINDS)
    left, right = decoder.source(instruction, a, kind), decoder.source(instruction, b, kind)
    if kind == "bf16":
        return lambda registers: compare(from_bf16(left(registers)), from_bf16(right(registers)))
    if "ftz" in instruction.parts:
        return lambda registers: compare(flush(left(registers)), flush(right(registers)))
    return lambda registers: compare(left(registers), right(registers))


@opcode("setp")
def setp(decoder: Decoder, instruction: Instruction) -> Step:
    """``setp p|q, a, b, c``: p is the comparison combined with c; q is its complement combined with c."""
    decoder.modifiers(instruction, *COMPARISONS, *_COMBINE, "ftz")
    kind = decoder.kind(instruction)
    targets, a, b, *third = instruction.operands
    names = [name.strip() for name in targets.split("|")]
    combine = next((_COMBINE[part] for part in instruction.parts if part in _COMBINE), None)
    if kind in ("f16x2", "bf16x2"):
        return compare_pairs(decoder, instruction, kind[:-2], names)
    test = compared(decoder, instruction, kind, a, b)
    if combine is None and len(names) == 1:
        return decoder.assign(instruction, names[0], "pred", test)
    other = decoder.predicate(instruction, third[0]) if third else None
    registers = [None if name == "_" else decoder.register(instruction, name) for name in names]

    def step(machine: Machine, lanes: Lanes) -> None:
        result = test(machine.registers)
        values = (result, ~result)
        if combine is not None and other is not None:
            with_other = other(machine.registers)
            values = (combine(result, with_other), combine(~result, with_other))
        for register, value in zip(registers, values, strict=False):
            if register is not None:
                machine.write(register, value, lanes)

    return step


def compare_pairs(decoder: Decoder, instruction: Instruction, kind: str, names: list[str]) -> Step:
    """Return the step of ``setp.f16x2 p|q``: p compares the low halves, q the high ones.

    Raises:
        UnsupportedError: there are not two targets, or it is combined with a predicate or flushes.
    """
    if len(names) != 2 or any(part in _COMBINE or part == "ftz" for part in instruction.parts):
        decoder.refuse(instruction)
    name = next(part for part in instruction.parts if part in COMPARISONS)
    compare = comparison(name, True)
    fetches = [decoder.source(instruction, text, "b32") for text in instruction.operands[1:3]]
    registers = [None if name == "_" else decoder.register(instruction, name) for name in names]

    def half(word: Array, shift: int) -> Array:
        bits = (word >> np.uint32(shift)).astype(np.uint16)
        return bits.view(np.float16) if kind == "f16" else from_bf16(bits)

    def step(machine: Machine, lanes: Lanes) -> None:
        a, b = (fetch(machine.registers) for fetch in fetches)
        values = [compare(half(a, shift), half(b, shift)) for shift in (0, 16)]
        for register, value in zip(registers, values, strict=True):
            if register is not None:
                machine.write(register, value, lanes)

    return step


@opcode("set")
def set_(decoder: Decoder, instruction: Instruction) -> Step:
    """``set.dtype.stype d, a, b, c``: all ones (1.0 for a float) where the comparison holds, else 0."""
    decoder.modifiers(instruction, *COMPARISONS, *_COMBINE, "ftz")
    result, kind = decoder.kind(instruction, 0), decoder.kind(instruction, 1)
    target, a, b, *third = instruction.operands
    test = compared(decoder, instruction, kind, a, b)
    combine = next((_COMBINE[part] for part in instruction.parts if part in _COMBINE), None)
    other = decoder.predicate(instruction, third[0]) if third else None
    dtype = DTYPES[result]
    if result in ("bf16", "f16x2", "bf16x2") or kind in ("f16x2", "bf16x2"):
        decoder.refuse(instruction)

    def compute(registers: list[Array]) -> Array:
        holds = test(registers)
        if combine is not None and other is not None:
            holds = combine(holds, other(registers))
        return holds.astype(dtype) if dtype.kind == "f" else -holds.astype(dtype)

    return decoder.assign(instruction, target, result, compute)
