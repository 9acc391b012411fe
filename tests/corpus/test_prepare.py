"""The pipeline: what comes out, that it is always the same, and that it goes on after anything."""

import hashlib
import json
import os
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from corpus.small_corpora import (
    TOKENIZER,
    InlineWorkers,
    Listed,
    contents,
    is_unfinished,
    make_documents,
    prepare_list,
    read_as_llmc,
    split_documents,
)

from nanoeuler.corpus import prepare as module
from nanoeuler.corpus.manifest import read_manifest
from nanoeuler.corpus.seen import hash_document
from nanoeuler.corpus.unfinished import unfinished_folder
from nanoeuler.corpus.verify import verify
from nanoeuler.errors import UserError
from nanoeuler.workers import Workers

DOCUMENTS = make_documents(200)


@pytest.fixture
def inline(monkeypatch):
    """Encode in this process, and do not wait for the disk."""
    monkeypatch.setattr(module, "Workers", InlineWorkers)
    monkeypatch.setattr(os, "fsync", lambda number: None)


def distinct(documents):
    return list(dict.fromkeys(documents))


def for_validation(document, fraction):
    return hash_document(document.encode()) < fraction * 2**64


@pytest.mark.usefixtures("inline")
class TestWhatComesOut:
    def test_each_document_once_in_order_in_the_split_of_its_hash(self, tmp_path):
        corpus = prepare_list(Listed(DOCUMENTS), tmp_path / "owls")
        for split, wanted in (("train", False), ("val", True)):
            tokens = [t for shard in corpus.of(split) for t in read_as_llmc(tmp_path / "owls" / shard.file)]
            assert split_documents(tokens) == [d for d in distinct(DOCUMENTS) if for_validation(d, 0.2) == wanted]
            assert len(corpus.of(split)) > 1

    def test_shards_end_before_the_document_that_is_too_much(self, tmp_path):
        corpus = prepare_list(Listed(DOCUMENTS), tmp_path / "owls")
        for split in ("train", "val"):
            shards = [read_as_llmc(tmp_path / "owls" / shard.file) for shard in corpus.of(split)]
            assert all(len(tokens) <= 500 for tokens in shards)
            for tokens, following in pairwise(shards):
                first = [*following[1:], 258].index(258) + 1
                assert len(tokens) + first > 500

    def test_a_document_longer_than_a_shard_has_one_of_its_own(self, tmp_path):
        documents = ["a", "b" * 30, "c", "d", "e" * 19, "f" * 20]
        corpus = prepare_list(Listed(documents), tmp_path / "owls", val_fraction=0.0, shard_tokens=20)
        assert [shard.documents for shard in corpus.shards] == [1, 1, 2, 1, 1]
        assert [shard.tokens for shard in corpus.shards] == [2, 31, 4, 20, 21]

    def test_the_manifest_says_what_is_there(self, tmp_path):
        folder = tmp_path / "owls"
        corpus = prepare_list(Listed(DOCUMENTS), folder)
        assert read_manifest(folder) == corpus
        assert corpus.name == "owls"
        assert corpus.source == {"kind": "list", "documents": 200}
        assert corpus.tokenizer == {
            "kind": "bpe", "fingerprint": TOKENIZER.fingerprint, "vocab_size": 259, "end_of_text": 258
        }  # fmt: skip
        assert corpus.skipped == {"duplicate": 200 - len(distinct(DOCUMENTS)), "empty": 29}
        text_bytes = sum(len(document.encode()) for document in distinct(DOCUMENTS))
        assert corpus.total("train", "text_bytes") + corpus.total("val", "text_bytes") == text_bytes
        for shard in corpus.shards:
            content = (folder / shard.file).read_bytes()
            assert (len(content), hashlib.sha256(content).hexdigest()) == (shard.size, shard.sha256)
        assert verify(folder) == []
        TOKENIZER.save(tmp_path / "tokenizer")
        names = {shard.file for shard in corpus.shards} | {"manifest.json", *contents(tmp_path / "tokenizer")}
        assert set(contents(folder)) == names

    def test_a_growing_corpus_keeps_its_validation_documents(self, tmp_path):
        def validation(count):
            corpus = prepare_list(Listed(DOCUMENTS[:count]), tmp_path / str(count))
            tokens = [t for shard in corpus.of("val") for t in read_as_llmc(tmp_path / str(count) / shard.file)]
            return split_documents(tokens)

        few, many = validation(100), validation(200)
        assert many[: len(few)] == few
        assert len(many) > len(few)

    def test_duplicates_stay_where_they_are_wanted(self, tmp_path):
        corpus = prepare_list(Listed(DOCUMENTS), tmp_path / "owls", deduplicate=False)
        assert corpus.total("train", "documents") + corpus.total("val", "documents") == 200
        assert "duplicate" not in corpus.skipped

    @pytest.mark.parametrize("limit", [1, 6, 7, 8, 50])
    @pytest.mark.parametrize("deduplicate", [True, False])
    def test_a_limit_is_a_prefix(self, tmp_path, limit, deduplicate):
        settings = {"val_fraction": 0.0, "shard_tokens": 10**6, "deduplicate": deduplicate}
        corpus = prepare_list(Listed(DOCUMENTS), tmp_path / "owls", limit=limit, **settings)
        kept = split_documents(read_as_llmc(tmp_path / "owls" / corpus.shards[0].file))
        assert kept == (distinct(DOCUMENTS) if deduplicate else DOCUMENTS)[:limit]

    def test_nothing_is_read_beyond_the_limit(self, tmp_path):
        source = Listed(DOCUMENTS)
        prepare_list(source, tmp_path / "owls", limit=10, deduplicate=False)
        assert source.done == 14

    @pytest.mark.parametrize("documents", [[], ["", ""]])
    def test_no_document_is_an_error_with_the_reasons(self, tmp_path, documents, monkeypatch):
        source = Listed(documents)
        if documents:
            monkeypatch.setattr(
                source, "read", lambda state: iter([module.Batch([], {"too short": 2}, rows=2, state=1)])
            )
        reason = "2 rows left out: too short" if documents else "there is nothing in it"
        with pytest.raises(UserError, match=f"no document to prepare.*{reason}"):
            prepare_list(source, tmp_path / "owls")
        assert not (tmp_path / "owls" / "manifest.json").exists()

    def test_large_vocabularies_take_four_bytes(self, tmp_path, monkeypatch):
        monkeypatch.setattr(TOKENIZER, "vocab_size", 2**16 + 1)
        monkeypatch.setattr(InlineWorkers, "submit", lambda self, documents: _done(documents))
        corpus = prepare_list(Listed(DOCUMENTS), tmp_path / "owls")
        assert all(shard.size == 1024 + 4 * shard.tokens for shard in corpus.shards)
        assert verify(tmp_path / "owls") == []


def _done(documents):
    future = module.Future()
    future.set_result(module.Encoded(*_wide(documents)))
    return future


def _wide(documents):
    from nanoeuler.corpus.encoded import encode_documents

    encoded = encode_documents(TOKENIZER, documents)
    assert encoded.tokens.dtype == np.uint32
    return encoded.tokens, encoded.lengths, encoded.text_bytes, encoded.hashes


class SlowWorkers(InlineWorkers):
    """Have nothing done until they are asked for it."""

    def submit(self, documents):
        future = super().submit(documents)
        future.done = lambda: False
        return future


class Killed(BaseException):
    """The process is no more: what follows has no effect."""


class Mortality:
    """Counts the calls that change files, and kills the process at one of them: it, and all later ones, do nothing."""

    def __init__(self, monkeypatch, dies_at):
        self.calls, self.dies_at = 0, dies_at
        for owner, name in ((os, "fsync"), (os, "truncate"), (Path, "replace"), (Path, "unlink"), (Path, "mkdir")):
            monkeypatch.setattr(owner, name, self.mortal(getattr(owner, name)))

    def mortal(self, function):
        def call(*arguments, **more):
            self.calls += 1
            if self.dies_at is not None and self.calls >= self.dies_at:
                raise Killed
            return function(*arguments, **more)

        return call


@pytest.mark.usefixtures("inline")
class TestInterrupted:
    @pytest.fixture
    def undisturbed(self, tmp_path):
        prepare_list(Listed(DOCUMENTS), tmp_path / "undisturbed" / "owls [é]")  # which a glob takes for a class
        return contents(tmp_path / "undisturbed" / "owls [é]")

    def test_killed_at_any_change_of_a_file(self, tmp_path):
        documents = DOCUMENTS[:60]
        with pytest.MonkeyPatch.context() as patch:
            calls = Mortality(patch, None)
            prepare_list(Listed(documents), tmp_path / "undisturbed" / "owls")
        undisturbed = contents(tmp_path / "undisturbed" / "owls")
        assert calls.calls > 50
        for dies_at in range(1, calls.calls + 1):
            folder = tmp_path / str(dies_at) / "owls"
            with pytest.MonkeyPatch.context() as patch:
                Mortality(patch, dies_at)
                with pytest.raises(Killed):
                    prepare_list(Listed(documents), folder)
            for path in folder.glob("owls_*.bin"):
                read_as_llmc(path)  # whole
            prepare_list(Listed(documents), folder)
            assert contents(folder) == undisturbed, dies_at

    def test_killed_again_and_again(self, tmp_path, undisturbed):
        folder, runs = tmp_path / "killed" / "owls [é]", 0
        while not (folder / "manifest.json").exists():
            runs += 1
            with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                Mortality(patch, 30 + 2 * runs)
                prepare_list(Listed(DOCUMENTS), folder)
            assert runs < 100, "it does not get on"
        prepare_list(Listed(DOCUMENTS), folder)
        assert runs > 5
        assert contents(folder) == undisturbed

    @pytest.mark.parametrize("error", [UserError("the hub is away"), KeyboardInterrupt(), SystemExit(143)])
    def test_stopped_cleanly_it_loses_nothing(self, tmp_path, undisturbed, error, capsys):
        folder = tmp_path / "stopped" / "owls [é]"
        for batch in (1, 2, 9, 20):
            with pytest.raises(type(error)):
                prepare_list(Listed(DOCUMENTS, fails_at=batch, error=error), folder)
            state = json.loads((folder / ".unfinished" / "state.json").read_text())
            assert state["source_state"] == 7 * batch
        assert f"stopped with {state['documents']} documents; the same command goes on" in capsys.readouterr().out
        prepare_list(Listed(DOCUMENTS), folder)
        assert contents(folder) == undisturbed

    def test_what_came_before_a_source_failed_is_kept(self, tmp_path, monkeypatch):
        """Though it is with the workers still: else a source that fails again and again might never get on."""
        monkeypatch.setattr(module, "Workers", SlowWorkers)
        folder = tmp_path / "failing" / "owls"
        for batches in (3, 6):
            with pytest.raises(UserError, match="away"):
                prepare_list(Listed(DOCUMENTS, fails_at=batches, error=UserError("away")), folder)
            state = json.loads((folder / ".unfinished" / "state.json").read_text())
            assert state["source_state"] == 7 * batches

    def test_a_full_disk(self, tmp_path, undisturbed):
        folder = tmp_path / "full" / "owls [é]"
        for room in (0, 1, 5, 9):
            with pytest.MonkeyPatch.context() as patch:
                left = [room]

                def fsync(number, left=left):
                    left[0] -= 1
                    if left[0] < 0:
                        raise OSError(28, "No space left on device")

                patch.setattr(os, "fsync", fsync)
                with pytest.raises(UserError, match="No space left on device"):
                    prepare_list(Listed(DOCUMENTS), folder)
            for path in folder.glob("*.bin"):
                read_as_llmc(path)
        prepare_list(Listed(DOCUMENTS), folder)
        assert contents(folder) == undisturbed


@pytest.mark.usefixtures("inline")
class TestStartedAgain:
    @pytest.fixture
    def unfinished(self, tmp_path):
        folder = tmp_path / "owls"
        with pytest.raises(UserError, match="away"):
            prepare_list(Listed(DOCUMENTS, fails_at=5, error=UserError("away")), folder)
        assert is_unfinished(folder)
        return folder

    def test_finished_it_is_left_alone(self, tmp_path):
        folder = tmp_path / "owls"
        first = prepare_list(Listed(DOCUMENTS), folder)
        before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
        assert prepare_list(Listed(DOCUMENTS, fails_at=0, error=AssertionError), folder) == first
        assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before

    def test_finished_with_a_shard_missing(self, tmp_path):
        first = prepare_list(Listed(DOCUMENTS), tmp_path / "owls")
        (tmp_path / "owls" / first.shards[1].file).unlink()
        with pytest.raises(UserError, match=r"owls_train_000001.bin: missing.* remove .*owls to prepare it once more"):
            prepare_list(Listed(DOCUMENTS), tmp_path / "owls")

    def test_with_other_settings(self, unfinished):
        before = contents(unfinished)
        with pytest.raises(UserError, match=r"settings.shard_tokens was 500, now 400\).*--restart"):
            prepare_list(Listed(DOCUMENTS), unfinished, shard_tokens=400)
        assert contents(unfinished) == before

    def test_of_another_source(self, unfinished):
        with pytest.raises(UserError, match=r"source.documents was 200, now 199\)"):
            prepare_list(Listed(DOCUMENTS[1:]), unfinished)

    def test_with_another_tokenizer(self, unfinished, monkeypatch):
        monkeypatch.setattr(module, "_identity", lambda *a, original=module._identity: original(*a) | {"tokenizer": 1})
        with pytest.raises(UserError, match=r"tokenizer was .*, now 1"):
            prepare_list(Listed(DOCUMENTS), unfinished)

    def test_finished_with_other_settings(self, tmp_path):
        prepare_list(Listed(DOCUMENTS), tmp_path / "owls")
        with pytest.raises(UserError, match=r"holds another corpus \(settings.limit was None, now 3\)"):
            prepare_list(Listed(DOCUMENTS), tmp_path / "owls", limit=3)

    def test_restart_gives_the_unfinished_one_up(self, unfinished, tmp_path):
        prepare_list(Listed(DOCUMENTS), unfinished, shard_tokens=700, restart=True)
        prepare_list(Listed(DOCUMENTS), tmp_path / "undisturbed" / "owls", shard_tokens=700)
        assert contents(unfinished) == contents(tmp_path / "undisturbed" / "owls")

    def test_with_a_file_that_was_written_to_since(self, tmp_path):
        def source(times, **more):
            listed = Listed(DOCUMENTS, **more)
            listed.times = times
            return listed

        with pytest.raises(UserError, match="away"):
            prepare_list(source({"a": 1, "b": 2}, fails_at=5, error=UserError("away")), tmp_path / "owls")
        with pytest.raises(UserError, match=r"owls holds an unfinished corpus of .*, and b has been written to since"):
            prepare_list(source({"a": 1, "b": 3}), tmp_path / "owls")
        with pytest.raises(UserError, match=r"and a and 1 other file has been written .*--restart"):
            prepare_list(source({"a": 3, "b": 3}), tmp_path / "owls")
        assert prepare_list(source({"a": 1, "b": 2}), tmp_path / "owls").shards

    def test_finished_by_another_process_in_the_meantime(self, tmp_path, monkeypatch):
        """Which is seen with the lock held: the finished shards are not those of an interrupted run, to be undone."""
        folder = tmp_path / "owls"

        @contextmanager
        def another_was_quicker(folder):
            with unfinished_folder(folder):
                pass
            monkeypatch.setattr(module, "unfinished_folder", unfinished_folder)
            prepare_list(Listed(DOCUMENTS), folder)
            before.update(contents(folder))
            yield folder / ".unfinished"

        before = {}
        monkeypatch.setattr(module, "unfinished_folder", another_was_quicker)
        with pytest.raises(UserError, match=r"holds another corpus \(settings.limit was None, now 3\)"):
            prepare_list(Listed(DOCUMENTS), folder, limit=3)
        assert contents(folder) == before

    def test_before_anything_was_done_settings_may_change(self, tmp_path):
        with pytest.raises(UserError, match="away"):
            prepare_list(Listed(DOCUMENTS, fails_at=0, error=UserError("away")), tmp_path / "owls")
        assert prepare_list(Listed(DOCUMENTS), tmp_path / "owls", shard_tokens=400).shards

    def test_a_folder_of_other_things_is_not_touched(self, tmp_path):
        (tmp_path / "owls").mkdir()
        (tmp_path / "owls" / "thesis.txt").write_text("...")
        with pytest.raises(UserError, match=r"has other files in it \(thesis.txt\)"):
            prepare_list(Listed(DOCUMENTS), tmp_path / "owls")
        assert contents(tmp_path / "owls") == {"thesis.txt": b"..."}

    def test_two_at_once(self, unfinished):
        fcntl = pytest.importorskip("fcntl", reason="this system has no such locks")
        with (unfinished / ".unfinished" / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(UserError, match="another process is preparing a corpus"):
                prepare_list(Listed(DOCUMENTS), unfinished)

    @pytest.mark.parametrize("name", ["seen.bin", "owls_train_000003.bin"])
    def test_state_without_its_files(self, unfinished, name):
        hidden = unfinished / ".unfinished"
        path = hidden / name if (hidden / name).exists() else next(hidden.glob("owls_train_*.bin"))
        path.write_bytes(b"")
        with pytest.raises(UserError, match=r"missing or shorter than it was; begin again with --restart"):
            prepare_list(Listed(DOCUMENTS), unfinished)

    @pytest.mark.parametrize("content", [b"", b"[]", b'{"version": 99}', b"\xff"])
    def test_a_damaged_state(self, unfinished, content):
        (unfinished / ".unfinished" / "state.json").write_bytes(content)
        with pytest.raises(UserError, match="not the state of a preparation"):
            prepare_list(Listed(DOCUMENTS), unfinished)


def test_the_earlier_source_of_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Workers", InlineWorkers)
    folder = tmp_path / "owls"
    assert module.earlier_source(folder) is None
    for batches in (0, 5):  # nothing done; begun
        with pytest.raises(UserError, match="away"):
            prepare_list(Listed(DOCUMENTS, fails_at=batches, error=UserError("away")), folder)
        assert module.earlier_source(folder) == ({"kind": "list", "documents": 200} if batches else None)
    prepare_list(Listed(DOCUMENTS), folder)
    assert module.earlier_source(folder) == {"kind": "list", "documents": 200}


def test_workers_are_there_before_reading_begins(tmp_path, monkeypatch):
    """Fresh processes, and begun while no thread of a source's library is at work."""
    with Workers(1, eval) as fresh:
        assert not fresh.submit("'pytest' in __import__('sys').modules").result()
    events = []

    class Noting(InlineWorkers):
        def __init__(self, *arguments):
            events.append("workers")
            super().__init__(*arguments)

    class NotingSource(Listed):
        def read(self, state=None):
            events.append("read")
            return super().read(state)

    monkeypatch.setattr(module, "Workers", Noting)
    prepare_list(NotingSource(DOCUMENTS), tmp_path / "owls")
    assert events == ["workers", "read"]


def test_any_number_of_processes_gives_the_same_bytes(tmp_path):
    for workers in (1, 3):
        prepare_list(Listed(DOCUMENTS, size=2), tmp_path / str(workers) / "owls", workers=workers)
    assert contents(tmp_path / "1" / "owls") == contents(tmp_path / "3" / "owls")
