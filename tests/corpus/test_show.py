import numpy as np
import pytest
from corpus.small_corpora import TOKENIZER, prepare_here, read_as_llmc, split_documents

from nanoeuler.corpus import show
from nanoeuler.corpus.shards import NARROW, write_shard
from nanoeuler.corpus.show import find_document
from nanoeuler.errors import UserError


@pytest.fixture
def owls(tmp_path, monkeypatch):
    """Give a corpus's folder."""
    return prepare_here(monkeypatch, tmp_path / "owls", 90)


@pytest.mark.parametrize("block", [1, 7, 1 << 22])
@pytest.mark.parametrize("manifest", [True, False])
def test_every_document_is_found(owls, monkeypatch, block, manifest):
    monkeypatch.setattr(show, "BLOCK", block)
    if not manifest:
        (owls / "manifest.json").unlink()
    for split in ("train", "val"):
        shards = sorted(owls.glob(f"*_{split}_*.bin"))
        stream = [token for path in shards for token in read_as_llmc(path)]
        expected = split_documents(stream)
        assert len(expected) > 10
        for number, text in enumerate(expected):
            document = find_document(owls, split, number, 258)
            assert TOKENIZER.decode(document.tokens) == text
            assert read_as_llmc(document.shard)[document.offset] == 258
        with pytest.raises(UserError, match=f"it has {len(expected)} documents, numbered 0 to {len(expected) - 1}"):
            find_document(owls, split, len(expected), 258)


def test_shards_before_it_are_not_searched(owls, monkeypatch):
    last = sorted(owls.glob("owls_train_*.bin"))[-1]
    searched = []
    monkeypatch.setattr(show, "_borders", lambda tokens, end: searched.append(len(tokens)) or iter([(0, 1)] * 99))
    manifest = show.read_manifest(owls)
    find_document(owls, "train", manifest.total("train", "documents") - 1, 258)
    assert searched == [len(read_as_llmc(last))]


def test_llmc_shards_without_a_document(tmp_path):
    write_shard(tmp_path / "a_val_000000.bin", np.arange(9), NARROW)
    with pytest.raises(UserError, match=r"no document 0 in val: it has no end-of-text token, 50256: .* --tokenizer"):
        find_document(tmp_path, "val", 0, 50256)
    with pytest.raises(UserError, match="no document 0 in train: it has no documents"):
        find_document(tmp_path, "train", 0, 50256)
