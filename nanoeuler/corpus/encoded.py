"""A batch of documents as tokens: what worker processes make of it."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from nanoeuler.corpus.seen import HASH, hash_document
from nanoeuler.corpus.shards import format_for
from nanoeuler.tokenizer import Tokenizer, load_tokenizer


@dataclass(frozen=True)
class Encoded:
    """A batch of N documents as tokens, one document after another, each begun by the end-of-text token."""

    tokens: np.ndarray  # all of them, uint16 or uint32
    lengths: np.ndarray  # (N,) int64, tokens of each document
    text_bytes: np.ndarray  # (N,) int64, UTF-8 bytes of each document
    hashes: np.ndarray  # (N,) uint64, of those bytes


def encode_documents(tokenizer: Tokenizer, documents: list[str]) -> Encoded:
    """Encode a batch.

    Raises:
        UserError: a document is not valid Unicode.
    """
    dtype = format_for(tokenizer.vocab_size).dtype
    begin = np.array([tokenizer.end_of_text], dtype)
    parts, lengths, text_bytes, hashes = [], [], [], []
    for document in documents:
        tokens = tokenizer.encode_ordinary(document)  # first, for its error
        text = document.encode()
        parts += [begin, tokens.astype(dtype)]
        lengths.append(1 + len(tokens))
        text_bytes.append(len(text))
        hashes.append(hash_document(text))
    return Encoded(
        np.concatenate([begin[:0], *parts]),
        np.array(lengths, np.int64),
        np.array(text_bytes, np.int64),
        np.array(hashes, HASH),
    )


def encode_with(folder: str, documents: list[str]) -> Encoded:
    """Encode a batch with the tokenizer saved in a folder, which is read once in a process.

    Raises:
        UserError: there is no good tokenizer, or a document is not valid Unicode.
    """
    return encode_documents(_tokenizer(folder), documents)


@cache
def _tokenizer(folder: str) -> Tokenizer:
    return load_tokenizer(folder)
