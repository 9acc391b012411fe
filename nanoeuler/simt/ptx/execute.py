"""A launch from beginning to end: compile, place memory, run the blocks, copy the results back."""

from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.simt.arguments import bound
from nanoeuler.simt.launch import Launch, turns
from nanoeuler.simt.limits import check_shared_memory
from nanoeuler.simt.ptx import instructions  # noqa: F401 (importing them registers the handlers)
from nanoeuler.simt.ptx.arguments import HostArray, copy_back, flat, global_memory, parameter_bytes
from nanoeuler.simt.ptx.compile import compile_kernel
from nanoeuler.simt.ptx.decode import Decoder
from nanoeuler.simt.ptx.machine import Machine
from nanoeuler.simt.ptx.memory import POISON, Allocation, Memory
from nanoeuler.simt.ptx.parse import merged, parse
from nanoeuler.simt.ptx.program import Program, flatten
from nanoeuler.simt.ptx.schedule import STEP_LIMIT, Block, Scheduler
from nanoeuler.simt.ptx.special import special_value
from nanoeuler.simt.toolchain import make_dispatcher, require_toolkit

LANE_BUDGET = 1 << 15  # lanes that run together at most (one block at least): more would leave the processor's caches
MEMORY_BUDGET = 1 << 28  # bytes of registers, shared and local memory of the blocks that run together


@dataclass(frozen=True)
class Loaded:
    """A PTX kernel, parsed and decoded."""

    program: Program
    blocks: list[Block]


@lru_cache(maxsize=256)
def load(*texts: str) -> Loaded:
    """Return the kernel of the first of PTX ``texts``, linked with the others, ready to run.

    Raises:
        UnsupportedError: an instruction that the executor does not know; its message names it and its line.
    """
    program = flatten(merged([parse(text) for text in texts]))
    return Loaded(program, Decoder(program).decode())


def run_ptx(kernel: Any, launch: Launch, args: tuple[Any, ...], *, step_limit: int = STEP_LIMIT) -> None:
    """Run ``kernel`` as the PTX that numba-cuda makes of it; NumPy arrays in ``args`` are changed in place.

    ``kernel`` is the plain function or its ``@cuda.jit`` dispatcher, whose options ``fastmath``, ``opt`` and ``link``
    count. Lanes that are at the same instruction run it together; ``launch.order`` is that in which their stores and
    atomics take effect, and that of the groups of blocks (some 32768 threads each) that run one after the other.
    ``step_limit`` is the number of instructions (of all lanes together) after which a kernel is taken to be endless.

    Raises:
        UserError: numba-cuda or the compiler libraries are missing, or the arguments do not fit.
        UnsupportedError: numba-cuda cannot compile the kernel, or it has an instruction that the executor does not
            know.
        KernelFaults: an access out of bounds, misaligned, or of memory never written; a barrier or warp operation that
            some threads miss; a kernel that does not end.
    """
    require_toolkit()
    dispatcher = make_dispatcher(kernel)
    function = dispatcher.py_func
    args = bound(function, args)
    texts = compile_kernel(dispatcher, args)
    named = zip(signature(function).parameters, args, strict=True)
    items = [item for name, value in named for item in flat(name, value)]
    _run(load(*texts), function.__name__, launch, items, step_limit)


def run_text(text: str, launch: Launch, args: tuple[Any, ...], *, step_limit: int = STEP_LIMIT) -> None:
    """Run the kernel of PTX ``text``: each of its parameters takes one of ``args``, an array (its address) or a number.

    Raises:
        UserError: there is not one argument for each parameter.
        UnsupportedError: an instruction that the executor does not know.
        KernelFaults: as ``run_ptx``.
    """
    loaded = load(text)
    items: list[HostArray | tuple[str, Any]] = []
    name, parameters = loaded.program.name, loaded.program.parameters
    if len(args) != len(parameters):
        raise UserError(f"PTX kernel {name} has {len(parameters)} parameters, and was given {len(args)} arguments")
    for parameter, value in zip(parameters, args, strict=True):
        is_array = isinstance(value, np.ndarray)
        items.append(HostArray(parameter.name, value, bare=True) if is_array else (parameter.name, value))
    _run(loaded, name, launch, items, step_limit)


def _run(loaded: Loaded, name: str, launch: Launch, items: list[HostArray | tuple[str, Any]], step_limit: int) -> None:
    program = loaded.program
    check_shared_memory(name, static_shared_bytes(program), launch.shared_bytes)
    arrays = [item for item in items if isinstance(item, HostArray)]
    memory = global_memory(arrays, program)
    parameters = parameter_bytes(program, items)
    per_group = blocks_together(program, launch)
    groups = -(-launch.blocks // per_group)
    for group in turns(groups, launch.order, np.random.default_rng(launch.seed)):
        first = group * per_group
        count = min(per_group, launch.blocks - first)
        with np.errstate(all="ignore"):  # a GPU has no exceptions of arithmetic
            machine = machine_for(program, name, launch, (first, count), memory, parameters)
            Scheduler(machine, loaded.blocks, step_limit).run()
    copy_back(memory, arrays)


def static_shared_bytes(program: Program) -> int:
    """Return the bytes of the shared arrays whose size is in the source."""
    return sum(end - start for start, end, _ in program.shared.places)


def blocks_together(program: Program, launch: Launch) -> int:
    """Return how many blocks run at once: as many as the budgets of lanes and memory allow, one at least."""
    lane_bytes = 2 * (program.local.size + 16) + sum(dtype.itemsize for dtype in program.registers)
    block_bytes = 2 * (program.dynamic_shared + launch.shared_bytes) + lane_bytes * launch.block_threads
    return max(1, min(LANE_BUDGET // launch.block_threads, MEMORY_BUDGET // block_bytes, launch.blocks))


def machine_for(
    program: Program, name: str, launch: Launch, blocks: tuple[int, int], memory: Memory, parameters: bytes
) -> Machine:
    """Return the state in which ``blocks`` (the first, how many) begin."""
    machine = Machine(
        name,
        launch,
        first_block=blocks[0],
        blocks=blocks[1],
        registers=[np.zeros(1, dtype) for dtype in program.registers],
        parameters=parameters,
        spaces={"global": memory},
        shared_bytes=static_shared_bytes(program) + launch.shared_bytes,
    )
    dynamic = (program.dynamic_shared, program.dynamic_shared + launch.shared_bytes, "dynamic shared memory")
    shared = [*program.shared.places, dynamic]
    machine.spaces["shared"] = private_memory("shared", shared, machine.blocks, machine.block)
    machine.spaces["local"] = private_memory("local", program.local.places, machine.n, np.arange(machine.n))
    for special, register in program.specials.items():
        machine.registers[register.index] = special_value(machine, special)
    return machine


def private_memory(space: str, places: list[tuple[int, int, str]], copies: int, owner: Any) -> Memory:
    """Return ``copies`` of a space, one after the other; ``owner`` is each lane's."""
    stride = -(-max((end for _, end, _ in places), default=0) // 128) * 128 if places else 0
    allocations = [Allocation(start, end, start, name) for start, end, name in places if end > start]
    data = np.full(copies * stride, POISON, np.uint8)
    return Memory(space, allocations, data, np.zeros(copies * stride, np.uint8), owner.astype(np.int64) * stride)
