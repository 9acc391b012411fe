"""Progress: kept across processes, by several at once, and never in the way of a lesson."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nanoeuler.lessons import progress


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "deep" / "progress.json"
    monkeypatch.setenv("NANOEULER_PROGRESS", str(path))
    return path


def test_what_is_done_is_remembered_by_lesson(file: Path) -> None:
    assert progress.done(1) == set()
    assert progress.guessed(1, "How many?") is None
    assert not file.exists()  # looking makes no file
    assert progress.mark(1, "add") is None
    assert progress.mark(1, "scale") is None
    assert progress.mark(2, "add") is None
    assert progress.keep_guess(1, "How many?", 32) is None
    assert progress.keep_guess(1, "Which?", ("a", "tuple")) is None
    assert (progress.done(1), progress.done(2)) == ({"add", "scale"}, {"add"})
    assert (progress.guessed(1, "How many?"), progress.guessed(1, "Which?")) == (32, "('a', 'tuple')")
    assert progress.forget(1) is None
    assert (progress.done(1), progress.done(2), progress.guessed(1, "How many?")) == (set(), {"add"}, None)
    assert progress.forget(7) is None


def test_the_first_time_counts(file: Path) -> None:
    progress.mark(1, "add")
    before = file.read_bytes()
    progress.mark(1, "add")
    assert file.read_bytes() == before


def test_the_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NANOEULER_PROGRESS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert progress.place() == tmp_path / "nanoeuler" / "lessons.json"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert progress.place() == Path.home() / ".local" / "state" / "nanoeuler" / "lessons.json"


def test_there_may_be_no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("NANOEULER_PROGRESS", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert progress.mark(1, "add") is None
    assert progress.done(1) == {"add"}
    assert tmp_path in progress.place().parents


def test_whoever_finds_the_damage_says_so(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.parent.mkdir()
    file.write_text("{")
    assert progress.done(1) == set()
    assert "your progress was damaged, and begins anew" in capsys.readouterr().err
    assert progress.mark(1, "add") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"1": 3}', b'{"1": {"done": [1]}}', b"\xff\xfe"])
def test_a_damaged_file_steps_aside_with_a_word(content: bytes, file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    word = progress.mark(1, "add")
    assert word is not None
    assert "begins anew" in word
    assert progress.done(1) == {"add"}
    assert file.with_name("progress.json.damaged").read_bytes() == content


def test_where_nothing_can_be_written_a_word_is_all(file: Path) -> None:
    file.parent.write_text("a file in the place of the folder")
    word = progress.mark(1, "add")
    assert word is not None
    assert str(file) in word or str(file.parent) in word
    assert progress.done(1) == set()


MARKS = """
import sys
from nanoeuler.lessons import progress
for n in range(20):
    word = progress.mark(int(sys.argv[1]), f"exercise{n}")
    assert word is None, word
"""


def test_two_notebooks_at_once_lose_nothing(file: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", MARKS, str(n)], env=dict(os.environ)) for n in (1, 2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert len(progress.done(1)) == len(progress.done(2)) == 20
    assert set(json.loads(file.read_text())) == {"1", "2"}
