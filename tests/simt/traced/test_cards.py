"""Cards by name, and kernels under their roofs."""

import math

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from simt.traced import kernels
from simt.traced.hand_counted import CASES

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.traced.cards import CARDS, SHORT, Card, card, roofline
from nanoeuler.simt.traced.numbers import Counts, Numbers, Totals, Traffic


@pytest.mark.parametrize("name", ["RTX 4090", "rtx4090", "Rtx-4090", "NVIDIA GeForce RTX 4090", "4090"])
def test_spelling_does_not_matter(name: str) -> None:
    assert card(name) is CARDS["RTX 4090"]


def test_every_name_finds_its_card() -> None:
    assert all(card(name) is CARDS[name] and card(name.lower().replace(" ", "")) is CARDS[name] for name in CARDS)
    assert all(card(name) is CARDS[full] for name, full in SHORT.items())
    assert card(CARDS["T4"]) is CARDS["T4"]


def test_a_wrong_name_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no card 'rtx 4990' \(did you mean 'rtx4090'\?\).*H100 SXM"):
        card("rtx 4990")
    with pytest.raises(UserError, match="no card 'Radeon': known are"):
        card("Radeon")


def test_figures_are_of_the_right_size() -> None:
    for one in CARDS.values():
        assert 5 < one.tflops < 120
        assert 250 <= one.bandwidth <= 8000
        assert one.source


def made(flops: dict[str, int], sectors: int, distinct: int) -> Numbers:
    """Return the numbers of a kernel that does additions."""
    totals = Totals(bytes_distinct=32 * distinct)
    totals.global_memory["x", "reads"] = Traffic(sectors=sectors, requests=1)
    for dtype, count in flops.items():
        totals.operations["+", dtype] = count
    return Numbers("kernel", {}, [], totals)


ROUND = Card("round", 10, 1000, 1 / 2, "nobody")  # 10 TFLOP/s, 1 TB/s: ridge at 10


def test_memory_bound_and_compute_bound() -> None:
    found = roofline(made({"float32": 640}, sectors=10, distinct=1), ROUND)
    assert found.ridge == 10
    assert (found.moved.bytes, found.moved.intensity, found.moved.bound) == (320, 2.0, "memory")
    assert found.moved.attainable == 2e12
    assert (found.distinct.bytes, found.distinct.intensity, found.distinct.bound) == (32, 20.0, "compute")
    assert found.distinct.attainable == 1e13
    assert "20% of the peak" in str(found)
    assert "compute-bound" in str(found)


def test_float64_lowers_the_roof() -> None:
    assert roofline(made({"float64": 100}, 1, 1), ROUND).peak == pytest.approx(5e12)
    mixed = roofline(made({"float32": 50, "float64": 50}, 1, 1), ROUND)  # 5 ps + 10 ps for 100 operations
    assert mixed.peak == pytest.approx(100 / 15e-12)
    assert mixed.ridge == pytest.approx(100 / 15)
    assert roofline(made({"complex128": 1}, 1, 1), "rtx 4090").peak == pytest.approx(82.6e12 / 64)


def test_no_bytes_and_no_operations() -> None:
    assert roofline(made({"float32": 1}, 0, 0), ROUND).moved.intensity == math.inf
    assert roofline(made({"float32": 1}, 0, 0), ROUND).moved.bound == "compute"
    assert roofline(made({}, 1, 1), ROUND).moved.attainable == 0
    assert Counts().lane_share == 1


def test_of_a_trace() -> None:
    """Each of 32 threads adds three numbers: 64 operations; 3 * 128 bytes in, 128 out."""
    case = CASES["structure of arrays"]
    found = roofline(simt.trace(case.kernel, 1, 32, case.args()), "T4")
    assert (found.kernel, found.flops) == ("structure_of_arrays", 64)
    assert found.moved.intensity == found.distinct.intensity == 64 / 512
    assert found.moved.attainable == pytest.approx(320e9 / 8)
    with pytest.raises(UserError):
        roofline(simt.trace(case.kernel, 1, 32, tuple(np.zeros(32, np.float32) for _ in range(4))), "T5")


def test_a_roofline_draws_itself() -> None:
    x = np.arange(8, dtype=np.float32)
    found = simt.trace(kernels.columns, 1, 4, (np.zeros(4, np.float32), x.reshape(4, 2))).roofline("t4")
    assert found.picture().svg in found._repr_html_()
    assert "T4" in found.picture().svg
