"""A vocabulary and its merges in two files: ``vocab.json`` + ``merges.txt``, ``encoder.json`` + ``vocab.bpe``.

The first names are Hugging Face's, the others are those that OpenAI published GPT-2 with; the contents are alike.
"""

import json
import re
from pathlib import Path

from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.tokenizer.alphabet import BYTE_OF_CHARACTER, to_characters
from nanoeuler.tokenizer.bpe import BPETokenizer
from nanoeuler.tokenizer.files import read_json, read_utf8
from nanoeuler.tokenizer.patterns import PATTERNS
from nanoeuler.tokenizer.vocabulary import tokenizer_from_merges

#: Names of the two files that belong together.
NAMES = {"vocab.json": "merges.txt", "encoder.json": "vocab.bpe"}
#: The files do not say which tokens are special; other tokens that no merge makes are taken for damage.
SPECIAL = re.compile(r"<.+>|\[.+\]", re.DOTALL)


def read_vocab_merges(vocab_path: Path, merges_path: Path, pattern: str = "gpt2") -> BPETokenizer:
    """Return the tokenizer of two files. Its special tokens are those that no merge makes and :data:`SPECIAL` fits.

    Raises:
        UserError: a file is missing or damaged, or is not that of a byte-level BPE.
    """
    vocab = read_json(vocab_path)
    lines = read_utf8(merges_path).split("\n")
    first = 1 if lines[0].startswith("#version") else 0
    numbered = [(i, line.removesuffix("\r")) for i, line in enumerate(lines[first:], first + 1) if line.strip()]
    merges = [line for _, line in numbered]
    made = {merge.replace(" ", "", 1) for merge in merges} | BYTE_OF_CHARACTER.keys()
    special = {token: i for token, i in vocab.items() if token not in made and SPECIAL.fullmatch(token)}
    ordinary = {token: i for token, i in vocab.items() if token not in special}
    return tokenizer_from_merges(
        vocab_path, ordinary, merges, lambda i: f"{merges_path}:{numbered[i][0]}", pattern, special
    )


def unwritable(tokenizer: BPETokenizer) -> str | None:
    """Return why the two files cannot hold a tokenizer; None if they can."""
    if tokenizer.pattern != PATTERNS["gpt2"]:
        return "the format has no place for a pattern, and readers take GPT-2's"
    if not tokenizer.merges_are_tokens:
        return "this vocabulary has tokens that no merge makes, which the format cannot say"
    names = {to_characters(token) for token in tokenizer.tokens}
    if strange := [token for token in tokenizer.special if not SPECIAL.fullmatch(token) or token in names]:
        return f"the format cannot say that {strange[0]!r} is a special token"
    return None


def write_vocab_merges(folder: Path, tokenizer: BPETokenizer, vocab_name: str = "vocab.json") -> list[Path]:
    """Write the two files into a folder, ``vocab_name`` a key of :data:`NAMES`; return their paths.

    Raises:
        UserError: they cannot be written, or cannot hold this tokenizer.
    """
    vocab_path, merges_path = folder / vocab_name, folder / NAMES[vocab_name]
    if why := unwritable(tokenizer):
        raise UserError(f"{vocab_path}: {why}")
    names = [to_characters(token) for token in tokenizer.tokens]
    vocab = dict(zip(names, tokenizer.ids.tolist(), strict=True)) | dict(tokenizer.special)
    lines = ["#version: 0.2", *(f"{names[a]} {names[b]}" for a, b in tokenizer.merges)]
    with written_whole(merges_path) as merges_file, written_whole(vocab_path) as vocab_file:
        vocab_file.write(json.dumps(vocab, ensure_ascii=False).encode())
        merges_file.write("".join(line + "\n" for line in lines).encode())
    return [vocab_path, merges_path]
