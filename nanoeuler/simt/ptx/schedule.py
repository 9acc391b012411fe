"""Which lanes run next: lanes at the lowest block of code first, so that branches meet again where they join.

Code is cut into blocks at labels, branches and at instructions where lanes wait for each other. Lanes that are at the
same block move together as a front. A front that loops while others wait gives way now and then (a lane may spin on
what another must write). Lanes that wait at a barrier or a warp operation are parked until those it names are there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from nanoeuler.simt.faults import BARRIER_DIVERGENCE, DEADLOCK, MISSING_LANES, RAISED
from nanoeuler.simt.ptx.kinds import Array, Fetch, Step
from nanoeuler.simt.ptx.machine import Lanes, Machine
from nanoeuler.simt.ptx.program import Instruction

STEP_LIMIT = 20_000_000  # vector instructions of one launch; some minutes
PATIENCE = 4096  # rounds of a loop before other lanes get a turn
POLL_PATIENCE = 8  # the same for a loop with atomics or volatile loads, which may wait for one of those lanes


class Ending(Protocol):
    """What the last instruction of a block does with the lanes that reach it."""

    def leave(self, scheduler: "Scheduler", number: int, lanes: Lanes) -> int | None:
        """Return the block where all of ``lanes`` go next, or None when the scheduler was told of each itself."""


@dataclass
class Block:
    """Instructions that run one after the other, and the one that ends them."""

    body: list[Step] = field(default_factory=list)
    end: "Ending" = field(default_factory=lambda: Fall())
    instruction: Instruction | None = None  # the last, for the place of a fault


@dataclass
class Fall:
    """The next block begins."""

    def leave(self, scheduler: "Scheduler", number: int, lanes: Lanes) -> int | None:
        return number + 1


@dataclass
class Branch:
    """Jump to ``target``, perhaps only where ``predicate`` holds."""

    target: int
    predicate: Fetch | None = None

    def leave(self, scheduler: "Scheduler", number: int, lanes: Lanes) -> int | None:
        if self.predicate is None:
            return self.target
        taken = lanes.chosen(self.predicate(lanes.machine.registers))
        if taken is None:
            return number + 1
        if taken is lanes:
            return self.target
        mask = taken.mask
        assert mask is not None
        rest = ~mask if lanes.mask is None else lanes.mask & ~mask
        scheduler.enter(self.target, mask)
        scheduler.enter(number + 1, rest)
        return None


@dataclass
class Table:
    """Jump to one of ``targets`` by the value of an index (``brx.idx``)."""

    targets: tuple[int, ...]
    index: Fetch

    def leave(self, scheduler: "Scheduler", number: int, lanes: Lanes) -> int | None:
        index = np.broadcast_to(self.index(lanes.machine.registers), (lanes.machine.n,))
        for value, target in enumerate(self.targets):
            mask = index == value if lanes.mask is None else (index == value) & lanes.mask
            if mask.any():
                scheduler.enter(target, mask)
        return None


@dataclass
class Exit:
    """The lanes return from the kernel, perhaps only where ``predicate`` holds."""

    predicate: Fetch | None = None

    def leave(self, scheduler: "Scheduler", number: int, lanes: Lanes) -> int | None:
        gone = lanes if self.predicate is None else lanes.chosen(self.predicate(lanes.machine.registers))
        if gone is None:
            return number + 1
        scheduler.exited |= True if gone.mask is None else gone.mask
        if gone is not lanes and gone.mask is not None:
            scheduler.enter(number + 1, ~gone.mask if lanes.mask is None else lanes.mask & ~gone.mask)
        return None


@dataclass
class Trap:
    """The lanes stop the kernel (``trap``, a failed assertion), perhaps only where ``predicate`` holds."""

    instruction: Instruction
    predicate: Fetch | None = None

    def leave(self, scheduler: "Scheduler", number: int, lanes: Lanes) -> int | None:
        stopped = lanes if self.predicate is None else lanes.chosen(self.predicate(lanes.machine.registers))
        if stopped is None:
            return number + 1
        lane = int(stopped.numbers[0])
        lanes.machine.fault(RAISED, "the thread stopped the kernel (trap)", self.instruction, lane, "stops")


@dataclass
class Meeting:
    """Lanes wait for each other, then run ``step`` together.

    ``members`` gives for each lane the lanes of its warp to wait for; None: every thread of the block.
    """

    step: Step
    instruction: Instruction
    members: Fetch | None
    predicate: Fetch | None = None  # lanes where it does not hold pass by

    def leave(self, scheduler: "Scheduler", number: int, lanes: Lanes) -> int | None:
        if self.predicate is not None:
            chosen = lanes.chosen(self.predicate(lanes.machine.registers))
            if chosen is None:
                return number + 1
            if chosen is not lanes:
                assert chosen.mask is not None
                scheduler.enter(number + 1, ~chosen.mask if lanes.mask is None else lanes.mask & ~chosen.mask)
                lanes = chosen
        if lanes.mask is None and (self.members is None or self.names_all(lanes.machine)):
            self.step(lanes.machine, lanes)
            return number + 1
        parked = scheduler.parked.pop(number, None)
        arrived = self.mask(lanes) if parked is None else self.mask(lanes) | parked.lanes
        gone = self.gone(scheduler, parked, lanes)
        ready = arrived & self.complete(scheduler.machine, arrived, gone)
        waiting = arrived & ~ready
        if parked is None and not waiting.any():
            self.step(lanes.machine, lanes)
            return number + 1
        if waiting.any():
            scheduler.parked[number] = Parked(waiting, gone, self)
        if ready.any():
            together = scheduler.lanes(ready)
            self.step(lanes.machine, together)
            scheduler.enter(number + 1, ready)
        return None

    def mask(self, lanes: Lanes) -> Array:
        return np.ones(lanes.machine.n, np.bool_) if lanes.mask is None else lanes.mask

    def names_all(self, machine: Machine) -> bool:
        """Whether the mask is the constant 0xffffffff: no lane is then outside its own mask."""
        assert self.members is not None
        value = self.members(machine.registers)
        return value.size == 1 and int(value[0]) == 0xFFFFFFFF

    def gone(self, scheduler: "Scheduler", parked: "Parked | None", lanes: Lanes) -> Array:
        """Return the lanes that had returned when the first of their warp came here: they are not waited for."""
        if parked is None:
            return scheduler.exited.copy()
        warp = scheduler.machine.warp
        known = np.zeros(scheduler.machine.warps, np.bool_)
        known[warp[parked.lanes]] = True
        return np.where(known[warp], parked.gone, scheduler.exited)

    def complete(self, machine: Machine, arrived: Array, gone: Array) -> Array:
        """Return for each lane whether all that it waits for have arrived."""
        if self.members is None:
            whole = arrived.reshape(machine.blocks, -1).all(axis=1)
            return np.repeat(whole, machine.launch.block_threads)
        return self.missing(machine, arrived, gone) == 0

    def missing(self, machine: Machine, arrived: Array, gone: Array) -> Array:
        """Return for each lane the bits of those lanes of its warp that it waits for."""
        assert self.members is not None
        members = np.broadcast_to(self.members(machine.registers), (machine.n,)).astype(np.uint32)
        outside = arrived & ((members >> machine.lane.astype(np.uint32)) & np.uint32(1) == 0)
        if outside.any():
            lane = int(np.flatnonzero(outside)[0])
            message = f"lane {machine.lane[lane]} calls {self.instruction.opcode} with a mask that does not name it"
            machine.fault(MISSING_LANES, f"{message} ({int(members[lane]):#x})", self.instruction, lane, "calls")
        there = machine.to_warps(arrived | gone, True)
        if (members == members[0]).all():
            return members & ~bits(there)[machine.warp]
        # Lanes meet only those that name the same mask (PTX ISA, shfl.sync); whoever has returned is not asked.
        alike = machine.to_warps(members)[machine.warp] == members[:, None]
        alike |= machine.to_warps(gone, True)[machine.warp]
        return members & ~bits(there[machine.warp] & alike)


@dataclass
class Parked:
    """Lanes that wait at a meeting; ``gone``: those not waited for."""

    lanes: Array
    gone: Array
    meeting: Meeting


def bits(flags: Array) -> Array:
    """Return (warps, 32) booleans as one uint32 per warp, lane 0 in bit 0."""
    return np.packbits(flags, axis=1, bitorder="little").view(np.uint32).reshape(-1)


class Scheduler:
    """Runs blocks of code until every lane has returned."""

    def __init__(self, machine: Machine, blocks: Sequence[Block], step_limit: int) -> None:
        self.machine = machine
        self.blocks = blocks
        self.step_limit = step_limit
        self.fronts: dict[int, Array] = {}
        self.parked: dict[int, Parked] = {}
        self.exited = np.zeros(machine.n, np.bool_)
        self.tired: int | None = None  # the block of a front that looped for long

    def run(self) -> None:
        """Run from the first block on.

        Raises:
            KernelFaults: a lane did what it must not do, lanes wait for others that never come, or the step limit
                was reached.
        """
        self.enter(0, np.ones(self.machine.n, np.bool_))
        while self.fronts:
            self.advance(self.next_front())
        if self.parked:
            self.report_parked()

    def enter(self, number: int, mask: Array) -> None:
        """Put the lanes of ``mask`` at block ``number``; at a bare return they are gone at once."""
        block = self.blocks[number]
        while not block.body and isinstance(block.end, Fall):
            number += 1
            block = self.blocks[number]
        if not block.body and isinstance(block.end, Exit) and block.end.predicate is None:
            self.exited |= mask
            return
        there = self.fronts.get(number)
        self.fronts[number] = mask if there is None else there | mask

    def next_front(self) -> int:
        """Return the lowest block where lanes wait; after one that has looped for long, the next above it."""
        order = sorted(self.fronts)
        above = [number for number in order if self.tired is not None and number > self.tired]
        self.tired = None
        return above[0] if above else order[0]

    def lanes(self, mask: Array) -> Lanes:
        """Return the lanes of ``mask`` as a group."""
        n, count = self.machine.n, int(np.count_nonzero(mask))
        if count == n:
            return Lanes(self.machine, None, None, n)
        alone = count + int(np.count_nonzero(self.exited)) == n
        return Lanes(self.machine, mask, None if alone else mask, count)

    def advance(self, number: int) -> None:
        """Run the lanes at block ``number`` until they part, wait, return, or come to where others are."""
        machine, blocks = self.machine, self.blocks
        lanes = self.lanes(self.fronts.pop(number))
        stop = min((other for other in self.fronts if other > number), default=len(blocks))
        rounds = polls = 0
        while True:
            block = blocks[number]
            for step in block.body:
                step(machine, lanes)
            machine.steps += len(block.body) + 1
            if machine.steps > self.step_limit:
                self.report_endless(block, lanes)
            following = block.end.leave(self, number, lanes)
            if following is None:
                return
            if following <= number and self.fronts:
                rounds += 1
                polls += machine.polls > 0
                machine.polls = 0
                if rounds > PATIENCE or polls > POLL_PATIENCE:
                    self.tired = following
            if following >= stop or following in self.fronts or self.tired is not None:
                self.enter(following, np.ones(machine.n, np.bool_) if lanes.mask is None else lanes.mask)
                return
            number = following

    def report_endless(self, block: Block, lanes: Lanes) -> None:
        message = (
            f"the kernel had not ended after {self.step_limit:,} steps: a loop that waits for a value that no thread "
            f"writes, or too much work for an interpreter"
        )
        assert block.instruction is not None
        self.machine.fault(DEADLOCK, message, block.instruction, int(lanes.numbers[0]), "loops")

    def report_parked(self) -> None:
        """Raise the fault of the first lanes that wait for others that never come."""
        number = min(self.parked)
        parked = self.parked[number]
        meeting, machine = parked.meeting, self.machine
        lane = int(np.flatnonzero(parked.lanes)[0])
        if meeting.members is None:
            missing = (machine.block == machine.block[lane]) & ~parked.lanes
            kind, what = BARRIER_DIVERGENCE, f"of the {machine.launch.block_threads} threads of the block"
        else:
            needed = meeting.missing(machine, parked.lanes, parked.gone)[lane]
            same_warp = machine.warp == machine.warp[lane]
            missing = same_warp & (needed >> machine.lane.astype(np.uint32) & np.uint32(1) == 1)
            kind, what = MISSING_LANES, "of the lanes that the mask names"
        absent = int(np.flatnonzero(missing)[0])
        location, state = None, "has returned"
        for other in self.parked.values():
            if other is not parked and other.lanes[absent]:
                location, state = other.meeting.instruction.location, f"waits at {other.meeting.instruction.opcode}"
        message = f"{int(missing.sum())} {what} never reach this {meeting.instruction.opcode}: the first one {state}"
        party = machine.party(absent, location, state)
        machine.fault(kind, message, meeting.instruction, lane, "waits", other=party)
