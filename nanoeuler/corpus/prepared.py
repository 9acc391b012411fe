"""A corpus that lies on the disk as shards of tokens: prepared here, with a manifest, or llm.c's, without one."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nanoeuler.console import format_count, plural
from nanoeuler.corpus import manifest
from nanoeuler.corpus.batches import WRONG_SIZE
from nanoeuler.corpus.digests import digests
from nanoeuler.corpus.manifest import SPLITS, Manifest, Shard, read_manifest
from nanoeuler.corpus.shards import NARROW, read_shard, split_of
from nanoeuler.corpus.shuffle import by_formula
from nanoeuler.corpus.stream import Stream, shard_stream
from nanoeuler.corpus.tokens import Tokens
from nanoeuler.corpus.verify import shard_files
from nanoeuler.errors import UserError
from nanoeuler.tokenizer import Tokenizer, load_tokenizer, make_tokenizer

#: Tokens that are decoded where no manifest says how many bytes the validation tokens stand for.
SAMPLE = 1 << 18
#: What the splits are for.
WORDS = {"train": "train on", "val": "validate on"}


@dataclass(frozen=True)
class PreparedCorpus:
    """Shards in a folder."""

    folder: Path
    reason: str  # one line: which corpus this is
    files: dict[str, list[str]]  # of each split, in order
    manifest: Manifest | None  # llm.c's folders have none

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    def own_tokenizer(self) -> Tokenizer | None:
        """Return the tokenizer that made the tokens, or None where nobody says which that is.

        Raises:
            UserError: it is missing, damaged or another.
        """
        if self.manifest is None:
            return None
        tokenizer = load_tokenizer(self.folder)
        if tokenizer.fingerprint != self.manifest.tokenizer["fingerprint"]:
            raise UserError(f"{self.folder}: its tokenizer is not the one that made the tokens; prepare it again")
        return tokenizer

    def likely_tokenizer(self) -> Tokenizer:
        """Return the tokenizer of llm.c's shards, which do not say it: GPT-2's, if they are of its format.

        Raises:
            UserError: they are not, or GPT-2's vocabulary cannot be had.
        """
        if any(read_shard(path).dtype != NARROW.dtype for split in SPLITS for path in self._paths(split)):
            raise UserError(
                f"{self.folder}: its shards have no manifest that names their tokenizer, and it is not GPT-2's, for "
                "the ids are uint32: give it with --data.tokenizer_path FOLDER"
            )
        return make_tokenizer("gpt2", "")

    def tokens(self, tokenizer: Tokenizer, vocab_size: int, val_fraction: float) -> Tokens:
        """Return the splits as streams, once every shard has been found to be whole.

        Args:
            tokenizer: that made the tokens.
            vocab_size: the model's.
            val_fraction: of no use here: the splits are what they are.

        Raises:
            UserError: a shard is missing, damaged or another than the manifest says, or the model's vocabulary is
                smaller than the tokenizer's.
        """
        if vocab_size < tokenizer.vocab_size:
            raise UserError(
                f"{self.folder}: the tokenizer has {tokenizer.vocab_size} tokens, and the model's vocabulary is "
                f"{vocab_size}: {WRONG_SIZE}"
            )
        train, val = (self._stream(split) for split in SPLITS)
        fingerprint = self._check_digests()
        return Tokens(
            train,
            val,
            fingerprint=fingerprint,
            bytes_per_token=self._bytes_per_token(val, tokenizer),
            shuffle=by_formula,
            name=str(self.folder),
            longer="prepare it from more documents",
            longer_val="prepare it again with a larger --val-fraction",
        )

    def _paths(self, split: str) -> list[Path]:
        return [self.folder / file for file in self.files[split]]

    def _stream(self, split: str) -> Stream:
        """Return a split, every shard of which is there and as long as it and the manifest say."""
        try:
            stream = shard_stream(self._paths(split))
        except UserError as error:
            raise UserError(f"{error}{self._advice()}") from None
        for shard, tokens in zip(self.manifest.of(split) if self.manifest else [], stream.lengths, strict=False):
            if shard.tokens != tokens:
                raise UserError(
                    f"{self.folder / shard.file}: another shard than the manifest says: {tokens:,} tokens, not "
                    f"{shard.tokens:,}{self._advice()}"
                )
        return stream

    def _check_digests(self) -> str:
        """Return the :attr:`~nanoeuler.corpus.manifest.Manifest.fingerprint` of the files, as they are."""
        shards = self.manifest.shards if self.manifest else self._unlisted()
        found = []
        for shard, digest in zip(shards, digests(self.folder, [shard.file for shard in shards]), strict=True):
            if self.manifest and digest != shard.sha256:
                raise UserError(
                    f"{self.folder / shard.file}: damaged: its sha256 is {digest}, and the manifest says "
                    f"{shard.sha256}{self._advice()}"
                )
            found.append(replace(shard, sha256=digest))
        return Manifest("", {}, {}, {}, found).fingerprint

    def _unlisted(self) -> list[Shard]:
        return [Shard(file, split, 0, 0, 0, 0, "") for split in SPLITS for file in self.files[split]]

    def _advice(self) -> str:
        return (
            f"\nNothing was trained. `python -m nanoeuler.corpus verify {self.folder}` names everything that is wrong; "
            "then copy the corpus again, or remove the folder and prepare it again"
        )

    def _bytes_per_token(self, val: Stream, tokenizer: Tokenizer) -> float:
        """Return the bytes of text that a validation token stands for, on average."""
        if self.manifest:
            return self.manifest.total("val", "text_bytes") / max(1, len(val))
        sample = val.windows(np.zeros(1, np.int64), min(SAMPLE, len(val)))[0]
        try:
            return len(tokenizer.decode_bytes(sample[sample != tokenizer.end_of_text])) / max(1, len(sample))
        except UserError as error:
            raise UserError(
                f"{self.folder}: {error}: which one made its tokens? Give it with --data.tokenizer_path FOLDER"
            ) from None


def is_corpus(folder: Path) -> bool:
    """Return whether a folder is a prepared corpus."""
    return (folder / manifest.FILE).is_file()


def open_corpus(folder: Path) -> PreparedCorpus:
    """Return the corpus in a folder; the shards are not looked at yet.

    Raises:
        UserError: there is none, it is not finished, or its manifest is damaged.
    """
    shards = shard_files(folder)  # for its errors
    if is_corpus(folder):
        found = read_manifest(folder)
        files = {split: [shard.file for shard in found.of(split)] for split in SPLITS}
        return PreparedCorpus(folder, f"{folder}, prepared from {_describe(found)}", files, found)
    files = {split: [p.name for p in shards if split_of(p.name) == split] for split in SPLITS}
    for split in SPLITS:
        if not files[split]:
            raise UserError(f"{folder}: shards, but none to {WORDS[split]}: no file *_{split}_*.bin is there")
    return PreparedCorpus(folder, f"{folder}, {plural(len(shards), 'shard')} without a manifest", files, None)


def _describe(found: Manifest) -> str:
    asked_for = found.source.get("asked_for")
    source = ", ".join(map(str, asked_for)) if isinstance(asked_for, list) else str(found.source.get("kind"))
    documents, tokens = (sum(found.total(split, what) for split in SPLITS) for what in ("documents", "tokens"))
    return (
        f"{source}: {format_count(documents)} documents, {format_count(tokens)} tokens "
        f"({found.tokenizer['kind']}) in {plural(len(found.shards), 'shard')}"
    )
