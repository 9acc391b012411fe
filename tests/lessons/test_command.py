"""``python -m nanoeuler.lessons``: lists, opens, resets; on the small lesson, in a folder of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from lessons.small import LESSON, written

from nanoeuler.errors import UserError
from nanoeuler.lessons import __main__ as command
from nanoeuler.lessons import desk, progress, source
from nanoeuler.lessons.__main__ import TO_COME, main
from nanoeuler.lessons.notebooks import build, desk_notebook
from nanoeuler.lessons.notebooks import written as written_notebook
from nanoeuler.lessons.source import Lesson


@pytest.fixture
def lesson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lesson:
    """Return the small lesson, built, and the only one there is."""
    monkeypatch.setenv("NANOEULER_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "lessons"
    folder.mkdir()
    small = written(folder)
    build([small])
    monkeypatch.setattr(command, "lessons", lambda: source.lessons(folder))
    monkeypatch.setattr(source, "FOLDER", folder)
    original = source.lesson_numbered
    monkeypatch.setattr(source, "lesson_numbered", lambda number: original(number, folder))
    return small


def test_the_list_has_what_is_done_and_what_is_next(lesson: Lesson, capsys: pytest.CaptureFixture[str]) -> None:
    progress.mark(2, "add")
    progress.mark(2, "an exercise of an older version")
    assert main([]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "A small lesson" in line)
    assert [word in row for word in ("2", "5", "1/2", "count")] == [True] * 4
    assert "RoPE, both layouts" in out
    assert "to go on: python -m nanoeuler.lessons open 2" in out
    progress.mark(2, "count")
    main([])
    assert "all done" in capsys.readouterr().out


def test_what_is_to_come_is_the_rest_of_twenty() -> None:
    assert list(TO_COME) == list(range(11, 21))


def test_open_makes_a_copy_once_and_never_overwrites_it(lesson: Lesson, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["open", "2", "--no-browser"]) == 0
    assert capsys.readouterr().out == "lesson 2: lessons/my/02_small.ipynb\n"
    path = desk.copy_of(lesson)
    assert path.read_bytes() == written_notebook(desk_notebook, lesson)
    assert b"../../README.md" in path.read_bytes()  # its links lead from there
    notebook = nbformat.read(path, 4)
    notebook.cells[3].source = "mine"
    nbformat.write(notebook, path)
    before = path.read_bytes()
    main(["open", "2", "--no-browser"])
    assert path.read_bytes() == before
    assert "has changed" not in capsys.readouterr().out
    changed = written(lesson.path.parents[1], LESSON.replace("Some words", "Other words"))
    build([changed])
    main(["open", "2", "--no-browser"])
    assert "this lesson has changed since lessons/my/02_small.ipynb was made: reset 2" in capsys.readouterr().out
    path.write_text("damaged")
    assert main(["open", "2", "--no-browser"]) == 0  # whatever it is, it is the learner's
    assert path.read_text() == "damaged"


def test_open_starts_jupyter(lesson: Lesson, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def call(command: list[str]) -> int:
        started.append(command)
        return 0

    monkeypatch.setattr(subprocess, "call", call)
    assert main(["open", "2"]) == 0
    root = f"--ServerApp.root_dir={lesson.path.parents[2]}"
    assert started == [[sys.executable, "-m", "jupyter", "lab", root, str(desk.copy_of(lesson))]]
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "jupyterlab" else object())
    with pytest.raises(UserError, match=r"takes Jupyter: python -m pip install -e '\.\[lessons\]'"):
        main(["open", "2"])


BARE = """
import sys
sys.modules["nbformat"] = None  # as if it were not installed
from nanoeuler.errors import run_command
from nanoeuler.lessons.__main__ import main
sys.exit(run_command(main))
"""


def test_without_the_extra_the_lessons_are_listed_and_the_rest_says_what_to_install() -> None:
    def bare(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", BARE, *arguments], capture_output=True, text=True, timeout=60)

    assert "to go on: python -m nanoeuler.lessons open" in bare().stdout
    for name in command.COMMANDS:
        done = bare(name, "1")
        assert done.returncode == 2
        assert done.stderr == "error: lessons are notebooks, and that takes Jupyter: " + command.INSTALL + "\n"


def test_reset_keeps_the_old_copy_and_forgets_progress(lesson: Lesson, capsys: pytest.CaptureFixture[str]) -> None:
    main(["open", "2", "--no-browser"])
    desk.copy_of(lesson).write_text("my work")
    progress.mark(2, "add")
    with pytest.raises(UserError, match="--yes says that it is meant"):
        main(["reset", "2"])
    assert progress.done(2) == {"add"}
    assert main(["reset", "2", "--yes"]) == 0
    assert progress.done(2) == set()
    (aside,) = desk.copy_of(lesson).parent.glob("02_small.before-*.ipynb")
    assert aside.read_text() == "my work"
    assert desk.copy_of(lesson).read_bytes() == written_notebook(desk_notebook, lesson)
    assert aside.name in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "forgotten"), [("y", True), ("n", False), ("", False)])
def test_reset_asks(answer: str, forgotten: bool, lesson: Lesson, monkeypatch: pytest.MonkeyPatch) -> None:
    progress.mark(2, "add")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    assert main(["reset", "2"]) == 0
    assert (progress.done(2) == set()) is forgotten


def test_solution_names_the_solved_notebook(lesson: Lesson, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solution", "2"]) == 0
    assert capsys.readouterr().out == "lessons/solved/02_small.ipynb\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["opne", "2"], r"unknown command 'opne' \(did you mean 'open'\?\)"),
        (["open"], "lesson"),
        (["open", "two"], "'two' is no lesson: give its number"),
        (["open", "3"], "there is no lesson 3: they are 2 to 2"),
        (["open", "2", "--nobrowser"], "unknown option '--nobrowser'"),
    ],
)
def test_mistakes_are_told(arguments: list[str], words: str, lesson: Lesson) -> None:
    with pytest.raises(UserError, match=words):
        main(arguments)


def test_a_desk_that_cannot_be_written(lesson: Lesson) -> None:
    desk.copy_of(lesson).parent.write_text("a file in the way")
    with pytest.raises(UserError, match="cannot write"):
        main(["open", "2", "--no-browser"])


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    arguments: Any = ["--help"]
    assert main(arguments) is None
    assert "open 1" in capsys.readouterr().out
