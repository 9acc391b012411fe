"""The sum of gradients on the GPU: the CPU's, to the bit."""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, arguments_of, check, in_every_run, normal

import nanoeuler.cpu

accumulate = import_module("nanoeuler.gpu.accumulate")  # in the package the name is the function's


def arguments(random: np.random.Generator, n: int, parts: int) -> dict[str, Any]:
    return {"out": normal(random, n), "parts": [normal(random, n) for _ in range(parts)]}


def case(n: int, parts: int, big: bool = False) -> Case:
    return Case("accumulate", f"{parts} parts of {n}", partial(arguments, n=n, parts=parts), ("out",), big=big)


CASES = [case(1, 1), case(37, 0), case(37, 3), case(256, 2), case(1025, 2), case(100_003, 4, big=True)]

MUTANTS = [
    ("out[i] += part[i]", "out[i] = part[i]"),
    ("if i < out.shape[0]:", "if i <= out.shape[0]:"),
    ("if i < out.shape[0]:", "if i < out.shape[0] - 1:"),
    ("-(-out.size // THREADS)", "out.size // THREADS"),
    ("cuda.grid(1)", "cuda.threadIdx.x"),
    ("for part in parts:", "for part in parts[1:]:"),
]


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, accumulate, executor, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_cpu_to_the_bit(case: Case) -> None:
    expected, got = arguments_of(case), arguments_of(case)
    nanoeuler.cpu.accumulate(**expected)
    accumulate.accumulate(**got)
    assert (got["out"] == expected["out"]).all()
    for part, before in zip(got["parts"], expected["parts"], strict=True):
        assert (part == before).all()


def test_order_is_the_parts_order() -> None:
    big, small = np.array([2.0**24], np.float32), np.array([1], np.float32)
    out = np.zeros(1, np.float32)
    accumulate.accumulate(out, [big, small, -big, small])  # the first 1 is lost in rounding, the second is not
    assert out[0] == 1
