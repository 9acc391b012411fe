import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.corpus import Batches, check_vocabulary, split
from nanoeuler.errors import UserError


def counting(train: int = 1003, val: int = 200, **kwargs) -> Batches:
    """Return batches over tokens that are their own positions."""
    arguments = {"batch_size": 4, "T": 8, "heads": 1, "seed": 5} | kwargs
    return Batches(np.arange(train, dtype=np.int32), np.arange(val, dtype=np.int32), **arguments)


def starts(batches: Batches, count: int) -> list[int]:
    return [int(row[0]) for index in range(count) for row in batches.training_batch(index)[0]]


def test_split_is_nanogpts():
    tokens = np.arange(1_115_394)
    train, val = split(tokens, 0.1)
    assert (len(train), len(val)) == (1_003_854, 111_540)
    assert train[-1] + 1 == val[0]
    assert np.shares_memory(train, tokens)


@pytest.mark.parametrize("dtype", [np.int32, np.uint16, np.int64])
def test_head_k_predicts_k_plus_one_ahead(dtype):
    tokens = np.arange(500, dtype=dtype)
    batches = Batches(tokens, tokens, 4, 8, heads=3)
    for inputs, targets in [batches.training_batch(0), next(batches.validation_batches(1))]:
        assert (inputs.shape, targets.shape) == ((4, 8), (3, 4, 8))
        assert inputs.dtype == targets.dtype == np.int32
        assert inputs.flags.c_contiguous
        assert targets.flags.c_contiguous
        assert (np.diff(inputs, axis=1) == 1).all()
        for head in range(3):
            assert (targets[head] == inputs + head + 1).all()


def test_an_epoch_deals_each_window_once_and_the_next_cuts_elsewhere():
    batches = counting()
    n = batches.windows_per_epoch
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


def test_the_whole_state_is_one_integer():
    straight = [counting().training_batch(i) for i in range(80)]
    one = counting()
    for index in [79, 3, 40, 41, 0, 31, 30]:  # in any order, over borders of epochs
        for a, b in zip(one.training_batch(index), straight[index], strict=True):
            assert (a == b).all()


def test_the_seed_decides():
    assert starts(counting(seed=1), 5) == starts(counting(seed=1), 5)
    assert starts(counting(seed=1), 5) != starts(counting(seed=2), 5)
    n = counting().windows_per_epoch
    later, other = starts(counting(seed=1), n)[n : 2 * n], starts(counting(seed=2), n)[:n]
    assert later != other  # epoch 1 of seed 1 is not epoch 0 of seed 2


def test_batches_stay_what_they_are_from_version_to_version():
    """A run that was begun with an older NumPy or nanoeuler must go on with the same data."""
    batches = counting(seed=1337)
    assert batches.training_batch(0)[0][:, 0].tolist() == [309, 509, 541, 405]
    assert batches.training_batch(400)[0][:, 0].tolist() == [836, 804, 780, 884]


@pytest.mark.parametrize("train", [9, 10, 16, 17, 18, 24, 25])
def test_a_text_of_few_windows_is_dealt_again_and_again(train):
    batches = counting(train=train, batch_size=5)
    assert batches.windows_per_epoch >= 1
    drawn = starts(batches, 20)
    assert set(drawn) <= set(range(train - 8))
    if train >= 16:
        assert set(drawn) >= set(range(8))


@given(st.integers(1, 20), st.integers(1, 4), st.integers(0, 300), st.integers(1, 9))
def test_every_window_lies_within_the_text(T, heads, extra, batch_size):
    train = T + heads + extra
    batches = counting(train=train, T=T, heads=heads, batch_size=batch_size, val=T + heads)
    n = batches.windows_per_epoch
    assert n >= 1
    assert n * T >= train - heads - 2 * (T - 1)  # an epoch leaves out less than a window at either end
    for index in range(5):
        inputs, targets = batches.training_batch(index)
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
