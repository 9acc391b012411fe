"""Arguments of a launch as a kernel receives them: arrays copied to global memory, everything else as parameter bytes.

The order and types are those of numba-cuda's launch (``_prepare_args`` of its dispatcher): an array is a null
``meminfo`` and ``parent``, its number of elements, item size, address, shape and strides; tuples are flat.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.simt.ptx.kinds import Array
from nanoeuler.simt.ptx.memory import GLOBAL_BASE, MODULE_BASE, POISON, Allocation, Memory
from nanoeuler.simt.ptx.parse import Variable
from nanoeuler.simt.ptx.program import Program

_PLACE_ALIGNMENT = 256  # of every allocation, as on a GPU


@dataclass
class HostArray:
    """An array argument and where its first element lies in global memory.

    Of a record, or an array whose address alone is passed (``bare``), the kernel gets only that. ``record``: the scalar
    that the array of one element was made of.
    """

    name: str
    array: Array
    bare: bool = False
    record: np.void | None = None
    address: int = 0

    @property
    def start(self) -> int:
        """The host address of its first element."""
        return int(self.array.__array_interface__["data"][0])


@dataclass
class Span:
    """Bytes of the host that one or more arguments share: they get one allocation, so that aliases stay aliases."""

    low: int
    high: int
    arrays: list[HostArray] = field(default_factory=list)


def flat(name: str, value: Any) -> Iterator[HostArray | tuple[str, Any]]:
    """Yield the parameters that ``value`` becomes: a HostArray, or a (name, number) pair.

    Raises:
        UserError: it is nothing that a kernel takes.
    """
    if isinstance(value, np.ndarray):
        yield HostArray(name, value)
    elif isinstance(value, np.void):
        yield HostArray(name, np.array(value), bare=True, record=value)
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from flat(f"{name}[{number}]", item)
    elif isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
        yield name, value
    elif isinstance(value, (complex, np.complexfloating)):
        yield name, value.real
        yield name, value.imag
    elif isinstance(value, (np.datetime64, np.timedelta64)):
        yield name, value.astype(np.int64)
    elif hasattr(value, "value") and isinstance(value.value, (int, float)):  # a member of an enumeration
        yield name, value.value
    else:
        kind = type(value).__name__
        raise UserError(
            f"argument '{name}' is a {kind}: a kernel takes NumPy arrays, records, numbers and tuples of these"
        )


def global_memory(arrays: list[HostArray], program: Program) -> Memory:
    """Return global memory with the module's variables and a copy of ``arrays``, whose addresses are set."""
    spans = spans_of([array for array in arrays if array.array.size])
    allocations = [
        Allocation(start, end, start - MODULE_BASE, name) for start, end, name in program.globals.places if end > start
    ]
    place = -(-(program.globals.size - MODULE_BASE) // _PLACE_ALIGNMENT) * _PLACE_ALIGNMENT
    unit = 1 << max(40, max((span.high - span.low for span in spans), default=1).bit_length() + 2)
    start = max(GLOBAL_BASE, unit)
    contents = []
    for span in spans:
        size = span.high - span.low
        owned = owned_bytes(span)
        first = span.arrays[0]
        name = "/".join(dict.fromkeys(array.name for array in span.arrays))
        allocations.append(Allocation(start, start + size, place, name, owned, first.array.dtype))
        for array in span.arrays:
            array.address = start + array.start - span.low
        contents.append((place, span))
        place += -(-size // _PLACE_ALIGNMENT) * _PLACE_ALIGNMENT
        start += unit
    data = np.full(place + _PLACE_ALIGNMENT, POISON, np.uint8)
    for address, variable in program.variables.items():
        put_variable(data, address, variable, program)
    for at, span in contents:
        data[at : at + span.high - span.low] = host_bytes(span)
    return Memory("global", allocations, data)


def spans_of(arrays: list[HostArray]) -> list[Span]:
    """Return the spans of host memory that ``arrays`` occupy, those that overlap made one."""
    spans: list[Span] = []
    for array in sorted(arrays, key=lambda item: np.lib.array_utils.byte_bounds(item.array)):
        low, high = np.lib.array_utils.byte_bounds(array.array)
        if spans and low < spans[-1].high:
            spans[-1].high = max(spans[-1].high, high)
            spans[-1].arrays.append(array)
        else:
            spans.append(Span(low, high, [array]))
    return spans


def owned_bytes(span: Span) -> Array | None:
    """Return which bytes of ``span`` belong to an element of one of its arrays; None where all do."""
    if all(array.array.flags.forc for array in span.arrays):
        return None
    owned = np.zeros(span.high - span.low, np.bool_)
    for array in span.arrays:
        window(owned, span, array)[...] = True
    return owned


def window(data: Array, span: Span, item: HostArray) -> Array:
    """Return the bytes of ``data``, a copy of ``span``, that hold the array: shape (*array.shape, itemsize)."""
    array = item.array
    return np.ndarray((*array.shape, array.itemsize), data.dtype, data, item.start - span.low, (*array.strides, 1))


def host_bytes(span: Span) -> Array:
    """Return a copy of the bytes of ``span``."""
    data = np.full(span.high - span.low, POISON, np.uint8)
    for array in span.arrays:
        elements = np.ascontiguousarray(array.array).reshape(-1).view(np.uint8)
        window(data, span, array)[...] = elements.reshape(*array.array.shape, array.array.itemsize)
    return data


def copy_back(memory: Memory, arrays: list[HostArray]) -> None:
    """Write what the kernel left in global memory into the arguments."""
    for span in spans_of([array for array in arrays if array.array.size]):
        first = span.arrays[0]
        start = first.address - (first.start - span.low)
        place = next(item.place for item in memory.allocations if item.start == start)
        data = memory.data[place : place + span.high - span.low]
        for array in span.arrays:
            if array.array.flags.writeable:
                elements = np.ascontiguousarray(window(data, span, array)).reshape(-1)
                array.array[...] = elements.view(array.array.dtype).reshape(array.array.shape)
            if array.record is not None and array.record.dtype.names:
                for field_name in array.record.dtype.names:
                    array.record[field_name] = array.array[field_name][()]


def put_variable(data: Array, address: int, variable: Variable, program: Program) -> None:
    """Write the initial value of a module's variable: zeros where it has none."""
    at = address - MODULE_BASE
    data[at : at + variable.size] = 0
    data[at : at + len(variable.data)] = np.frombuffer(variable.data, np.uint8)
    for offset, name in variable.addresses:
        target = next(place for place, other in program.variables.items() if other.name in (name, name[8:-1]))
        data[at + offset : at + offset + 8] = np.array([target], np.uint64).view(np.uint8)


def parameter_bytes(program: Program, items: list[HostArray | tuple[str, Any]]) -> bytes:
    """Return the kernel's parameters as the bytes that ``ld.param`` reads.

    Raises:
        UserError: their number is not that of the PTX kernel's parameters.
    """
    values = [value for item in items for value in _words(item)]
    if len(values) != len(program.parameters):
        raise UserError(f"the PTX kernel has {len(program.parameters)} parameters, and {len(values)} values were given")
    size = max((program.parameter_offsets[p.name] + p.size for p in program.parameters), default=0)
    data = bytearray(size + 16)
    for parameter, value in zip(program.parameters, values, strict=True):
        at = program.parameter_offsets[parameter.name]
        data[at : at + parameter.size] = encoded(parameter, value)
    return bytes(data)


def _words(item: HostArray | tuple[str, Any]) -> list[Any]:
    """Return the parameters that one item becomes."""
    if not isinstance(item, HostArray):
        return [item[1]]
    array = item.array
    if item.bare:
        return [item.address]
    return [0, 0, array.size, array.itemsize, item.address, *array.shape, *array.strides]


def encoded(parameter: Variable, value: Any) -> bytes:
    """Return ``value`` as the bytes of ``parameter``; a float in a parameter of bits keeps its own width."""
    size = parameter.size
    if parameter.kind == "f32":
        return np.float32(value).tobytes()
    if parameter.kind == "f64":
        return np.float64(value).tobytes()
    if isinstance(value, (float, np.floating)):
        return np.asarray(value).astype(f"f{size}").tobytes()
    return (int(value) % (1 << 8 * size)).to_bytes(size, "little")
