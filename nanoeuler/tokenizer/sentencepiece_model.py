"""SentencePiece's ``tokenizer.model``: a Protocol Buffers message, of which a BPE of characters is read.

ModelProto (google/sentencepiece, src/sentencepiece_model.proto): 1 pieces, each 1 text, 2 float32 score, 3 type;
2 trainer_spec, of it 3 model_type and 35 byte_fallback; 3 normalizer_spec, of it 2 precompiled_charsmap,
3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces. What is left out has the default of the schema.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from nanoeuler.errors import UserError
from nanoeuler.tokenizer.character_bpe import CharacterBPE, LeadingSpace, Vocabulary, by_score
from nanoeuler.tokenizer.files import read_bytes

MODEL_FILE = "tokenizer.model"
#: Types of pieces.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
MODEL_TYPES = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}
BPE = 2
#: Values of a message: numbers, or bytes.
Fields = dict[int, list[int | bytes]]


def read_sentencepiece(path: Path) -> CharacterBPE:
    """Return the tokenizer in a ``tokenizer.model``.

    Raises:
        UserError: it is missing or damaged, or a model that is no BPE with bytes to fall back on, or changes text.
    """
    data = read_bytes(path)
    try:
        model = _fields(data)
        pieces = [_fields(_bytes(piece)) for piece in model.get(1, [])]
        trainer, normalizer = (_fields(_bytes(model.get(i, [b""])[-1])) for i in (2, 3))
        _check(trainer, normalizer)
        texts = [_bytes(piece[1][-1]).decode("utf-8") for piece in pieces]
        types = [_number(piece.get(3, [NORMAL])[-1]) for piece in pieces]
        scores = {i: _float(piece.get(2, [0])[-1]) for i, piece in enumerate(pieces)}
        vocabulary = _vocabulary(texts, types, scores, bool(normalizer.get(3, [1])[-1]))
    except (ValueError, KeyError, struct.error) as error:
        reason = str(error) if isinstance(error, _RefusedError) else "not a model of SentencePiece, or a damaged one"
        raise UserError(f"{path}: {reason}") from None
    return CharacterBPE(vocabulary, data)


class _RefusedError(ValueError):
    """What we lack; the message says it."""


def _check(trainer: Fields, normalizer: Fields) -> None:
    kind = _number(trainer.get(3, [1])[-1])
    if kind != BPE:
        raise _RefusedError(f"a model of the type {MODEL_TYPES.get(kind, kind)!r}, and nanoeuler reads BPE")
    if not trainer.get(35, [0])[-1]:
        raise _RefusedError("a BPE without bytes to fall back on, which cannot encode every text")
    if normalizer.get(2, [b""])[-1]:
        raise _RefusedError("it changes text first (precompiled_charsmap); nanoeuler encodes text as it is")
    if normalizer.get(4, [1])[-1]:
        raise _RefusedError("it removes spaces (remove_extra_whitespaces); nanoeuler encodes text as it is")
    if not normalizer.get(5, [1])[-1]:
        raise _RefusedError("it does not write spaces as ▁ (escape_whitespaces)")


def _vocabulary(texts: list[str], types: list[int], scores: dict[int, float], leading: bool) -> Vocabulary:
    """Return the tokens, of which those that are neither text nor bytes are special."""
    if not all(texts) or any(score != score for score in scores.values()):
        raise ValueError  # an empty piece, or a score that is not a number
    pieces, special = {}, {}
    for i, (text, kind) in enumerate(zip(texts, types, strict=True)):
        if kind == NORMAL and text not in pieces:
            pieces[text] = i
        elif kind in (UNKNOWN, CONTROL, USER_DEFINED):
            special[text] = i
    byte_of = {text: i for i, (text, kind) in enumerate(zip(texts, types, strict=True)) if kind == BYTE}
    missing = [byte for byte in range(256) if f"<0x{byte:02X}>" not in byte_of]
    if missing:
        raise _RefusedError(f"no token for byte 0x{missing[0]:02X}")
    if not pieces:
        raise ValueError
    return Vocabulary(
        pieces=pieces,
        bytes=[byte_of[f"<0x{byte:02X}>"] for byte in range(256)],
        special=special,
        merge=by_score(pieces, scores),
        leading=LeadingSpace("always" if leading else "never"),
        scores=scores,
    )


# --- the wire format of Protocol Buffers (protobuf.dev/programming-guides/encoding)


def _fields(data: bytes) -> Fields:
    """Return a message's values by field number, in order.

    Raises:
        ValueError: it is no message.
    """
    fields: Fields = {}
    for number, value in _read(data):
        fields.setdefault(number, []).append(value)
    return fields


def _read(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError
        if at + size > len(data):
            raise ValueError
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, seven bits a byte, the lowest first, and the place after it."""
    value = 0
    for i in range(10):
        if at + i >= len(data):
            raise ValueError
        value |= (data[at + i] & 0x7F) << 7 * i
        if data[at + i] < 0x80:
            return value, at + i + 1
    raise ValueError


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError
    return value


def _float(value: int | bytes) -> float:
    return float(struct.unpack("<f", value)[0]) if isinstance(value, bytes) else float(value)
