"""The writer alone: any documents, in any batches, with any interruptions, are cut as the definition cuts them."""

import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoeuler.corpus.shards import NARROW, read_shard
from nanoeuler.corpus.writer import ShardWriter
from nanoeuler.errors import UserError

LENGTHS = st.lists(st.integers(1, 12), max_size=12)
#: Batches of documents, and before some of them documents that are lost: those written when the process was killed.
BATCHES = st.lists(st.tuples(st.none() | LENGTHS, LENGTHS), max_size=5)


def cut(lengths, limit):
    """Return how many tokens each shard has, by the definition: a document at a time."""
    shards = []
    for length in lengths:
        if not shards or shards[-1] + length > limit:
            shards.append(0)
        shards[-1] += length
    return shards


def open_writer(folder, record=None):
    (folder / "hidden").mkdir(exist_ok=True)
    return ShardWriter(folder, folder / "hidden", "owls", "train", NARROW, 10, record)


def append(writer, first_token, lengths):
    lengths = np.array(lengths, np.int64)
    writer.append(np.arange(first_token, first_token + lengths.sum()), lengths, 3 * lengths)


@settings(max_examples=60, deadline=None)
@given(BATCHES)
def test_shards_are_cut_as_the_definition_cuts(tmp_path_factory, batches):
    folder = tmp_path_factory.mktemp("shards")
    lengths = [length for _, batch in batches for length in batch]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: None)
        writer = open_writer(folder)
        for lost, batch in batches:
            if lost is not None:
                writer.flush()
                record = json.loads(json.dumps(writer.record()))
                append(writer, 7, lost)
                writer.release()
                writer = open_writer(folder, record)
            append(writer, writer.total("tokens"), batch)
        writer.finish()
    expected = cut(lengths, 10)
    assert [shard.tokens for shard in writer.shards] == expected
    assert sum(shard.documents for shard in writer.shards) == len(lengths)
    assert sum(shard.text_bytes for shard in writer.shards) == 3 * sum(lengths)
    files = sorted(folder.glob("*.bin"))
    assert [path.name for path in files] == [shard.file for shard in writer.shards]
    stream = [token for path in files for token in read_shard(path).tolist()]
    assert stream == list(range(sum(lengths)))
    assert not list((folder / "hidden").iterdir())


def test_a_hidden_file_that_is_too_short(tmp_path):
    writer = open_writer(tmp_path)
    append(writer, 0, [5])
    writer.flush()
    record = writer.record()
    writer.release()
    (tmp_path / "hidden" / "owls_train_000000.bin").write_bytes(b"")
    with pytest.raises(UserError, match="shorter than it was; begin again with --restart"):
        open_writer(tmp_path, record)


def test_other_files_are_left_alone(tmp_path):
    for name in ("owls_val_000000.bin", "notes.txt"):
        (tmp_path / name).write_bytes(b"...")
    open_writer(tmp_path)
    assert (tmp_path / "owls_val_000000.bin").exists()
    assert (tmp_path / "notes.txt").exists()
