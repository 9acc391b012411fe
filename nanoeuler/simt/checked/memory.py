"""Arrays of a checked kernel: what memory there is, what an index selects of it, and what of it was ever written.

A ``Root`` is one piece of memory: an argument (or several that overlap), a block's shared array, a thread's local one.
A ``View`` is an array inside a root, made by slicing as in NumPy. Locations are known by their byte offset from the
root's start, so an access finds what was done through another view.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np
from numba.np.numpy_support import as_dtype

from nanoeuler.simt import faults
from nanoeuler.simt.checked.races import Cell, Monitor, Place
from nanoeuler.simt.checked.scalars import UntypedError, dtype_kind

GLOBAL_ALIGNMENT = 256  # bytes: what cudaMalloc guarantees (CUDA C++ Programming Guide, "Device Memory Accesses")


class Unwritten(np.ndarray):
    """A NumPy array that stands for device memory which starts with nothing in it: ``never_written`` makes it.

    ``written`` has one truth value per byte. Slices of it are plain views, and find it through their ``base``.
    """

    written: np.ndarray | None = None


def never_written(shape: int | tuple[int, ...], dtype: Any) -> Unwritten:
    """Return an array whose elements count as uninitialised until a kernel, or ``mark_written``, has written them."""
    array = Unwritten(shape, dtype)  # owns its memory, so that every view's `base` leads to it
    array.written = np.zeros(array.nbytes, np.bool_)
    return array


def mark_written(array: np.ndarray) -> None:
    """Let what lies in ``array``, a slice of one that was never written, count as written: the host has filled it."""
    owner = _owner(array)
    if owner is not None:
        assert owner.written is not None
        start = _address(array) - _address(owner)
        bytes_ = np.lib.stride_tricks.as_strided(
            owner.written[start:], (*array.shape, array.itemsize), (*array.strides, 1)
        )
        bytes_[...] = True


def _owner(array: Any) -> Unwritten | None:
    while array is not None:
        if isinstance(array, Unwritten) and array.written is not None:
            return array
        array = getattr(array, "base", None)
    return None


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


Scope = Literal["global", "shared", "private"]


class Root:
    """One piece of memory: "global", "shared", or "private" to a thread or read-only, so that nothing can race.

    ``unit`` bytes share a cell; ``written`` is None where memory starts with values.
    """

    __slots__ = ("address", "alignment", "cells", "monitor", "private", "scope", "unit", "written")

    def __init__(self, monitor: Monitor, address: int, alignment: int, written: Any, scope: Scope) -> None:
        self.monitor, self.address, self.alignment = monitor, address, alignment
        self.written, self.scope, self.private = written, scope, scope == "private"
        self.unit = 0
        self.cells: dict[int, Cell] = {}

    def fit(self, array: np.ndarray, offset: int) -> None:
        """Make the unit so small that each element of ``array`` is a whole number of units."""
        sizes = [dtype.itemsize for dtype in _leaves(array.dtype)] + [o for _, o in _fields(array.dtype)]
        unit = math.gcd(self.unit, offset, *sizes, *array.strides)
        if unit != self.unit and self.cells:
            old = self.cells
            self.cells = {o + d: cell.copy() for o, cell in old.items() for d in range(0, self.unit, unit)}
        self.unit = unit


def _fields(dtype: np.dtype) -> list[tuple[np.dtype, int]]:
    return [(f[0], f[1]) for f in (dtype.fields or {}).values()]


def _leaves(dtype: np.dtype) -> list[np.dtype]:
    """Return the plain dtypes that a record is made of."""
    if dtype.subdtype:
        return _leaves(dtype.subdtype[0])
    return [leaf for field, _ in _fields(dtype) for leaf in _leaves(field)] if dtype.fields else [dtype]


class View:
    """An array as a kernel sees it. ``sizes`` and ``steps`` are its shape and its strides in bytes."""

    __slots__ = (
        *("array", "constant", "fields", "itemsize_", "locate", "monitor", "name", "offset"),
        *("poison", "root", "scalar", "sizes", "steps", "traced", "typed_shape"),
    )

    def __init__(self, root: Root, array: np.ndarray, name: str, constant: bool = False) -> None:
        self.root, self.array, self.name, self.monitor, self.constant = root, array, name, root.monitor, constant
        self.offset = _address(array) - root.address
        self.sizes: tuple[int, ...] = array.shape
        self.steps: tuple[int, ...] = array.strides
        self.itemsize_ = array.itemsize
        self.locate: Callable[[View, Any], int] = (
            LOCATE.get(array.ndim, _locate) if array.dtype.names is None else _nowhere
        )
        self.typed_shape: tuple[Any, ...] = ()
        self.traced: int | None = None  # the number of the array in a trace
        self.fields: dict[str, View] = {}
        self.scalar = array.dtype.type
        self.poison = _poison(array.dtype)
        if not root.private and not constant:
            root.fit(array, self.offset)

    # What a kernel may ask, with Numba's types

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes of the axes, int64."""
        if len(self.typed_shape) != len(self.sizes):
            self.typed_shape = tuple(map(np.int64, self.sizes))
        return self.typed_shape

    @property
    def strides(self) -> tuple[Any, ...]:
        """The strides in bytes, int64."""
        return tuple(map(np.int64, self.steps))

    @property
    def size(self) -> Any:
        """The number of elements, int64."""
        return np.int64(self.array.size)

    @property
    def ndim(self) -> Any:
        """The number of axes, int64."""
        return np.int64(len(self.sizes))

    @property
    def itemsize(self) -> Any:
        """Bytes of an element, int64."""
        return np.int64(self.itemsize_)

    @property
    def nbytes(self) -> Any:
        """Bytes of all elements, int64."""
        return np.int64(self.array.nbytes)

    @property
    def dtype(self) -> np.dtype:
        """The elements' type."""
        return self.array.dtype

    @property
    def transposed(self) -> "View":
        """The array with its axes in reverse: ``.T`` in a kernel."""
        return self.like(self.array.T)

    def __len__(self) -> int:
        return self.sizes[0]

    # For the debugger: what a translated kernel reads goes through ``accesses``

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]

    __iter__ = None  # a loop is watched (accesses.elements), or refused

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.sizes)}\n{self.array}"

    def like(self, array: np.ndarray) -> "View":
        """Return ``array``, which lies in the same memory, as a view."""
        view = View(self.root, array, self.name, self.constant)
        view.traced = self.traced
        return view

    def part(self, index: Any, place: Place, action: str) -> Any:
        """Return what ``index`` selects when that is more than one element: a view, or a record.

        None where the index is outside and would select one plain element. What is outside has been reported.
        """
        if isinstance(index, str):
            return self.field(index)
        given = _whole(index if isinstance(index, tuple) else (index,), len(self.sizes))
        if given is None:
            raise UntypedError(f"'{self.name}' has {len(self.sizes)} axes, and is indexed by {len(index)}")
        numbers = [i for i in given if not isinstance(i, slice) and i is not None]
        axes = [n for n, i in enumerate(i for i in given if i is not None) if not isinstance(i, slice)]
        plain = tuple(_plain_slice(i) if isinstance(i, slice) else i if i is None else _index(i) for i in given)
        single = len(numbers) == len(given) == len(self.sizes)
        for axis, number in zip(axes, map(_index, numbers), strict=True):
            if not 0 <= number < self.sizes[axis]:
                self._outside(given, axis, number, place, action)
                return None if single and not self.dtype.names else self.nowhere(plain, single)
        if single:
            return Record(self, plain) if self.dtype.names else self
        return self.like(self.array[plain])

    def _outside(self, index: tuple, axis: int, number: int, place: Place, action: str) -> None:
        kind = faults.NEGATIVE_INDEX if number < 0 else faults.OUT_OF_BOUNDS
        shown = ", ".join(":" if isinstance(i, slice) else str(i) for i in index)
        along = f" along axis {axis}" if len(self.sizes) > 1 else ""
        message = f"{self.name}[{shown}] lies outside{along}: '{self.name}' has shape {self.sizes}"
        numbers = tuple(int(i) for i in index if not isinstance(i, slice) and i is not None)
        party = self.monitor.party(self.monitor.now, place, action)
        self.monitor.report(kind, message, place, (party,), self.name, numbers)

    def nowhere(self, index: tuple, single: bool) -> Any:
        """Return memory that nobody has, of the shape that ``index`` selects: it stands for what lies outside."""
        sizes = iter(self.sizes)
        shape = []
        for i in index:
            size = 1 if i is None else next(sizes)
            if i is None or isinstance(i, slice):
                shape.append(len(range(*i.indices(size))) if isinstance(i, slice) else 1)
        array = np.full(shape, self.poison, self.dtype)
        view = View(Root(self.monitor, _address(array), 1, None, "private"), array, self.name)
        return Record(view, ()) if single else view

    def field(self, name: str) -> "View":
        """Return the array of one field of the records."""
        if name not in self.fields:
            if name not in (self.dtype.names or ()):
                raise UntypedError(f"'{self.name}' has no field '{name}'")
            self.fields[name] = self.like(self.array[name])
        return self.fields[name]


_index = operator.index


# Where an element is: its offset in bytes; -1 when the index is outside, or names no single plain element.


def _locate_1(view: View, index: Any) -> int:
    try:
        i = _index(index)
    except TypeError:
        return _locate(view, index)
    return view.offset + i * view.steps[0] if 0 <= i < view.sizes[0] else -1


def _locate_2(view: View, index: Any) -> int:
    try:
        i, j = index
        i, j = _index(i), _index(j)
    except (TypeError, ValueError):
        return -1
    rows, columns = view.sizes
    if 0 <= i < rows and 0 <= j < columns:
        down, right = view.steps
        return view.offset + i * down + j * right
    return -1


def _locate(view: View, index: Any) -> int:
    if not isinstance(index, tuple) or len(index) != len(view.sizes):
        return -1
    offset = view.offset
    try:
        for i, size, step in zip(map(_index, index), view.sizes, view.steps, strict=True):
            if not 0 <= i < size:
                return -1
            offset += i * step
    except TypeError:
        return -1
    return offset


def _nowhere(view: View, index: Any) -> int:
    return -1


LOCATE = {1: _locate_1, 2: _locate_2}


def _poison(dtype: np.dtype) -> Any:
    """Return what a read gives that has no value: NaN, or 0 where the type has none."""
    if dtype.kind in "fc":
        return dtype.type(np.nan)
    return dtype.type(0) if dtype.kind in "iub" else np.zeros((), dtype)[()]


def _whole(index: tuple, axes: int) -> tuple | None:
    """Return ``index`` with a slice for each axis that it leaves out; None when it has too many."""
    count = sum(1 for i in index if i is not None and i is not Ellipsis)
    if count > axes:
        return None
    rest = (slice(None),) * (axes - count)
    if any(i is Ellipsis for i in index):
        place = next(n for n, i in enumerate(index) if i is Ellipsis)
        return (*index[:place], *rest, *index[place + 1 :])
    return (*index, *rest)


def _plain_slice(given: slice) -> slice:
    return slice(*(None if i is None else _index(i) for i in (given.start, given.stop, given.step)))


class Record:
    """One element of an array of records."""

    __slots__ = ("index", "view")

    def __init__(self, view: View, index: tuple) -> None:
        self.view, self.index = view, index


def require_alignment(array: Any, index: Any, size: Any) -> None:
    """Say in an emulation that the access at ``array[index]`` takes ``size`` bytes at once, and so must lie on them.

    The checked executor looks; for the others it does nothing. Global arrays start at a multiple of 256 bytes, shared
    ones at the alignment that they were made with (by default that of their dtype).
    """


# Where arrays come from ---------------------------------------------------------------------------------------------


def wrap_arguments(monitor: Monitor, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with each array as a view. Arrays that overlap in memory share a root."""
    arrays = dict(_arrays(arguments.items()))
    spans = sorted((np.lib.array_utils.byte_bounds(a), name) for name, a in arrays.items())
    views: dict[str, View] = {}
    end, root = -1, None
    for (low, high), name in spans:
        owner = _owner(arrays[name])
        if root is None or low >= end:
            start, written = (low, None) if owner is None else (_address(owner), _Written(owner))
            root, end = Root(monitor, start, GLOBAL_ALIGNMENT, written, "global"), high
        end = max(end, high)
        views[name] = View(root, arrays[name].view(np.ndarray), name)
    for name in arrays:  # in the order of the parameters
        traced(views[name])
    return {name: _with_views(name, value, views) for name, value in arguments.items()}


def _arrays(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays among named values, those inside tuples too: ``a[0]``."""
    for name, value in named:
        if isinstance(value, np.ndarray):
            yield name, value
        elif isinstance(value, tuple):
            yield from _arrays((f"{name}[{i}]", v) for i, v in enumerate(value))


def keep(args: tuple) -> Callable[[], None]:
    """Return a function that gives the arrays among arguments the contents that they have now."""
    arrays = [a for _, a in _arrays(("", value) for value in args) if a.flags.writeable]
    owners = {id(owner): owner for owner in map(_owner, arrays) if owner is not None}
    pairs = [(array, array.copy()) for array in arrays]
    pairs += [(o.written, o.written.copy()) for o in owners.values() if o.written is not None]

    def restore() -> None:
        for array, before in pairs:
            array[...] = before

    return restore


def _with_views(name: str, value: Any, views: dict[str, View]) -> Any:
    if isinstance(value, tuple):
        return tuple(_with_views(f"{name}[{i}]", v, views) for i, v in enumerate(value))
    return views[name] if isinstance(value, np.ndarray) else value


class _Written:
    """The bytes of an ``Unwritten`` array that have been written, assigned to as a bytearray is."""

    __slots__ = ("flags",)

    def __init__(self, owner: Unwritten) -> None:
        assert owner.written is not None
        self.flags = owner.written

    def __getitem__(self, span: slice) -> Any:
        return self.flags[span]

    def __setitem__(self, span: slice, value: bytes) -> None:
        self.flags[span] = True


def traced(view: View, site: tuple = (), dynamic: bool = False) -> View:
    """Return ``view``, made at a ``site`` in the source; where the launch is traced it is recorded from now on."""
    if view.monitor.recorder is not None:
        view.traced = view.monitor.recorder.array(view, site, dynamic)
    return view


def constant(monitor: Monitor, array: np.ndarray, name: str) -> View:
    """Return a global NumPy array, which Numba compiles into the kernel, as a view that cannot be written."""
    root = Root(monitor, _address(array), GLOBAL_ALIGNMENT, None, "private")
    return traced(View(root, array, name, constant=True))


def fresh(monitor: Monitor, shape: Any, dtype: Any, alignment: Any, name: str, scope: Scope, site: tuple = ()) -> View:
    """Return a shared array, or a local one, in which nothing has been written."""
    kind = as_dtype(dtype_kind(dtype))
    try:
        sizes = tuple(map(_index, shape)) if isinstance(shape, tuple) else (_index(shape),)
    except TypeError:
        raise TypeError("the shape of an array is a whole number, or a tuple of whole numbers") from None
    memory = np.full(math.prod(sizes) * kind.itemsize, 0xFF, np.uint8)
    root = Root(monitor, _address(memory), int(alignment or kind.alignment), bytearray(len(memory)), scope)
    return traced(View(root, memory.view(kind).reshape(sizes), name), site)


def dynamic(root: Root, memory: np.ndarray, dtype: Any, name: str, site: tuple) -> View:
    """Return the block's dynamic shared memory as an array of ``dtype``."""
    kind = as_dtype(dtype_kind(dtype))
    array = memory[: len(memory) // kind.itemsize * kind.itemsize].view(kind)
    return traced(View(root, array, name), site, dynamic=True)


def dynamic_memory(monitor: Monitor, size: int) -> tuple[Root, np.ndarray]:
    """Return ``size`` bytes of dynamic shared memory, in which nothing has been written."""
    memory = np.full(size, 0xFF, np.uint8)
    return Root(monitor, _address(memory), 16, bytearray(size), "shared"), memory
