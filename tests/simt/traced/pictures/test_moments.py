"""Moments and phases of blocks, against statements counted by hand and by plain loops over the visits."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from simt.traced.pictures import kernels
from simt.traced.pictures.reading import line_of

from nanoeuler import simt
from nanoeuler.simt.traced.pictures.moments import Moments, moments


def floats(count: int) -> np.ndarray:
    return np.zeros(count, np.float32)


def lines(found: Moments, warp: int, phase: int) -> list[tuple[int, int]]:
    """Return line and number of lanes of each moment, the line counted from the kernel's first statement."""
    here = (found.warp == warp) & (found.phase == phase)
    assert found.place[here].tolist() == list(range(here.sum()))
    return list(zip(found.line[here].tolist(), found.lanes[here].sum(1).tolist(), strict=True))


def test_uneven_warps_by_hand() -> None:
    found, stops = moments(simt.trace(kernels.uneven, 1, 64, (floats(64),)), 0)
    first = line_of(kernels.uneven, "i = cuda.threadIdx.x")
    head = [(first, 32), (first + 1, 32), (first + 2, 32)]
    body = [(first + 2, lanes) for lanes in (24, 16, 8)]
    rounds = [pair for line, lanes in body for pair in ((line, lanes), (line + 1, lanes))]
    assert lines(found, 0, 0) == [*head, *rounds, (first + 4, 32)]
    whole = [(first + 2, 32), (first + 3, 32)] * 4
    assert lines(found, 1, 0) == [*head, *whole, *rounds, (first + 4, 32)]
    for warp in (0, 1):
        assert lines(found, warp, 1) == [(first + n, c) for n, c in ((5, 32), (6, 16), (7, 16), (9, 16), (10, 32))]
        assert lines(found, warp, 2) == [(first + 11, 32)]
    assert [(s.warp, s.phase, s.place, s.passed, len(s.lanes)) for s in stops] == [
        (0, 0, 9, True, 32),
        (0, 1, 4, True, 32),
        (1, 0, 17, True, 32),
        (1, 1, 4, True, 32),
    ]
    assert all(s.barrier for s in stops)


def test_threads_that_wait_in_vain() -> None:
    found, stops = moments(simt.trace(kernels.parted, 1, 70, (floats(70),)), 0)
    first = line_of(kernels.parted, "i = cuda.threadIdx.x")
    assert lines(found, 0, 0) == [(first, 32), (first + 1, 32), (first + 2, 32), (first + 3, 3), (first + 4, 29)]
    assert lines(found, 2, 0) == [(first, 6), (first + 1, 6), (first + 2, 6), (first + 4, 6)]
    (stop,) = stops
    assert (stop.warp, stop.place, stop.passed, stop.lanes, stop.operation) == (0, 3, False, (0, 1, 2), "syncthreads")
    found, stops = moments(simt.trace(kernels.missing, 1, 32, (floats(32),)), 0)
    assert [(s.operation, s.passed, s.barrier, s.lanes) for s in stops] == [
        ("shfl_sync", False, False, (0, 1, 2, 3)),
        ("syncthreads", False, True, tuple(range(4, 32))),
    ]


def test_a_barrier_in_a_function() -> None:
    found, stops = moments(simt.trace(kernels.early, 1, 40, (floats(40),)), 0)
    call, inside = line_of(kernels.early, "= waiting("), line_of(kernels.waiting, "out[i] += 1")
    assert lines(found, 0, 0)[1:] == [(call, 32), (inside - 1, 32), (inside, 8), (inside + 1, 32)]
    assert lines(found, 0, 1) == [(inside + 2, 32), (call + 1, 32), (call + 2, 16), (call + 3, 16)]
    assert [(s.warp, s.place, len(s.lanes)) for s in stops] == [(0, 4, 32), (1, 3, 8)]


@pytest.mark.parametrize(
    ("kernel", "block", "args"),
    [
        ("many_barriers", 64, (floats(64), 7)),
        ("row_sum", 96, (floats(3), np.ones((3, 250), np.float32))),
        ("exchanged", 32, (floats(32), floats(32))),
        ("copy", 33, (floats(40), floats(40))),
        ("nothing", (2, 3, 4), (floats(1),)),
    ],
)
def test_each_thread_runs_what_it_came_to(kernel: str, block: Any, args: tuple) -> None:
    trace = simt.trace(getattr(kernels, kernel), 3, block, args)
    for number in trace.blocks:
        found, stops = moments(trace, number)
        ran: Counter[int] = Counter()
        for visit in trace.visits[trace.visits["block"] == number]:
            basic = trace.basic_blocks[trace.executions[visit["execution"]][1]]
            ran[int(visit["thread"])] += len(basic.statements)
        drawn: Counter[int] = Counter()
        for warp, lanes in zip(found.warp.tolist(), found.lanes, strict=True):
            drawn.update((32 * warp + np.flatnonzero(lanes)).tolist())
        assert drawn == ran
        own = [w for w in trace.waits if w.block == number]
        assert sum(len(s.lanes) for s in stops) == len(own)
        assert Counter((s.warp, s.phase, lane) for s in stops if s.barrier for lane in s.lanes) == Counter(
            (w.thread // 32, w.phase, w.thread % 32) for w in own if w.operation == "syncthreads"
        )
        for stop in stops:  # a wait belongs to the statement that it stands in
            here = (found.warp == stop.warp) & (found.phase == stop.phase) & (found.place == stop.place)
            assert found.line[here].tolist() == [trace.instructions[stop.instruction].line]
            assert found.lanes[here][0, list(stop.lanes)].all()


def test_nothing_recorded() -> None:
    trace = simt.trace(kernels.copy, 1, 64, (floats(64), floats(64)), warps=1)
    found, _ = moments(trace, 0)
    assert set(found.warp.tolist()) == {1}
