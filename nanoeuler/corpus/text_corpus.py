"""A corpus that is one text in memory: its first part to train on, its last part to validate on."""

import math
from dataclasses import dataclass

import numpy as np

from nanoeuler.corpus.batches import check_vocabulary
from nanoeuler.corpus.stream import array_stream
from nanoeuler.corpus.tokens import Tokens
from nanoeuler.download import sha256_of
from nanoeuler.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextCorpus:
    """A text to learn from."""

    name: str
    text: str
    reason: str  # one line: which corpus this is, and why
    entropy_bits: float | None = None  # bits per character that no model can go below, where it is known

    def tokens(self, tokenizer: Tokenizer, vocab_size: int, val_fraction: float) -> Tokens:
        """Return the text as tokens, its last ``val_fraction`` for validation.

        Raises:
            UserError: the tokenizer cannot encode a character, or a token is beyond the model's vocabulary.
        """
        tokens = tokenizer.encode(self.text)
        check_vocabulary(tokens, vocab_size)
        train, val = split(tokens, val_fraction)
        val_bytes = tokenizer.decode_bytes(val)
        floor = self.entropy_bits
        if floor is not None:
            floor *= math.log(2) * len(val_bytes.decode("utf-8", errors="replace")) / max(1, len(val))
        return Tokens(
            array_stream(train),
            array_stream(val),
            fingerprint=sha256_of(self.text.encode("utf-8", "surrogatepass")),
            bytes_per_token=len(val_bytes) / max(1, len(val)),
            floor=floor,
        )


def split(tokens: np.ndarray, val_fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Return views of the first part, to train on, and of the last ``val_fraction``, to validate on (as nanoGPT)."""
    border = int(len(tokens) * (1 - val_fraction))
    return tokens[:border], tokens[border:]
