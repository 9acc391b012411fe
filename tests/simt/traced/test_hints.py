"""Hints: each where its numbers are, and none where nothing is wrong."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba import cuda, float32
from simt.traced import hand_counted
from simt.traced.hand_counted import CASES

from nanoeuler import simt
from nanoeuler.simt.traced.hints import Hint, hints
from nanoeuler.simt.traced.numbers import numbers


def told(kernel: Any, block: Any, *args: Any, grid: Any = 1, **more: Any) -> list[Hint]:
    trace = simt.trace(kernel, grid, block, args, **more)
    return hints(trace, numbers(trace))


def of_case(name: str) -> list[Hint]:
    case = CASES[name]
    return told(case.kernel, case.block, *case.args())


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    "name",
    [
        *("float32", "float64", "uint8", "float16", "slice from 8", "rows", "four short rows", "broadcast"),
        *("column in Fortran's order", "gather nearby", "structure of arrays", "atomics side by side", "padded tile"),
        *("shared broadcast", "shared float64", "shared uint8", "shared atomics apart", "reversed"),
    ],
)
def test_nothing_to_say(name: str) -> None:
    assert of_case(name) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("slice from 1", "x: a warp reads 5.0 sectors where 4.0 would do, 80% of the bytes are used. Neighbouring"),
        ("shifted by 1", "start slices there"),
        ("stride 2", "Neighbouring lanes are 8 bytes apart: let threadIdx.x run over neighbours"),
        ("stride 32", "x: a warp reads 32.0 sectors where 4.0 would do, 12% of the bytes are used"),
        ("column", "Neighbouring lanes are 128 bytes apart: let threadIdx.x run along the last axis"),
        ("complex64", "Real and imaginary parts are moved one after the other"),
        ("array of structures", "an array for each field"),
        ("packed structures", "align=True"),
        ("tile", "tile: bank conflicts make it take 32.0 times as long. With rows one element longer, shape (32, 33)"),
        ("tile", "its 1,056 wavefronts become 64"),
        ("shared stride 2", "lanes are 8 bytes apart; an odd number of elements"),
        ("shared atomics on one word", "Atomics on one word wait for each other"),
        ("atomics on one address", "out: 97% of the atomics wait for another lane of their warp, at the same element."),
    ],
)  # fmt: skip
def test_what_is_wrong_and_what_to_do(name: str, words: str) -> None:
    assert any(words in hint.text for hint in of_case(name)), [hint.text for hint in of_case(name)]


def test_a_gather_without_order() -> None:
    order = 8 * np.random.default_rng(0).permutation(32)
    (hint,) = told(hand_counted.gather, 32, floats(32), floats(256), order)
    assert "x: a warp reads 32.0 sectors where 4.0 would do" in hint.text
    assert "The lanes' addresses keep no distance" in hint.text


def test_in_fortran_s_order_the_first_axis_lies_together() -> None:
    @cuda.jit
    def along(out, x):
        i = cuda.threadIdx.x
        out[i] = x[3, i]

    (hint,) = told(along, 32, floats(32), floats(32, 32).T)
    assert "along the first axis" in hint.text


@cuda.jit
def parting(out, x):
    i = cuda.threadIdx.x
    if i % 4 == 0:
        for _ in range(8):
            out[i] = x[i]


def test_divergence_is_told_once_for_lines_that_part_together() -> None:
    found = told(parting, 32, floats(32), floats(32))
    (one,) = (h for h in found if "lanes are active" in h.text)
    first = parting.py_func.__code__.co_firstlineno
    assert one.lines == (first + 4, first + 5)
    assert "8.0 of 32 lanes are active on average" in one.text


@cuda.jit
def only_few(out, x):
    i = cuda.threadIdx.x
    if i < 4:
        a = x[i]
        b = a + x[i]
        out[i] = b


def test_lines_with_the_same_lanes_are_one_hint() -> None:
    found = told(only_few, 32, floats(32), floats(32))
    first = only_few.py_func.__code__.co_firstlineno
    assert [h.where for h in found if "lanes are active" in h.text] == [f"lines {first + 4} to {first + 6}"]
    assert not any("sectors" in h.text for h in found)  # few lanes, but all that they move is needed
    assert any("the same thread has loaded before: keep it in a local variable" in h.text for h in found)


@cuda.jit
def running_sum(out, x):
    i = cuda.threadIdx.x
    for k in range(x.shape[0]):
        out[i] += x[k, i]


def test_a_sum_kept_in_global_memory() -> None:
    (hint,) = told(running_sum, 32, floats(32), floats(50, 32))
    assert hint.text.startswith("out: 98% of the loads are of elements that the thread has stored itself: keep")


def test_what_a_block_loads_over_and_over() -> None:
    (hint,) = told(hand_counted.first_for_all, 256, floats(256), floats(1))
    assert "x: 88% of the loads are of elements that another thread of the block has loaded before" in hint.text


@cuda.jit
def wide(out, x):
    i = cuda.threadIdx.x
    out[i] = x[i] * 0.1 + 1.0 + i


def test_float64_where_no_array_is() -> None:
    (hint,) = told(wide, 32, floats(32), floats(32))
    assert "operations in float64, though no array is" in hint.text
    assert told(wide, 32, np.zeros(32), np.zeros(32)) == []


def test_blocks_that_fill_no_warp() -> None:
    assert [h.text for h in told(hand_counted.copy, 33, floats(33), floats(33))] == [
        "a block of 33 threads fills 64 lanes: take a multiple of 32."
    ]
    assert told(hand_counted.copy, (5, 3, 2), floats(30), floats(30)) == []  # two lanes are not worth a word


def test_weightiest_first_and_not_too_many() -> None:
    trace = simt.trace(messy, 1, 33, (floats(1100), floats(33, 33)))
    found = hints(trace, numbers(trace))
    assert [h.weight for h in found] == sorted((h.weight for h in found), reverse=True)
    assert len(found) >= 4
    assert hints(trace, numbers(trace), most=2) == found[:2]


@cuda.jit
def messy(out, x):
    s = cuda.shared.array(1100, float32)
    i = cuda.threadIdx.x
    s[32 * i] = x[i, 0] + x[i, 0]
    if i % 8 == 0:
        cuda.atomic.add(out, 0, s[32 * i])
        out[32 * i + 1] = s[32 * i] * 0.5 + i


@cuda.jit
def four_columns(out, x):
    i = cuda.threadIdx.x
    out[i] = x[i, 0] + x[i, 1]
    out[i] += x[i, 2] + x[i, 3]


def test_lines_with_an_array_and_a_reason_in_common_are_one_hint() -> None:
    found = told(four_columns, 32, floats(32), floats(32, 32))
    first = four_columns.py_func.__code__.co_firstlineno
    (hint,) = (h for h in found if h.text.startswith("x: a warp reads"))
    assert hint.lines == (first + 3, first + 4)
    assert "x: a warp reads 32.0 sectors where 4.0" in hint.text
    assert hint.weight == pytest.approx(4 * 28 / (4 * 32 + 3 * 4))


@cuda.jit
def odd_tile(out):
    """Rows of 17 words, read by two half warps in rows one below the other: a longer row would not help."""
    tile = cuda.shared.array((16, 17), float32)
    i = cuda.threadIdx.x
    j = cuda.threadIdx.y
    tile[j, i] = i
    out[j, i] = tile[j, i]


def test_padding_is_proposed_only_where_it_helps() -> None:
    found = told(odd_tile, (16, 2), floats(2, 16))
    (hint,) = (h for h in found if "bank conflicts" in h.text)
    assert "longer" not in hint.text
    assert "words n and n + 32" in hint.text


def test_no_arrays_and_no_axes() -> None:
    @cuda.jit
    def scalar(x):
        if cuda.threadIdx.x == 0:
            x[()] += 1

    assert [h.text for h in told(scalar, 32, np.zeros((), np.float32)) if "sectors" in h.text] == []
