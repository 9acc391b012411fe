import numpy as np
import pytest
from evaluate.tiny_models import V, make_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.errors import UserError
from nanoeuler.evaluate.items import Choice, Item, choices_after
from nanoeuler.evaluate.rows import Row, batched, encode_choice, make_rows, pad
from nanoeuler.tokenizer import ByteTokenizer

BYTES = ByteTokenizer()


def item(context, *texts):
    return Item("file:7", choices_after(context, list(texts)), 0)


def test_spaces_at_the_end_of_a_context_are_the_continuations():
    context, continuation = encode_choice(BYTES, Choice("a b  ", "c"))
    assert (bytes(context.tolist()), bytes(continuation.tolist())) == (b"a b", b"  c")


def test_context_and_continuation_are_encoded_as_one_text():
    tokenizer = make_tokenizer()
    context, continuation = encode_choice(tokenizer, Choice("Enter a", " man"))
    assert np.concatenate([context, continuation]).tolist() == tokenizer.encode("Enter a man").tolist()


def test_choices_that_differ_in_their_last_token_are_one_row():
    rows = make_rows([item("ab", "x", "y", "xz"), item("ab", "y")], BYTES, 10, 256)
    assert [(bytes(row.inputs.tolist()), row.scored, bytes(row.lasts), row.asked) for row in rows] == [
        (b"ab ", 2, b"xyy", [(0, 0), (0, 1), (1, 0)]),
        (b"ab x", 3, b"z", [(0, 2)]),
    ]
    assert rows[1].targets().tolist() == [-1, *b" xz"]


def test_the_same_inputs_with_another_border_are_two_rows():
    rows = make_rows([item("ab", "c d"), item("ab c", "d")], BYTES, 10, 256)
    assert [(bytes(row.inputs.tolist()), row.scored) for row in rows] == [(b"ab c ", 4), (b"ab c ", 2)]


def test_a_long_context_loses_its_beginning():
    tokenizer = ByteTokenizer()
    tokenizer.prefix = (1,)
    (row,) = make_rows([item("abcdef", "x")], tokenizer, 4, 256)
    assert bytes(row.inputs.tolist()) == b"def "
    (row,) = make_rows([item("abcdef", "x")], tokenizer, 8, 256)
    assert row.inputs.tolist() == [1, *b"abcdef "]
    assert row.targets().tolist() == [-1] * 6 + [*b" x"]


@pytest.mark.parametrize(
    ("asked", "length", "message"),
    [
        (item("", "x"), 9, "file:7, choice 1: nothing stands before it"),
        (item("ab", "x", "long one"), 8, "file:7, choice 2: 9 tokens, and a row takes 8: give a larger --length"),
        (Item("file:7", (Choice("ab", ""),), 0), 9, "file:7, choice 1: nothing to score"),
        (item("é", "x"), 9, "token 195 at position 0 of file:7, choice 1 is beyond the model's vocabulary of 128"),
    ],
)
def test_errors(asked, length, message):
    with pytest.raises(UserError) as error:
        make_rows([asked], BYTES, length, 128)
    assert str(error.value).startswith(message)


lengths = st.lists(st.integers(1, 16), max_size=40)


@given(lengths, st.integers(16, 60))
def test_batches_have_every_row_once_and_fit(sizes, tokens):
    rows = [Row(np.full(size, i % V, np.int32), 1, [0], [(i, 0)]) for i, size in enumerate(sizes)]
    batches = list(batched(rows, tokens))
    assert sorted(row.asked[0][0] for batch in batches for row in batch) == list(range(len(rows)))
    for batch in batches:
        inputs, targets = pad(batch)
        assert inputs.shape == targets.shape == (len(batch), max(len(row.inputs) for row in batch))
        assert inputs.size <= tokens
        assert (targets >= 0).sum(axis=1).tolist() == [1] * len(batch)
    longest = [max(len(row.inputs) for row in batch) for batch in batches]
    assert longest == sorted(longest, reverse=True)
    assert all((len(batch) + 1) * len(batch[0].inputs) > tokens for batch in batches[:-1])
