"""Lesson 1: a first op with its gradients, a first kernel, and a kernel with an index to mend."""

from typing import Any

import numpy as np

from nanoeuler.console import plural
from nanoeuler.lessons.checking import call, different, empty, require, run_kernel, same


def forward(function: Any) -> None:
    """Check ``forward(a, x)``: y = a x."""
    for n, a in ((5, -0.7), (1, 2.5)):
        x = different(n, dtype=np.float64)
        got = call(function, a, x)
        hint = {"wrong": "Multiply every element of x by a: NumPy does it without a loop.", "copied": "Where is a?"}
        same(got, a * x, f"y for a = {a} and {plural(n, 'element')}", hints=hint, others={"x": x})


def backward(function: Any) -> None:
    """Check ``backward(dy, a, x)``: the gradients da and dx of y = a x."""
    for n, a in ((5, -0.7), (1, 2.5)):
        x, dy = different(n, dtype=np.float64), different(n, seed=1, dtype=np.float64, low=0.2, high=3)
        got = call(function, dy, a, x)
        pair = isinstance(got, tuple) and len(got) == 2
        require(pair, "backward returns two things, the gradient of a and that of x: return da, dx")
        where = f"for {plural(n, 'element')}"
        summed = {"shape": "a takes part in every y[i], so what each asks for is added up: da is one number, a sum."}
        weighted = "When a grows by 1, y[i] grows by x[i], and the loss by dy[i] x[i]."
        same(got[0], (dy * x).sum(), f"da {where}", hints=summed | {"wrong": weighted})
        growth = "When x[i] grows by 1, y[i] grows by a, and the loss by dy[i] a."
        same(got[1], a * dy, f"dx {where}", hints={"wrong": growth, "scaled": growth, "copied": growth})


def scale(kernel: Any) -> None:
    """Check ``scale(out, a, x)``: out = a x, in one block with a thread for each element."""
    for n, a in ((8, -0.7), (1, 2.5), (33, 1.5), (100, 4.0)):
        x = different(n)
        run_kernel(
            kernel,
            1,
            n,
            {"out": empty(n), "a": np.float32(a), "x": x},
            expected={"out": np.float32(a) * x},
            label=f"{plural(n, 'element')}, one block of {plural(n, 'thread')}",
            hints={
                "unwritten": "Each thread writes the element that has its number: out[i].",
                "race": "All threads write the same element: the index has to be this thread's number.",
                "out of bounds": "The threads are numbered from 0, as the elements are: thread i has element i.",
                "copied": "This is x itself. Where is a?",
                "wrong": "out[i] is a times x[i].",
            },
        )


def turn_round(kernel: Any) -> None:
    """Check ``turn_round(out, x)``: the elements of x in reverse order, in one block."""
    for n in (1, 2, 7, 40):
        x = different(n)
        run_kernel(
            kernel,
            1,
            n,
            {"out": empty(n), "x": x},
            expected={"out": x[::-1]},
            label=plural(n, "element"),
            hints={
                "out of bounds": "With 7 elements the last index is 6. Which index does thread 0 read?",
                "negative index": "With 7 elements the last index is 6. Which index does thread 6 read?",
                "copied": "This is x as it was. Thread 0 has to read the last element, thread 1 the one before it.",
                "wrong": "Thread 0 has to read the last element, thread 1 the one before it.",
                "shifted": "The order is right, and one place off.",
            },
        )
