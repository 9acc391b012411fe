"""Transactions of small kernels against counts made by hand, and against the compiler's machine code."""

import re

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from simt.kernels.toolkit import need_toolkit
from simt.traced.hand_counted import CASES

from nanoeuler import simt
from nanoeuler.simt.traced.numbers import Banks, Traffic, numbers


def transactions(found: Traffic) -> tuple[int, int, int]:
    return found.requests, found.sectors, found.bytes_asked


def banks(found: dict, action: str) -> tuple[int, int, int]:
    """Return requests, wavefronts and conflicts of all arrays."""
    total = sum((b for (_, done), b in found.items() if done == action), Banks())
    return total.requests, total.wavefronts, total.conflicts


@pytest.mark.parametrize("name", CASES)
def test_counts_are_those_made_by_hand(name: str) -> None:
    case = CASES[name]
    trace = simt.trace(case.kernel, 1, case.block, case.args())
    assert not trace.faults
    totals = numbers(trace).totals
    assert transactions(totals.loads) == case.loads
    assert transactions(totals.stores) == case.stores
    assert transactions(totals.atomics) == case.atomics
    assert banks(totals.shared_memory, "reads") == case.shared_loads
    assert banks(totals.shared_memory, "writes") == case.shared_stores
    assert banks(totals.shared_memory, "atomically updates") == case.shared_atomics
    assert (totals.loads + totals.stores).efficiency == pytest.approx(case.used)


def test_there_are_enough() -> None:
    assert len(CASES) >= 20


def test_the_launch_does_not_change_what_a_warp_moves() -> None:
    """Three blocks of 64 move six times what one warp does, and the order of turns makes no difference."""
    for order in ("forward", "reverse", "random"):
        case = CASES["slice by 2"]
        args = np.zeros(192, np.float32), np.zeros(384, np.float32)[::2]
        totals = numbers(simt.trace(case.kernel, 3, 64, args, order=order)).totals
        assert transactions(totals.loads) == (6, 48, 768)
        assert transactions(totals.stores) == (6, 24, 768)


STRAIGHT = (
    *("float32", "float16", "complex64", "complex128", "slice by 2", "rows", "gather nearby", "array of structures"),
    *("packed structures", "vector of 4", "tile", "shared complex64", "shared atomics apart"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRAIGHT)
def test_the_compiler_makes_as_many_instructions(name: str) -> None:
    """In a kernel without branches each instruction runs once in each warp: so many requests there are of a kind."""
    need_toolkit()
    case = CASES[name]
    sass = simt.compile_report(case.kernel, case.args(), "sm_80")["sm_80"].sass
    assert sass is not None
    made = [len(re.findall(rf"\b({kind})\b", sass)) for kind in ("LDG|LD", "STG|ST", "LDS", "STS")]
    warps = -(-int(np.prod(case.block)) // 32)
    counted = case.loads, case.stores, case.shared_loads, case.shared_stores
    assert made == [requests // warps for requests, _, _ in counted]
