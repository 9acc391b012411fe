from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.corpus.mixture import Mixture

WEIGHTS = st.lists(st.fractions(min_value=Fraction(1, 1000), max_value=1000), min_size=1, max_size=5)


def plain_loop(weights: list[Fraction], windows: int) -> list[tuple[int, int]]:
    """Deal window by window, level by level, with nothing but counters."""
    dealt, reached = [0] * len(weights), [0] * len(weights)  # windows that came to each level, and those it kept
    places = []
    for _ in range(windows):
        for corpus, weight in enumerate(weights):
            reached[corpus] += 1
            if reached[corpus] * weight >= (dealt[corpus] + 1) * sum(weights[corpus:]):
                places.append((corpus, dealt[corpus]))
                dealt[corpus] += 1
                break
    return places


@given(WEIGHTS, st.integers(1, 200))
def test_it_is_what_a_plain_loop_deals(weights, windows):
    mixture = Mixture(weights)
    assert [mixture.place(window) for window in range(windows)] == plain_loop(weights, windows)


@given(WEIGHTS, st.integers(0, 10**15), st.integers(1, 50))
def test_shares_are_exact_and_each_window_is_one_more_of_its_corpus(weights, first, windows):
    mixture = Mixture(weights)
    counts = mixture.counts(first)
    for window in range(first, first + windows):
        assert sum(counts) == window
        for corpus, (count, share) in enumerate(zip(counts, mixture.shares, strict=True)):
            assert abs(count - window * share) < corpus + 1
        corpus, number = mixture.place(window)
        assert number == counts[corpus]
        counts[corpus] += 1
    assert counts == mixture.counts(first + windows)


def test_one_corpus_has_all():
    assert [Mixture([Fraction(3)]).place(window) for window in (0, 1, 10**12)] == [(0, 0), (0, 1), (0, 10**12)]


def test_small_shares_come_now_and_then():
    dealt = [Mixture([Fraction(9), Fraction(1)]).place(window)[0] for window in range(100)]
    assert dealt.count(1) == 10
    assert all(dealt[first : first + 10].count(1) == 1 for first in range(0, 100, 10))
