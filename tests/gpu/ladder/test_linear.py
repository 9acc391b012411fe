"""Every version of the ladder of the linear layer against the CPU op."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, check, check_module, in_every_run, normal, table_of, unwritten
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.gpu.ladder import linear
from nanoeuler.gpu.ladder.version import Version
from nanoeuler.gpu.variant import variant

every_version = pytest.mark.parametrize("version", linear.VERSIONS, ids=lambda version: version.name)


def arguments(random: np.random.Generator, N: int, I: int, O: int, bias: bool) -> dict[str, Any]:
    return {
        "out": unwritten(N, O), "x": normal(random, N, I), "weight": normal(random, O, I),
        "bias": normal(random, O) if bias else None,
    }  # fmt: skip


def case(N: int, I: int, O: int, bias: bool = True, big: bool = False) -> Case:
    name = f"{N} x {I} to {O}" + ("" if bias else ", no bias")
    return Case("linear_forward", name, partial(arguments, N=N, I=I, O=O, bias=bias), ("out",), big=big)


#: One element; part of a tile, in two steps for tiles of 8 columns; more than a tile of each version, both ways.
CASES = [case(1, 1, 1), case(9, 11, 5), case(10, 33, 3, bias=False, big=True), case(67, 41, 70, big=True)]

ATTEMPTS = [partial(check_module, case(2, 33, 18))]  # two tiles along the sum, more columns than threads side by side

MUTANTS = [
    ("if n < uint32(x.shape[0]) and o < uint32(weight.shape[0]):", "if n < uint32(x.shape[0]):"),
    ("for i in range(uint32(x.shape[1])):", "for i in range(uint32(x.shape[1]) - uint32(1)):"),
    ("    total = warp_sum(total)\n", ""),
    ("        for k in range(uint32(WARP)):\n", "        for k in range(uint32(WARP - 1)):\n"),
    ("x_tile[row, k] * weight_tile[lane, k]\n        cuda.syncthreads()", "x_tile[row, k] * weight_tile[lane, k]"),
    ("o = first_o + line\n            weight_tile", "o = first_o + row\n            weight_tile"),
    ("WIDTH=WARP + 1", "WIDTH=WARP - 1"),
    ("total[r] += x_tile[first_row + uint32(r), k] * w\n        cuda.syncthreads()",
     "total[r] += x_tile[first_row + uint32(r), k] * w"),
    ("uint32(ROW_TILE * ROW_TILE // ROW_EACH)", "uint32(ROW_TILE * ROW_TILE // ROW_EACH * 2)"),
    ("weight_own[r] = weight_tile[tx + uint32(r * SIDE), k]", "weight_own[r] = weight_tile[tx + uint32(r), k]"),
    ("o = first_o + tx + uint32(c * SIDE)", "o = first_o + tx + uint32(c * EACH)"),
]  # fmt: skip


@every_version
@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any, version: Version) -> None:
    check(case, table_of(version, case.op), executor, order)


@every_version
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_row(value: float, version: Version) -> None:
    def make(random: np.random.Generator) -> dict[str, Any]:
        given = arguments(random, 10, 33, 3, bias=True)
        given["x"][1, 7] = value
        return given

    with np.errstate(all="ignore"):
        check(Case("linear_forward", "not finite", make, ("out",)), table_of(version, "linear_forward"))


@pytest.mark.parametrize("kernel", ["naive", "coalesced", "shared_tiles", "padded_tiles", "register_row", "registers"])
def test_machine_code_is_clean(kernel: str) -> None:
    need_toolkit()
    padded = variant(linear.shared_tiles, WIDTH=linear.WARP + 1)
    x = np.zeros((2, 3), np.float32)
    which = padded if kernel == "padded_tiles" else getattr(linear, kernel)
    simt.gate(which, (x, x, x, x[0]), ["sm_75", "sm_90"])


def test_there_are_at_least_five_before_the_one_in_use() -> None:
    assert len(linear.VERSIONS) >= 6
    assert len({version.name for version in linear.VERSIONS}) == len(linear.VERSIONS)
    assert linear.VERSIONS[-1].run is linear.linear.linear_forward
