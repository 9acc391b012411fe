"""Branches, returns and barriers, and the instructions that move values between registers unchanged (mov, selp)."""

import numpy as np

from nanoeuler.simt.ptx.decode import Decoder, fitted, opcode
from nanoeuler.simt.ptx.kinds import DTYPES, UNSIGNED, Array, Fetch, Step, storage
from nanoeuler.simt.ptx.machine import Lanes, Machine
from nanoeuler.simt.ptx.parse import split_operands
from nanoeuler.simt.ptx.program import Instruction
from nanoeuler.simt.ptx.schedule import Branch, Ending, Exit, Meeting, Table, Trap
from nanoeuler.simt.ptx.special import CLOCKS


@opcode("bra")
def branch(decoder: Decoder, instruction: Instruction) -> Ending:
    """``bra target``: jump."""
    decoder.modifiers(instruction, "uni")
    return Branch(decoder.label(instruction, instruction.operands[0]), decoder.guard(instruction))


@opcode("brx")
def branch_by_index(decoder: Decoder, instruction: Instruction) -> Ending:
    """``brx.idx index, table``: jump to the label at ``index`` of a ``.branchtargets`` list."""
    decoder.modifiers(instruction, "idx", "uni")
    index, name = decoder.operands(instruction, 2)
    table = decoder.program.tables.get(name)
    if table is None or instruction.guard:
        decoder.refuse(instruction)
    targets = tuple(decoder.label(instruction, label) for label in table)
    return Table(targets, decoder.source(instruction, index, "u32"))


@opcode("ret", "exit")
def leave(decoder: Decoder, instruction: Instruction) -> Ending:
    """``ret``, ``exit``: the thread ends (a return from a device function has become a branch)."""
    decoder.modifiers(instruction, "uni")
    return Exit(decoder.guard(instruction))


@opcode("trap")
def trap(decoder: Decoder, instruction: Instruction) -> Ending:
    """``trap``: the thread stops the kernel."""
    decoder.modifiers(instruction)
    return Trap(instruction, decoder.guard(instruction))


@opcode("membar", "fence")
def fence(decoder: Decoder, instruction: Instruction) -> Step:
    """``membar``, ``fence``: nothing to do, as every store is seen by all lanes at once."""
    decoder.modifiers(instruction, "cta", "gl", "sys", "gpu", "sc", "acq_rel", "acquire", "release", "cluster")
    return lambda machine, lanes: None


@opcode("nanosleep")
def nanosleep(decoder: Decoder, instruction: Instruction) -> Step:
    """``nanosleep``: no time passes here."""
    decoder.modifiers(instruction)
    return lambda machine, lanes: None


@opcode("bar", "barrier")
def barrier(decoder: Decoder, instruction: Instruction) -> Ending:
    """``bar.sync``, ``bar.red``, ``bar.warp.sync``: every thread of the block, or each lane named, must come here."""
    flags = decoder.modifiers(instruction, "sync", "red", "warp", "cta", "aligned", "popc", "and", "or")
    guard = decoder.guard(instruction)
    if "warp" in flags:
        members = decoder.source(instruction, instruction.operands[0], "u32")
        return Meeting(lambda machine, lanes: None, instruction, members, guard)
    if "red" in flags:
        return Meeting(reduction(decoder, instruction), instruction, None, guard)
    if "sync" not in flags or len(instruction.operands) > 1:
        decoder.refuse(instruction, "a barrier of some of the block's threads")
    return Meeting(lambda machine, lanes: None, instruction, None, guard)


def reduction(decoder: Decoder, instruction: Instruction) -> Step:
    """Return the step of ``bar.red``: count, and, or of a predicate over the block.

    Raises:
        UnsupportedError: only some of the block's threads are to come.
    """
    if len(instruction.operands) != 3:
        decoder.refuse(instruction, "a barrier of some of the block's threads")
    target, _, flag = instruction.operands
    predicate = decoder.predicate(instruction, flag)
    operation = next(part for part in instruction.parts if part in ("popc", "and", "or"))
    register = decoder.register(instruction, target)

    def step(machine: Machine, lanes: Lanes) -> None:
        flags = np.broadcast_to(predicate(machine.registers), (machine.n,)).reshape(machine.blocks, -1)
        count = flags.sum(axis=1)
        value = {"popc": count, "and": count == flags.shape[1], "or": count > 0}[operation].astype(register.dtype)
        machine.write(register, np.repeat(value, machine.launch.block_threads), lanes)

    return step


@opcode("mov")
def mov(decoder: Decoder, instruction: Instruction) -> Step:
    """``mov``: a copy, a special register, an address, or a vector packed into or unpacked from one register."""
    decoder.modifiers(instruction)
    kind = decoder.kind(instruction)
    target, value = decoder.operands(instruction, 2)
    if target.startswith("{"):
        return unpack(decoder, instruction, kind, split_operands(target.strip("{} ")), value)
    if value.startswith("{"):
        return decoder.assign(instruction, target, kind, packed(decoder, instruction, kind, value))
    if value in CLOCKS:
        return clock(decoder, instruction, target, value)
    kind = kind.replace("s", "b").replace("u", "b") if kind[0] in "su" else kind
    return decoder.assign(instruction, target, kind, decoder.source(instruction, value, kind))


def clock(decoder: Decoder, instruction: Instruction, target: str, name: str) -> Step:
    """Return the step that reads a clock: the number of steps so far."""
    register = decoder.register(instruction, target)
    shift = 32 if name.endswith("_hi") else 0

    def step(machine: Machine, lanes: Lanes) -> None:
        machine.write(register, np.array([machine.steps >> shift], register.dtype), lanes)

    return step


def packed(decoder: Decoder, instruction: Instruction, kind: str, vector: str) -> Fetch:
    """Return the fetch of ``{a, b, ...}``, a first, as one value of ``kind``."""
    whole = storage(f"b{8 * DTYPES[kind].itemsize}")
    names = split_operands(vector.strip("{} "))
    width = 8 * DTYPES[kind].itemsize // len(names)
    parts = [decoder.source(instruction, name, f"b{width}") for name in names]

    def fetch(registers: list[Array]) -> Array:
        value = parts[0](registers).astype(whole)
        for number, part in enumerate(parts[1:], 1):
            value = value | part(registers).astype(whole) << whole.type(number * width)
        return value.view(DTYPES[kind])

    return fetch


def unpack(decoder: Decoder, instruction: Instruction, kind: str, targets: tuple[str, ...], value: str) -> Step:
    """Return the step that cuts one value of ``kind`` into ``targets``, the low bits first."""
    size = DTYPES[kind].itemsize
    part = size // len(targets)
    source = decoder.source(instruction, value, f"b{8 * size}")
    whole = UNSIGNED[size]
    registers = [None if name == "_" else decoder.register(instruction, name) for name in targets]

    def step(machine: Machine, lanes: Lanes) -> None:
        bits = source(machine.registers)
        for number, register in enumerate(registers):
            if register is not None:
                piece = (bits >> whole.type(8 * part * number)).astype(UNSIGNED[part])
                machine.write(register, fitted(piece, register), lanes)

    return step


@opcode("selp")
def selp(decoder: Decoder, instruction: Instruction) -> Step:
    """``selp d, a, b, p``: a where p holds, else b."""
    decoder.modifiers(instruction)
    target, a, b, flag = decoder.operands(instruction, 4)
    kind = decoder.kind(instruction)
    kind = kind.replace("s", "b").replace("u", "b") if kind[0] in "su" else kind
    left, right = decoder.source(instruction, a, kind), decoder.source(instruction, b, kind)
    predicate = decoder.predicate(instruction, flag)
    return decoder.assign(
        instruction,
        target,
        kind,
        lambda registers: np.where(predicate(registers), left(registers), right(registers)),
    )


@opcode("slct")
def slct(decoder: Decoder, instruction: Instruction) -> Step:
    """``slct.dtype.ctype d, a, b, c``: a where c >= 0, else b (a NaN chooses b)."""
    decoder.modifiers(instruction, "ftz")
    target, a, b, c = decoder.operands(instruction, 4)
    kind, chooser = decoder.kind(instruction, 0), decoder.kind(instruction, 1)
    left, right = decoder.source(instruction, a, kind), decoder.source(instruction, b, kind)
    by = decoder.source(instruction, c, chooser)
    return decoder.assign(
        instruction, target, kind, lambda registers: np.where(by(registers) >= 0, left(registers), right(registers))
    )
