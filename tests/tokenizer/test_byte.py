import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import ByteTokenizer


@given(st.text())
def test_there_and_back(text):
    ids = ByteTokenizer().encode(text)
    assert ids.dtype == np.int32
    assert ids.tolist() == list(text.encode("utf-8"))
    assert ByteTokenizer().decode(ids) == text


@given(st.lists(st.integers(0, 255)))
def test_any_bytes_decode(ids):
    assert ByteTokenizer().decode_bytes(ids) == bytes(ids)
    assert ByteTokenizer().decode(ids) == bytes(ids).decode("utf-8", errors="replace")


def test_half_a_character_is_marked():
    ids = ByteTokenizer().encode("né")
    assert ByteTokenizer().decode(ids[:2]) == "n\ufffd"


def test_what_is_not_unicode():
    with pytest.raises(UserError, match=r"U\+DCFF at position 3"):
        ByteTokenizer().encode("abc\udcff")  # as a command-line argument with a byte 0xff arrives
