"""What could be better in a kernel, in words: only what the numbers of its trace show, the costliest first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nanoeuler.simt.launch import WARP_SIZE
from nanoeuler.simt.traced.numbers import Counts, LineNumbers, Numbers, Touch, Traffic
from nanoeuler.simt.traced.requests import Requests, requests
from nanoeuler.simt.traced.result import ACTIONS, Trace
from nanoeuler.simt.traced.transactions import SECTOR

NOTABLE = 0.05  # share of the whole from which something is worth a word
SUPERFLUOUS = 0.15  # share of an access's own sectors or wavefronts that it could do without
DIVERGED = 0.75  # share of lanes below which they count as diverged
MOST = 0.5


@dataclass(frozen=True)
class Hint:
    """Something to change. ``weight`` is the share of the trace's sectors, wavefronts, lanes or accesses at stake."""

    file: str
    line: int
    weight: float
    text: str
    last: int = 0  # line, where the hint is about several

    @property
    def where(self) -> str:
        """The line, or lines, in words."""
        return f"lines {self.line} to {self.last}" if self.last > self.line else f"line {self.line}"


def hints(trace: Trace, found: Numbers, most: int = 8) -> list[Hint]:
    """Return at most so many hints, the weightiest first."""
    ways = (_scattered, _conflicts, _diverged, _repeated, _collisions, _partial_warp, _float64)
    return sorted((h for way in ways for h in way(trace, found)), key=lambda h: (-h.weight, h.line))[:most]


def _scattered(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """Global memory: loads and stores of more sectors than needed."""
    total = found.totals.traffic.sectors
    moved = requests(trace, "global")
    for one in found.lines.values():
        for name in dict.fromkeys(name for name, _ in one.global_memory):
            done = [action for action in ACTIONS[:2] if (name, action) in one.global_memory]
            traffic = sum((one.global_memory[name, action] for action in done), Traffic())
            spare = traffic.sectors - traffic.ideal_sectors
            if spare < SUPERFLUOUS * traffic.sectors or spare < NOTABLE * total or not spare:
                continue
            why = _why_scattered(trace, moved, one, name, done)
            if why:
                what = (
                    f"{name}: a warp {' and '.join(done)} {traffic.sectors_per_request:.1f} sectors where "
                    f"{traffic.ideal_sectors / traffic.requests:.1f} would do, {traffic.efficiency:.0%} of the bytes "
                    f"are used. {why}"
                )
                yield Hint(one.file, one.line, spare / total, what)


def _why_scattered(trace: Trace, moved: Requests, one: LineNumbers, name: str, done: list[str]) -> str:
    """Return the reason and the remedy; nothing where it is only that lanes between others are not active."""
    array = next(a for a in trace.named(name) if a.scope == "global")
    apart, size, gaps = _spacing(trace, moved, one, name, done)
    if array.dtype.names and not array.dtype.isalignedstruct:
        return "Its records are packed, so their fields are moved byte by byte: make the dtype with align=True."
    if array.dtype.names:
        return "Each record has several fields: an array for each field would lie denser (structure of arrays)."
    if array.dtype.kind == "c" and apart == 2 * size:
        return "Real and imaginary parts are moved one after the other, each every second word: two arrays lie denser."
    if apart is None:
        return "The lanes' addresses keep no distance: sort what they look up, or bring it into shared memory in order."
    if abs(apart) <= size:
        aside = (
            f"Neighbouring lanes lie side by side, but do not start at a multiple of {SECTOR} bytes: shift the start."
        )
        return "" if gaps else aside
    along = "over neighbours"
    if len(array.shape) > 1:
        in_order = abs(array.strides[-1]) == min(map(abs, array.strides))
        along = f"along the {'last' if in_order else 'first'} axis, whose elements are neighbours"
    return (
        f"Neighbouring lanes are {abs(apart):g} bytes apart: let threadIdx.x run {along}, or go through shared memory."
    )


def _conflicts(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """Shared memory: bank conflicts."""
    total = found.totals.banks.wavefronts
    moved = requests(trace, "shared")
    for one, touch, banks in _touches(found, "shared_memory"):
        if banks.conflicts < SUPERFLUOUS * banks.wavefronts or banks.conflicts < NOTABLE * total:
            continue
        what = f"{touch[0]}: bank conflicts make what a warp {touch[1]} take {banks.ways:.1f} times as long. "
        yield Hint(one.file, one.line, banks.conflicts / total, what + _why_conflicts(trace, moved, one, touch))


def _why_conflicts(trace: Trace, moved: Requests, one: LineNumbers, touch: Touch) -> str:
    if touch[1] == ACTIONS[2]:
        return "Atomics on one word wait for each other: give each warp, or some lanes, words of their own."
    array = next(a for a in trace.named(touch[0]) if a.scope == "shared")
    apart, _, _ = _spacing(trace, moved, one, touch[0], [touch[1]])
    if apart is None:
        return "Lanes want different words of one bank; words n and n + 32 share one."
    if len(array.shape) > 1:
        padded = (*array.shape[:-1], array.shape[-1] + 1)
        return f"Neighbouring lanes are {abs(apart):g} bytes apart: pad the rows by one element, shape {padded}."
    return (
        f"Neighbouring lanes are {abs(apart):g} bytes apart: an odd number of 4-byte words would spread over the banks."
    )


def _diverged(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """Lanes that wait while others of their warp go another way. Lines with the same lanes, one below the other."""
    group: list[LineNumbers] = []
    ordered = sorted(found.lines.values(), key=lambda one: (one.file, one.line))
    for one in [*(line for line in ordered if line.executions), None]:
        if group and (one is None or not _continues(group[-1], one)):
            yield from _diverged_group(group, found.totals)
            group = []
        if one is not None:
            group.append(one)


def _continues(last: LineNumbers, one: LineNumbers) -> bool:
    same = last.file == one.file and last.lanes_active == one.lanes_active and last.executions == one.executions
    return same and one.line - last.line <= 2


def _diverged_group(group: list[LineNumbers], total: Counts) -> Iterator[Hint]:
    idle = sum(one.lanes_there - one.lanes_active for one in group)
    first, last = group[0], group[-1]
    if first.lane_share >= DIVERGED or idle < NOTABLE * total.lanes_there:
        return
    there = first.lanes_there / first.executions
    text = (
        f"{first.lanes:.1f} of {there:.0f} lanes are active on average, the others wait. "
        "Let the lanes of a warp go one way: branch by what is equal in a warp, give all the same number of rounds."
    )
    yield Hint(first.file, first.line, idle / total.lanes_there, text, last.line)


def _repeated(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """Loads of what a register, or shared memory, could have kept."""
    total = found.totals.loads.accesses
    for one, (array, _), traffic in _touches(found, "global_memory"):
        cases = (
            (traffic.repeated, "the same thread has loaded before: keep it in a local variable"),
            (
                traffic.read_back,
                "the thread has stored itself: keep the value in a local variable, store it at the end",
            ),
            (traffic.repeated_in_block, "another thread of the block has loaded before: share it in shared memory"),
        )
        for count, what in cases:
            if count and count >= MOST * traffic.accesses and count >= 2 * NOTABLE * total:
                share = f"{array}: {count / traffic.accesses:.0%} of the loads are of elements that "
                yield Hint(one.file, one.line, count / total, f"{share}{what}.")


def _collisions(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """Atomics of a warp on one address."""
    total = found.totals.traffic.accesses
    for one, (array, _), traffic in _touches(found, "global_memory"):
        if traffic.collisions >= max(1, MOST * traffic.accesses, NOTABLE * total):
            text = (
                f"{array}: {traffic.collisions / traffic.accesses:.0%} of the atomics wait for another lane of their "
                "warp at the same element. Add up in the warp (shuffles) or the block (shared memory) first, then do "
                "one atomic."
            )
            yield Hint(one.file, one.line, traffic.collisions / total, text)


def _partial_warp(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """Blocks that are no multiple of 32 threads."""
    threads = trace.launch.block_threads
    room = -(-threads // WARP_SIZE) * WARP_SIZE
    if room - threads >= 2 * NOTABLE * room:
        text = f"a block of {threads} threads fills {room} lanes: take a multiple of {WARP_SIZE}."
        yield Hint(trace.file, trace.first_line, (room - threads) / room, text)


def _float64(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """Arithmetic in float64 in a kernel without an array of it."""
    wide = (np.float64, np.complex128)
    if any(leaf in wide for a in trace.arrays for leaf in _leaves(a.dtype)):
        return
    for one in found.lines.values():
        count = one.flops_by_precision.get("float64", 0)
        if count >= NOTABLE * found.totals.flops and count:
            text = (
                f"{count:,} operations in float64, though no array is: 32 to 64 times as slow on most cards. "
                "Write float32(0.5) for a number and float32(i) for an integer."
            )
            yield Hint(one.file, one.line, count / found.totals.flops, text)


def _leaves(dtype: np.dtype) -> list[np.dtype]:
    """Return the plain dtypes that a dtype is made of."""
    if dtype.fields:
        return [leaf for name in dtype.names or () for leaf in _leaves(dtype[name])]
    return [dtype.base]


def _touches(found: Numbers, kind: str) -> Iterator[tuple[LineNumbers, Touch, Any]]:
    for one in found.lines.values():
        for touch, counted in getattr(one, kind).items():
            yield one, touch, counted


def _spacing(
    trace: Trace, moved: Requests, one: LineNumbers, name: str, done: list[str]
) -> tuple[float | None, int, bool]:
    """Return how many bytes neighbouring lanes are apart, None where that varies; the bytes of an access; any gaps.

    There are gaps where many lanes between others are not active.
    """
    a = trace.accesses
    here = [i.number for i in trace.instructions if (i.file, i.line) == (one.file, one.line)]
    fits = trace.select(array=name) & np.isin(a["instruction"], here)
    fits &= np.isin(a["kind"], [ACTIONS.index(action) for action in done])
    chosen = np.flatnonzero(fits[moved.access])
    chosen = chosen[np.lexsort((moved.lane[chosen], moved.request[chosen]))]
    together = np.diff(moved.request[chosen]) == 0
    lanes = np.diff(moved.lane[chosen].astype(np.int64))[together]
    apart, counts = np.unique(np.diff(moved.address[chosen])[together] / lanes, return_counts=True)
    size = int(moved.size[chosen].max(initial=1))
    if counts.max(initial=0) < MOST * len(lanes) or not len(lanes):
        return None, size, False
    return float(apart[counts.argmax()]), size, bool((lanes > 1).mean() > NOTABLE)
