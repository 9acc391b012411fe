"""The steps of a traced launch in lockstep: what a debugger would stop at if all threads of a block went side by side.

A step is one statement in one execution of a basic block, with all threads that came there. Steps are in the order of
the program, block after block; a barrier stands where the program has it. When a statement calls a device function,
the function's steps follow, and the statement goes on in a step of its own if anything is left of it to do. A function
starts with a step at its ``def``, in which its parameters get their values.

The threads ran one after the other here, and on a GPU warps run each at its own pace: between two barriers this is one
order of many, the one that is easiest to follow.
"""

import bisect
import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.simt.checked.memory import Record, View
from nanoeuler.simt.faults import RAISED, UNINITIALISED, Fault
from nanoeuler.simt.launch import WARP_SIZE, number_of
from nanoeuler.simt.names import BARRIERS
from nanoeuler.simt.traced.recorder import BasicBlock, Variable, Wait
from nanoeuler.simt.traced.result import Trace

ENTER, STATEMENT, RETURN = "enter", "statement", "return"  # the kinds of steps


@dataclass(frozen=True)
class Step:
    """One statement, run by some threads of a block at once.

    ``kind`` is "enter" at a function's ``def``, "return" where a statement goes on after a call, else "statement".
    ``threads`` are numbers within the block, int64, in order. ``barrier``: whether the whole block waits here.
    """

    number: int
    block: int
    execution: int
    kind: str
    file: str
    function: str
    line: int
    threads: np.ndarray = field(repr=False)
    barrier: bool


@dataclass(frozen=True)
class Frame:
    """One function that a thread is in: ``execution`` tells its calls apart, ``line`` is where the thread is in it."""

    execution: int
    function: str
    file: str
    line: int


@dataclass(frozen=True)
class Cut:
    """Where a step starts in a basic block: at a statement, or behind a call inside one (``kind`` "return")."""

    order: int
    line: int
    kind: str


@dataclass(frozen=True)
class Groups:
    """Records gathered by step: those of step ``n`` are ``members[starts[n] : starts[n + 1]]``."""

    starts: np.ndarray
    members: np.ndarray

    def of(self, number: int) -> np.ndarray:
        """Return the members of one group."""
        return self.members[self.starts[number] : self.starts[number + 1]]


def grouped(keys: np.ndarray, count: int, members: np.ndarray, *finer: np.ndarray) -> Groups:
    """Return ``members`` by their ``keys`` (below ``count``); within one key by ``finer``, the first counts most."""
    order = np.lexsort((*reversed(finer), keys))
    return Groups(np.searchsorted(keys[order], np.arange(count + 1)), members[order])


class Steps:
    """The steps of a trace, and what belongs to each: ``steps[17].line``, ``steps.variables(17, thread=5)``.

    Raises:
        UserError: the trace was made without ``variables=True``, or no thread was recorded.
    """

    def __init__(self, trace: Trace) -> None:
        if not trace.variables and len(trace.visits) and trace.source.tree.args.args:
            raise UserError("this trace has no variables: make it by simt.trace(..., variables=True), or use simt.step")
        self.trace = trace
        self.frame_of = _frames(trace)
        self.cuts = _cuts(trace)
        self._first = np.cumsum([0, *map(len, self.cuts)])  # the number of an execution's first cut
        self._rank = self._ranks()
        records = self._records()
        blocks, threads, ranks = self._thread_steps(records)
        self._codes = np.unique(blocks * len(self._rank) + ranks)
        if not len(self._codes):
            raise UserError("nothing was recorded: choose blocks= and warps= that are in the launch")
        of_step = np.searchsorted(self._codes, blocks * len(self._rank) + ranks)
        count = len(self._codes)
        self._threads = grouped(of_step, count, threads, threads)
        self.blocks = np.unique(blocks).tolist()
        rows = np.searchsorted(self.blocks, blocks) * trace.launch.block_threads + threads
        self._of_thread = grouped(rows, int(rows.max()) + 1, of_step, of_step)
        self.of_accesses, self.of_waits, self.of_variables = (self._grouped(*record) for record in records)
        self.list = self._steps()

    def __len__(self) -> int:
        return len(self.list)

    def __getitem__(self, number: int) -> Step:
        return self.list[number]

    # What belongs to a step

    def accesses(self, number: int) -> np.ndarray:
        """Return which of the trace's accesses a step makes: their places, by thread, int64."""
        return self.of_accesses.of(number)

    def waits(self, number: int) -> list[Wait]:
        """Return the barriers and warp operations of a step, by thread."""
        return [self.trace.waits[n] for n in self.of_waits.of(number)]

    def assignments(self, number: int) -> list[Variable]:
        """Return what a step assigns to local variables, by thread."""
        return [self.trace.variables[n] for n in self.of_variables.of(number)]

    @functools.cached_property
    def step_of_access(self) -> np.ndarray:
        """The step of each access of the trace, int64."""
        found = np.empty(len(self.trace.accesses), np.int64)
        found[self.of_accesses.members] = np.repeat(np.arange(len(self)), np.diff(self.of_accesses.starts))
        return found

    # Threads

    def last(self, number: int, thread: int) -> int | None:
        """Return the last step up to ``number`` in which a thread took part; None if it has not started."""
        taken = self._taken(self.list[number].block, thread)
        found = int(np.searchsorted(taken, number, "right")) - 1
        return int(taken[found]) if found >= 0 else None

    def next(self, number: int, threads: Iterable[int]) -> int | None:
        """Return the first step after ``number`` in which one of some threads takes part, in this block or a later."""
        threads = list(threads)
        for block in self.blocks[self.blocks.index(self.list[number].block) :]:
            found = [t[n] for t in (self._taken(block, i) for i in threads) if (n := _after(t, number)) < len(t)]
            if found:
                return int(min(found))
        return None

    def previous(self, number: int, threads: Iterable[int]) -> int | None:
        """Return the last step before ``number`` in which one of some threads takes part, in this block or before."""
        threads = list(threads)
        for block in self.blocks[self.blocks.index(self.list[number].block) :: -1]:
            found = [t[n] for t in (self._taken(block, i) for i in threads) if (n := _before(t, number)) >= 0]
            if found:
                return int(max(found))
        return None

    def _taken(self, block: int, thread: int) -> np.ndarray:
        row = self.blocks.index(block) * self.trace.launch.block_threads + thread
        return self._of_thread.of(row) if 0 <= row < len(self._of_thread.starts) - 1 else np.empty(0, np.int64)

    # Functions and their variables

    def stack(self, number: int, thread: int) -> list[Frame]:
        """Return the functions that a thread is in at a step, the kernel first; [] before it has started."""
        last = self.last(number, thread)
        if last is None:
            return []
        step, found = self.list[last], []
        execution, line = step.execution, step.line
        while execution:
            frame = self.frame_of[execution]
            block = self._block(frame)
            found.append(Frame(frame, block.function, block.file, line))
            call = self.trace.executions[frame][0]
            execution = self.trace.executions[call][0]
            if execution:
                line = self.cut(execution, self._block(call).order).line
        return found[::-1]

    def variables(self, number: int, thread: int, frame: int | None = None) -> dict[str, Any]:
        """Return a thread's local variables after a step, in the function it is in, or in another of its ``frame``s."""
        if frame is None:
            last = self.last(number, thread)
            if last is None:
                return {}
            frame = self.frame_of[self.list[last].execution]
        values = {}
        for name, (steps, assigned) in self._locals.get((self.list[number].block, thread, frame), {}).items():
            known = bisect.bisect_right(steps, number)
            if known:
                values[name] = assigned[known - 1]
        return values

    @functools.cached_property
    def _locals(self) -> dict[tuple[int, int, int], dict[str, tuple[list[int], list[Any]]]]:
        """What was assigned, by block, thread and frame, and by name: the steps, and the values."""
        found: dict[tuple[int, int, int], dict[str, tuple[list[int], list[Any]]]] = {}
        steps = np.repeat(np.arange(len(self)), np.diff(self.of_variables.starts)).tolist()
        for step, n in zip(steps, self.of_variables.members.tolist(), strict=True):
            v = self.trace.variables[n]
            names = found.setdefault((v.block, v.thread, self.frame_of[v.execution]), {})
            taken, values = names.setdefault(v.name, ([], []))
            taken.append(step)
            values.append(v.value)
        return found

    def _block(self, execution: int) -> BasicBlock:
        return self.trace.basic_blocks[self.trace.executions[execution][1]]

    def cut(self, execution: int, order: int) -> Cut:
        """Return the start of the step to which something of an execution belongs, by its ``order``."""
        return self.cuts[execution][self._cut(execution, order)]

    # How steps are found

    def _cut(self, execution: int, order: int) -> int:
        """Return which cut of an execution what has ``order`` belongs to."""
        return max(0, bisect.bisect_right(self.cuts[execution], order, key=lambda cut: cut.order) - 1)

    def _ranks(self) -> np.ndarray:
        """Return the place of each cut in program order. A call's steps come before the rest of its statement."""
        keys = [
            (*self.trace.key(execution, cut.order), *((1,) if cut.kind == RETURN else ()))
            for execution, cuts in enumerate(self.cuts)
            for cut in cuts
        ]
        ranks = np.empty(len(keys), np.int64)
        ranks[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
        return ranks

    def _records(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return block, thread and rank of the accesses, waits and assignments."""
        a, instructions = self.trace.accesses, self.trace.instructions
        orders = np.array([i.order for i in instructions], np.int64)[a["instruction"]]
        waits = [(w.block, w.thread, w.execution, instructions[w.instruction].order) for w in self.trace.waits]
        variables = [(v.block, v.thread, v.execution, v.order) for v in self.trace.variables]
        columns = [np.stack([a["block"].astype(np.int64), a["thread"], a["execution"], orders])]
        columns += [np.array(rows, np.int64).reshape(-1, 4).T for rows in (waits, variables)]
        return [(block, thread, self._ranks_of(execution, order)) for block, thread, execution, order in columns]

    def _ranks_of(self, executions: np.ndarray, orders: np.ndarray) -> np.ndarray:
        """Return the rank of the cut that each record, by its execution and order, belongs to."""
        pairs, which = np.unique(executions << 32 | orders, return_inverse=True)
        cuts = [self._first[p >> 32] + self._cut(p >> 32, p & 0xFFFFFFFF) for p in pairs.tolist()]
        return self._rank[np.array(cuts, np.int64)][which]

    def _thread_steps(self, records: list) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return block, thread and rank of each step of each thread."""
        visits = self.trace.visits
        counts = np.array([len(cuts) for cuts in self.cuts], np.int64)[visits["execution"]]
        which = np.repeat(np.arange(len(visits)), counts)
        within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        ranks = self._rank[self._first[visits["execution"]][which] + within]
        blocks, threads = (visits[name].astype(np.int64)[which] for name in ("block", "thread"))
        kept = self._has_something(blocks, ranks, records) & ~self._never_reached(blocks, threads, ranks)
        return blocks[kept], threads[kept], ranks[kept]

    def _has_something(self, blocks: np.ndarray, ranks: np.ndarray, records: list) -> np.ndarray:
        """Return where a step is one: the rest of a statement only if there is something to do."""
        cuts = [cut for cuts in self.cuts for cut in cuts]
        rest = np.zeros(len(self._rank), np.bool_)
        rest[self._rank] = [cut.kind == RETURN for cut in cuts]
        codes = [block * len(self._rank) + rank for block, _, rank in records]
        return ~rest[ranks] | np.isin(blocks * len(self._rank) + ranks, np.concatenate(codes))

    def _never_reached(self, blocks: np.ndarray, threads: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """Return where a thread did not come, because it stood at a barrier in vain or ended at a fault."""
        lost = np.zeros(len(ranks), np.bool_)
        for wait in self.trace.waits:
            if not wait.passed:
                order = self.trace.instructions[wait.instruction].order
                at = self._ranks_of(np.array([wait.execution]), np.array([order]))[0]
                lost |= (blocks == wait.block) & (threads == wait.thread) & (ranks > at)
        lines = np.zeros(len(self._rank), np.int64)
        lines[self._rank] = [cut.line for cuts in self.cuts for cut in cuts]
        for fault in filter(_ends_a_thread, self.trace.faults):
            party, launch = fault.parties[0], self.trace.launch
            mine = blocks == number_of(party.block, launch.grid, "block")
            mine &= threads == number_of(party.thread, launch.block, "thread")
            there = ranks[mine & (lines[ranks] == fault.line)]
            if len(there):
                lost |= mine & (ranks > there.max())
        return lost

    def _grouped(self, blocks: np.ndarray, threads: np.ndarray, ranks: np.ndarray) -> Groups:
        """Return records by step, within it by thread and time."""
        steps = np.searchsorted(self._codes, blocks * len(self._rank) + ranks)
        return grouped(steps, len(self._codes), np.arange(len(steps)), threads, np.arange(len(steps)))

    def _steps(self) -> list[Step]:
        where = np.empty((len(self._rank), 2), np.int64)  # execution and cut, by rank
        where[self._rank] = [(e, c) for e, cuts in enumerate(self.cuts) for c in range(len(cuts))]
        stops = np.zeros(len(self._codes), np.bool_)
        barrier = np.array([w.operation in BARRIERS for w in self.trace.waits], np.bool_)
        of_wait = np.repeat(np.arange(len(self._codes)), np.diff(self.of_waits.starts))
        stops[of_wait[barrier[self.of_waits.members]]] = True
        made = []
        for number, code in enumerate(self._codes.tolist()):
            block, rank = divmod(code, len(self._rank))
            execution, n = where[rank].tolist()
            cut, basic = self.cuts[execution][n], self._block(execution)
            place = cut.kind, basic.file, basic.function, cut.line
            made.append(Step(number, block, execution, *place, self._threads.of(number), bool(stops[number])))
        return made


def _after(steps: np.ndarray, number: int) -> int:
    return int(np.searchsorted(steps, number, "right"))


def _before(steps: np.ndarray, number: int) -> int:
    return int(np.searchsorted(steps, number, "left")) - 1


def _ends_a_thread(fault: Fault) -> bool:
    unassigned = fault.kind == UNINITIALISED and fault.message.startswith("the variable ")
    return bool(fault.parties) and (fault.kind == RAISED or unassigned)


def _frames(trace: Trace) -> list[int]:
    """Return for each execution that of the function around it."""
    frames = [0]
    for number, (parent, block, _) in enumerate(trace.executions[1:], 1):
        frames.append(number if trace.basic_blocks[block].kind == "function" else frames[parent])
    return frames


def _cuts(trace: Trace) -> list[list[Cut]]:
    """Return for each execution where its steps start."""
    calls: dict[int, list[int]] = {}
    for parent, block, _ in trace.executions[1:]:
        if trace.basic_blocks[block].kind == "call":
            calls.setdefault(parent, []).append(trace.basic_blocks[block].order)
    own = [_statements(trace, block) for block in trace.basic_blocks]
    found: list[list[Cut]] = [[]]
    for number, (_, block, _) in enumerate(trace.executions[1:], 1):
        cuts = own[block]
        for order in calls.get(number, ()):
            at = bisect.bisect_right(cuts, order, key=lambda cut: cut.order)
            line = cuts[max(0, at - 1)].line if cuts else 0
            cuts = [*cuts[:at], Cut(order, line, RETURN), *cuts[at:]]
        found.append(cuts)
    return found


def _statements(trace: Trace, block: BasicBlock) -> list[Cut]:
    """Return the steps of a basic block; that of a function starts with its ``def``."""
    made = [Cut(s.order, s.line, STATEMENT) for s in block.statements]
    if block.kind != "function":
        return made
    heads = [s for s in trace.source.everything() if (s.file, s.name) == (block.file, block.function)]
    first = made[0].line if made else 0
    lines = [s.tree.lineno for s in heads if not made or s.tree.lineno <= first <= (s.tree.end_lineno or first)]
    return [Cut(0, lines[0] if lines else first, ENTER), *made]


def warp(step: Step, number: int) -> np.ndarray:
    """Return which lanes of a warp run a step, (32,) bool."""
    lanes = np.zeros(WARP_SIZE, np.bool_)
    lanes[step.threads[step.threads // WARP_SIZE == number] % WARP_SIZE] = True
    return lanes


def shown(value: Any) -> str:
    """Return a value as people read it: a NumPy scalar without its type, an array by its type and shape.

    >>> shown(np.float32(0.1)), shown((np.int64(3), True))
    ('0.1', '(3, True)')
    """
    if isinstance(value, str):  # what a trace keeps of an array: its name, dtype and shape
        name, _, rest = value.partition(": ")
        return f"{name}: records{rest[rest.rindex('[') :]}" if rest.startswith(("{", "[(")) else value
    if isinstance(value, View):
        return f"{value.name}: {value.dtype}{list(value.sizes)}"
    if isinstance(value, Record):
        return f"a record of {value.view.name}"
    if isinstance(value, tuple):
        inside = ", ".join(map(shown, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return str(value)
