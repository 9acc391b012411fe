"""Operations among the lanes of a warp: shuffle, vote, match, reduce, ``activemask`` (PTX ISA 9.7.9 and 9.7.13).

``.sync`` forms wait for the lanes that their mask names (see ``Meeting``). A lane that has returned may be named, as on
a GPU; a shuffle must not read from it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from nanoeuler.simt.faults import MISSING_LANES
from nanoeuler.simt.ptx.decode import Decoder, fitted, opcode
from nanoeuler.simt.ptx.kinds import DTYPES, Array, Fetch, Step
from nanoeuler.simt.ptx.machine import Lanes, Machine
from nanoeuler.simt.ptx.program import Instruction, Register
from nanoeuler.simt.ptx.schedule import Ending, Meeting, bits


def two_targets(decoder: Decoder, instruction: Instruction) -> tuple[Register | None, Register | None]:
    """Return the registers of ``d|p``; None for one that is left out or ``_``.

    Raises:
        UnsupportedError: one is no register.
    """
    names = [name.strip() for name in instruction.operands[0].split("|")]
    found = [None if name == "_" else decoder.register(instruction, name) for name in names]
    return found[0], found[1] if len(found) > 1 else None


def everyone(lanes: Lanes) -> Array:
    """Return the mask of ``lanes`` as one flag per lane of the machine."""
    return np.ones(lanes.machine.n, np.bool_) if lanes.mask is None else lanes.mask


@opcode("shfl")
def shuffle(decoder: Decoder, instruction: Instruction) -> Ending:
    """``shfl.sync.mode d|p, a, b, c, mask``: a of another lane; p: whether that is in the segment that c sets."""
    modifiers = decoder.modifiers(instruction, "sync", "up", "down", "bfly", "idx")
    if "sync" not in modifiers:
        decoder.refuse(instruction)
    mode = next(part for part in ("up", "down", "bfly", "idx") if part in modifiers)
    target, flag = two_targets(decoder, instruction)
    _, a, b, c, mask = decoder.operands(instruction, 5)
    value = decoder.source(instruction, a, "b32")
    by, bounds, members = (decoder.source(instruction, text, "u32") for text in (b, c, mask))

    def step(machine: Machine, lanes: Lanes) -> None:
        registers = machine.registers
        source, inside = source_lane(mode, machine.lane, by(registers), bounds(registers))
        check_source(machine, lanes, source, members(registers), instruction)
        data = machine.to_warps(value(registers))
        if machine.slot is None:
            rows = np.arange(machine.n) - machine.lane
            taken = data.reshape(-1)[rows + source]
        else:
            taken = data[machine.warp, source]
        if target is not None:
            machine.write(target, fitted(taken, target), lanes)
        if flag is not None:
            machine.write(flag, np.broadcast_to(inside, (machine.n,)), lanes)

    return Meeting(step, instruction, members, decoder.guard(instruction))


def source_lane(mode: str, lane: Array, by: Array, bounds: Array) -> tuple[Array, Array]:
    """Return the lane each lane reads from, its own where that one is out of its segment, and whether it is inside.

    ``bounds``: bits 0 to 4 the clamp, bits 8 to 12 the segment mask (PTX ISA, shfl.sync).
    """
    by, bounds = (by & np.uint32(31)).astype(np.int64), bounds.astype(np.int64)
    clamp, segment = bounds & 31, bounds >> 8 & 31
    lowest = lane & segment
    highest = lowest | (clamp & ~segment & 31)
    if mode == "up":
        source = lane - by
        inside = source >= highest
    elif mode == "down":
        source = lane + by
        inside = source <= highest
    else:
        source = lane ^ by if mode == "bfly" else lowest | (by & ~segment & 31)
        inside = source <= highest
    return np.where(inside, source, lane), inside


def check_source(machine: Machine, lanes: Lanes, source: Array, members: Array, instruction: Instruction) -> None:
    """Raise a fault where a lane reads from one that does not take part: it has returned, or the mask leaves it out.

    Raises:
        KernelFaults: there is such a lane.
    """
    whole = members.size == 1 and int(members[0]) == 0xFFFFFFFF
    if lanes.mask is None and machine.slot is None and whole:
        return
    here = machine.to_warps(everyone(lanes), False)
    present = here[machine.warp, source]
    named = members >> source.astype(np.uint32) & np.uint32(1) == 1
    bad = everyone(lanes) & ~(present & named)
    if bad.any():
        lane = int(np.flatnonzero(bad)[0])
        why = "which its mask does not name" if present[lane] else "which does not take part (it has returned)"
        message = f"lane {machine.lane[lane]} reads from lane {source[lane]} of its warp, {why}"
        machine.fault(MISSING_LANES, message, instruction, lane, "reads")


@opcode("vote")
def vote(decoder: Decoder, instruction: Instruction) -> Ending:
    """``vote.sync``: whether a predicate holds in all or any of the lanes named, is the same in all, or its bits."""
    modifiers = decoder.modifiers(instruction, "sync", "all", "any", "uni", "ballot")
    if "sync" not in modifiers:
        decoder.refuse(instruction)
    target, a, mask = decoder.operands(instruction, 3)
    mode = next(part for part in ("all", "any", "uni", "ballot") if part in modifiers)
    predicate = decoder.predicate(instruction, a)
    members = decoder.source(instruction, mask, "u32")
    register = decoder.register(instruction, target)

    def step(machine: Machine, lanes: Lanes) -> None:
        here = everyone(lanes)
        flags = np.broadcast_to(predicate(machine.registers), (machine.n,)) & here
        named = members(machine.registers) & bits(machine.to_warps(here, False))[machine.warp]
        votes = bits(machine.to_warps(flags, False))[machine.warp] & named
        result = {"all": votes == named, "any": votes != 0, "uni": (votes == named) | (votes == 0)}.get(mode, votes)
        machine.write(register, result.astype(register.dtype), lanes)

    return Meeting(step, instruction, members, decoder.guard(instruction))


@opcode("activemask")
def activemask(decoder: Decoder, instruction: Instruction) -> Step:
    """``activemask``: the bits of the lanes of the warp that run this together."""
    decoder.modifiers(instruction)
    register = decoder.register(instruction, instruction.operands[0])

    def step(machine: Machine, lanes: Lanes) -> None:
        together = bits(machine.to_warps(everyone(lanes), False))[machine.warp]
        machine.write(register, together.astype(register.dtype), lanes)

    return step


def per_lane(machine: Machine, fetch: Fetch) -> Array:
    """Return an operand as one element per lane of the machine."""
    return np.broadcast_to(fetch(machine.registers), (machine.n,))


def members_by_warp(machine: Machine, lanes: Lanes, members: Array) -> Array:
    """Return, for each lane, which lanes of its warp are named and here: (lanes, 32) flags."""
    named = np.broadcast_to(members, (machine.n,))[:, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1) == 1
    return named & machine.to_warps(everyone(lanes), False)[machine.warp]


@opcode("match")
def match(decoder: Decoder, instruction: Instruction) -> Ending:
    """``match.any``: the lanes with the same value; ``match.all``: all named lanes if they have the same, else 0."""
    modifiers = decoder.modifiers(instruction, "sync", "any", "all")
    target, flag = two_targets(decoder, instruction)
    _, a, mask = decoder.operands(instruction, 3)
    value = decoder.source(instruction, a, decoder.kind(instruction))
    members = decoder.source(instruction, mask, "u32")

    def step(machine: Machine, lanes: Lanes) -> None:
        values = machine.to_warps(per_lane(machine, value))[machine.warp]
        named = members_by_warp(machine, lanes, members(machine.registers))
        same = named & (values == per_lane(machine, value)[:, None])
        if "all" in modifiers:
            agree = (same == named).all(axis=1)
            result = np.where(agree, bits(named), np.uint32(0))
            if flag is not None:
                machine.write(flag, agree, lanes)
        else:
            result = bits(same)
        if target is not None:
            machine.write(target, fitted(result, target), lanes)

    return Meeting(step, instruction, members, decoder.guard(instruction))


_REDUCE: dict[str, tuple[Callable[..., Array], Callable[[Any], int]]] = {
    "add": (np.add.reduce, lambda dtype: 0),
    "min": (np.minimum.reduce, lambda dtype: int(np.iinfo(dtype).max)),
    "max": (np.maximum.reduce, lambda dtype: int(np.iinfo(dtype).min)),
    "and": (np.bitwise_and.reduce, lambda dtype: int(np.iinfo(dtype).max)),
    "or": (np.bitwise_or.reduce, lambda dtype: 0),
    "xor": (np.bitwise_xor.reduce, lambda dtype: 0),
}


@opcode("redux")
def redux(decoder: Decoder, instruction: Instruction) -> Ending:
    """``redux.sync``: sum, extreme or bits of an integer over the lanes named."""
    modifiers = decoder.modifiers(instruction, "sync", *_REDUCE)
    target, a, mask = decoder.operands(instruction, 3)
    kind = decoder.kind(instruction)
    if DTYPES[kind].kind not in "iu":
        decoder.refuse(instruction)
    reduce, neutral = next(_REDUCE[part] for part in _REDUCE if part in modifiers)
    value = decoder.source(instruction, a, kind)
    members = decoder.source(instruction, mask, "u32")
    register = decoder.register(instruction, target)
    dtype = DTYPES[kind]

    def step(machine: Machine, lanes: Lanes) -> None:
        values = machine.to_warps(per_lane(machine, value))[machine.warp]
        named = members_by_warp(machine, lanes, members(machine.registers))
        result = reduce(np.where(named, values, dtype.type(neutral(dtype))), axis=1, dtype=dtype)
        machine.write(register, result.view(register.dtype), lanes)

    return Meeting(step, instruction, members, decoder.guard(instruction))
