from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.corpus import stream as module
from nanoeuler.corpus.shards import NARROW, WIDE, write_shard
from nanoeuler.corpus.stream import Stream, array_stream, shard_stream
from nanoeuler.errors import UserError


def write_parts(parts: list[np.ndarray], form=NARROW) -> list[Path]:
    paths = [Path(f"{number}.bin") for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        write_shard(path, part, form)
    return paths


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 12), st.data())
def test_windows_are_those_of_the_whole(lengths, length, data):
    """Also over several borders, and over parts with nothing in them."""
    ends = list(accumulate(lengths))
    whole = np.arange(ends[-1], dtype=np.uint16)
    parts = np.split(whole, ends[:-1])
    stream = Stream(lengths, parts.__getitem__)
    assert len(stream) == len(whole)
    if len(whole) < length:
        return
    starts = np.array(data.draw(st.lists(st.integers(0, len(whole) - length), max_size=8)), np.int64)
    windows = stream.windows(starts, length)
    assert (windows.dtype, windows.shape) == (np.int32, (len(starts), length))
    assert (windows == whole[starts[:, None] + np.arange(length)]).all()


@pytest.mark.parametrize("form", [NARROW, WIDE])
def test_shards_are_mapped_and_read_over_their_borders(form):
    tokens = np.random.default_rng(0).integers(0, 2**16, 1000)
    paths = write_parts(np.split(tokens, [1, 8, 333]), form)
    stream = shard_stream(paths)
    assert len(stream) == 1000
    starts = np.array([0, 300, 990, 7, 5])
    assert (stream.windows(starts, 10) == tokens[starts[:, None] + np.arange(10)]).all()


def test_of_many_shards_only_so_many_are_open(monkeypatch):
    monkeypatch.setattr(module, "MOST_OPEN", 3)
    tokens = np.arange(400)
    stream = shard_stream(write_parts(np.split(tokens, 40)))
    opened = []
    read_shard = module.read_shard
    monkeypatch.setattr(module, "read_shard", lambda path: opened.append(path) or read_shard(path))
    starts = np.arange(390)
    assert (stream.windows(starts, 10)[:, 0] == starts).all()
    assert len(opened) == 40  # in order: each once
    stream.windows(np.array([385, 375, 385]), 5)
    assert len(opened) == 40  # still open


def test_a_shard_that_is_missing_from_the_start_and_one_that_goes_or_changes_later():
    paths = write_parts([np.arange(10), np.arange(10), np.arange(10)])
    with pytest.raises(UserError, match=r"3\.bin: missing"):
        shard_stream([*paths, Path("3.bin")])
    stream = shard_stream(paths)
    paths[1].unlink()
    assert stream.windows(np.array([0]), 10).tolist() == [list(range(10))]
    with pytest.raises(UserError, match=r"1\.bin: missing"):
        stream.windows(np.array([5]), 10)
    write_shard(paths[1], np.arange(11), NARROW)
    with pytest.raises(UserError, match=r"1\.bin: it has changed since training started"):
        stream.windows(np.array([5]), 10)


def test_a_place_in_words():
    stream = shard_stream(write_parts([np.arange(10), np.arange(7)]))
    assert stream.where(9) == "position 9 of 0.bin"
    assert stream.where(10) == "position 0 of 1.bin"
    assert array_stream(np.arange(3)).where(2) == "position 2"


def test_nothing_at_all():
    assert len(shard_stream([])) == 0
