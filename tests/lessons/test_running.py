"""What a lesson's cells call: checks with open blanks, guesses, traces of copies, and no GPU where there is none."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba import cuda

from nanoeuler.errors import UserError
from nanoeuler.lessons import progress, running, start
from nanoeuler.lessons.checking import CheckFailed, require
from nanoeuler.lessons.running import Running


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NANOEULER_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setattr(running, "gpu", lambda: False)


def double(function: Any) -> None:
    require(function(2) == 4, f"twice 2 is 4, and not {function(2)}")


@pytest.fixture
def lesson() -> Running:
    double.__module__ = "exercises"
    return Running(3, SimpleNamespace(__name__="exercises", double=double, other=require, np=np))


@cuda.jit
def add(out, x):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + 1


@cuda.jit
def open_kernel(out, x):
    i = ...  # 1: the number of this thread
    out[i] = x[i]


def test_a_right_answer_is_said_and_kept(lesson: Running, capsys: pytest.CaptureFixture[str]) -> None:
    lesson.check("double", lambda x: 2 * x)
    assert capsys.readouterr().out == "double: right.\n"
    assert progress.done(3) == {"double"}


def test_of_a_solved_notebook_nothing_is_kept(lesson: Running) -> None:
    lesson.keep = False
    lesson.check("double", lambda x: 2 * x)
    lesson.predict("How many?", 4)
    assert progress.done(3) == set()
    assert progress.guessed(3, "How many?") is None


def test_a_wrong_answer_is_told_and_not_kept(lesson: Running) -> None:
    with pytest.raises(CheckFailed, match=r"double: not yet\.\ntwice 2 is 4, and not 3"):
        lesson.check("double", lambda x: x + 1)
    assert progress.done(3) == set()


def test_an_open_blank_is_named(lesson: Running) -> None:
    with pytest.raises(CheckFailed, match=r"double: its blank is still open\. Next is 1: the number of this thread"):
        lesson.check("double", open_kernel)
    with pytest.raises(CheckFailed, match="still open"):
        lesson.check("double", ...)


def test_an_unknown_exercise(lesson: Running) -> None:
    with pytest.raises(UserError, match=r"no exercise 'doubel' \(did you mean 'double'\?\)"):
        lesson.check("doubel", 1)
    with pytest.raises(UserError, match="no exercise 'require'"):
        lesson.check("require", 1)


def test_a_message_is_all_that_a_notebook_shows(lesson: Running) -> None:
    with pytest.raises(CheckFailed) as caught:
        lesson.check("double", ...)
    assert caught.value._render_traceback_() == [str(caught.value)]


def test_guesses(lesson: Running, capsys: pytest.CaptureFixture[str]) -> None:
    lesson.predict("How many?", ...)
    assert "Put your guess in the place of ..." in capsys.readouterr().out
    lesson.reveal("How many?", 32)
    assert capsys.readouterr().out == "How many? It is 32. You made no guess.\n"
    lesson.predict("How many?", 4)
    assert capsys.readouterr().out == "How many? Your guess: 4. You will see.\n"
    lesson.reveal("How many?", 32)
    assert capsys.readouterr().out == "How many? It is 32. Your guess: 4.\n"
    lesson.predict("How many?", "B")
    lesson.reveal("How many?", "b")
    assert capsys.readouterr().out.endswith("It is b. Your guess: B. Right.\n")


def test_traces_and_steps_are_of_copies(lesson: Running) -> None:
    x, out = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    trace = lesson.trace(add, 1, 32, (out, x))
    assert (len(trace.accesses), out.any()) == (10, False)
    assert lesson.step(add, 1, 32, (out, x)).trace.kernel == "add"
    assert not out.any()
    for show in (lesson.trace, lesson.step, lesson.time):
        with pytest.raises(CheckFailed, match="open_kernel: its blank is still open"):
            show(open_kernel, 1, 32, (out, x))


def test_lines_are_found_by_their_text(lesson: Running) -> None:
    number = lesson.line(add, "out[i] =x[ i]")
    assert "out[i] = x[i] + 1" in Path(__file__).read_text().splitlines()[number - 1]
    with pytest.raises(UserError, match=r"no line of add has 'tile\[' in it"):
        lesson.line(add, "tile[")
    with pytest.raises(CheckFailed, match="still open"):
        lesson.line(open_kernel, "tile[")


def test_no_time_without_a_gpu(lesson: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert lesson.time(add, 1, 32, (np.zeros(5, np.float32), np.zeros(5, np.float32))) is None
    assert "no GPU here" in capsys.readouterr().out


def test_a_lesson_that_is_not_there() -> None:
    with pytest.raises(UserError, match="there is no lesson 77"):
        start(77)
