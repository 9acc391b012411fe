"""One token for each byte of UTF-8: no text is unknown, and the vocabulary is 256."""

import numpy as np
from numpy.typing import ArrayLike

from nanoeuler.tokenizer.base import Tokenizer, fingerprint, utf8


class ByteTokenizer(Tokenizer):
    """Ids are the bytes themselves.

    >>> ByteTokenizer().encode("né").tolist()
    [110, 195, 169]
    """

    kind = "byte"
    vocab_size = 256
    fingerprint = fingerprint("byte", b"")

    def encode_ordinary(self, text: str) -> np.ndarray:
        """Return one id for each byte, (N,) int32.

        Raises:
            UserError: the text is not valid Unicode.
        """
        return np.frombuffer(utf8(text), np.uint8).astype(np.int32)

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Return the ids as bytes."""
        return self._tokens(ids).astype(np.uint8).tobytes()
