"""Small corpora of token shards, written without the pipeline: prepared ones, and folders such as llm.c's."""

import random
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from nanoeuler.corpus.manifest import Manifest, Shard, write_manifest
from nanoeuler.corpus.shards import NARROW, Format, write_shard
from nanoeuler.files import sha256_of_file
from nanoeuler.tokenizer import BPETokenizer

#: A token for each byte, two merges (" t", "he"), and the end-of-text token.
TOKENIZER = BPETokenizer([(220, 83), (71, 68)], "gpt2")
#: Another one with as many tokens.
OTHER_TOKENIZER = BPETokenizer([(220, 83), (220, 64)], "gpt2")
#: Tokens in the shards of the training split, the last of which has the rest: odd, and one less than a window.
SIZES = (701, 3, 1)


def make_documents(count: int, seed: int = 7) -> list[str]:
    """Return documents of short words that are easy to learn."""
    source = random.Random(seed)
    words = ["the", "owl", "saw", "a", "red", "moon.\n"]
    return [" ".join(source.choices(words, k=source.randrange(1, 20))) for _ in range(count)]


def encode(documents: list[str], tokenizer: BPETokenizer = TOKENIZER) -> np.ndarray:
    """Return documents as one stream of tokens, (N,) int32, each begun by the end-of-text token."""
    parts = [np.append(np.int32(tokenizer.end_of_text), tokenizer.encode(document)) for document in documents]
    return np.concatenate(parts, dtype=np.int32)


def write_corpus(
    folder: Path,
    documents: int = 60,
    val_documents: int = 15,
    tokenizer: BPETokenizer = TOKENIZER,
    sizes: tuple[int, ...] = SIZES,
    seed: int = 7,
) -> Manifest:
    """Write a prepared corpus, the training split's shards of these sizes, the rest in one more."""
    folder.mkdir(parents=True)
    shards = []
    for split, count, cuts in (("train", documents, sizes), ("val", val_documents, ())):
        texts = make_documents(count, seed if split == "train" else seed + 1)
        tokens = encode(texts, tokenizer) if texts else np.empty(0, np.int32)
        edges = [0, *accumulate(cuts), len(tokens)]
        for number, (begin, end) in enumerate(pairwise(edges) if texts else ()):
            file = f"{folder.name}_{split}_{number:06d}.bin"
            write_shard(folder / file, tokens[begin:end], NARROW)
            text_bytes = len(tokenizer.decode_bytes(without_borders(tokens[begin:end], tokenizer)))
            begun = int((tokens[begin:end] == tokenizer.end_of_text).sum())
            size, sha256 = (folder / file).stat().st_size, sha256_of_file(folder / file)
            shards.append(Shard(file, split, begun, end - begin, text_bytes, size, sha256))
    tokenizer.save(folder)
    identity = {
        "kind": tokenizer.kind,
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "end_of_text": tokenizer.end_of_text,
    }
    manifest = Manifest(folder.name, {"kind": "test", "asked_for": ["a test"]}, {}, identity, shards)
    write_manifest(folder, manifest)
    return manifest


def without_borders(tokens: np.ndarray, tokenizer: BPETokenizer = TOKENIZER) -> np.ndarray:
    """Return tokens without the end-of-text tokens among them."""
    return tokens[tokens != tokenizer.end_of_text]


def write_llmc(folder: Path, form: Format = NARROW, documents: int = 60) -> None:
    """Write two shards to train on and one to validate on, and nothing else."""
    folder.mkdir(parents=True)
    tokens = encode(make_documents(documents))
    for name, part in (("train_000001", tokens[:701]), ("train_000002", tokens[701:]), ("val_000000", tokens[:401])):
        write_shard(folder / f"t_{name}.bin", part, form)
