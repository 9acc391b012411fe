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
        everywhere = total - parts["the part of the maximum"] + dmax[:, None]
        require(
            columns == 1 or not np.allclose(got, everywhere),
            "dmax goes to the largest element of its row alone: the others change nothing, and get 0",
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
                "out of bounds": "The last block may have fewer than 64 elements of x: what does a thread without one "
                "bring? And s ends at s[63]: for which threads is t + step still in it?",
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
    turns = sum(banks.wavefronts for banks in shared)
    require(
        turns <= 32,
        f"the sum is right, and takes {turns} turns of shared memory, where six rounds of a tree take 21: let many "
        "threads add in each round",
    )


def warp_rows(kernel: Any) -> None:
    """Check ``warp_rows(out, x)``: one warp sums up one row, by shuffles."""
    hints = {
        "race": "Several lanes write one element: only one of them has the whole sum.",
        "wrong": "shfl_down brings the total of the lane that is step further on, and lane 0 ends with the sum.",
    }
    _row_sums(kernel, 32, hints)
    trace = traced(kernel, 1, 32, {"out": empty(1), "x": different(1, 40)})
    require(
        not any(array.scope == "shared" for array in trace.arrays),
        "the sums are right, and go through shared memory: within a warp, shuffles pass values without it",
    )


def block_rows(kernel: Any) -> None:
    """Check ``block_rows(out, x)``: one block of 128 threads sums up one row."""
    hints = {
        "race": "Each warp has a place of its own in partial. One warp writes there what another reads: what must lie "
        "between?",
        "wrong": "Each warp's lane 0 has its warp's sum; the first warp adds these.",
    }
    _row_sums(kernel, 128, hints)


def _row_sums(kernel: Any, threads: int, hints: dict[str, str]) -> None:
    """Check a kernel whose blocks of so many threads sum up a row each; ``hints`` has what only one exercise needs."""
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
                "out of bounds": "A row may have fewer columns than threads, or more: range(start, end, stride). And "
                "of partial sums there are fewer than lanes: what does a lane without one bring?",
                "race": hints["race"],
                "missing lanes": "Every lane named in the mask must come to the shuffle, those without an element too.",
                "barrier divergence": "The barrier must be where all threads come by.",
                "uninitialised read": "There are fewer warps than lanes: a lane without a partial sum takes 0.",
                "wrong": f"Each thread begins with its own column and goes on in steps of {threads}; then {threads} "
                f"sums become one. {hints['wrong']}",
            },
        )
    trace = traced(kernel, 1, threads, {"out": empty(1), "x": different(1, 320)})
    sectors = sum(line.global_memory["x", "reads"].sectors for line in trace.numbers.lines.values())
    require(
        sectors <= 40,
        f"the sums are right, but reading a row takes {sectors} sectors, and 40 would do: each element is to be read "
        "once, and neighbouring threads read neighbouring columns",
    )
