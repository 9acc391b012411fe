"""From documents to token shards, in several processes, and on from where it was when it is interrupted.

Batches of documents go from the source to worker processes that tokenize them, and come back in the source's order.
A document that has been seen before is left out; the others go to validation or training by the hash of their text,
each to the end of its split's stream of tokens. So the shards depend on the source, the tokenizer and the
:class:`Settings` alone: not on the number of workers, and not on how often the work was interrupted.
"""

import json
import math
import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from nanoeuler.console import plural
from nanoeuler.corpus import manifest
from nanoeuler.corpus.documents import Batch, Options, Source
from nanoeuler.corpus.encoded import Encoded, encode_with
from nanoeuler.corpus.manifest import Manifest, Shard, read_manifest, write_manifest
from nanoeuler.corpus.progress import Progress
from nanoeuler.corpus.seen import HASH, Seen
from nanoeuler.corpus.shards import format_for, read_shard
from nanoeuler.corpus.unfinished import (
    HIDDEN,
    differences,
    forget_state,
    read_state,
    remove_hidden,
    unfinished_folder,
    write_state,
)
from nanoeuler.corpus.writer import ShardWriter
from nanoeuler.errors import UserError
from nanoeuler.files import sha256_of_file, writing
from nanoeuler.tokenizer import Tokenizer
from nanoeuler.workers import Workers

#: Batches, of about a megabyte, that each worker may be ahead of what is written: more than it tokenizes while a shard
#: is flushed to the disk.
AHEAD = 16
#: Seconds after which the state is saved, at the latest.
SAVE_INTERVAL = 5.0
DUPLICATE = "duplicate"

Read = tuple[int, int | None]  # of a source's bytes or rows: how many are read, and all if that is known


@dataclass(frozen=True)
class Settings:
    """What decides the shards, beside the source and the tokenizer."""

    val_fraction: float = 0.005  # share of the documents, by hash, that are for validation
    shard_tokens: int = 100_000_000  # a shard ends before the document that would make it longer
    deduplicate: bool = True  # leave out documents whose text has been seen before
    limit: int | None = None  # documents, after which it is enough


def prepare(
    source: Source,
    options: Options,
    tokenizer: Tokenizer,
    folder: Path,
    settings: Settings,
    workers: int,
    progress: Progress,
    restart: bool = False,
) -> Manifest:
    """Prepare a corpus in a folder, or go on with it; a finished one of the same settings is left as it is.

    Raises:
        UserError: the folder has something else in it, the source fails, no document is left, a worker dies, or
            something cannot be written. What is done is kept, and the same call goes on from there.
    """
    identity = _identity(source, options, tokenizer, folder, settings)
    if (folder / manifest.FILE).exists():
        return _finished(folder, identity)
    with unfinished_folder(folder) as hidden:
        if (folder / manifest.FILE).exists():  # another process has finished it in the meantime
            return _finished(folder, identity)
        if restart:
            forget_state(hidden)
        state = _find_state(hidden, identity, source.times)
        saved = hidden / "tokenizer"  # for the workers
        shutil.rmtree(saved, ignore_errors=True)  # of an attempt that was given up, perhaps with another one
        tokenizer.save(saved)
        with _Preparation(folder, hidden, identity, source.times, settings, state, progress) as preparation:
            with Workers(workers, encode_with, str(saved)) as pool:
                preparation.run(source, pool, AHEAD * workers)
            shards = preparation.finish()
        tokenizer.save(folder)
        files = {path.name: sha256_of_file(folder / path.name) for path in sorted(saved.iterdir())}
        skipped = dict(sorted(preparation.skipped.items()))
        finished = Manifest(**identity, shards=shards, skipped=skipped, files=files)
        write_manifest(folder, finished)
        remove_hidden(folder)
    return finished


def earlier_source(folder: Path) -> dict[str, Any] | None:
    """Return the description of the source that the corpus in a folder was made of or begun from, if there is one.

    Raises:
        UserError: the record of it is damaged.
    """
    if (folder / manifest.FILE).exists():
        return read_manifest(folder).source
    state = read_state(folder / HIDDEN)
    return None if state is None or not state["documents"] else state["identity"]["source"]


def _identity(
    source: Source, options: Options, tokenizer: Tokenizer, folder: Path, settings: Settings
) -> dict[str, Any]:
    """Return all that decides the bytes of a corpus, as its manifest has it: JSON."""
    return {
        "name": folder.resolve().name,
        "source": json.loads(json.dumps(dict(source.description))),
        "settings": {
            "text_column": options.text_column,
            "filter": [str(condition) for condition in options.conditions],
            "min_chars": options.min_characters,
            "max_chars": options.max_characters,
            "separator": options.separator,
            **asdict(settings),
        },
        "tokenizer": {
            "kind": tokenizer.kind,
            "fingerprint": tokenizer.fingerprint,
            "vocab_size": tokenizer.vocab_size,
            "end_of_text": tokenizer.end_of_text,
        },
    }


def _finished(folder: Path, identity: dict[str, Any]) -> Manifest:
    """Return the manifest of a corpus that is prepared already, its shards looked at but not read.

    Raises:
        UserError: it is another corpus, or a shard is missing or damaged.
    """
    found = read_manifest(folder)
    if changed := differences({key: getattr(found, key) for key in identity}, identity):
        raise UserError(
            f"{folder} holds another corpus ({'; '.join(changed)}): give this one a folder of its own with --out, or "
            "remove that one (--restart gives up unfinished ones only)"
        )
    try:
        for shard in found.shards:
            read_shard(folder / shard.file)
    except UserError as error:
        raise UserError(f"{error}. The corpus was finished before: remove {folder} to prepare it once more") from None
    remove_hidden(folder)
    return found


def _find_state(hidden: Path, identity: dict[str, Any], times: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the state to go on from, if there is one with anything done.

    Raises:
        UserError: it is that of another corpus, or a file has been written to since.
    """
    state = read_state(hidden)
    if state is None or not state["documents"]:
        return None
    if changed := differences(state["identity"], identity):
        raise UserError(
            f"{hidden.parent} holds an unfinished corpus of {plural(state['documents'], 'document')} that is another "
            f"({'; '.join(changed)}): give this one a folder of its own with --out, finish that one with the command "
            "it was begun with, or give it up with --restart"
        )
    if changed := [name for name, time_then in state["times"].items() if times.get(name) != time_then]:
        others = f" and {plural(len(changed) - 1, 'other file')}" if len(changed) > 1 else ""
        raise UserError(
            f"{hidden.parent} holds an unfinished corpus of {plural(state['documents'], 'document')}, and {changed[0]}"
            f"{others} has been written to since then: begin again with --restart"
        )
    return state


class _Preparation:
    """What grows while a corpus is prepared: both splits' shards, the hashes seen, the rows left out.

    Used as a ``with`` block around the work. However that ends, the state after the last whole batch is saved, and who
    begins from it undoes what was done after it.
    """

    def __init__(
        self,
        folder: Path,
        hidden: Path,
        identity: dict[str, Any],
        times: Mapping[str, int],
        settings: Settings,
        state: dict[str, Any] | None,
        progress: Progress,
    ) -> None:
        state = state or {}
        self.hidden, self.identity, self.settings, self.progress = hidden, identity, settings, progress
        self.times = dict(times)
        form = format_for(identity["tokenizer"]["vocab_size"])
        self.writers = {
            split: ShardWriter(folder, hidden, identity["name"], split, form, settings.shard_tokens, state.get(split))
            for split in manifest.SPLITS
        }
        self.skipped = Counter(state.get("skipped", {}))
        self.source_state = state.get("source_state")
        self.seen = Seen()
        self._hashes_path = hidden / "seen.bin"
        self._hashes = self._open_hashes()
        self._saved = time.monotonic()
        self._shards_saved = self._shard_count()
        self.state = self._take_state()

    def __enter__(self) -> "_Preparation":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                with suppress(UserError, OSError):  # the disk is full, say: then the state that was saved last holds
                    self._save()
                    if kept := self.state["documents"]:
                        self.progress.note(f"stopped with {plural(kept, 'document')}; the same command goes on")
        finally:
            for writer in self.writers.values():
                writer.release()
            with suppress(OSError):
                self._hashes.close()

    @property
    def documents(self) -> int:
        """Documents kept so far."""
        return self.total("documents")

    def total(self, what: str) -> int:
        """Return how many ``documents``, ``tokens`` or ``text_bytes`` there are so far, in both splits."""
        return sum(writer.total(what) for writer in self.writers.values())

    def run(self, source: Source, pool: Workers[Encoded], ahead: int) -> None:
        """Take the source's batches, from where the state says, to its end or the limit."""
        self._save()
        if self.documents:
            self.progress.note(f"going on after {plural(self.documents, 'document')}")
        self.progress.begin(self.total("text_bytes"))
        if self._missing() <= 0:
            return
        for batch, read, encoded in self._encoded(source, pool, ahead):
            self._take(batch, encoded)
            for note in batch.notes:
                self.progress.note(note)
            self.progress.update(self.documents, self.total("tokens"), self.total("text_bytes"), self._share(*read))
            if self._missing() <= 0:
                return
            if self._shard_count() > self._shards_saved or time.monotonic() - self._saved > SAVE_INTERVAL:
                self._save()

    def finish(self) -> list[Shard]:
        """Give the last shards their names; return all.

        Raises:
            UserError: there is not one document; or the disk is full.
        """
        if not self.documents:
            reasons = "".join(f"; {plural(rows, 'row')} left out: {reason}" for reason, rows in self.skipped.items())
            name = ", ".join(self.identity["source"].get("asked_for", ["the source"]))
            raise UserError(f"{name}: no document to prepare{reasons or ': there is nothing in it'}")
        for writer in self.writers.values():
            writer.finish()
        return [shard for split in manifest.SPLITS for shard in self.writers[split].shards]

    def _encoded(self, source: Source, pool: Workers[Encoded], ahead: int) -> Iterator[tuple[Batch, Read, Encoded]]:
        """Yield batches in order with their tokens; up to ``ahead`` of them are with the workers meanwhile."""
        waiting: deque[tuple[Batch, Read, Future[Encoded]]] = deque()
        batches, failure = source.read(self.source_state), None
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                break
            except UserError as error:  # what came before it is good
                failure = error
                break
            waiting.append((batch, source.progress(), pool.submit(batch.documents)))
            while waiting and (len(waiting) > ahead or waiting[0][2].done() or self._is_enough(waiting)):
                first, read, future = waiting.popleft()
                yield first, read, future.result()
        for first, read, future in waiting:
            yield first, read, future.result()
        if failure:
            raise failure

    def _is_enough(self, waiting: Iterable[tuple[Batch, Any, Any]]) -> bool:
        return sum(len(batch.documents) for batch, _, _ in waiting) >= self._missing()

    def _missing(self) -> float:
        """Return how many documents there are to go to the limit."""
        return math.inf if self.settings.limit is None else self.settings.limit - self.documents

    def _share(self, done: int, total: int | None) -> float | None:
        """Return the share of the work that is done: of what the source has read, or of the limit, if that is more."""
        of_source = done / total if total else None
        if self.settings.limit is None:
            return of_source
        return max(self.documents / self.settings.limit, of_source or 0)

    def _take(self, batch: Batch, encoded: Encoded) -> None:
        """Write a batch's documents, each to the end of its split, and note that they are done."""
        keep = self._choose(encoded.hashes)
        for_validation = encoded.hashes < np.uint64(self.settings.val_fraction * 2**64)
        for split, chosen in (("train", keep & ~for_validation), ("val", keep & for_validation)):
            tokens = encoded.tokens[np.repeat(chosen, encoded.lengths)]
            self.writers[split].append(tokens, encoded.lengths[chosen], encoded.text_bytes[chosen])
        self.skipped.update(batch.skipped)
        self.source_state = batch.state
        self.state = self._take_state()

    def _choose(self, hashes: np.ndarray) -> np.ndarray:
        """Return (N,) bool, whether to keep each document: none that was seen before, none beyond the limit."""
        if not self.settings.deduplicate:
            return np.arange(1, len(hashes) + 1) <= self._missing()
        new = self.seen.add(hashes)
        within = np.cumsum(new) <= self._missing()
        with writing(self._hashes_path):
            self._hashes.write(hashes[new & within].astype(HASH).tobytes())
        if repeated := int((within & ~new).sum()):
            self.skipped[DUPLICATE] += repeated
        return new & within

    def _shard_count(self) -> int:
        return sum(len(writer.shards) for writer in self.writers.values())

    def _open_hashes(self) -> BinaryIO:
        """Open the file of hashes to append to, and learn those of the documents so far; the rest is void.

        Raises:
            UserError: it has fewer.
        """
        path, count = self._hashes_path, self.documents if self.settings.deduplicate else 0
        with writing(path):
            if count and (not path.exists() or path.stat().st_size < count * HASH.itemsize):
                raise UserError(f"{path}: missing or shorter than it was; begin again with --restart")
            file = path.open("a+b")
            file.truncate(count * HASH.itemsize)
            file.seek(0)
            self.seen.add(np.frombuffer(file.read(), HASH))
        return file

    def _take_state(self) -> dict[str, Any]:
        """Return all that is needed, beside the files, to go on from here; what comes later does not change it."""
        return {
            "identity": self.identity,
            "times": self.times,
            "documents": self.documents,
            "skipped": dict(self.skipped),
            "source_state": self.source_state,
            **{split: writer.record() for split, writer in self.writers.items()},
        }

    def _save(self) -> None:
        """Have the files on the disk and then the state that speaks of them."""
        for writer in self.writers.values():
            writer.flush()
        with writing(self._hashes_path):
            self._hashes.flush()
            os.fsync(self._hashes.fileno())
        write_state(self.hidden, self.state)
        self._saved, self._shards_saved = time.monotonic(), self._shard_count()
