"""What a lesson's cells call: checks, predictions, traces, times."""

import atexit
import functools
import importlib
import inspect
import statistics
import sys
import time
from contextlib import ExitStack
from typing import Any

import numpy as np

from nanoeuler import simt
from nanoeuler.console import plural
from nanoeuler.errors import UserError, nearest
from nanoeuler.lessons import checking, progress, versions
from nanoeuler.lessons.blanks import open_blanks
from nanoeuler.lessons.checking import CheckFailed
from nanoeuler.lessons.explain import explain_errors

MOST = 200  # launches at most that are timed
SECONDS = 0.5  # and for how long, about

_stand_in = ExitStack()  # open from the first lesson on, in this process
atexit.register(_stand_in.close)  # before the interpreter takes things apart


@functools.cache
def gpu() -> bool:
    """Whether kernels are launched on a GPU here."""
    from nanoeuler.device import why_no_gpu

    return why_no_gpu() is None


def begin(number: int, keep: bool = True) -> "Running":
    """Begin a lesson; :func:`nanoeuler.lessons.start` is the public name."""
    try:
        exercises = importlib.import_module(f"nanoeuler.lessons.checks.lesson_{number:02}")
    except ModuleNotFoundError:
        raise UserError(f"there is no lesson {number}") from None
    if not gpu() and not _stand_in_is_there():
        from nanoeuler.simt.cuda.install import installed

        _stand_in.enter_context(installed())
    explain_errors()
    where = "on the GPU" if gpu() else "on the CPU, by nanoeuler.simt: there is no GPU here, and none is needed"
    print(f"Lesson {number}. Kernels run {where}.")
    if words := versions.advice(versions.differing()):
        print(words)
    return Running(number, exercises, keep)


def _stand_in_is_there() -> bool:
    return getattr(sys.modules.get("numba.cuda"), "__name__", "") == "nanoeuler.simt.cuda"


class Running:
    """A lesson that is being worked on."""

    def __init__(self, number: int, exercises: Any, keep: bool = True) -> None:
        self.number, self.keep = number, keep
        self._exercises = {
            name: function
            for name, function in inspect.getmembers(exercises, inspect.isfunction)
            if function.__module__ == exercises.__name__ and not name.startswith("_")
        }

    def __repr__(self) -> str:
        return f"<Lesson {self.number}>"

    def check(self, name: str, thing: Any) -> None:
        """Check an exercise; say what is right, or raise with what is not.

        Args:
            name: of the exercise.
            thing: the learner's function, kernel or value.

        Raises:
            CheckFailed: blanks are open, or the work is not right yet.
            UserError: there is no exercise of that name.
        """
        if name not in self._exercises:
            raise UserError(f"lesson {self.number} has no exercise '{name}'{nearest(name, self._exercises)}")
        self._require_filled(name, thing)
        tally = checking.tally = checking.Tally()
        try:
            self._exercises[name](thing)
        except CheckFailed as error:
            raise CheckFailed(f"{name}: not yet.\n{error}") from None
        print(f"{name}: right.{_told(tally)}")
        if self.keep and (note := progress.mark(self.number, name)):
            print(note)

    def _require_filled(self, name: str, thing: Any) -> None:
        blanks = open_blanks(thing)
        if not blanks:
            return
        count = "its blank is" if len(blanks) == 1 else f"{len(blanks)} blanks are"
        following = f" Next is {blanks[0]}" if blanks[0] else ""
        raise CheckFailed(
            f"{name}: {count} still open.{following}\n"
            "Write your answer in the place of ..., run that cell, then this one."
        )

    # Predictions

    def predict(self, question: str, guess: Any) -> None:
        """Keep a guess until the answer is known; without one, say that it is time for it."""
        if guess is ...:
            print(
                f"{question}\nPut your guess in the place of ... and run this cell again: a wrong one teaches as much."
            )
            return
        if self.keep:
            progress.keep_guess(self.number, question, guess)
        print(f"{question} Your guess: {guess}. You will see.")

    def reveal(self, question: str, answer: Any) -> None:
        """Say the answer to a question that was asked, beside the guess."""
        guess = progress.guessed(self.number, question)
        beside = "You made no guess." if guess is None else f"Your guess: {guess}."
        right = guess is not None and str(guess).strip().lower() == str(answer).strip().lower()
        print(f"{question} It is {answer}. {beside}{' Right.' if right else ''}")

    # Kernels

    def trace(self, kernel: Any, grid: Any, block: Any, args: tuple, **how: Any) -> "simt.Trace":
        """Return what a kernel does, thread by thread: :func:`nanoeuler.simt.trace`, with copies of the arrays.

        Raises:
            CheckFailed: the kernel has open blanks.
            UserError: as ``simt.trace``.
        """
        self._require_filled(_name(kernel), kernel)
        return simt.trace(kernel, grid, block, _copies(args), **how)

    def step(self, kernel: Any, grid: Any, block: Any, args: tuple, **how: Any) -> "simt.Stepper":
        """Return a kernel to step through: :func:`nanoeuler.simt.step`, with copies of the arrays.

        Raises:
            CheckFailed: the kernel has open blanks.
            UserError: as ``simt.step``.
        """
        self._require_filled(_name(kernel), kernel)
        return simt.step(kernel, grid, block, _copies(args), **how)

    def line(self, kernel: Any, text: str) -> int:
        """Return the number of the first line of a kernel's source that contains ``text``, spaces aside.

        Raises:
            UserError: no line does.
        """
        lines, first = inspect.getsourcelines(getattr(kernel, "py_func", kernel))
        for n, line in enumerate(lines):
            if text.replace(" ", "") in line.replace(" ", ""):
                return first + n
        self._require_filled(_name(kernel), kernel)
        raise UserError(f"no line of {_name(kernel)} has '{text}' in it: this picture is of that line")

    def time(self, kernel: Any, grid: Any, block: Any, args: tuple) -> float | None:
        """Return the median time of a launch on the GPU, in seconds; None, and a word, where there is no GPU.

        Arrays are copied to the GPU beforehand; what is timed is the launch until its end, by CUDA's events.
        """
        self._require_filled(_name(kernel), kernel)
        if not gpu():
            print(f"{_name(kernel)}: no GPU here, so no time is measured; on one, this line has it.")
            return None
        seconds = _timed(kernel[grid, block], args)
        print(f"{_name(kernel)}: {seconds * 1e6:,.1f} µs, the median of launches on {_card()}.")
        return seconds


def _name(kernel: Any) -> str:
    return getattr(kernel, "__name__", None) or type(kernel).__name__


def _copies(args: tuple) -> tuple:
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)


def _told(tally: checking.Tally) -> str:
    """Return what a check has tried, in words."""
    if not tally.labels:
        return ""
    shapes = "; ".join(dict.fromkeys(tally.labels))
    orders = f", each in {plural(tally.orders, 'order')} of the threads" if tally.orders > 1 else ""
    return f"\nTried: {shapes}{orders}{', and on the GPU' if tally.on_gpu else ''}. No race, no index outside an array."


def _timed(launch: Any, args: tuple) -> float:
    """Return the median seconds of a launch on the GPU."""
    from numba import cuda

    on_gpu = tuple(cuda.to_device(a) if isinstance(a, np.ndarray) else a for a in args)
    launch(*on_gpu)  # compiles
    cuda.synchronize()
    times: list[float] = []
    end = time.monotonic() + SECONDS
    while len(times) < MOST and (len(times) < 5 or time.monotonic() < end):
        before, after = cuda.event(), cuda.event()
        before.record()
        launch(*on_gpu)
        after.record()
        after.synchronize()
        times.append(cuda.event_elapsed_time(before, after) / 1e3)
    return statistics.median(times)


def _card() -> str:
    from numba import cuda

    name = cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)
