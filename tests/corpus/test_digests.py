import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from nanoeuler import console
from nanoeuler.corpus import digests as module
from nanoeuler.corpus.digests import FILE, digests
from nanoeuler.errors import UserError

NAMES = ["a.bin", "b.bin", "c.bin"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).write_bytes(name.encode() * 1000)
    return tmp_path


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the names of the files that are read, in order."""
    names: list[str] = []
    sha256_of_file = module.sha256_of_file

    def reading(path: Path, *more: object) -> str:
        names.append(path.name)
        return sha256_of_file(path, *more)

    monkeypatch.setattr(module, "sha256_of_file", reading)
    return names


def expected(folder: Path) -> list[str]:
    return [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in NAMES]


def test_each_file_is_read_once(folder, read):
    for _ in range(3):
        assert list(digests(folder, NAMES)) == expected(folder)
    assert read == NAMES


def test_one_that_has_changed_is_read_again_though_its_size_is_the_same(folder, read):
    list(digests(folder, NAMES))
    stat = (folder / "b.bin").stat()
    (folder / "b.bin").write_bytes(b"B" * stat.st_size)
    os.utime(folder / "b.bin", ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert list(digests(folder, NAMES)) == expected(folder)
    assert read == [*NAMES, "b.bin"]


def test_what_was_read_before_an_interruption_is_remembered(folder, read):
    found = digests(folder, NAMES)
    next(found)
    found.close()
    list(digests(folder, NAMES))
    assert read == NAMES


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b'{"a.bin": 3}', b'{"a.bin": [1, 2]}', b"\xff"])
def test_a_record_that_is_damaged_is_made_anew(content, folder, read):
    (folder / FILE).write_bytes(content)
    assert list(digests(folder, NAMES)) == expected(folder)
    assert read == NAMES
    assert set(json.loads((folder / FILE).read_bytes())) == set(NAMES)


def test_where_nothing_can_be_written_all_is_read_each_time(folder, read, monkeypatch):
    def full(*_: object) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(module, "replace_file", full)
    for _ in range(2):
        assert list(digests(folder, NAMES)) == expected(folder)
    assert read == NAMES * 2


def test_a_missing_file_is_named(folder):
    (folder / "b.bin").unlink()
    with pytest.raises(UserError, match=r"b\.bin: cannot read it: No such file"):
        list(digests(folder, NAMES))


def test_a_long_check_is_announced_once(folder, monkeypatch, capsys):
    list(digests(folder, NAMES[:1]))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(module, "LONG", 8000)
    list(digests(folder, NAMES))
    assert capsys.readouterr().err == f"checking 2 shards of {folder}, 9.8 KiB, once\n"
    list(digests(folder, NAMES))
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar_that_goes_away(folder, monkeypatch, capsys):
    monkeypatch.setattr(console, "is_terminal", lambda file: file is sys.stderr)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert list(digests(folder, NAMES)) == expected(folder)
    assert "checking 3 shards" in capsys.readouterr().err
