"""``breakpoint()`` in a kernel: Python's debugger stops there, in the thread that came to it.

A translated kernel has its own file's lines and its variables by their own names, so that the debugger shows it as
written. ``n`` steps to the thread's next line, over a barrier too: the other threads run meanwhile, and stop at
breakpoints of their own. ``p tile[2, 3]`` shows memory as it is now, without being recorded as an access.
"""

import os
import pdb
import sys
from types import ModuleType
from typing import Any

from nanoeuler.simt import names
from nanoeuler.simt.source import Source

SKIPPED = ["nanoeuler.simt.*", "numpy.*"]  # what `s` does not step into


def stop(thread: Any) -> bool:
    """Say which thread it is, and stop in its frame, the caller's; False where another debugger is to be called.

    ``sys.breakpointhook`` and ``PYTHONBREAKPOINT`` count as they do anywhere (PEP 553), and so does a ``pdb.set_trace``
    that is not Python's: pytest has its own, which gives the terminal back first.
    """
    chosen = os.environ.get("PYTHONBREAKPOINT", "")
    if chosen == "0" and sys.breakpointhook is sys.__breakpointhook__:
        return True
    where = f"block {thread.block.position}, thread {_index(thread, 'threadIdx')}"
    print(f"kernel {thread.block.monitor.kernel}, {where}", file=sys.stderr)
    if chosen or sys.breakpointhook is not sys.__breakpointhook__ or pdb.set_trace.__module__ != "pdb":
        return False
    debugger = Debugger(skip=SKIPPED)
    _opened.append(debugger)
    debugger.set_trace(sys._getframe(1))
    return True


class Debugger(pdb.Pdb):
    """Python's debugger, but that `w` leaves this package's frames out, and `n` goes on at the end of a thread."""

    def get_stack(self, f: Any, t: Any) -> tuple[list[tuple[Any, int]], int]:
        """Return the frames that `w` shows, and which is the current one."""
        stack, current = super().get_stack(f, t)
        shown = [n for n in range(len(stack)) if n == current or not self._ours(stack[n][0])]
        return [stack[n] for n in shown], shown.index(current) if shown else current

    def _ours(self, frame: Any) -> bool:
        return str(frame.f_globals.get("__name__", "")).startswith("nanoeuler.simt")

    def user_exception(self, frame: Any, exc_info: Any) -> None:
        """Stop at an exception, unless it is the end of a thread, which its caller sees."""
        if self.is_skipped_module(frame.f_globals.get("__name__", "")):
            self.set_continue()
        else:
            super().user_exception(frame, exc_info)


def leave() -> None:
    """End the stepping of a debugger that was opened in a kernel, as the launch has ended."""
    _opened.clear()
    tracing = getattr(sys.gettrace(), "__self__", None)
    if isinstance(tracing, Debugger):
        sys.settrace(None)


def was_left() -> bool:
    """Whether somebody has left the debugger that was opened last in a kernel: `q`, or the end of its input."""
    return bool(_opened) and _opened[-1].quitting


_opened: list[Debugger] = []  # in the launch that runs


# What names mean at the prompt --------------------------------------------------------------------------------------


def names_at_the_prompt(source: Source) -> dict[str, Any]:
    """Return the global names of a function, for the globals of its translation."""
    known = {**source.function.__globals__, **source.namespace}
    return {name: Cuda() if _is_cuda(value) else value for name, value in known.items()}


def _is_cuda(value: Any) -> bool:
    return isinstance(value, ModuleType) and names.cuda_name(value) == ""


class Index(tuple):
    """One of CUDA's indices: ``cuda.threadIdx.x``."""

    x = property(lambda self: self[0])
    y = property(lambda self: self[1])
    z = property(lambda self: self[2])


class Cuda:
    """What ``cuda`` is: what the thread that has stopped would be told."""

    def __getattr__(self, name: str) -> Any:
        thread = sys._getframe(1).f_locals.get("__t")
        if name in ("threadIdx", "blockIdx", "blockDim", "gridDim") and thread is not None:
            return _index(thread, name)
        if name in ("grid", "gridsize", "laneid", "warpsize") and thread is not None:
            return getattr(thread, name)
        raise AttributeError(f"cuda.{name} means nothing at this prompt")


def _index(thread: Any, name: str) -> Index:
    return Index(int(getattr(thread, f"{name}_{axis}")) for axis in "xyz")
