"""Variants of a kernel: other values for names of its module, and all else as it was."""

from typing import Any

import numpy as np
import pytest
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.gpu.backend import cuda, float32
from nanoeuler.gpu.variant import variant

WIDTH = 4
ADDED = np.float32(0.5)
executors = pytest.mark.parametrize("executor", ["compiled", "checked", "ptx"])


@cuda.jit(device=True)
def once(x: Any) -> Any:
    """Return x."""
    return x


@cuda.jit(device=True)
def twice(x: Any) -> Any:
    """Return 2x."""
    return x + x


@cuda.jit(device=True)
def width_outside() -> Any:
    """Return the width as this function knows it."""
    return float32(WIDTH)


@cuda.jit
def reversed_rows(out: Any, x: Any) -> None:
    """Write rows of WIDTH backwards, through shared memory whose size depends on it."""
    row = cuda.shared.array(WIDTH, float32)
    i = cuda.threadIdx.x
    if i < WIDTH:
        row[i] = x[cuda.blockIdx.x * WIDTH + i]
    cuda.syncthreads()
    if i < WIDTH:
        out[cuda.blockIdx.x * WIDTH + i] = once(row[WIDTH - 1 - i]) + ADDED


@cuda.jit
def widths(out: Any) -> None:
    """Write the width that the kernel knows, and the one that a device function knows."""
    out[0], out[1] = float32(WIDTH), width_outside()


def run(kernel: Any, executor: Any, width: int) -> list[float]:
    if executor == "ptx":
        need_toolkit()
    x, out = np.arange(width, dtype=np.float32), np.zeros(width, np.float32)
    simt.run(kernel, 1, 32, (out, x), executor=executor)
    return out.tolist()


@executors
def test_constants_and_functions_are_exchanged(executor: Any) -> None:
    assert run(reversed_rows, executor, 4) == [3.5, 2.5, 1.5, 0.5]
    assert run(variant(reversed_rows, WIDTH=5), executor, 5) == [4.5, 3.5, 2.5, 1.5, 0.5]
    assert run(variant(reversed_rows, WIDTH=2, once=twice, ADDED=np.float32(1)), executor, 2) == [3, 1]
    assert run(reversed_rows, executor, 4) == [3.5, 2.5, 1.5, 0.5]  # the kernel itself stays as it is


@executors
def test_device_functions_keep_their_own(executor: Any) -> None:
    if executor == "ptx":
        need_toolkit()
    out = np.zeros(2, np.float32)
    simt.run(variant(widths, WIDTH=7), 1, 1, (out,), executor=executor)
    assert out.tolist() == [7, 4]


@executors
def test_a_variant_has_variants(executor: Any) -> None:
    narrow = variant(reversed_rows, WIDTH=2)
    assert run(variant(narrow, ADDED=np.float32(1)), executor, 2) == [2, 1]


def test_the_same_values_give_the_same_kernel() -> None:
    """It is compiled once, whoever asks, in whatever order the names are given."""
    both = variant(reversed_rows, WIDTH=3, once=twice)
    assert both is variant(reversed_rows, once=twice, WIDTH=3)
    assert both is not variant(reversed_rows, WIDTH=3)
    assert both is not reversed_rows


def test_names_that_the_kernel_does_not_use_change_nothing() -> None:
    assert variant(widths, once=twice) is widths
    assert variant(widths, once=twice, WIDTH=7) is not widths


def test_what_is_no_name_of_the_module_is_refused() -> None:
    with pytest.raises(KeyError):
        variant(reversed_rows, threadIdx=3)


def test_it_is_called_and_documented_as_the_kernel() -> None:
    function, original = variant(reversed_rows, WIDTH=9).py_func, reversed_rows.py_func
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        assert getattr(function, name) == getattr(original, name)


def test_options_of_the_kernel_are_kept() -> None:
    def widest(out: Any) -> None:
        out[0] = float32(WIDTH)

    kernel = cuda.jit(fastmath=True, launch_bounds=64, max_registers=40)(widest)
    options = variant(kernel, WIDTH=7).targetoptions
    assert options == kernel.targetoptions
    assert (options["fastmath"], options["launch_bounds"], options["max_registers"]) == (True, 64, 40)


def test_a_name_that_the_module_lacks_is_refused_and_one_that_the_kernel_lacks_changes_nothing() -> None:
    with pytest.raises(KeyError, match="WIDHT"):
        variant(reversed_rows, WIDHT=8)
    assert variant(widths, ADDED=np.float32(1)) is widths
