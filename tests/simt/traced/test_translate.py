"""Basic blocks of a traced kernel: where they begin and what is in them; the places in the source that are recorded."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba import cuda, float32
from simt.traced import kernels

from nanoeuler import simt

X = np.arange(6, dtype=np.float32)


def blocks(found: simt.Trace, kernel: Any) -> list[tuple[str, str, list[int]]]:
    """Return function, kind and lines (counted from the function's first) of each basic block."""
    first = {
        name: function.py_func.__code__.co_firstlineno
        for name, function in {kernel.py_func.__name__: kernel, **CALLED}.items()
    }
    return [
        (b.function, b.kind, [s.line - first[b.function] for s in b.statements])
        for b in found.basic_blocks
        if b.kind != "call"
    ]


CALLED = {"clipped": kernels.clipped}


def test_blocks_begin_at_branches_loops_and_where_lanes_may_have_left() -> None:
    found = simt.trace(kernels.ways, 1, 9, (np.zeros(7, np.float32), X))
    assert blocks(found, kernels.ways) == [
        ("ways", "function", [3, 4]),
        ("ways", "if", [5]),
        ("ways", "after", [6, 10]),  # the line of the `while` is in its test
        ("ways", "loop", [8, 9]),
        ("ways", "test", [7]),
        ("ways", "if", [11]),
        ("ways", "else", [13]),
        ("clipped", "function", [3]),
        ("clipped", "if", [4]),
        ("clipped", "after", [5]),
    ]


def test_a_call_is_a_block_of_its_own_at_each_of_its_places() -> None:
    found = simt.trace(kernels.ways, 1, 9, (np.zeros(7, np.float32), X))
    assert [b.function for b in found.basic_blocks if b.kind == "call"] == ["clipped", "clipped"]
    parents = {found.executions[e][1] for e, (_, b, _) in enumerate(found.executions) if e and b == 0}
    assert parents == {0}


def test_places_are_told_as_they_stand_in_the_source() -> None:
    c, a, b = np.ones((3, 4, 4), np.float32)
    found = simt.trace(kernels.product, 1, (4, 4), (c, a, b))
    texts = [i.text for i in found.instructions if i.text.startswith(("ta", "tb", "a[", "b[", "c[", "cuda"))]
    assert texts == [
        *("a[row, start + tx]", "ta[ty, tx]", "b[start + ty, column]", "tb[ty, tx]", "cuda.syncthreads()"),
        *("ta[ty, k]", "tb[k, tx]", "cuda.syncthreads()", "c[row, column]"),
    ]


@cuda.jit
def chosen(out, x):
    """Load in a conditional expression, in a chain of comparisons, and behind ``and``."""
    i = cuda.threadIdx.x
    out[i] = x[i] if i > 1 else x[0]
    if i > 0 and x[i] > float32(1) and float32(0) < x[i] < float32(4):
        out[i] += x[i]


def test_lanes_that_do_not_come_to_a_part_of_an_expression_are_not_there() -> None:
    found = simt.trace(chosen, 1, 6, (np.zeros(6, np.float32), X))
    lanes = [
        sorted(found.accesses["thread"][found.accesses["instruction"] == i.number].tolist())
        for i in found.instructions
        if i.text in ("x[i]", "x[0]")
    ]
    assert lanes == [[2, 3, 4, 5], [0, 1], [1, 2, 3, 4, 5], [2, 3, 4, 5], [2, 3]]


@cuda.jit
def endless(out):
    """Wait for what never comes."""
    while cuda.atomic.cas(out, 0, 1, 2) != 1:
        pass


def test_a_kernel_that_does_not_end_is_told_with_what_it_did() -> None:
    found = simt.trace(endless, 1, 2, (np.zeros(1, np.int32),))
    assert [f.kind for f in found.faults] == ["deadlock"]
    assert len(found.accesses) > 100
