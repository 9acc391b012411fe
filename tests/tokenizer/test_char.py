import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import CharTokenizer


def test_ids_are_places_in_the_sorted_characters():
    tokenizer = CharTokenizer("hello\n")
    assert tokenizer.characters == "\nehlo"
    assert tokenizer.vocab_size == 5
    assert tokenizer.end_of_text is None
    ids = tokenizer.encode("hole\n")
    assert ids.tolist() == [2, 4, 3, 1, 0]
    assert ids.dtype == np.int32


@given(st.text(min_size=1))
def test_there_and_back(text):
    tokenizer = CharTokenizer(text)
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode_bytes(ids) == text.encode("utf-8")
    assert tokenizer.encode("").shape == (0,)


def test_every_kind_of_code_point():
    text = "\0\n é\ufeff\ufffd\U0001f600\U0010ffff\u0301"
    tokenizer = CharTokenizer(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.vocab_size == len(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("abz", r"'z' \(U\+007A\) at position 2"),
        ("éa", r"'é' \(U\+00E9\) at position 0"),
        ("ab\nab\n", r"'\\n' \(U\+000A\) at position 2"),
        ("a\U0010ffffb", r"U\+10FFFF\) at position 1"),
        ("a\udc80", r"'\\udc80' \(U\+DC80\) at position 1"),
        ("\0", r"'\\x00' \(U\+0000\) at position 0"),
    ],
)
def test_an_unknown_character_is_named(text, named):
    with pytest.raises(UserError, match=named) as error:
        CharTokenizer("abc").encode(text)
    assert "the 3 characters of its text: 'abc'" in str(error.value)
    assert str(error.value).isprintable()


def test_a_large_vocabulary_is_not_shown_whole():
    with pytest.raises(UserError, match="made of the 5000 characters") as error:
        CharTokenizer("".join(map(chr, range(0x4E00, 0x4E00 + 5000)))).encode("a")
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(("text", "said"), [("", "text is empty"), ("a\ud800", r"U\+D800 at position 1")])
def test_texts_that_give_no_vocabulary(text, said):
    with pytest.raises(UserError, match=said):
        CharTokenizer(text)


def test_a_megabyte():
    text = "ROMEO: wherefore art thou? " * 40_000
    tokenizer = CharTokenizer(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
