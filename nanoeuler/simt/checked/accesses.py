"""Loads, stores and atomics of a checked kernel: each goes through here, and is compared with what came before it."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.np.numpy_support import as_dtype

from nanoeuler.simt import faults
from nanoeuler.simt.checked.functions import popc
from nanoeuler.simt.checked.memory import Record, Root, View
from nanoeuler.simt.checked.races import READS, UPDATES, WRITES, Cell, Place, Race
from nanoeuler.simt.checked.scalars import UntypedError, convert, dtype_kind

_index = operator.index


def load(view: Any, index: Any, place: Place) -> Any:
    """Return ``view[index]``: an element, or the view, record or member of a tuple that it selects."""
    if view.__class__ is not View:
        return _load_other(view, index, place)
    offset = view.locate(view, index)
    if offset < 0:
        part = view.part(index, place, READS)
        if part is None:
            return view.poison
        return _load_scalar(view, index, place) if part is view else part
    if view.traced is not None:
        view.monitor.recorder.access(view, offset, place, READS, view.array[index])
    if view.constant:
        return view.array[index]
    root = view.root
    if root.unit == view.itemsize_:
        cell = root.cells.get(offset)
        if cell is not None:
            monitor = view.monitor
            if cell.last is monitor.now:
                return view.array[index]
            if cell.write is not None or root.written is None:
                race = monitor.read(cell, place)
                if race is not None:
                    _race(view, index, place, READS, race)
                return view.array[index]
    return _load_first(view, index, offset, place)


def _load_first(view: View, index: Any, offset: int, place: Place) -> Any:
    """Load an element that no thread has written in this launch, or that has several cells."""
    root, size = view.root, view.itemsize_
    if not root.private:
        for at in range(offset, offset + size, root.unit):
            race = view.monitor.read(_cell(root, at), place)
            if race is not None:
                _race(view, index, place, READS, race)
    if root.written is not None and not all(root.written[offset : offset + size]):
        _never_written(view, index, offset, place)
        return view.poison
    return view.array[index]


def _never_written(view: View, index: Any, offset: int, place: Place) -> None:
    """Report a read of what nothing wrote; of memory that others may write, only once it is sure that none did."""
    root, monitor = view.root, view.monitor
    party = monitor.party(monitor.now, place, READS)
    fault = faults.Fault(
        *(faults.UNINITIALISED, f"{_shown(view, index)} was never written", monitor.kernel, place[0], (party,)),
        *(view.name, _numbers(index)),
    )
    if root.private:
        monitor.keep(fault, place)
        return
    missing = next(at for at in range(offset, offset + view.itemsize_) if not root.written[at : at + 1][0])
    monitor.doubt(_cell(root, missing - missing % root.unit), fault, place, root.scope == "shared")


def _cell(root: Root, offset: int) -> Cell:
    cell = root.cells.get(offset)
    if cell is None:
        cell = root.cells[offset] = Cell()
    return cell


def _load_scalar(view: View, index: Any, place: Place) -> Any:
    """Load the element of an array without axes."""
    if view.traced is not None:
        view.monitor.recorder.access(view, view.offset, place, READS, view.array[index])
    return _load_first(view, index, view.offset, place)


def _load_other(value: Any, index: Any, place: Place) -> Any:
    if isinstance(value, tuple):
        return value[index]
    if isinstance(value, Record) and isinstance(index, str):
        return load(value.view.field(index), value.index, place)
    raise UntypedError(f"a {type(value).__name__} cannot be indexed by {index!r}")


def store(value: Any, view: Any, index: Any, place: Place) -> None:
    """Do ``view[index] = value``."""
    if view.__class__ is not View:
        return _store_other(value, view, index, place)
    offset = view.locate(view, index)
    if offset < 0:
        return _store_part(value, view, index, place)
    if value.__class__ is not view.scalar:
        value = convert(value, view.scalar)
    if view.traced is not None:
        view.monitor.recorder.access(view, offset, place, WRITES, value)
    root = view.root
    if root.unit == view.itemsize_:
        cell = root.cells.get(offset)
        if cell is not None and cell.write is not None:
            monitor = view.monitor
            if cell.write is not monitor.now or cell.reads is not None or cell.atomics is not None:
                race = monitor.write(cell, place)
                if race is not None:
                    _race(view, index, place, WRITES, race)
            view.array[index] = value
            return None
    return _store_first(value, view, index, offset, place)


def _store_first(value: Any, view: View, index: Any, offset: int, place: Place) -> None:
    """Store to an element that no thread has written in this launch, or that has several cells."""
    root, size = view.root, view.itemsize_
    if view.constant:
        raise UntypedError(f"'{view.name}' is constant: a kernel cannot write to it")
    if root.written is not None:
        root.written[offset : offset + size] = _TRUE[:size] if size <= len(_TRUE) else b"\1" * size
    if not root.private:
        for at in range(offset, offset + size, root.unit):
            race = view.monitor.write(_cell(root, at), place)
            if race is not None:
                _race(view, index, place, WRITES, race)
    view.array[index] = value


_TRUE = bytes([1] * 16)


def _store_part(value: Any, view: View, index: Any, place: Place) -> None:
    """Store to a slice, a record or an array without axes."""
    part = view.part(index, place, WRITES)
    if part is None:
        return
    if part is view:
        value = convert(value, view.scalar)
        if view.traced is not None:
            view.monitor.recorder.access(view, view.offset, place, WRITES, value)
        _store_first(value, view, index, view.offset, place)
    elif isinstance(part, Record):
        if not isinstance(value, Record):
            raise UntypedError(f"a record of '{view.name}' is assigned a {type(value).__name__}: assign its fields")
        for name in view.dtype.names or ():
            store(load(value, name, place), part, name, place)
    else:
        for element in np.ndindex(*part.sizes):
            here = element[len(element) - len(value.sizes) :] if isinstance(value, View) else ()
            store(load(value, here, place) if isinstance(value, View) else value, part, element, place)


def _store_other(value: Any, target: Any, index: Any, place: Place) -> None:
    if isinstance(target, Record) and isinstance(index, str):
        return store(value, target.view.field(index), target.index, place)
    raise UntypedError(f"a {type(target).__name__} cannot be assigned to at {index!r}")


def elements(value: Any, place: Place) -> Any:
    """Return what a loop over ``value`` runs over: an array's elements or rows, each loaded when its turn comes."""
    if isinstance(value, View):
        return (load(value, np.int64(i), place) for i in range(len(value)))
    return value


ATTRIBUTES = {name: name for name in ("shape", "strides", "size", "ndim", "itemsize", "nbytes", "dtype")}
ATTRIBUTES["T"] = "transposed"


def attribute(value: Any, name: str, place: Place) -> Any:
    """Return ``value.name``: of an array, a record, a vector or a complex number."""
    if isinstance(value, Record):
        return load(value, name, place)
    if isinstance(value, View):
        if name in ATTRIBUTES:
            return getattr(value, ATTRIBUTES[name])
        return value.field(name)
    if isinstance(value, np.number) and name in ("real", "imag"):
        return getattr(value, name)
    if isinstance(value, tuple) and name in getattr(value, "_fields", ()):
        return getattr(value, name)
    raise UntypedError(f"a {type(value).__name__} has no '{name}' in a kernel")


def method(value: Any, name: str, arguments: tuple, place: Place) -> Any:
    """Return what a method of an array or a number gives."""
    if isinstance(value, View) and name in ("reshape", "ravel", "transpose", "view"):
        if name == "view":
            return _as_dtype(value, arguments[0], place)
        plain = tuple(tuple(map(_index, a)) if isinstance(a, tuple) else _index(a) for a in arguments)
        changed = getattr(value.array, name)(*plain)
        if not np.may_share_memory(changed, value.array):
            raise UntypedError(f"'{value.name}.{name}' needs a copy: a kernel cannot make one")
        return value.like(changed)
    if isinstance(value, np.number) and name in ("conjugate", "conj"):
        return value.conjugate()
    if isinstance(value, np.integer) and name == "bit_count":
        return popc(value)
    if isinstance(value, np.number) and name == "view":
        return value.view(as_dtype(dtype_kind(arguments[0])))
    raise UntypedError(f"a {type(value).__name__} has no method '{name}' in a kernel")


def _as_dtype(view: View, dtype: Any, place: Place) -> View:
    """Return the memory of ``view`` as elements of another type."""
    changed = view.like(view.array.view(as_dtype(dtype_kind(dtype))))
    if changed.offset % changed.itemsize_:
        _misaligned(view, (0,), changed.offset, changed.itemsize_, place)
    return changed


# Reports ------------------------------------------------------------------------------------------------------------


def _numbers(index: Any) -> tuple[int, ...]:
    return tuple(map(_index, index)) if isinstance(index, tuple) else (_index(index),)


def _shown(view: View, index: Any) -> str:
    return f"{view.name}[{', '.join(map(str, _numbers(index)))}]"


def _report(view: View, index: Any, place: Place, action: str, kind: str, message: str, *others: faults.Party) -> None:
    party = view.monitor.party(view.monitor.now, place, action)
    view.monitor.report(kind, message, place, (party, *others), view.name, _numbers(index))


def _race(view: View, index: Any, place: Place, action: str, other: Race) -> None:
    epoch, other_place, other_action = other
    monitor = view.monitor
    between = epoch.block != monitor.now.block
    kind = faults.RACE_BETWEEN_BLOCKS if between else faults.RACE
    here, there = (monitor.now.thread, epoch.thread) if not between else (monitor.now.block, epoch.block)
    who = "block" if between else "thread"
    message = (
        f"{who} {here} {action} {_shown(view, index)}, which {who} {there} {other_action} at line {other_place[1]}, "
        "and nothing orders the two"
    )
    if action == other_action == WRITES:
        message += " (even where both write the same value)"
    _report(view, index, place, action, kind, message, monitor.party(epoch, other_place, other_action))


def aligned(view: View, index: Any, size: Any, place: Place) -> None:
    """Report ``view[index]`` unless its address is a multiple of ``size`` bytes (``require_alignment``)."""
    offset = view.locate(view, index)
    if offset < 0:
        view.part(index, place, READS)
    elif offset % int(size) or view.root.alignment % int(size):
        _misaligned(view, index, offset, int(size), place)


def _misaligned(view: View, index: Any, offset: int, size: int, place: Place) -> None:
    start = f"{offset} bytes from the start of memory that is aligned to {view.root.alignment}"
    message = f"{_shown(view, index)} is accessed as {size} bytes at once, and lies {start}"
    _report(view, index, place, READS, faults.MISALIGNED, message)


# Atomics ------------------------------------------------------------------------------------------------------------

NUMBERS = {np.dtype(t) for t in ("int32", "uint32", "int64", "uint64", "float32", "float64")}
INTEGERS = {d for d in NUMBERS if d.kind in "iu"}
UNSIGNED = {d for d in NUMBERS if d.kind == "u"}


def _better(operator_: Callable, over_nan: bool) -> Callable:
    """Return min or max. At a NaN on either side nothing is written; nanmin and nanmax replace a NaN in memory."""

    def choose(old: Any, value: Any) -> Any:
        if value != value or (old != old and not over_nan):
            return old
        return value if old != old or operator_(value, old) else old

    return choose


CHANGES: dict[str, tuple[set, Callable]] = {
    "add": (NUMBERS, operator.add),
    "sub": (NUMBERS, operator.sub),
    "max": (NUMBERS, _better(operator.gt, over_nan=False)),
    "min": (NUMBERS, _better(operator.lt, over_nan=False)),
    "nanmax": (NUMBERS, _better(operator.gt, over_nan=True)),
    "nanmin": (NUMBERS, _better(operator.lt, over_nan=True)),
    "and_": (INTEGERS, operator.and_),
    "or_": (INTEGERS, operator.or_),
    "xor": (INTEGERS, operator.xor),
    "inc": (UNSIGNED, lambda old, value: type(old)(0) if old >= value else old + type(old)(1)),
    "dec": (UNSIGNED, lambda old, value: value if old == 0 or old > value else old - type(old)(1)),
    "exch": (INTEGERS, lambda old, value: value),
}


def atomic(name: str, view: View, index: Any, value: Any, place: Place) -> Any:
    """Do one atomic change of ``view[index]`` and return what was there before."""
    kinds, change = CHANGES[name]
    value = _operand(name, view, kinds, value)
    return _atomic(view, index, place, lambda old: change(old, value))


def swap(view: View, index: Any, expected: Any, value: Any, place: Place) -> Any:
    """Do one compare-and-swap of ``view[index]`` and return what was there before."""
    expected, value = (_operand("cas", view, INTEGERS, v) for v in (expected, value))
    return _atomic(view, index, place, lambda old: value if old == expected else None)


def _operand(name: str, view: Any, kinds: set, value: Any) -> Any:
    if not isinstance(view, View) or view.dtype not in kinds:
        dtype = view.dtype if isinstance(view, View) else type(view).__name__
        raise UntypedError(f"cuda.atomic.{name} of {dtype}: it takes {', '.join(sorted(map(str, kinds)))}")
    return convert(value, view.scalar)


def _atomic(view: View, index: Any, place: Place, change: Callable) -> Any:
    """Read, change and write an element; a change to None writes nothing."""
    offset = view.locate(view, index)
    if offset < 0:
        part = view.part(index, place, UPDATES)
        if part is None:
            return view.poison
        if part is not view:
            raise UntypedError(f"an atomic of '{view.name}' must name one element")
        offset = view.offset
    root, monitor, size = view.root, view.monitor, view.itemsize_
    if root.written is not None and not all(root.written[offset : offset + size]):
        message = f"{_shown(view, index)} is changed by an atomic and was never written"
        _report(view, index, place, UPDATES, faults.UNINITIALISED, message)
        view.array[index] = view.poison
        root.written[offset : offset + size] = b"\1" * size
    old = view.array[index]
    new = change(old)
    if view.traced is not None:
        view.monitor.recorder.access(view, offset, place, UPDATES, old if new is None else new)
    if not root.private:
        for at in range(offset, offset + size, root.unit):
            race = monitor.update(_cell(root, at), place, wrote=new is not None)
            if race is not None:
                _race(view, index, place, UPDATES, race)
    if new is not None:
        monitor.changes += bool(new != old)
        view.array[index] = new
    return old
