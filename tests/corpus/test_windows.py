import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.corpus.shuffle import by_formula, by_sorting
from nanoeuler.corpus.windows import Windows


@given(st.integers(1, 9), st.integers(1, 3), st.integers(0, 60), st.sampled_from([by_sorting, by_formula]))
def test_an_epoch_has_as_many_windows_wherever_it_begins(T, heads, extra, shuffle):
    tokens = T + heads + extra
    windows = Windows(tokens, T, heads, 3, shuffle)
    n = windows.per_epoch
    for epoch in range(4):
        starts = np.sort(windows.starts(np.arange(epoch * n, (epoch + 1) * n)))
        assert (np.diff(starts) == T).all()
        assert 0 <= starts[0] < T
        assert starts[-1] + T + heads <= tokens


def test_any_window_of_any_epoch_at_once():
    windows = Windows(1003, 8, 1, 5, by_formula)
    numbers = np.array([900, 3, 10**12, 130, 3])
    assert windows.starts(numbers).tolist() == [int(windows.starts(np.array([n]))[0]) for n in numbers]


def test_corpora_of_one_run_are_shuffled_each_in_its_way():
    places = np.arange(500)
    for shuffle in (by_sorting, by_formula):
        first, second = (Windows(10_000, 8, 1, 5, shuffle, number).starts(places) for number in (0, 1))
        assert (first // 8 != second // 8).mean() > 0.9
