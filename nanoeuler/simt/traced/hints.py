"""What could be better in a kernel, in words: only what the numbers of its trace show, the weightiest first."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from nanoeuler.simt.launch import WARP_SIZE
from nanoeuler.simt.traced.numbers import Banks, LineNumbers, Numbers, Traffic
from nanoeuler.simt.traced.recorder import ATOMIC, TracedArray
from nanoeuler.simt.traced.requests import Requests, requests
from nanoeuler.simt.traced.result import ACTIONS, Trace
from nanoeuler.simt.traced.transactions import SECTOR, WORD, wavefronts

NOTABLE = 0.05  # share of the whole from which something is worth a word
SUPERFLUOUS = 0.15  # share of an access's own sectors or wavefronts that it could do without
DIVERGED = 0.75  # share of lanes below which they count as diverged
MOST = 0.5


@dataclass(frozen=True)
class Hint:
    """Something to change. ``weight`` is the share of the trace's sectors, wavefronts, lanes or accesses at stake."""

    file: str
    lines: tuple[int, ...]
    weight: float
    text: str

    @property
    def where(self) -> str:
        """The lines in words.

        >>> Hint("k.py", (3,), 1, "").where, Hint("k.py", (3, 4, 5, 9), 1, "").where
        ('line 3', 'lines 3 to 5, 9')
        """
        runs: list[list[int]] = []
        for line in self.lines:
            if runs and line == runs[-1][-1] + 1:
                runs[-1].append(line)
            else:
                runs.append([line])
        parts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
        return f"line{'s' if len(self.lines) > 1 else ''} {', '.join(parts)}"


def hints(trace: Trace, found: Numbers, most: int = 8) -> list[Hint]:
    """Return at most so many hints, the weightiest first."""
    ways = (_scattered, _conflicts, _diverged, _repeated, _collisions, _partial_warp, _float64)
    return sorted((h for way in ways for h in way(trace, found)), key=lambda h: (-h.weight, h.lines))[:most]


# Global memory ------------------------------------------------------------------------------------------------------


def _scattered(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """More sectors than needed. Lines that have an array and a reason in common are one hint."""
    moved = requests(trace, "global")
    groups: dict[tuple[str, str, str, str], dict[int, Traffic]] = defaultdict(dict)
    for one in found.lines.values():
        for name in dict.fromkeys(name for name, _ in one.global_memory):
            done = [action for action in ACTIONS[:2] if (name, action) in one.global_memory]
            traffic = sum((one.global_memory[name, action] for action in done), Traffic())
            spare = traffic.sectors - traffic.ideal_sectors
            if spare and spare >= SUPERFLUOUS * traffic.sectors:
                why = _why_scattered(trace, moved, one, name, done)
                groups[one.file, name, " and ".join(done), why][one.line] = traffic
    for (file, name, verb, why), lines in groups.items():
        total = sum(lines.values(), Traffic())
        weight = (total.sectors - total.ideal_sectors) / found.totals.traffic.sectors
        if why and weight >= NOTABLE:
            least = f"{total.ideal_sectors / total.requests:.1f} would do, {total.efficiency:.0%} of the bytes are used"
            text = f"{name}: a warp {verb} {total.sectors_per_request:.1f} sectors where {least}. {why}"
            yield Hint(file, tuple(lines), weight, text)


def _why_scattered(trace: Trace, moved: Requests, one: LineNumbers, name: str, done: list[str]) -> str:
    """Return the reason and the remedy; nothing where it is only that lanes between others are not active."""
    array = _array(trace, name, "global")
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
        aside = f"Neighbouring lanes lie side by side, but do not start at a multiple of {SECTOR} bytes: "
        return "" if gaps else f"{aside}start slices there, pad rows to such a length."
    along = "over neighbours"
    if len(array.shape) > 1:
        in_order = abs(array.strides[-1]) == min(map(abs, array.strides))
        along = f"along the {'last' if in_order else 'first'} axis, whose elements are neighbours"
    return (
        f"Neighbouring lanes are {abs(apart):g} bytes apart: let threadIdx.x run {along}, or go through shared memory."
    )


def _repeated(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """Loads of what a register, or shared memory, could have kept."""
    cases = {
        "repeated": "the same thread has loaded before: keep it in a local variable",
        "read_back": "the thread has stored itself: keep the value in a local variable, store it at the end",
        "repeated_in_block": "another thread of the block has loaded before: share it in shared memory",
    }
    for case, what in cases.items():
        for (file, name), lines in _by_array(found, "reads", case).items():
            total = sum(lines.values(), Traffic())
            count = getattr(total, case)
            weight = count / found.totals.loads.accesses
            if weight >= 2 * NOTABLE:
                share = f"{name}: {count / total.accesses:.0%} of the loads are of elements that "
                yield Hint(file, tuple(lines), weight, f"{share}{what}.")


def _collisions(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """Atomics of a warp on one address."""
    for (file, name), lines in _by_array(found, ACTIONS[ATOMIC], "collisions").items():
        total = sum(lines.values(), Traffic())
        weight = total.collisions / found.totals.traffic.accesses
        if weight >= NOTABLE:
            text = (
                f"{name}: {total.collisions / total.accesses:.0%} of the atomics wait for another lane of their warp, "
                "at the same element. Add up in the warp (shuffles) or the block (shared memory), then do one atomic."
            )
            yield Hint(file, tuple(lines), weight, text)


def _by_array(found: Numbers, action: str, counted: str) -> dict[tuple[str, str], dict[int, Traffic]]:
    """Return the traffic of each array, by line, where at least half of the accesses are ``counted`` as such."""
    groups: dict[tuple[str, str], dict[int, Traffic]] = defaultdict(dict)
    for one in found.lines.values():
        for (name, done), traffic in one.global_memory.items():
            if done == action and getattr(traffic, counted) >= max(1, MOST * traffic.accesses):
                groups[one.file, name][one.line] = traffic
    return groups


# Shared memory ------------------------------------------------------------------------------------------------------


def _conflicts(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """Bank conflicts, one hint for each array, and one for its atomics."""
    moved = requests(trace, "shared")
    groups: dict[tuple[str, str, bool], dict[int, Banks]] = defaultdict(lambda: defaultdict(Banks))
    for one in found.lines.values():
        for (name, done), banks in one.shared_memory.items():
            if banks.conflicts and banks.conflicts >= SUPERFLUOUS * banks.wavefronts:
                groups[one.file, name, done == ACTIONS[ATOMIC]][one.line] += banks
    for (file, name, atomic), lines in groups.items():
        total = sum(lines.values(), Banks())
        weight = total.conflicts / found.totals.banks.wavefronts
        if weight >= NOTABLE:
            why = "Atomics on one word wait for each other: give each warp, or some lanes, words of their own."
            if not atomic:
                why = _why_conflicts(trace, moved, name, [found.lines[file, line] for line in lines])
            text = f"{name}: bank conflicts make it take {total.ways:.1f} times as long. {why}"
            yield Hint(file, tuple(lines), weight, text)


def _why_conflicts(trace: Trace, moved: Requests, name: str, lines: Iterable[LineNumbers]) -> str:
    array = _array(trace, name, "shared")
    apart, size, _ = _spacing(trace, moved, max(lines, key=lambda one: one.banks.conflicts), name, list(ACTIONS[:2]))
    if len(array.shape) > 1:
        now, padded = _if_padded(trace, moved, array)
        if padded <= DIVERGED * now:
            shape = (*array.shape[:-1], array.shape[-1] + 1)
            return f"With rows one element longer, shape {shape}, its {now:,} wavefronts become {padded:,}."
    if apart is None or apart / max(size, WORD) % 2:
        return "Lanes want different words of one bank; words n and n + 32 share one."
    return f"Neighbouring lanes are {abs(apart):g} bytes apart; an odd number of elements spreads over the banks."


def _if_padded(trace: Trace, moved: Requests, array: TracedArray) -> tuple[int, int]:
    """Return the wavefronts of an array's requests, and what they would be if its rows were one element longer."""
    a = trace.accesses
    chosen = a["array"][moved.access] == array.number
    longer = a["offset"][moved.access] // (array.shape[-1] * array.dtype.itemsize) * array.dtype.itemsize
    request, lane, address, size = (c[chosen] for c in (moved.request, moved.lane, moved.address, moved.size))
    atomic = a["kind"][moved.access[chosen]] == ATOMIC
    now, _ = wavefronts(request, lane, address, size, atomic, len(moved))
    padded, _ = wavefronts(request, lane, address + longer[chosen], size, atomic, len(moved))
    return int(now.sum()), int(padded.sum())


# Lanes --------------------------------------------------------------------------------------------------------------


def _diverged(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """Lanes that wait while others of their warp do something. Lines with the same lanes are one hint."""
    groups: dict[tuple[str, float, float], list[LineNumbers]] = defaultdict(list)
    for one in found.lines.values():
        if one.lane_share < DIVERGED:
            groups[one.file, one.lanes, one.lane_share].append(one)
    for (file, lanes, share), lines in groups.items():
        weight = sum(one.lanes_there - one.lanes_active for one in lines) / found.totals.lanes_there
        if weight >= NOTABLE:
            text = (
                f"{lanes:.1f} of {lanes / share:.0f} lanes are active on average, the others wait. Where a branch or a "
                "loop parts them, let the lanes of a warp go one way; at the end of a small array it does not matter."
            )
            yield Hint(file, tuple(sorted(one.line for one in lines)), weight, text)


def _partial_warp(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """Blocks that are no multiple of 32 threads."""
    threads = trace.launch.block_threads
    room = -(-threads // WARP_SIZE) * WARP_SIZE
    if room - threads >= 2 * NOTABLE * room:
        text = f"a block of {threads} threads fills {room} lanes: take a multiple of {WARP_SIZE}."
        yield Hint(trace.file, (trace.first_line,), (room - threads) / room, text)


# Arithmetic ---------------------------------------------------------------------------------------------------------


def _float64(trace: Trace, found: Numbers) -> Iterator[Hint]:
    """Arithmetic in float64 in a kernel without an array of it."""
    if any(leaf in (np.float64, np.complex128) for a in trace.arrays for leaf in _leaves(a.dtype)):
        return
    counts = {place: one.flops_by_precision.get("float64", 0) for place, one in found.lines.items()}
    for file in dict.fromkeys(file for file, _ in counts):
        lines = {line: count for (its_file, line), count in counts.items() if its_file == file and count}
        total = sum(lines.values())
        if total and total >= NOTABLE * found.totals.flops:
            text = (
                f"{total:,} operations in float64, though no array is: 32 to 64 times as slow on most cards. "
                "Write float32(0.5) for a number and float32(i) for an integer."
            )
            yield Hint(file, tuple(lines), total / found.totals.flops, text)


def _leaves(dtype: np.dtype) -> list[np.dtype]:
    """Return the plain dtypes that a dtype is made of."""
    if dtype.fields:
        return [leaf for name in dtype.names or () for leaf in _leaves(dtype[name])]
    return [dtype.base]


# Where the lanes of an access are -----------------------------------------------------------------------------------


def _array(trace: Trace, name: str, scope: str) -> TracedArray:
    return next(a for a in trace.named(name) if a.scope == scope)


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
