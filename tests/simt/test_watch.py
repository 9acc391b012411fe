"""``Watch`` sends launches where they belong and prints each fault once, whatever the terminal can show."""

import argparse
import io
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import numpy as np
import pytest

from nanoeuler.simt import UnsupportedError, cuda, watch
from nanoeuler.simt.cuda.dispatch import Runner, launches_go_to
from nanoeuler.simt.faults import OUT_OF_BOUNDS, RACE, Fault, Party
from nanoeuler.simt.launch import launch_shape
from nanoeuler.simt.watch import Watch


@cuda.jit
def fill(x):
    x[cuda.grid(1)] = 1


def make_watch(executor: str = "checked", limit: int = 2, allow_float64: bool = False) -> Watch:
    """Return what watches launches with the given options."""
    options = argparse.Namespace(executor=executor, order="forward", seed=0, limit=limit, allow_float64=allow_float64)
    return Watch(options)


def executors(monkeypatch: pytest.MonkeyPatch, **replaced: Callable) -> list[str]:
    """Put functions in the place of executors; return a list that gets the name of each that is called."""
    called: list[str] = []

    def named(name: str, function: Callable) -> Callable:
        return lambda *launch: called.append(name) or function(*launch)

    for name, function in replaced.items():
        monkeypatch.setitem(watch.EXECUTORS, name, named(name, function))
    return called


def test_launches_are_watched_up_to_the_limit_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    called = executors(monkeypatch, checked=lambda *launch: [], compiled=lambda *launch: [])
    watching = make_watch(limit=2)
    with launches_go_to(Runner(watching.launch)):
        for _ in range(3):
            fill[1, 4](np.zeros(4))
        fill[1, 4](np.zeros(4, np.float32))
        fill[2, 2](np.zeros(4))
    assert called == ["checked", "checked", "compiled", "checked", "checked"]
    assert "1 launch ran unwatched" in watching.summary()


def test_what_cannot_be_compiled_goes_on_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*launch: object) -> list[Fault]:
        raise UnsupportedError("it cannot")

    called = executors(monkeypatch, checked=lambda *launch: [], compiled=refuse)
    watching = make_watch(limit=1)
    with launches_go_to(Runner(watching.launch)):
        for _ in range(4):
            fill[1, 4](np.zeros(4))
    assert called == ["checked", "compiled", "checked", "checked", "checked"]
    assert watching.refused == []
    assert "unwatched" not in watching.summary()


def test_a_fault_without_a_line_is_one_that_is_known(capsys: pytest.CaptureFixture) -> None:
    watching = make_watch()
    place = Party((0, 0, 0), (1, 0, 0), 7, "reads")
    known = Fault(OUT_OF_BOUNDS, "too far", "fill", "kernels.py", (place,))
    watching.note(known)
    watching.note(known)
    watching.note(Fault(OUT_OF_BOUNDS, "somewhere", "fill", "kernels.py", (Party((0, 0, 0), (1, 0, 0), None),)))
    watching.note(Fault(RACE, "another kind", "fill", "kernels.py"))
    assert list(watching.faults.values()) == [known, Fault(RACE, "another kind", "fill", "kernels.py")]
    assert capsys.readouterr().out.count("in kernel") == 2


def test_a_terminal_that_lacks_a_letter_gets_an_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(output, "ascii"))
    make_watch().show("π \x1b[31m")
    assert output.getvalue() == rb"\u03c0 \x1b[31m" + b"\n"


def test_a_launch_that_takes_long_says_so_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    @cuda.jit
    def slow(x):
        for _ in range(20000):
            x[cuda.blockIdx.x] += 1

    monkeypatch.setattr(watch, "is_terminal", lambda file: True)
    monkeypatch.setattr(watch, "PATIENCE", 0.0)
    with launches_go_to(Runner(make_watch().launch)):
        slow[20, 1](np.zeros(20))
    told = capsys.readouterr().err
    assert re.match(r"\rslow: 20 blocks of 1 thread, [\d.]+ s ", told)
    assert re.search(r", \d+ done, [\d.]+ s left ", told)


def test_launches_of_a_scripts_threads_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads launch at once: each launch ends before the next begins, and all are counted."""
    running: list[int] = []
    most: list[int] = []

    def execute(*launch: object) -> list[Fault]:
        running.append(1)
        sleep(0.001)
        most.append(len(running))
        running.pop()
        return []

    executors(monkeypatch, checked=execute)
    watching = make_watch(limit=99)
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(watching.launch, fill, launch_shape(1, 4), (np.zeros(4),)) for _ in range(20)]
    assert [task.result() for task in done] == [None] * 20
    assert set(most) == {1}
    assert watching.threads == 80
