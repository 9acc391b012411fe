"""What every tokenizer can do, and the file that one is kept in."""

import hashlib
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nanoeuler.errors import UserError
from nanoeuler.files import written_whole

#: Not one of Hugging Face's names (tokenizer.json, vocab.json), which an exported model has in the same folder.
FILE = "nanoeuler_tokenizer.json"
VERSION = 1


class Tokenizer(ABC):
    """Text to token ids and back."""

    kind: str
    vocab_size: int
    fingerprint: str  # SHA-256, hexadecimal: equal for two tokenizers that give the same ids
    end_of_text: int | None = None  # the id that stands between documents, if there is one

    @abstractmethod
    def encode(self, text: str) -> np.ndarray:
        """Return the token ids of a text, (N,) int32. No text gives a special token.

        Raises:
            UserError: the text has a character that this tokenizer cannot encode.
        """

    @abstractmethod
    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Return the UTF-8 bytes that the ids stand for; they may begin or end within a character.

        Raises:
            UserError: an id is beyond the vocabulary.
        """

    def decode(self, ids: ArrayLike) -> str:
        """Return the text that the ids stand for, with U+FFFD for what is not valid UTF-8.

        Raises:
            UserError: an id is beyond the vocabulary.
        """
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def save(self, directory: str | Path) -> None:
        """Write all that :func:`load_tokenizer` needs into a folder, which is made if it is missing.

        Raises:
            UserError: it cannot be written.
        """
        record = {"version": VERSION, "kind": self.kind, "fingerprint": self.fingerprint, **self._content()}
        with written_whole(Path(directory) / FILE) as file:
            file.write((json.dumps(record, indent=2) + "\n").encode("ascii"))

    def _content(self) -> dict[str, Any]:
        """Return what the file holds beyond kind and fingerprint."""
        return {}


def fingerprint(kind: str, content: bytes) -> str:
    """Return the SHA-256 of a kind of tokenizer and of the vocabulary that makes it this one."""
    return hashlib.sha256(kind.encode() + b"\0" + content).hexdigest()


def utf8(text: str) -> bytes:
    """Return a text as UTF-8.

    Raises:
        UserError: it has half a surrogate pair in it, which is what Python makes of bytes that are not UTF-8.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        where = f"U+{ord(text[error.start]):04X} at position {error.start}"
        raise UserError(f"the text is not valid Unicode ({where}): was it typed or saved as UTF-8?") from None


def flat_ids(ids: ArrayLike, vocab_size: int) -> np.ndarray:
    """Return ids as a flat int64 array, every one within the vocabulary.

    Raises:
        UserError: one is not.
    """
    flat = np.asarray(ids, dtype=np.int64).reshape(-1)
    outside = (flat < 0) | (flat >= vocab_size)
    if outside.any():
        raise UserError(f"token {flat[outside][0]} is beyond the tokenizer's vocabulary of {vocab_size}")
    return flat
