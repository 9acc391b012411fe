import hashlib
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoeuler.corpus import Batches, Tokens, check_vocabulary
from nanoeuler.corpus.shuffle import Shuffle, by_formula, by_sorting
from nanoeuler.corpus.stream import array_stream
from nanoeuler.errors import UserError

SHUFFLES = pytest.mark.parametrize("shuffle", [by_sorting, by_formula])


def counting_tokens(train: int = 1003, val: int = 200, begin: int = 0, **kwargs: Any) -> Tokens:
    """Return tokens that are their own positions, counted from ``begin``."""
    return Tokens(*(array_stream(np.arange(begin, begin + n, dtype=np.int32)) for n in (train, val)), **kwargs)


def counting(train: int = 1003, val: int = 200, shuffle: Shuffle = by_sorting, **kwargs: Any) -> Batches:
    """Return batches over tokens that are their own positions."""
    arguments = {"batch_size": 4, "T": 8, "heads": 1, "seed": 5} | kwargs
    return Batches([counting_tokens(train, val, shuffle=shuffle)], **arguments)


def starts(batches: Batches, count: int, dealt: int = 0) -> list[int]:
    """Return the first tokens of the windows of the next batches of a rank."""
    return [int(row[0]) for inputs, _ in islice(batches.training_batches(dealt), count) for row in inputs]


@pytest.mark.parametrize("dtype", [np.int32, np.uint16, np.int64])
def test_head_k_predicts_k_plus_one_ahead(dtype):
    tokens = np.arange(500, dtype=dtype)
    batches = Batches([Tokens(array_stream(tokens), array_stream(tokens))], 4, 8, heads=3)
    for inputs, targets in [batches.training_batch(0), next(batches.validation_batches(1))]:
        assert (inputs.shape, targets.shape) == ((4, 8), (3, 4, 8))
        assert inputs.dtype == targets.dtype == np.int32
        assert inputs.flags.c_contiguous
        assert targets.flags.c_contiguous
        assert (np.diff(inputs, axis=1) == 1).all()
        for head in range(3):
            assert (targets[head] == inputs + head + 1).all()


@SHUFFLES
def test_an_epoch_deals_each_window_once_and_the_next_cuts_elsewhere(shuffle):
    batches = counting(shuffle=shuffle)
    n = batches.windows[0].per_epoch
    assert n == (1003 - 1 - 7) // 8
    drawn = starts(batches, n)  # four epochs, for batches of four
    offsets = []
    for epoch in range(4):
        places = drawn[epoch * n : (epoch + 1) * n]
        assert places != sorted(places)
        offsets.append(min(places))
        assert sorted(places) == [min(places) + 8 * i for i in range(n)]
        assert min(places) < 8
        assert max(places) + 8 + 1 <= 1003
    assert len(set(offsets)) > 1


@SHUFFLES
def test_the_whole_state_is_one_integer(shuffle):
    straight = list(islice(counting(shuffle=shuffle).training_batches(), 80))
    one = counting(shuffle=shuffle)
    for index in [79, 3, 40, 41, 0, 31, 30]:  # in any order, over borders of epochs
        for a, b in zip(one.training_batch(4 * index), straight[index], strict=True):
            assert (a == b).all()


@SHUFFLES
def test_the_seed_decides(shuffle):
    one, other = counting(seed=1, shuffle=shuffle), counting(seed=2, shuffle=shuffle)
    assert starts(one, 5) == starts(counting(seed=1, shuffle=shuffle), 5)
    assert starts(one, 5) != starts(other, 5)
    n = one.windows[0].per_epoch
    later, other = starts(one, n)[n : 2 * n], starts(other, n)[:n]
    assert later != other  # epoch 1 of seed 1 is not epoch 0 of seed 2


def test_batches_stay_what_they_are_from_version_to_version():
    """A run that was begun with an older NumPy or nanoeuler must go on with the same data."""
    batches = counting(seed=1337)
    assert batches.training_batch(0)[0][:, 0].tolist() == [309, 509, 541, 405]
    assert batches.training_batch(1600)[0][:, 0].tolist() == [836, 804, 780, 884]
    batches = counting(batch_size=5, heads=3, seed=7)
    assert batches.training_batch(0)[0][:, 0].tolist() == [642, 890, 274, 194, 282]
    assert batches.training_batch(120)[0][:, 0].tolist() == [322, 378, 386, 506, 661]  # over the border of two epochs
    assert batches.training_batch(5000)[0][:, 0].tolist() == [187, 811, 963, 539, 195]


def test_so_do_all_the_tokens_of_many_batches():
    """The digests are those of the first release that had batches."""
    batches = counting(90_000, 10_000, batch_size=12, T=64, seed=1337)
    digest = hashlib.sha256()
    for inputs, targets in islice(batches.training_batches(), 400):  # more than three epochs
        digest.update(inputs.tobytes() + targets.tobytes())
    assert digest.hexdigest() == "3b34ac6cd9105800383950a480be361a7565cb95cbe5537b504c32d3e20ac9c5"


def test_prepared_corpora_keep_their_order_too():
    batches = counting(seed=1337, shuffle=by_formula)
    assert batches.training_batch(0)[0][:, 0].tolist() == [186, 562, 466, 82]
    assert batches.training_batch(1600)[0][:, 0].tolist() == [701, 557, 861, 693]


@SHUFFLES
@pytest.mark.parametrize("train", [9, 10, 16, 17, 18, 24, 25])
def test_a_text_of_few_windows_is_dealt_again_and_again(train, shuffle):
    batches = counting(train=train, batch_size=5, shuffle=shuffle)
    assert batches.windows[0].per_epoch >= 1
    drawn = starts(batches, 40)
    assert set(drawn) <= set(range(train - 8))
    if train >= 16:
        assert set(drawn) >= set(range(8))


@given(st.integers(1, 20), st.integers(1, 4), st.integers(0, 300), st.integers(1, 9))
def test_every_window_lies_within_the_text(T, heads, extra, batch_size):
    train = T + heads + extra
    batches = counting(train=train, T=T, heads=heads, batch_size=batch_size, val=T + heads)
    n = batches.windows[0].per_epoch
    assert n >= 1
    assert n * T >= train - heads - 2 * (T - 1)  # an epoch leaves out less than a window at either end
    for inputs, targets in islice(batches.training_batches(), 5):
        assert inputs.min() >= 0
        assert targets.max() < train


@given(st.integers(9, 300), st.integers(1, 12), st.integers(1, 7))
def test_validation_windows_are_spread_evenly_and_are_all_different(val, count, batch_size):
    batches = counting(val=val, batch_size=batch_size)
    found = list(batches.validation_batches(count))
    places = [int(row[0]) for inputs, _ in found for row in inputs]
    assert len(places) == min(count * batch_size, val - 8)
    assert places[0] == 0
    steps = np.diff(places)
    if len(places) > 1:
        assert places[-1] == val - 9
        assert steps.min() >= 1
        assert steps.max() - steps.min() <= 1
    assert all(len(inputs) == batch_size for inputs, _ in found[:-1])
    again = [int(row[0]) for inputs, _ in batches.validation_batches(count) for row in inputs]
    assert again == places


def test_the_shortest_texts_that_do():
    batches = counting(train=11, val=11, heads=3)
    assert starts(batches, 2) == [0] * 8
    assert len(list(batches.validation_batches(200))) == 1


@pytest.mark.parametrize(
    ("train", "val", "said"),
    [
        (8, 200, "training part of the text has 8 tokens, and one window takes 9"),
        (0, 200, "training part of the text has 0 tokens, and one window takes 9"),
        (200, 8, "validation part of the text has 8 tokens, and one window takes 9 .*val_fraction"),
    ],
)
def test_a_text_shorter_than_a_window(train, val, said):
    with pytest.raises(UserError, match=said) as error:
        counting(train=train, val=val)
    assert "model.max_seq_len" in str(error.value)


@pytest.mark.parametrize(
    ("tokens", "said"), [([0, 64, 65, 70], "token 65 at position 2"), ([3, -1], "token -1 at position 1")]
)
def test_a_token_beyond_the_vocabulary(tokens, said):
    with pytest.raises(UserError, match=f"{said} is beyond the model's vocabulary of 65"):
        check_vocabulary(np.array(tokens, np.int32), 65)
    check_vocabulary(np.array([0, 64], np.int32), 65)
    check_vocabulary(np.array([], np.int32), 65)
    with pytest.raises(UserError, match="token 65 at row 1, column 0 is beyond"):
        check_vocabulary(np.array([[1, 2], [65, 66]]), 65, lambda index: f"row {index // 2}, column {index % 2}")


# --- ranks


@SHUFFLES
def test_ranks_share_out_the_sequence_of_one(shuffle):
    alone = starts(counting(shuffle=shuffle, batch_size=1), 240)
    for ranks in (1, 2, 3, 5):
        shares = [counting(shuffle=shuffle, rank=rank, ranks=ranks) for rank in range(ranks)]
        dealt = []
        for first in range(0, 240, 4 * ranks):
            parts = [share.training_batch(first)[0][:, 0].tolist() for share in shares]
            assert shares[0].global_batch == 4 * ranks
            dealt += [window for part in parts for window in part]
        assert dealt == alone  # so the parts are disjoint within an epoch, as its windows are


@given(st.lists(st.tuples(st.sampled_from([1, 2, 3, 5]), st.integers(1, 4)), min_size=1, max_size=4), st.booleans())
@settings(deadline=None)
def test_restored_on_other_numbers_of_ranks_no_window_is_lost_and_none_comes_twice(sessions, formula):
    """Each session has some ranks for some steps, and hands on nothing but one integer."""
    shuffle = by_formula if formula else by_sorting
    dealt, drawn = 0, []
    for ranks, steps in sessions:
        shares = [counting(batch_size=3, shuffle=shuffle, rank=rank, ranks=ranks) for rank in range(ranks)]
        iterators = [share.training_batches(dealt) for share in shares]
        for _ in range(steps):
            drawn += [int(row[0]) for iterator in iterators for row in next(iterator)[0]]
            dealt += shares[0].global_batch
    assert drawn == starts(counting(batch_size=dealt, shuffle=shuffle), 1)


def test_validation_batches_are_the_same_on_all_ranks():
    one = [inputs.tolist() for inputs, _ in counting().validation_batches(5)]
    other = counting(rank=2, ranks=3)
    other.training_batch(96)
    assert [inputs.tolist() for inputs, _ in other.validation_batches(5)] == one


# --- several corpora


def two(**kwargs: Any) -> Batches:
    """Return batches of two corpora, the second's tokens being 100,000 and more, with weights of 2 and 1."""
    corpora = [counting_tokens(), counting_tokens(500, 100, 100_000, shuffle=by_formula)]
    arguments = {"batch_size": 6, "T": 8, "seed": 5, "weights": [Fraction(2), Fraction(1)]} | kwargs
    return Batches(corpora, **arguments)


def test_each_batch_has_each_corpus_in_its_share_and_each_corpus_its_own_epochs():
    batches = two()
    drawn = np.array(starts(batches, 300)).reshape(300, 6)
    assert ((drawn >= 100_000).sum(1) == 2).all()
    first, second = drawn[drawn < 100_000].tolist(), (drawn[drawn >= 100_000] - 100_000).tolist()
    assert first == starts(counting(), 300)
    assert second != starts(counting(500, 100, shuffle=by_formula), 150)  # another shuffle than as the only corpus
    n = batches.windows[1].per_epoch
    for epoch in range(len(second) // n):
        places = sorted(second[epoch * n : (epoch + 1) * n])
        assert places == list(range(places[0], places[0] + 8 * n, 8))


def test_a_mixture_is_shared_out_among_ranks_too():
    alone = starts(two(batch_size=1), 60)
    shares = [two(batch_size=2, rank=rank, ranks=3) for rank in range(3)]
    assert [window for first in range(0, 60, 6) for s in shares for window in starts(s, 1, first)] == alone


def test_validation_windows_of_a_mixture_are_in_its_shares():
    found = [int(row[0]) for inputs, _ in two().validation_batches(5) for row in inputs]
    assert sum(place < 100_000 for place in found) == 20
    assert sorted(set(found)) == sorted(found)
    assert found[:20] == [int(row[0]) for inputs, _ in counting(batch_size=5).validation_batches(4) for row in inputs]
    assert (found[20], found[-1]) == (100_000, 100_091)


def test_a_corpus_that_is_too_short_is_named():
    short = counting_tokens(5, name="data/owls", longer="prepare more")
    with pytest.raises(UserError, match=r"the training part of data/owls has 5 tokens, .*, or prepare more"):
        Batches([counting_tokens(), short], 4, 8)


def test_a_token_beyond_the_vocabulary_is_found_in_its_batch():
    assert starts(counting(vocab_size=1003), 40)
    with pytest.raises(UserError, match=r"token (\d+) at position \1 is beyond the model's vocabulary of 900"):
        starts(counting(vocab_size=900), 40)
    with pytest.raises(UserError, match="token 150 at position 150 is"):
        list(counting(vocab_size=150).validation_batches(50))
