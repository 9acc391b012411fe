"""One document of a corpus, found by its number without reading what lies before it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nanoeuler.console import plural
from nanoeuler.corpus import manifest
from nanoeuler.corpus.manifest import read_manifest
from nanoeuler.corpus.shards import read_shard, split_of
from nanoeuler.corpus.verify import shard_files
from nanoeuler.errors import UserError

#: Tokens that are searched together.
BLOCK = 1 << 22


@dataclass(frozen=True)
class Document:
    """A document in its shard."""

    shard: Path
    offset: int  # where its end-of-text token is, in tokens from the shard's first
    tokens: np.ndarray  # (N,) uint16 or uint32, without the end-of-text token


def find_document(folder: Path, split: str, number: int, end_of_text: int) -> Document:
    """Return document ``number``, from 0 on, of a split of a prepared corpus or of a folder of shards.

    Raises:
        UserError: there are fewer; or a shard is missing or damaged.
    """
    before = 0
    for path, count in _shards(folder, split):
        tokens = read_shard(path)
        if count is not None and before + count <= number:
            before += count
            continue
        for start, stop in _borders(tokens, end_of_text):
            if before == number:
                return Document(path, start, np.array(tokens[start + 1 : stop]))
            before += 1
    there = f"{plural(before, 'document')}, numbered 0 to {before - 1:,}" if before else "no documents"
    if not before and _shards(folder, split):
        there = f"no end-of-text token, {end_of_text}: is it another tokenizer's? --tokenizer names that of shards"
    raise UserError(f"{folder}: no document {number:,} in {split}: it has {there}")


def _shards(folder: Path, split: str) -> list[tuple[Path, int | None]]:
    """Return a split's shards in order, and how many documents begin in each, where that is known."""
    if (folder / manifest.FILE).exists():
        return [(folder / shard.file, shard.documents) for shard in read_manifest(folder).of(split)]
    return [(path, None) for path in shard_files(folder) if split_of(path.name) == split]


def _borders(tokens: np.ndarray, end_of_text: int) -> Iterator[tuple[int, int]]:
    """Yield where each document of a shard begins and ends."""
    begun: int | None = None
    for first in range(0, len(tokens), BLOCK):
        for place in np.flatnonzero(tokens[first : first + BLOCK] == end_of_text).tolist():
            if begun is not None:
                yield begun, first + place
            begun = first + place
    if begun is not None:
        yield begun, len(tokens)
