"""The statistics of a tensor, against NumPy's own over all of it at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nanoeuler.weights import statistics as module
from nanoeuler.weights.statistics import statistics

numbers = st.floats(width=32) | st.just(0.0)


@given(arrays(np.float32, st.integers(0, 40), elements=numbers), st.integers(1, 7))
def test_of_any_numbers(x: np.ndarray, bins: int) -> None:
    result, finite = statistics(x, bins), x[np.isfinite(x)].astype(np.float64)
    assert (result.size, result.zeros) == (x.size, int((x == 0).sum()))
    assert (result.nans, result.infinities) == (int(np.isnan(x).sum()), int(np.isinf(x).sum()))
    assert sum(result.histogram) == finite.size
    assert len(result.histogram) == bins
    if finite.size == 0:
        assert (result.minimum, result.maximum, result.mean, result.std) == (None, None, None, None)
        return
    assert (result.minimum, result.maximum) == (finite.min(), finite.max())
    assert result.mean == pytest.approx(finite.mean(), rel=1e-9, abs=1e-9 * np.abs(finite).max())
    assert result.std == pytest.approx(finite.std(), rel=1e-6, abs=1e-9 * np.abs(finite).max())


def test_in_pieces_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((37, 53)).astype(np.float32)
    x[3, 7], x[30, 1], x[11] = np.nan, np.inf, 0
    whole = statistics(x, 24)
    monkeypatch.setattr(module, "BLOCK", 100)
    pieces = statistics(x, 24)
    assert pieces.histogram == whole.histogram
    assert (pieces.nans, pieces.infinities, pieces.zeros) == (whole.nans, whole.infinities, whole.zeros) == (1, 1, 53)
    assert pieces.mean == pytest.approx(whole.mean, rel=1e-12)
    assert pieces.std == pytest.approx(whole.std, rel=1e-12)


def test_the_histogram_is_numpys_between_four_deviations() -> None:
    x = np.append(np.random.default_rng(0).standard_normal(5000), [50.0, -60.0])
    result = statistics(x, 10)
    assert result.low == pytest.approx(x.mean() - 4 * x.std())
    assert result.high == pytest.approx(x.mean() + 4 * x.std())
    inside, _ = np.histogram(np.clip(x, result.low, result.high), bins=10, range=(result.low, result.high))
    assert result.histogram == tuple(inside)


def test_all_the_same_number() -> None:
    assert statistics(np.full(9, 0.1, np.float32), 5).histogram == (0, 0, 9, 0, 0)
    assert statistics(np.zeros((0, 3)), 2).histogram == (0, 0)


def test_numbers_that_float64_cannot_add() -> None:
    result = statistics(np.array([-1.7e308, 1.7e308, 1.7e308, 0]), 4)
    assert (result.minimum, result.maximum, result.mean, result.std) == (-1.7e308, 1.7e308, None, None)
    assert result.histogram == (1, 0, 1, 2)
