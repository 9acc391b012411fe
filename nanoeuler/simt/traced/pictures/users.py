"""Who touches the elements of an array: the colour of each, what stands in it, and its tooltip."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nanoeuler.simt.launch import WARP_SIZE
from nanoeuler.simt.traced.pictures.cells import Cells
from nanoeuler.simt.traced.pictures.colours import SEVERAL, colours, ramp
from nanoeuler.simt.traced.pictures.legend import written
from nanoeuler.simt.traced.pictures.wording import DONE, element, line_name, position, threads, value
from nanoeuler.simt.traced.result import Trace

TOLD = 6  # lines of a tooltip
By = Literal["thread", "lane", "warp", "block", "count"]


@dataclass(frozen=True)
class Users:
    """Who touches the elements of a region.

    Attributes:
        order: (touches,) the touches by element: those of element i are ``order[starts[i]:starts[i + 1]]``.
        starts: (elements + 1,) where they begin.
        access: (touches,) the number of the access.
        several: (elements,) how many different threads, warps or blocks.
        key: (elements,) which colour: -1 for an element that none or several touch.
        kinds: (elements,) 1 if it is read, 2 if written, 4 if updated atomically, added up.
        fills, names: of each colour, and what stands in the element.
    """

    order: np.ndarray
    starts: np.ndarray
    access: np.ndarray
    several: np.ndarray
    key: np.ndarray
    kinds: np.ndarray
    fills: Sequence[str]
    names: Sequence[str]


def users(
    trace: Trace, cells: Cells, cell: np.ndarray, access: np.ndarray, by: By, among: np.ndarray | None = None
) -> Users:
    """Return who touches each element, where access ``access[i]`` touches element ``cell[i]``.

    The colours are those of a picture of the accesses ``among``; None: of just these.
    """
    records, count = trace.accesses[access], len(cells)
    block, who = units(trace, access, by)
    thread = records["thread"].astype(np.int64)
    several = np.bincount(np.unique(np.stack([cell, block, who]), axis=1)[0], minlength=count)
    times = np.bincount(cell, minlength=count)
    threads_ = trace.accesses["thread"][access if among is None else among]
    fills, names = _meanings(trace, by, times, int(threads_.max(initial=0)) + 1)
    key = np.full(count, -1, np.int64)
    if by == "count":
        key = np.searchsorted(np.unique(times[times > 0]), times)
        key[times == 0] = -1
    else:
        own = {"warp": who, "block": np.searchsorted(trace.blocks, block), "lane": thread % WARP_SIZE}
        key[cell] = own.get(by, thread)
        key[several != 1] = -1
    kinds = sum(2**k * (np.bincount(cell[records["kind"] == k], minlength=count) > 0) for k in range(3))
    order = np.lexsort((access, cell))
    starts = np.searchsorted(cell[order], np.arange(count + 1))
    return Users(order, starts, access, several, key, np.asarray(kinds), fills, names)


def units(trace: Trace, access: np.ndarray, by: By) -> tuple[np.ndarray, np.ndarray]:
    """Return who does each access: the block, and the thread or warp in it, int64; of a block as a whole 0."""
    records = trace.accesses[access]
    block, thread = records["block"].astype(np.int64), records["thread"].astype(np.int64)
    return block, {"warp": thread // WARP_SIZE, "block": 0 * thread}.get(by, thread)


def _meanings(trace: Trace, by: By, times: np.ndarray, used: int) -> tuple[Sequence[str], Sequence[str]]:
    """Return the colours of a picture, and what stands in an element of each.

    Where only the first ``used`` threads of a block come, the ramp goes no further than to the end of their last warp.
    """
    size, grid = trace.launch.block_threads, trace.launch.grid
    if by == "count":
        names = [str(n) for n in np.unique(times[times > 0])]
        return ramp(len(names)), names
    if by == "block":
        return colours(len(trace.blocks)), [position(n, grid).strip("()").replace(" ", "") for n in trace.blocks]
    warps = -(-used // WARP_SIZE)
    count = {"warp": warps, "lane": min(WARP_SIZE, size)}.get(by, min(size, warps * WARP_SIZE))
    return colours(count) if by == "warp" else ramp(count), [str(n) for n in range(count)]


def fill_of(found: Users, n: int) -> str:
    """Return the colour of an element, "" where nothing touches it."""
    if found.key[n] >= 0:
        return found.fills[found.key[n]]
    return SEVERAL if found.several[n] else ""


def name_of(found: Users, n: int) -> str:
    """Return what stands in an element."""
    if found.key[n] >= 0:
        return found.names[found.key[n]]
    return f"×{found.several[n]}" if found.several[n] else ""


def patterns(found: Users, fills: Sequence[str]) -> dict[str, list[int]]:
    """Return which elements have a pattern over their colour: hatched once if written, twice if updated."""
    patterns: dict[str, list[int]] = {}
    for n in np.flatnonzero(found.kinds & 6).tolist():
        patterns.setdefault(written(fills[n], "a" if found.kinds[n] & 4 else "w"), []).append(n)
    return patterns


def tooltips(trace: Trace, cells: Cells, found: Users) -> list[str]:
    """Return for each element who does what with it, line by line, and the last value."""
    records = trace.accesses[found.access[found.order]]
    values = trace.values(records)
    columns = [records[name].tolist() for name in ("instruction", "kind", "array", "block", "thread")]
    made = []
    for n, (start, end) in enumerate(itertools.pairwise(found.starts.tolist())):
        groups: dict[tuple[int, ...], list[int]] = {}
        for at, *what in zip(range(start, end), *(column[start:end] for column in columns[:4]), strict=True):
            groups.setdefault(tuple(what), []).append(at)
        lines = [element(cells.array, cells.index(n)) + ("" if groups else ": not touched")]
        for (instruction, kind, array, block), which in list(groups.items())[:TOLD]:
            through = "" if array == cells.array.number else f" as {trace.arrays[array].name}"
            who = threads(trace, block, [columns[4][at] for at in which])
            where = line_name(trace, trace.instructions[instruction])
            last = "last " * (len(which) > 1) + value(values[which[-1]])
            lines.append(f"{DONE[kind]}{through} on {where} by {who}: {last}")
        more = len(groups) - TOLD
        made.append("\n".join(lines + [f"and {more} more"] * (more > 0)))
    return made
