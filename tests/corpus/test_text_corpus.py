import math

import numpy as np
import pytest

from nanoeuler.corpus import TextCorpus
from nanoeuler.corpus.text_corpus import split
from nanoeuler.download import sha256_of
from nanoeuler.errors import UserError
from nanoeuler.tokenizer import ByteTokenizer, CharTokenizer

TEXT = "abcdefg\u00e9\u20ac."  # ten characters, of which the last three have six bytes


def test_split_is_nanogpts():
    tokens = np.arange(1_115_394)
    train, val = split(tokens, 0.1)
    assert (len(train), len(val)) == (1_003_854, 111_540)
    assert train[-1] + 1 == val[0]
    assert np.shares_memory(train, tokens)


def test_it_is_split_and_measured():
    tokens = TextCorpus("a", TEXT, "", entropy_bits=2.0).tokens(CharTokenizer(TEXT), 10, 0.3)
    assert (len(tokens.train), len(tokens.val)) == (7, 3)
    assert CharTokenizer(TEXT).decode(tokens.val.windows(np.array([0]), 3)[0]) == TEXT[7:]
    assert tokens.fingerprint == sha256_of(TEXT.encode())
    assert tokens.bytes_per_token == 2
    assert tokens.floor == pytest.approx(2 * math.log(2))


def test_the_floor_is_for_each_token():
    tokens = TextCorpus("a", TEXT, "", entropy_bits=2.0).tokens(ByteTokenizer(), 256, 6 / 13)
    assert (len(tokens.val), tokens.bytes_per_token) == (6, 1)
    assert tokens.floor == pytest.approx(2 * math.log(2) * 3 / 6)
    assert TextCorpus("a", TEXT, "").tokens(ByteTokenizer(), 256, 0.5).floor is None


def test_a_model_with_too_small_a_vocabulary():
    with pytest.raises(UserError, match="token 195 at position 7 is beyond the model's vocabulary of 128"):
        TextCorpus("a", TEXT, "").tokens(ByteTokenizer(), 128, 0.5)


def test_a_text_of_one_character_has_nothing_to_measure():
    tokens = TextCorpus("a", "a", "", entropy_bits=2.0).tokens(CharTokenizer("a"), 1, 0.1)
    assert (len(tokens.train), len(tokens.val)) == (0, 1)
