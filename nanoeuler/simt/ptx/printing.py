"""``print`` in a kernel: the call of ``vprintf`` that the compiler makes of it, formatted as C would."""

import re
import sys
from typing import Any

import numpy as np

from nanoeuler.simt.ptx.access import locate
from nanoeuler.simt.ptx.decode import Decoder, opcode
from nanoeuler.simt.ptx.kinds import Array, Step
from nanoeuler.simt.ptx.machine import Lanes, Machine
from nanoeuler.simt.ptx.program import Instruction

_CONVERSION = re.compile(r"%([-+ #0]*\d*(?:\.\d+)?)(hh|h|ll|l|z|j|t)?([diouxXeEfFgGaAcsp%])")


@opcode("vprintf")
def vprintf(decoder: Decoder, instruction: Instruction) -> Step:
    """A call of ``vprintf(format, arguments)``: one lane after the other writes its line to standard output."""
    decoder.modifiers(instruction)
    result, *pointers = [decoder.address(instruction, f"[{name}]")[0] for name in instruction.operands]

    def step(machine: Machine, lanes: Lanes) -> None:
        formats, buffers = (read_words(machine, lanes, fetch(machine.registers), instruction) for fetch in pointers)
        for lane, text, buffer in zip(lanes.numbers, formats, buffers, strict=True):
            sys.stdout.write(formatted(machine, int(lane), int(text), int(buffer), instruction))
        for memory, places, _ in locate(machine, "local", result(machine.registers), 4, lanes, instruction, "writes"):
            memory.view(np.dtype(np.int32))[places >> 2] = 0  # numba-cuda does not look at the number of characters
            memory.mark(places, 4)

    return step


def read_words(machine: Machine, lanes: Lanes, address: Array, instruction: Instruction) -> Array:
    """Return the 64-bit values that the call's parameters hold, one per lane in turn.

    Raises:
        KernelFaults: nothing wrote them, or they are out of bounds.
    """
    values = np.zeros(lanes.count, np.int64)
    for memory, places, _ in locate(machine, "local", address, 8, lanes, instruction, "reads"):
        values[:] = memory.view(np.dtype(np.int64))[places >> 3]
    return values


def formatted(machine: Machine, lane: int, text: int, buffer: int, instruction: Instruction) -> str:
    """Return the format string at ``text`` with its conversions filled from the bytes at ``buffer``.

    Raises:
        KernelFaults: the arguments are out of bounds.
    """
    mask = np.zeros(machine.n, np.bool_)
    mask[lane] = True
    alone = Lanes(machine, mask, mask, 1)
    at = buffer

    def argument(size: int, dtype: Any) -> Any:
        nonlocal at
        at = -(-at // size) * size
        address = np.full(machine.n, at, np.int64)
        at += size
        for memory, places, _ in locate(machine, "generic", address, size, alone, instruction, "reads"):
            return memory.view(np.dtype(dtype))[int(places[-1]) // size]

    def fill(match: re.Match[str]) -> str:
        flags, width, letter = match[1], match[2], match[3]
        if letter == "%":
            return "%"
        if letter == "s":
            return f"%{flags}s" % string_at(machine, int(argument(8, np.int64)))
        if letter in "eEfFgGaA":
            return f"%{flags}{letter}" % float(argument(8, np.float64))
        if letter == "p":
            return hex(int(argument(8, np.uint64)))
        size = 8 if width in ("ll", "l", "z", "j", "t") else 4
        value = int(argument(size, f"{'i' if letter in 'dic' else 'u'}{size}"))
        return chr(value) if letter == "c" else f"%{flags}{'d' if letter in 'diu' else letter}" % value

    return _CONVERSION.sub(fill, string_at(machine, text))


def string_at(machine: Machine, address: int) -> str:
    """Return the zero-terminated string at a generic address in global or constant memory."""
    memory = machine.spaces["global"]
    start = int(memory.places(np.array([address]))[0])
    data = memory.data[start : start + 65536].tobytes()
    return data[: data.index(0)].decode("utf-8", "replace")
