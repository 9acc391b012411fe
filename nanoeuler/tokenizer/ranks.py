"""tiktoken's rank files, ``*.tiktoken``: a line for each token, its bytes in base64 and its id, which is its rank."""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import Path

from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.tokenizer.alphabet import BYTES, to_characters
from nanoeuler.tokenizer.bpe import END_OF_TEXT, GPT2_SHA256, BPETokenizer
from nanoeuler.tokenizer.files import read_bytes
from nanoeuler.tokenizer.vocabulary import CHARACTERS, check_vocabulary, tokenizer_from_ranks

RANK_FILES = "*.tiktoken"
_ENDOFTEXT, _ENDOFPROMPT = "<|endoftext|>", "<|endofprompt|>"
_FILL_IN_THE_MIDDLE = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
#: The pattern's name and the special tokens of OpenAI's rank files, by the file's SHA-256.
PUBLISHED: dict[str, tuple[str, dict[str, int]]] = {
    GPT2_SHA256: ("gpt2", {_ENDOFTEXT: 50256}),  # r50k_base
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": ("gpt2", {_ENDOFTEXT: 50256}),  # p50k_base
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": (  # cl100k_base
        "gpt4",
        {t: 100257 + i for i, t in enumerate((_ENDOFTEXT, *_FILL_IN_THE_MIDDLE))} | {_ENDOFPROMPT: 100276},
    ),
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": (  # o200k_base
        "gpt4o",
        {_ENDOFTEXT: 199999, _ENDOFPROMPT: 200018},
    ),
}


def read_known_ranks(path: Path) -> BPETokenizer:
    """Return the tokenizer of a rank file that OpenAI published, with its own pattern and special tokens.

    Raises:
        UserError: the file is missing, or another.
    """
    digest = hashlib.sha256(read_bytes(path)).hexdigest()
    if digest not in PUBLISHED:
        raise UserError(
            f"{path}: a rank file does not say by which pattern text is cut nor what the special tokens are, and this "
            "is none that we know. Say it once, in Python, and use what is saved:\n"
            f"  from nanoeuler.tokenizer import read_ranks\n"
            f"  read_ranks({str(path)!r}, pattern='gpt4', special={{{END_OF_TEXT!r}: 100257}}).save('FOLDER')"
        )
    return read_ranks(path, *PUBLISHED[digest])


def read_ranks(path: str | Path, pattern: str, special: Mapping[str, int] | None = None) -> BPETokenizer:
    """Return the tokenizer of a rank file, which says neither how text is cut nor what the special tokens are.

    Args:
        path: the file.
        pattern: how text is cut: a name in ``patterns.PATTERNS``, or a regular expression.
        special: special tokens and their ids; ``<|endoftext|>`` after the last token if left out.

    Raises:
        UserError: the file is missing or damaged.
    """
    path = Path(path)
    rank_of: dict[str, int] = {}
    token_of: dict[int, str] = {}
    for number, line in enumerate(read_bytes(path).splitlines(), 1):
        token, rank = _entry(line, f"{path}:{number}")
        if token in rank_of:
            raise UserError(f"{path}:{number}: the token {token!r} is there a second time")
        if rank in token_of:
            raise UserError(f"{path}:{number}: the rank {rank} is there a second time")
        rank_of[token] = rank
        token_of[rank] = token
    check_vocabulary(path, rank_of)
    tokens = CHARACTERS + sorted(rank_of.keys() - set(CHARACTERS), key=rank_of.__getitem__)
    if special is None:
        special = {END_OF_TEXT: max(rank_of.values()) + 1}
    return tokenizer_from_ranks(path, tokens, rank_of, pattern, special)


def _entry(line: bytes, where: str) -> tuple[str, int]:
    """Return the token, in visible characters, and the rank of a line."""
    try:
        encoded, rank = line.split(b" ")
        token = base64.b64decode(encoded, validate=True)
        if token and rank.isdigit():
            return to_characters(token), int(rank)
    except (ValueError, binascii.Error):
        pass
    raise UserError(f"{where}: damaged: a line is a token in base64 and its rank, and this is {line[:60]!r}")


def write_ranks(path: Path, tokenizer: BPETokenizer) -> list[Path]:
    """Write a rank file; return its path in a list. Pattern and special tokens are not in it.

    Raises:
        UserError: it cannot be written, or its ids are not in the order of its merges, which a rank file cannot say.
    """
    ids = tokenizer.ids[len(BYTES) :]
    if (ids[1:] < ids[:-1]).any():
        raise UserError(f"{path}: the ids are not in the order in which tokens are merged, as they are in a rank file")
    with written_whole(path) as file:
        file.write(tokenizer.rank_file)
    return [path]
