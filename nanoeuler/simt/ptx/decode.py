"""Each instruction, once, to a closure: what it reads is looked up here, so that running it is NumPy and little else.

The files beside this one register a handler for each opcode with ``@opcode``. A handler takes the decoder and the
instruction and returns the closure (a Step), or the ending of a block (a branch, a barrier, a warp operation). A
modifier that a handler does not name is refused (UnsupportedError), never skipped.
"""

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NoReturn

import numpy as np

from nanoeuler.simt.faults import UnsupportedError
from nanoeuler.simt.ptx.kinds import DTYPES, SIGNED, UNSIGNED, Array, Fetch, Step
from nanoeuler.simt.ptx.machine import Lanes, Machine
from nanoeuler.simt.ptx.parse import parse_integer
from nanoeuler.simt.ptx.program import DYNAMIC, Instruction, Program, Register, Symbol
from nanoeuler.simt.ptx.schedule import Block, Ending
from nanoeuler.simt.ptx.special import SPECIALS

Handler = Callable[["Decoder", Instruction], "Step | Ending"]
HANDLERS: dict[str, Handler] = {}
_SYMBOL_OFFSET = re.compile(r"([A-Za-z_$][\w$]*)\s*\+\s*(-?\w+)$")
_ADDRESS = re.compile(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(-?\w+))?\s*\]$")


def opcode(*names: str) -> Callable[[Handler], Handler]:
    """Register the handler of the instructions that begin with one of ``names``."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


class Decoder:
    """Turns the instructions of a program into blocks of closures."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.targets: dict[str, int] = {}  # label -> block

    def decode(self) -> list[Block]:
        """Return the program's blocks.

        Raises:
            UnsupportedError: an instruction, modifier or operand that the executor does not know.
        """
        starts = self.block_starts()
        number = {start: block for block, start in enumerate(starts)}
        self.targets = {label: number[at] for label, at in self.program.labels.items() if at in number}
        ends = [*starts[1:], len(self.program.instructions)]
        return [self.block(start, end) for start, end in zip(starts, ends, strict=True)]

    def block_starts(self) -> list[int]:
        """Return the numbers of the instructions that begin a block."""
        instructions = self.program.instructions
        starts = {0, *self.program.labels.values()}
        starts |= {at + 1 for at, instruction in enumerate(instructions) if ends_block(instruction)}
        return sorted(start for start in starts if start < len(instructions))

    def block(self, start: int, end: int) -> Block:
        """Return the block of the instructions from ``start`` to ``end``.

        Raises:
            UnsupportedError: one of them has what the executor does not know.
        """
        block = Block()
        for instruction in self.program.instructions[start:end]:
            block.instruction = instruction
            decoded = self.handler(instruction)(self, instruction)
            if not callable(decoded):
                block.end = decoded
            elif instruction.guard is None:
                block.body.append(decoded)
            else:
                block.body.append(self.guarded(decoded, instruction))
        return block

    def handler(self, instruction: Instruction) -> Handler:
        """Return what decodes an instruction.

        Raises:
            UnsupportedError: there is nothing that does.
        """
        handler = HANDLERS.get(instruction.parts[0])
        if handler is None:
            self.refuse(instruction)
        return handler

    def guarded(self, step: Step, instruction: Instruction) -> Step:
        """Return ``step`` run only in the lanes where the instruction's predicate holds."""
        predicate = self.guard(instruction)
        assert predicate is not None

        def run(machine: Machine, lanes: Lanes) -> None:
            chosen = lanes.chosen(predicate(machine.registers))
            if chosen is not None:
                step(machine, chosen)

        return run

    def guard(self, instruction: Instruction) -> Fetch | None:
        """Return the fetch of the instruction's predicate."""
        return None if instruction.guard is None else self.predicate(instruction, instruction.guard)

    def predicate(self, instruction: Instruction, text: str) -> Fetch:
        """Return the fetch of a predicate, perhaps negated: ``%p1`` or ``!%p1``."""
        fetch = self.source(instruction, text.lstrip("!"), "pred")
        return (lambda registers: ~fetch(registers)) if text.startswith("!") else fetch

    def label(self, instruction: Instruction, text: str) -> int:
        """Return the block that a label names.

        Raises:
            UnsupportedError: there is no such label.
        """
        if text not in self.targets:
            self.refuse(instruction, f"the label '{text}'")
        return self.targets[text]

    def refuse(self, instruction: Instruction, what: str = "") -> NoReturn:
        """Raise the error that names what is not known and where it stands.

        Raises:
            UnsupportedError: always.
        """
        where = f" (at {instruction.location})" if instruction.location else ""
        detail = f": {what}" if what else ""
        text = instruction.text if len(instruction.text) < 160 else instruction.text[:157] + "..."
        raise UnsupportedError(f"the PTX executor does not know the instruction '{text}'{detail}{where}")

    def modifiers(self, instruction: Instruction, *known: str) -> frozenset[str]:
        """Return the instruction's modifiers; one that is neither ``known`` nor a type is refused.

        Raises:
            UnsupportedError: there is such a one.
        """
        given = instruction.parts[1:]
        for modifier in given:
            if modifier not in known and modifier not in DTYPES:
                self.refuse(instruction, f"'.{modifier}'")
        return frozenset(given)

    def kind(self, instruction: Instruction, at: int = -1) -> str:
        """Return the ``at``-th of the instruction's types, the last by default.

        Raises:
            UnsupportedError: it has not so many.
        """
        kinds = [part for part in instruction.parts[1:] if part in DTYPES]
        if not -len(kinds) <= at < len(kinds):
            self.refuse(instruction, "no type")
        return kinds[at]

    def register(self, instruction: Instruction, name: str) -> Register:
        """Return the register that ``name`` means.

        Raises:
            UnsupportedError: it means none.
        """
        meaning = instruction.scope.lookup(name)
        if not isinstance(meaning, Register):
            self.refuse(instruction, f"the operand '{name}'")
        return meaning

    def source(self, instruction: Instruction, text: str, kind: str) -> Fetch:
        """Return the fetch of an operand as an array of ``kind``: a register, an immediate or an address.

        Raises:
            UnsupportedError: it is none of these.
        """
        dtype = DTYPES[kind]
        meaning = instruction.scope.lookup(text)
        if isinstance(meaning, Register):
            return read_register(meaning, dtype)
        if isinstance(meaning, Symbol):
            return self.address_of(meaning, 0, dtype)
        if text.startswith("%"):
            return read_register(self.special(instruction, text), dtype)
        if symbol := _SYMBOL_OFFSET.match(text):
            named = instruction.scope.lookup(symbol[1])
            if isinstance(named, Symbol):
                return self.address_of(named, parse_integer(symbol[2]), dtype)
        value = self.immediate(instruction, text, dtype)
        return lambda registers: value

    def special(self, instruction: Instruction, name: str) -> Register:
        """Return the register in which a special register such as ``%tid.x`` is kept: it is set at the launch.

        Raises:
            UnsupportedError: the executor does not know it.
        """
        if name not in SPECIALS:
            self.refuse(instruction, f"the special register '{name}'")
        if name not in self.program.specials:
            self.program.registers.append(SPECIALS[name][0])
            self.program.specials[name] = Register(len(self.program.registers) - 1, SPECIALS[name][0])
        return self.program.specials[name]

    def immediate(self, instruction: Instruction, text: str, dtype: np.dtype[Any]) -> Array:
        """Return the value of a literal as one element of ``dtype``.

        Raises:
            UnsupportedError: it is none.
        """
        if text == "WARP_SZ":
            return np.array([32], dtype)
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
            value = np.array([int(text[2:], 16)], np.uint32).view(np.float32)
        elif re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
            value = np.array([int(text[2:], 16)], np.uint64).view(np.float64)
        elif re.fullmatch(r"[+-]?(0[xX][0-9a-fA-F]+|\d+)U?", text):
            return self.integer_immediate(parse_integer(text), dtype)
        elif re.fullmatch(r"[+-]?\d*\.\d*(?:[eE][+-]?\d+)?", text):
            value = np.array([float(text)], np.float64)
        else:
            self.refuse(instruction, f"the operand '{text}'")
        return value.astype(dtype) if dtype.kind == "f" else value.view(UNSIGNED[value.itemsize]).astype(dtype)

    def integer_immediate(self, value: int, dtype: np.dtype[Any]) -> Array:
        if dtype.kind == "b":
            return np.array([value != 0])
        size = dtype.itemsize
        return np.array([value % (1 << 8 * size)], UNSIGNED[size]).view(dtype)

    def address_of(self, symbol: Symbol, offset: int, dtype: np.dtype[Any]) -> Fetch:
        """Return the fetch of a variable's address in its own space."""
        address = self.program.dynamic_shared if symbol.address == DYNAMIC else symbol.address
        value = np.array([address + offset], np.int64).astype(dtype)
        return lambda registers: value

    def address(self, instruction: Instruction, text: str) -> tuple[Fetch, str | None]:
        """Return the fetch of ``[register+offset]`` as int64, and the space of the variable if it names one.

        Raises:
            UnsupportedError: it has another form.
        """
        match = _ADDRESS.match(text)
        if match is None:
            self.refuse(instruction, f"the address '{text}'")
        name, offset = match[1], parse_integer(match[2]) if match[2] else 0
        meaning = instruction.scope.lookup(name)
        if isinstance(meaning, Symbol):
            return self.address_of(meaning, offset, np.dtype(np.int64)), meaning.space
        if not isinstance(meaning, Register):
            value = np.array([parse_integer(name) + offset], np.int64)
            return lambda registers: value, None
        fetch = read_register(meaning, np.dtype(np.int64) if meaning.dtype.itemsize == 8 else meaning.dtype)
        if meaning.dtype.itemsize < 8:
            return lambda registers: fetch(registers).astype(np.int64) + offset, None
        return (lambda registers: fetch(registers) + offset) if offset else fetch, None

    def assign(self, instruction: Instruction, target: str, kind: str, compute: Fetch) -> Step:
        """Return the step that puts ``compute``'s result, an array of ``kind``, into register ``target``.

        Raises:
            UnsupportedError: the target is no register.
        """
        if target == "_":
            return lambda machine, lanes: None
        register = self.register(instruction, target)
        compute = widened(compute, DTYPES[kind], register.dtype)
        index = register.index

        def step(machine: Machine, lanes: Lanes) -> None:
            registers = machine.registers
            value = compute(registers)
            registers[index] = value if lanes.keep is None else np.where(lanes.keep, value, registers[index])

        return step

    def unary(self, instruction: Instruction, function: Callable[[Array], Array], kind: str, result: str = "") -> Step:
        """Return the step ``d = function(a)`` on operands of ``kind``.

        Raises:
            UnsupportedError: it has other operands.
        """
        target, a = self.operands(instruction, 2)
        fetch = self.source(instruction, a, kind)
        return self.assign(instruction, target, result or kind, lambda registers: function(fetch(registers)))

    def binary(
        self, instruction: Instruction, function: Callable[[Array, Array], Array], kind: str, result: str = ""
    ) -> Step:
        """Return the step ``d = function(a, b)`` on operands of ``kind``.

        Raises:
            UnsupportedError: it has other operands.
        """
        target, a, b = self.operands(instruction, 3)
        left, right = self.source(instruction, a, kind), self.source(instruction, b, kind)
        return self.assign(
            instruction, target, result or kind, lambda registers: function(left(registers), right(registers))
        )

    def ternary(
        self, instruction: Instruction, function: Callable[[Array, Array, Array], Array], kinds: tuple[str, str, str]
    ) -> Step:
        """Return the step ``d = function(a, b, c)``; the result has the kind of c.

        Raises:
            UnsupportedError: it has other operands.
        """
        target, *sources = self.operands(instruction, 4)
        a, b, c = (self.source(instruction, text, kind) for text, kind in zip(sources, kinds, strict=True))
        return self.assign(
            instruction, target, kinds[2], lambda registers: function(a(registers), b(registers), c(registers))
        )

    def operands(self, instruction: Instruction, count: int) -> tuple[str, ...]:
        """Return the operands, of which there must be ``count``.

        Raises:
            UnsupportedError: there are more or fewer.
        """
        if len(instruction.operands) != count:
            self.refuse(instruction, f"{len(instruction.operands)} operands")
        return instruction.operands


def read_register(register: Register, dtype: np.dtype[Any]) -> Fetch:
    """Return the fetch of ``register`` as an array of ``dtype``: as it is, viewed, or its low bits."""
    get: Fetch = itemgetter(register.index)
    if register.dtype == dtype:
        return get
    size = dtype.itemsize
    if register.dtype.kind == "b" or dtype.kind == "b":
        return lambda registers: get(registers).astype(dtype)
    if register.dtype.itemsize == size:
        return lambda registers: get(registers).view(dtype)
    if register.dtype.itemsize < size:  # upper bits are zero
        return lambda registers: get(registers).view(UNSIGNED[register.dtype.itemsize]).astype(dtype)
    whole, part = UNSIGNED[register.dtype.itemsize], UNSIGNED[size]
    return lambda registers: get(registers).view(whole).astype(part).view(dtype)


def widened(compute: Fetch, dtype: np.dtype[Any], kept: np.dtype[Any]) -> Fetch:
    """Return ``compute``, whose results are of ``dtype``, as what a register of dtype ``kept`` holds."""
    if dtype == kept:
        return compute
    if dtype.kind == "b" or kept.kind == "b":
        return lambda registers: compute(registers).astype(kept)
    size = kept.itemsize
    if dtype.itemsize == size:
        return lambda registers: compute(registers).view(kept)
    if dtype.kind == "f":
        bits = UNSIGNED[dtype.itemsize]
        return lambda registers: compute(registers).view(bits).astype(UNSIGNED[size]).view(kept)
    wide = SIGNED[size] if dtype.kind == "i" else UNSIGNED[size]
    return lambda registers: compute(registers).astype(wide).view(kept)


def fitted(value: Array, register: Register) -> Array:
    """Return ``value`` as ``register`` keeps it: extended by zeros, or by the sign of a signed value."""
    if value.dtype == register.dtype:
        return value
    return widened(lambda registers: value, value.dtype, register.dtype)([])


def ends_block(instruction: Instruction) -> bool:
    """Whether ``instruction`` ends a block of code."""
    return instruction.parts[0] in ("bra", "brx", "ret", "exit", "trap") or is_meeting(instruction)


def is_meeting(instruction: Instruction) -> bool:
    """Whether lanes wait for each other at ``instruction``."""
    first = instruction.parts[0]
    return first in ("bar", "barrier", "shfl", "vote", "match", "redux", "mma", "ldmatrix", "stmatrix", "movmatrix")
