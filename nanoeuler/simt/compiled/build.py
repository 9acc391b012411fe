"""A kernel's program made into native code: the function that launches it, and what Numba compiles with it."""

import ast
import functools
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit

from nanoeuler.files import replace_file
from nanoeuler.simt.compiled import cache, generators
from nanoeuler.simt.compiled.rewrite import HELPERS, Function, Program, rewrite
from nanoeuler.simt.compiled.scheduler import INTERRUPTED
from nanoeuler.simt.source import ON_EMULATION, read

# The two forms of a launch. A thread's hidden arguments are `dims`, int32: threadIdx, blockIdx, blockDim, gridDim (x, y
# and z of each) and its number in the block; and `memory`, addresses of its static shared memory, of its dynamic shared
# memory and how many bytes that has, of its local memory, and of its slot for exchanges.
LAUNCH = '''"""Launches {name} on the CPU. Written by nanoeuler.simt; safe to delete."""


def launch(grid, threads, sizes, shared, local, work, turns, order, blocks, where, scheduler, signals{parameters}):
    first_block, step = order
    gx, gy = grid[0], grid[1]
    bx, by, bz = threads
    count = bx * by * bz
    static, dynamic, private = sizes
    base, own = shared.ctypes.data, local.ctypes.data
    slot = work.ctypes.data
{start}
    for position in range(gx * gy * grid[2]):
        number = blocks[position] if blocks.size else first_block + position * step
        where[0] = number
        if interrupted(signals):
            return {interrupted}
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


@dataclass
class Built:
    """A kernel's program, and Numba's function that launches it."""

    program: Program
    run: Any
    ready: set[tuple] = field(default_factory=set)  # for which arguments it has been compiled


@functools.lru_cache(maxsize=512)
def build(function: FunctionType) -> Built:
    """Return a kernel's program and the function that launches it; Numba compiles it for each new set of types."""
    program = rewrite(function)
    count = len(program.kernel.tree.args.args) - 2
    parameters = "".join(f", argument_{position}" for position in range(count))
    thread = functools.partial(THREAD.format, parameters=parameters)
    text = LAUNCH.format(
        name=function.__name__,
        interrupted=INTERRUPTED,
        parameters=parameters,
        start=START.format(first=thread(t="0")) if program.is_generator else "",
        threads=(GENERATORS if program.is_generator else PLAIN).format(thread=thread(t="thread")),
    )
    recursive = any(source.recursive for source in read(function).everything())  # crashes from a cache: numba #6061
    scope = _launch_scope(text, None if recursive else cache.fingerprint(program, text, HELPERS))
    scope["kernel"] = _jit(program.kernel, {})
    decorate = cache.kept(njit, error_model="numpy") if scope["cached"] else njit(error_model="numpy")
    return Built(program, decorate(scope["launch"]))


def uncached(run: Any) -> Any:
    """Return a function that launches as ``run`` does, compiled with no look at the disk."""
    return njit(error_model="numpy")(run.py_func)


ON_EMULATION.append(build.cache_clear)


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
    scope = {
        name: getattr(generators, name)
        for name in ("fill_bytes", "interrupted", "keep", "next_address", "schedule", "state_size")
    }
    scope |= {"int32": np.int32, "uint8": np.uint8, "empty": np.empty}
    scope |= {"cached": False, "__name__": __name__}  # a module that another process can import, for Numba's cache
    if fingerprint is not None:
        path = cache.folder() / f"launch_{fingerprint}.py"
        try:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, text.encode())
                cache.prune()
            elif path.read_text(encoding="utf-8") != text:
                replace_file(path, text.encode())
            scope["cached"] = True
            exec(compile(text, str(path), "exec"), scope)
            return scope
        except (OSError, ValueError):  # no home, or a disk that is full or read-only: this process compiles for itself
            scope["cached"] = False
    exec(compile(text, "<nanoeuler.simt launch>", "exec"), scope)
    return scope
