"""What ``--text`` and ``--corpus`` stand for, as streams of tokens."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nanoeuler.config import DataConfig
from nanoeuler.corpus import PreparedCorpus, load_corpus
from nanoeuler.corpus.corpus import Part
from nanoeuler.corpus.stream import Stream, array_stream
from nanoeuler.corpus.text import read_text
from nanoeuler.errors import UserError
from nanoeuler.tokenizer import Tokenizer

NO_TOKENIZER = "the model's files have no tokenizer: give it with --tokenizer, as a name or the path of one"


@dataclass(frozen=True)
class Source:
    """Tokens to predict."""

    name: str
    stream: Stream
    tokenizer: Tokenizer
    first: int = 1  # the first token to predict: what is before it stands in front of the text
    text_bytes: int | None = None  # of the text that all tokens from ``first`` on stand for, where it is at hand


def text_source(path: Path, tokenizer: Tokenizer | None) -> Source:
    """Return a text file as one document.

    What the tokenizer puts in front of a text (a BOS) is not scored. Without that the first token is not: nothing
    predicts it.

    Raises:
        UserError: there is no such file, it is not UTF-8, or there is no tokenizer.
    """
    if tokenizer is None:
        raise UserError(f"{path}: {NO_TOKENIZER}")
    try:
        text = read_text(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    prefix = np.array(tokenizer.prefix, np.int32)
    tokens = np.concatenate([prefix, tokenizer.encode(text)], dtype=np.int32)
    return Source(
        str(path), array_stream(tokens), tokenizer, max(1, len(prefix)), len(text.encode()) if len(prefix) else None
    )


def corpus_sources(where: str, split: str, tokenizer: Tokenizer | None, vocab_size: int) -> list[Source]:
    """Return a split of every corpus that ``where`` stands for; nothing is put in front of it.

    Args:
        where: as ``data.dataset``: a folder of shards, prepared or llm.c's, a name, a text; or one shard.
        split: ``train`` or ``val``.
        tokenizer: the model's, if it has one.
        vocab_size: the model's.

    Raises:
        UserError: it cannot be had, or its tokens were made by another tokenizer.
    """
    try:
        return [_part_source(part, name, split, tokenizer, vocab_size) for part, name in _parts(where, split)]
    except UserError as error:  # it is said for training, whose options have other names
        here = {"--data.dataset": "--corpus", "--data.tokenizer_path": "--tokenizer"}
        raise UserError(re.sub("|".join(here), lambda option: here[option[0]], str(error))) from None


def _parts(where: str, split: str) -> list[tuple[Part, str]]:
    """Return the corpora that ``where`` stands for, and what each is called."""
    path = Path(where)
    if path.suffix == ".bin" and path.is_file():
        files = {"train": [path.name], "val": [path.name]}  # a single shard is both
        return [(PreparedCorpus(path.parent, where, files, None), where)]
    return [(part, f"{part.name} ({split})") for part in load_corpus(where).parts]


def _part_source(part: Part, name: str, split: str, tokenizer: Tokenizer | None, vocab_size: int) -> Source:
    if isinstance(part, PreparedCorpus):
        own = part.own_tokenizer()
        if own and tokenizer and own.fingerprint != tokenizer.fingerprint:
            raise UserError(
                f"{part.folder} was prepared with another tokenizer than the model's: its tokens mean other text to "
                "it; give --text, or prepare the corpus with the model's tokenizer"
            )
        tokenizer = tokenizer or own or part.likely_tokenizer()
    if tokenizer is None:
        raise UserError(f"{name}: {NO_TOKENIZER}")
    tokens = part.tokens(tokenizer, vocab_size, DataConfig().val_fraction)
    return Source(name, tokens.val if split == "val" else tokens.train, tokenizer)
