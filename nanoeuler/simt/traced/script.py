"""Traces launches that a script makes: one of each kernel, the others run compiled.

The script runs as for ``python -m nanoeuler.simt check`` (:mod:`nanoeuler.simt.check`), with the stand-in for
``numba.cuda`` in place.
"""

import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any

from nanoeuler.errors import UserError, nearest
from nanoeuler.simt.check import run_script
from nanoeuler.simt.checked.execute import collect_faults
from nanoeuler.simt.cuda.dispatch import Dispatcher, Runner, run_compiled
from nanoeuler.simt.faults import Fault, KernelFaults, UnsupportedError
from nanoeuler.simt.launch import Launch
from nanoeuler.simt.traced.part import without_breakpoints
from nanoeuler.simt.watch import CannotRunError

Take = Callable[[Dispatcher, Launch, tuple, Callable[[], None]], None]


class Tracing:
    """Takes the launches of a script. ``take`` is given a launch that is to be traced, and what runs it otherwise."""

    def __init__(self, kernel: str | None, number: int, take: Take) -> None:
        self.kernel, self.number, self.take = kernel, number, take
        self.launches: Counter[str] = Counter()
        self.by_code: Counter[Any] = Counter()
        self.made: list[Dispatcher] = []
        self.taken = 0
        self.faults: list[Fault] = []  # of launches that ran otherwise
        self.lock = RLock()

    def launch(self, kernel: Dispatcher, launch: Launch, args: tuple) -> None:
        """Run one launch. Launches from several threads of the script take turns."""
        with self.lock:
            name, code = kernel.py_func.__name__, kernel.py_func.__code__
            self.launches[name] += 1
            self.by_code[code] += 1
            count = self.launches[name] if self.kernel else self.by_code[code]
            if self.kernel in (None, name) and count == self.number:
                self._take(kernel, launch, args)
            else:
                self._run(kernel, launch, args)

    def _take(self, kernel: Dispatcher, launch: Launch, args: tuple) -> None:
        """Hand a launch on to be traced. What is wrong ends the script, and is not the script's error."""
        self.taken += 1
        try:
            self.take(kernel, launch, args, functools.partial(self._run, kernel, launch, args))
        except UnsupportedError:
            raise
        except UserError as error:
            raise CannotRunError(str(error)) from error

    def _run(self, kernel: Dispatcher, launch: Launch, args: tuple) -> None:
        """Run a launch compiled, or watched where it cannot be; its faults do not end the script.

        A breakpoint stops in the launches that are traced only.
        """
        try:
            run_compiled(kernel, launch, args)
        except KernelFaults as found:
            self.faults += found.faults
        except UnsupportedError:
            with without_breakpoints():
                self.faults += collect_faults(kernel, launch, args)

    def told(self) -> str:
        """Return how often each kernel was launched: "add 3 times, double once"."""
        return ", ".join(f"{name} {'once' if n == 1 else f'{n:,} times'}" for name, n in self.launches.items())

    def nothing(self) -> UserError:
        """Return what to say where no launch was traced."""
        if self.kernel is None or not self.launches:
            names = ", ".join(dict.fromkeys(k.__name__ for k in self.made if not k.is_device))
            if self.launches:
                most = max(self.by_code.values())
                return UserError(f"no kernel was launched {self.number} times: at most {most} (--launch)")
            return UserError(f"no kernel was launched{f' ({names})' if names else ''}: nothing to trace")
        if self.kernel in self.launches:
            times = self.launches[self.kernel]
            return UserError(f"--launch {self.number}: {self.kernel} was launched {times} time{'s' * (times > 1)}")
        return UserError(
            f"--kernel: no '{self.kernel}' was launched{nearest(self.kernel, self.launches)}; "
            f"launched were {', '.join(self.launches)}"
        )


def trace_script(path: Path, arguments: list[str], tracing: Tracing) -> int:
    """Run a script and trace; return its exit code, or 1 if it did well but one of the other launches has a fault.

    Raises:
        UserError: nothing was traced, or something cannot be followed.
    """
    code = run_script(path, arguments, Runner(tracing.launch, tracing.made.append))
    if not tracing.taken and not code:
        raise tracing.nothing()
    return code or int(bool(tracing.faults))
