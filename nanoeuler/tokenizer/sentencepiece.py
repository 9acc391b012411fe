"""llama2.c's ``tokenizer.bin``: a BPE of characters made by SentencePiece, with scores instead of a list of merges.

The file: int32, the longest token in bytes; then for each token float32 score, int32 length, and the bytes. Tokens 0, 1
and 2 are unknown, BOS and EOS, 3 + b is byte b. Numbers are little-endian.
"""

import struct
from pathlib import Path

from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.tokenizer.base import Tokenizer
from nanoeuler.tokenizer.character_bpe import CharacterBPE, LeadingSpace, Vocabulary, by_score
from nanoeuler.tokenizer.files import read_bytes

LLAMA2C_FILE = "tokenizer.bin"
BOS, EOS, FIRST_BYTE = 1, 2, 3
FIRST_PIECE = FIRST_BYTE + 256


class Llama2cTokenizer(CharacterBPE):
    """Characters are merged, neighbours with the best score first. Text is encoded as if a space stood before it.

    Encoding gives no BOS. ``decode`` drops the space again where the ids begin with BOS, as llama2.c does: there a
    document is BOS, then its tokens.

    Args:
        data: the content of a ``tokenizer.bin``.

    Raises:
        ValueError: it is none, or it is damaged.
    """

    kind = "llama2c"

    def __init__(self, data: bytes) -> None:
        self.data = data
        pieces, scores = _parse(data)
        id_of: dict[str, int] = {}
        for i, piece in enumerate(pieces[FIRST_PIECE:], FIRST_PIECE):
            text = piece.decode("utf-8", "surrogateescape")  # what is no text is a token that no text gives
            if text in id_of:
                raise ValueError(f"token {id_of[text]} is {piece!r}, and so is token {i}")
            id_of[text] = i
        vocabulary = Vocabulary(
            pieces=id_of,
            bytes=range(FIRST_BYTE, FIRST_PIECE),
            special={"<s>": BOS, "</s>": EOS},
            merge=by_score(id_of, dict(enumerate(scores))),
            space=" ",
            scores=dict(enumerate(scores)),
        )
        super().__init__(vocabulary, data)
        self.bos, self.eos, self.end_of_text, self.prefix = BOS, EOS, BOS, (BOS,)

    def _save_own(self, directory: Path) -> None:
        """Write ``tokenizer.bin``, and then the file that says what it is."""
        with written_whole(directory / LLAMA2C_FILE) as file:
            file.write(self.data)
        super()._save_own(directory)


def read_llama2c(path: Path) -> Llama2cTokenizer:
    """Return the tokenizer in a ``tokenizer.bin``.

    Raises:
        UserError: it is missing or damaged.
    """
    try:
        return Llama2cTokenizer(read_bytes(path))
    except ValueError as error:
        raise UserError(f"{path}: not a tokenizer of llama2.c, or a damaged one: {error}") from None


def llama2c_file(tokenizer: Tokenizer) -> bytes | None:
    """Return a tokenizer as the content of a ``tokenizer.bin``; None where there is no place in one for it.

    Llama 2's ids are the format's: unknown, BOS, EOS, the bytes, then pieces with scores.
    """
    if isinstance(tokenizer, Llama2cTokenizer):
        return tokenizer.data
    if not isinstance(tokenizer, CharacterBPE) or (scores := tokenizer.vocabulary.scores) is None:
        return None
    vocabulary, size = tokenizer.vocabulary, tokenizer.vocab_size
    pieces = {i: piece.replace(vocabulary.space, " ").encode() for piece, i in vocabulary.pieces.items()}
    in_place = list(vocabulary.bytes) == list(range(FIRST_BYTE, FIRST_PIECE)) and (tokenizer.bos, tokenizer.eos) == (
        1,
        2,
    )
    if not in_place or pieces.keys() != set(range(FIRST_PIECE, size)) or vocabulary.leading != LeadingSpace("always"):
        return None
    first = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % byte for byte in range(256))]
    tokens = first + [pieces[i] for i in range(FIRST_PIECE, size)]
    entries = (struct.pack("<fi", scores[i], len(token)) + token for i, token in enumerate(tokens))
    return struct.pack("<i", max(map(len, tokens))) + b"".join(entries)


def _parse(data: bytes) -> tuple[list[bytes], list[float]]:
    """Return the tokens and the scores of a file.

    Raises:
        ValueError: it is damaged; the message says where.
    """
    if len(data) < 4:
        raise ValueError(f"it has {len(data)} bytes")
    longest = struct.unpack_from("<i", data)[0]
    pieces: list[bytes] = []
    scores: list[float] = []
    at = 4
    while at < len(data):
        header = data[at : at + 8]
        score, length = struct.unpack("<fi", header) if len(header) == 8 else (0.0, 0)
        piece = data[at + 8 : at + 8 + length] if 0 < length <= longest + 4 else b""
        if len(piece) != length or not piece or score != score:
            raise ValueError(f"cut off or wrong at byte {at}, in token {len(pieces)}")
        pieces.append(piece)
        scores.append(score)
        at += 8 + length
    for byte in range(256):
        if pieces[FIRST_BYTE + byte : FIRST_BYTE + byte + 1] != [b"<0x%02X>" % byte]:
            raise ValueError(f"token {FIRST_BYTE + byte} is not <0x{byte:02X}>")
    return pieces, scores
