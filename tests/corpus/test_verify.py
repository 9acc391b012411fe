import os
import random
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from corpus.small_corpora import TOKENIZER, Listed, prepare_here, prepare_list

from nanoeuler.corpus.manifest import read_manifest, write_manifest
from nanoeuler.corpus.shards import NARROW, write_shard
from nanoeuler.corpus.verify import bytes_to_read, verify
from nanoeuler.errors import UserError


@pytest.fixture
def owls(tmp_path, monkeypatch):
    """Give the folder of a good corpus."""
    return prepare_here(monkeypatch, tmp_path / "owls", 60)


def change(path, offset, content):
    data = bytearray(path.read_bytes())
    data[offset : offset + len(content)] = content
    path.write_bytes(data)


def test_a_good_one(owls):
    read = []
    assert verify(owls, read.append) == []
    shards = len(list(owls.glob("*.bin")))
    assert sum(read) == bytes_to_read(owls) - 1024 * shards


def test_one_changed_token(owls):
    change(owls / "owls_train_000001.bin", 1024 + 2 * 7, b"\1\0")
    (problem,) = verify(owls)
    assert "owls_train_000001.bin: damaged: its sha256 is" in problem


def test_an_id_beyond_the_vocabulary(owls):
    change(owls / "owls_train_000000.bin", 1024 + 2 * 9, (259).to_bytes(2, "little"))
    problems = verify(owls)
    assert any("owls_train_000000.bin: token 259 at 9 is beyond the vocabulary of 259" in p for p in problems)


def test_a_shard_that_does_not_begin_with_a_document(owls):
    change(owls / "owls_val_000000.bin", 1024, b"\1\0")
    problems = "\n".join(verify(owls))
    assert "owls_val_000000.bin: its first token is 1, and documents begin with the end-of-text token" in problems
    assert "documents, and the manifest says" in problems


def test_shards_missing_cut_and_unknown_are_all_named(owls):
    (owls / "owls_train_000000.bin").unlink()
    os.truncate(owls / "owls_train_000001.bin", 1500)
    (owls / "extra.bin").write_bytes(b"")
    problems = "\n".join(verify(owls))
    assert "owls_train_000000.bin: missing" in problems
    assert "owls_train_000001.bin: damaged: 1500 bytes" in problems
    assert "extra.bin: not in the manifest" in problems


def test_the_header_says_another_count(owls):
    path = owls / "owls_train_000000.bin"
    count = int.from_bytes(path.read_bytes()[8:12], "little")
    change(path, 8, (count - 1).to_bytes(4, "little"))
    os.truncate(path, 1024 + 2 * (count - 1))
    assert any(f"{count - 1} tokens, and the manifest says {count}" in problem for problem in verify(owls))


def test_another_tokenizer(owls):
    type(TOKENIZER)([(71, 68)], "gpt2").save(owls)
    assert "nanoeuler_tokenizer.json: damaged: its sha256 is not what the manifest says" in verify(owls)[0]
    write_manifest(owls, replace(read_manifest(owls), files={}))  # one that knows nothing of other files
    assert "its tokenizer is not the one that made the tokens" in verify(owls)[0]


def test_a_bit_anywhere(owls):
    """In any file, at any place or at many: it is found, and nothing else happens."""
    source = random.Random(0)
    for path in owls.iterdir():
        content = path.read_bytes()
        for place in source.sample(range(len(content)), 60):
            change(path, place, bytes([content[place] ^ 1 << source.randrange(8)]))
            with suppress(UserError):  # of a manifest that cannot be read
                assert verify(owls), f"{path.name}, byte {place}"
            path.write_bytes(content)
    assert verify(owls) == []


@pytest.mark.parametrize("name", ["owls_train_000001.bin", "tokenizer.json", "manifest.json"])
def test_shards_that_changed_places_and_files_that_grew_or_are_gone(owls, name):
    other = owls / "owls_train_000000.bin"
    path, content = owls / name, (owls / name).read_bytes()
    path.write_bytes(other.read_bytes())
    other_content = other.read_bytes()
    other.write_bytes(content)
    with suppress(UserError):
        assert len(verify(owls)) >= 2
    other.write_bytes(other_content)
    path.write_bytes(content + b"  ")
    if name != "manifest.json":  # to which white space does not matter, and without which it is a folder of llm.c's
        assert verify(owls)
        path.unlink()
        assert verify(owls)
    path.write_bytes(content)
    assert verify(owls) == []


class TestWithoutAManifest:
    def test_good_shards(self, tmp_path):
        write_shard(tmp_path / "fineweb_train_000001.bin", np.arange(9), NARROW)
        assert verify(tmp_path) == []

    def test_bad_shards(self, tmp_path):
        write_shard(tmp_path / "a.bin", np.arange(0), NARROW)
        (tmp_path / "b.bin").write_bytes(b"...")
        problems = verify(tmp_path)
        assert [problem.partition(".bin: ")[2][:9] for problem in problems] == ["no tokens", "damaged: "]

    def test_no_folder_and_nothing_in_it(self, tmp_path):
        with pytest.raises(UserError, match="no such folder"):
            verify(tmp_path / "owls")
        (tmp_path / "owls").mkdir()
        with pytest.raises(UserError, match="neither a prepared corpus"):
            verify(tmp_path / "owls")

    def test_an_unfinished_one(self, tmp_path):
        with pytest.raises(UserError):
            prepare_list(Listed(["a"], fails_at=0, error=UserError("away")), tmp_path / "owls")
        with pytest.raises(UserError, match="not finished"):
            verify(tmp_path / "owls")
