"""The requests of a trace: what each warp instruction asks of global or of shared memory, lane by lane.

A request is counted as the compiler makes it. That differs from what is recorded in three cases, each seen in the
machine code of numba-cuda 0.30:

- A complex number in global memory is two requests, one for the real parts and one for the imaginary (``LDG.E`` twice):
  complex arrays are given the alignment of their parts. In shared memory, which it places, it is one (``LDS.64``).
- A field of records whose dtype is packed, not made with ``align=True``, is moved byte by byte (``LDG.E.U8``).
- What stands for a vector instruction (``@simt.emulates``) takes one element after the other; elements that lie one
  behind the other are one request of up to 16 bytes a lane.
"""

from dataclasses import dataclass

import numpy as np

from nanoeuler.simt.launch import WARP_SIZE
from nanoeuler.simt.traced.recorder import ALIGNMENT, ATOMIC
from nanoeuler.simt.traced.result import Trace

VECTOR = 16  # bytes: the widest access of a lane


@dataclass(frozen=True)
class Requests:
    """Requests by number, in the order of block, warp and program. All but ``first`` have an entry for each lane.

    Addresses are bytes from the start of a layout in which pieces of memory follow each other: global memory as it is
    aligned, ``past`` included; a shared array begins at a multiple of 256 bytes, so in bank 0.
    """

    request: np.ndarray  # int64
    access: np.ndarray  # which of the trace's accesses
    lane: np.ndarray  # 0 to 31
    address: np.ndarray
    size: np.ndarray  # bytes
    first: np.ndarray  # (requests,) the first entry of each request

    def __len__(self) -> int:
        return len(self.first)


def requests(trace: Trace, scope: str) -> Requests:
    """Return the requests of a scope, "global" or "shared"."""
    fits = np.array([a.scope == scope for a in trace.arrays], np.bool_)
    access = np.flatnonzero(fits[trace.accesses["array"]])
    size = itemsizes(trace)[access]
    access, size = _vectors(trace, access, size)
    part = np.where(size == itemsizes(trace)[access], _parts(trace, access, scope), size)
    count = size // part
    entry = np.repeat(np.arange(len(access)), count)
    number = np.arange(len(entry)) - np.repeat(np.cumsum(count) - count, count)
    access, size = access[entry], part[entry]
    request = trace.warp_instructions.of_access[access] * VECTOR + number
    _, first, request = np.unique(request, return_index=True, return_inverse=True)
    address = addresses(trace)[access] + number * size
    return Requests(request, access, trace.accesses["thread"][access] % WARP_SIZE, address, size, first)


def itemsizes(trace: Trace) -> np.ndarray:
    """Return how many bytes each access is of, (accesses,) int64."""
    return np.array([d.itemsize for d in trace.dtypes], np.int64)[trace.accesses["dtype"]]


def addresses(trace: Trace) -> np.ndarray:
    """Return the address of each access in the layout of :class:`Requests`, (accesses,) int64."""
    a = trace.accesses
    memories = max((array.memory for array in trace.arrays), default=-1) + 1
    extent, past = np.zeros(memories, np.int64), np.zeros(memories, np.int64)
    memory = np.array([array.memory for array in trace.arrays], np.int64)
    past[memory] = [array.past for array in trace.arrays]
    memory = memory[a["array"]]
    np.maximum.at(extent, memory, past[memory] + a["offset"] + itemsizes(trace))
    start = np.cumsum(-(-extent // ALIGNMENT) * ALIGNMENT)
    return np.concatenate([[0], start])[memory] + past[memory] + a["offset"]


def _parts(trace: Trace, access: np.ndarray, scope: str) -> np.ndarray:
    """Return of how many bytes the parts are in which an instruction each moves an element."""
    whole = [d.itemsize // 2 if d.kind == "c" and scope == "global" else d.itemsize for d in trace.dtypes]
    packed = np.array([a.dtype.names is not None and not a.dtype.isalignedstruct for a in trace.arrays], np.bool_)
    a = trace.accesses
    return np.where(packed[a["array"][access]], 1, np.array(whole, np.int64)[a["dtype"][access]])


def _vectors(trace: Trace, access: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the accesses with those of a vector instruction made one: the first of them, with the size of all."""
    a = trace.accesses
    called = np.array([i.text.endswith(")") for i in trace.instructions], np.bool_)
    emulated = np.flatnonzero(called[a["instruction"][access]] & (a["kind"][access] != ATOMIC))
    chosen = access[emulated]
    if not trace.repetitions[chosen].any():
        return access, size
    keys = trace.repetitions[chosen], trace.ranks[chosen], a["thread"][chosen], a["block"][chosen]
    order = emulated[np.lexsort(keys)]
    start = _vector_starts(trace, access[order], size[order])
    size = size.copy()
    size[order[start]] = np.add.reduceat(size[order], np.flatnonzero(start))
    kept = np.ones(len(access), np.bool_)
    kept[order[~start]] = False
    return access[kept], size[kept]


def _vector_starts(trace: Trace, access: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return which accesses, sorted by thread and time, begin a vector: those that do not continue the one before."""
    a = trace.accesses[access]
    apart = np.ones(len(a), np.bool_)
    apart[1:] = a["offset"][1:] != a["offset"][:-1] + size[:-1]
    for values in (trace.ranks[access], a["thread"], a["block"], a["array"], a["kind"]):
        apart[1:] |= values[1:] != values[:-1]
    chain = np.maximum.accumulate(np.where(apart, np.arange(len(a)), 0))
    piece = (a["offset"] - a["offset"][chain]) // VECTOR
    apart[1:] |= piece[1:] != piece[:-1]
    return apart
