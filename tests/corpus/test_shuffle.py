import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.corpus.shuffle import ROUNDS, Permutation, by_formula, by_sorting

SHUFFLES = pytest.mark.parametrize("shuffle", [by_sorting, by_formula])


def seed(epoch: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(5, spawn_key=(epoch,))


@given(st.integers(1, 3000), st.integers(0, 9), st.sampled_from([by_sorting, by_formula]))
def test_everything_comes_once(n, epoch, shuffle):
    order, more = shuffle(n, seed(epoch))
    assert sorted(order(np.arange(n)).tolist()) == list(range(n))
    assert 0 <= more < 2**64


@SHUFFLES
def test_the_seed_decides(shuffle):
    places = np.arange(1000)
    orders = [shuffle(1000, seed(epoch))[0](places).tolist() for epoch in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert len({shuffle(1000, seed(epoch))[1] for epoch in range(20)}) == 20


@SHUFFLES
def test_they_stay_what_they_are_from_version_to_version(shuffle):
    expected = {by_sorting: [65596, 64518, 8623, 41560, 45056], by_formula: [93722, 34365, 94457, 97401, 32398]}
    assert shuffle(10**5, seed(0))[0](np.arange(5)).tolist() == expected[shuffle]


@pytest.mark.parametrize("n", [16, 17, 300])
def test_every_place_is_as_likely_for_each(n):
    """Where the first three and the last go over many epochs: chi-square, five standard deviations allowed."""
    epochs, cells = 2000, 16
    places = np.array([0, 1, 2, n - 1])
    found = np.array([by_formula(n, seed(epoch))[0](places) for epoch in range(epochs)])
    share = np.bincount(np.arange(n) * cells // n, minlength=cells) / n
    for goes in found.T:
        counts = np.bincount(goes * cells // n, minlength=cells)
        chi = ((counts - epochs * share) ** 2 / (epochs * share)).sum()
        assert chi < cells - 1 + 5 * np.sqrt(2 * (cells - 1))


@SHUFFLES
def test_neighbours_are_not_kept_together(shuffle):
    """What follows a window is anywhere: the distance to it has the mean and the rank correlation of chance."""
    n = 20_000
    order = shuffle(n, seed(3))[0](np.arange(n))
    assert abs(np.abs(np.diff(order)).mean() / (n / 3) - 1) < 0.02
    for lag in (1, 2, 64, 128, 256):
        assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) < 5 / np.sqrt(n)
    assert abs(np.corrcoef(np.arange(n), order)[0, 1]) < 5 / np.sqrt(n)


def test_a_permutation_of_a_hundred_billion_takes_no_memory_and_no_time():
    n = 10**11 + 7
    order = Permutation(n, np.arange(1, ROUNDS + 1, dtype=np.uint64))
    places = np.random.default_rng(0).integers(0, n, 10_000)
    found = order(places)
    assert found.min() >= 0
    assert found.max() < n
    assert len(set(found.tolist())) == len(set(places.tolist()))
    assert abs(found.mean() / n - 0.5) < 0.02
