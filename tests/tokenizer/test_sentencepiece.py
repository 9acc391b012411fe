"""llama2.c's tokenizer.bin: against the plain loop of its definition, and SentencePiece where it is installed."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer.texts import AWKWARD, TEXT

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import Llama2cTokenizer, load_tokenizer

SPECIAL = [(b"<unk>", 0.0), (b"\n<s>\n", 0.0), (b"\n</s>\n", 0.0)]
BYTES = [(b"<0x%02X>" % byte, 0.0) for byte in range(256)]
#: Merges with equal scores, with scores in no order, and several ways to one token; the last ones are characters.
PIECES = [
    (b"th", -5.0), (b"he", -1.0), (b"the", -2.0), (b" the", -3.0), (b" t", -4.0), (b"  ", -1.5), (b"    ", -1.25),
    (b"aa", -7.0), (b"aaa", -6.5), (b"ee", -7.0), (b"ha", -7.0), ("é".encode(), -9.0), (b"\xc3\xa9a", -0.5),
    *((bytes([byte]), -1000.0) for byte in b" thea"), ("東".encode(), -1000.0),
]  # fmt: skip
#: With a space after something else, as SentencePiece makes when told not to split at white space.
ACROSS = [(b"e t", -0.25), (b"a ", -0.75)]


def file(pieces: list[tuple[bytes, float]], longest: int = 27) -> bytes:
    """Return a tokenizer.bin."""
    entries = [struct.pack("<fi", score, len(piece)) + piece for piece, score in pieces]
    return struct.pack("<i", longest) + b"".join(entries)


def by_definition(pieces: list[tuple[bytes, float]], text: str) -> list[int]:
    """Encode as llama2.c's run.c does: look at all neighbours, merge the best, begin again."""
    lookup = {piece: i for i, (piece, _) in enumerate(pieces) if i >= 259}
    ids: list[int] = []
    for character in " " + text if text else "":
        known = lookup.get(character.encode())
        ids += [known] if known is not None else [byte + 3 for byte in character.encode()]
    while True:
        best, best_at, best_id = -1e10, -1, -1
        for i, (a, b) in enumerate(zip(ids, ids[1:], strict=False)):  # noqa: RUF007  # as it is written there
            made = lookup.get(pieces[a][0] + pieces[b][0])
            if made is not None and pieces[made][1] > best:
                best, best_at, best_id = pieces[made][1], i, made
        if best_at < 0:
            return ids
        ids[best_at : best_at + 2] = [best_id]


@pytest.fixture(scope="module", params=["apart", "across"])
def pieces(request):
    return [*SPECIAL, *BYTES, *PIECES, *(ACROSS if request.param == "across" else [])]


@pytest.fixture(scope="module")
def tokenizer(pieces) -> Llama2cTokenizer:
    return Llama2cTokenizer(file(pieces))


@settings(max_examples=500, deadline=None)
@given(text=st.text(st.sampled_from("  theaé東")) | st.text())
def test_ids_are_those_of_the_definition(tokenizer, pieces, text):
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int32
    assert ids.tolist() == by_definition(pieces, text)
    assert tokenizer.decode([1, *ids]) == text
    assert tokenizer.decode(ids) == (" " + text if text else "")


def test_by_hand(tokenizer):
    assert tokenizer.encode("the").tolist() == [262]
    assert tokenizer.encode("").tolist() == []
    assert tokenizer.encode("\0").tolist()[1:] == [3]
    assert tokenizer.encode("<s>").tolist() == tokenizer.encode("<s>", ()).tolist()
    assert tokenizer.encode("<s>", "all").tolist() == [1]
    assert tokenizer.end_of_text == 1


def test_only_bos_at_the_beginning_takes_a_space():
    tokenizer = Llama2cTokenizer(file([*SPECIAL, *BYTES, *PIECES]))
    the = tokenizer.encode("the").tolist()
    assert tokenizer.decode_bytes([1, *the]) == b"the"
    assert tokenizer.decode_bytes(the) == b" the"
    assert tokenizer.decode_bytes([1, 5, *the]) == b"\x02 the"
    assert tokenizer.decode_bytes([*the, 1, *the, 2]) == b" the<s> the</s>"
    assert tokenizer.decode([1]) == ""
    assert tokenizer.decode([1, -1, 3 + 0xE2]) == "\ufffd\ufffd"


def test_long_words_are_quick_too(tokenizer):
    for text in ("a" * 100_000, " " * 100_000, "tha" * 30_000):
        assert tokenizer.decode([1, *tokenizer.encode(text)]) == text


def test_what_is_not_unicode(tokenizer):
    with pytest.raises(UserError, match=r"U\+D83D at position 1"):
        tokenizer.encode("a\ud83d")


def test_saved_and_loaded(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    for path in (tmp_path, tmp_path / "tokenizer.bin"):
        loaded = load_tokenizer(path)
        assert loaded.fingerprint == tokenizer.fingerprint
        assert loaded.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()
    (tmp_path / "nanoeuler_tokenizer.json").unlink()
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint


GOOD = [*SPECIAL, *BYTES, *PIECES]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it has 0 bytes"),
        (file(GOOD)[:-1], f"in token {len(GOOD) - 1}"),
        (file(GOOD)[:-5], f"in token {len(GOOD) - 1}"),
        (file(GOOD)[:99], "cut off or wrong at byte"),
        (file(GOOD[:100]), "token 100 is not <0x61>"),
        (file(GOOD[1:]), "token 3 is not <0x00>"),
        (file([*GOOD, (b"the", 1.0)]), f"token 261 is b'the', and so is token {len(GOOD)}"),
        (file([*GOOD, (b"", 1.0)]), f"in token {len(GOOD)}"),
        (file([*GOOD, (b"x", float("nan"))]), f"in token {len(GOOD)}"),
        (file([*GOOD, (b"x" * 100, 1.0)]), f"in token {len(GOOD)}"),
        (b"GGUF" * 100, "cut off or wrong at byte 4"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_files_are_named(tmp_path, content, said):
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(content)
    with pytest.raises(UserError, match=said) as error:
        load_tokenizer(path)
    assert str(path) in str(error.value)


def test_missing(tmp_path):
    with pytest.raises(UserError, match=r"tokenizer\.bin: cannot read it"):
        load_tokenizer(tmp_path / "tokenizer.bin")


STORIES = Path(os.environ.get("NANOEULER_DATA", "."), "..", "models", "stories260K")


@pytest.mark.skipif(
    not (STORIES / "tok512.bin").exists(),
    reason="beside the folder that NANOEULER_DATA names there is no models/stories260K/tok512.bin",
)
def test_a_real_file_gives_the_ids_of_sentencepiece():
    sentencepiece = pytest.importorskip("sentencepiece", reason="SentencePiece is not installed")
    ours = load_tokenizer(STORIES / "tok512.bin")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(STORIES / "hf" / "tokenizer.model"))
    for text in [*AWKWARD, TEXT, "Once upon a time, there was a little girl named Lily."]:
        assert ours.encode(text).tolist() == theirs.encode(text)
