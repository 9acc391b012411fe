"""Atomics: ``atom`` and ``red`` (PTX ISA 9.7.13). Lanes that meet at one address go one after the other, in turn."""

from collections.abc import Callable

import numpy as np

from nanoeuler.simt.ptx.access import CACHES, HINTS, ORDERS, SPACES, check_written, locate, space_of
from nanoeuler.simt.ptx.decode import Decoder, fitted, opcode
from nanoeuler.simt.ptx.floating import extreme_of, flush, lifted
from nanoeuler.simt.ptx.kinds import DTYPES, Array, Fetch, Step
from nanoeuler.simt.ptx.machine import Lanes, Machine
from nanoeuler.simt.ptx.memory import Memory
from nanoeuler.simt.ptx.program import Instruction, Register

Update = Callable[[Array, Array, Array], Array]  # old value, operand, second operand -> new value
OPERATIONS = ("add", "min", "max", "inc", "dec", "exch", "cas", "and", "or", "xor")


@opcode("atom", "red")
def atomic(decoder: Decoder, instruction: Instruction) -> Step:
    """``atom d, [a], b, c`` gives the old value and changes it at once; ``red`` only changes it."""
    modifiers = decoder.modifiers(instruction, *OPERATIONS, *SPACES, "shared::cta", *ORDERS, *CACHES, *HINTS, "noftz")
    returns = instruction.parts[0] == "atom"
    kind = decoder.kind(instruction)
    operation = next((part for part in OPERATIONS if part in modifiers), None)
    target, place, *texts = instruction.operands if returns else ("_", *instruction.operands)
    if operation is None or len(texts) != (2 if operation == "cas" else 1):
        decoder.refuse(instruction)
    address, named = decoder.address(instruction, place)
    space = space_of(instruction, named)
    operands = [decoder.source(instruction, text, kind) for text in texts]
    register = None if target == "_" else decoder.register(instruction, target)
    update = update_of(operation, kind, space)
    return atomic_step(instruction, kind, space, address, operands, register, update)


def atomic_step(
    instruction: Instruction,
    kind: str,
    space: str,
    address: Fetch,
    operands: list[Fetch],
    register: Register | None,
    update: Update,
) -> Step:
    """Return the step that updates memory and puts the old values into ``register``."""
    dtype = DTYPES[kind]
    size = dtype.itemsize

    def step(machine: Machine, lanes: Lanes) -> None:
        machine.polls += 1
        at = address(machine.registers)
        for memory, places, here in locate(machine, space, at, size, lanes, instruction, "updates"):
            check_written(machine, memory, places, size, here, instruction)
            index = np.broadcast_to(places >> (size.bit_length() - 1), (here.count,))
            values = [here.each(fetch(machine.registers)) for fetch in operands]
            old = change(memory, dtype, index, values, update)
            if register is not None:
                machine.scatter(register, fitted(old, register), here)

    return step


def change(memory: Memory, dtype: np.dtype[np.generic], index: Array, values: list[Array], update: Update) -> Array:
    """Apply ``update`` lane after lane; return the values that each lane found."""
    data = memory.view(dtype)
    old = np.empty(index.shape, dtype)
    for turn in rounds(index):
        at = index[turn]
        found = data[at]
        old[turn] = found
        data[at] = update(found, values[0][turn], values[-1][turn])
    return old


def rounds(index: Array) -> list[Array]:
    """Cut 0 to n - 1 into rounds in which no two items have the same ``index``, each as early as it may be.

    >>> [r.tolist() for r in rounds(np.array([7, 7, 3, 7]))]
    [[0, 2], [1], [3]]
    """
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff(np.concatenate((first, [index.size])))
    rank = np.empty(index.size, np.int64)
    rank[order] = np.arange(index.size) - np.repeat(first, counts)
    by_rank = np.argsort(rank, kind="stable")
    return np.split(by_rank, np.cumsum(np.bincount(rank))[:-1])


def update_of(operation: str, kind: str, space: str) -> Update:
    """Return what ``operation`` makes of the old value and its operands."""
    if operation == "cas":
        return lambda old, compare, new: np.where(old == compare, new, old)
    if operation == "exch":
        return lambda old, operand, _: operand
    if operation == "inc":
        return lambda old, limit, _: np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1))
    if operation == "dec":
        return lambda old, limit, _: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))
    binary = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}.get(operation)
    if binary is not None:
        return lambda old, operand, _: binary(old, operand)
    if operation == "add":
        function: Callable[[Array, Array], Array] = np.add
        if kind == "f32" and space == "global":  # in global memory subnormals are flushed, in shared memory not
            return lambda old, operand, _: flush(flush(old) + flush(operand))
    else:
        is_float = DTYPES[kind].kind == "f" or kind.startswith(("bf16", "f16"))
        whole = np.maximum if operation == "max" else np.minimum
        function = extreme_of(operation == "max") if is_float else whole
    raised = lifted(function, kind)
    return lambda old, operand, _: raised(old, operand)
