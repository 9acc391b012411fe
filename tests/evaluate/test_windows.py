"""Every token is scored once, with enough before it."""

from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.evaluate.windows import Window, sliding_windows


def test_the_windows_of_the_example():
    windows = [Window(0, 1, 4), Window(2, 5, 6), Window(4, 7, 8), Window(5, 9, 9)]
    assert list(sliding_windows(10, 4, 2)) == windows


@st.composite
def cuts(draw):
    length = draw(st.integers(1, 20))
    return draw(st.integers(0, 90)), length, draw(st.integers(1, length)), draw(st.integers(1, 25))


@given(cuts())
def test_each_token_is_scored_once_with_enough_before_it(cut):
    count, length, stride, first = cut
    windows = list(sliding_windows(count, length, stride, first))
    scored = [token for window in windows for token in range(window.first, window.end + 1)]
    assert scored == list(range(first, count))
    for window in windows:
        assert 0 <= window.begin < window.first <= window.end < count
        assert window.end - window.begin == min(length, count - 1)
        assert window.first - window.begin >= min(length - stride + 1, window.first)


def test_side_by_side():
    assert list(sliding_windows(9, 4, 4)) == [Window(0, 1, 4), Window(4, 5, 8)]


def test_nothing_to_score():
    assert list(sliding_windows(1, 4, 2)) == []
    assert list(sliding_windows(2, 4, 2, first=2)) == []
