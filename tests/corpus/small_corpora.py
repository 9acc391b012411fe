"""Small corpora to prepare in a moment, and what is left of it."""

import os
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from nanoeuler.corpus import encoded
from nanoeuler.corpus.documents import Batch, Options, Source
from nanoeuler.corpus.manifest import Manifest
from nanoeuler.corpus.prepare import Settings, prepare
from nanoeuler.corpus.progress import Progress
from nanoeuler.corpus.unfinished import HIDDEN
from nanoeuler.tokenizer import BPETokenizer

#: A token for each byte, two merges (" t", "he"), and the end-of-text token, 258.
TOKENIZER = BPETokenizer([(220, 83), (71, 68)], "gpt2")


def make_documents(count: int, seed: int = 0) -> list[str]:
    """Return documents of a few words; now and then one that came before."""
    source = random.Random(seed)
    words = ["the", "owl", "saw", "a", "red", "moon", ",", "then", "thé", "wölf", "🌱", "came\n"]
    documents: list[str] = []
    for i in range(count):
        repeated = documents and source.random() < 0.1
        text = (
            source.choice(documents) if repeated else f"{i} " + " ".join(source.choices(words, k=source.randrange(30)))
        )
        documents.append(text)
    return documents


class Listed(Source):
    """Documents of a list, ``size`` in a batch; one row of each batch is left out. Fails before batch ``fails_at``."""

    def __init__(self, documents: Sequence[str], size: int = 7, fails_at: int | None = None, error: Any = None) -> None:
        self.documents, self.size, self.fails_at, self.error = documents, size, fails_at, error
        self.description = {"kind": "list", "documents": len(documents)}
        self.done = 0

    def read(self, state: Any | None = None) -> Iterator[Batch]:
        """Yield batches; the state is how many documents are done."""
        for first in range(state or 0, len(self.documents), self.size):
            if self.fails_at is not None and first >= self.fails_at * self.size:
                raise self.error
            self.done = min(first + self.size, len(self.documents))
            batch = self.documents[first : self.done]
            yield Batch(list(batch), Counter({"empty": 1}), rows=len(batch) + 1, state=self.done)

    def progress(self) -> tuple[int, int]:
        """Return documents."""
        return self.done, len(self.documents)


class InlineWorkers:
    """In place of processes: encodes at once, in this one."""

    def __init__(self, count: int, function: Callable[..., Any], *first: Any) -> None:
        self.function, self.first = function, first
        encoded._tokenizer.cache_clear()  # a process has one tokenizer for life

    def __enter__(self) -> "InlineWorkers":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, item: Any) -> "Future[Any]":
        """Return a future that is done."""
        future: Future[Any] = Future()
        future.set_result(self.function(*self.first, item))
        return future


def prepare_list(source: Source, folder: Path, workers: int = 1, restart: bool = False, **settings: Any) -> Manifest:
    """Prepare a corpus of small shards."""
    chosen = Settings(**{"val_fraction": 0.2, "shard_tokens": 500} | settings)
    with Progress() as progress:
        return prepare(source, Options(), TOKENIZER, folder, chosen, workers, progress, restart)


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder, hidden ones too, by its name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def read_as_llmc(path: Path) -> list[int]:
    """Return a shard's tokens by what llm.c's dataloader.h asks of a file, with nothing but ``struct``."""
    data = path.read_bytes()
    header = struct.unpack("<256i", data[:1024])
    assert header[0] == 20240520  # "Bad magic in the data file"
    assert header[1] == 1  # "Bad version in data file"
    assert len(data) == 1024 + 2 * header[2]  # file_size_bytes == expected_file_size
    return list(struct.unpack(f"<{header[2]}H", data[1024:]))


def split_documents(tokens: list[int]) -> list[str]:
    """Return the texts of a stream of tokens that begins with a document."""
    assert tokens[0] == TOKENIZER.end_of_text
    documents: list[list[int]] = []
    for token in tokens:
        if token == TOKENIZER.end_of_text:
            documents.append([])
        else:
            documents[-1].append(token)
    return [TOKENIZER.decode_bytes(ids).decode() for ids in documents]


def is_unfinished(folder: Path) -> bool:
    """Return whether there is something to go on with."""
    return (folder / HIDDEN / "state.json").exists()


def prepare_here(monkeypatch: pytest.MonkeyPatch, folder: Path, documents: int) -> Path:
    """Prepare a corpus of so many documents in this process, without waiting for the disk; return its folder."""
    monkeypatch.setattr("nanoeuler.corpus.prepare.Workers", InlineWorkers)
    monkeypatch.setattr(os, "fsync", lambda number: None)
    prepare_list(Listed(make_documents(documents)), folder)
    return folder
