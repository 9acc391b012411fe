"""Loads that repeat another: small kernels by hand, random ones against plain loops over the events of a trace."""

from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba import cuda, float32

from nanoeuler import simt
from nanoeuler.simt.traced.reuse import repeated_loads


def counts(kernel: Any, block: Any, *args: np.ndarray, grid: Any = 1) -> tuple[int, int, int]:
    """Return how many loads repeat their thread's, read back a store, repeat another thread's of the block."""
    found = repeated_loads(simt.trace(kernel, grid, block, args))
    assert not (found.by_thread & found.read_back).any()
    assert not ((found.by_thread | found.read_back) & found.in_block).any()
    return int(found.by_thread.sum()), int(found.read_back.sum()), int(found.in_block.sum())


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@cuda.jit
def twice(out, x):
    i = cuda.threadIdx.x
    out[i] = x[i] + x[i]


@cuda.jit
def running_sum(out, x):
    i = cuda.threadIdx.x
    for k in range(x.shape[0]):
        out[i] += x[k, i]


@cuda.jit
def stencil(out, x):
    i = cuda.threadIdx.x
    out[i] = x[i] + x[i + 1]


@cuda.jit
def changed(out, x):
    i = cuda.threadIdx.x
    a = x[i]
    x[i] = a + float32(1)
    cuda.syncthreads()
    out[i] = a + x[(i + 1) % cuda.blockDim.x]


@cuda.jit
def updated(out, x):
    i = cuda.threadIdx.x
    a = x[i]
    cuda.atomic.add(x, i, float32(1))
    out[i] = a + x[i]


@cuda.jit
def through_shared(out, x):
    s = cuda.shared.array(32, float32)
    i = cuda.threadIdx.x
    s[i] = x[i]
    cuda.syncthreads()
    out[i] = s[0] + s[0] + s[i]


def test_a_thread_loads_again() -> None:
    assert counts(twice, 8, floats(8), floats(8)) == (8, 0, 0)
    assert counts(twice, 8, floats(8), floats(8), grid=2) == (16, 0, 0)  # another block's loads are not before


def test_a_thread_reads_back_what_it_stored() -> None:
    assert counts(running_sum, 8, floats(8), floats(5, 8)) == (0, 32, 0)  # 5 loads of out[i], the first is new


def test_lanes_of_a_warp_instruction_load_together() -> None:
    """x[i + 1] is loaded behind x[i] of all lanes: 31 of 32 are known. Of 64 threads, the second warp's come later."""
    assert counts(stencil, 32, floats(32), floats(33)) == (0, 0, 31)
    # 64 threads: x[i] of the second warp is new, x[i + 1] is known but for x[64]
    assert counts(stencil, 64, floats(64), floats(65)) == (0, 0, 63)


def test_warps_come_one_after_the_other() -> None:
    @cuda.jit
    def first(out, x):
        i = cuda.threadIdx.x
        out[i] = x[0]

    assert counts(first, 32, floats(32), floats(1)) == (0, 0, 0)
    assert counts(first, 96, floats(96), floats(1)) == (0, 0, 64)


def test_a_write_makes_an_element_new() -> None:
    assert counts(changed, 8, floats(8), floats(8)) == (0, 0, 0)
    assert counts(updated, 8, floats(8), floats(8)) == (0, 0, 0)
    assert counts(changed, 1, floats(1), floats(1)) == (0, 1, 0)  # its own neighbour: reads back


def test_only_global_memory_counts() -> None:
    assert counts(through_shared, 32, floats(32), floats(32)) == (0, 0, 0)


def test_overlapping_arguments_are_one_memory() -> None:
    x = floats(9)

    @cuda.jit
    def both(out, a, b):
        i = cuda.threadIdx.x
        out[i] = a[i + 1] + b[i]

    assert counts(both, 8, floats(8), x, x[1:]) == (8, 0, 0)


@cuda.jit
def random_walk(x, y, read, write, wanted):
    """Each round a load of each array, and a store or an atomic for some threads."""
    t = cuda.threadIdx.x
    b = cuda.blockIdx.x
    for r in range(read.shape[0]):
        value = x[read[r, b, t]]
        value += y[read[r, b, t] // 2]
        if wanted[r, b, t] == 1:
            x[write[r, b, t]] = value
        elif wanted[r, b, t] == 2:
            cuda.atomic.add(x, write[r, b, t], value)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 66), st.integers(1, 2), st.integers(1, 3), st.integers(2, 12))
def test_against_plain_loops(seed: int, threads: int, blocks: int, rounds: int, size: int) -> None:
    random = np.random.default_rng(seed)
    read, write = random.integers(0, size, (2, rounds, blocks, threads))
    wanted = random.integers(0, 3, (rounds, blocks, threads)) * random.integers(0, 2, (rounds, 1, threads))
    trace = simt.trace(random_walk, blocks, threads, (floats(size), floats(size), read, write, wanted))
    found = repeated_loads(trace)
    expected = told_by_loops(trace)
    for array in "x", "y":
        chosen = trace.select(array=array)
        columns = found.by_thread, found.read_back, found.in_block
        assert [int(c[chosen].sum()) for c in columns] == [expected[array, n] for n in range(3)]


def told_by_loops(trace: simt.Trace) -> dict[tuple[str, int], int]:
    """Return the counts of each array, from its events: threads of one warp at one place go together."""
    told = {(array, n): 0 for array in ("x", "y") for n in range(3)}
    loaded: dict[Any, set] = {}  # element: threads that have loaded its value
    stored: dict[Any, Any] = {}  # element: the thread that stored its value
    everything = (e for e in trace.events() if e.array in "xy")
    for _, together in groupby(everything, key=lambda e: (e.block, e.thread[0] // 32, e.line, e.text, e.action)):
        events = list(together)
        for e in (e for e in events if e.action == "reads"):
            known, me = loaded.get((e.array, e.index), set()), (e.block, e.thread)
            if me in known:
                told[e.array, 0] += 1
            elif stored.get((e.array, e.index)) == me:
                told[e.array, 1] += 1
            elif any(block == e.block for block, _ in known):
                told[e.array, 2] += 1
        for e in events:
            element, me = (e.array, e.index), (e.block, e.thread)
            if e.action == "reads":
                loaded.setdefault(element, set()).add(me)
            else:
                alone = sum(other.index == e.index for other in events) == 1
                loaded[element] = set()
                stored[element] = me if e.action == "writes" and alone else None
    return told
