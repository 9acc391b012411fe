"""When the warps of a block run: each statement is a moment, and barriers are where warps wait for each other.

All statements are taken to last equally long, and the warps to run side by side. Lanes of a warp that part run one
after the other, so a warp has a moment for each statement that any of its lanes runs, in the order of the program. What
lies between two barriers of the block is a *phase*: it lasts as long as the warp that has most moments in it.
"""

import bisect
from dataclasses import dataclass

import numpy as np

from nanoeuler.simt.launch import WARP_SIZE
from nanoeuler.simt.names import BARRIERS
from nanoeuler.simt.traced.recorder import Wait
from nanoeuler.simt.traced.result import Trace


@dataclass(frozen=True)
class Moments:
    """The moments of the warps of a block, by warp, phase and program: arrays of one length.

    Attributes:
        warp: whose each is, int64.
        phase: barriers that the block had passed, int64.
        place: moments of this warp in this phase before, int64.
        lanes: (moments, 32) bool, which lanes run it.
        line: of the statement, int64.
        file: of the statement.
    """

    warp: np.ndarray
    phase: np.ndarray
    place: np.ndarray
    lanes: np.ndarray
    line: np.ndarray
    file: list[str]


@dataclass(frozen=True)
class Stop:
    """Lanes of a warp that wait together, at a barrier or in a warp operation, at the end of a moment.

    ``place`` is that of the moment in its phase, -1 where there is none. ``passed`` is False where they wait for ever.
    """

    warp: int
    phase: int
    place: int
    operation: str
    instruction: int
    passed: bool
    lanes: tuple[int, ...]

    @property
    def barrier(self) -> bool:
        """Whether the whole block waits here."""
        return self.operation in BARRIERS


def moments(trace: Trace, block: int) -> tuple[Moments, list[Stop]]:
    """Return the moments of a block that was traced, and where its lanes wait."""
    visits = trace.visits[trace.visits["block"] == block]
    waits = [w for w in trace.waits if w.block == block]
    places = _places(trace, np.unique(visits["execution"]).tolist())
    ranks = _ranks(trace, places, waits)
    stands = np.array([(w.thread, ranks[_key(trace, w)]) for w in waits], np.int64).reshape(-1, 2)
    runs = _runs(visits, places, ranks)
    runs = runs[~_never(runs, stands[[not w.passed for w in waits]])]
    barriers = stands[[w.operation in BARRIERS for w in waits]]
    lanes_of = np.stack([runs[:, 0] // WARP_SIZE, _phases(barriers, runs), runs[:, 1]])
    unique, which = np.unique(lanes_of, axis=1, return_inverse=True)
    lanes = np.zeros((unique.shape[1], WARP_SIZE), np.bool_)
    lanes[which.ravel(), runs[:, 0] % WARP_SIZE] = True
    where = {ranks[key]: found for key, found in places.items()}
    told = [where[rank] for rank in unique[2].tolist()]
    line = np.array([line for _, line in told], np.int64)
    made = Moments(unique[0], unique[1], _counted(unique[:2]), lanes, line, [file for file, _ in told])
    return made, _stops(waits, stands, _phases(barriers, stands), unique)


Key = tuple[int, int]  # an execution, and the order of what is done in it


def _key(trace: Trace, wait: Wait) -> Key:
    return wait.execution, trace.instructions[wait.instruction].order


def _places(trace: Trace, executions: list[int]) -> dict[Key, tuple[str, int]]:
    """Return file and line of each statement of some executions."""
    blocks = [(execution, trace.basic_blocks[trace.executions[execution][1]]) for execution in executions]
    return {(execution, s.order): (basic.file, s.line) for execution, basic in blocks for s in basic.statements}


def _ranks(trace: Trace, places: dict[Key, tuple[str, int]], waits: list[Wait]) -> dict[Key, int]:
    """Return the turn of each statement, and of each wait, in the order of the program."""
    keys = {*places, *(_key(trace, w) for w in waits)}
    return {key: n for n, key in enumerate(sorted(keys, key=lambda key: trace.key(*key)))}


def _runs(visits: np.ndarray, places: dict[Key, tuple[str, int]], ranks: dict[Key, int]) -> np.ndarray:
    """Return who runs what, (n, 2) int64: threads, and the ranks of statements."""
    of_execution: dict[int, list[int]] = {}
    for key in places:
        of_execution.setdefault(key[0], []).append(ranks[key])
    ordered = visits[np.argsort(visits["execution"], kind="stable")]
    starts, ends = (np.searchsorted(ordered["execution"], list(of_execution), side) for side in ("left", "right"))
    parts = [np.empty((0, 2), np.int64)]
    for own, start, end in zip(of_execution.values(), starts, ends, strict=True):
        threads = ordered["thread"][start:end].astype(np.int64)
        parts.append(np.stack([np.repeat(threads, len(own)), np.tile(own, len(threads))], axis=1))
    return np.concatenate(parts)


def _never(runs: np.ndarray, stands: np.ndarray) -> np.ndarray:
    """Return which of ``runs`` a thread never comes to, as it stands somewhere before it in vain, (n,) bool."""
    lost = np.zeros(len(runs), np.bool_)
    for thread, rank in stands.tolist():
        lost |= (runs[:, 0] == thread) & (runs[:, 1] > rank)
    return lost


def _phases(barriers: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return how many of the ``barriers`` (thread, rank) a thread has passed before it comes to each rank of ``of``."""
    scale = 1 + max(barriers[:, 1].max(initial=0), of[:, 1].max(initial=0))
    passed, here = np.sort(barriers @ [scale, 1]), of @ [scale, 1]
    return np.searchsorted(passed, here) - np.searchsorted(passed, of[:, 0] * scale)


def _counted(groups: np.ndarray) -> np.ndarray:
    """Return for each column of sorted ``groups`` how many like it come before."""
    numbers = np.arange(groups.shape[1])
    starts = np.any(np.diff(groups, axis=1, prepend=-1) != 0, axis=0)
    return numbers - np.maximum.accumulate(np.where(starts, numbers, 0))


def _stops(waits: list[Wait], stands: np.ndarray, phases: np.ndarray, unique: np.ndarray) -> list[Stop]:
    """Return the waits gathered: the lanes of a warp at one instruction of one execution."""
    ranks: dict[tuple[int, int], list[int]] = {}  # of the moments of a warp in a phase
    for warp, phase, rank in unique.T.tolist():
        ranks.setdefault((warp, phase), []).append(rank)
    groups: dict[tuple[int, int, int, str, int, bool], list[int]] = {}
    for wait, (thread, rank), phase in zip(waits, stands.tolist(), phases.tolist(), strict=True):
        key = thread // WARP_SIZE, phase, rank, wait.operation, wait.instruction, wait.passed
        groups.setdefault(key, []).append(thread % WARP_SIZE)
    made = []
    for (warp, phase, rank, operation, instruction, passed), lanes in sorted(groups.items()):
        place = bisect.bisect_right(ranks.get((warp, phase), []), rank) - 1
        made.append(Stop(warp, phase, place, operation, instruction, passed, tuple(sorted(lanes))))
    return made
