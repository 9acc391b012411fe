from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.corpus import load_corpus
from nanoeuler.corpus.mixture import Mixture, parse_mixture
from nanoeuler.errors import UserError

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


def test_weights_become_shares():
    assert parse_mixture("a=0.7,b=0.3") == [("a", Fraction(7, 10)), ("b", Fraction(3, 10))]
    assert parse_mixture(" data/a = 2 , x=y.txt=1/2 ,c=1.5e0") == [
        ("data/a", Fraction(1, 2)),
        ("x=y.txt", Fraction(1, 8)),
        ("c", Fraction(3, 8)),
    ]
    assert parse_mixture("a=5") == [("a", Fraction(1))]


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ("a=1,b", "'b' is no corpus with a weight above 0"),
        ("a=1,b=", "'b='"),
        ("a=1,=2", "'=2'"),
        ("a=1,", "''"),
        ("a=0,b=1", "'a=0'"),
        ("a=-1,b=1", "'a=-1'"),
        ("a=nan", "'a=nan'"),
        ("a=inf", "'a=inf'"),
        ("a=1/0", "'a=1/0'"),
        ("a=b.txt", "'a=b.txt'"),
        ("a=1,b=2,a=3", "a is there twice"),
    ],
)
def test_what_is_no_mixture(dataset, said):
    with pytest.raises(UserError, match=r"data\.dataset") as error:
        load_corpus(dataset)
    assert said in str(error.value)
