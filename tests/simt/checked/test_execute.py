"""The checked executor as a whole: what it reports, in which words, and that it leaves right kernels alone."""

import math
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numba import cuda, float32

from nanoeuler.errors import UserError
from nanoeuler.simt import faults
from nanoeuler.simt.checked import scalars
from nanoeuler.simt.checked.execute import collect_faults, run_checked
from nanoeuler.simt.checked.memory import mark_written, never_written
from nanoeuler.simt.faults import KernelFaults, UnsupportedError
from nanoeuler.simt.launch import ORDERS, launch_shape

TILE = 8


@cuda.jit
def product(out, a, b):
    tile_a = cuda.shared.array((TILE, TILE), float32)
    tile_b = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        tile_a[y, x] = a[row, start + x] if row < a.shape[0] and start + x < a.shape[1] else 0
        tile_b[y, x] = b[start + y, column] if start + y < b.shape[0] and column < b.shape[1] else 0
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


def matrices(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an output of (m, n) and two factors."""
    generator = np.random.default_rng(0)
    factors = [generator.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n))]
    return np.zeros((m, n), np.float32), factors[0], factors[1]


@pytest.mark.parametrize("order", ORDERS)
def test_a_right_kernel_is_run_and_nothing_is_said(order: Any) -> None:
    """A tiled product with ragged edges."""
    out, a, b = matrices(11, 13, 10)
    run_checked(product, launch_shape((2, 2), (TILE, TILE), 0, order), (out, a, b))
    np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)


def float64s(out, x, n):
    i = cuda.threadIdx.x
    value = x[i] * 0.1  # fault
    best = -math.inf
    best = max(best, value)
    total = 0.0
    total += x[i]  # fault
    part = 1 / n  # fault
    out[i] = float32(part) * n  # fault
    out[i] += float32(math.sqrt(n))  # fault
    if x[i] > 0.0 and x[i] < 0.1:  # fault
        out[i] = 0.5
    total = total * 2


def marked(kernel: Any) -> list[int]:
    """Return the lines of a kernel that are marked as faults."""
    import inspect

    lines, first = inspect.getsourcelines(kernel)
    return [first + n for n, text in enumerate(lines) if "# fault" in text]


def test_float64_is_told_where_it_begins() -> None:
    """Each line on which float64 comes of float32 or integers, and none after it."""
    arguments = np.zeros(2, np.float32), np.ones(2, np.float32), np.int32(3)
    found = collect_faults(float64s, launch_shape(1, 2), arguments)
    assert {f.kind for f in found} == {faults.FLOAT64}
    assert [f.line for f in found] == marked(float64s)
    assert "`*` of float32 and a float64 number is float64" in found[0].message


def scale(out, x, factor):
    i = cuda.threadIdx.x
    out[i] = x[i] * factor


def widened(out, x, factor):
    i = cuda.threadIdx.x
    out[i] = np.float64(x[i]) * factor


def test_float64_arguments() -> None:
    """A Python float beside float32 arrays creeps in; beside a float64 array, or cast by name, it is meant."""
    x, out = np.ones(2, np.float32), np.ones(2, np.float32)
    launch = launch_shape(1, 2)
    assert [f.kind for f in collect_faults(scale, launch, (out, x, 0.1))] == [faults.FLOAT64]
    assert collect_faults(scale, launch, (out, x, np.float32(0.1))) == []
    assert collect_faults(scale, launch, (out.astype(np.float64), x, 0.1)) == []
    assert collect_faults(widened, launch, (out, x, 0.1)) == []


def several(out):
    i = cuda.threadIdx.x
    out[i + 1] = 1
    out[i - 1000] = 1
    cuda.syncthreads()
    out[0] = 1
    cuda.syncwarp(1)


def test_all_that_is_wrong_is_told_at_once() -> None:
    """What is only noted, and at last what ends the launch; the message shows each with what to do."""
    with pytest.raises(KernelFaults, match="4 faults") as caught:
        run_checked(several, launch_shape(1, 32), (np.zeros(32, np.int32),))
    kinds = [f.kind for f in caught.value.faults]
    assert sorted(kinds) == sorted((faults.OUT_OF_BOUNDS, faults.NEGATIVE_INDEX, faults.RACE, faults.MISSING_LANES))
    assert str(caught.value).count("what to do") == 4
    assert len(collect_faults(several, launch_shape(1, 32), (np.zeros(32, np.int32),), limit=2)) == 2


def test_arguments_that_do_not_fit() -> None:
    """The kernel's parameters are named."""
    with pytest.raises(UserError, match=r"kernel scale\(out, x, factor\).*missing"):
        run_checked(scale, launch_shape(1, 1), (np.zeros(1), np.zeros(1)))


def test_nothing_listens_after_a_run() -> None:
    """A run that failed leaves no watcher behind."""
    with pytest.raises(KernelFaults):
        run_checked(several, launch_shape(1, 32), (np.zeros(32, np.int32),))
    assert scalars._listener.get() is None
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        np.float32(1) / np.float32(0)


@cuda.jit(device=True)
def write_past(array, i):
    array[i + 1] = i


def last_thread(out):
    write_past(out, cuda.grid(1))


def test_behind_a_device_function() -> None:
    """The line is that of the device function, the kernel is named; only the last thread of the last block is wrong."""
    (fault,) = collect_faults(last_thread, launch_shape(2, 4), (np.zeros(8, np.int32),))
    assert (fault.kernel, fault.line) == ("last_thread", write_past.py_func.__code__.co_firstlineno + 2)
    assert fault.parties[0].block == (1, 0, 0)
    assert fault.parties[0].thread == (3, 0, 0)
    assert fault.array == "out"


def refused_late(out, rows):
    out[0] = 1
    rows[1][0] = 2
    cuda.syncthreads()
    out[1] = out[0] << 1.5


def test_a_launch_that_is_refused_changes_nothing() -> None:
    """Arrays, those in tuples too, are as they were, and what nobody had written still counts so."""
    out, rows, fixed = never_written(3, np.int32), np.zeros((2, 2)), np.zeros(1)
    mark_written(out[2:])
    out[...] = 7
    fixed.flags.writeable = False
    with pytest.raises(UnsupportedError, match="does not exist"):
        run_checked(refused_late, launch_shape(1, 2), (out, (fixed, rows)))
    assert out.tolist() == [7, 7, 7]
    assert not rows.any()
    assert out.written is not None
    assert out.written.tolist() == [False] * 8 + [True] * 4


def widens(out, x):
    i = cuda.grid(1)
    out[i] = x[i] * 0.1


def races(out, x):
    out[0] = x[cuda.threadIdx.x]


def reads_past(out, x):
    out[cuda.grid(1)] = x[cuda.grid(1) + 1]


def unharmed(out, x):
    out[cuda.grid(1)] = float32(2) * x[cuda.grid(1)]


def test_threads_that_run_kernels_at_once() -> None:
    """Each is told of its own kernel's faults only, again and again."""
    kinds = {widens: [faults.FLOAT64], races: [faults.RACE], reads_past: [faults.OUT_OF_BOUNDS], unharmed: []}
    start = threading.Barrier(len(kinds))

    def several_times(kernel: Any) -> list[tuple[str, str]]:
        start.wait()
        told = []
        for _ in range(8):
            x = np.ones(64, np.float32)
            told += [(f.kind, f.kernel) for f in collect_faults(kernel, launch_shape(1, 64), (x.copy(), x))]
        return told

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(len(kinds)) as pool:
            found = dict(zip(kinds, pool.map(several_times, kinds), strict=True))
    finally:
        sys.setswitchinterval(switching)
    for kernel, wanted in kinds.items():
        assert found[kernel] == [(kind, kernel.__name__) for kind in wanted] * 8


def test_float64_that_the_compiler_narrows_is_none() -> None:
    """A number beside a float32 whose result is stored, or cast, at once: no instruction of it is float64."""

    def narrowed(out: Any, x: Any) -> None:
        i = cuda.threadIdx.x
        out[i] = (x[i] + x[i]) / 3
        out[i] += 1
        out[i] = float32(2 * x[i]) - 0.5

    def kept(out: Any, x: Any) -> None:
        i = cuda.threadIdx.x
        out[i] = x[i] * 2 + x[i]

    def inexact(out: Any, x: Any) -> None:
        out[cuda.threadIdx.x] = x[cuda.threadIdx.x] * 0.1

    x, out = np.full(4, 0.75, np.float32), np.zeros(4, np.float32)
    assert collect_faults(narrowed, launch_shape(1, 4), (out, x)) == []
    assert out.tolist() == [1.0] * 4
    for kernel in (kept, inexact):
        (fault,) = collect_faults(kernel, launch_shape(1, 4), (out, x))
        assert fault.kind == faults.FLOAT64
