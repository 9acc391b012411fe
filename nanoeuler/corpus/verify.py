"""Is a folder of token shards what its manifest says it is, or, without one, are they shards at all?"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nanoeuler.console import plural
from nanoeuler.corpus import manifest
from nanoeuler.corpus.manifest import Manifest, Shard, read_manifest
from nanoeuler.corpus.shards import HEADER_BYTES, read_shard
from nanoeuler.corpus.unfinished import HIDDEN
from nanoeuler.errors import UserError
from nanoeuler.files import sha256_of_file
from nanoeuler.tokenizer import load_tokenizer

BLOCK_BYTES = 1 << 22  # read together


def verify(folder: Path, progress: Callable[[int], None] = lambda size: None) -> list[str]:
    """Return all that is wrong with a prepared corpus, or with a folder of shards that has no manifest.

    ``progress`` is told the bytes that have been read; :func:`bytes_to_read` says how many there are in all.

    Raises:
        UserError: it is neither, or its manifest cannot be read.
    """
    shards = shard_files(folder)
    if not (folder / manifest.FILE).exists():
        return [problem for path in shards for problem in _verify_alone(path, progress)]
    found = read_manifest(folder)
    listed = {shard.file for shard in found.shards}
    problems = [f"{path}: not in the manifest" for path in shards if path.name not in listed]
    if not manifest.is_as_written(folder):
        problems.append(f"{folder / manifest.FILE}: not as it was written: its own sha256 is another")
    problems += _verify_tokenizer(folder, found)
    return problems + [p for shard in found.shards for p in _verify_shard(folder / shard.file, shard, found, progress)]


def shard_files(folder: Path) -> list[Path]:
    """Return the shards of a folder, in order of their names.

    Raises:
        UserError: there is no such folder, or nothing in it.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: {'not a' if folder.exists() else 'no such'} folder")
    shards = sorted(folder.glob("*.bin"))
    if not (folder / manifest.FILE).exists():
        if (folder / HIDDEN).exists():
            raise UserError(f"{folder}: not finished; the command that it was begun with goes on with it")
        if not shards:
            raise UserError(f"{folder}: neither a prepared corpus ({manifest.FILE} is missing) nor shards (*.bin)")
    return shards


def bytes_to_read(folder: Path) -> int:
    """Return the size of all shards together."""
    return sum(path.stat().st_size for path in shard_files(folder))


def _verify_tokenizer(folder: Path, corpus: Manifest) -> list[str]:
    problems = []
    for name, sha256 in corpus.files.items():
        try:
            if sha256_of_file(folder / name) != sha256:
                problems.append(f"{folder / name}: damaged: its sha256 is not what the manifest says")
        except OSError as error:
            problems.append(f"{folder / name}: cannot read it: {error.strerror}")
    if problems:
        return problems
    try:
        same = load_tokenizer(folder).fingerprint == corpus.tokenizer["fingerprint"]
    except UserError as error:
        return [str(error)]
    return [] if same else [f"{folder}: its tokenizer is not the one that made the tokens"]


def _verify_alone(path: Path, progress: Callable[[int], None]) -> list[str]:
    """Return what is wrong with a shard of which nothing is known."""
    progress(path.stat().st_size)
    try:
        tokens = read_shard(path)
    except UserError as error:
        return [str(error)]
    return [] if len(tokens) else [f"{path}: no tokens in it"]


def _verify_shard(path: Path, shard: Shard, corpus: Manifest, progress: Callable[[int], None]) -> list[str]:
    """Return what is wrong with a shard, all of which is read."""
    try:
        tokens = read_shard(path)
        contents = _read_through(path, tokens.dtype, corpus.tokenizer, progress)
    except UserError as error:
        return [str(error)]
    except OSError as error:
        return [f"{path}: cannot read it: {error.strerror}"]
    problems = []
    if contents.sha256 != shard.sha256:
        problems.append(f"{path}: damaged: its sha256 is {contents.sha256}, and the manifest says {shard.sha256}")
    for count, said, what in ((len(tokens), shard.tokens, "token"), (contents.documents, shard.documents, "document")):
        if count != said:
            problems.append(f"{path}: {plural(count, what)}, and the manifest says {said:,}")
    if contents.largest >= corpus.tokenizer["vocab_size"]:
        vocabulary = f"the vocabulary of {corpus.tokenizer['vocab_size']:,}"
        problems.append(f"{path}: token {contents.largest} at {contents.place:,} is beyond {vocabulary}")
    if len(tokens) and tokens[0] != corpus.tokenizer["end_of_text"]:
        problems.append(f"{path}: its first token is {tokens[0]}, and documents begin with the end-of-text token")
    return problems


@dataclass
class _Contents:
    """What is in a shard."""

    sha256: str = ""
    documents: int = 0
    largest: int = -1  # of the ids
    place: int = -1  # where that is first


def _read_through(path: Path, dtype: np.dtype, tokenizer: dict[str, Any], progress: Callable[[int], None]) -> _Contents:
    contents, digest, place = _Contents(), hashlib.sha256(), 0
    with path.open("rb") as file:
        digest.update(file.read(HEADER_BYTES))
        while data := file.read(BLOCK_BYTES):
            digest.update(data)
            progress(len(data))
            tokens = np.frombuffer(data, dtype)
            contents.documents += int(np.count_nonzero(tokens == tokenizer["end_of_text"]))
            if (largest := int(tokens.max())) > contents.largest:
                contents.largest, contents.place = largest, place + int(np.argmax(tokens))
            place += len(tokens)
    contents.sha256 = digest.hexdigest()
    return contents
