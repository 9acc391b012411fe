"""Which part of a launch is traced: all of a small one, the first block of a large one, or what was asked for."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.simt.launch import WARP_SIZE, Dimensions, Launch, coordinates, launch_shape
from nanoeuler.simt.source import read
from nanoeuler.simt.traced.execute import trace
from nanoeuler.simt.traced.recorder import TooLongError
from nanoeuler.simt.traced.result import Trace

SMALL = 8192  # threads of a launch that is traced whole
FEW = 600_000  # records of one: some seconds
MOST = 2_000_000  # records of any
STEPS = 250_000  # records of what is stepped through in a page
Index = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """What was asked for; None: not said."""

    block: Index | None = None
    warp: int | None = None
    lines: range | None = None

    def has(self, kernel: Any) -> bool:
        """Whether any of the lines are a kernel's, or those of a function in its file that it calls."""
        lines = self.lines
        return lines is None or any(r.start < lines.stop and lines.start < r.stop for r in lines_of(kernel))

    def elsewhere(self, kernels: list[Any]) -> UserError:
        """Return what to say where the lines are none of these kernels'."""
        first, last = (self.lines.start, self.lines.stop - 1) if self.lines else (0, 0)
        told = dict.fromkeys(f"{k.py_func.__name__} is on {_ranges(lines_of(k))}" for k in kernels)
        return UserError(f"--lines {first}-{last}: nothing that runs is there: {'; '.join(told)}")


def lines_of(kernel: Any) -> list[range]:
    """Return the lines that a kernel is on, and those of the functions in its file that it calls.

    Raises:
        UnsupportedError: it has no source that can be followed.
    """
    source = read(kernel)
    return [each.lines for each in source.everything() if each.file == source.file]


def _ranges(lines: list[range]) -> str:
    own, *called = [f"{r.start}-{r.stop - 1}" for r in lines]
    return f"lines {own}" + (f", what it calls on {', '.join(called)}" if called else "")


@dataclass(frozen=True)
class Traced:
    """A launch that was traced: ``part`` says in words what of it, ``steps`` is a part with the variables' values."""

    trace: Trace
    part: str = ""
    steps: Trace | None = None


def trace_part(
    kernel: Any,
    grid: Dimensions,
    block: Dimensions,
    args: tuple,
    part: Part,
    *,
    shared_bytes: int = 0,
    whole: Callable[[], None] | None = None,
) -> Traced:
    """Trace part of a launch.

    Afterwards the arrays are as the whole launch leaves them, where ``whole`` is given: it runs the launch, if not all
    of its blocks have run in the trace. ``breakpoint()`` stops in the trace alone, however often the kernel runs.

    Raises:
        UserError: the part is too large, or there is none such.
    """
    launch = launch_shape(grid, block, shared_bytes)
    kept = [(a, a.copy()) for a in args if isinstance(a, np.ndarray) and a.flags.writeable]
    how: dict[str, Any] = {"warps": part.warp, "shared_bytes": shared_bytes}
    with without_breakpoints(), redirect_stdout(io.StringIO()):  # what a kernel prints is to be read once
        steps = _stepping(lambda **more: trace(kernel, grid, block, args, **how | more), launch, part)
    _restore(kept)
    found = _recorded(lambda **more: trace(kernel, grid, block, args, **how | more), launch, part)
    if whole is not None and len(found.blocks) < launch.blocks:
        _restore(kept)
        with without_breakpoints():
            whole()
    return Traced(found, _words(found, part), steps)


@contextmanager
def without_breakpoints() -> Iterator[None]:
    """Let no ``breakpoint()`` stop, in a run that is another of the same launch, or of one that is not traced."""
    hook, chosen = sys.breakpointhook, os.environ.get("PYTHONBREAKPOINT")
    sys.breakpointhook, os.environ["PYTHONBREAKPOINT"] = sys.__breakpointhook__, "0"
    try:
        yield
    finally:
        sys.breakpointhook = hook
        if chosen is None:
            del os.environ["PYTHONBREAKPOINT"]
        else:
            os.environ["PYTHONBREAKPOINT"] = chosen


def _restore(kept: list[tuple[np.ndarray, np.ndarray]]) -> None:
    for array, before in kept:
        array[...] = before


def _recorded(run: Callable[..., Trace], launch: Launch, part: Part) -> Trace:
    """Return the trace that was asked for; if nothing was, of the whole launch or, if that is long, a block."""
    first = part.block or ((0, 0, 0) if launch.blocks * launch.block_threads > SMALL else None)
    try:
        if first is None and launch.blocks > 1:
            try:
                return run(lines=part.lines, limit=FEW)
            except TooLongError:  # its first block has been watched already: it neither stops nor prints again
                with without_breakpoints(), redirect_stdout(io.StringIO()):
                    return run(lines=part.lines, blocks=(0, 0, 0), limit=MOST)
        return run(lines=part.lines, blocks=first, limit=MOST)
    except TooLongError as error:
        ways = ["--warp 0"] if part.warp is None and launch.block_threads > WARP_SIZE else []
        ways += ["--lines A-B"] if part.lines is None else []
        ways += ["smaller arrays (--shape)"]
        raise UserError(f"{str(error).partition(':')[0]}: take {', '.join(ways)}") from None


def _stepping(run: Callable[..., Trace], launch: Launch, part: Part) -> Trace | None:
    """Return a block with its variables, or one warp of it if the block is long; None if that is long too."""
    block, warps = part.block or (0, 0, 0), launch.block_threads > WARP_SIZE and part.warp is None
    for more in ({}, {"warps": 0}) if warps else ({},):
        try:
            return run(blocks=block, variables=True, limit=STEPS, **more)
        except TooLongError:
            continue
    return None


def _words(trace: Trace, part: Part) -> str:
    """Return which part of its launch a trace shows."""
    launch, said = trace.launch, []
    if len(trace.blocks) < launch.blocks:
        shown = coordinates(trace.blocks[0], launch.grid)
        said.append(f"block {shown} of {launch.blocks:,}")
    elif launch.blocks > 1:
        said.append(f"all {launch.blocks} blocks")
    if part.warp is not None:
        said.append(f"warp {part.warp}")
    if part.lines is not None:
        said.append(f"lines {part.lines.start}-{part.lines.stop - 1}")
    return ", ".join(said) or "its only block"
