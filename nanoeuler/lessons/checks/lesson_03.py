"""Lesson 3: sectors of memory, coalesced kernels that scale rows and transpose, the least time that a card allows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nanoeuler import simt
from nanoeuler.console import plural
from nanoeuler.lessons.checking import (
    CheckFailed,
    call,
    different,
    empty,
    gradients_match,
    require,
    run_kernel,
    same,
    traced,
)

SECTOR = 32  # bytes


# Sectors --------------------------------------------------------------------------------------------------------------


def sectors(function: Any) -> None:
    """Check ``sectors(index, itemsize)``: how many sectors 32 lanes touch, and how much of the bytes they use."""
    lane = np.arange(32)
    shuffled = np.random.default_rng(3).permutation(4 * lane)
    for told, index, itemsize in (
        ("32 float64 of 8 bytes side by side", lane, 8),
        ("32 float32 side by side", lane, 4),
        ("every 32nd float32", 32 * lane, 4),
        ("every 4th float32, in any order", shuffled, 4),
        ("side by side from element 1 on", 1 + lane, 4),
        ("all lanes at element 9", np.full(32, 9), 4),
        ("32 bfloat16 of 2 bytes side by side", lane, 2),
        ("8 lanes, side by side", 8 + np.arange(8), 4),
    ):
        count, share = _two_numbers(call(function, index, itemsize), "sectors", "the count, and the efficiency")
        touched = index * itemsize // SECTOR
        right = len(set(touched.tolist()))
        same(count, right, f"{told}: the count", hints={"wrong": _miscounted(float(count), index, itemsize)})
        asked = len(set(index.tolist())) * itemsize
        hint = _misjudged(float(share), asked, right, index, itemsize)
        same(share, asked / (SECTOR * right), f"{told}: the efficiency", hints={"wrong": hint})


def _two_numbers(result: Any, name: str, what: str) -> tuple[Any, Any]:
    try:
        first, second = result
        float(first), float(second)
    except (TypeError, ValueError):
        raise CheckFailed(f"{name} returns {type(result).__name__}, and should return two numbers: {what}") from None
    return first, second


def _miscounted(count: float, index: np.ndarray, itemsize: int) -> str:
    """Return what may be behind a wrong number of sectors."""
    touched = index * itemsize // SECTOR
    mistakes: dict[float, str] = {
        len(index): "That is one for each lane: lanes that touch the same sector share it.",
        len(set((index // SECTOR).tolist())): "A sector is 32 bytes, not 32 elements: begin with the address in bytes.",
        int(touched.max() - touched.min()) + 1: "Sectors between the lanes that nobody touches are not moved.",
        len(set((index * itemsize // 128).tolist())): "A sector has 32 bytes; those are pieces of 128.",
    }
    return mistakes.get(count, "Which byte does each lane begin with, and in which sector does it lie?")


def _misjudged(share: float, asked: int, right: int, index: np.ndarray, itemsize: int) -> str:
    """Return what may be behind a wrong efficiency."""
    if np.isclose(share * asked, SECTOR * right):
        return "That is upside down: bytes asked for, divided by bytes moved."
    if np.isclose(share, len(index) * itemsize / (SECTOR * right)):
        return "Lanes that ask for the same element ask for its bytes once."
    return "Efficiency is bytes asked for, divided by bytes moved; each sector that is touched moves 32."


# Rows scaled ----------------------------------------------------------------------------------------------------------


def backward(function: Any) -> None:
    """Check ``backward(dout, a, x)``: dx and da of ``out[r, c] = a[r] * x[r, c]``."""
    for rows, columns in ((2, 3), (3, 3), (4, 1), (1, 5)):
        _gradients(function, rows, columns)


def _gradients(function: Any, rows: int, columns: int) -> None:
    a = different(rows, seed=1, dtype=np.float64, low=0.5)
    x, dout = (different(rows, columns, seed=n, dtype=np.float64) for n in (2, 3))
    result = call(function, dout, a, x)
    require(isinstance(result, (tuple, list)) and len(result) == 2, "backward should return two arrays: return dx, da")
    dx, da = result
    label = f"with {plural(rows, 'row')} of {columns}"
    require(np.shape(dx) == x.shape, f"dx has the shape {np.shape(dx)}, and should have that of x, {x.shape}")
    require(
        np.shape(da) == a.shape,
        f"da has the shape {np.shape(da)}, and should have that of a, {a.shape}: one number for each row",
    )
    hint = {"wrong": "Where x[r, c] moves by 1, out[r, c] moves by a[r]: row r has the factor a[r]."}
    gradients_match(lambda z: (dout * (a[:, None] * z)).sum(), x, dx, f"dx {label}", hints=hint)
    hint = {
        "wrong": "a[r] takes part in every column of row r: its gradient is the sum of what each of them asks for.",
        "scaled": "A sum over the columns, not their mean.",
    }
    gradients_match(lambda z: (dout * (z[:, None] * x)).sum(), a, da, f"da {label}", hints=hint)


def scale_rows(kernel: Any) -> None:
    """Check ``scale_rows(out, a, x)``: one block scales one row, and what it reads and writes is coalesced."""
    hints = {
        "out of bounds": "A row has x.shape[1] columns, and out has as many rows as there are blocks.",
        "race": "Each column is one thread's: a thread goes on by as many columns as its block has threads.",
        "unwritten": "A thread takes columns until the row ends: where does it begin, and how far is a step?",
        "tail": "Each row has a factor of its own, and may have more columns than its block has threads.",
        "wrong": "Row r has the factor a[r]; the row is that of the block.",
    }
    for rows, columns, threads in ((1, 1, 32), (3, 33, 64), (2, 200, 64), (5, 31, 96)):
        a, x = different(rows, seed=1, low=0.5), different(rows, columns)
        run_kernel(
            kernel,
            rows,
            threads,
            {"out": empty(rows, columns), "a": a, "x": x},
            expected={"out": a[:, None] * x},
            label=f"x of {rows} × {columns}, blocks of {threads}",
            hints=hints,
        )
    a, x = different(3, seed=1, low=0.5), different(3, 256)
    trace = traced(kernel, 3, 64, {"out": empty(3, 256), "a": a, "x": x})
    for array, action in (("x", "reads"), ("out", "writes")):
        _coalesced(trace, array, action)


# The transpose --------------------------------------------------------------------------------------------------------


def transpose(kernel: Any) -> None:
    """Check ``transpose(out, x)``: ``out[c, r] = x[r, c]``, with writes that are coalesced."""
    hints = {
        "out of bounds": "out has x.shape[1] rows and x.shape[0] columns. There are more threads than elements: "
        "which two comparisons keep the others out?",
        "transposed": "The first index is the row, the second the column: x[r, c] goes to out[c, r].",
        "race": "Each element is one thread's: which two numbers does cuda.grid(2) give?",
        "unwritten": "Every element of out has a thread of its own, wherever it lies in the grid.",
        "wrong": "x[r, c] goes to out[c, r].",
    }
    for rows, columns in ((1, 1), (5, 33), (40, 3), (33, 34)):
        x = different(rows, columns)
        run_kernel(
            kernel,
            _blocks_both_ways(x),
            (32, 8),
            {"out": empty(columns, rows), "x": x},
            expected={"out": x.T},
            label=f"x of {rows} × {columns}",
            hints=hints,
        )
    x = different(64, 32)
    trace = traced(kernel, _blocks_both_ways(x), (32, 8), {"out": empty(32, 64), "x": x})
    _coalesced(trace, "out", "writes")


def _blocks_both_ways(x: np.ndarray) -> tuple[int, int]:
    """Return blocks of (32, 8) that cover a matrix and its transpose."""
    longest = max(x.shape)
    return -(-longest // 32), -(-longest // 8)


# Coalescing -----------------------------------------------------------------------------------------------------------


def _coalesced(trace: simt.Trace, array: str, action: str) -> None:
    """Fail unless a kernel that gives right values moves no more sectors than it must.

    The least is each touched element's bytes once, in whole sectors: an array that is read twice costs twice.
    """
    moved = trace.numbers.totals.global_memory[array, action]
    touched = next(a for a in trace.numbers.arrays if a.name == array)
    needed = -(-touched.bytes // SECTOR)
    if moved.sectors <= needed:
        return
    per_warp = f"{moved.sectors_per_request:.3g} for each instruction of a warp, {moved.efficiency:.0%} of them used"
    why = "Each access is coalesced, but there are too many: once for each element is enough."
    if moved.sectors > moved.ideal_sectors:
        why = _neighbours(trace, array, action)
    raise CheckFailed(
        f"The values are right, but the kernel's {action} of {array} take {moved.sectors:,} sectors "
        f"where {needed:,} would do: {per_warp}.\n{why}"
    )


def _neighbours(trace: simt.Trace, array: str, action: str) -> str:
    """Return where two neighbouring lanes are in an array at their first access, and how far apart that is."""
    events = [
        next((e for e in trace.events(array=array, thread=n, block=0) if e.action == action), None) for n in (0, 1)
    ]
    if events[0] is None or events[1] is None:
        return "Let threads that are neighbours in threadIdx.x touch neighbours in memory."
    shape = next(a.shape for a in trace.numbers.arrays if a.name == array)
    first, second = (e.index for e in events if e is not None)
    apart = abs(int(np.ravel_multi_index(second, shape)) - int(np.ravel_multi_index(first, shape)))
    where = " and ".join(f"{array}[{', '.join(map(str, i))}]" for i in (first, second))
    if apart <= 1:
        return f"Threads 0 and 1 are at {where}, but not all of their warp are side by side."
    return (
        f"Threads 0 and 1 of a warp come to {where} together: {apart} elements apart.\n"
        "They should be side by side: what of the index is to move with threadIdx.x?"
    )


# The roofline ---------------------------------------------------------------------------------------------------------


def least_seconds(function: Any) -> None:
    """Check ``least_seconds(flops, moved, card)``: the least time that a card's arithmetic and memory allow."""
    for told, flops, moved, name in (
        ("1 GFLOP on 1 GB, T4", 1e9, 1e9, "T4"),
        ("1 TFLOP on 1 GB, T4", 1e12, 1e9, "T4"),
        ("1 TFLOP on 1 GB, H100 SXM", 1e12, 1e9, "H100 SXM"),
        ("a copy of 8 MB, RTX 4090", 0, 16e6, "RTX 4090"),
    ):
        card = simt.CARDS[name]
        arithmetic, memory = flops / card.peak, moved / card.bytes_per_second
        got = call(function, flops, moved, card)
        require(isinstance(got, (int, float, np.number)), f"{told}: it is {type(got).__name__}, and should be a number")
        hint = _mistimed(float(got), arithmetic, memory)
        same(got, max(arithmetic, memory), f"{told}: the least time in seconds", hints={"wrong": hint, "zero": hint})


def _mistimed(got: float, arithmetic: float, memory: float) -> str:
    """Return what may be behind a wrong time."""
    mistakes: Mapping[str, float] = {
        "That is the sum of the two: arithmetic and transfers go on at the same time.": arithmetic + memory,
        "That is the time of the arithmetic, and the transfers take longer.": arithmetic,
        "That is the time of the transfers, and the arithmetic takes longer.": memory,
    }
    for told, value in mistakes.items():
        if value and np.isclose(got, value):
            return told
    ratio = got / max(arithmetic, memory)
    if ratio > 0 and abs(np.log10(ratio)) > 2.5:
        return "That is off by a power of ten: card.peak and card.bytes_per_second are without giga or tera."
    return "How long would the arithmetic take alone, and the transfers alone? Both have to be done."
