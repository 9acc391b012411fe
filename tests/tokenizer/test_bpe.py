import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer.byte_pairs import learn, merged
from tokenizer.texts import AWKWARD, TEXT, texts

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import BPETokenizer, load_tokenizer
from nanoeuler.tokenizer.alphabet import BYTES
from nanoeuler.tokenizer.patterns import PATTERNS, split


@pytest.fixture(scope="module", params=["gpt2", "gpt4", "gpt4o"])
def tokenizer(request) -> BPETokenizer:
    return BPETokenizer(learn(TEXT, 150, request.param), request.param)


def test_by_hand():
    a, b, c = (BYTES.index(letter) for letter in (b"a", b"b", b"c"))
    tokenizer = BPETokenizer([(a, b), (256, c), (b, c)])
    assert tokenizer.encode("abcbc cab").tolist() == [257, 258, BYTES.index(b" "), c, 256]
    assert tokenizer.vocab_size == 260
    assert tokenizer.end_of_text == 259
    assert tokenizer.decode([257, 258, 259]) == "abcbc<|endoftext|>"


@settings(max_examples=300, deadline=None)
@given(text=texts())
def test_ids_are_those_of_the_definition(tokenizer, text):
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int32
    assert ids.tolist() == tokenizer.encode_definition(text).tolist()
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode_bytes(ids) == text.encode()


@settings(deadline=None)
@given(text=texts())
def test_ids_are_those_of_merging_in_the_order_of_training(tokenizer, text):
    expected: list[int] = []
    for word in split(tokenizer.pattern, text):
        ids = [BYTES.index(bytes([byte])) for byte in word.encode()]
        for i, pair in enumerate(tokenizer.merges):
            ids = merged(ids, pair, 256 + i)
        expected += ids
    assert tokenizer.encode(text).tolist() == expected


@pytest.mark.parametrize("text", AWKWARD, ids=lambda text: ascii(text[:20]))
def test_awkward_texts(tokenizer, text):
    ids = tokenizer.encode(text)
    assert ids.tolist() == tokenizer.encode_definition(text).tolist()
    assert tokenizer.decode(ids) == text


@pytest.mark.slow
@pytest.mark.parametrize("character", [" ", "\n", "a", "A", "1", "!", "日", "\u0301"], ids=ascii)
@pytest.mark.parametrize("pattern", ["gpt2", "gpt4", "gpt4o"])
def test_long_runs_of_one_kind(character, pattern):
    """On some of them tiktoken's regular expressions fail."""
    tokenizer = BPETokenizer([], pattern)
    text = "x" + character * 1_000_000 + "x"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_run_on_which_tiktoken_fails_is_cut_as_others_are():
    space = BYTES.index(b" ")
    tokenizer = BPETokenizer([(space, space), (space, 64), (256, 256)])  # " a" is a token
    assert tokenizer.encode(" " * 9 + "a").tolist() == [258, 258, 257]
    assert tokenizer.encode(" " * 1_000_001 + "a").tolist() == [258] * 250_000 + [257]


def test_special_tokens_are_made_only_when_asked_for(tokenizer):
    end = tokenizer.end_of_text
    text = "then<|endoftext|> there"
    assert end not in tokenizer.encode(text)
    ids = tokenizer.encode(text, allowed_special="all")
    assert ids.dtype == np.int32
    assert ids.tolist() == [*tokenizer.encode("then"), end, *tokenizer.encode(" there")]
    assert tokenizer.encode(text, {"<|endoftext|>"}).tolist() == ids.tolist()
    assert tokenizer.decode(ids) == text
    with pytest.raises(UserError, match=r"'<\|endoftex\|>' is no special token \(did you mean '<\|endoftext\|>'\?\)"):
        tokenizer.encode(text, ["<|endoftex|>"])


def test_of_special_tokens_the_longest_is_found():
    tokenizer = BPETokenizer([], special={"<a>": 300, "<a><b>": 256, "<b>": 257})
    assert tokenizer.encode("<a><b><b><a>", "all").tolist() == [256, 257, 300]
    assert tokenizer.vocab_size == 301
    assert tokenizer.end_of_text is None
    assert tokenizer.encode("<a>", ["<b>"]).tolist() == tokenizer.encode("<a>").tolist()


@given(st.lists(st.integers() | st.floats()) | st.lists(st.integers(-3, 500)))
def test_any_ids_decode(tokenizer, ids):
    text = tokenizer.decode(ids)
    unknown = sum(not (0 <= i < tokenizer.vocab_size and i == int(i)) for i in ids if i == i) + sum(i != i for i in ids)
    assert text.count("\ufffd") >= unknown


def test_ids_that_are_no_tokens():
    tokenizer = BPETokenizer([], special={"<end>": 300})
    euro = tokenizer.encode("€").tolist()
    assert (
        tokenizer.decode([*euro, -1, 256, 300, 10**30, 2.0, 2.5, *euro[:1]]) == "€\ufffd\ufffd<end>\ufffd#\ufffd\ufffd"
    )
    assert tokenizer.decode(np.array([2**64 - 1], np.uint64)) == "\ufffd"
    assert tokenizer.decode([]) == ""
    assert tokenizer.token_ids().tolist() == [*range(256), 300]
    for bad, said in [(256, "token 256 is not in"), (-1, "-1 is beyond"), (10**30, f"{10**30} is beyond")]:
        with pytest.raises(UserError, match=said):
            tokenizer.decode_bytes([0, bad])


def test_what_is_not_unicode(tokenizer):
    with pytest.raises(UserError, match=r"U\+D83D at position 1"):
        tokenizer.encode("a\ud83d")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([(0, 256)],), "merge 0"),
        (([(0, 0), (0, 256)],), "before merge 1"),
        (([], "gpt3"), "unknown pattern 'gpt3'"),
        (([], "("), "pattern"),
        (([], "gpt2", {"<a>": 255}), "two tokens with one id"),
        (([], "gpt2", {"<a>": -1}), "below 0"),
        (([], "gpt2", {"<a>": 10**15}), "beyond"),
        (([], "gpt2", {"<a>": 256.5}), "whole numbers"),
        (([], "gpt2", {"": 256}), "cannot be empty"),
        (([], "gpt2", {"\ud800": 256}), r"special token '\\ud800' is not valid Unicode"),
        (([], "gpt2", {"<a>": 256, "<b>": 256}), "two tokens with one id"),
    ],
)
def test_what_is_no_tokenizer(arguments, said):
    with pytest.raises(UserError, match=said):
        BPETokenizer(*arguments)


def test_fingerprints_tell_tokenizers_apart():
    merges = learn(TEXT, 20)
    given = [
        BPETokenizer(merges),
        BPETokenizer(merges[:-1]),
        BPETokenizer(merges, "gpt4"),
        BPETokenizer(merges, special={}),
        BPETokenizer(merges, special={"<|endoftext|>": 300}),
        BPETokenizer.from_ranks(BPETokenizer(merges).tokens, "gpt2", {}, range(1, 277)),
    ]
    assert len({tokenizer.fingerprint for tokenizer in given}) == len(given)
    same = BPETokenizer.from_ranks(given[0].tokens, PATTERNS["gpt2"], {"<|endoftext|>": 276})
    assert same.fingerprint == given[0].fingerprint
    assert BPETokenizer(merges, "llama3").fingerprint == given[2].fingerprint  # the same pattern


def test_saved_and_loaded_and_sent_it_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "run")
    for other in (load_tokenizer(tmp_path / "run"), pickle.loads(pickle.dumps(tokenizer))):
        assert other.fingerprint == tokenizer.fingerprint
        assert other.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()
        assert other.merges == tokenizer.merges


def test_a_vocabulary_with_tokens_that_no_merge_makes(tmp_path):
    """As Llama 3's: tiktoken gives such a token where it is the whole of a pre-token."""
    tokenizer = BPETokenizer.from_ranks([*BYTES, b"abcd", b"bc"], "gpt2", {})
    assert not tokenizer.merges_are_tokens
    assert tokenizer.encode("abcd abcde").tolist() == [256, 220, 64, 257, 67, 68]
    assert tokenizer.encode_definition("abcd abcde").tolist() == [256, 220, 64, 257, 67, 68]
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text("ab", min_size=2, max_size=5).map(str.encode), unique=True, max_size=8), st.text("ab "))
def test_any_ranks_are_run_as_the_definition_says(tokens, text):
    tokenizer = BPETokenizer.from_ranks(BYTES + tokens, "gpt2", {})
    assert tokenizer.encode(text).tolist() == tokenizer.encode_definition(text).tolist()
