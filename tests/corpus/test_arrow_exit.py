"""What is done at exit: scans are closed, and threads that Python did not start are waited for.

That processes end well all in all is seen in test_hub.py.
"""

import _thread
import atexit
import threading
from collections.abc import Iterator

import pytest

from nanoeuler.corpus import arrow_exit


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have less patience, as pytest-xdist has a thread of that sort, and nothing to do when the tests end."""
    monkeypatch.setattr(arrow_exit, "PATIENCE", 2.0)
    yield
    atexit.unregister(arrow_exit._close)


def test_threads_of_others_are_waited_for() -> None:
    begun, done = threading.Event(), []

    def work() -> None:
        begun.set()
        threading.Event().wait(0.3)
        done.append(True)

    _thread.start_new_thread(work, ())
    begun.wait()
    arrow_exit._close()
    assert done


def test_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_exit, "PATIENCE", 0.05)
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        over.wait()

    _thread.start_new_thread(work, ())
    begun.wait()
    arrow_exit._close()
    assert not over.is_set()
    over.set()


def test_streams_are_closed() -> None:
    closed = []

    def numbers(fails: bool) -> Iterator[int]:
        try:
            yield 1
        finally:
            closed.append(fails)
            if fails:
                raise OSError("the network has gone")

    streams = [arrow_exit.closed_at_exit(numbers(fails)) for fails in (True, False)]
    assert [next(stream) for stream in streams] == [1, 1]
    arrow_exit._close()
    assert sorted(closed) == [False, True]
