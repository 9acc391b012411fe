"""How pictures name threads, blocks, elements, values and lines of source."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nanoeuler.simt.faults import Position
from nanoeuler.simt.launch import coordinates
from nanoeuler.simt.traced.numbers import LineNumbers
from nanoeuler.simt.traced.recorder import Instruction, TracedArray
from nanoeuler.simt.traced.result import Trace

DONE = ("read", "written", "updated atomically")  # by the kind of an access


def ranges(numbers: Iterable[int], most: int = 6) -> str:
    """Return numbers in rising order as ranges, ``most`` of them at most.

    >>> ranges([0, 1, 2, 3, 8, 10, 11])
    '0–3, 8, 10, 11'
    """
    values = np.unique(np.fromiter(numbers, np.int64))
    parts = np.split(values, np.flatnonzero(np.diff(values) != 1) + 1) if len(values) else []
    shown: list[str] = []
    for run in parts:
        shown += [f"{run[0]}–{run[-1]}"] if len(run) > 2 else [str(number) for number in run]
    return ", ".join(shown[:most]) + (", …" if len(shown) > most else "")


def position(number: int, shape: Position) -> str:
    """Return the index of a thread or block: a plain number where there is one axis.

    >>> position(5, (32, 1, 1)), position(5, (4, 4, 1))
    ('5', '(1, 1)')
    """
    axes = 3 if shape[2] > 1 else 2 if shape[1] > 1 else 1
    index = coordinates(number, shape)[:axes]
    return str(index[0]) if axes == 1 else f"({', '.join(map(str, index))})"


def threads(trace: Trace, block: int, numbers: Sequence[int]) -> str:
    """Return the name of one thread, or of several by their numbers in their block."""
    where = f" of block {position(block, trace.launch.grid)}" if trace.launch.blocks > 1 else ""
    if len(numbers) == 1:
        return f"thread {position(int(numbers[0]), trace.launch.block)}{where}"
    return f"threads {ranges(numbers)}{where}"


def element(array: TracedArray, index: Sequence[int]) -> str:
    """Return how an element is written in a kernel: ``a[3, 4]``, ``a[()]``."""
    return f"{array.name}[{', '.join(map(str, index)) or '()'}]"


def value(given: Any) -> str:
    """Return a value in a few characters."""
    if isinstance(given, (np.floating, np.complexfloating)):
        return f"{given:.6g}"
    return str(given)


def line_name(trace: Trace, place: Instruction | LineNumbers) -> str:
    """Return which line something stands in, with its file where that is not the kernel's."""
    return f"line {place.line}" + ("" if place.file == trace.file else f" of {Path(place.file).name}")


def source(trace: Trace, instruction: Instruction) -> str:
    """Return the text of the line that an instruction stands in, with the line's number in front."""
    return f"{instruction.line}  {trace.source_line(instruction.line, instruction.file).strip()}"


def kind_of(array: TracedArray) -> str:
    """Return type, shape and memory of an array in words."""
    dtype = "records" if array.dtype.names else str(array.dtype)
    return f"{dtype}, shape {array.shape}, {array.scope} memory"
