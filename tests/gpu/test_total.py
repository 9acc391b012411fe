"""The sum of an array on the GPU: against the CPU op, exact where it can be, the same bits in every order."""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, check, in_every_run, normal

from nanoeuler.gpu.launch import executing

total = import_module("nanoeuler.gpu.total")  # in the package the name is the function's


def arguments(random: np.random.Generator, n: int) -> dict[str, Any]:
    """Return numbers whose ends weigh as much as all the rest, so that none can be left out."""
    x = normal(random, n)
    x[[0, -1]] += np.float32(n)
    return {"out": normal(random, 1), "x": x}


def case(n: int, big: bool = False) -> Case:
    return Case("total", f"{n}", partial(arguments, n=n), ("out",), big=big)


#: One element, part of a warp, part of a block, a second turn of the block; many turns.
CASES = [*(case(n) for n in (1, 37, 1025, 8193)), case(100_003, big=True)]

MUTANTS = [
    ("if i < n else", "if i <= n else"),
    ("range(thread, n, ITEMS * THREADS)", "range(thread, n, THREADS)"),
    ("range(thread, n, ITEMS * THREADS)", "range(thread, min(n, ITEMS * THREADS), ITEMS * THREADS)"),
    ("start + item * THREADS", "start + item"),
    ("block_sum(own, shared)", "own"),
    ("if thread == 0:\n", "if True:\n"),
    ("out[0] += whole", "out[0] = whole"),
]


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, total, executor, order)


def test_adds_one_array_after_another() -> None:
    out = np.zeros(1, np.float32)
    for values in ([1, 2, 3], [], [-10], [0.5]):
        total.total(out, np.array(values, np.float32))
    assert out[0] == -3.5


def test_rounding_stays_small() -> None:
    x = np.full(1_000_003, 0.1, np.float32)
    out = np.zeros(1, np.float32)
    total.total(out, x)
    assert out[0] == pytest.approx(x.sum(dtype=np.float64), rel=2e-6)


def test_bits_do_not_depend_on_the_order_of_the_threads() -> None:
    x, results = normal(np.random.default_rng(0), 10_007), []
    for order in ("forward", "reverse", "random"):
        out = np.ones(1, np.float32)
        with executing("compiled", order, seed=3):
            total.total(out, x)
        results.append(out[0])
    assert results == [results[0]] * 3


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", [0, 777, 1499])
def test_is_not_finite_if_an_element_is_not(where: int, bad: float) -> None:
    x, out = normal(np.random.default_rng(0), 1500), np.zeros(1, np.float32)
    x[where] = bad
    total.total(out, x)
    assert not np.isfinite(out[0])
