"""Lesson 5: gradients of reductions; sums by a tree in shared memory, by shuffles in a warp, by a block of warps."""

from typing import Any

import numpy as np

from nanoeuler.console import plural
from nanoeuler.lessons.checking import call, different, empty, require, run_kernel, same, traced


def backward(function: Any) -> None:
    """Check ``backward(dsum, dmean, dmax, x)``: the gradient of x by a sum, a mean and a maximum of each row."""
    for rows, columns in ((3, 5), (4, 7), (1, 1)):
        x = different(rows, columns, dtype=np.float64)
        dsum, dmean, dmax = (different(rows, seed=n, dtype=np.float64) for n in (1, 2, 3))
        got = call(function, dsum, dmean, dmax, x)
        largest = x == x.max(axis=1, keepdims=True)
        parts = {
            "the part of the sum": np.broadcast_to(dsum[:, None], x.shape),
            "the part of the mean": np.broadcast_to(dmean[:, None] / columns, x.shape),
            "the part of the maximum": dmax[:, None] * largest,
        }
        require(np.shape(got) == x.shape, f"dx has the shape {np.shape(got)}, and should have that of x, {x.shape}")
        total = sum(parts.values())
        for left_out, part in parts.items():
            if columns > 1 and np.allclose(got, total - part):
                require(False, f"{left_out} is missing in dx, with {plural(rows, 'row')} of {columns}")
        undivided = total + parts["the part of the mean"] * (columns - 1)
        require(
            columns == 1 or not np.allclose(got, undivided),
            f"a mean of {columns} numbers gives each of them 1/{columns} of dmean",
        )
        hint = {"wrong": "Each row has its own dsum, dmean and dmax: [:, None] makes a column of them."}
        same(got, total, f"dx with {plural(rows, 'row')} of {columns}", tolerance=1e-9, hints=hint)


def tree(kernel: Any) -> None:
    """Check ``tree(out, x)``: blocks of 64 threads, each writes the sum of its 64 elements."""
    for n in (1, 63, 64, 65, 200):
        x = different(n)
        blocks = -(-n // 64)
        padded = np.zeros(64 * blocks, np.float32)
        padded[:n] = x
        run_kernel(
            kernel,
            blocks,
            64,
            {"out": empty(blocks), "x": x},
            expected={"out": padded.reshape(blocks, 64).sum(axis=1)},
            label=plural(n, "number"),
            deterministic=True,
            hints={
                "out of bounds": "The last block may have fewer than 64 elements: what is a thread without one to add?",
                "race": "In each round a thread reads what another wrote in the round before.",
                "barrier divergence": "Every thread of the block must come to the barrier, those that add nothing too.",
                "uninitialised read": "A thread without an element must write something that changes no sum.",
                "wrong": "Follow 64 numbers by hand: after the first round, which elements hold what?",
            },
        )
    trace = traced(kernel, 1, 64, {"out": empty(1), "x": different(64)})
    shared = [line.banks for line in trace.numbers.lines.values() if line.banks.wavefronts]
    conflicts = sum(banks.wavefronts - banks.ideal_wavefronts for banks in shared)
    require(conflicts == 0, f"the sum is right, with {conflicts} bank conflicts: let neighbours in t read neighbours")


def warp_rows(kernel: Any) -> None:
    """Check ``warp_rows(out, x)``: one warp sums up one row, by shuffles."""
    _row_sums(kernel, 32)
    trace = traced(kernel, 1, 32, {"out": empty(1), "x": different(1, 40)})
    require(
        not any(array.scope == "shared" for array in trace.arrays),
        "the sums are right, and go through shared memory: within a warp, shuffles pass values without it",
    )


def block_rows(kernel: Any) -> None:
    """Check ``block_rows(out, x)``: one block of 128 threads sums up one row."""
    _row_sums(kernel, 128)


WARP = "shfl_down brings the total of the lane that is step further on, and lane 0 ends with the sum."
BLOCK = "Each warp's lane 0 has its warp's sum; the first warp adds these."


def _row_sums(kernel: Any, threads: int) -> None:
    for rows, columns in ((1, 1), (2, 31), (3, 33), (2, 128), (2, 301)):
        x = different(rows, columns)
        run_kernel(
            kernel,
            rows,
            threads,
            {"out": empty(rows), "x": x},
            expected={"out": x.sum(axis=1)},
            label=f"{plural(rows, 'row')} of {columns}",
            tolerance=2e-5,
            deterministic=True,
            orders=("forward", "reverse", "random"),
            hints={
                "out of bounds": "A row may have fewer columns than threads, or more: range(start, end, stride).",
                "race": "One warp writes what another reads: what must lie between?",
                "missing lanes": "Every lane named in the mask must come to the shuffle, those without an element too.",
                "barrier divergence": "The barrier must be where all threads come by.",
                "uninitialised read": "There are fewer warps than lanes: a lane without a partial sum takes 0.",
                "wrong": f"Each thread adds every {threads}th element from its own on; then {threads} sums become one. "
                + (WARP if threads == 32 else BLOCK),
            },
        )
