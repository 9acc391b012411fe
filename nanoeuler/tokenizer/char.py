"""One token for each distinct character of a text."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nanoeuler.errors import UserError
from nanoeuler.tokenizer.base import Tokenizer, fingerprint, utf8


class CharTokenizer(Tokenizer):
    """Ids are places in the sorted list of the characters.

    >>> CharTokenizer("banana").encode("nab").tolist()
    [2, 0, 1]
    """

    kind = "char"

    def __init__(self, text: str) -> None:
        """Take the vocabulary from a text: its distinct characters in the order of their code points.

        Raises:
            UserError: the text is empty or not valid Unicode.
        """
        if not text:
            raise UserError("a character tokenizer takes its vocabulary from the text, and the text is empty")
        self.characters = "".join(sorted(set(text)))
        self.vocab_size = len(self.characters)
        self.fingerprint = fingerprint(self.kind, utf8(self.characters))
        self._codes = _code_points(self.characters)
        self._ids = np.full(int(self._codes[-1]) + 2, -1, np.int32)  # by code point; the last is for all those beyond
        self._ids[self._codes] = np.arange(self.vocab_size)

    def encode_ordinary(self, text: str) -> np.ndarray:
        """Return one id for each character, (N,) int32.

        Raises:
            UserError: a character is not in the vocabulary; the message names it, its position and the vocabulary.
        """
        ids = self._ids[np.minimum(_code_points(text), len(self._ids) - 1)]
        if ids.size and ids.min() < 0:
            position = int(np.argmin(ids))
            character = text[position]
            raise UserError(
                f"character {character!r} (U+{ord(character):04X}) at position {position} is not in the tokenizer's "
                f"vocabulary, which is made of the {self.vocab_size} characters of its text: {_shown(self.characters)}"
            )
        return ids

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Return the characters of the ids, as UTF-8."""
        codes = self._codes[self._tokens(ids)]
        return codes.tobytes().decode("utf-32-le").encode("utf-8")

    def _content(self) -> dict[str, Any]:
        return {"characters": self.characters}


def _code_points(text: str) -> np.ndarray:
    """Return the code point of each character, (N,) uint32."""
    return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype="<u4")


def _shown(characters: str, most: int = 100) -> str:
    return repr(characters[:most]) + (" ..." if len(characters) > most else "")
