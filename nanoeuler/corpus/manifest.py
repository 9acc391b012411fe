"""The manifest of a prepared corpus: where it came from, with which tokenizer, and every shard with its SHA-256.

A prepared corpus is a folder::

    manifest.json                                       written last: a folder without it is not finished
    NAME_train_000000.bin, NAME_val_000000.bin, ...     shards (nanoeuler.corpus.shards)
    nanoeuler_tokenizer.json, ...                       the tokenizer that made them

The manifest has a SHA-256 of itself too, so a change to it is found. It is none of safety: who can change a file can
change that as well.

A split's shards, one after another, are one stream of tokens. Every document begins with the end-of-text token.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nanoeuler.errors import UserError
from nanoeuler.files import written_whole

FILE = "manifest.json"
VERSION = 1
SPLITS = ("train", "val")


@dataclass(frozen=True)
class Shard:
    """One shard: its file's name, what is in it, and what the file must be."""

    file: str
    split: str  # one of SPLITS
    documents: int  # that begin in it
    tokens: int
    text_bytes: int  # UTF-8 bytes that the tokens stand for, without those of the end-of-text tokens
    size: int  # bytes of the file
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a prepared corpus is."""

    name: str
    source: dict[str, Any]  # what was asked for, and where it came from: kind, address or files, revision
    settings: dict[str, Any]  # everything else that decides the bytes: conditions, lengths, share of validation, ...
    tokenizer: dict[str, Any]  # kind, fingerprint, vocab_size, end_of_text
    shards: list[Shard]
    skipped: dict[str, int] = field(default_factory=dict)  # documents left out, by reason
    files: dict[str, str] = field(default_factory=dict)  # the other files, which are the tokenizer's, and their SHA-256

    def total(self, split: str, what: str) -> int:
        """Return how many ``documents``, ``tokens`` or ``text_bytes`` a split has."""
        return sum(getattr(shard, what) for shard in self.shards if shard.split == split)

    def of(self, split: str) -> list[Shard]:
        """Return a split's shards in order."""
        return [shard for shard in self.shards if shard.split == split]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the tokens of all shards: equal for two corpora that give the same batches."""
        return hashlib.sha256("".join(f"{s.split} {s.sha256}\n" for s in self.shards).encode()).hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into a corpus's folder.

    Raises:
        UserError: it cannot be written.
    """
    totals = {
        split: {what: manifest.total(split, what) for what in ("documents", "tokens", "text_bytes")} for split in SPLITS
    }
    record = {"version": VERSION, **asdict(manifest), "totals": totals}  # totals are for people
    record["sha256"] = _digest(record)
    with written_whole(folder / FILE) as file:
        file.write((json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a prepared corpus.

    Raises:
        UserError: there is none, or it is unreadable, damaged or of a later version.
    """
    path, record = folder / FILE, _read(folder)
    if not isinstance(record, dict) or record.pop("version", VERSION) != VERSION:
        raise UserError(f"{path}: not a manifest of the version that this nanoeuler reads, {VERSION}")
    for name in ("totals", "sha256"):
        record.pop(name, None)
    try:
        found = Manifest(**record | {"shards": [Shard(**shard) for shard in record["shards"]]})
        if all(map(_is_sound, found.shards)) and {"vocab_size", "end_of_text", "fingerprint"} <= found.tokenizer.keys():
            return found
    except (KeyError, TypeError, AttributeError):
        pass
    raise UserError(f"{path}: damaged: not all that a manifest says is in it, or more")


def is_as_written(folder: Path) -> bool:
    """Return whether the manifest, which can be read, is what was written, or nothing is known of that.

    Raises:
        UserError: it cannot be read.
    """
    record = _read(folder)
    sha256 = record.pop("sha256", None)
    return sha256 is None or sha256 == _digest(record)


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _read(folder: Path) -> Any:
    path = folder / FILE
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{folder}: no prepared corpus here ({FILE} is missing)") from None
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path}: damaged: not the JSON of a manifest") from None


def _is_sound(shard: Shard) -> bool:
    """Return whether a shard's values are of the types they should be, and its file one of the manifest's folder."""
    counts = (shard.documents, shard.tokens, shard.text_bytes, shard.size)
    return (
        shard.split in SPLITS
        and Path(shard.file).name == shard.file
        and all(isinstance(count, int) and count >= 0 for count in counts)
    )
