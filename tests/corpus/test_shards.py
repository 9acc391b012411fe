import struct

import numpy as np
import pytest
from corpus.small_corpora import read_as_llmc
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.corpus.shards import NARROW, WIDE, format_for, read_shard, write_shard
from nanoeuler.errors import UserError


@pytest.mark.parametrize(("form", "largest"), [(NARROW, 2**16 - 1), (WIDE, 2**32 - 1)])
def test_what_is_written_is_read(tmp_path, form, largest):
    @given(st.lists(st.integers(0, largest), max_size=50))
    def check(tokens):
        write_shard(tmp_path / "a.bin", np.array(tokens, np.int64), form)
        found = read_shard(tmp_path / "a.bin")
        assert found.dtype == form.dtype
        assert found.tolist() == tokens

    check()


def test_llmc_reads_it(tmp_path):
    write_shard(tmp_path / "a.bin", np.array([50256, 0, 65535]), NARROW)
    assert read_as_llmc(tmp_path / "a.bin") == [50256, 0, 65535]


def test_what_llmc_writes_is_read(tmp_path):
    header = struct.pack("<3i", 20240520, 1, 4) + bytes(253 * 4)  # dev/data/data_common.py, write_datafile
    (tmp_path / "a.bin").write_bytes(header + struct.pack("<4H", 50256, 1, 2, 3))
    assert read_shard(tmp_path / "a.bin").tolist() == [50256, 1, 2, 3]
    header = struct.pack("<3i", 20240801, 7, 2) + bytes(253 * 4)  # of Llama 3's vocabulary
    (tmp_path / "a.bin").write_bytes(header + struct.pack("<2I", 128000, 1))
    assert read_shard(tmp_path / "a.bin").tolist() == [128000, 1]


def test_a_shard_is_mapped_and_cannot_be_changed(tmp_path):
    write_shard(tmp_path / "a.bin", np.arange(5), NARROW)
    found = read_shard(tmp_path / "a.bin")
    assert isinstance(found, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


@pytest.mark.parametrize(("vocab_size", "bytes_each"), [(257, 2), (2**16, 2), (2**16 + 1, 4), (128256, 4)])
def test_the_narrowest_format_is_taken(vocab_size, bytes_each):
    assert format_for(vocab_size).dtype.itemsize == bytes_each


@pytest.mark.parametrize("tokens", [[-1], [2**16], [0, 2**40]])
def test_ids_that_do_not_fit(tmp_path, tokens):
    with pytest.raises(ValueError, match="do not fit uint16"):
        write_shard(tmp_path / "a.bin", np.array(tokens), NARROW)
    assert not (tmp_path / "a.bin").exists()


GOOD = struct.pack("<3i", 20240520, 1, 2) + bytes(253 * 4) + bytes(4)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "damaged: 0 bytes, and a shard's header alone has 1024"),
        (GOOD[:1000], "damaged: 1000 bytes"),
        (GOOD[:-1], "damaged: 1027 bytes, and its header says 2 tokens, which take 1028"),
        (GOOD + b"\0", "damaged: 1029 bytes"),
        (struct.pack("<3i", 20240520, 1, -1) + bytes(253 * 4), "damaged: 1024 bytes, and its header says -1 tokens"),
        (struct.pack("<3i", 20240520, 2, 2) + GOOD[12:], "version 2 of the format; this nanoeuler reads 1"),
        (b"PK\3\4" + GOOD[4:], "not a shard of tokens"),
    ],
)
def test_damage_is_named(tmp_path, content, complaint):
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        read_shard(tmp_path / "a.bin")


def test_a_shard_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"a\.bin: missing"):
        read_shard(tmp_path / "a.bin")
    (tmp_path / "a.bin").mkdir()
    with pytest.raises(UserError, match=r"a\.bin: cannot read it"):
        read_shard(tmp_path / "a.bin")
