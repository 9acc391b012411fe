"""Loads of global memory that bring what was already there: in the same thread, or in another of its block.

"Before" is the order of the program with the lanes of a warp in step, the warps of a block one after the other at each
instruction, blocks in order of their numbers. Lanes of one warp instruction load at the same time: none of them is
before the others. An element is known by its first byte; a write to it by any thread that was traced makes it new.

The compiler keeps some values in registers by itself, and caches make many of these loads cheap. They still cost an
instruction each, and the caches' bandwidth.
"""

from dataclasses import dataclass

import numpy as np

from nanoeuler.simt.traced.recorder import READ, WRITE
from nanoeuler.simt.traced.requests import addresses
from nanoeuler.simt.traced.result import Trace


@dataclass(frozen=True)
class Repeated:
    """Which accesses of a trace bring nothing new: three arrays (accesses,) bool, of which one at most is true."""

    by_thread: np.ndarray  # the thread has loaded the element before, and nobody has written it since
    read_back: np.ndarray  # what is in the element the thread itself has stored
    in_block: np.ndarray  # another thread of the block has loaded it before, and nobody has written it since


def repeated_loads(trace: Trace) -> Repeated:
    """Return which loads of global memory repeat another, or read back a store."""
    found = Repeated(*(np.zeros(len(trace.accesses), np.bool_) for _ in range(3)))
    is_global = np.array([a.scope == "global" for a in trace.arrays], np.bool_)
    chosen = np.flatnonzero(is_global[trace.accesses["array"]])
    if not len(chosen):
        return found
    turn = _turns(trace)[trace.warp_instructions.of_access[chosen]]
    address = addresses(trace)[chosen]
    moment = address * (turn.max() + 1) + turn  # element by element, each through time
    order = np.argsort(moment)
    chosen, address, turn, moment = chosen[order], address[order], turn[order], moment[order]
    a = trace.accesses[chosen]
    thread = a["block"].astype(np.int64) * trace.launch.block_threads + a["thread"]
    reads = a["kind"] == READ
    value = _latest(_changes(address) | ~reads)  # the access with which what is there began
    alone = (a["kind"] == WRITE) & _changes(moment)  # of lanes that store at once any may win
    stored = reads & alone[value] & (thread[value] == thread)
    chosen, turn, value, thread, stored = (column[reads] for column in (chosen, turn, value, thread, stored))
    loaded = ~_first(value * trace.launch.blocks * trace.launch.block_threads + thread)
    earliest = turn[_latest(_changes(value) | _changes(thread // trace.launch.block_threads))]
    found.by_thread[chosen] = loaded
    found.read_back[chosen] = stored & ~loaded
    found.in_block[chosen] = (turn > earliest) & ~loaded & ~stored
    return found


def _turns(trace: Trace) -> np.ndarray:
    """Return the place in time of each warp instruction: by block, program, warp."""
    found = trace.warp_instructions
    _, access = np.unique(found.of_access, return_index=True)
    order = np.lexsort((found.warp, trace.repetitions[access], trace.ranks[access], found.block))
    turns = np.empty(len(order), np.int64)
    turns[order] = np.arange(len(order))
    return turns


def _changes(values: np.ndarray) -> np.ndarray:
    """Return whether each entry differs from the one before; the first does."""
    found = np.ones(len(values), np.bool_)
    found[1:] = values[1:] != values[:-1]
    return found


def _latest(marked: np.ndarray) -> np.ndarray:
    """Return for each entry the last one up to it that is marked; the first is."""
    return np.maximum.accumulate(np.where(marked, np.arange(len(marked)), 0))


def _first(keys: np.ndarray) -> np.ndarray:
    """Return whether no entry before has the same key."""
    found = np.zeros(len(keys), np.bool_)
    found[np.unique(keys, return_index=True)[1]] = True
    return found
