"""The compiled executor: a kernel as native code of the CPU, a generator per CUDA thread, block after block.

Numba keeps what it compiled on disk, under a hash of all that went into it, so that another process starts at once.
"""

import ast
import functools
import hashlib
import itertools
import os
import re
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import njit
from numba.core import config
from numba.core.errors import NumbaError
from numba.core.types import Type

import nanoeuler
from nanoeuler.files import replace_file
from nanoeuler.simt import faults, float16
from nanoeuler.simt.faults import Fault, KernelFaults, Party, UnsupportedError
from nanoeuler.simt.launch import Launch, coordinates, turns
from nanoeuler.simt.native import kept
from nanoeuler.simt.rewrite import HELPERS, Function, Place, Program, rewrite
from nanoeuler.simt.scheduler import (
    ABSENT_SOURCE,
    DIVERGED,
    DONE,
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
from nanoeuler.simt.source import python_function

# The two forms of a launch. A thread's hidden arguments are `dims`, int32: threadIdx, blockIdx, blockDim, gridDim (x, y
# and z of each) and its number in the block; and `memory`, addresses of its static shared memory, of its dynamic shared
# memory and how many bytes that has, of its local memory, and of its slot for exchanges.
LAUNCH = '''"""Launches {name} on the CPU. Written by nanoeuler.simt; safe to delete."""


def launch(grid, threads, sizes, shared, local, work, turns, blocks, where, scheduler{parameters}):
    gx, gy = grid[0], grid[1]
    bx, by, bz = threads
    count = bx * by * bz
    static, dynamic, private = sizes
    base, own = shared.ctypes.data, local.ctypes.data
    slot = work.ctypes.data
{start}
    for number in blocks:
        where[0] = number
        place = (int32(number % gx), int32(number // gx % gy), int32(number // (gx * gy)))
        fill_bytes(base, static + dynamic, 255)
        fill_bytes(own, private * count, 255)
{threads}
    return 0
'''
THREAD = """(int32({t} % bx), int32({t} // bx % by), int32({t} // (bx * by)), place[0], place[1], place[2],
                int32(bx), int32(by), int32(bz), int32(gx), int32(gy), int32(grid[2]), int32({t})),
                (base, base + static, dynamic, own + {t} * private, slot + {t} * 32){parameters}"""
PLAIN = """        for members in turns:
            for thread in members:
                if thread >= 0:
                    where[1] = thread
                    kernel({thread})"""
START = """    place = (int32(0), int32(0), int32(0))
    first = kernel({first})
    size = state_size(first)
    states = empty(count * size, uint8)
    function = next_address(first)"""
GENERATORS = """        for thread in range(count):
            keep(states.ctypes.data + thread * size, kernel({thread}))
        block = function, states.ctypes.data, size, slot, turns.ctypes.data, count, where.ctypes.data
        ended = schedule(scheduler, block)
        if ended:
            return ended"""


def run_compiled(kernel: Any, launch: Launch, args: tuple) -> None:
    """Run a kernel as native code; arrays in ``args`` are changed in place.

    Raises:
        KernelFaults: an index is out of bounds, a barrier or warp operation is not met by all, or the kernel raises.
        UnsupportedError: the kernel, or its types, cannot be compiled.
    """
    function = python_function(kernel)
    program, run = _compiled(function)
    threads = launch.block_threads
    static = -(-program.shared_bytes // 256) * 256
    private = -(-program.local_bytes // 16) * 16
    work = np.zeros(WORK * threads, np.int64)
    where = np.zeros(2, np.int64)
    given = tuple(_argument(a) for a in args)
    try:
        ended = run(
            launch.grid,
            launch.block,
            (static, launch.shared_bytes, private),
            _aligned(static + launch.shared_bytes),
            _aligned(private * threads),
            work,
            turns_of_warps(threads, launch.order, launch.seed),
            np.array(turns(launch.blocks, launch.order, np.random.default_rng(launch.seed)), np.int64),
            where,
            run_block.address,
            *given,
        )
    except NumbaError as error:
        raise UnsupportedError(_compile_message(function, given, error)) from error
    except IndexError as error:
        raise KernelFaults([_raised(function, launch, where, faults.OUT_OF_BOUNDS, _BOUNDS)]) from error
    except (ValueError, AssertionError, ArithmeticError, RuntimeError) as error:
        raise KernelFaults([_raised(function, launch, where, faults.RAISED, f"{error!r}")]) from error
    if ended:
        raise KernelFaults([_fault(function, program.places, launch, int(ended), work, where)])


_BOUNDS = 'an index is outside its array; executor="checked" tells which, and the line'


def _argument(value: Any) -> Any:
    """Return an argument as Numba takes it: subclasses of ndarray as plain arrays on the same memory."""
    return np.asarray(value) if isinstance(value, np.ndarray) and type(value) is not np.ndarray else value


def _aligned(size: int) -> np.ndarray:
    """Return ``size`` bytes that start at a multiple of 256."""
    raw = np.empty(size + 512, np.uint8)
    start = -raw.ctypes.data % 256
    return raw[start : start + max(size, 16)]


# Compiling ----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=512)
def _compiled(function: FunctionType) -> tuple[Program, Callable]:
    """Return a kernel's program and the function that launches it; Numba compiles it for each new set of types."""
    float16.install()
    program = rewrite(function)
    count = len(program.kernel.tree.args.args) - 2
    parameters = "".join(f", argument_{position}" for position in range(count))
    thread = functools.partial(THREAD.format, parameters=parameters)
    text = LAUNCH.format(
        name=function.__name__,
        parameters=parameters,
        start=START.format(first=thread(t="0")) if program.is_generator else "",
        threads=(GENERATORS if program.is_generator else PLAIN).format(thread=thread(t="thread")),
    )
    scope = _launch_scope(text, _fingerprint(program, text))
    scope["kernel"] = _jit(program.kernel, {})
    decorate = kept(njit, error_model="numpy") if scope["cached"] else njit(error_model="numpy")
    return program, decorate(scope["launch"])


def _jit(function: Function, made: dict[int, Any]) -> Any:
    """Return the Numba function of a rewritten function and, first, of those that it calls."""
    if id(function) in made:
        return made[id(function)]
    scope = {**function.namespace, "__name__": __name__}
    module = ast.Module([function.tree], [])
    exec(compile(module, function.file, "exec"), scope)
    made[id(function)] = jitted = njit(error_model="numpy", boundscheck=True)(scope[function.tree.name])
    scope.update({name: _jit(device, made) for name, device in function.devices.items()})
    return jitted


def _launch_scope(text: str, fingerprint: str | None) -> dict[str, Any]:
    """Return the namespace in which ``launch`` is defined: that of a file in the cache, where one can be written."""
    from nanoeuler.simt import native

    scope = {name: getattr(native, name) for name in ("fill_bytes", "keep", "next_address", "schedule", "state_size")}
    scope |= {"int32": np.int32, "uint8": np.uint8, "empty": np.empty}
    scope |= {"cached": False, "__name__": __name__}  # a module that another process can import, for Numba's cache
    if fingerprint is not None:
        path = cache_folder() / f"launch_{fingerprint}.py"
        try:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, text.encode())
            scope["cached"] = True
            exec(compile(text, str(path), "exec"), scope)
            return scope
        except OSError:  # no home, or a disk that is full or read-only: this process compiles for itself
            scope["cached"] = False
    exec(compile(text, "<nanoeuler.simt launch>", "exec"), scope)
    return scope


def cache_folder() -> Path:
    """Return where compiled kernels are kept: NUMBA_CACHE_DIR, else the user's cache folder. Safe to delete."""
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR) / "nanoeuler-simt"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "nanoeuler" / "simt"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nanoeuler" / "simt"


@functools.lru_cache(maxsize=1)
def _own_text() -> bytes:
    """Return the text of what machine code is made by."""
    parts = ["names", "source", "rewrite", "native", "numeric", "atomics", "scheduler", "compiled", "float16"]
    parts += ["mathematics", "signatures", "libdevice", "primitives", "special", "half"]
    return b"".join(Path(__file__).with_name(f"{part}.py").read_bytes() for part in parts)


def _fingerprint(program: Program, text: str) -> str | None:
    """Return a hash of everything that the machine code depends on but the types; None where a value has no text."""
    digest = hashlib.sha256(_own_text() + text.encode() + nanoeuler.__version__.encode() + sys.version.encode())
    stack, seen = [program.kernel], set()
    while stack:
        function = stack.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        digest.update(ast.dump(function.tree).encode() + function.file.encode())
        stack += function.devices.values()
        digest.update(repr(sorted(function.devices)).encode())
        for name, value in sorted(function.namespace.items()):
            described = "" if name in HELPERS else _described(value, function.tree, name)
            if described is None:
                return None
            digest.update(f"{name}={described};".encode())
    return digest.hexdigest()[:32]


def _described(value: Any, tree: ast.FunctionDef, name: str) -> str | None:
    """Return a text that is the same only for values that compile to the same code; None where there is none."""
    if isinstance(value, ModuleType):
        if value.__name__ in ("math", "numpy", "operator", "cmath", "numba"):
            return value.__name__
        used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and _root(n) == name}
        return None if used else value.__name__
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.strides}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, tuple):
        parts = [_described(v, tree, name) for v in value]
        return None if None in parts else f"{type(value).__qualname__}({parts})"
    if isinstance(value, bool | int | float | complex | str | bytes | np.generic | np.dtype | Type | Enum | type(None)):
        return f"{type(value).__qualname__}:{value!r}"
    if isinstance(value, type | BuiltinFunctionType | np.ufunc):
        return f"{getattr(value, '__module__', '')}.{value.__name__}"
    return None


def _root(node: ast.expr) -> str | None:
    """Return the first name of a dotted name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _compile_message(function: FunctionType, given: tuple, error: Exception) -> str:
    """Return what Numba found wrong and on which line of the user's, without its advice and its own frames."""
    kinds = ", ".join(f"{a.dtype}[{a.ndim}-D]" if isinstance(a, np.ndarray) else type(a).__name__ for a in given)
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    own = str(Path(__file__).parent)
    places = [(f, n) for f, n in re.findall(r"During: typing of .* at (.+?) \((\d+)\)", text) if not f.startswith(own)]
    places = [(f, n) for f, n in places if not Path(f).name.startswith("launch_")]
    file, line = places[0] if places else (function.__code__.co_filename, function.__code__.co_firstlineno)
    specific = re.findall(r"TypingError: (?!Failed in)(.+)", text)
    lines = [part.strip() for part in text.splitlines() if part.strip() and not part.startswith("Failed in nopython")]
    lines = list(itertools.takewhile(lambda part: not part.startswith("File "), lines))
    wrong = specific[0] if specific else "\n  ".join(lines[:6])
    return f"{file}:{line}: kernel {function.__name__} cannot be compiled for ({kinds}):\n  {wrong}"


# Faults -------------------------------------------------------------------------------------------------------------


def _raised(function: FunctionType, launch: Launch, where: np.ndarray, kind: str, message: str) -> Fault:
    """Return the fault of a thread that stopped with an exception; its line is not known in native code."""
    party = _party(launch, int(where[0]), int(where[1]), None, "stopped")
    return Fault(kind, message, function.__name__, function.__code__.co_filename, (party,))


def _party(launch: Launch, block: int, thread: int, line: int | None, action: str) -> Party:
    """Return a thread by its numbers."""
    return Party(coordinates(block, launch.grid), coordinates(thread, launch.block), line, action)


def _fault(
    function: FunctionType, places: list[Place], launch: Launch, ended: int, work: np.ndarray, where: np.ndarray
) -> Fault:
    """Return the fault with which a block ended, from what its threads were waiting for."""
    block, thread = int(where[0]), int(where[1])
    if ended == RAISED:
        return _raised(function, launch, where, faults.OUT_OF_BOUNDS, _BOUNDS)
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
