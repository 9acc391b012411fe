"""Loads, stores and addresses: ``ld``, ``st``, ``cvta``, ``isspacep``, ``prefetch``; and the checks of every access."""

from collections.abc import Callable, Iterator

import numpy as np

from nanoeuler.simt.faults import MISALIGNED, OUT_OF_BOUNDS, UNINITIALISED
from nanoeuler.simt.ptx.decode import Decoder, fitted, opcode
from nanoeuler.simt.ptx.kinds import DTYPES, Array, Fetch, Step
from nanoeuler.simt.ptx.machine import Lanes, Machine
from nanoeuler.simt.ptx.memory import IN_FLIGHT, LOCAL_WINDOW, SHARED_WINDOW, Allocation, Memory
from nanoeuler.simt.ptx.parse import split_operands
from nanoeuler.simt.ptx.program import Instruction, Register

SPACES = ("global", "shared", "local", "const", "param")
WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "global": 0, "const": 0, "param": 0}
VECTORS = {"v2": 2, "v4": 4, "v8": 8}
# How memory is cached or ordered makes no difference where every store is seen at once.
ORDERS = ("relaxed", "acquire", "release", "acq_rel", "weak", "volatile", "mmio", "cta", "gpu", "sys", "cluster", "gl")
CACHES = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_normal", "L1::evict_unchanged")
HINTS = ("L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::64B", "L2::128B", "L2::256B", "unified")

Addressed = tuple[Memory, Array, Lanes]  # memory, places in its buffer (one, or one per lane in turn), the lanes


def space_of(instruction: Instruction, named: str | None) -> str:
    """Return the space that the opcode names (or the variable in the address); "generic" if neither does."""
    given = [part.split("::")[0] for part in instruction.parts[1:] if part.split("::")[0] in SPACES]
    space = given[0] if given else named or "generic"
    return "global" if space == "const" else space


def locate(
    machine: Machine, space: str, address: Array, size: int, lanes: Lanes, instruction: Instruction, action: str
) -> Iterator[Addressed]:
    """Yield where ``lanes`` access ``size`` bytes at ``address`` (one element or one per lane of the machine).

    One item for each space that a generic address leads to: nearly always one. Bounds and alignment are checked.

    Raises:
        KernelFaults: an access is out of bounds or misaligned.
    """
    address = lanes.pick(address)
    if space == "generic":
        yield from _generic(machine, address, size, lanes, instruction, action)
        return
    memory = machine.spaces[space]
    bad = memory.outside(address, size)
    if bad is not None:
        _report_outside(machine, memory, address, size, bad, lanes, instruction, action)
    if size > 1 and (address & (size - 1)).any():
        _report_misaligned(machine, memory, address, size, lanes, instruction, action)
    places = memory.places(address)
    yield memory, places if memory.base is None else places + lanes.pick(memory.base), lanes


def _generic(
    machine: Machine, address: Array, size: int, lanes: Lanes, instruction: Instruction, action: str
) -> Iterator[Addressed]:
    """Yield the parts of a generic access that lie in global, shared and local memory."""
    whole = np.zeros(machine.n, np.int64)
    whole[lanes.numbers] = address
    low, high = int(address.min()), int(address.max())
    for space, start, end in (
        ("global", -(1 << 63), SHARED_WINDOW - 1),
        ("shared", SHARED_WINDOW, LOCAL_WINDOW - 1),
        ("local", LOCAL_WINDOW, (1 << 63) - 1),
    ):
        if low > end or high < start:
            continue
        inside = start <= low and high <= end
        here = lanes if inside else lanes.chosen((whole >= start) & (whole <= end))
        if here is not None:
            local = (address if inside and address.size == 1 else whole) - WINDOWS[space]
            yield from locate(machine, space, local, size, here, instruction, action)


def _lane_of(lanes: Lanes, bad: Array) -> tuple[int, int]:
    """Return the first lane for which ``bad`` holds, and its place in ``bad``."""
    at = int(np.flatnonzero(bad)[0])
    return (int(lanes.numbers[0]) if bad.size == 1 else int(lanes.numbers[at])), at


def describe(allocation: Allocation | None, address: int, space: str) -> tuple[str, tuple[int, ...] | None]:
    """Return words for ``address`` and its flat index in the array nearest to it."""
    if allocation is None:
        return f"{space} memory, of which the kernel has none", None
    if allocation.dtype is None:
        return f"byte {address - allocation.start} of {space} '{allocation.name}'", None
    index, rest = divmod(address - allocation.start, allocation.dtype.itemsize)
    odd = f" (byte {rest} of it)" if rest else ""
    return f"element {index}{odd} of '{allocation.name}'", (index,)


def _report_outside(
    machine: Machine,
    memory: Memory,
    address: Array,
    size: int,
    bad: Array,
    lanes: Lanes,
    instruction: Instruction,
    action: str,
) -> None:
    lane, at = _lane_of(lanes, bad)
    allocation = memory.nearest(int(address[at]))
    words, index = describe(allocation, int(address[at]), memory.space)
    extent = ""
    if allocation is not None:
        length = allocation.end - allocation.start
        items = length // (allocation.dtype.itemsize if allocation.dtype else 1)
        extent = f", which has {items} {'elements' if allocation.dtype else 'bytes'}"
    name = allocation.name if allocation else None
    message = f"{size} bytes at {words}{extent}"
    machine.fault(OUT_OF_BOUNDS, message, instruction, lane, action, array=name, index=index)


def _report_misaligned(
    machine: Machine, memory: Memory, address: Array, size: int, lanes: Lanes, instruction: Instruction, action: str
) -> None:
    lane, at = _lane_of(lanes, (address & (size - 1)) != 0)
    allocation = memory.nearest(int(address[at]))
    words, index = describe(allocation, int(address[at]), memory.space)
    name = allocation.name if allocation else None
    message = f"{size} bytes at once at {words}: the address is no multiple of {size}"
    machine.fault(MISALIGNED, message, instruction, lane, action, array=name, index=index)


def check_written(
    machine: Machine, memory: Memory, places: Array, size: int, lanes: Lanes, instruction: Instruction
) -> None:
    """Raise a fault where a lane reads bytes of shared or local memory that nothing wrote.

    Raises:
        KernelFaults: there is such a lane.
    """
    bad = memory.state(places, size)
    if bad is None:
        return
    lane, at = _lane_of(lanes, bad)
    base = int(memory.base[lane]) if memory.base is not None else 0
    address = int(places[at]) - base
    allocation = memory.nearest(address)
    words, index = describe(allocation, address, memory.space)
    assert memory.written is not None
    flying = (memory.written[int(places[at]) : int(places[at]) + size] == IN_FLIGHT).any()
    why = "a cp.async was to fill it, but its group was not waited for" if flying else "no thread wrote it before"
    name = allocation.name if allocation else None
    machine.fault(UNINITIALISED, f"{words}: {why}", instruction, lane, "reads", array=name, index=index)


@opcode("ld", "ldu")
def load(decoder: Decoder, instruction: Instruction) -> Step:
    """``ld``: one element or a vector of 2, 4 or 8 from memory."""
    modifiers = decoder.modifiers(
        instruction, *SPACES, "shared::cta", "param::entry", "param::func", *ORDERS, *CACHES, *HINTS, *VECTORS
    )
    kind = decoder.kind(instruction)
    targets, source = decoder.operands(instruction, 2)
    address, named = decoder.address(instruction, source)
    space = space_of(instruction, named)
    if space == "param" and named == "param":
        return load_parameter(decoder, instruction, kind, targets, address)
    if space == "param":
        space = named or "generic"
    count = next((VECTORS[part] for part in modifiers if part in VECTORS), 1)
    dtype = DTYPES[kind]
    registers = vector(decoder, instruction, targets, count)
    size = dtype.itemsize
    polls = int(bool(modifiers & {"volatile", "relaxed", "acquire"}))

    def step(machine: Machine, lanes: Lanes) -> None:
        machine.polls += polls
        at = address(machine.registers)
        for memory, places, here in locate(machine, space, at, size * count, lanes, instruction, "reads"):
            data = memory.view(dtype)
            places = places >> (size.bit_length() - 1)
            for number, register in enumerate(registers):
                if register is None:
                    continue
                if memory.written is not None:
                    check_written(machine, memory, (places + number) * size, size, here, instruction)
                value = data[places + number if number else places]
                machine.scatter(register, fitted(value, register), here)

    return step


def load_parameter(decoder: Decoder, instruction: Instruction, kind: str, targets: str, address: Fetch) -> Step:
    """Return the step that reads a kernel parameter: the same for all lanes.

    Raises:
        UnsupportedError: a target is no register.
    """
    offset = int(address([])[0])
    dtype = DTYPES[kind]
    names = split_operands(targets.strip("{} "))
    registers = vector(decoder, instruction, targets, len(names))

    def step(machine: Machine, lanes: Lanes) -> None:
        for number, register in enumerate(registers):
            if register is not None:
                value = np.frombuffer(machine.parameters, dtype, 1, offset + number * dtype.itemsize)
                machine.write(register, fitted(value, register), lanes)

    return step


def vector(decoder: Decoder, instruction: Instruction, text: str, count: int) -> list[Register | None]:
    """Return the registers of ``{a, b}`` or of a single ``a``; None for the sink ``_``.

    Raises:
        UnsupportedError: their number is not ``count``, or one is no register.
    """
    names = split_operands(text.strip("{} "))
    if len(names) != count:
        decoder.refuse(instruction, f"{len(names)} registers for {count} elements")
    return [None if name == "_" else decoder.register(instruction, name) for name in names]


@opcode("st")
def store(decoder: Decoder, instruction: Instruction) -> Step:
    """``st``: one element or a vector to memory. Where several lanes write one place, the last in turn stays."""
    modifiers = decoder.modifiers(
        instruction, *SPACES, "shared::cta", "param::func", *ORDERS, *CACHES, *HINTS, *VECTORS
    )
    kind = decoder.kind(instruction)
    target, values = decoder.operands(instruction, 2)
    address, named = decoder.address(instruction, target)
    space = space_of(instruction, named)
    if space == "param":
        space = named or "generic"
    if space == "param" or "const" in modifiers:
        decoder.refuse(instruction, "a store to constant memory")
    count = next((VECTORS[part] for part in modifiers if part in VECTORS), 1)
    names = split_operands(values.strip("{} "))
    if len(names) != count:
        decoder.refuse(instruction, f"{len(names)} values for {count} elements")
    fetches = [decoder.source(instruction, name, kind) for name in names]
    dtype = DTYPES[kind]
    size = dtype.itemsize

    def step(machine: Machine, lanes: Lanes) -> None:
        at = address(machine.registers)
        for memory, places, here in locate(machine, space, at, size * count, lanes, instruction, "writes"):
            data = memory.view(dtype)
            places = places >> (size.bit_length() - 1)
            for number, fetch in enumerate(fetches):
                value = here.pick(fetch(machine.registers))
                where = places + number if number else places
                data[where] = value if where.size > 1 or value.size == 1 else value[-1]
                memory.mark(where * size, size)

    return step


@opcode("cvta")
def cvta(decoder: Decoder, instruction: Instruction) -> Step:
    """``cvta``: an address in a space to a generic one, or back (``.to``)."""
    modifiers = decoder.modifiers(instruction, "to", "shared::cta", *SPACES)
    kind = decoder.kind(instruction)
    window = np.uint64(WINDOWS[space_of(instruction, None)]).astype(DTYPES[kind])
    operate: Callable[[Array], Array] = (
        (lambda value: value - window) if "to" in modifiers else (lambda value: value + window)
    )
    return decoder.unary(instruction, operate if window else lambda value: value, kind)


@opcode("isspacep")
def isspacep(decoder: Decoder, instruction: Instruction) -> Step:
    """``isspacep.space p, a``: whether a generic address lies in a space."""
    decoder.modifiers(instruction, "shared::cta", "shared::cluster", *SPACES)
    target, a = decoder.operands(instruction, 2)
    fetch = decoder.source(instruction, a, "s64")
    space = space_of(instruction, None)
    low = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0)
    high = {"shared": LOCAL_WINDOW, "local": 1 << 63}.get(space, SHARED_WINDOW) - 1
    if "const" in instruction.parts or space == "param":
        decoder.refuse(instruction)

    def compute(registers: list[Array]) -> Array:
        address = fetch(registers)
        return (address >= low) & (address <= high)

    return decoder.assign(instruction, target, "pred", compute)


@opcode("prefetch", "prefetchu", "applypriority")
def prefetch(decoder: Decoder, instruction: Instruction) -> Step:
    """``prefetch``, ``prefetchu``, ``applypriority``: hints that change no value (``discard``, which does, is none)."""
    decoder.modifiers(instruction, "global", "local", "L1", "L2", "L2::evict_last", "L2::evict_normal")
    return lambda machine, lanes: None
