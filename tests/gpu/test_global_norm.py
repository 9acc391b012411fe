"""The global norm on the GPU: against the CPU op, exact enough, and whichever block is the last."""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, check, in_every_run, normal, unwritten
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.gpu.global_norm import ITEMS, SPAN, THREADS
from nanoeuler.gpu.launch import executing, launch
from nanoeuler.gpu.variant import variant

global_norm = import_module("nanoeuler.gpu.global_norm")  # in the package the name is the function's


def arguments(random: np.random.Generator, n: int) -> dict[str, Any]:
    """Return numbers of which those at the ends of a block's span weigh as much as the rest."""
    x = normal(random, n)
    for ends in (x[::SPAN], x[SPAN - 1 :: SPAN], x[-1:]):
        ends += np.float32(np.sqrt(n))
    return {"out": unwritten(1), "x": x}


def case(n: int, big: bool = False) -> Case:
    return Case("global_norm", f"{n}", partial(arguments, n=n), ("out",), big=big)


#: One element, part of a warp, more than a block's threads, a block to the last element, three blocks; seven blocks.
CASES = [*(case(n) for n in (1, 37, 1025, SPAN, 2 * SPAN + 5)), case(100_003, big=True)]

MUTANTS = [
    ("x[i] if i < x.shape[0] else", "x[i] if i <= x.shape[0] else"),
    ("int64(block) * SPAN", "int64(block) * (SPAN - 1)"),
    ("range(0, SPAN, ITEMS * THREADS)", "range(0, SPAN - 1 - ITEMS * THREADS, ITEMS * THREADS)"),
    ("first + turn + item * THREADS", "first + turn + item"),
    ("partial[block] = squares\n        cuda.threadfence()", "partial[block] = squares"),
    ("else 0\n        cuda.threadfence()\n    cuda.syncthreads()", "else 0\n        cuda.threadfence()"),
    ("if before == blocks - 1 else 0", "if before == 0 else 0"),
    ("if i < blocks else", "if i <= blocks else"),
    ("            squares += some\n        squares = block_sum", "            squares += some\n        _ = block_sum"),
]


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, global_norm, executor, order)


def norm_of(x: np.ndarray) -> float:
    out = unwritten(1)
    global_norm.global_norm(out, x)
    return float(out[0])


@pytest.mark.parametrize("scale", [1, 1e-15, 1e15])
def test_rounding_stays_small(scale: float) -> None:
    x = normal(np.random.default_rng(0), 1_000_003) * np.float32(scale)
    assert norm_of(x) == pytest.approx(np.linalg.norm(x.astype(np.float64)), rel=2e-7)


def test_equal_numbers_do_not_all_round_alike() -> None:
    """A single sum of these would stop growing, or drift, as each addition makes the same error."""
    x = np.full(2_000_003, 0.1, np.float32)
    assert norm_of(x) == pytest.approx(np.linalg.norm(x.astype(np.float64)), rel=1e-6)


def test_more_partial_sums_than_a_block_adds_up_at_once() -> None:
    """With blocks of one warp: 70 partial sums, 64 at a time."""
    small = {"THREADS": 32, "ITEMS": 2, "SPAN": 128}
    kernel = variant(global_norm.write_norm, **small)
    x = normal(np.random.default_rng(0), 69 * 128 + 1)
    for order in ("forward", "random"):
        out, partial_sums, arrived = unwritten(1), unwritten(70), np.zeros(1, np.uint32)
        with executing("checked", order, seed=1):
            launch(kernel, 70, 32, out, partial_sums, arrived, x)
        assert out[0] == pytest.approx(np.linalg.norm(x), rel=1e-6)
        assert arrived[0] == 0


def test_the_counter_is_ready_for_the_next_launch() -> None:
    x = normal(np.random.default_rng(0), 3 * SPAN)
    out, partial_sums, arrived = unwritten(1), unwritten(3), np.zeros(1, np.uint32)
    for scale in (1, 2, 3):
        launch(global_norm.write_norm, 3, THREADS, out, partial_sums, arrived, x * np.float32(scale))
        assert arrived[0] == 0
        assert out[0] == pytest.approx(scale * np.linalg.norm(x), rel=1e-6)


def test_bits_do_not_depend_on_the_order_of_the_blocks() -> None:
    x, results = normal(np.random.default_rng(0), 100_003), []
    for order in ("forward", "reverse", "random"):
        with executing("compiled", order, seed=3):
            results.append(norm_of(x))
    assert results == [results[0]] * 3


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", [0, SPAN + 12345, 2 * SPAN + 6])
def test_is_not_finite_if_an_element_is_not(where: int, bad: float) -> None:
    x = normal(np.random.default_rng(0), 2 * SPAN + 7)
    x[where] = bad
    assert not np.isfinite(norm_of(x))


def test_by_hand() -> None:
    assert norm_of(np.array([3, -4], np.float32)) == 5
    assert norm_of(np.zeros(9, np.float32)) == 0
    assert norm_of(np.zeros(0, np.float32)) == 0
    assert norm_of(np.full(2, 1e20, np.float32)) == np.inf  # its square is beyond float32, as on the CPU


def test_a_turn_of_all_threads_fits_the_span() -> None:
    assert SPAN % (ITEMS * THREADS) == 0


def test_the_last_block_sees_what_the_others_wrote() -> None:
    """There is a fence before the counter and one behind it; the checked executor takes the barrier for the second."""
    need_toolkit()
    x, one = np.zeros(3, np.float32), np.zeros(1, np.float32)
    report = simt.gate(global_norm.write_norm, (one, x, np.zeros(1, np.uint32), x), ["sm_90"], block=THREADS)
    ptx = report["sm_90"].ptx
    counted = ptx.index("atom.global.inc")
    assert "membar.gl" in ptx[:counted]
    assert "membar.gl" in ptx[counted:]
