"""The learning rate of every step, against values worked out by hand."""

from itertools import pairwise
from typing import Any

import pytest

from nanoeuler.config import TrainingConfig
from nanoeuler.schedule import learning_rate

#: Four steps of warm-up, then eleven (4 to 14) from the peak 1 to the lowest rate 0.1.
USUAL = {"learning_rate": 1.0, "min_learning_rate": 0.1, "warmup_steps": 4, "total_steps": 15, "decay_fraction": 0.2}
SCHEDULES = ["cosine", "linear", "constant", "wsd"]
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def rates(schedule: str, **changes: Any) -> list[float]:
    """Return the rate of every step of a run."""
    training = TrainingConfig(schedule=schedule, **(USUAL | changes))
    return [learning_rate(step, training) for step in range(training.total_steps)]


@schedules
def test_the_warm_up_is_a_line_that_would_reach_the_peak_one_step_later(schedule: str) -> None:
    assert rates(schedule)[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("cosine", {4: 1.0, 6: 0.1 + 0.9 * 0.9045085, 9: 0.55, 12: 0.1 + 0.9 * 0.0954915, 14: 0.1}),
        ("linear", {4: 1.0, 6: 0.82, 9: 0.55, 12: 0.28, 14: 0.1}),
        ("constant", {4: 1.0, 9: 1.0, 14: 1.0}),
        ("wsd", {4: 1.0, 9: 1.0, 12: 1.0, 13: 0.55, 14: 0.1}),  # the last fifth of 15 steps is three
    ],
)
def test_each_shape_by_hand(schedule: str, expected: dict[int, float]) -> None:
    got = rates(schedule)
    assert {step: got[step] for step in expected} == pytest.approx(expected, abs=1e-7)


@schedules
def test_rates_scale_with_the_peak(schedule: str) -> None:
    assert rates(schedule, learning_rate=3e-4) == pytest.approx([3e-4 * rate for rate in rates(schedule)], rel=1e-12)


@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd"])
def test_the_lowest_rate_may_be_zero_or_the_peak(schedule: str) -> None:
    assert rates(schedule, min_learning_rate=0)[-1] == pytest.approx(0, abs=1e-15)
    assert rates(schedule, min_learning_rate=1)[4:] == pytest.approx([1.0] * 11)


@schedules
def test_without_a_warm_up_the_first_step_has_the_peak(schedule: str) -> None:
    assert rates(schedule, warmup_steps=0)[0] == 1.0


@schedules
def test_one_step(schedule: str) -> None:
    assert rates(schedule, total_steps=1, warmup_steps=0) == [1.0]
    assert rates(schedule, total_steps=1, warmup_steps=1) == [0.5]


@schedules
def test_a_run_shorter_than_its_warm_up_never_reaches_the_peak(schedule: str) -> None:
    assert rates(schedule, total_steps=3, warmup_steps=9) == pytest.approx([0.1, 0.2, 0.3])


@schedules
def test_a_warm_up_as_long_as_the_run_but_one_step(schedule: str) -> None:
    assert rates(schedule, total_steps=5)[3:] == pytest.approx([0.8, 1.0])


def test_wsd_decays_never_or_from_the_warm_up_on() -> None:
    assert rates("wsd", decay_fraction=0)[4:] == [1.0] * 11
    assert rates("wsd", decay_fraction=1) == pytest.approx(rates("linear"))


@schedules
def test_after_the_last_step_the_rate_stays(schedule: str) -> None:
    training = TrainingConfig(schedule=schedule, **USUAL)
    assert learning_rate(99, training) == pytest.approx(learning_rate(14, training), abs=1e-12)


@schedules
def test_rates_rise_and_then_never_rise_again(schedule: str) -> None:
    got = rates(schedule, total_steps=60, warmup_steps=7)
    assert all(a < b for a, b in pairwise(got[:8]))
    assert all(a >= b for a, b in pairwise(got[7:]))
    assert min(got[7:]) >= 0.1 - 1e-12
