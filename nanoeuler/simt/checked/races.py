"""Which of two accesses came first: the happens-before order of a launch, and the search for accesses that have none.

Two accesses of one location, one of them a write, race unless the CUDA memory model orders them. What orders: a
thread's own program; ``syncthreads`` for all threads of the block; ``syncwarp`` for the lanes of its mask; and a fence,
then an atomic, then by another thread an atomic of the same location, then a fence or barrier (release and acquire, PTX
ISA, "Memory Consistency Model"). Atomics do not race with each other. Shuffles and votes order nothing.

The threads run one after the other here, so a race is not seen as a wrong value. It is found by this order, whichever
thread ran first. A location keeps its last write and those accesses since that a later write could still race with.

This is FastTrack (C. Flanagan and S. N. Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009)
with one more measure of time: a barrier of a whole block begins a phase, which one number says for all its threads.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nanoeuler.simt import faults
from nanoeuler.simt.launch import Launch, coordinates

Place = tuple[str, int]  # file and line

READS, WRITES, UPDATES = "reads", "writes", "atomically updates"


class Epoch:
    """A thread and its clock: the stretch between two of its ordering events. Phases count the launch's barriers."""

    __slots__ = ("block", "clock", "key", "phase", "thread")

    def __init__(self, block: int, thread: int, phase: int, clock: int) -> None:
        self.block, self.thread, self.phase, self.clock = block, thread, phase, clock
        self.key = block, thread


class Stopped(Exception):  # noqa: N818 (it ends a launch, and is no error by itself)
    """The launch cannot go on; what is wrong has been reported."""


@dataclass
class Release:
    """What a thread knew of others, and had done itself, when it passed a fence."""

    block: int
    device: bool  # the fence holds for other blocks too
    phases: dict[int, int]
    clocks: dict[tuple[int, int], int]


Access = tuple[Epoch, Place]
Race = tuple[Epoch, Place, str]  # the other access: who, where, and what it does


class History:
    """Reads, or atomics, of one location since its last write: those that a later access could race with."""

    __slots__ = ("first", "latest", "phase")

    def __init__(self) -> None:
        self.first: Access | None = None
        self.latest: dict[tuple[int, int], Access] = {}
        self.phase = -1  # of the latest

    def note(self, now: Epoch, place: Place, monitor: "Monitor") -> None:
        """Keep an access, and forget those that it stands for."""
        if self.phase != now.phase:
            self.phase = now.phase
            if self.first is None:
                self.first = now, place
            if monitor.fences:
                self.latest = {k: a for k, a in self.latest.items() if a[0].block != now.block}
            else:  # blocks run one after the other and never know of each other: the first stands for all
                self.latest = {}
        if monitor.all_lanes or len(self.latest) < 2:
            self.latest[now.key] = now, place

    def unordered(self, monitor: "Monitor", known: Callable[[Epoch], bool] | None = None) -> Access | None:
        """Return an access that nothing orders before the running thread's next; ``known`` tells of more order."""
        first, now = self.first, monitor.now
        others = [first] if first is not None and first[0].block != now.block else []
        for access in (*others, *self.latest.values()):
            before = access[0]
            if before is not now and not monitor.happens_before(before) and not (known and known(before)):
                return access
        return None

    def copy(self) -> "History":
        """Return the same history."""
        twin = History()
        twin.first, twin.latest, twin.phase = self.first, dict(self.latest), self.phase
        return twin


class Cell:
    """The accesses of one location that later ones are compared with. ``last`` read it last; None after a write."""

    __slots__ = ("atomics", "last", "reads", "released", "updated", "write", "write_place")

    def __init__(self) -> None:
        self.write: Epoch | None = None
        self.write_place: Place = ("", 0)
        self.reads: History | None = None
        self.last: Epoch | None = None
        self.atomics: History | None = None
        self.updated: Epoch | None = None  # by the latest atomic
        self.released: dict[tuple[int, int, bool], Release] | None = None

    def copy(self) -> "Cell":
        """Return a cell with the same history."""
        twin = Cell()
        twin.write, twin.write_place, twin.last = self.write, self.write_place, self.last
        twin.reads, twin.atomics = self.reads and self.reads.copy(), self.atomics and self.atomics.copy()
        twin.released, twin.updated = self.released and dict(self.released), self.updated
        return twin


class VectorClock:
    """What has happened before a thread's next step, beyond its own block's earlier phases.

    ``phases[block]``: all that the block did in earlier phases. ``clocks[block, thread]``: all that the thread did up
    to that clock. Both dictionaries are replaced, never changed: threads share them.
    """

    __slots__ = ("block", "clock", "clocks", "epoch", "fenced", "pending", "phases", "thread")

    def __init__(self, block: int, thread: int, phase: int) -> None:
        self.block, self.thread, self.clock = block, thread, 0
        self.phases: dict[int, int] = {}
        self.clocks: dict[tuple[int, int], int] = {}
        self.fenced: dict[bool, Release] = {}  # by whether the fence holds beyond the block
        self.pending: dict[int, Release] = {}  # released to this thread, and no fence since
        self.epoch = Epoch(block, thread, phase, 0)

    def advance(self, phase: int) -> None:
        """Begin a new stretch: what comes is not covered by what was handed over so far."""
        self.clock += 1
        self.epoch = Epoch(self.block, self.thread, phase, self.clock)

    def acquire(self, device: bool = True) -> None:
        """Take what atomics have handed over, at a fence (of the block only, where ``device`` is False) or barrier."""
        taken = [r for r in self.pending.values() if device or r.block == self.block]
        if taken:
            self.pending = {k: r for k, r in self.pending.items() if r not in taken}
            self.phases = _join([self.phases, *(r.phases for r in taken)])
            self.clocks = _join([self.clocks, *(r.clocks for r in taken)])

    def fence(self, device: bool) -> None:
        """Pass a fence: what came before it can be handed over by an atomic, what atomics gave counts from here."""
        self.acquire(device)
        epoch = self.epoch
        phases, clocks = self.phases | {self.block: epoch.phase}, self.clocks | {epoch.key: self.clock}
        self.fenced[device] = Release(self.block, device, phases, clocks)
        self.advance(epoch.phase)


def _join(known: list[dict]) -> dict:
    """Return the join of clocks: for each key the greatest value that any of them has."""
    joined = dict(known[0])
    for other in known[1:]:
        for key, value in other.items():
            if joined.get(key, -1) < value:
                joined[key] = value
    return joined


def join(lanes: list[VectorClock]) -> None:
    """Let the lanes of one ``syncwarp`` know all that each of them knows and has done."""
    for lane in lanes:
        lane.acquire()
    phases = _join([lane.phases for lane in lanes])
    clocks = _join([lane.clocks for lane in lanes] + [{lane.epoch.key: lane.clock} for lane in lanes])
    for lane in lanes:
        lane.phases, lane.clocks = phases, clocks
        lane.advance(lane.epoch.phase)


def barrier(threads: list[VectorClock], phase: int) -> None:
    """Let all threads of a block know all that each of them knows, and begin a new phase."""
    phases, clocks = threads[0].phases, threads[0].clocks
    if any(t.pending or t.phases is not phases or t.clocks is not clocks for t in threads):
        for thread in threads:
            thread.acquire()
        phases = _join([t.phases for t in threads])
        block = threads[0].block  # what its own threads did is behind the barrier
        clocks = {k: v for k, v in _join([t.clocks for t in threads]).items() if k[0] != block}
    for thread in threads:
        thread.phases, thread.clocks = phases, clocks
        thread.epoch = Epoch(thread.block, thread.thread, phase, thread.clock)


@dataclass
class Monitor:
    """Watches one launch: the thread that runs now, and the faults found so far.

    ``syncwarps`` and ``fences``: whether the kernel has any. Without them two readers of a phase are enough to find
    every race: a write in that phase races with any reader but its own thread. With them all readers are kept.
    """

    launch: Launch
    kernel: str
    syncwarps: bool
    fences: bool
    limit: int = 10
    tell: Callable[[faults.Fault], None] = lambda fault: None  # called with each fault, at once
    recorder: Any = None  # takes every access, where the launch is traced (simt/traced/recorder.py)
    found: list[faults.Fault] = field(default_factory=list)
    reported: set[tuple] = field(default_factory=set)  # what makes two faults the same

    def __post_init__(self) -> None:
        self.thread = VectorClock(0, 0, 0)
        self.now = self.thread.epoch
        self.all_lanes = self.syncwarps or self.fences
        self.doubtful: dict[int, tuple[Cell, faults.Fault, Place, bool]] = {}
        self.changes = 0  # how often an atomic changed a value: whether threads that wait can hope

    def enter(self, thread: VectorClock) -> None:
        """Let ``thread`` be the one that runs."""
        self.thread, self.now = thread, thread.epoch

    # Reports

    def party(self, epoch: Epoch, place: Place | None, action: str) -> faults.Party:
        """Return the thread of ``epoch`` at ``place`` as it is shown."""
        block = coordinates(epoch.block, self.launch.grid)
        thread = coordinates(epoch.thread, self.launch.block)
        return faults.Party(block, thread, place and place[1], action, place and place[0])

    def report(
        self,
        kind: str,
        message: str,
        place: Place | None,
        parties: tuple[faults.Party, ...] = (),
        array: str | None = None,
        index: tuple[int, ...] | None = None,
    ) -> None:
        """Keep a fault, unless its kind was found at that line before, or as a race of the same two lines.

        Raises:
            Stopped: there are as many as were asked for.
        """
        parties = parties or (self.party(self.now, place, ""),)
        self.keep(faults.Fault(kind, message, self.kernel, place and place[0], parties, array, index), place)

    def keep(self, fault: faults.Fault, place: Place | None) -> None:
        """Keep a fault, as ``report`` does."""
        keys: set[tuple] = {(fault.kind, place)}
        if fault.kind in (faults.RACE, faults.RACE_BETWEEN_BLOCKS):  # the same, whichever line came first
            lines = frozenset((party.file or fault.file, party.line) for party in fault.parties)
            keys.add((fault.kind, fault.array, lines))
        if keys & self.reported:
            return
        self.reported |= keys
        self.found.append(fault)
        self.tell(fault)
        if len(self.found) >= self.limit:
            raise Stopped

    def doubt(self, cell: Cell, fault: faults.Fault, place: Place, shared: bool) -> None:
        """Keep a read of what nothing wrote yet: a race instead, if a write turns up that has no order with it."""
        self.doubtful.setdefault(id(cell), (cell, fault, place, shared))

    def settle(self, shared: bool) -> None:
        """Report the reads of what was never written: at a block's end those of ``shared`` memory, at last all."""
        for key, (_, fault, place, of_block) in list(self.doubtful.items()):
            if of_block or not shared:
                del self.doubtful[key]
                self.keep(fault, place)

    def stop(self, kind: str, message: str, place: Place | None, parties: tuple[faults.Party, ...]) -> None:
        """Keep a fault after which the launch cannot go on.

        Raises:
            Stopped: always.
        """
        self.report(kind, message, place, parties)
        raise Stopped

    # The order

    def happens_before(self, before: Epoch) -> bool:
        """Whether what happened at ``before`` comes before what the running thread does now."""
        now = self.now
        if before.block == now.block:
            if before.phase < now.phase or before.thread == now.thread:
                return True
        elif self.thread.phases.get(before.block, -1) > before.phase:
            return True
        return self.thread.clocks.get(before.key, -1) >= before.clock

    def read(self, cell: Cell, place: Place) -> Race | None:
        """Note a read; return the access that it races with."""
        now, write, race = self.now, cell.write, None
        if (
            write is not None
            and write is not now
            and (write.phase == now.phase or write.block != now.block)
            and not self.happens_before(write)
        ):
            race = write, cell.write_place, WRITES
        elif cell.atomics is not None:
            race = self._race_with_atomics(cell)
        cell.last = now
        reads = cell.reads
        if reads is None:
            reads = cell.reads = History()
        reads.note(now, place, self)
        return race

    def write(self, cell: Cell, place: Place) -> Race | None:
        """Note a write; return the access that it races with."""
        race = self._race_with_write(cell) or self._race_with_reads(cell)
        if race is None and cell.atomics is not None:
            race = self._race_with_atomics(cell)
        cell.write, cell.write_place = self.now, place
        cell.last = cell.reads = cell.atomics = None
        return race

    def update(self, cell: Cell, place: Place, wrote: bool) -> Race | None:
        """Note an atomic; return the access that it races with. One that ``wrote`` hands over what was fenced."""
        race = self._race_with_write(cell) or self._race_with_reads(cell)
        if cell.atomics is None:
            cell.atomics = History()
        cell.atomics.note(self.now, place, self)
        cell.updated = self.now
        self._hand_over(cell, wrote)
        return race

    def _race_with_write(self, cell: Cell) -> Race | None:
        write = cell.write
        if write is None or write is self.now or self.happens_before(write):
            return None
        return write, cell.write_place, WRITES

    def _race_with_reads(self, cell: Cell) -> Race | None:
        race = self._race(cell.reads, READS) if cell.reads is not None else None
        if race and self.doubtful:
            self.doubtful.pop(id(cell), None)
        return race

    def _race(self, history: History, action: str) -> Race | None:
        access = history.unordered(self)
        return access and (*access, action)

    def _race_with_atomics(self, cell: Cell) -> Race | None:
        """Return an atomic that nothing orders before.

        One that released comes before what a thread does that has acquired from it by the latest atomic here: so the
        last block of a reduction may reset the counter that told it that it is the last.
        """
        history, released = cell.atomics, cell.released or {}
        if history is None:
            return None
        latest = cell.updated is not None and cell.updated.key == self.now.key

        def handed_over(before: Epoch) -> bool:
            releases = (released.get((*before.key, device)) for device in (True, False)) if latest else ()
            return any(
                release is not None
                and before.clock == release.clocks[before.key] + 1  # the fence, then this atomic
                and self.thread.clocks.get(before.key, -1) >= release.clocks[before.key]
                for release in releases
            )

        access = history.unordered(self, handed_over)
        return access and (*access, UPDATES)

    def _hand_over(self, cell: Cell, wrote: bool) -> None:
        """Let the running thread receive what earlier atomics released here, and release what it has fenced."""
        if not self.fences:
            return
        thread = self.thread
        for release in (cell.released or {}).values():
            if release.device or release.block == thread.block:
                thread.pending[id(release)] = release
        if wrote and thread.fenced:
            cell.released = cell.released or {}
            for scope, release in thread.fenced.items():
                cell.released[thread.block, thread.thread, scope] = release
