"""What is the same for every kind: choosing one by name, saving, loading, damage."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import ByteTokenizer, CharTokenizer, load_tokenizer, make_tokenizer

TEXT = '\n\r\t"\\ abcé\u2028\U0001f600'
FILE = "nanoeuler_tokenizer.json"


@pytest.fixture(scope="module", params=["char", "byte"])
def tokenizer(request):
    return make_tokenizer(request.param, TEXT)


def test_by_name(tmp_path):
    assert isinstance(make_tokenizer("char", TEXT), CharTokenizer)
    assert isinstance(make_tokenizer("byte", ""), ByteTokenizer)
    with pytest.raises(
        UserError, match=r"'chars' is neither a tokenizer nor a file or folder \(did you mean 'char'\?\)"
    ):
        make_tokenizer("chars", TEXT)


def test_saved_and_loaded_it_is_the_same(tokenizer, tmp_path):
    folder = tmp_path / "new" / "run"
    tokenizer.save(folder)
    assert [file.name for file in folder.iterdir()] == [FILE]
    for loaded in (load_tokenizer(folder), load_tokenizer(str(folder)), make_tokenizer(str(folder), "other text")):
        assert type(loaded) is type(tokenizer)
        assert loaded.vocab_size == tokenizer.vocab_size
        assert loaded.fingerprint == tokenizer.fingerprint
        assert loaded.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()
    tokenizer.save(folder)  # over itself
    assert [file.name for file in folder.iterdir()] == [FILE]


def test_fingerprints_tell_tokenizers_apart():
    same = [CharTokenizer("abc").fingerprint, CharTokenizer("cabba").fingerprint]
    assert same[0] == same[1]
    different = {CharTokenizer("abc").fingerprint, CharTokenizer("abd").fingerprint, ByteTokenizer().fingerprint}
    assert len(different) == 3
    assert all(len(f) == 64 and int(f, 16) >= 0 for f in different)


@pytest.mark.parametrize("ids", [[], [0], 3, (1, 2), np.array([[1], [2]], np.uint16), np.zeros(0, np.int64)])
def test_ids_come_in_any_form(tokenizer, ids):
    assert len(tokenizer.decode_bytes(ids)) == np.size(ids)


@pytest.mark.parametrize("bad", [-1, 256, 10**6])
def test_an_id_beyond_the_vocabulary(tokenizer, bad):
    with pytest.raises(UserError, match=f"token {bad} is beyond the tokenizer's vocabulary of {tokenizer.vocab_size}"):
        tokenizer.decode_bytes([0, bad])
    assert tokenizer.decode([0, bad, 1]) == tokenizer.decode([0]) + "\ufffd" + tokenizer.decode([1])


@given(ids=st.lists(st.integers() | st.floats() | st.integers(0, 300)))
def test_any_ids_decode(tokenizer, ids):
    known = [i for i in ids if 0 <= i < tokenizer.vocab_size and i == int(i)]
    assert tokenizer.decode(ids).count("\ufffd") >= len(ids) - len(known)


def test_no_special_tokens(tokenizer):
    assert tokenizer.encode(TEXT, allowed_special="all").tolist() == tokenizer.encode(TEXT).tolist()
    with pytest.raises(UserError, match=r"'<\|endoftext\|>' is no special token of this tokenizer: it has none"):
        tokenizer.encode(TEXT, ["<|endoftext|>"])


def test_no_flipped_bit_goes_unnoticed(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    file = tmp_path / FILE
    good = file.read_bytes()
    messages = []
    for position in range(len(good)):
        flipped = good[position] ^ 1 << position % 8
        file.write_bytes(good[:position] + bytes([flipped]) + good[position + 1 :])
        try:
            assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint  # white space, say
        except UserError as error:
            messages.append(str(error))
    assert len(messages) > len(good) / 2
    assert all(str(tmp_path) in message for message in messages)


def test_nor_a_cut_off_end(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    file = tmp_path / FILE
    good = file.read_bytes()
    for length in range(len(good.rstrip())):
        file.write_bytes(good[:length])
        with pytest.raises(UserError, match="damaged"):
            load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version 2 of the format; this nanoeuler reads 1"),
        ({"kind": "wordpiece"}, "kind 'wordpiece'"),
        ({"characters": ["a", "b"]}, "kind 'char'"),
        ({"characters": ""}, "empty"),
        ({"characters": "\ud800"}, "not valid Unicode"),
        ({"fingerprint": None}, "not the one that was saved"),
    ],
)
def test_a_file_that_says_something_else(tmp_path, change, said):
    CharTokenizer(TEXT).save(tmp_path)
    record = json.loads((tmp_path / FILE).read_text()) | change
    (tmp_path / FILE).write_text(json.dumps(record))
    with pytest.raises(UserError, match=said):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("content", ["[]", "null", "{}", '{"kind": "byte"}', "\x00", "\ufeff{}"])
def test_a_file_that_is_no_tokenizer(tmp_path, content):
    (tmp_path / FILE).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match="damaged"):
        load_tokenizer(tmp_path)


def test_no_tokenizer_there(tmp_path):
    with pytest.raises(UserError, match="no saved tokenizer here"):
        load_tokenizer(tmp_path)
    with pytest.raises(UserError, match="no saved tokenizer here"):
        load_tokenizer(tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot read|no saved tokenizer"):
        make_tokenizer(str(tmp_path / "file"), TEXT)


def test_a_folder_that_cannot_be_written(tokenizer, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write"):
        tokenizer.save(tmp_path / "file" / "run")
