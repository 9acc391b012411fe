"""Processes that work for this one, so that all cores do.

Each is a fresh Python with a pipe to this process and a thread here at its end: an item goes out, its answer comes in.
It does not import the script that this process runs, as those of :mod:`multiprocessing` do, so that a script needs no
guard against that and a notebook is as good as a script; and it is no copy of this process, whose threads' locks would
be in whatever state they are. A pipe tells at either end that the other is gone: a process that was killed is an error
here, and those whose parent was killed end by themselves.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import nanoeuler
from nanoeuler.errors import UserError

Answer = TypeVar("Answer")


class Workers(Generic[Answer]):
    """Worker processes that call one function; used as a ``with`` block around them."""

    def __init__(self, count: int, function: Callable[..., Answer], *first: Any) -> None:
        """Start them.

        Args:
            count: how many.
            function: of a module, by whose name the processes find it.
            first: its first arguments, the same for every item.
        """
        self._first = first
        self._processes = [_start(function) for _ in range(count)]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(count, "worker")

    def __enter__(self) -> "Workers[Answer]":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()  # it has nothing to lose; a thread that waits for its answer sees the pipe end
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.communicate()  # closes the pipes and waits

    def submit(self, item: Any) -> "Future[Answer]":
        """Have the function called with an item by whichever process is free first.

        The future raises a :class:`UserError` where the function raised one or the process has died.
        """
        return self._threads.submit(self._ask, item)

    def _ask(self, item: Any) -> Answer:
        process = self._idle.get()  # there are as many threads as processes: one is idle
        assert process.stdin
        assert process.stdout
        try:
            pickle.dump((*self._first, item), process.stdin, pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            answer: Answer | UserError = pickle.load(process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            raise UserError(_why_ended(process)) from None
        finally:
            self._idle.put(process)
        if isinstance(answer, UserError):
            raise answer
        return answer


def _why_ended(process: subprocess.Popen[bytes]) -> str:
    code = process.wait(5)
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    memory = ", which mostly means that memory ran out" if code == -getattr(signal, "SIGKILL", 0) else ""
    return f"a worker process has ended, {how}{memory}; run again, with fewer --workers if it was memory"


def _start(function: Callable[..., Any]) -> subprocess.Popen[bytes]:
    """Start a process that answers with a function; Ctrl-C is not for it."""
    path = os.pathsep.join(filter(None, [str(Path(nanoeuler.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    code = f"from nanoeuler.workers import serve; serve({function.__module__!r}, {function.__name__!r})"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,
    )


def serve(module: str, name: str) -> None:
    """Be such a process: answer what comes in, until nothing comes any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    items, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # answers alone go out there
    function = getattr(import_module(module), name)
    while True:
        try:
            arguments = pickle.load(items)
        except (EOFError, pickle.UnpicklingError):  # the other end is gone, perhaps in the middle of an item
            return
        try:
            answer = function(*arguments)
        except UserError as error:
            answer = error
        try:
            pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
        except BrokenPipeError:
            os._exit(1)  # at a clean end Python would try to flush once more
