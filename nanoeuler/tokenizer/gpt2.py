"""GPT-2's byte pair encoding (Radford et al. 2019, section 2.2), run by tiktoken.

The vocabulary is a list of 50256 byte strings in the order in which BPE merges them, and one token more that no text
encodes to. It is kept in tiktoken's own format: a line for each, base64 and rank.
"""

import base64
import contextlib
import hashlib
import itertools
import json
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import tiktoken
from numpy.typing import ArrayLike

from nanoeuler.corpus.download import cache_folder, fetch, read_published, sha256_of
from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.tokenizer.base import Tokenizer, fingerprint, flat_ids, utf8

RANKS_FILE = "gpt2.tiktoken"
RANKS_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
#: tiktoken's r50k_base is GPT-2's encoding under another name, and the file is byte for byte the one we keep.
RANKS_URL = "https://openaipublic.blob.core.windows.net/encodings/r50k_base.tiktoken"
#: The same vocabulary as OpenAI published it with GPT-2: each token a string, each byte of it one printable character.
ENCODER_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/encoder.json"
ENCODER_SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"

END_OF_TEXT = "<|endoftext|>"
#: How text is cut before BPE. GPT-2's published pattern, where repeats that cannot match shorter do not backtrack.
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
#: A long run of white space, all but its last character. The pattern cuts there in any case, but tiktoken's regular
#: expressions run out of stack on a million spaces, so we cut first. (Python's \s has four more characters.)
LONG_SPACE = re.compile(r"(?<!S)S{100000,}(?=S(?!S).)".replace("S", r"[^\S\x1c-\x1f]"), re.DOTALL)


class GPT2Tokenizer(Tokenizer):
    """tiktoken's ``gpt2``. In a text ``<|endoftext|>`` is text like any other."""

    kind = "gpt2"
    vocab_size = 50257
    end_of_text = 50256

    def __init__(self, rank_file: bytes) -> None:
        """Take the content of a rank file in tiktoken's format.

        Raises:
            ValueError: it is not GPT-2's.
        """
        if sha256_of(rank_file) != RANKS_SHA256:
            raise ValueError(f"not the ranks of GPT-2: sha256 {sha256_of(rank_file)}, expected {RANKS_SHA256}")
        self.rank_file = rank_file
        self.fingerprint = fingerprint(self.kind, rank_file)
        lines = (line.split() for line in rank_file.splitlines())
        self._encoding = tiktoken.Encoding(
            "gpt2",
            pat_str=PATTERN,
            mergeable_ranks={base64.b64decode(token): int(rank) for token, rank in lines},
            special_tokens={END_OF_TEXT: self.end_of_text},
            explicit_n_vocab=self.vocab_size,
        )

    def encode(self, text: str) -> np.ndarray:
        """Return the ids of the text's tokens, (N,) int32.

        Raises:
            UserError: the text is not valid Unicode.
        """
        utf8(text)  # for its error: tiktoken would put U+FFFD without a word
        cuts = [0, *(run.end() for run in LONG_SPACE.finditer(text)), len(text)]
        pieces = [text[start:end] for start, end in itertools.pairwise(cuts)]
        return np.concatenate([np.array(self._encoding.encode_ordinary(piece), np.int32) for piece in pieces])

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """Return the bytes of the ids' tokens; 50256 gives ``<|endoftext|>``."""
        return self._encoding.decode_bytes(flat_ids(ids, self.vocab_size).tolist())

    def save(self, directory: str | Path) -> None:
        """Write the rank file, and then the file that says what it is."""
        with written_whole(Path(directory) / RANKS_FILE) as file:
            file.write(self.rank_file)
        super().save(directory)


def saved_gpt2(directory: Path) -> GPT2Tokenizer:
    """Return the tokenizer whose rank file lies in a folder.

    Raises:
        UserError: the file is missing, unreadable or damaged.
    """
    path = directory / RANKS_FILE
    try:
        return GPT2Tokenizer(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot read the tokenizer's ranks: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}; the file is damaged, put a good copy in its place") from None


def find_gpt2(url: str = RANKS_URL, patience: float = 120.0) -> GPT2Tokenizer:
    """Return GPT-2's tokenizer from the first place that has its vocabulary.

    That is ``gpt2_bpe/encoder.json`` in the folder that ``NANOEULER_DATA`` names, our cache, tiktoken's cache, or
    the network, whose answer goes into our cache. No file of the user's, and none of tiktoken's, is ever changed.

    Raises:
        UserError: ``NANOEULER_DATA`` has a damaged copy; or the vocabulary is nowhere and cannot be fetched.
    """
    data = os.environ.get("NANOEULER_DATA")
    published = Path(data or "$NANOEULER_DATA") / "gpt2_bpe" / "encoder.json"
    if data:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return GPT2Tokenizer(_ranks_as_published(published))
    cached = cache_folder() / RANKS_FILE
    with contextlib.suppress(UserError):  # missing or damaged, as a cache may be
        return saved_gpt2(cached.parent)
    with contextlib.suppress(UserError, FileNotFoundError, NotADirectoryError):
        return GPT2Tokenizer(_ranks_as_published(_tiktokens_copy()))
    try:
        fetch(url, cached, RANKS_SHA256, patience)
    except UserError as error:
        raise UserError(
            f"the vocabulary of the gpt2 tokenizer is not at hand: no {published}, no {cached}, "
            f"and {error}.\nThree ways to provide it: set the environment variable NANOEULER_DATA to a folder that "
            "has OpenAI's file as gpt2_bpe/encoder.json; give a folder with a saved gpt2 tokenizer, such as a run's, "
            "with --data.tokenizer_path FOLDER; or let it be downloaded once, with a network connection. "
            "(--data.tokenizer_path char or byte needs none of them.)"
        ) from None
    return saved_gpt2(cached.parent)


def _ranks_as_published(path: Path) -> bytes:
    """Return a rank file made from OpenAI's ``encoder.json``, which is read and verified but never touched."""
    data = read_published(path, ENCODER_SHA256, "GPT-2's encoder.json")
    byte_of = _byte_of_character()
    ranks = sorted((rank, token) for token, rank in json.loads(data).items() if token != END_OF_TEXT)
    return b"".join(base64.b64encode(bytes(byte_of[c] for c in token)) + b" %d\n" % rank for rank, token in ranks)


def _byte_of_character() -> dict[str, int]:
    """Return GPT-2's way to write any byte as one visible character: itself, or else the next from U+0100 on."""
    visible = [byte for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(b): b for b in visible} | {chr(256 + i): b for i, b in enumerate(hidden)}


def _tiktokens_copy() -> Path:
    """Return the path at which tiktoken, if it has ever been asked for ``gpt2`` here, has kept encoder.json."""
    names = ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")
    folder = next((os.environ[n] for n in names if n in os.environ), str(Path(tempfile.gettempdir(), "data-gym-cache")))
    return Path(folder) / hashlib.sha1(ENCODER_URL.encode()).hexdigest()
