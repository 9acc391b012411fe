"""Lesson 4: a stencil's gradients; a stencil in shared memory; a scan with its race mended; a transpose."""

from typing import Any

import numpy as np

from nanoeuler.console import plural
from nanoeuler.lessons.checking import call, different, empty, require, run_kernel, same, traced


def _stencil(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return w[0] of the left neighbour, w[1] of the element, w[2] of the right one; beyond the ends there is 0."""
    wide = np.pad(x, 1)
    return w[0] * wide[:-2] + w[1] * wide[1:-1] + w[2] * wide[2:]


def backward(function: Any) -> None:
    """Check ``backward(dy, x, w)``: the gradients dx and dw of y[i] = w[0] x[i-1] + w[1] x[i] + w[2] x[i+1]."""
    w = np.array([0.5, 2.0, -0.75])
    for n in (6, 2, 1):
        x, dy = different(n, dtype=np.float64), different(n, seed=1, dtype=np.float64)
        got = call(function, dy, x, w)
        pair = isinstance(got, tuple) and len(got) == 2
        require(pair, "backward returns two things, the gradients of x and of w: return dx, dw")
        where = f"for {plural(n, 'element')}"
        unturned = _stencil(dy, w)
        if n > 1 and np.shape(got[0]) == unturned.shape and np.allclose(got[0], unturned):
            require(
                False,
                f"dx {where}: this is the forward again. x[i] is the *left* neighbour of y[i + 1]: w is turned round",
            )
        hint = {"wrong": "x[i] takes part in y[i - 1], y[i] and y[i + 1]: with which weight in each?"}
        same(got[0], _stencil(dy, w[::-1]), f"dx {where}", hints=hint)
        wide = np.pad(x, 1)
        right = np.array([(dy * wide[k : k + n]).sum() for k in range(3)])
        hint = {"wrong": "w[0] multiplies the left neighbour in every y[i]: dw[0] is the sum of dy[i] x[i - 1]."}
        same(got[1], right, f"dw {where}", hints=hint | {"reversed": hint["wrong"]})


def stencil(kernel: Any) -> None:
    """Check ``stencil(out, x, w)``: blocks of 32 threads, 34 elements of shared memory."""
    w = np.array([0.5, 2.0, -0.75], np.float32)
    for n in (1, 31, 32, 33, 100):
        x = different(n)
        run_kernel(
            kernel,
            -(-n // 32),
            32,
            {"out": empty(n), "x": x, "w": w},
            expected={"out": _stencil(x, w)},
            label=plural(n, "element"),
            hints={
                "race": "A thread reads what its neighbour puts into shared memory: when is that there?",
                "out of bounds": "Beyond both ends of x there is nothing: put 0 there. s has the elements 0 to 33 in "
                "every block: its index is made of t, not of i.",
                "negative index": "In x, element -1 does not exist: in its place in s there is 0. In s, this thread's "
                "own element is s[t + 1], and its left neighbour s[t].",
                "uninitialised read": "All 34 elements of s have to be written: the threads' own 32, and both ends.",
                "barrier divergence": "Every thread must come to the barrier, those past the end of x too.",
                "wrong": "s[t] is the left neighbour of s[t + 1], which is this thread's own. Where a block ends, s[0] "
                "and s[33] count: x[i - 1] of its first thread, x[i + 1] of its last.",
            },
        )
    trace = traced(kernel, 2, 32, {"out": empty(64), "x": different(64), "w": w})
    reads = trace.numbers.lines.values()
    fetched = sum(
        traffic.sectors for line in reads for (a, k), traffic in line.global_memory.items() if (a, k) == ("x", "reads")
    )
    require(fetched <= 12, f"right, but x is read from global memory several times: {fetched} sectors, and 10 would do")


def scan(kernel: Any) -> None:
    """Check ``scan(out, x)``: the running sum of up to 64 elements, in one block of 64 threads."""
    for n in (64, 63, 33, 1):
        x = different(n, low=0.1)
        run_kernel(
            kernel,
            1,
            64,
            {"out": empty(n), "x": x},
            expected={"out": np.cumsum(x)},
            label=plural(n, "element"),
            orders=("forward", "reverse", "random"),
            hints={
                "race": "Some thread reads an element that another one changes, in the same round or in the next. "
                "Reading and changing have to be apart, by a barrier each time.",
                "barrier divergence": "Every thread must come to every barrier: put none inside an if.",
                "out of bounds": "A thread with t < step has nobody step places to its left.",
                "negative index": "A thread with t < step has nobody step places to its left.",
                "wrong": "After the round with step 1, s[t] is the sum of two elements; with step 2, of four.",
            },
        )


def transpose(kernel: Any) -> None:
    """Check ``transpose(out, x)``: by tiles of 32 by 32, coalesced both ways, without bank conflicts."""
    for rows, columns in ((32, 32), (1, 1), (31, 33), (40, 5), (33, 64)):
        x = different(rows, columns)
        run_kernel(
            kernel,
            (-(-columns // 32), -(-rows // 32)),
            (32, 32),
            {"out": empty(columns, rows), "x": x},
            expected={"out": x.T},
            label=f"{plural(rows, 'row')} of {columns}",
            orders=("reverse",),
            hints={
                "race": "A thread reads from the tile what another one wrote: when is that there?",
                "out of bounds": "Two guards: one for reading x, one for writing out, whose rows are the columns of x.",
                "uninitialised read": "This element of the tile was never written. Is the tile read turned round? And "
                "are both guards right, that of x and that of out?",
                "barrier divergence": "Every thread must come to the barrier: it stands in no if.",
                "unwritten": "Some elements of out were never written: is the guard for writing that of out?",
                "transposed": "Is the tile read turned round?",
                "copied": "This is x as it was: is the tile read turned round?",
                "wrong": "The tile whose corner is (row, column) in x has its corner at (column, row) in out.",
            },
        )
    trace = traced(kernel, (2, 1), (32, 32), {"out": empty(64, 32), "x": different(32, 64)})
    lines = trace.numbers.lines.values()
    traffic = [each for line in lines for each in line.global_memory.values()]
    sectors, ideal = sum(each.sectors for each in traffic), 2 * 32 * 64 * 4 // 32
    require(
        sectors <= ideal,
        f"right, but not coalesced: {sectors:,} sectors, and {ideal} would do. threadIdx.x has to run along a row "
        "both of x and of out; only the tile is read the other way.",
    )
    conflicts = sum(line.banks.wavefronts - line.banks.ideal_wavefronts for line in lines)
    require(
        conflicts == 0,
        f"right and coalesced, but {conflicts:,} turns of shared memory are lost to bank conflicts: a column of the "
        "tile lies in one bank. Make its rows one element longer.",
    )
