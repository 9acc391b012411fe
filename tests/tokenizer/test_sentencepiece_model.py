"""SentencePiece's tokenizer.model: ids as SentencePiece gives them, and damage that is named."""

import io
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer.texts import AWKWARD, TEXT

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import ByteTokenizer, Llama2cTokenizer, load_tokenizer
from nanoeuler.tokenizer.sentencepiece import llama2c_file
from nanoeuler.tokenizer.sentencepiece_model import read_sentencepiece

STORIES = Path(os.environ.get("NANOEULER_DATA", ".")).parent / "models" / "stories260K"
needs_stories = pytest.mark.skipif(
    not (STORIES / "hf" / "tokenizer.model").exists(),
    reason="no models/stories260K beside the folder of NANOEULER_DATA",
)


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def field(number: int, value: int | bytes | float) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model(trainer: bytes = b"", normalizer: bytes = b"", without: str = "", extra: bytes = b"") -> bytes:
    """Return a small model: three special tokens, the bytes, and a few pieces."""
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    pieces += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    pieces += [("▁t", -1.0, 1), ("he", -2.0, 1), ("▁the", -3.0, 1), *((c, -10.0, 1) for c in "▁the")]
    written = [
        field(1, text.encode()) + field(2, score) + field(3, kind) for text, score, kind in pieces if text != without
    ]
    trainer = field(3, 2) + field(35, 1) + trainer
    normalizer = field(4, 0) + normalizer
    return b"".join(field(1, piece) for piece in written) + field(2, trainer) + field(3, normalizer) + extra


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model that SentencePiece has made."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="the oracle of these tests is SentencePiece")
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*TEXT.split("\n"), *AWKWARD[:3], "the quick  brown fox jumps over the lazy dog"] * 3),
        model_writer=made,
        vocab_size=340,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.98,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path = tmp_path_factory.mktemp("model") / "tokenizer.model"
    path.write_bytes(made.getvalue())
    return path


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.sampled_from("  the quick\n\t▁é東🚀.")) | st.text().filter(lambda text: "\0" not in text))
def test_ids_are_those_of_sentencepiece(trained: Path, text: str) -> None:
    import sentencepiece

    oracle = sentencepiece.SentencePieceProcessor(model_file=str(trained))
    assert read_sentencepiece(trained).encode(text).tolist() == oracle.encode(text)


@needs_stories
def test_the_real_one_is_that_of_llama2c_and_of_transformers() -> None:
    transformers = pytest.importorskip("transformers", reason="the oracle of this test is transformers")
    ours, llama2c = load_tokenizer(STORIES / "hf"), load_tokenizer(STORIES / "tok512.bin")
    theirs = transformers.AutoTokenizer.from_pretrained(STORIES / "hf")
    assert isinstance(llama2c, Llama2cTokenizer)
    assert (ours.vocab_size, ours.bos, ours.eos, ours.prefix) == (512, 1, 2, (1,))
    for text in ("Once upon a time, there was a little girl.", "two  spaces", "naïve 東", ""):
        ids = ours.encode(text).tolist()
        assert ids == llama2c.encode(text).tolist()
        assert [1, *ids] == theirs(text)["input_ids"]
        assert ours.decode([1, *ids]) == text


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_by_hand(tmp_path: Path) -> None:
    path = write(tmp_path / "tokenizer.model", model())
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("the").tolist() == [261]
    assert tokenizer.encode(" he").tolist() == [262, 262, 260]  # the score of ▁t comes first, and there is none
    assert tokenizer.encode("é").tolist() == [262, 3 + 0xC3, 3 + 0xA9]
    assert (tokenizer.special, tokenizer.prefix, tokenizer.eos) == ({"<unk>": 0, "<s>": 1, "</s>": 2}, (1,), 2)
    assert list(tokenizer.files) == ["tokenizer.model"]
    bare = read_sentencepiece(write(path, model(normalizer=field(3, 0))))
    assert bare.encode("the").tolist() == [263, 260]  # no space before it


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no token for byte|damaged|type 'unigram'"),
        (b"\xff" * 40, "not a model of SentencePiece"),
        (b"PK\x03\x04" + bytes(50), "not a model of SentencePiece"),
        (model(trainer=field(3, 1)), "type 'unigram'"),
        (model(trainer=field(35, 0)), "without bytes to fall back on"),
        (model(normalizer=field(2, b"nmt_nfkc")), "precompiled_charsmap"),
        (model(normalizer=field(4, 1)), "remove_extra_whitespaces"),
        (model(normalizer=field(5, 0)), "escape_whitespaces"),
        (model(without="<0x7F>"), "no token for byte 0x7F"),
        (model(extra=field(1, b"\x0a\x02\xff\xff")), "not a model of SentencePiece"),
        (model(extra=field(1, field(3, 1))), "not a model of SentencePiece"),
        (model(extra=field(1, field(1, b""))), "not a model of SentencePiece"),
        (model(extra=field(1, field(1, b"x") + field(2, float("nan")))), "not a model of SentencePiece"),
        (model(extra=field(1, 7)), "not a model of SentencePiece"),
    ],
)  # fmt: skip
def test_damage_is_named(data: bytes, said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "tokenizer.model", data)
    with pytest.raises(UserError, match=said) as error:
        load_tokenizer(path)
    assert str(error.value).startswith(f"{path}: ")


def test_a_model_of_another_name_is_saved_and_loaded(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write(tmp_path / "llama.model", model()))
    tokenizer.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert (tmp_path / "saved" / "tokenizer.model").read_bytes() == model()
    assert (again.fingerprint, again.prefix, again.end_of_text) == (tokenizer.fingerprint, (1,), 1)


def test_any_truncation_and_flipped_bit(tmp_path: Path) -> None:
    whole, path = model(), tmp_path / "tokenizer.model"
    for i in range(0, len(whole), 7):
        for data in (whole[:i], whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1 :]):
            try:
                read_sentencepiece(write(path, data)).encode("the é")
            except UserError as error:
                assert str(path) in str(error)  # noqa: PT017 (either is right)


@needs_stories
def test_it_becomes_the_tokenizer_of_llama2c() -> None:
    assert llama2c_file(load_tokenizer(STORIES / "hf")) == (STORIES / "tok512.bin").read_bytes()


def test_as_a_file_of_llama2c(tmp_path: Path) -> None:
    write(tmp_path / "tokenizer.model", model())
    ours = load_tokenizer(tmp_path)
    data = llama2c_file(ours)
    assert data is not None
    again = Llama2cTokenizer(data)
    assert llama2c_file(again) == data
    for text in ("the", " he  the", "é\n"):
        assert again.encode(text).tolist() == ours.encode(text).tolist()
    assert llama2c_file(load_tokenizer(write(tmp_path / "tokenizer.model", model(normalizer=field(3, 0))))) is None
    assert llama2c_file(ByteTokenizer()) is None


def test_inspect_names_the_token_that_decoding_leaves_out(tmp_path: Path) -> None:
    from nanoeuler.tokenizer.view import describe

    write(tmp_path / "tokenizer.model", model())
    lines = describe(load_tokenizer(tmp_path))
    assert "begin, end   BOS '<s>' 1, EOS '</s>' 2" in lines
    assert "prefix       '<s>' 1" in lines
