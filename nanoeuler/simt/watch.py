"""What ``check`` makes of launches: each goes to an executor, new faults are printed, everything is counted."""

import argparse
import atexit
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, RLock, Thread
from typing import Any

from nanoeuler.console import format_duration, is_terminal, plural, visible
from nanoeuler.errors import UserError
from nanoeuler.simt.checked.execute import collect_faults
from nanoeuler.simt.cuda.arguments import written
from nanoeuler.simt.cuda.dispatch import Dispatcher, run_compiled
from nanoeuler.simt.cuda.install import genuine, genuine_function
from nanoeuler.simt.faults import FLOAT64, Fault, KernelFaults, UnsupportedError
from nanoeuler.simt.launch import Launch
from nanoeuler.simt.source import read
from nanoeuler.simt.toolchain import INSTALL

PATIENCE = 3.0  # seconds after which a launch shows that it is at work


class CannotRunError(UserError):
    """The executor that was asked for cannot run: a package is missing, or the arguments are none that it takes."""


class Watch:
    """Takes the launches of a script, prints each new fault, and counts."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.kernels: list[Dispatcher] = []
        self.faults: dict[tuple, Fault] = {}
        self.refused: list[UnsupportedError] = []
        self.launches: Counter[Callable] = Counter()
        self.shapes: Counter[tuple] = Counter()
        self.threads = self.unwatched = 0
        self.started = time.monotonic()
        self.lock = RLock()
        self.partial = False  # the script did not come to its end
        self.process = os.getpid()
        self.word = Path(tempfile.mkstemp(prefix="simt-check-")[1])
        atexit.register(self.word.unlink, missing_ok=True)
        self.out = sys.stdout  # the script may have another for a while

    def show(self, text: str) -> None:
        """Print a text, at once, with escapes for what the terminal cannot show."""
        encoding = self.out.encoding or "utf-8"
        print(visible(text).encode(encoding, "backslashreplace").decode(encoding), file=self.out, flush=True)

    def launch(self, kernel: Dispatcher, launch: Launch, args: tuple) -> None:
        """Run one launch, and print what is new. Launches from several threads of the script take turns."""
        with self.lock:
            self.launches[kernel.py_func] += 1
            self.threads += launch.blocks * launch.block_threads
            launch = replace(launch, order=self.options.order, seed=self.options.seed)
            with _progress(kernel.__name__, launch) as block_done:
                self._elsewhere("launch")
                for fault in self._execute(kernel, launch, args, Listener(block_done, self.note)):
                    self.note(fault)

    def _execute(self, kernel: Dispatcher, launch: Launch, args: tuple, listener: "Listener") -> list[Fault]:
        """Run a launch: watched, but for one that was watched often enough, where it can be compiled."""
        shape = kernel.py_func.__code__, launch.grid, launch.block, tuple(_shape(a) for a in args)
        self.shapes[shape] += 1
        if self.options.executor == "checked" and self.shapes[shape] > self.options.limit:
            try:
                found = EXECUTORS["compiled"](kernel, launch, args, listener)
            except UnsupportedError:
                self.shapes[shape] = -sys.maxsize  # it is watched from now on
            else:
                self.unwatched += 1
                return found
        try:
            return EXECUTORS[self.options.executor](kernel, launch, args, listener)
        except UnsupportedError as error:
            self.refused.append(error)
            raise

    def note(self, fault: Fault) -> None:
        """Print a fault unless it has been printed, or is allowed. One without a line may be any of its kind."""
        key = fault.kernel, fault.kind, fault.file, fault.line
        known = key in self.faults or (fault.line is None and any(k[:2] == key[:2] for k in self.faults))
        if not known and not (fault.kind == FLOAT64 and self.options.allow_float64):
            self.faults[key] = fault
            self._elsewhere("fault")
            self.show(f"{fault}\n")

    def _elsewhere(self, what: str) -> None:
        """In a process that the script forked, leave word for the one that counts."""
        if os.getpid() != self.process:
            with self.word.open("a") as file:
                file.write(f"{what}\n")

    def elsewhere(self) -> Counter[str]:
        """Return how many launches and faults there were in processes that the script forked."""
        return Counter(self.word.read_text().split())

    def summary(self) -> str:
        """Return the last words: what ran, and what was found."""
        idle = self._idle()
        kinds = Counter(fault.kind for fault in self.faults.values())
        lines = [
            f"{plural(len(self.launches) + len(idle), 'kernel')} found, {len(self.launches)} launched: "
            f"{plural(sum(self.launches.values()), 'launch')}, {plural(self.threads, 'thread')}, "
            f"{self.options.executor} executor, {format_duration(time.monotonic() - self.started)}"
        ]
        elsewhere = self.elsewhere()
        if elsewhere:
            told = f"{plural(elsewhere['launch'], 'launch')}, {plural(elsewhere['fault'], 'fault')}"
            lines.append(f"in processes that the script started: {told}")
        elif not self.launches:
            lines.append(
                f"no kernel was launched ({', '.join(idle)}): call it in the file, for example under "
                'if __name__ == "__main__"'
                if idle
                else "nothing in the file is decorated with @cuda.jit"
            )
        elif idle:
            lines.append(f"never launched: {', '.join(idle)}")
        if self.unwatched:
            lines.append(
                f"{plural(self.unwatched, 'launch')} ran unwatched: of one kernel with the same shapes the first "
                f"{self.options.limit} are watched (--limit all: every one)"
            )
        told = ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items()))
        if self.launches:
            nothing = "no fault found" + (", as far as it ran" if self.refused or self.partial else "")
            if self.options.executor != "checked":
                nothing += f"; the {self.options.executor} executor does not look for races"
            lines.append(f"{plural(len(self.faults), 'fault')}: {told}" if kinds else nothing)
        return "\n".join(lines)

    def _idle(self) -> list[str]:
        """Return the names of the script's kernels that no launch came to."""
        run = self._reached()
        own = [k for k in self.kernels if not k.is_device and not k.py_func.__module__.startswith("nanoeuler.simt.")]
        return list(dict.fromkeys(kernel.__name__ for kernel in own if kernel.py_func not in run))

    def _reached(self) -> set[Callable]:
        """Return the functions that ran: launched, or called by what was."""
        run: set[Callable] = set(self.launches)
        for function in self.launches:
            try:
                run.update(source.function for source in read(function).everything())
            except UnsupportedError:
                continue
        return run


def _shape(value: Any) -> Any:
    """Return what makes two arguments alike: an array's shape and dtype."""
    return (value.shape, value.dtype.str) if hasattr(value, "dtype") else type(value)


def _ptx(kernel: Dispatcher, launch: Launch, args: tuple) -> None:
    """Run the PTX that numba-cuda itself makes of the kernel, with its own names in place of the stand-in's."""
    try:
        with genuine() as cuda:
            from nanoeuler.simt.ptx import run_ptx

            options = {name: kernel.targetoptions[name] for name in ("fastmath", "opt") if name in kernel.targetoptions}
            run_ptx(cuda.jit(**options)(genuine_function(kernel.py_func)), launch, args)
    except (UnsupportedError, KernelFaults):
        raise
    except UserError as error:
        raise CannotRunError(str(error)) from error
    except ImportError as error:
        raise CannotRunError(f"--executor ptx needs numba-cuda ({error}): {INSTALL}") from error
    finally:
        written(list(args))


@dataclass(frozen=True)
class Listener:
    """Hears of each block that is done and of each fault at once, from an executor that can tell."""

    block_done: Callable[[], None]
    fault_found: Callable[[Fault], None]


Execute = Callable[[Dispatcher, Launch, tuple, Listener], list[Fault]]


def _watched(kernel: Dispatcher, launch: Launch, args: tuple, listener: Listener) -> list[Fault]:
    """Run a launch with every access watched."""
    return collect_faults(kernel, launch, args, block_done=listener.block_done, fault_found=listener.fault_found)


def _unwatched(run: Callable) -> Execute:
    """Return an executor that gives its faults, as the checked one does, where ``run`` raises them."""

    def execute(kernel: Dispatcher, launch: Launch, args: tuple, listener: Listener) -> list[Fault]:
        try:
            run(kernel, launch, args)
        except KernelFaults as found:
            return list(found.faults)
        return []

    return execute


EXECUTORS: dict[str, Execute] = {
    "checked": _watched,
    "compiled": _unwatched(run_compiled),
    "ptx": _unwatched(_ptx),
}


@contextmanager
def _progress(kernel: str, launch: Launch) -> Iterator[Callable[[], None]]:
    """Show on a terminal, after a few seconds, which kernel is running, and how far it is: what is given counts."""
    blocks = itertools.count(1)
    reached = [0]

    def block_done() -> None:
        reached[0] = next(blocks)

    if not is_terminal(sys.stderr):
        yield block_done
        return
    done, started = Event(), time.monotonic()
    what = f"{kernel}: {plural(launch.blocks, 'block')} of {plural(launch.block_threads, 'thread')}"

    def show() -> None:
        wait = PATIENCE
        while not done.wait(wait):
            seconds = time.monotonic() - started
            left = ""
            if reached[0]:
                remaining = seconds / reached[0] * (launch.blocks - reached[0])
                left = f", {reached[0]:,} done, {format_duration(remaining)} left"
            print(f"\r{what}, {format_duration(seconds)}{left} \x1b[K", end="", file=sys.stderr, flush=True)
            wait = 0.5

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield block_done
    finally:
        done.set()
        thread.join()
        if time.monotonic() - started > PATIENCE:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
