"""Sums down columns against NumPy: of no row, of one, of more than a block takes at a time, of several slices."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import RUNS, assert_close, normal
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.gpu import column_sums
from nanoeuler.gpu.bfloat16 import from_bfloat16, in_bfloat16, to_bfloat16
from nanoeuler.gpu.launch import executing, recording

#: N, C: one element, no rows, two blocks of columns, as many rows as warps, more than they read at a time.
SHAPES = [(1, 1), (0, 3), (5, 33), (16, 2), (161, 3)]
BIG = [(1100, 5), (1541, 40)]  # two slices, and three whose last is shorter

MUTANTS = [
    ("sums[way, lane] = total\n    cuda.syncthreads()", "sums[way, lane] = total"),
    ("for other in range(1, ways):", "for other in range(1, ways - 1):"),
    ("range(start + way, end, AHEAD * ways)", "range(start + way, end, AHEAD)"),
    ("some + k * ways", "some + k"),
    ("if row < end else float32(0)", "if row < x.shape[0] else float32(0)"),
    ("end = min(x.shape[0], start + rows)", "end = start + rows"),
    ("start = part * rows", "start = 0"),
    ("if column < x.shape[1]:\n        for", "if True:\n        for"),
    ("            total += out[part, column]\n", "            pass\n"),
    ("blocks = -(-C // WARP)", "blocks = max(1, C // WARP)"),
]
SMALL = {"WAYS": 2, "AHEAD": 2, "SLICE": 6}


def attempt(N: int, C: int, column_sums: Any, executor: Any, order: Any = "forward", low: bool = False) -> None:
    """Add sums, of bfloat16 if ``low``."""
    random = np.random.default_rng(N)
    x, total = normal(random, N, C), normal(random, C)
    given = to_bfloat16(x) if low else x
    expected = total + (from_bfloat16(given) if low else x).sum(axis=0, dtype=np.float64)
    with executing(executor, order, seed=1):
        column_sums.add_column_sums(total, given)
    assert_close(total, expected, f"{N} x {C}")


ATTEMPTS = [partial(attempt, *shape) for shape in ((1, 1), (5, 33), (13, 3))]


@pytest.mark.parametrize(
    ("N", "C", "executor", "order"),
    [(*shape, *run) for run in RUNS for shape in (SHAPES if run[0] == "checked" else [*SHAPES, *BIG])],
)
def test_equals_numpy(N: int, C: int, executor: Any, order: Any) -> None:
    if executor == "ptx":
        need_toolkit()
    attempt(N, C, column_sums, executor, order)


@pytest.mark.parametrize(("N", "C"), [*SHAPES, *BIG])
def test_bfloat16(N: int, C: int) -> None:
    attempt(N, C, column_sums, "compiled", low=True)


def test_rows_may_lie_apart() -> None:
    x, total = normal(np.random.default_rng(0), 7, 9), np.zeros(4, np.float32)
    column_sums.add_column_sums(total, x[:, 2:6])
    assert_close(total, x[:, 2:6].sum(axis=0), "columns 2 to 5")


def test_bits_do_not_depend_on_the_order_of_the_threads() -> None:
    x, results = normal(np.random.default_rng(0), 1541, 3), []
    for order in ("forward", "reverse", "random"):
        total = np.zeros(3, np.float32)
        with executing("compiled", order, seed=3):
            column_sums.add_column_sums(total, x)
        results.append(total)
    assert (results[1] == results[0]).all()
    assert (results[2] == results[0]).all()


def test_nan_stays_in_its_column() -> None:
    x, total = np.ones((1541, 3), np.float32), np.ones(3, np.float32)
    x[700, 1] = np.nan
    column_sums.add_column_sums(total, x)
    assert total[[0, 2]].tolist() == [1542, 1542]
    assert np.isnan(total[1])


@pytest.mark.parametrize(
    ("N", "C", "grids"),
    [
        (682, 768, [(24, 1)]),  # partial sums of a norm
        (16384, 768, [(24, 6), (24, 1)]),  # a bias of GPT-2 small
        (16384, 50257, [(1571, 1)]),
        (4, 589824, [(18432, 1)]),  # slices of a weight
    ],
)
def test_a_large_gpu_is_kept_busy(N: int, C: int, grids: list[tuple[int, int]]) -> None:
    x = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (N, C), (4 * C, 4))  # a shape only
    with recording(execute=False) as work:
        column_sums.add_column_sums(np.zeros(C, np.float32), x)
    assert [each.grid for each in work] == grids


@pytest.mark.parametrize("terms", [0, 1, 511, 512, 1023, 1024, 1025, 5000, 16384, 16387])
@pytest.mark.parametrize("blocks", [1, 3, 100, 5000])
def test_slices_cover_the_sum_and_none_is_empty(blocks: int, terms: int) -> None:
    slices, each = column_sums.sliced(blocks, terms)
    assert (slices - 1) * each < max(1, terms) <= slices * each
    assert slices == 1 or each >= column_sums.SLICE / 2


def test_partial_sums_stay_small() -> None:
    for N, C in [(1, 1), (7, 33), (65536, 64), (65536, 768), (65536, 16384)]:
        blocks = column_sums.partial_rows(N, C)
        assert 1 <= blocks <= -(-N // column_sums.MIN_ROWS)
        assert blocks * C <= column_sums.PARTIAL_ELEMENTS
    assert column_sums.partial_rows(8, 2**20) == 1
    assert column_sums.partial_rows(0, 33) == 1


@pytest.mark.parametrize("low", [False, True], ids=["float32", "bfloat16"])
def test_machine_code_is_clean(low: bool) -> None:
    need_toolkit()
    x, total = np.zeros((2, 3), np.uint16 if low else np.float32), np.zeros((1, 3), np.float32)
    kernel = column_sums.sum_columns
    simt.gate(in_bfloat16(kernel) if low else kernel, (total, x, 2), ["sm_75", "sm_90"], block=(32, column_sums.WAYS))
