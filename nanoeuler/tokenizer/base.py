"""What every tokenizer can do, and the file that one is kept in."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nanoeuler.errors import UserError, nearest
from nanoeuler.files import written_whole

#: Not one of Hugging Face's names (tokenizer.json, vocab.json), which may be in the same folder.
FILE = "nanoeuler_tokenizer.json"
VERSION = 1


class Tokenizer(ABC):
    """Text to token ids and back."""

    kind: str
    vocab_size: int  # one more than the largest id
    fingerprint: str  # SHA-256, hexadecimal: equal for two tokenizers that give the same ids
    end_of_text: int | None = None  # the id that stands between documents, if there is one
    special: Mapping[str, int] = {}  # tokens that ordinary text never gives, and their ids
    prefix: tuple[int, ...] = ()  # what a text begins with when a model is given it; encode leaves it out
    bos: int | None = None
    eos: int | None = None
    chat_template: str | None = None  # Jinja
    token_names: Mapping[str, str] = {}  # what templates call tokens (bos_token, pad_token …), and their texts
    #: Files of others, the first of which it was read from: save writes them again, byte for byte.
    files: Mapping[str, bytes] = {}

    @abstractmethod
    def encode_ordinary(self, text: str) -> np.ndarray:
        """Return the token ids of a text, (N,) int32. No text gives a special token.

        Raises:
            UserError: the text has a character that this tokenizer cannot encode.
        """

    @abstractmethod
    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Return the UTF-8 bytes that the ids stand for; they may begin or end within a character.

        Raises:
            UserError: an id is no token; the message names it.
        """

    def encode(self, text: str, allowed_special: Collection[str] = ()) -> np.ndarray:
        """Return the token ids of a text, (N,) int32.

        Args:
            text: any text.
            allowed_special: special tokens that give their id where they are written in the text, or ``"all"``.

        Raises:
            UserError: a character cannot be encoded, or ``allowed_special`` names what is no special token.
        """
        allowed = list(self.special if allowed_special == "all" else allowed_special)
        for token in allowed:
            if token not in self.special:
                known = ", ".join(self.special) or "it has none"
                raise UserError(
                    f"{token!r} is no special token{nearest(token, self.special)} of this tokenizer: {known}"
                )
        if not allowed:
            return self.encode_ordinary(text)
        longest_first = "|".join(map(re.escape, sorted(allowed, key=len, reverse=True)))
        pieces = re.split(f"({longest_first})", text)  # text and special tokens by turns
        ids = [self.encode_ordinary(pieces[0])]
        for token, rest in zip(pieces[1::2], pieces[2::2], strict=True):
            ids += [np.array([self.special[token]]), self._encode_after_special(rest)]
        return np.concatenate(ids, dtype=np.int32)

    def _encode_after_special(self, text: str) -> np.ndarray:
        """Return the ids of what follows a special token in a text."""
        return self.encode_ordinary(text)

    def decode(self, ids: ArrayLike) -> str:
        """Return the text that the ids stand for, with U+FFFD for an id that is no token and for invalid UTF-8.

        It takes any numbers and never fails.
        """
        return self.decode_any(ids).decode("utf-8", errors="replace")

    def decode_any(self, ids: ArrayLike) -> bytes:
        """Return the bytes that the ids stand for, with those of U+FFFD for an id that is no token. It never fails."""
        flat = whole_numbers(ids)
        unknown = np.flatnonzero(~self._is_token(flat))
        runs = np.split(np.append(-1, flat), unknown + 1)  # each run begins with an unknown id, or with our -1
        return "\ufffd".encode().join(self.decode_bytes(run[1:]) for run in runs)

    def token_ids(self) -> np.ndarray:
        """Return all ids that are tokens, (N,) int64: in vocabularies of others there may be holes."""
        return np.flatnonzero(self._is_token(np.arange(self.vocab_size)))

    def save(self, directory: str | Path) -> None:
        """Write all that :func:`load_tokenizer` needs into a folder, which is made if it is missing.

        Raises:
            UserError: it cannot be written.
        """
        if not self.files:
            self._save_own(Path(directory))
            return
        for name, data in self.files.items():
            with written_whole(Path(directory) / name) as file:
                file.write(data)
        self._write_record(Path(directory), "huggingface", {"file": next(iter(self.files))})

    def _save_own(self, directory: Path) -> None:
        """Write a tokenizer that is not in files of others."""
        self._write_record(directory, self.kind, self._content())

    def _write_record(self, directory: Path, kind: str, content: Mapping[str, Any]) -> None:
        record = {"version": VERSION, "kind": kind, "fingerprint": self.fingerprint, **content}
        with written_whole(directory / FILE) as file:
            file.write((json.dumps(record, indent=2) + "\n").encode("ascii"))

    def _content(self) -> dict[str, Any]:
        """Return what the file holds beyond kind and fingerprint."""
        return {}

    def _is_token(self, flat: np.ndarray) -> np.ndarray:
        """Return which of the ids, (N,) int64, are tokens: (N,) bool."""
        return (flat >= 0) & (flat < self.vocab_size)

    def _tokens(self, ids: ArrayLike) -> np.ndarray:
        """Return ids as a flat int64 array, every one a token.

        Raises:
            UserError: one is not.
        """
        flat = whole_numbers(ids)
        known = self._is_token(flat)
        if not known.all():
            bad = np.asarray(ids, dtype=object).reshape(-1)[np.argmin(known)]
            why = "beyond" if not 0 <= bad < self.vocab_size else "not in"
            raise UserError(f"token {bad} is {why} the tokenizer's vocabulary of {self.vocab_size}")
        return flat


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


def whole_numbers(ids: ArrayLike) -> np.ndarray:
    """Return numbers of any kind and shape as a flat int64 array, with -1 for what no id can be.

    >>> whole_numbers([1, 2.0, 2.5, 10**30, float("nan")]).tolist()
    [1, 2, -1, -1, -1]
    """
    flat = np.asarray(ids).reshape(-1)
    if flat.dtype.kind in "iub":
        return flat.astype(np.int64)  # of uint64 those beyond int64 become negative
    return np.array([int(i) if -1 < i < 2**62 and i == int(i) else -1 for i in flat.tolist()], np.int64)
