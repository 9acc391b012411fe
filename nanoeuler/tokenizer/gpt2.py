"""GPT-2's byte pair encoding: where its vocabulary is found.

The vocabulary is a list of 50256 byte strings in the order in which BPE merges them, and one token more that no text
encodes to. It is kept in tiktoken's own format: a line for each, base64 and rank.
"""

import base64
import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from nanoeuler.download import cache_folder, fetch, read_published
from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.tokenizer.alphabet import to_bytes
from nanoeuler.tokenizer.bpe import END_OF_TEXT, GPT2_SHA256, BPETokenizer

RANKS_FILE = "gpt2.tiktoken"
#: tiktoken's r50k_base is GPT-2's encoding under another name, and the file is byte for byte the one we keep.
RANKS_URL = "https://openaipublic.blob.core.windows.net/encodings/r50k_base.tiktoken"
#: The same vocabulary as OpenAI published it with GPT-2: each token a string, each byte of it one printable character.
ENCODER_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/encoder.json"
ENCODER_SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"


class GPT2Tokenizer(BPETokenizer):
    """tiktoken's ``gpt2``. In a text ``<|endoftext|>`` is text like any other, unless asked for."""

    kind = "gpt2"

    def __init__(self, rank_file: bytes) -> None:
        """Take the content of a rank file in tiktoken's format.

        Raises:
            ValueError: it is not GPT-2's.
        """
        if (found := hashlib.sha256(rank_file).hexdigest()) != GPT2_SHA256:
            raise ValueError(f"not the ranks of GPT-2: sha256 {found}, expected {GPT2_SHA256}")
        tokens = [base64.b64decode(line.split()[0]) for line in rank_file.splitlines()]
        self._set_up(tokens, "gpt2", {END_OF_TEXT: len(tokens)})

    def __reduce__(self) -> tuple[Any, ...]:
        return GPT2Tokenizer, (self.rank_file,)

    def _save_own(self, directory: Path) -> None:
        """Write the rank file, what Hugging Face's libraries read, and then the file that says what it is."""
        with written_whole(directory / RANKS_FILE) as file:
            file.write(self.rank_file)
        super()._save_own(directory)

    def _content(self) -> dict[str, Any]:
        return {}


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
        fetch(url, cached, GPT2_SHA256, patience)
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
    ranks = sorted((rank, token) for token, rank in json.loads(data).items() if token != END_OF_TEXT)
    return b"".join(base64.b64encode(to_bytes(token)) + b" %d\n" % rank for rank, token in ranks)


def _tiktokens_copy() -> Path:
    """Return the path at which tiktoken, if it has ever been asked for ``gpt2`` here, has kept encoder.json."""
    names = ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")
    folder = next((os.environ[n] for n in names if n in os.environ), str(Path(tempfile.gettempdir(), "data-gym-cache")))
    return Path(folder) / hashlib.sha1(ENCODER_URL.encode()).hexdigest()
