import os
from pathlib import Path

import pytest

from nanoeuler.corpus import tinyshakespeare
from nanoeuler.download import sha256_of
from nanoeuler.errors import UserError

DATA = os.environ.get("NANOEULER_DATA")
GOOD = b"First Citizen:\nBefore we proceed any further, hear me speak.\n"
OTHER = GOOD.replace(b"\n", b"\r\n")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Have two lines stand for the megabyte."""
    monkeypatch.setattr(tinyshakespeare, "SHA256", sha256_of(GOOD))


def put(folder: Path, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tinyshakespeare.txt"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("place", ["data", "NANOEULER_DATA", "cache"])
def test_found_in_each_place(place, empty_world, refusing, tmp_path, monkeypatch):
    monkeypatch.setenv("NANOEULER_DATA", str(tmp_path / "elsewhere"))
    folder = {"data": Path("data"), "NANOEULER_DATA": tmp_path / "elsewhere", "cache": empty_world}[place]
    path = put(folder, GOOD)
    assert tinyshakespeare.load(refusing) == (GOOD.decode(), f"from {path}")


def test_else_downloaded_once(serve, refusing, empty_world):
    text, origin = tinyshakespeare.load(serve(GOOD))
    assert text == GOOD.decode()
    assert origin == f"downloaded to {empty_world / 'tinyshakespeare.txt'}"
    assert tinyshakespeare.load(refusing) == (text, f"from {empty_world / 'tinyshakespeare.txt'}")


def test_a_damaged_copy_in_the_cache_is_replaced(serve, empty_world):
    path = put(empty_world, GOOD[:-7])
    text, origin = tinyshakespeare.load(serve(GOOD))
    assert text == GOOD.decode()
    assert "passed over" in origin
    assert path.read_bytes() == GOOD


def test_a_damaged_copy_of_the_users_is_an_error_and_stays(serve):
    path = put(Path("data"), OTHER)
    with pytest.raises(UserError, match=f"{sha256_of(OTHER)}, expected {sha256_of(GOOD)}") as error:
        tinyshakespeare.load(serve(GOOD))
    assert str(path) in str(error.value)
    assert path.read_bytes() == OTHER


def test_or_is_passed_over_and_mentioned(serve):
    path = put(Path("data"), OTHER)
    text, origin = tinyshakespeare.load(serve(GOOD), pass_over=True)
    assert text == GOOD.decode()
    assert f"passed over {path}" in origin
    assert path.read_bytes() == OTHER


def test_nowhere(refusing, empty_world):
    with pytest.raises(UserError, match=r"no good tinyshakespeare.txt in data, .*refused") as error:
        tinyshakespeare.load(refusing)
    assert str(empty_world) in str(error.value)
    assert not empty_world.exists() or list(empty_world.iterdir()) == []


def test_places_that_are_no_folders(serve, tmp_path, monkeypatch):
    Path("data").write_text("a file")
    monkeypatch.setenv("NANOEULER_DATA", str(tmp_path / "missing"))
    assert tinyshakespeare.load(serve(GOOD))[0] == GOOD.decode()


def test_a_copy_that_cannot_be_read(refusing):
    Path("data/tinyshakespeare.txt").mkdir(parents=True)
    with pytest.raises(UserError, match="cannot read it"):
        tinyshakespeare.load(refusing)


@pytest.mark.skipif(not DATA, reason="NANOEULER_DATA, a folder with tinyshakespeare.txt, is not set")
def test_the_text_as_published(refusing, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("NANOEULER_DATA", str(DATA))
    text, _ = tinyshakespeare.load(refusing)
    assert len(text) == 1_115_394
    assert len(set(text)) == 65
    assert text.startswith("First Citizen:\n")
