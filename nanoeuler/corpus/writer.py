"""A split's stream of tokens, written as shards that each begin with a document.

The shard that is being written lies in a hidden folder and takes its name when it is full, so a file of a shard's name
is always whole. The hidden one may have more in it than the writer's record says, when a run ended between two
records; who goes on from a record cuts off what is beyond it.
"""

import glob
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from nanoeuler.corpus.manifest import Shard
from nanoeuler.corpus.shards import HEADER_BYTES, Format, header
from nanoeuler.errors import UserError
from nanoeuler.files import sha256_of_file, writing

#: What is counted of a shard, in the order of a row of counts.
COUNTS = ("documents", "tokens", "text_bytes")


class ShardWriter:
    """Writes one split."""

    def __init__(
        self,
        folder: Path,
        hidden: Path,
        name: str,
        split: str,
        form: Format,
        shard_tokens: int,
        record: dict[str, Any] | None = None,
    ) -> None:
        """Begin, or go on from a :meth:`record`.

        Args:
            folder: where full shards go, as ``NAME_SPLIT_000000.bin`` and so on.
            hidden: where the one that is being written lies.
            name: of the corpus.
            split: train or val.
            form: how tokens lie in a shard.
            shard_tokens: a shard ends before the first document that would make it longer.
            record: what :meth:`record` returned when the files were flushed last.

        Raises:
            UserError: the files are not as the record says, or cannot be written.
        """
        self.folder, self.hidden, self.form, self.shard_tokens = folder, hidden, form, shard_tokens
        self.prefix, self.split = f"{name}_{split}_", split
        self.shards = [Shard(**shard) for shard in record["shards"]] if record else []
        self.counts = dict(record["counts"]) if record else dict.fromkeys(COUNTS, 0)  # of the shard being written
        self._file: BinaryIO | None = None
        self._take_up()

    def record(self) -> dict[str, Any]:
        """Return all that is needed, beside the files, to go on from here: JSON."""
        return {"shards": [vars(shard) for shard in self.shards], "counts": dict(self.counts)}

    def total(self, what: str) -> int:
        """Return how many ``documents``, ``tokens`` or ``text_bytes`` have been written in all."""
        return self.counts[what] + sum(getattr(shard, what) for shard in self.shards)

    def append(self, tokens: np.ndarray, lengths: np.ndarray, text_bytes: np.ndarray) -> None:
        """Write documents, all tokens one after another: how many each has, and how many bytes of text they are.

        Raises:
            UserError: the disk is full, and so on.
        """
        starts = np.concatenate([[0], np.cumsum(lengths)])
        first = 0
        while first < len(lengths):
            room = self.shard_tokens - self.counts["tokens"]
            last = int(np.searchsorted(starts, starts[first] + room, "right")) - 1  # first..last-1 have room
            if last <= first and self.counts["tokens"]:
                self._close_shard()
                continue
            last = max(last, first + 1)  # longer than a shard: it has one of its own
            self._write(tokens[starts[first] : starts[last]])
            more = last - first, int(starts[last] - starts[first]), int(text_bytes[first:last].sum())
            self.counts = {what: self.counts[what] + m for what, m in zip(COUNTS, more, strict=True)}
            first = last

    def flush(self) -> None:
        """Have all that was appended on the disk."""
        if self._file:
            with writing(self._shard_path()):
                self._file.flush()
                os.fsync(self._file.fileno())

    def finish(self) -> None:
        """Give the last shard its name, if there is anything in it."""
        if self.counts["tokens"]:
            self._close_shard()

    def release(self) -> None:
        """Close the file, whatever has become of it."""
        if self._file:
            with suppress(OSError):  # a full disk fails once more at the flush
                self._file.close()

    def _shard_name(self, number: int) -> str:
        return f"{self.prefix}{number:06d}.bin"

    def _shard_path(self) -> Path:
        return self.folder / self._shard_name(len(self.shards))

    def _hidden_path(self) -> Path:
        return self.hidden / self._shard_name(len(self.shards))

    def _take_up(self) -> None:
        """Undo what was done after the record was taken."""
        shard, hidden = self._shard_path(), self._hidden_path()
        with writing(hidden):
            if shard.exists():  # it was finished
                shard.replace(hidden)
            known = {*(s.file for s in self.shards), hidden.name}
            pattern = f"{glob.escape(self.prefix)}*.bin"
            for path in [*self.folder.glob(pattern), *self.hidden.glob(pattern)]:
                if path.name not in known:  # begun, and perhaps finished
                    path.unlink()
            if not self.counts["tokens"]:
                hidden.unlink(missing_ok=True)
                return
            size = HEADER_BYTES + self.counts["tokens"] * self.form.dtype.itemsize
            if not hidden.exists() or hidden.stat().st_size < size:
                raise UserError(f"{hidden}: missing or shorter than it was; begin again with --restart")
            os.truncate(hidden, size)

    def _write(self, tokens: np.ndarray) -> None:
        with writing(self._shard_path()):
            if self._file is None:
                self._file = self._hidden_path().open("ab")
                if not self.counts["tokens"]:
                    self._file.write(bytes(HEADER_BYTES))
            self._file.write(np.ascontiguousarray(tokens, self.form.dtype).data)

    def _close_shard(self) -> None:
        path, hidden = self._shard_path(), self._hidden_path()
        with writing(path):
            if self._file:
                self._file.close()
                self._file = None
            with hidden.open("r+b") as file:
                file.write(header(self.form, self.counts["tokens"]))
                file.flush()
                os.fsync(file.fileno())
            size, sha256 = hidden.stat().st_size, sha256_of_file(hidden)
            hidden.replace(path)
        self.shards.append(Shard(path.name, self.split, **self.counts, size=size, sha256=sha256))
        self.counts = dict.fromkeys(COUNTS, 0)
