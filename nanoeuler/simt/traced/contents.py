"""What is in the arrays after each step of a traced launch.

A trace has the accesses in the order in which they really happened here, one thread after the other, and the steps have
them in lockstep. An element shows what the access that really was the last, of those in the steps so far, read or left
there. For a kernel without races that is what a GPU would have in memory, and after the last step it is what the launch
left, whatever the kernel.

Atomics are where lockstep and what happened here differ: of a counter in a loop the first thread sees its own rounds
only. An element to which threads add (``atomic.add`` and ``sub``) shows the sum of what was added in the steps so far;
of floats its last digit may be another than in any real order. Elements that other atomics change show what really was
there, which may have in it what other threads do in later steps; so do locks, for which threads wait in a loop.

Shared and local arrays start with nothing: an element is known from its first write on. In a trace of some warps only,
what the others write comes to light when it is read.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from nanoeuler.simt.traced.recorder import ATOMIC, READ, TracedArray
from nanoeuler.simt.traced.steps import ENTER, Steps


@dataclass(frozen=True)
class Leaf:
    """The plain numbers that an array's elements consist of: for records one leaf per field, else one."""

    name: str  # "x", "points.mass"
    dtype: np.dtype
    offset: int  # in bytes within the element


@dataclass(frozen=True)
class History:
    """How one leaf of an array changes.

    A shared array is there once per block, a local one once per call and thread: ``owners`` has (block,) or (block,
    thread, frame) of each, () for a global array. ``initial`` (elements,) and ``known`` (elements,) bool are what each
    starts with. The changes are sorted by step; of each there is ``steps``, ``owner`` (its place in ``owners``),
    ``elements`` (flat, C order) and ``values``, all (changes,).
    """

    shape: tuple[int, ...]
    initial: np.ndarray
    known: np.ndarray
    owners: list[tuple[int, ...]]
    steps: np.ndarray
    owner: np.ndarray
    elements: np.ndarray
    values: np.ndarray

    def at(self, step: int, owner: tuple[int, ...] = ()) -> tuple[np.ndarray, np.ndarray]:
        """Return the elements after a step, and which of them are known, in the array's shape."""
        values, known = self.initial.copy(), self.known.copy()
        if owner in self.owners:
            done = int(np.searchsorted(self.steps, step, "right"))
            mine = np.flatnonzero(self.owner[:done] == self.owners.index(owner))
            values[self.elements[mine]] = self.values[mine]  # of several changes of an element the last counts
            known[self.elements[mine]] = True
        return values.reshape(self.shape), known.reshape(self.shape)


def leaves(array: TracedArray) -> list[Leaf]:
    """Return what an array's elements consist of.

    >>> point = TracedArray(0, "p", "local", (3,), (8,), np.dtype([("x", "f4"), ("n", "i4")]), 0, 0, 0, None)
    >>> [(leaf.name, str(leaf.dtype), leaf.offset) for leaf in leaves(point)]
    [('p.x', 'float32', 0), ('p.n', 'int32', 4)]
    """
    return list(_leaves(array.name, array.dtype, 0))


def _leaves(name: str, dtype: np.dtype, offset: int) -> Iterator[Leaf]:
    if dtype.subdtype:
        inner, shape = dtype.subdtype
        for n, index in enumerate(np.ndindex(*shape)):
            yield from _leaves(f"{name}[{', '.join(map(str, index))}]", inner, offset + n * inner.itemsize)
    elif dtype.fields:
        for field in dtype.names or ():
            yield from _leaves(f"{name}.{field}", dtype.fields[field][0], offset + dtype.fields[field][1])
    else:
        yield Leaf(name, dtype, offset)


def elements(array: TracedArray, offsets: np.ndarray) -> np.ndarray:
    """Return the flat numbers of the elements at byte ``offsets`` of the array's memory; -1 where none starts there."""
    offsets = np.asarray(offsets, np.int64)
    if 0 in array.shape:
        return np.full(len(offsets), -1)
    if not array.shape:
        return np.where(offsets == array.lead, 0, -1)
    index = array.index(offsets)
    inside = np.all((index >= 0) & (index < array.shape), axis=1)
    inside &= array.lead + index @ np.array(array.strides, np.int64) == offsets
    return np.where(inside, np.ravel_multi_index(tuple(index.T), array.shape, mode="clip"), -1)


@dataclass(frozen=True)
class Touched:
    """What accesses touch, a column for each property: the number of a leaf of their array, and a flat element.

    Where an access is of another width than the array's elements, it is the first that it touches; -1 where none is.
    """

    leaf: np.ndarray
    element: np.ndarray


@dataclass(frozen=True)
class Events:
    """Accesses of one memory in the order in which they happened, a column for each property.

    ``raw`` (events, 16) uint8 has the bytes of the value, of which ``sizes`` count. ``adds`` says where an atomic adds
    to what is there, ``reads`` where nothing is written.
    """

    steps: np.ndarray
    owner: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    raw: np.ndarray
    adds: np.ndarray
    reads: np.ndarray

    def where(self, which: np.ndarray) -> "Events":
        """Return some of the events."""
        return Events(*(getattr(self, field.name)[which] for field in fields(self)))


class Contents:
    """The histories of a trace's arrays, each made when it is first asked for."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.trace = steps, steps.trace
        self._histories: dict[tuple[int, str], History] = {}

    def history(self, array: TracedArray, leaf: Leaf) -> History:
        """Return how a leaf of an array changes."""
        key = array.number, leaf.name
        if key not in self._histories:
            self._histories[key] = self._history(array, leaf)
        return self._histories[key]

    def touched(self, array: TracedArray, which: np.ndarray) -> Touched:
        """Return what some of the trace's accesses, all of one array, touch."""
        offsets = self.trace.accesses["offset"][which]
        leaf, element = np.zeros(len(offsets), np.int64), np.full(len(offsets), -1)
        for number, found in enumerate(leaves(array)):
            size = found.dtype.itemsize
            hit = _hits(array, found, offsets)
            leaf = np.where(hit >= 0, number, leaf)
            element = np.where(hit >= 0, hit // size, element)
        return Touched(leaf, element)

    def _history(self, array: TracedArray, leaf: Leaf) -> History:
        count, start = int(np.prod(array.shape)), array.initial
        packed = np.zeros(count, array.dtype) if start is None else np.ascontiguousarray(start).reshape(-1)
        initial = np.ndarray(count, leaf.dtype, packed.tobytes(), leaf.offset, packed.strides).copy()
        known = np.full(count, start is not None)
        owners, events = self._events(array)
        numbers = elements(array, events.offsets - leaf.offset)
        exact = (numbers >= 0) & (events.sizes == leaf.dtype.itemsize)
        if _touched(array, leaf, events, ~exact):
            changes = _by_bytes(array, leaf, events, initial, known)
        else:
            values = events.raw[exact, : leaf.dtype.itemsize].copy().view(leaf.dtype).reshape(-1)
            changes = _changes(events.where(exact), numbers[exact], values, initial, known)
        return History(array.shape, initial, known, owners, *changes)

    def _events(self, array: TracedArray) -> tuple[list[tuple[int, ...]], Events]:
        """Return the owners of an array's memory, and what happens to it."""
        same = [a.number for a in self.trace.arrays if a.memory == array.memory]
        which = np.flatnonzero(np.isin(self.trace.accesses["array"], same))
        sizes, raw = self._bytes(which)
        a = self.trace.accesses[which]
        if array.scope in ("shared", "local"):  # such a read may have met what nothing wrote, which is all ones here
            ones = np.all((raw == 0xFF) | (np.arange(16) >= sizes[:, None]), axis=1)
            kept = (a["kind"] != READ) | ~ones
            which, a, sizes, raw = which[kept], a[kept], sizes[kept], raw[kept]
        columns = [a["block"]] if array.scope == "shared" else []
        columns = [a["block"], a["thread"], self._frames(array, a)] if array.scope == "local" else columns
        of_each = list(zip(*(column.tolist() for column in columns), strict=True)) or [()] * len(a)
        owners = {owner: number for number, owner in enumerate(dict.fromkeys(of_each))}
        owner = np.array([owners[o] for o in of_each], np.int64)
        adds = self._adds[a["instruction"]] & (a["kind"] == ATOMIC)
        return list(owners), Events(
            self.steps.step_of_access[which], owner, a["offset"], sizes, raw, adds, a["kind"] == READ
        )

    @functools.cached_property
    def _adds(self) -> np.ndarray:
        """Which instructions add atomically, by number, bool."""
        called = [i.text.partition("(")[0].rpartition(".")[2] for i in self.trace.instructions]
        return np.array([name in ("add", "sub") for name in called], np.bool_)

    def _bytes(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sizes and bytes of the values of accesses; a trace keeps a complex128 as a complex64."""
        a, dtypes = self.trace.accesses[which], self.trace.dtypes
        sizes = np.array([d.itemsize for d in dtypes] or [0], np.int64)[a["dtype"]]
        raw = np.zeros((len(a), 16), np.uint8)
        raw[:, :8] = a["bits"].copy().view(np.uint8).reshape(-1, 8)
        wide = sizes == 16
        raw[wide] = raw[wide, :8].copy().view(np.complex64).astype(np.complex128).view(np.uint8).reshape(-1, 16)
        return sizes, raw

    def _frames(self, array: TracedArray, accesses: np.ndarray) -> np.ndarray:
        """Return the call in which a local array was made, for each access: one that calls those that are made now."""
        executions, which = np.unique(accesses["execution"], return_inverse=True)
        return np.array([self.frame(array, int(e)) for e in executions], np.int64)[which.reshape(-1)]

    def frame(self, array: TracedArray, execution: int) -> int:
        """Return the call, of those that an execution is in, in which a local array was made: its execution.

        Of one that no variable was assigned, ``fill(cuda.local.array(3, float32))``, it is the call that has it.
        """
        here = frame = self.steps.frame_of[execution]
        while frame and (frame, array.name) not in self._made:
            frame = self.steps.frame_of[self.trace.executions[frame][0]]
        return frame or here

    @functools.cached_property
    def _made(self) -> set[tuple[int, str]]:
        """The calls, by execution, and the names of arrays that they assign: to variables, not to parameters."""
        arrays = {(v.execution, v.order, v.name) for v in self.trace.variables if isinstance(v.value, str)}
        return {(self.steps.frame_of[e], n) for e, o, n in arrays if self.steps.cut(e, o).kind != ENTER}


Changes = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # steps, owner, elements, values


def _changes(
    events: Events, numbers: np.ndarray, values: np.ndarray, initial: np.ndarray, known: np.ndarray
) -> Changes:
    """Return the changes of elements ``numbers``, by events that leave ``values`` there."""
    cells, time = events.owner * len(initial) + numbers, np.arange(len(numbers))
    added = np.isin(cells, cells[events.adds])
    kept = ~(added & events.reads)
    sorted_ = np.flatnonzero(added & kept)
    sorted_ = sorted_[np.argsort(cells[sorted_], kind="stable")]
    for which in np.split(sorted_, np.flatnonzero(np.diff(cells[sorted_])) + 1) if len(sorted_) else []:
        first = numbers[which[0]]
        start = initial[first].item() if known[first] else None
        order, sums = _sums(events.steps[which], values[which], events.adds[which], start)
        values[which[order]] = sums
        time[which[order]] = np.arange(len(order))
    return _latest(events.steps[kept], events.owner[kept], numbers[kept], values[kept], time[kept], initial, known)


def _sums(steps: np.ndarray, values: np.ndarray, adds: np.ndarray, start: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the lockstep order of what happens to one element, and what is in it after each.

    ``values`` are what was there when it really happened. What an atomic added is the difference to what was there
    before. Where all that really came before has been done, it is the value itself.
    """
    really = values.tolist()
    before = [start, *really][: len(really)]
    base, based = start, -1  # the value to which is added, and when it was written
    done: list[int] = []
    total: Any = 0
    count, latest = 0, -1  # of the additions to it
    sums = []
    order = np.lexsort((np.arange(len(steps)), steps))
    for n in order.tolist():
        if adds[n] and before[n] is not None:
            done.append(n)
            fresh = [n]
        elif n > based:
            base, based, total, count, latest = really[n], n, 0, 0, n
            fresh = done
        else:
            fresh = []
        for k in fresh:
            if k > based:
                total, count, latest = total + really[k] - before[k], count + 1, max(latest, k)
        sums.append(really[latest] if latest - based == count and latest >= 0 else base + total)
    if values.dtype.kind != "f":  # integers wrap
        sums = [total & (1 << 8 * values.itemsize) - 1 for total in sums]
        return order, np.array(sums, f"u{values.itemsize}").view(values.dtype)
    return order, np.array(sums, values.dtype)


def _latest(
    steps: np.ndarray,
    owner: np.ndarray,
    numbers: np.ndarray,
    values: np.ndarray,
    time: np.ndarray,
    initial: np.ndarray,
    known: np.ndarray,
) -> Changes:
    """Return the changes of elements by accesses at some ``time``: one that is earlier than another changes nothing.

    Of several changes in one step only the last is kept.
    """
    cells = owner * len(initial) + numbers
    order = np.lexsort((time, steps, cells))
    most = int(time.max(initial=0)) + 1
    ordered = cells[order] * most + time[order]
    order = order[np.maximum.accumulate(ordered) == ordered]
    steps, owner, numbers, values = (column[order] for column in (steps, owner, numbers, values))
    cells, raw = owner * len(initial) + numbers, _raw(values)
    last = np.ones(len(steps), np.bool_)
    last[:-1] = (cells[1:] != cells[:-1]) | (steps[1:] != steps[:-1])
    steps, owner, numbers, values, cells, raw = (c[last] for c in (steps, owner, numbers, values, cells, raw))
    first = np.ones(len(steps), np.bool_)
    first[1:] = cells[1:] != cells[:-1]
    same = np.zeros(len(steps), np.bool_)
    same[1:] = np.all(raw[1:] == raw[:-1], axis=1)
    same[first] = (known[numbers] & np.all(_raw(initial)[numbers] == raw, axis=1))[first]
    order = np.flatnonzero(~same)
    order = order[np.argsort(steps[order], kind="stable")]
    return steps[order], owner[order], numbers[order], values[order]


def _raw(values: np.ndarray) -> np.ndarray:
    """Return the bytes of values, (values, itemsize)."""
    return values.view(np.uint8).reshape(len(values), values.itemsize)


def _hits(array: TracedArray, leaf: Leaf, offsets: np.ndarray) -> np.ndarray:
    """Return which byte of a leaf, counted through all elements, lies at each byte offset; -1 where none does."""
    found = np.full(len(offsets), -1)
    for within in range(leaf.dtype.itemsize):
        numbers = elements(array, offsets - leaf.offset - within)
        found = np.where(numbers >= 0, numbers * leaf.dtype.itemsize + within, found)
    return found


def _touched(array: TracedArray, leaf: Leaf, events: Events, which: np.ndarray) -> bool:
    """Whether some events touch the bytes of a leaf."""
    pairs = np.unique(np.stack([events.offsets[which], events.sizes[which]]), axis=1)
    offsets = [pairs[0][pairs[1] > n] + n for n in range(16)]
    return bool(np.any(_hits(array, leaf, np.unique(np.concatenate(offsets))) >= 0))


def _by_bytes(array: TracedArray, leaf: Leaf, events: Events, initial: np.ndarray, known: np.ndarray) -> Changes:
    """Return the changes of elements that are also accessed as something else: parts of them, or several at once."""
    rows, places = np.nonzero(np.arange(16) < events.sizes[:, None])
    hits = _hits(array, leaf, events.offsets[rows] + places)
    rows, places, hits = (column[hits >= 0] for column in (rows, places, hits))
    size = leaf.dtype.itemsize
    parts = events.steps[rows], events.owner[rows], hits, events.raw[rows, places], np.arange(len(rows))
    changes = _latest(*parts, _raw(initial).reshape(-1), np.repeat(known, size))
    bytes_: dict[tuple[int, int], tuple[bytearray, set[int]]] = {}
    made: dict[tuple[int, int, int], bytes] = {}
    for step, owner, hit, value in zip(*(column.tolist() for column in changes), strict=True):
        number, within = divmod(hit, size)
        start = bytearray(_raw(initial)[number].tobytes()), set(range(size)) if known[number] else set()
        content, written = bytes_.setdefault((owner, number), start)
        content[within] = value
        written.add(within)
        if len(written) == size:
            made[step, owner, number] = bytes(content)
    columns = np.array(list(made), np.int64).reshape(-1, 3).T
    return columns[0], columns[1], columns[2], np.frombuffer(b"".join(made.values()), leaf.dtype)
