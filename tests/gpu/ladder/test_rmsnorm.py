"""Every version of the ladder of RMSNorm against the CPU op."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, arguments_of, check, in_every_run, normal, table_of, unwritten
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.gpu.ladder import rmsnorm
from nanoeuler.gpu.ladder.version import Version
from nanoeuler.gpu.launch import executing

every_version = pytest.mark.parametrize("version", rmsnorm.VERSIONS, ids=lambda version: version.name)


def arguments(random: np.random.Generator, N: int, C: int) -> dict[str, Any]:
    x = normal(random, N, C)
    return {"out": unwritten(N, C), "rstd": unwritten(N), "x": x, "weight": normal(random, C), "eps": 0.1}


def case(N: int, C: int, big: bool = False) -> Case:
    return Case("rmsnorm_forward", f"{N} x {C}", partial(arguments, N=N, C=C), ("out", "rstd"), big=big)


#: One element, part of a warp, more rows than warps in a block, a second turn of the block, more rows than threads.
CASES = [case(1, 1), case(3, 37), case(10, 33), case(2, 300), case(259, 5, big=True), case(2, 1025, big=True)]

SMALL = {"THREADS": 8}

MUTANTS = [
    ("-(-x.shape[0] // THREADS)", "max(1, x.shape[0] // THREADS)"),
    ("-(-x.shape[0] // ROWS)", "max(1, x.shape[0] // ROWS)"),
    ("cuda.grid(1), x.shape[1]\n    if row >= x", "cuda.grid(1), x.shape[1]\n    if row > x"),
    ("sums[thread] = squares\n    cuda.syncthreads()", "sums[thread] = squares"),
    ("sums[thread] += sums[thread + half]\n        cuda.syncthreads()", "sums[thread] += sums[thread + half]"),
    ("if thread < half:", "if thread < half - 1:"),
    ("half //= 2", "half //= 4"),
    ("warp_sum(squares)", "squares"),
    ("blockIdx.x * ROWS + cuda.threadIdx.y", "blockIdx.x + cuda.threadIdx.y"),
    ("if lane == 0:\n        rstd[row]", "if lane == 0:\n        rstd[0]"),
    ("    for c in range(C):\n        out", "    for c in range(C - 1):\n        out"),
]  # fmt: skip


@every_version
@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any, version: Version) -> None:
    check(case, table_of(version, case.op), executor, order)


@every_version
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])  # the square of the last is infinite
def test_what_is_not_finite_stays_in_its_row(value: float, version: Version) -> None:
    def make(random: np.random.Generator) -> dict[str, Any]:
        given = arguments(random, 10, 33)
        given["x"][3, 7] = value
        return given

    with np.errstate(all="ignore"):
        check(Case("rmsnorm_forward", "not finite", make, ("out", "rstd")), table_of(version, "rmsnorm_forward"))


@every_version
def test_bits_do_not_depend_on_the_order_of_the_threads(version: Version) -> None:
    results = []
    for order in ("forward", "reverse", "random"):
        given = arguments_of(case(2, 300))
        with executing("compiled", order, seed=3):
            version.run(**given)
        results.append(given)
    for other in results[1:]:
        assert (other["out"] == results[0]["out"]).all()
        assert (other["rstd"] == results[0]["rstd"]).all()


@pytest.mark.parametrize("kernel", ["thread_per_row", "block_per_row", "warp_per_row"])
def test_machine_code_is_clean(kernel: str) -> None:
    need_toolkit()
    row, rows = np.zeros(2, np.float32), np.zeros((2, 3), np.float32)
    signature = (rows, row, rows, row, np.float32(0.1))
    simt.gate(getattr(rmsnorm, kernel), signature, ["sm_75", "sm_90"], block=rmsnorm.THREADS)
