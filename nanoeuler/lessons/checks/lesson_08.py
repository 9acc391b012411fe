"""Lesson 8: batches of windows; the embedding's backward; the gather and the scatter-add as kernels."""

from typing import Any

import numpy as np

from nanoeuler.console import plural
from nanoeuler.lessons.checking import call, different, empty, require, run_kernel, same, traced


def batch(function: Any) -> None:
    """Check ``batch(tokens, starts, T)``: inputs and targets, each (B, T)."""
    tokens = different(50, dtype=np.int64, low=0, high=1000)
    for starts, T in (([0, 10, 7], 5), ([44], 5), ([3, 3], 1), ([0], 49)):
        got = call(function, tokens, np.array(starts), T)
        require(isinstance(got, tuple) and len(got) == 2, "batch returns two arrays: return inputs, targets")
        right = np.array([tokens[s : s + T] for s in starts]), np.array([tokens[s + 1 : s + T + 1] for s in starts])
        where = f"for starts {starts} and T = {T}"
        rows = "One row for each start: (number of starts, T)."
        hints = {"shape": rows, "transposed": rows, "wrong": "Row b begins at starts[b], and has T tokens in a row."}
        same(got[0], right[0], f"inputs {where}", hints=hints)
        shift = "A target is the token *after* its input: the same window, one place later."
        hints = {"shape": rows, "transposed": rows, "wrong": shift, "shifted": shift, "copied": shift}
        same(got[1], right[1], f"targets {where}", hints=hints, others={"inputs": right[0]})


def backward(function: Any) -> None:
    """Check ``backward(dy, ids, V)``: the gradient (V, C) of the table, each token's rows added up."""
    for ids, V in (([3, 0, 3, 2, 3], 7), ([4, 4, 4, 4], 5), ([0], 1), ([1, 2, 0], 3)):
        dy = different(len(ids), 3, dtype=np.float64)
        right = np.zeros((V, 3))
        np.add.at(right, ids, dy)
        last = np.zeros((V, 3))
        last[ids] = dy
        got = call(function, dy, np.array(ids), V)
        if len(set(ids)) < len(ids) and np.shape(got) == right.shape and np.allclose(got, last):
            _repeated(ids)
        hint = "Row v is the sum of the rows of dy where ids is v; a token that does not occur has a row of zeros."
        same(got, right, f"dW for the tokens {ids} of {V}", tolerance=1e-9, hints={"wrong": hint, "rows": hint})


def _repeated(ids: list[int]) -> None:
    """Fail with what goes wrong where a token occurs twice."""
    require(
        False,
        f"dW for the tokens {ids}: a token that occurs several times has the gradient of its last place only.\n"
        "dW[ids] += dy reads all rows, adds, and writes all back: of equal tokens the last one wins. "
        "np.add.at(dW, ids, dy) adds one after the other.",
    )


def embed(kernel: Any) -> None:
    """Check ``embed(out, ids, W)``: row n of out is row ids[n] of W."""
    for N, V, C in ((1, 1, 1), (5, 7, 3), (9, 11, 33), (3, 101, 40)):
        W = different(V, C)
        ids = different(N, dtype=np.int32, low=0, high=V) if N > 1 else np.zeros(1, np.int32)
        ids[0], ids[-1] = V - 1, 0
        run_kernel(
            kernel,
            (-(-C // 32), -(-N // 4)),
            (32, 4),
            {"out": empty(N, C), "ids": ids, "W": W},
            expected={"out": W[ids]},
            label=f"{plural(N, 'token')} of {V}, {plural(C, 'channel')}",
            hints={
                "out of bounds": "The grid sticks out at the right and below: guard channels and places.",
                "unwritten": "Some places have no thread: which of the two numbers of cuda.grid(2) is the channel?",
                "tail": "Some places have no thread: which of the two numbers of cuda.grid(2) is the channel?",
                "rows": "Row n of out is row ids[n] of W.",
                "wrong": "Row n of out is row ids[n] of W.",
            },
        )
    args = {"out": empty(4, 64), "ids": np.array([3, 1, 3, 0], np.int32), "W": different(5, 64)}
    trace = traced(kernel, (2, 1), (32, 4), args)
    lines = [line.global_memory for line in trace.numbers.lines.values()]
    sectors = sum(each.sectors for line in lines for (name, _), each in line.items() if name in ("W", "out"))
    require(
        sectors <= 64,
        f"right, but not coalesced: {sectors} sectors of W and out, and 64 would do. Neighbouring threads have to be "
        "neighbouring channels.",
    )


def scatter(kernel: Any) -> None:
    """Check ``scatter(dW, dy, ids)``: one thread for each element of dW adds what belongs to it, in order."""
    for ids, V, C in (([3, 0, 3, 2, 3], 7, 3), ([4, 4, 4, 4], 5, 33), ([0], 1, 1), ([1, 2, 0, 1], 3, 40)):
        dy = different(len(ids), C)
        right = np.zeros((V, C))
        np.add.at(right, ids, dy.astype(np.float64))
        run_kernel(
            kernel,
            (-(-C // 32), -(-V // 4)),
            (32, 4),
            {"dW": empty(V, C), "dy": dy, "ids": np.array(ids, np.int32)},
            expected={"dW": right.astype(np.float32)},
            label=f"the tokens {ids} of {V}, {plural(C, 'channel')}",
            orders=("forward", "reverse", "random"),
            deterministic=True,
            hints={
                "out of bounds": "The grid sticks out at the right and below: guard v and c. n goes over the places.",
                "race": "Each element of dW has a thread of its own; that of row v writes row v alone.",
                "race between blocks": "Each element of dW has a thread of its own; that of row v writes row v alone.",
                "unwritten": "dW comes with NaN in it. A token that occurs nowhere has zeros, to be written too.",
                "tail": "dW comes with NaN in it. A token that occurs nowhere has zeros, to be written too.",
                "wrong": "The thread of dW[v, c] adds dy[n, c] for every place n where ids[n] is v.",
            },
        )
