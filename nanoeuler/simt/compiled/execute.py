"""The compiled executor: a kernel as native code of the CPU, a generator per CUDA thread, block after block."""

import ctypes
import itertools
import pickle
import re
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaError

from nanoeuler.simt import faults
from nanoeuler.simt.compiled.build import Built, build, uncached
from nanoeuler.simt.compiled.conversions import gpu_conversions
from nanoeuler.simt.compiled.rewrite import ENDLESS, Place
from nanoeuler.simt.compiled.scheduler import (
    ABSENT_SOURCE,
    DIVERGED,
    DONE,
    INTERRUPTED,
    KIND_BITS,
    KIND_MASK,
    MISSING,
    RAISED,
    SLOT,
    STUCK,
    SYNCWARP,
    WAITING,
    WORK,
    run_block,
    turns_of_warps,
)
from nanoeuler.simt.faults import Fault, KernelFaults, Party, UnsupportedError
from nanoeuler.simt.launch import Launch, coordinates, turns
from nanoeuler.simt.limits import check_shared_memory
from nanoeuler.simt.source import python_function


def run_compiled(kernel: Any, launch: Launch, args: tuple) -> None:
    """Run a kernel as native code; arrays in ``args`` are changed in place.

    Raises:
        KernelFaults: an index is out of bounds, a barrier or warp operation is not met by all, or the kernel raises.
        UnsupportedError: the kernel, or its types, cannot be compiled.
        UserError: a block needs more shared memory than a GPU has.
    """
    function = python_function(kernel)
    built = build(function)
    program = built.program
    check_shared_memory(function.__name__, program.shared_bytes, launch.shared_bytes)
    threads = launch.block_threads
    static = -(-program.shared_bytes // 256) * 256
    private = -(-program.local_bytes // 16) * 16
    work = np.zeros(WORK * threads, np.int64)
    where = np.zeros(3, np.int64)  # block, thread, exception
    everything = (
        *(launch.grid, launch.block, (static, launch.shared_bytes, private)),
        *(_aligned(static + launch.shared_bytes), _aligned(private * threads), work),
        turns_of_warps(threads, launch.order, launch.seed),
        *_block_order(launch),
        *(where, run_block.address, SIGNALS),
        *(_argument(a) for a in args),
    )
    _compile(function, built, everything, args)
    try:
        ended = built.run(*everything)
    except (IndexError, ValueError, AssertionError, ArithmeticError, RuntimeError) as error:
        raise KernelFaults([_raised(function, launch, where, error, _line(error, function))]) from error
    if ended == INTERRUPTED:
        raise KeyboardInterrupt
    if ended:
        raise KernelFaults([_fault(function, program.places, launch, int(ended), work, where)])


def _block_order(launch: Launch) -> tuple[tuple[int, int], np.ndarray]:
    """Return the number of the first block and the step to the next; or, in random order, all numbers."""
    if launch.order == "random":
        return (0, 1), np.array(turns(launch.blocks, "random", np.random.default_rng(launch.seed)), np.int64)
    return ((0, 1) if launch.order == "forward" else (launch.blocks - 1, -1)), np.empty(0, np.int64)


def _compile(function: FunctionType, built: Built, everything: tuple, args: tuple) -> None:
    """Compile a launch for the types of what it is given, unless that has been done."""
    key = tuple(_key(value) for value in args)
    if key in built.ready:
        return
    for value in args:
        if isinstance(value, np.float16):
            raise UnsupportedError("a float16 number as an argument: give it as np.float32, or in an array")
    try:
        kinds = tuple(built.run.typeof_pyval(value) for value in everything)
        with global_compiler_lock, gpu_conversions():
            try:
                built.run.compile(kinds)
            except NumbaError:
                raise
            except Exception:  # what is kept on disk is cut off or foreign, or the disk is full: compile without it
                built.run = uncached(built.run)
                built.run.compile(kinds)
    except Exception as error:  # Numba's own errors are of many kinds, failed assertions among them
        raise UnsupportedError(_compile_message(function, args, error)) from error
    built.ready.add(key)


def _key(value: Any) -> Any:
    """Return what is the same for arguments of the same type, quicker than Numba finds the type."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        layout = flags.c_contiguous, flags.f_contiguous, flags.aligned, flags.writeable
        return value.dtype, value.ndim, layout
    return tuple(_key(v) for v in value) if type(value) is tuple else _kind(value)


def _kind(value: Any) -> Any:
    """Return the type of a number: a record has its dtype, and a Python integer may be too large for int64."""
    if isinstance(value, np.void):
        return value.dtype
    return (type(value), -(2**63) <= value < 2**63) if type(value) is int else type(value)


SIGNALS = ctypes.cast(ctypes.pythonapi.PyErr_CheckSignals, ctypes.c_void_p).value or 0  # runs Python's signal handlers
_BOUNDS = 'an index is outside its array; executor="checked" tells which, and the line'


def _argument(value: Any) -> Any:
    """Return an argument as Numba takes it: subclasses of ndarray as plain arrays on the same memory."""
    return np.asarray(value) if isinstance(value, np.ndarray) and type(value) is not np.ndarray else value


def _aligned(size: int) -> np.ndarray:
    """Return ``size`` bytes that start at a multiple of 256."""
    raw = np.empty(size + 512, np.uint8)
    start = -raw.ctypes.data % 256
    return raw[start : start + max(size, 16)]


def _compile_message(function: FunctionType, given: tuple, error: Exception) -> str:
    """Return what Numba found wrong and on which line of the user's, without its advice and its own frames."""
    kinds = ", ".join(f"{a.dtype}[{a.ndim}-D]" if isinstance(a, np.ndarray) else type(a).__name__ for a in given)
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)) or type(error).__name__
    own = str(Path(__file__).parent)
    places = [(f, n) for f, n in re.findall(r"During: typing of .* at (.+?) \((\d+)\)", text) if not f.startswith(own)]
    places = [(f, n) for f, n in places if not Path(f).name.startswith("launch_")]
    file, line = places[0] if places else (function.__code__.co_filename, function.__code__.co_firstlineno)
    specific = re.findall(r"TypingError: (?!Failed in)(.+)", text)
    lines = [part.strip() for part in text.splitlines() if part.strip() and not part.startswith("Failed in nopython")]
    if "readonly" in text:
        return f"{file}:{line}: kernel {function.__name__} writes to an array that is read-only: give a writable copy"
    lines = list(itertools.takewhile(lambda part: not part.startswith("File "), lines))
    wrong = specific[0] if specific else "\n  ".join(lines[:6])
    return f"{file}:{line}: kernel {function.__name__} cannot be compiled for ({kinds}):\n  {wrong}"


# Faults -------------------------------------------------------------------------------------------------------------


def _raised(function: FunctionType, launch: Launch, where: np.ndarray, error: BaseException, line: int | None) -> Fault:
    """Return the fault of a thread that stopped with an exception; native code does not know a bad index's line."""
    kind, message = faults.RAISED, f"{type(error).__name__}: {error}"
    if isinstance(error, IndexError):
        kind, message = faults.OUT_OF_BOUNDS, _BOUNDS
    elif str(error).startswith(ENDLESS):
        kind, message = faults.DEADLOCK, f"{error} times"
    party = _party(launch, int(where[0]), int(where[1]), line, "stopped")
    return Fault(kind, message, function.__name__, function.__code__.co_filename, (party,))


def _line(error: BaseException, function: FunctionType) -> int | None:
    """Return the line of the kernel on which an exception was raised, where Numba tells."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == function.__code__.co_filename:
            line = trace.tb_lineno if trace.tb_frame.f_code.co_name == function.__name__ else line
        trace = trace.tb_next
    return line


def _recorded(address: int) -> tuple[BaseException, int | None]:
    """Return the exception, and its line, of Numba's record: pickled class, arguments and place (its callconv.py)."""
    size = ctypes.c_int32.from_address(address + 8).value
    data = ctypes.string_at(ctypes.c_void_p.from_address(address).value or 0, size)
    try:
        kind, arguments, *place = pickle.loads(data)
    except Exception:  # arguments that were worked out in the kernel are kept otherwise
        return RuntimeError("an exception with arguments of its own"), None
    return kind(*(arguments or ())), place[0][2] if place and place[0] else None


def _party(launch: Launch, block: int, thread: int, line: int | None, action: str) -> Party:
    """Return a thread by its numbers."""
    return Party(coordinates(block, launch.grid), coordinates(thread, launch.block), line, action)


def _fault(
    function: FunctionType, places: list[Place], launch: Launch, ended: int, work: np.ndarray, where: np.ndarray
) -> Fault:
    """Return the fault with which a block ended, from what its threads were waiting for."""
    block, thread = int(where[0]), int(where[1])
    if ended == RAISED:
        return _raised(function, launch, where, *_recorded(int(where[2])))
    codes, status = work.reshape(WORK, -1)[SLOT:]
    waiting = [t for t, state in enumerate(status) if state == WAITING]
    at = {t: places[int(codes[t]) >> KIND_BITS] for t in waiting}
    if ended == ABSENT_SOURCE:
        place = places[int(codes[thread]) >> KIND_BITS]
        message = f"cuda.{place.operation} reads from a lane that takes no part in it"
        party = _party(launch, block, thread, place.line, f"waits at cuda.{place.operation}")
        return Fault(faults.MISSING_LANES, message, function.__name__, place.file, (party,))
    if ended == STUCK:
        message = "threads of the block wait in a loop for something that none of them does"
        party = _party(launch, block, thread, None, "waits in a loop")
        return Fault(faults.DEADLOCK, message, function.__name__, function.__code__.co_filename, (party,))
    first = waiting[0]
    if ended == MISSING:  # those at a barrier do wait in vain, but for those at a warp operation
        first = next(t for t in waiting if codes[t] & KIND_MASK >= SYNCWARP)
    others = [t for t in waiting if at[t] != at[first]][:1]
    parties = tuple(_party(launch, block, t, at[t].line, f"waits at cuda.{at[t].operation}") for t in (first, *others))
    kind = faults.BARRIER_DIVERGENCE if ended == DIVERGED else faults.MISSING_LANES
    message = (
        f"{len(waiting)} of {launch.block_threads} threads wait, in {len(set(at.values()))} different places, "
        f"and {int((status == DONE).sum())} have returned"
    )
    return Fault(kind, message, function.__name__, at[first].file, parties)
