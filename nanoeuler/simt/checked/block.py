"""One block of a checked launch: its threads take turns, each until it waits for others.

A kernel with barriers is a generator. What it yields says what the thread waits for; what is sent back is the result.
Lanes run one after the other until each waits. A warp operation is done when all lanes that its mask names have come to
it, a barrier when all threads of the block have.
"""

import functools
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import numpy as np

from nanoeuler.simt import faults, names
from nanoeuler.simt.checked import memory
from nanoeuler.simt.checked.races import Monitor, Place, VectorClock, barrier, join
from nanoeuler.simt.checked.scalars import KINDS, types
from nanoeuler.simt.faults import UnsupportedError
from nanoeuler.simt.launch import WARP_SIZE, Launch, coordinates, turns
from nanoeuler.simt.limits import check_shared_memory

PAUSE = "pause"  # what a loop yields that may be waiting for another thread
STALLED_ROUNDS = 1000  # rounds in which all threads that are left paused, and no atomic changed anything
ENDLESS = 1_000_000  # rounds of one loop, without a barrier, after which a thread counts as stuck
ALL = 0xFFFFFFFF
KERNEL = "__kernel"  # a global name of each translated function, by which its frames are known: False for our own


Spot = tuple[int, int]  # line and column in the function's own text: two barriers of one line are two
Wait = tuple[str, Place, Spot, tuple]  # what a thread waits for: operation, where, where exactly, arguments


class Ended(Exception):  # noqa: N818 (a thread's end, not the launch's)
    """A thread raised: it is over, and the others go on."""


class Thread:
    """One CUDA thread: what it can ask about itself, and what it waits for."""

    def __init__(self, block: "Block", number: int) -> None:
        launch = block.launch
        self.block, self.number, self.lane = block, number, number % WARP_SIZE
        self.clock = VectorClock(block.number, number, block.phase)
        self.__dict__ |= block.indices | _indices("threadIdx", coordinates(number, launch.block))
        self.laneid = int32(self.lane)
        self.steps: Generator | None = None
        self.waits: Wait | None = None
        self.reply: Any = None

    def grid(self, axes: Any) -> Any:
        """Return ``cuda.grid``: the thread's place in the whole launch, int64."""
        sizes, here = self.block.launch.block, coordinates(self.number, self.block.launch.block)
        places = [b * n + t for b, n, t in zip(self.block.position, sizes, here, strict=True)]
        return _axes(places, axes)

    def gridsize(self, axes: Any) -> Any:
        """Return ``cuda.gridsize``: the threads of the whole launch, int64."""
        launch = self.block.launch
        return _axes([b * g for b, g in zip(launch.block, launch.grid, strict=True)], axes)

    def lanemask_lt(self) -> Any:
        """Return the mask of the lanes below this one."""
        return np.uint32((1 << self.lane) - 1)

    def fence(self, device: bool) -> None:
        """Pass ``threadfence`` or ``threadfence_block``."""
        self.clock.fence(device)
        self.block.monitor.enter(self.clock)

    def shared_array(self, site: tuple, name: str, shape: Any, dtype: Any, alignment: Any = None) -> memory.View:
        """Return the block's shared array of one place in the source."""
        return self.block.shared_array(site, name, shape, dtype, alignment)

    def local_array(
        self, made: Any, site: tuple, name: str, shape: Any, dtype: Any, alignment: Any = None
    ) -> memory.View:
        """Return the array of one place in a function, made when the call first comes there."""
        if made is None:
            made = memory.fresh(self.block.monitor, shape, dtype, alignment, name, "private", site)
        return made

    def constant(self, array: np.ndarray, name: str) -> memory.View:
        """Return a global array as the kernel sees it."""
        return self.block.constant(array, name)


def _axes(values: list[int], axes: Any) -> Any:
    found = tuple(map(np.int64, values[: int(axes)]))
    return found[0] if len(found) == 1 else found


Body = Callable[..., Any]


class Block:
    """The threads of one block, from their start to their end."""

    def __init__(
        self, launch: Launch, number: int, phase: int, monitor: Monitor, order: np.random.Generator, constants: dict
    ) -> None:
        self.launch, self.number, self.phase, self.monitor = launch, number, phase, monitor
        self.position, self.order = coordinates(number, launch.grid), order
        self.indices = _indices("blockIdx", self.position) | _indices("blockDim", launch.block)
        self.indices |= _indices("gridDim", launch.grid) | {"warpsize": int32(WARP_SIZE)}
        self.shared: dict[tuple, memory.View] = {}
        self.dynamic: tuple[memory.Root, np.ndarray] | None = None
        self.static_bytes = 0
        self.constants = constants
        self.threads = [self.thread(n) for n in range(launch.block_threads)]
        self.alive = dict.fromkeys(self.threads)

    def thread(self, number: int) -> Thread:
        """Return one of the block's threads, before its start."""
        return Thread(self, number)

    def run(self, body: Body, arguments: tuple, blocks: bool) -> int:
        """Run all threads to their end; return the phase after the last."""
        if not blocks:
            for n in self.turns(len(self.threads)):
                self.step(self.threads[n], lambda thread: body(thread, *arguments))
            return self.end()
        for thread in self.threads:
            thread.steps = body(thread, *arguments)
        rounds = 0
        while self.alive:
            changes, states = self.monitor.changes, [t.waits for t in self.alive]
            for warp in self.turns(-(-len(self.threads) // WARP_SIZE)):
                self.run_warp(self.threads[warp * WARP_SIZE : (warp + 1) * WARP_SIZE])
            if self.alive and not any(_paused(t) for t in self.alive):
                self.pass_barrier()
                rounds = 0
                continue
            moved = changes != self.monitor.changes or len(states) != len(self.alive)
            rounds = 0 if moved or any(a is not t.waits for a, t in _standing(states, self.alive)) else rounds + 1
            if rounds > STALLED_ROUNDS:
                self.deadlock()
        return self.end()

    def end(self) -> int:
        """End the block: what its shared memory never had, it will not get. Return the phase of the next block."""
        self.monitor.settle(shared=True)
        return self.phase + 1

    def turns(self, count: int) -> Sequence[int]:
        """Return the order of ``count`` warps or lanes; a random one is drawn anew each time."""
        return turns(count, self.launch.order, self.order)

    def step(self, thread: Thread, go: Callable[[Thread], Any]) -> Any:
        """Let one thread run until it waits or ends; return what it waits for, None at the end."""
        self.monitor.enter(thread.clock)
        try:
            return go(thread)
        except StopIteration:
            return None
        except Ended:
            return None
        except UnboundLocalError as error:
            self.unassigned(error)
            return None

    def unassigned(self, error: UnboundLocalError) -> None:
        """Report that a thread read a variable which it had never assigned; it is over, and the others go on."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is None or KERNEL not in trace.tb_frame.f_globals:
            raise error  # a mistake of this package
        place = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        name = str(error).split("'")[1]
        self.monitor.report(faults.UNINITIALISED, f"the variable '{name}' was never assigned", place, array=name)

    def run_warp(self, lanes: list[Thread]) -> None:
        """Run the lanes of a warp until each of them has ended, pauses, or waits for other warps."""
        ready = [t for t in lanes if t in self.alive and (t.waits is None or _paused(t))]
        while ready:
            for n in self.turns(len(ready)):
                thread = ready[n]
                thread.waits = self.step(thread, _resume)
                thread.reply = None
                if thread.waits is None:
                    self.alive.pop(thread)
            ready = self.warp_operations(lanes)

    # Warp operations

    def warp_operations(self, lanes: list[Thread]) -> list[Thread]:
        """Do what all its lanes have come to; return the lanes that can go on.

        When none can go on and lanes stand at an operation whose other lanes will never come, that is a fault.
        """
        living = [t for t in lanes if t in self.alive]
        standing = [t for t in living if t.waits and t.waits[0] in names.WARP_OPERATIONS]
        done: list[Thread] = []
        for thread in standing:
            if thread not in done and thread.waits and thread.waits[0] != "activemask":
                group = self.group(thread, living)
                if group:
                    self.exchange(group)
                    done += group
        if done or not standing:
            return done
        asking = [t for t in standing if t.waits and t.waits[0] == "activemask"]
        if asking:
            first = asking[0].waits
            together = [t for t in asking if t.waits and first and t.waits[1:3] == first[1:3]]
            mask = np.uint32(sum(1 << t.lane for t in together))
            for thread in together:
                thread.reply, thread.waits = mask, None
            return together
        if not any(_paused(t) for t in living):
            self.missing_lanes(standing[0], living)
        return []

    def group(self, thread: Thread, living: list[Thread]) -> list[Thread]:
        """Return the lanes that take part in the operation where ``thread`` stands; none if some have yet to come."""
        operation, place, spot, arguments = _waiting(thread)
        mask = _mask(arguments)
        if not mask >> thread.lane & 1:
            self.lanes_fault(thread, f"lane {thread.lane} calls it with the mask {mask:#010x}, which does not name it")
        group = [t for t in living if mask >> t.lane & 1]
        same = [t for t in group if t.waits and t.waits[:3] == (operation, place, spot)]
        for other in same:
            if _mask(_waiting(other)[3]) != mask:
                self.lanes_fault(
                    thread,
                    f"lane {thread.lane} calls it with the mask {mask:#010x}, and lane {other.lane} with "
                    f"{_mask(_waiting(other)[3]):#010x}",
                    other,
                )
        return group if len(same) == len(group) else []

    def missing_lanes(self, thread: Thread, living: list[Thread]) -> None:
        """Report which lanes an operation waits for in vain."""
        here, arguments = _waiting(thread)[:3], _waiting(thread)[3]
        absent = [t for t in living if _mask(arguments) >> t.lane & 1 and (t.waits or ())[:3] != here]
        other = absent[0]
        other_operation, other_place, *_ = _waiting(other)
        where = f"at cuda.{other_operation} in line {other_place[1]}"
        lanes_ = ", ".join(str(t.lane) for t in absent)
        self.lanes_fault(thread, f"its mask names lanes that wait elsewhere ({where}): {lanes_}", other)

    def lanes_fault(self, thread: Thread, message: str, *others: Thread) -> None:
        """Report that a warp operation cannot be done, and stop."""
        operation, place, *_ = _waiting(thread)
        parties = (self.party(thread), *map(self.party, others))
        self.monitor.stop(faults.MISSING_LANES, f"cuda.{operation}: {message}", place, parties)

    def exchange(self, group: list[Thread]) -> None:
        """Do one warp operation: each lane of ``group`` gets its result."""
        operation = _waiting(group[0])[0]
        operands = {t.lane: _waiting(t)[3][1:] for t in group}
        if operation == "syncwarp":
            join([t.clock for t in group])
            results: dict[int, Any] = dict.fromkeys(operands)
        elif operation.startswith("shfl"):
            results = {t.lane: self.shuffle(operation, t, operands) for t in group}
        else:
            if operation in PREDICATED:
                for thread in group:
                    _predicate(thread, operands[thread.lane])
            results = VOTES[operation](operands)
        for thread in group:
            thread.reply, thread.waits = results[thread.lane], None

    def shuffle(self, operation: str, thread: Thread, operands: dict[int, tuple]) -> Any:
        """Return the value that a lane gets in a shuffle (PTX ISA, shfl.sync)."""
        value, by = operands[thread.lane]
        if KINDS.get(type(value)) not in SHUFFLED:
            file, line = _waiting(thread)[1]
            raise UnsupportedError(
                f"{file}:{line}: cuda.{operation} of {type(value).__name__}: it takes int32, int64, float32 or float64"
            )
        lane, origin = thread.lane, shuffle_source(operation, thread.lane, by)
        if origin not in operands:
            self.lanes_fault(thread, f"lane {lane} reads from lane {origin}, which {self.absence(thread, origin)}")
        return operands[origin][0]

    def absence(self, thread: Thread, lane: int) -> str:
        """Say why a lane takes no part."""
        number = thread.number - thread.lane + lane
        if number >= len(self.threads):
            return f"does not exist: the block has {len(self.threads)} threads"
        return "has ended" if self.threads[number] not in self.alive else "is not in the mask"

    # Barriers

    def pass_barrier(self) -> None:
        """Let all threads pass the barrier at which they stand.

        Raises:
            Stopped: some stand at another one, or have ended.
        """
        waiting = list(self.alive)
        operation, place, spot, _ = _waiting(waiting[0])
        elsewhere = [t for t in waiting if _waiting(t)[:3] != (operation, place, spot)]
        ended = [t for t in self.threads if t not in self.alive]
        if elsewhere or ended:
            message = f"{len(waiting) - len(elsewhere)} of {len(self.threads)} threads wait at cuda.{operation}"
            if elsewhere:
                other = _waiting(elsewhere[0])
                message += f", and {len(elsewhere)} at cuda.{other[0]} in line {other[1][1]}"
            if ended:
                message += f", and {len(ended)} ended without it, thread {self.party(ended[0]).thread} the first"
            parties = (self.party(waiting[0]), self.party((elsewhere or ended)[0]))
            self.monitor.stop(faults.BARRIER_DIVERGENCE, message, place, parties)
        predicates = [_predicate(t, _waiting(t)[3]) for t in waiting] if operation in PREDICATED else []
        # numba.cuda.intrinsics._syncthreads_predicate hands the predicate over as an int32
        result = BARRIERS[operation]([bool(int(p) & ALL) for p in predicates])
        self.phase += 1
        barrier([t.clock for t in self.threads], self.phase)
        for thread in waiting:
            thread.waits, thread.reply = None, result

    def deadlock(self) -> None:
        """Report that all threads that are left wait for something that does not come."""
        thread = next(t for t in self.alive if _paused(t))
        place = _waiting(thread)[1]
        message = (
            f"{len(self.alive)} threads of block {self.position} are left, and none gets on; this one's loop waits"
        )
        others = [self.party(t) for t in self.alive if not _paused(t)][:1]
        self.monitor.stop(faults.DEADLOCK, message, place, (self.party(thread), *others))

    def party(self, thread: Thread) -> faults.Party:
        """Return a thread where it stands, for a report."""
        if thread.waits is None:
            return self.monitor.party(thread.clock.epoch, None, "has ended")
        operation, place, *_ = thread.waits
        return self.monitor.party(
            thread.clock.epoch, place, f"waits at cuda.{operation}" if operation != PAUSE else "waits"
        )

    # Arrays

    def shared_array(self, site: tuple, name: str, shape: Any, dtype: Any, alignment: Any) -> memory.View:
        """Return the shared array that belongs to a place in the source; shape 0, or (0,), is the dynamic memory."""
        found = self.shared.get(site)
        if found is None:
            if shape in (0, (0,)):
                self.dynamic = self.dynamic or memory.dynamic_memory(self.monitor, self.launch.shared_bytes)
                found = memory.dynamic(*self.dynamic, dtype, name, site)
            else:
                found = memory.fresh(self.monitor, shape, dtype, alignment, name, "shared", site)
                self.static_bytes += found.array.nbytes
                check_shared_memory(self.monitor.kernel, self.static_bytes, self.launch.shared_bytes)
            self.shared[site] = found
        return found

    def constant(self, array: np.ndarray, name: str) -> memory.View:
        """Return the view of a global array, one for the whole launch."""
        if id(array) not in self.constants:
            self.constants[id(array)] = memory.constant(self.monitor, array, name)
        return self.constants[id(array)]


def shuffle_source(operation: str, lane: int, by: Any) -> int:
    """Return the lane that a shuffle reads from: itself where that would be outside the warp (PTX ISA, shfl.sync)."""
    by = int(by) & 31
    origin = {"shfl_sync": by, "shfl_up_sync": lane - by, "shfl_down_sync": lane + by, "shfl_xor_sync": lane ^ by}
    found = origin[operation]
    return found if 0 <= found < WARP_SIZE else lane


@functools.cache
def int32(value: int) -> Any:
    """Return a number as int32, made once."""
    return np.int32(value)


def _indices(name: str, values: tuple[int, ...]) -> dict[str, Any]:
    """Return the attributes of a thread for one of CUDA's indices: ``threadIdx_x`` and so on."""
    return {f"{name}_{axis}": int32(value) for axis, value in zip("xyz", values, strict=True)}


def _resume(thread: Thread) -> Wait:
    assert thread.steps is not None
    return thread.steps.send(thread.reply)


def _paused(thread: Thread) -> bool:
    return thread.waits is not None and thread.waits[0] == PAUSE


def _waiting(thread: Thread) -> Wait:
    assert thread.waits is not None
    return thread.waits


def _predicate(thread: Thread, operands: tuple) -> Any:
    """Return the predicate among a vote's or barrier's operands: an integer, or a bool."""
    if not isinstance(KINDS.get(type(operands[0])), types.Integer | types.Boolean):
        operation, (file, line), *_ = _waiting(thread)
        raise UnsupportedError(
            f"{file}:{line}: cuda.{operation} of {type(operands[0]).__name__}: it takes an integer or a bool, so "
            "compare the number first"
        )
    return operands[0]


def _standing(states: list, alive: Iterable[Thread]) -> Iterable[tuple]:
    """Return pairs of what a thread waited for a round ago and the thread, but for those that pause."""
    return ((state, thread) for state, thread in zip(states, alive, strict=True) if not _paused(thread))


def _mask(arguments: tuple) -> int:
    return int(arguments[0]) & ALL if arguments else ALL


BARRIERS: dict[str, Callable[[list[bool]], Any]] = {
    "syncthreads": lambda predicates: None,
    "syncthreads_count": lambda predicates: np.int32(sum(predicates)),
    "syncthreads_and": lambda predicates: np.int32(all(predicates)),
    "syncthreads_or": lambda predicates: np.int32(any(predicates)),
}
PREDICATED = (names.BARRIERS - {"syncthreads"}) | {"all_sync", "any_sync", "eq_sync", "ballot_sync"}
SHUFFLED = {types.int32, types.int64, types.float32, types.float64}
Operands = dict[int, tuple]


def _vote(decide: Callable[[Operands], Any]) -> Callable[[Operands], dict[int, Any]]:
    """Return a warp operation whose result is the same in each lane."""
    return lambda operands: dict.fromkeys(operands, decide(operands))


def _set(operands: Operands) -> list[bool]:
    return [bool(o[0]) for o in operands.values()]


def _bits(value: Any) -> bytes:
    """Return the bits of a value: match compares them, so that NaN equals itself and -0.0 is not 0.0."""
    return value.tobytes()


def _match_any(operands: Operands) -> dict[int, Any]:
    masks = {
        lane: sum(1 << other for other, o in operands.items() if _bits(o[0]) == _bits(value[0]))
        for lane, value in operands.items()
    }
    return {lane: np.uint32(mask).view(np.int32) for lane, mask in masks.items()}


def _match_all(operands: Operands) -> dict[int, Any]:
    same = len({_bits(o[0]) for o in operands.values()}) == 1
    mask = np.uint32(sum(1 << lane for lane in operands) if same else 0).view(np.int32)
    return dict.fromkeys(operands, (mask, np.bool_(same)))


VOTES: dict[str, Callable[[Operands], dict[int, Any]]] = {
    "all_sync": _vote(lambda operands: np.bool_(all(_set(operands)))),
    "any_sync": _vote(lambda operands: np.bool_(any(_set(operands)))),
    "eq_sync": _vote(lambda operands: np.bool_(len(set(_set(operands))) == 1)),
    "ballot_sync": _vote(
        lambda operands: np.uint32(sum(1 << lane for lane, o in operands.items() if o[0])).view(np.int32)
    ),
    "match_any_sync": _match_any,
    "match_all_sync": _match_all,
}
