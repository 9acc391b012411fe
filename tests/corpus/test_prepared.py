import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from corpora import OTHER_TOKENIZER, TOKENIZER, encode, make_documents, without_borders, write_corpus, write_llmc

from nanoeuler.corpus import PreparedCorpus, Tokens
from nanoeuler.corpus.digests import FILE as DIGESTS
from nanoeuler.corpus.manifest import write_manifest
from nanoeuler.corpus.prepared import open_corpus
from nanoeuler.corpus.shards import NARROW, WIDE, write_shard
from nanoeuler.errors import UserError

OWLS = Path("data/owls")


def tokens_of(corpus: PreparedCorpus, vocab_size: int = TOKENIZER.vocab_size) -> Tokens:
    return corpus.tokens(TOKENIZER, vocab_size, 0.1)


def test_its_shards_are_one_stream():
    manifest = write_corpus(OWLS)
    corpus = open_corpus(OWLS)
    tokens = tokens_of(corpus)
    for split, stream, documents in (("train", tokens.train, 60), ("val", tokens.val, 15)):
        whole = encode(make_documents(documents, 7 if split == "train" else 8))
        assert (stream.windows(np.array([0]), len(stream))[0] == whole).all()
    assert tokens.fingerprint == manifest.fingerprint
    text_bytes = len(TOKENIZER.decode_bytes(without_borders(encode(make_documents(15, 8)))))
    assert tokens.bytes_per_token == text_bytes / len(tokens.val)
    own = corpus.own_tokenizer()
    assert own is not None
    assert own.fingerprint == TOKENIZER.fingerprint


def test_a_folder_of_llmcs_has_the_fingerprint_that_a_manifest_would_give_it():
    write_corpus(OWLS)
    before = tokens_of(open_corpus(OWLS))
    (OWLS / "manifest.json").unlink()
    corpus = open_corpus(OWLS)
    assert corpus.own_tokenizer() is None
    after = tokens_of(corpus)
    assert after.fingerprint == before.fingerprint
    assert after.bytes_per_token == before.bytes_per_token  # by decoding: here all of it
    assert len(after.train) == len(before.train)


def test_llmcs_older_names_have_no_numbers():
    write_llmc(OWLS)
    (OWLS / "t_val_000000.bin").rename(OWLS / "t_val.bin")
    assert open_corpus(OWLS).files["val"] == ["t_val.bin"]


def test_llmcs_wider_shards_need_to_be_told_their_tokenizer():
    write_llmc(OWLS, WIDE)
    corpus = open_corpus(OWLS)
    with pytest.raises(UserError, match=r"not GPT-2's.*--data\.tokenizer_path FOLDER"):
        corpus.likely_tokenizer()
    assert len(tokens_of(corpus).val) == 401


@pytest.mark.parametrize(("missing", "what"), [("train", "train on"), ("val", "validate on")])
def test_a_folder_of_llmcs_without_a_split(missing, what):
    write_llmc(OWLS)
    for path in OWLS.glob(f"*_{missing}_*"):
        path.unlink()
    with pytest.raises(UserError, match=rf"none to {what}: no file \*_{missing}_\*\.bin"):
        open_corpus(OWLS)


def test_tokens_that_the_tokenizer_does_not_have():
    write_llmc(OWLS)
    write_shard(OWLS / "t_val_000000.bin", np.full(100, 300), NARROW)
    with pytest.raises(UserError, match=r"owls: token 300 is beyond .* of 259: which one made its tokens\?"):
        tokens_of(open_corpus(OWLS))


# --- what is found before training starts


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 2)


def flip(path: Path) -> None:
    """Change a bit among the tokens."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def exchange(path: Path) -> None:
    """Put a shard of another corpus there, whole and of the same size."""
    write_shard(path, np.arange(701), NARROW)


def shorten(path: Path) -> None:
    """Put a shard of another size there, whole."""
    write_shard(path, np.arange(700), NARROW)


def spoil_header(path: Path) -> None:
    path.write_bytes(bytes(4) + path.read_bytes()[4:])


DAMAGE = [
    (Path.unlink, "missing"),
    (truncate, "damaged: 2424 bytes, and its header says 701 tokens"),
    (flip, "damaged: its sha256 is"),
    (exchange, "damaged: its sha256 is"),
    (shorten, "another shard than the manifest says: 700 tokens, not 701"),
    (spoil_header, "not a shard of tokens"),
]


@pytest.mark.parametrize("checked_before", [False, True])
@pytest.mark.parametrize(("damage", "said"), DAMAGE)
def test_the_first_bad_shard_is_named_with_what_to_do(damage, said, checked_before):
    write_corpus(OWLS)
    if checked_before:
        tokens_of(open_corpus(OWLS))
        assert (OWLS / DIGESTS).exists()
    bad = OWLS / "owls_train_000000.bin"
    damage(bad)
    with pytest.raises(UserError) as error:
        tokens_of(open_corpus(OWLS))
    assert str(error.value).startswith(f"{bad}: {said}")
    assert f"python -m nanoeuler.corpus verify {OWLS}" in str(error.value)


def test_a_bad_shard_is_still_bad_the_next_time_and_a_good_copy_is_good():
    write_corpus(OWLS)
    bad = OWLS / "owls_val_000000.bin"
    shutil.copy(bad, "good.bin")
    flip(bad)
    for _ in range(2):
        with pytest.raises(UserError, match="owls_val_000000"):
            tokens_of(open_corpus(OWLS))
    shutil.copy("good.bin", bad)
    assert len(tokens_of(open_corpus(OWLS)).val)


def test_a_manifest_that_lists_one_shard_more():
    manifest = write_corpus(OWLS)
    write_manifest(OWLS, replace(manifest, shards=[*manifest.shards, replace(manifest.shards[0], file="more.bin")]))
    with pytest.raises(UserError, match=r"more\.bin: missing"):
        tokens_of(open_corpus(OWLS))


def test_another_tokenizer_than_that_of_the_tokens():
    write_corpus(OWLS)
    OTHER_TOKENIZER.save(OWLS)
    with pytest.raises(UserError, match="its tokenizer is not the one that made the tokens"):
        open_corpus(OWLS).own_tokenizer()


def test_a_model_with_too_small_a_vocabulary():
    write_corpus(OWLS)
    with pytest.raises(UserError, match="the tokenizer has 259 tokens, and the model's vocabulary is 258"):
        tokens_of(open_corpus(OWLS), vocab_size=258)
    tokens_of(open_corpus(OWLS), vocab_size=512)


def test_a_damaged_manifest():
    write_corpus(OWLS)
    (OWLS / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match=r"manifest\.json: "):
        open_corpus(OWLS)
