"""``cp.async``: copies from global to shared memory that end only when they are waited for (PTX ISA 9.7.9.25).

Until the lane that began a copy has waited for its group, the bytes at its destination count as never written: a kernel
that reads them too early is told so, where a GPU might or might not have them yet.
"""

import numpy as np

from nanoeuler.simt.ptx.access import HINTS, locate
from nanoeuler.simt.ptx.decode import Decoder, opcode
from nanoeuler.simt.ptx.kinds import Array, Fetch, Step
from nanoeuler.simt.ptx.machine import Lanes, Machine, PendingCopy
from nanoeuler.simt.ptx.memory import IN_FLIGHT, WRITTEN
from nanoeuler.simt.ptx.parse import parse_integer
from nanoeuler.simt.ptx.program import Instruction


@opcode("cp")
def copy(decoder: Decoder, instruction: Instruction) -> Step:
    """``cp.async`` and its commits and waits."""
    parts = instruction.parts
    if parts == ("cp", "async", "commit_group"):
        return commit
    if parts == ("cp", "async", "wait_all"):
        return lambda machine, lanes: wait(machine, lanes, None)
    if parts == ("cp", "async", "wait_group"):
        allowed = parse_integer(instruction.operands[0])
        return lambda machine, lanes: wait(machine, lanes, allowed)
    modifiers = decoder.modifiers(
        instruction, "async", "ca", "cg", "shared", "shared::cta", "global", "L2::cache_hint", *HINTS
    )
    if not {"global"} <= modifiers or not modifiers & {"ca", "cg"}:
        decoder.refuse(instruction)
    return begin(decoder, instruction)


def begin(decoder: Decoder, instruction: Instruction) -> Step:
    """Return the step of ``cp.async [to], [from], size, bytes``: what ``bytes`` leaves of ``size`` becomes zeros.

    Raises:
        UnsupportedError: a size that there is not, or a cache policy.
    """
    to, from_, amount, *rest = instruction.operands
    size = parse_integer(amount)
    if size not in (4, 8, 16) or ("cg" in instruction.parts and size != 16) or len(rest) > 1:
        decoder.refuse(instruction, f"{size} bytes")
    if "L2::cache_hint" in instruction.parts:
        decoder.refuse(instruction)
    target, _ = decoder.address(instruction, to)
    source, _ = decoder.address(instruction, from_)
    count: Fetch = (
        decoder.source(instruction, rest[0], "u32") if rest else lambda registers: np.array([size], np.uint32)
    )

    def step(machine: Machine, lanes: Lanes) -> None:
        data = np.zeros((machine.n, size), np.uint8)
        wanted = np.broadcast_to(np.minimum(count(machine.registers), size), (machine.n,))
        for length in np.unique(wanted[lanes.numbers]):
            reading = lanes.chosen(wanted == length)
            if reading is not None and length:
                read(machine, reading, source(machine.registers), int(length), size, data, instruction)
        address = target(machine.registers)
        for memory, places, here in locate(machine, "shared", address, size, lanes, instruction, "copies to"):
            places = np.broadcast_to(places, (here.count,))
            for part in range(0, size, 4):
                memory.mark(places + part, 4, IN_FLIGHT)
            numbers = here.numbers
            machine.copies.append(PendingCopy(numbers, machine.commits[numbers], places, data[numbers]))

    return step


def read(
    machine: Machine, lanes: Lanes, address: Array, length: int, size: int, data: Array, instruction: Instruction
) -> None:
    """Read ``length`` bytes from global memory into the first columns of ``data``, (lanes, size)."""
    for memory, places, here in locate(machine, "global", address, length, lanes, instruction, "copies from"):
        index = np.broadcast_to(places, (here.count,))[:, None] + np.arange(length)
        data[here.numbers, :length] = memory.data[index]


def commit(machine: Machine, lanes: Lanes) -> None:
    """``cp.async.commit_group``: the lane's copies since the last commit become a group."""
    machine.commits = machine.commits + (1 if lanes.mask is None else lanes.mask)


def wait(machine: Machine, lanes: Lanes, allowed: int | None) -> None:
    """Finish the copies of ``lanes``, all (None) or those of all but the last ``allowed`` groups."""
    here = np.ones(machine.n, np.bool_) if lanes.mask is None else lanes.mask
    memory = machine.spaces["shared"]
    left = []
    for copy_ in machine.copies:
        done = here[copy_.lane]
        if allowed is not None:
            done = done & (copy_.group < machine.commits[copy_.lane] - allowed)
        if done.any():
            index = copy_.places[done][:, None] + np.arange(copy_.data.shape[1])
            memory.data[index] = copy_.data[done]
            memory.mark(index, 1, WRITTEN)
        if not done.all():
            kept = ~done
            left.append(PendingCopy(copy_.lane[kept], copy_.group[kept], copy_.places[kept], copy_.data[kept]))
    machine.copies = left
