"""Whether tiktoken may run a list of merges: the quick check against trying it."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoeuler.tokenizer.alphabet import BYTES
from nanoeuler.tokenizer.merges import first_misplaced, lengths_of, merges_of, splits, tokens_of

A, B, C = (BYTES.index(letter) for letter in (b"a", b"b", b"c"))


@st.composite
def lists_of_merges(draw):
    """Draw pairs of tokens made so far, over two letters, so that merges overlap as often as they can."""
    merges, tokens, ids = [], {b"a", b"b"}, [A, B]
    for _ in range(draw(st.integers(1, 8))):
        pair = draw(st.sampled_from(ids)), draw(st.sampled_from(ids))
        token = b"".join(tokens_of(merges)[i] for i in pair)
        if token not in tokens:
            tokens.add(token)
            ids.append(256 + len(merges))
            merges.append(pair)
    return merges


def two_by_definition(token: bytes, made: dict[tuple[int, int], int]) -> list[int]:
    """Return what BPE has made of a token's bytes when two tokens are left, or no pair is."""
    ids = [BYTES.index(bytes([byte])) for byte in token]
    while len(ids) > 2:
        pairs = [(made[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in made]
        if not pairs:
            break
        token_made, i = min(pairs)
        ids[i : i + 2] = [token_made]
    return ids


@settings(max_examples=500, deadline=None)
@given(lists_of_merges())
def test_the_first_misplaced_merge_is_found(merges):
    tokens, made = tokens_of(merges), {pair: 256 + i for i, pair in enumerate(merges)}
    misplaced = [i for i, pair in enumerate(merges) if two_by_definition(tokens[256 + i], made) != list(pair)]
    assert first_misplaced(merges) == (misplaced[0] if misplaced else None)


@settings(max_examples=500, deadline=None)
@given(lists_of_merges())
def test_merges_are_found_again_from_their_tokens(merges):
    if first_misplaced(merges) is None:
        assert merges_of(tokens_of(merges)) == merges


@settings(max_examples=500, deadline=None)
@given(st.lists(st.text("ab", min_size=2, max_size=5).map(str.encode), unique=True, max_size=8))
def test_tokens_that_no_merge_makes_are_found(tokens):
    tokens = BYTES + tokens
    rank_of = {token: rank for rank, token in enumerate(tokens)}
    expected = []
    for rank, token in enumerate(tokens[256:], 256):  # as tiktoken merges, with the tokens of lower rank
        made = {pair: r for r in range(256, rank) for pair in splits(tokens[r], rank_of, lengths_of(tokens))}
        expected.append(two_by_definition(token, made))
    found = merges_of(tokens)
    assert found == ([tuple(pair) for pair in expected] if all(len(pair) == 2 for pair in expected) else None)


def test_examples():
    assert first_misplaced([]) is None
    assert first_misplaced([(A, A), (256, A)]) is None  # aa, aa a
    assert first_misplaced([(A, A), (A, 256)]) == 1  # a aa: but of aaa the first two are merged
    assert first_misplaced([(A, B), (B, C), (A, 257)]) == 2  # a bc: but ab goes first


@pytest.mark.parametrize(
    ("merges", "said"),
    [([(0, 256)], "merge 0 is of tokens 0 and 256"), ([(A, -1)], "-1"), ([(A, A), (A, A)], "merge 1 makes b'aa'")],
)
def test_lists_that_make_no_tokens(merges, said):
    with pytest.raises(ValueError, match=said):
        tokens_of(merges)


def test_tokens_of_a_megabyte():
    """As training on one letter makes them: to try every place where they could be cut would take hours."""
    merges = [(A, A), *((i, i) for i in range(256, 275))]
    tokens = tokens_of(merges)
    assert len(tokens[-1]) == 1 << 20
    assert merges_of(tokens) == merges
