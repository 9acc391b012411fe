import io
import sys
import time
from pathlib import Path

import pytest
import requests

from nanoeuler.download import cache_folder, fetch, sha256_of
from nanoeuler.errors import UserError

pytestmark = pytest.mark.usefixtures("empty_world")

CONTENT = b"First Citizen:\n" * 20_000


def test_a_good_file_arrives_whole(serve, tmp_path):
    path = tmp_path / "new" / "folder" / "text.txt"
    fetch(serve(CONTENT), path, sha256_of(CONTENT))
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("misbehaviour", "said"),
    [
        ({"content": CONTENT[:-1] + b"!"}, f"another file than expected.*{sha256_of(CONTENT)}"),
        ({"content": b""}, "another file than expected"),
        ({"content": CONTENT, "sent": 100_000}, "100000"),
        ({"content": CONTENT, "sent": 0}, "0 bytes read"),
        ({"content": b"no such page", "status": 404}, "answered 404"),
        ({"content": b"out of order", "status": 500}, "answered 500"),
        ({"content": CONTENT, "sent": 100_000, "stall": True}, "not here after 0.5 seconds|timed out"),
    ],
)
def test_a_server_that_fails_leaves_the_old_file_and_no_half_one(serve, tmp_path, misbehaviour, said):
    path = tmp_path / "cache" / "text.txt"
    path.parent.mkdir()
    path.write_bytes(b"old")
    url = serve(**misbehaviour)
    with pytest.raises(UserError, match=said) as error:
        fetch(url, path, sha256_of(CONTENT), patience=0.5 if misbehaviour.get("stall") else 20)
    assert url in str(error.value)
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_nobody_there(refusing, tmp_path):
    with pytest.raises(UserError, match=r"refused|10061"):
        fetch(refusing, tmp_path / "text.txt", sha256_of(CONTENT))
    assert not (tmp_path / "text.txt").exists()


def test_patience_covers_what_no_socket_timeout_does(monkeypatch, tmp_path):
    monkeypatch.setattr(requests, "get", lambda *_, **__: time.sleep(3))  # as a name look-up without an answer does
    with pytest.raises(UserError, match=r"not here after 0.2 seconds"):
        fetch("http://127.0.0.1/", tmp_path / "text.txt", sha256_of(CONTENT), patience=0.2)


def test_a_cache_that_cannot_be_written(serve, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write"):
        fetch(serve(CONTENT), tmp_path / "file" / "text.txt", sha256_of(CONTENT))


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_for_terminals(serve, tmp_path, monkeypatch, terminal):
    class Stderr(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Stderr())
    fetch(serve(CONTENT), tmp_path / "text.txt", sha256_of(CONTENT))
    assert ("text.txt" in sys.stderr.getvalue()) == terminal


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "given/nanoeuler"),
        ("linux", None, "home/.cache/nanoeuler"),
        ("darwin", None, "home/Library/Caches/nanoeuler"),
        ("win32", "LOCALAPPDATA", "given/nanoeuler"),
        ("win32", None, "home/AppData/Local/nanoeuler"),
    ],
)
def test_the_cache_is_where_each_system_has_it(monkeypatch, platform, variable, expected):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("home"))
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "given")
    assert cache_folder() == Path(expected)
