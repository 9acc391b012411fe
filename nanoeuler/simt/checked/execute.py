"""The checked executor: runs a kernel with every access watched, and collects what is wrong with it.

The kernel's source becomes Python (``translate``) whose numbers are those of ``scalars``, whose arrays are the views of
``memory`` and whose threads are those of ``block``. ``races`` knows which access comes before which.
"""

import ast
import inspect
import sys
from bdb import BdbQuit
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.simt import faults, names
from nanoeuler.simt.checked import debugger, memory, scalars
from nanoeuler.simt.checked.block import KERNEL, Block, Body
from nanoeuler.simt.checked.races import Monitor, Place, Stopped
from nanoeuler.simt.checked.scalars import UntypedError
from nanoeuler.simt.checked.translate import by_site, translate
from nanoeuler.simt.checked.variables import casts
from nanoeuler.simt.faults import Fault, KernelFaults, UnsupportedError
from nanoeuler.simt.launch import Launch, turns
from nanoeuler.simt.source import Source, meaning, read, refuse_results


def run_checked(kernel: Any, launch: Launch, args: tuple, *, limit: int = 10) -> None:
    """Run a kernel with every access watched. Arrays in ``args`` (any shape and dtype) are changed in place.

    A race, an uninitialised read, an access outside an array and a float64 are noted, and the kernel goes on: such a
    read gives NaN or 0, such a write is dropped. A barrier or warp operation that cannot be passed ends the launch.

    The result of an operation is a float64 fault where none of its operands is meant to be float64: ``x * 0.1``,
    ``1 / n``, ``n * x`` for an integer and a float32. Elements of float64 arrays and casts by name are meant to be; a
    number among ``args`` only where an array among them is float64 or complex128.

    A variable has one type from where branches meet that give it several, as in Numba, and so have the ways through a
    conditional expression and a function's results; what becomes float64 by that is a fault where it is first used. The
    types are found before the run (``variables``). Where they cannot be, in recursion, and in a device function whose
    calls with different types need different ones, a value keeps the type that it was given.

    Raises:
        KernelFaults: what was found, each kind once per line, ``limit`` at most.
        UnsupportedError: the kernel uses something that cannot be run; arrays are then as they were.
        UserError: the arguments do not fit the kernel's parameters.
    """
    found = collect_faults(kernel, launch, args, limit=limit)
    if found:
        raise KernelFaults(found)


def collect_faults(
    kernel: Any,
    launch: Launch,
    args: tuple,
    *,
    limit: int = 10,
    block_done: Callable[[], None] = lambda: None,
    fault_found: Callable[[Fault], None] = lambda fault: None,
    recorder: Any = None,
) -> list[Fault]:
    """Do what ``run_checked`` does, and return the faults.

    ``block_done`` is called after each block, and ``fault_found`` with each fault as soon as it is found. A
    ``recorder`` (simt/traced/recorder.py) takes down what happens, and says which blocks run.
    """
    source = read(kernel)
    refuse_results(source)
    monitor = _monitor(source, launch, limit, fault_found)
    monitor.recorder = recorder
    given = _arguments(source, args)
    needed = casts(source.function, given.values())
    body = translate(source.function, needed)
    if recorder is not None:
        body = recorder.watching(source, by_site(needed), body)
    arguments = tuple(memory.wrap_arguments(monitor, given).values())
    restore = memory.keep(args)
    try:
        with np.errstate(all="ignore"), scalars.listening(lambda what: _float64(monitor, what)):
            _run(body, source.blocks, monitor, arguments, block_done)
    except Stopped:
        pass
    except (UserError, BdbQuit, KeyboardInterrupt):
        restore()
        raise
    except Exception as error:
        restore()
        file, line = _place(error)
        told = str(error) if isinstance(error, UntypedError) else f"{type(error).__name__}: {error}"
        raise UnsupportedError(f"{file}:{line}: in kernel {source.name}: {told}") from error
    return monitor.found


def _run(body: Body, blocks: bool, monitor: Monitor, arguments: tuple, block_done: Callable[[], None]) -> None:
    launch = monitor.launch
    generator = np.random.default_rng(launch.seed)
    constants: dict[int, memory.View] = {}
    phase = 0
    block = Block if monitor.recorder is None else monitor.recorder.block
    try:
        for number in _block_turns(launch, monitor.recorder, generator):
            phase = block(launch, number, phase, monitor, generator, constants).run(body, arguments, blocks)
            block_done()
    except BdbQuit:
        if not debugger.was_left():
            raise  # another debugger's, around all this
        raise UserError(f"kernel {monitor.kernel} was left at a breakpoint: its arrays are as before it") from None
    finally:
        debugger.leave()
        monitor.settle(shared=False)


def _block_turns(launch: Launch, recorder: Any, generator: np.random.Generator) -> Sequence[int]:
    """Return the blocks that run, in the order of their turns: all, or those that a recorder wants."""
    if recorder is None or recorder.blocks is None:
        return turns(launch.blocks, launch.order, generator)
    wanted = sorted(recorder.blocks)
    return [wanted[n] for n in turns(len(wanted), launch.order, generator)]


def _monitor(source: Source, launch: Launch, limit: int, tell: Callable[[Fault], None]) -> Monitor:
    used = {known.name for s in source.everything() for n in ast.walk(s.tree) if (known := meaning(n))}
    return Monitor(launch, source.name, "syncwarp" in used, bool(used & names.FENCES), limit, tell)


def _arguments(source: Source, args: tuple) -> dict[str, Any]:
    """Return the arguments by the kernel's parameters: arrays, and typed scalars."""
    signature = inspect.signature(source.function)
    try:
        bound = signature.bind(*args)
    except TypeError as error:
        raise UserError(f"{source.file}:{source.tree.lineno}: kernel {source.name}{signature}: {error}") from error
    bound.apply_defaults()
    wide = any(isinstance(v, np.ndarray) and v.dtype in (np.float64, np.complex128) for v in args)
    typed = scalars.scalar if wide else scalars.literal
    return {name: typed(value) for name, value in bound.arguments.items()}


def _float64(monitor: Monitor, what: str) -> None:
    """Report a float64 at the line of the kernel that is being run."""
    frame = sys._getframe(1)
    while frame.f_back is not None and KERNEL not in frame.f_globals:
        frame = frame.f_back
    if frame.f_globals.get(KERNEL):
        monitor.report(faults.FLOAT64, f"{what} is float64", (frame.f_code.co_filename, frame.f_lineno))


def _place(error: BaseException) -> Place:
    """Return the line of the kernel, or device function, in which an exception arose."""
    trace, place = error.__traceback__, ("?", 0)
    while trace is not None:
        if trace.tb_frame.f_globals.get(KERNEL):
            place = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return place
