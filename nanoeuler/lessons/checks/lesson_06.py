"""Lesson 6: a linear layer's gradients, and the ladder of the matrix product: coalesced, tiles, tiles of registers."""

from typing import Any

import numpy as np

from nanoeuler import simt
from nanoeuler.lessons.checking import call, different, empty, require, run_kernel, same, traced

SHAPES = ((1, 1, 1), (3, 5, 2), (8, 8, 8), (9, 17, 11), (1, 20, 13))  # rows of a, its columns, columns of b


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
    own |= {"rows": own["wrong"], "columns": own["wrong"], "tail": own["unwritten"]}
    _products(kernel, 16, TILES | own)
    trace = _counted(kernel, 16)
    reads = _reads(trace, ("ta", "tb"))
    require(
        reads <= 4096,
        f"right, but the tiles are read {reads:,} times for 4,096 products: read two elements of each into variables, "
        "and use each of them twice.",
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
