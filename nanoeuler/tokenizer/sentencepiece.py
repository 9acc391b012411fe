"""llama2.c's ``tokenizer.bin``: a BPE of characters made by SentencePiece, with scores instead of a list of merges.

The file: int32, the longest token in bytes; then for each token float32 score, int32 length, and the bytes. Tokens 0, 1
and 2 are unknown, BOS and EOS, 3 + b is byte b. Numbers are little-endian.
"""

import heapq
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.tokenizer.base import Tokenizer, fingerprint, utf8
from nanoeuler.tokenizer.files import read_bytes

LLAMA2C_FILE = "tokenizer.bin"
BOS, EOS, FIRST_BYTE = 1, 2, 3
FIRST_PIECE = FIRST_BYTE + 256
#: Words whose tokens are kept.
CACHE = 1 << 17


class Llama2cTokenizer(Tokenizer):
    """Characters are merged, neighbours with the best score first. Text is encoded as if a space stood before it.

    Encoding gives no BOS. ``decode`` drops the space again where the ids begin with BOS, as llama2.c does: there a
    document is BOS, then its tokens.

    Args:
        data: the content of a ``tokenizer.bin``.

    Raises:
        ValueError: it is none, or it is damaged.
    """

    kind = "llama2c"
    end_of_text = BOS
    special = {"<s>": BOS, "</s>": EOS}  # noqa: RUF012  # as in the base class, nobody writes to it

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.fingerprint = fingerprint(self.kind, data)
        pieces, self.scores = _parse(data)
        self.vocab_size = len(pieces)
        self._id_of = {piece: i for i, piece in enumerate(pieces) if i >= FIRST_PIECE}
        if len(self._id_of) < len(pieces) - FIRST_PIECE:
            i = next(i for i, piece in enumerate(pieces) if i >= FIRST_PIECE and self._id_of[piece] != i)
            raise ValueError(f"token {i} is {pieces[i]!r}, and so is token {self._id_of[pieces[i]]}")
        self._bytes_of = [b"<unk>", b"<s>", b"</s>", *(bytes([b]) for b in range(256)), *pieces[FIRST_PIECE:]]
        # If no token has a space after something else, nothing is ever merged there: words are apart, and can be kept.
        together = any(b" " in piece.lstrip(b" ") for piece in pieces[FIRST_PIECE:])
        self._words = re.compile(r".+" if together else r" *[^ ]+| +", re.DOTALL)
        self._known: dict[str, list[int]] = {}

    def encode_ordinary(self, text: str) -> np.ndarray:
        """Return the ids of the text's tokens, (N,) int32; none for no text.

        Raises:
            UserError: the text is not valid Unicode.
        """
        utf8(text)  # for its error
        ids = [i for word in self._words.findall(" " + text if text else "") for i in self._encode_word(word)]
        return np.array(ids, np.int32)

    def _encode_word(self, word: str) -> list[int]:
        ids = self._known.get(word)
        if ids is None:
            ids = self._merge(self._characters(word))
            if len(self._known) < CACHE:
                self._known[word] = ids
        return ids

    def _characters(self, text: str) -> list[int]:
        """Return one id for each character, or one for each of its bytes where it is no token."""
        ids: list[int] = []
        for character in map(str.encode, text):
            known = self._id_of.get(character)
            ids += [FIRST_BYTE + byte for byte in character] if known is None else [known]
        return ids

    def _merge(self, ids: list[int]) -> list[int]:
        """Return ids with neighbours merged: the best score first, of several the leftmost."""
        left, right = list(range(-1, len(ids) - 1)), list(range(1, len(ids) + 1))  # neighbours of each place
        candidates: list[tuple[float, int, int, int, int]] = []

        def consider(i: int, j: int) -> None:
            if i >= 0 and j < len(ids) and min(ids[i], ids[j]) >= FIRST_PIECE:
                made = self._id_of.get(self._bytes_of[ids[i]] + self._bytes_of[ids[j]])
                if made is not None:
                    heapq.heappush(candidates, (-self.scores[made], i, ids[i], ids[j], made))

        for i in range(len(ids) - 1):
            consider(i, i + 1)
        while candidates:
            _, i, a, b, made = heapq.heappop(candidates)
            j = right[i]
            if ids[i] != a or j >= len(ids) or ids[j] != b:
                continue  # one of the two has been merged meanwhile
            ids[i], ids[j], right[i] = made, -1, right[j]
            if right[j] < len(ids):
                left[right[j]] = i
            consider(left[i], i)
            consider(i, right[i])
        return [i for i in ids if i >= 0]

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Return the bytes of the ids' tokens. A BOS at the beginning gives nothing, and takes one space with it.

        Raises:
            UserError: an id is no token.
        """
        flat: Sequence[int] = self._tokens(ids).tolist()
        text = b"".join(map(self._bytes_of.__getitem__, flat))
        return text.removeprefix(b"<s>").removeprefix(b" ") if flat[:1] == [BOS] else text

    def save(self, directory: str | Path) -> None:
        """Write ``tokenizer.bin``, and then the file that says what it is."""
        with written_whole(Path(directory) / LLAMA2C_FILE) as file:
            file.write(self.data)
        super().save(directory)


def read_llama2c(path: Path) -> Llama2cTokenizer:
    """Return the tokenizer in a ``tokenizer.bin``.

    Raises:
        UserError: it is missing or damaged.
    """
    try:
        return Llama2cTokenizer(read_bytes(path))
    except ValueError as error:
        raise UserError(f"{path}: not a tokenizer of llama2.c, or a damaged one: {error}") from None


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
