"""Lesson 6: a linear layer's gradients, the ladder of the matrix product (coalesced, tiles, registers), the layer."""

from typing import Any

import numpy as np

from nanoeuler import simt
from nanoeuler.lessons.checking import call, different, empty, require, run_kernel, same, traced

#: Rows of a, its columns, columns of b.
SHAPES = ((1, 1, 1), (3, 5, 2), (8, 8, 8), (9, 17, 11), (1, 20, 13), (5, 1, 9), (3, 9, 17), (17, 3, 2))


def backward(function: Any) -> None:
    """Check ``backward(dy, x, W)``: dx, dW and db of y = x Wᵀ + b."""
    for N, I, O in ((4, 3, 2), (1, 5, 3), (3, 1, 1)):
        x, W = different(N, I, dtype=np.float64), different(O, I, seed=1, dtype=np.float64)
        dy = different(N, O, seed=2, dtype=np.float64)
        got = call(function, dy, x, W)
        require(isinstance(got, tuple) and len(got) == 3, "backward returns three arrays: return dx, dW, db")
        where = f"for x {x.shape} and W {W.shape}"
        shapes = "Of the two matrices, which order and which transpose give this shape?"
        for name, result, right, wrong in (
            ("dx", got[0], dy @ W, "dx[n, i] is the sum over o of dy[n, o] W[o, i]."),
            ("dW", got[1], dy.T @ x, "dW[o, i] is the sum over n of dy[n, o] x[n, i]."),
            ("db", got[2], dy.sum(axis=0), "db[o] is the sum over the rows n of dy[n, o]."),
        ):
            hints = {"shape": f"{wrong} {shapes}", "transposed": f"{wrong} {shapes}", "wrong": wrong, "scaled": wrong}
            same(result, right, f"{name} {where}", tolerance=1e-9, hints=hints)


def product(kernel: Any) -> None:
    """Check ``product(c, a, b)``: one thread an element of c, blocks of 8 by 8, coalesced."""
    _products(
        kernel,
        8,
        {
            "out of bounds": "Blocks stick out below and at the right, and k goes to the columns of a.",
            "unwritten": "Some elements have no thread: which of the two numbers of cuda.grid(2) is the row?",
            "tail": "Some elements have no thread: which of the two numbers of cuda.grid(2) is the row?",
            "rows": "Some elements have no thread: which of the two numbers of cuda.grid(2) is the row?",
            "columns": "Some elements have no thread: which of the two numbers of cuda.grid(2) is the column?",
            "wrong": "c[row, column] is the sum over all k of a[row, k] b[k, column].",
        },
    )
    trace = _counted(kernel, 8)
    sectors = _sectors(trace)
    require(
        sectors <= 800,
        f"right, but not coalesced: {sectors:,} sectors of 32 bytes, and 672 would do. Neighbouring threads are "
        "neighbours along x: along x let the column run, for rows of b and of c lie along the columns.",
    )


def tiled(kernel: Any) -> None:
    """Check ``tiled(c, a, b)``: tiles of 8 by 8 in shared memory, used by the whole block."""
    _products(kernel, 8, TILES)
    reads = _reads(_counted(kernel, 8), ("a", "b"))
    require(
        reads <= 1024,
        f"right, but a and b are read {reads:,} times from global memory, and 1,024 would do: read each element of a "
        "tile once, and multiply from the tiles.",
    )


TILES = {
    "race": "A thread reads what others put into the tiles, and puts new ones in their place in the next round: two "
    "barriers.",
    "out of bounds": "The tiles stick out of a and b: put 0 where there is no element. Three guards: a, b and c.",
    "uninitialised read": "Each element of a tile has to be written, with 0 where a or b has none.",
    "barrier divergence": "Every thread must come to the barriers, those that have no element of c too.",
    "tail": "Is the last tile along k there, when K is no multiple of 8?",
    "unwritten": "Some elements of c are never written: is the last guard that of c?",
    "wrong": "total is over all tiles along k: it begins once, before the first of them.",
}


def registers(kernel: Any) -> None:
    """Check ``registers(c, a, b)``: 8 by 8 threads for 16 by 16 elements, 2 by 2 for each thread."""
    own = {"unwritten": "A thread has four elements: rows row and row + 8, columns column and column + 8."}
    own |= {"wrong": "c01 is that of the first row and the second column: a0 times b1. All four sums go over all k."}
    own |= {"rows": own["wrong"], "columns": own["wrong"]}
    own |= {"tail": "A thread has four elements, two of them 8 rows below: each has a sum of its own, over all k."}
    _products(kernel, 16, TILES | own)
    trace = _counted(kernel, 16)
    reads = _reads(trace, ("ta", "tb"))
    require(
        reads <= 4096,
        f"right, but the tiles are read {reads:,} times for 4,096 products: read two elements of each into variables, "
        "and use each of them twice.",
    )


def layer(kernel: Any) -> None:
    """Check ``layer(y, x, W, b)``: y = x Wᵀ + b by tiles of 8 by 8, W read along its rows, no column in one bank."""
    hints = TILES | {
        "out of bounds": "The tiles stick out of x and W, the block out of y: put 0 where W has no such row or column.",
        "uninitialised read": "A row of wt has 8 elements that are written, one for each i of the tile.",
        "tail": "Is the last tile along i there, when I is no multiple of 8?",
        "unwritten": "Some elements of y are never written: is the last guard that of y?",
    }
    differences = ("wrong", "transposed", "scaled", "rows", "columns", "shifted")
    sums = dict.fromkeys(differences, "Without b, y[n, o] is the sum of x[n, i] W[o, i] over all tiles along i.")
    bias = dict.fromkeys(differences, "Without b it is right. b[o] is added to y[n, o], once, after all tiles.")
    for N, I, O in ((3, 5, 2), (9, 17, 11)):
        _layer(kernel, N, I, O, np.zeros(O, np.float32), ", b all 0", hints | sums)
    for N, I, O in SHAPES:
        _layer(kernel, N, I, O, different(O, seed=2, low=1.0, high=2.0), "", hints | bias)
    x, W, b = different(16, 16), different(16, 16, seed=1), different(16, seed=2)
    numbers = traced(kernel, (2, 2), (8, 8), {"y": empty(16, 16), "x": x, "W": W, "b": b}).numbers
    sectors = sum(t.sectors for (array, _), t in numbers.totals.global_memory.items() if array == "W")
    require(
        sectors <= 64,
        f"right, but W is read in {sectors:,} sectors of 32 bytes, and 64 would do: read each element once for a "
        "block, and let tx run along a row of W, for there the elements lie side by side.",
    )
    banks = numbers.totals.banks
    require(
        banks.conflicts <= 64,
        f"right, but shared memory needs {banks.conflicts:,} turns more than the {banks.ideal_wavefronts:,} it would "
        "take without bank conflicts: threads 0 to 7 read a column of wt. How long should its rows be, so that no two "
        "of them meet in a bank?",
    )


def _layer(kernel: Any, N: int, I: int, O: int, b: np.ndarray, told: str, hints: dict[str, str]) -> None:
    x, W = different(N, I), different(O, I, seed=1)
    run_kernel(
        kernel,
        (-(-O // 8), -(-N // 8)),
        (8, 8),
        {"y": empty(N, O), "x": x, "W": W, "b": b},
        expected={"y": (x.astype(np.float64) @ W.T + b).astype(np.float32)},
        label=f"x {N} by {I}, W {O} by {I}{told}",
        deterministic=True,
        hints=hints,
    )


def _products(kernel: Any, tile: int, hints: dict[str, str]) -> None:
    for M, K, N in SHAPES:
        a, b = different(M, K), different(K, N, seed=1)
        run_kernel(
            kernel,
            (-(-N // tile), -(-M // tile)),
            (8, 8),
            {"c": empty(M, N), "a": a, "b": b},
            expected={"c": (a.astype(np.float64) @ b).astype(np.float32)},
            label=f"a {M} by {K}, b {K} by {N}",
            deterministic=True,
            hints=hints,
        )


def _counted(kernel: Any, tile: int) -> "simt.Trace":
    """Return the trace of a product of two matrices of 16 by 16."""
    grid = (16 // tile, 16 // tile)
    return traced(kernel, grid, (8, 8), {"c": empty(16, 16), "a": different(16, 16), "b": different(16, 16, seed=1)})


def _sectors(trace: "simt.Trace") -> int:
    return sum(line.traffic.sectors for line in trace.numbers.lines.values())


def _reads(trace: "simt.Trace", arrays: tuple[str, ...]) -> int:
    """Return how often the elements of some arrays are read, the most for a name that there is."""
    there = {array.name for array in trace.arrays}
    return sum(int(trace.select(array=name, kind=0).sum()) for name in arrays if name in there)
