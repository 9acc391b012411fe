"""A trace in numbers: for each line, each array and in total what was moved, what was computed, which lanes took part.

What a number means, and the document that it follows, stands in ``transactions.py`` for memory, in ``arithmetic.py``
for floating-point operations, in ``reuse.py`` for loads that could be spared, in ``requests.py`` for what a warp
instruction is.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field

import numpy as np

from nanoeuler.simt.launch import WARP_SIZE
from nanoeuler.simt.traced.arithmetic import cost, precision
from nanoeuler.simt.traced.recorder import ATOMIC, READ, WRITE, Instruction
from nanoeuler.simt.traced.requests import Requests, itemsizes, requests
from nanoeuler.simt.traced.result import ACTIONS, Trace
from nanoeuler.simt.traced.reuse import repeated_loads
from nanoeuler.simt.traced.transactions import (
    SECTOR,
    collisions,
    distinct_bytes,
    ideal_sectors,
    touched_sectors,
    wavefronts,
)

Place = tuple[str, int]  # file and line
Touch = tuple[str, str]  # name of an array, and what was done: "reads", "writes", "atomically updates"


@dataclass(frozen=True)
class Traffic:
    """Accesses of global memory. Sums over requests: warp instructions, a complex number's two parts each for itself.

    ``repeated``, ``read_back`` and ``repeated_in_block`` count single threads' loads of what the same thread had loaded
    before, of what it had stored itself, and of what another thread of its block had loaded. ``collisions`` are atomics
    that wait for another lane of their warp instruction, one with the same address: 31 where all 32 lanes have it.
    """

    accesses: int = 0  # of single threads
    requests: int = 0
    sectors: int = 0  # of 32 bytes, each once in a request
    ideal_sectors: int = 0  # the least that the bytes asked for would take
    bytes_asked: int = 0  # each byte once in a request
    repeated: int = 0
    read_back: int = 0
    repeated_in_block: int = 0
    collisions: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def bytes_moved(self) -> int:
        """Bytes of all sectors."""
        return SECTOR * self.sectors

    @property
    def efficiency(self) -> float:
        """What share of the bytes moved was asked for: 1 at best, and where nothing was moved."""
        return self.bytes_asked / self.bytes_moved if self.sectors else 1.0

    @property
    def spared(self) -> int:
        """Loads that could be spared: those that repeat another, or read back a store."""
        return self.repeated + self.read_back + self.repeated_in_block

    @property
    def sectors_per_request(self) -> float:
        """Sectors of a warp instruction on average: 4 for 32 lanes with 4 bytes each, side by side and aligned."""
        return self.sectors / self.requests if self.requests else 0.0


@dataclass(frozen=True)
class Banks:
    """Accesses of shared memory. Sums over requests (warp instructions)."""

    accesses: int = 0
    requests: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0

    def __add__(self, other: "Banks") -> "Banks":
        return Banks(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond the least number possible."""
        return self.wavefronts - self.ideal_wavefronts

    @property
    def ways(self) -> float:
        """How many times as long it takes as without conflicts: 1 at best, 32 at worst."""
        return self.wavefronts / self.ideal_wavefronts if self.ideal_wavefronts else 1.0


@dataclass
class Counts:
    """What a line did, or several together.

    Attributes:
        executions: how often a warp came to it, with at least one lane.
        lanes_active: lanes that came along, summed over executions.
        lanes_there: lanes that those warps have: 32, less in the last one of a block of other sizes.
        accesses: by scope ("global", "shared", "local", "constant") and action ("reads", "writes", ...).
        global_memory: by array and action.
        shared_memory: likewise.
        operations: how often threads computed, by operator or function and type of the result.
    """

    executions: int = 0
    lanes_active: int = 0
    lanes_there: int = 0
    accesses: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    global_memory: dict[Touch, Traffic] = field(default_factory=lambda: defaultdict(Traffic))
    shared_memory: dict[Touch, Banks] = field(default_factory=lambda: defaultdict(Banks))
    operations: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))

    @property
    def lanes(self) -> float:
        """Lanes active on average."""
        return self.lanes_active / self.executions if self.executions else 0.0

    @property
    def lane_share(self) -> float:
        """What share of the lanes that there are took part: 1 where none is idle, and where nobody came."""
        return self.lanes_active / self.lanes_there if self.lanes_there else 1.0

    @property
    def loads(self) -> Traffic:
        """Loads of global memory."""
        return self._traffic("reads")

    @property
    def stores(self) -> Traffic:
        """Stores to global memory."""
        return self._traffic("writes")

    @property
    def atomics(self) -> Traffic:
        """Atomics on global memory."""
        return self._traffic("atomically updates")

    @property
    def traffic(self) -> Traffic:
        """All accesses of global memory."""
        return sum(self.global_memory.values(), Traffic())

    def _traffic(self, action: str) -> Traffic:
        return sum((t for (_, done), t in self.global_memory.items() if done == action), Traffic())

    @property
    def banks(self) -> Banks:
        """All accesses of shared memory."""
        return sum(self.shared_memory.values(), Banks())

    @property
    def flops(self) -> int:
        """Floating-point operations; a fused multiply-add is two."""
        return sum(self.flops_by_precision.values())

    @property
    def flops_by_precision(self) -> dict[str, int]:
        """Floating-point operations by the type that they are done in: "float16", "float32", "float64"."""
        found: dict[str, int] = defaultdict(int)
        for (name, dtype), count in self.operations.items():
            kind, each = cost(name, dtype)
            if kind == "flops":
                found[precision(dtype)] += each * count
        return dict(found)

    @property
    def special(self) -> int:
        """Calls of special functions: square roots, exponentials, sines ..."""
        return self._counted("special")

    @property
    def integer(self) -> int:
        """Integer operations, as far as the source has them: addresses are computed besides."""
        return self._counted("integer")

    def _counted(self, kind: str) -> int:
        found = ((cost(name, dtype), count) for (name, dtype), count in self.operations.items())
        return sum(each * count for (its_kind, each), count in found if its_kind == kind)


@dataclass
class LineNumbers(Counts):
    """A line of source. One that has part of a longer statement has the accesses and operations of that part."""

    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class ArrayNumbers:
    """What was done with an array. Of shared and local ones there is one for each block or thread that made it."""

    name: str
    scope: str
    shape: tuple[int, ...]
    dtype: np.dtype
    loads: int
    stores: int
    atomics: int
    elements: int  # that were touched; of records each field counts
    elements_loaded: int
    bytes: int  # of the elements that were touched

    @property
    def loads_per_element(self) -> float:
        """How often an element that was loaded was loaded, on average."""
        return self.loads / self.elements_loaded if self.elements_loaded else 0.0


@dataclass
class Totals(Counts):
    """The whole trace.

    ``bytes_moved`` counts each request's sectors: what global memory and its caches deliver together.
    ``bytes_distinct`` counts a sector once if it was read, and once more if it was written: what memory itself must
    move however good the caches are.
    """

    bytes_distinct: int = 0

    @property
    def bytes_moved(self) -> int:
        """Bytes of the sectors of all requests."""
        return self.traffic.bytes_moved

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: floating-point operations for each byte moved."""
        return _ratio(self.flops, self.bytes_moved)

    @property
    def intensity_distinct(self) -> float:
        """Arithmetic intensity if caches were perfect."""
        return _ratio(self.flops, self.bytes_distinct)


def _ratio(flops: int, moved: int) -> float:
    return flops / moved if moved else (math.inf if flops else 0.0)


@dataclass(frozen=True)
class Numbers:
    """The numbers of a trace: lines by file and line, the kernel's file first; arrays in the order of its arrays."""

    kernel: str
    lines: dict[Place, LineNumbers]
    arrays: list[ArrayNumbers]
    totals: Totals


def numbers(trace: Trace) -> Numbers:
    """Return what a trace amounts to.

    >>> import numpy as np
    >>> from numba import cuda
    >>> from nanoeuler import simt
    >>> @cuda.jit
    ... def every_other(out, x):
    ...     i = cuda.grid(1)
    ...     out[i] = 2 * x[2 * i]
    >>> found = numbers(simt.trace(every_other, 1, 32, (np.zeros(32, np.float32), np.ones(64, np.float32))))
    >>> found.totals.loads.sectors, found.totals.loads.efficiency  # 256 bytes are fetched, 128 used
    (8, 0.5)
    >>> found.totals.stores.sectors, found.totals.stores.efficiency
    (4, 1.0)
    """
    lines: dict[Place, LineNumbers] = {}
    for place, there in sorted(_divergence(trace).items(), key=lambda item: (item[0][0] != trace.file, item[0])):
        lines[place] = LineNumbers(*there, file=place[0], line=place[1])
    reached = [(i.file, i.line) for i in _reached(trace)]
    for place in [*reached, *(key[:2] for key in trace.operations)]:  # some stand in a statement's further lines
        lines.setdefault(place, LineNumbers(file=place[0], line=place[1]))
    for (file, line, name), tally in trace.operations.items():
        if trace.lines is None or (line in trace.lines and file == trace.file):
            for kind, count in tally.items():
                lines[file, line].operations[name, _type_name(kind)] += count
    moved = requests(trace, "global")
    _add_accesses(trace, lines)
    _add_traffic(trace, moved, lines)
    _add_banks(trace, lines)
    totals = Totals(bytes_distinct=_bytes_distinct(trace, moved))
    for one in lines.values():
        _add(totals, one)
    return Numbers(trace.kernel, lines, list(_arrays(trace)), totals)


def _type_name(kind: type) -> str:
    return np.dtype(kind).name if issubclass(kind, np.generic) else kind.__name__


def _add(total: Counts, one: Counts) -> None:
    total.executions += one.executions
    total.lanes_active += one.lanes_active
    total.lanes_there += one.lanes_there
    for name in ("accesses", "global_memory", "shared_memory", "operations"):
        into = getattr(total, name)
        for key, value in getattr(one, name).items():
            into[key] = into[key] + value


def _divergence(trace: Trace) -> dict[Place, tuple[int, int, int]]:
    """Return executions by warps, lanes that were active and lanes that there are, by line."""
    visits = trace.visits
    entered = np.array([block for _, block, _ in trace.executions], np.int64)[visits["execution"]]
    warps = -(-trace.launch.block_threads // WARP_SIZE)
    warp = visits["block"].astype(np.int64) * warps + visits["thread"] // WARP_SIZE
    group, first, lanes = np.unique(
        visits["execution"] * np.int64(warps * trace.launch.blocks) + warp, return_index=True, return_counts=True
    )
    there = np.minimum(WARP_SIZE, trace.launch.block_threads - warp[first] % warps * WARP_SIZE)
    size = len(trace.basic_blocks)
    sums = (np.bincount(entered[first], weights, size) for weights in (np.ones_like(group), lanes, there))
    by_block = np.stack(list(sums)).astype(np.int64)
    places = [{(b.file, s.line) for s in b.statements} for b in trace.basic_blocks]
    for instruction in _reached(trace):
        places[instruction.block].add((instruction.file, instruction.line))
    found: dict[Place, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for number, counted in enumerate(by_block.T):
        if counted.any():
            for place in places[number]:
                a, b, c = found[place]
                found[place] = a + int(counted[0]), b + int(counted[1]), c + int(counted[2])
    return found


def _reached(trace: Trace) -> list[Instruction]:
    """Return the instructions at which a thread accessed memory or waited."""
    accessed = np.unique(trace.accesses["instruction"]).tolist()
    return [trace.instructions[n] for n in sorted({*accessed, *(wait.instruction for wait in trace.waits)})]


def _add_accesses(trace: Trace, lines: dict[Place, LineNumbers]) -> None:
    """Count accesses by scope and action, and loads that are repeated."""
    found = repeated_loads(trace)
    keys = _keys(trace, np.arange(len(trace.accesses)))
    columns = 1, found.by_thread, found.read_back, found.in_block
    for place, array, action, (accesses, repeated, back, in_block) in _by_key(trace, keys, columns):
        one = lines[place]
        one.accesses[array.scope, action] += accesses
        if array.scope == "global":
            counted = Traffic(accesses, repeated=repeated, read_back=back, repeated_in_block=in_block)
            one.global_memory[array.name, action] += counted


def _add_traffic(trace: Trace, moved: Requests, lines: dict[Place, LineNumbers]) -> None:
    """Count the transactions of global memory."""
    sectors = np.bincount(touched_sectors(moved.request, moved.address, moved.size)[0], minlength=len(moved))
    asked = distinct_bytes(moved.request, moved.address, moved.size, len(moved))
    atomic = trace.accesses["kind"][moved.access] == ATOMIC
    collided = collisions(moved.request[atomic], moved.address[atomic], len(moved))
    keys = _keys(trace, moved.access[moved.first])
    for place, array, action, sums in _by_key(trace, keys, (1, sectors, ideal_sectors(asked), asked, collided)):
        done, taken, ideal, bytes_asked, waiting = sums
        counted = Traffic(0, done, taken, ideal, bytes_asked, collisions=waiting)
        lines[place].global_memory[array.name, action] += counted


def _add_banks(trace: Trace, lines: dict[Place, LineNumbers]) -> None:
    """Count the wavefronts of shared memory."""
    moved = requests(trace, "shared")
    atomic = trace.accesses["kind"][moved.access] == ATOMIC
    taken, least = wavefronts(moved.request, moved.lane, moved.address, moved.size, atomic, len(moved))
    keys = _keys(trace, moved.access[moved.first])
    lanes = np.bincount(moved.request, minlength=len(moved))
    for place, array, action, sums in _by_key(trace, keys, (lanes, 1, taken, least)):
        lines[place].shared_memory[array.name, action] += Banks(*sums)


def _keys(trace: Trace, access: np.ndarray) -> np.ndarray:
    """Return a number for what accesses have in common: instruction, array and kind."""
    instruction, array, kind = (trace.accesses[name][access] for name in ("instruction", "array", "kind"))
    return (instruction.astype(np.int64) * len(trace.arrays) + array) * len(ACTIONS) + kind


def _by_key(trace: Trace, keys: np.ndarray, counted: Iterable) -> Iterator:
    """Yield place, array, action and the sums of what is counted, for each key that there is."""
    unique, which = np.unique(keys, return_inverse=True)
    columns = (np.bincount(which, np.broadcast_to(c, len(keys)), len(unique)).astype(np.int64) for c in counted)
    for key, *sums in zip(unique.tolist(), *(column.tolist() for column in columns), strict=True):
        rest, kind = divmod(key, len(ACTIONS))
        number, array = divmod(rest, len(trace.arrays))
        instruction = trace.instructions[number]
        yield (instruction.file, instruction.line), trace.arrays[array], ACTIONS[kind], sums


def _bytes_distinct(trace: Trace, moved: Requests) -> int:
    """Return the bytes of sectors that were read, and of those that were written; an atomic does both."""
    kind = trace.accesses["kind"][moved.access]
    total = 0
    for fits in (kind != WRITE, kind != READ):
        everything = np.zeros(int(fits.sum()), np.int64)
        total += len(touched_sectors(everything, moved.address[fits], moved.size[fits])[0])
    return SECTOR * total


def _arrays(trace: Trace) -> Iterator[ArrayNumbers]:
    a, sizes = trace.accesses, itemsizes(trace)
    order = np.argsort(a["array"], kind="stable")
    ends = np.searchsorted(a["array"][order], np.arange(len(trace.arrays) + 1))
    threads = trace.launch.block_threads
    for array, start, end in zip(trace.arrays, ends, ends[1:], strict=False):
        chosen = order[start:end]
        element, kind = a["offset"][chosen], a["kind"][chosen]
        if array.scope in ("shared", "local"):  # each block, or thread, has its own
            owner = a["block"][chosen].astype(np.int64)
            if array.scope == "local":
                owner = owner * threads + a["thread"][chosen]
            element = owner * (int(element.max(initial=0)) + 1) + element
        _, first = np.unique(element, return_index=True)
        loads, stores, atomics = np.bincount(kind, minlength=3).tolist()
        yield ArrayNumbers(
            *(array.name, array.scope, array.shape, array.dtype, loads, stores, atomics),
            elements=len(first),
            elements_loaded=len(np.unique(element[kind == READ])),
            bytes=int(sizes[chosen[first]].sum()),
        )
