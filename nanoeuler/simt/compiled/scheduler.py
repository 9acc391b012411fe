"""One block of a compiled kernel: warps take turns, lanes run until they wait, barriers and warp operations are met."""

import functools
from typing import Any

import numpy as np
from numba import cfunc, njit, types

from nanoeuler.simt.compiled.cache import kept
from nanoeuler.simt.compiled.generators import STOPPED, array_at, resume
from nanoeuler.simt.launch import Order, turns

# What a thread waits for is its yielded code: the place in the source (its number, shifted) and one of these kinds.
PAUSE, SYNCTHREADS, SYNCTHREADS_COUNT, SYNCTHREADS_AND, SYNCTHREADS_OR = range(5)
SYNCWARP, SHFL, SHFL_UP, SHFL_DOWN, SHFL_XOR = range(5, 10)
ALL, ANY, EQ, BALLOT, MATCH_ANY, MATCH_ALL, ACTIVEMASK = range(10, 17)
KINDS = {
    **{"syncthreads": SYNCTHREADS, "syncthreads_count": SYNCTHREADS_COUNT},
    **{"syncthreads_and": SYNCTHREADS_AND, "syncthreads_or": SYNCTHREADS_OR, "syncwarp": SYNCWARP},
    **{"shfl_sync": SHFL, "shfl_up_sync": SHFL_UP, "shfl_down_sync": SHFL_DOWN, "shfl_xor_sync": SHFL_XOR},
    **{"all_sync": ALL, "any_sync": ANY, "eq_sync": EQ, "ballot_sync": BALLOT},
    **{"match_any_sync": MATCH_ANY, "match_all_sync": MATCH_ALL, "activemask": ACTIVEMASK},
}
KIND_BITS = 5  # a code is place << KIND_BITS | kind
KIND_MASK = (1 << KIND_BITS) - 1

READY, WAITING, PAUSED, DONE = range(4)
# How a block ends: well, or with the fault's name.
FINISHED, RAISED, DIVERGED, MISSING, ABSENT_SOURCE, STUCK, INTERRUPTED = range(7)
PATIENCE = 100_000  # rounds in which threads only spin before a block is called stuck


SLOT = 4  # int64 of a thread's slot: see generators
WORK = SLOT + 2  # int64 of work space for each thread: its slot, its code, its status


@njit
def _run(function: Any, states: Any, size: Any, slots: Any, codes: Any, status: Any, turns: Any, where: Any) -> Any:
    """As ``run_block``, on arrays."""
    count = len(status)
    status[:] = READY
    idle = 0
    while True:
        moved = False
        for members in turns:
            while True:
                ran = _run_warp(function, states, size, members, codes, status, where)
                if ran < 0:
                    return RAISED
                moved |= ran > 0
                met = _meet_warp(members, slots, codes, status, where)
                if met < 0:
                    return ABSENT_SOURCE
                if not met:
                    break
        spinning, arrived, finished = 0, 0, 0
        for thread in range(count):
            spinning += status[thread] == PAUSED
            finished += status[thread] == DONE
            arrived += status[thread] == WAITING and SYNCTHREADS <= (codes[thread] & KIND_MASK) <= SYNCTHREADS_OR
        if finished == count:
            return FINISHED
        if spinning:
            idle = 0 if moved else idle + 1
            if idle > PATIENCE:
                return STUCK
            for thread in range(count):
                if status[thread] == PAUSED:
                    status[thread] = READY
        elif arrived + finished < count:
            return MISSING
        elif finished or not _meet_block(slots, codes, status):
            return DIVERGED


@njit
def _run_warp(function: Any, states: Any, size: Any, members: Any, codes: Any, status: Any, where: Any) -> Any:
    """Run each lane that can to where it waits. Return 1 if one came to another place, 0 if not, -1 if one raised."""
    moved = 0
    for thread in members:
        if thread < 0 or status[thread] != READY:
            continue
        where[1] = thread
        code = resume(function, states + thread * size, where.ctypes.data + 16)
        if code == STOPPED:
            status[thread] = DONE
            moved = 1
        elif code < 0:
            return -1
        elif code & KIND_MASK == PAUSE:
            status[thread] = PAUSED
        else:
            codes[thread] = code
            status[thread] = WAITING
            moved = 1
    return moved


@njit
def _meet_block(slots: Any, codes: Any, status: Any) -> Any:
    """Let a block go on from a barrier at which all its threads wait; False if it is not the same barrier for all."""
    code = codes[0]
    total = 0
    for thread in range(len(codes)):
        if codes[thread] != code:
            return False
        total += slots[thread, 0] & 1
    kind = code & KIND_MASK
    if kind == SYNCTHREADS_AND:
        total = 1 if total == len(codes) else 0
    elif kind == SYNCTHREADS_OR:
        total = 1 if total else 0
    for thread in range(len(codes)):
        slots[thread, 3] = total
        status[thread] = READY
    return True


@njit
def _meet_warp(members: Any, slots: Any, codes: Any, status: Any, where: Any) -> Any:
    """Let lanes go on whose warp operation has all its lanes. Return 1 if any did, 0 if none, -1 for a bad shuffle."""
    first = members.max() & ~31
    waiting, done, absent = 0, 0, 0  # as masks
    for lane in range(32):
        if first + lane >= len(status):
            absent |= 1 << lane
        elif status[first + lane] == WAITING:
            waiting |= 1 << lane
        elif status[first + lane] == DONE:
            done |= 1 << lane
    met = 0
    for asks_who_is_here in (False, True):  # activemask: the lanes at its line once none of the warp can go on
        if asks_who_is_here and met:
            break
        for lane in range(32):
            thread = first + lane
            if not waiting >> lane & 1 or status[thread] != WAITING or codes[thread] & KIND_MASK < SYNCWARP:
                continue
            if (codes[thread] & KIND_MASK == ACTIVEMASK) != asks_who_is_here:
                continue
            same = _same_place(first, waiting, codes, status, codes[thread])
            present = same if asks_who_is_here else slots[thread, 2] & ~(done | absent)
            if not present >> lane & 1 or present & ~same or not _same_mask(first, present, slots, asks_who_is_here):
                continue
            if not _exchange(first, present, codes[thread] & KIND_MASK, slots, where):
                return -1
            for other in range(32):
                if present >> other & 1:
                    status[first + other] = READY
            met = 1
    return met


@njit
def _same_place(first: Any, waiting: Any, codes: Any, status: Any, code: Any) -> Any:
    """Return the mask of the lanes that wait with the same code."""
    mask = 0
    for lane in range(32):
        if waiting >> lane & 1 and status[first + lane] == WAITING and codes[first + lane] == code:
            mask |= 1 << lane
    return mask


@njit
def _same_mask(first: Any, present: Any, slots: Any, unmasked: Any) -> Any:
    """Whether the lanes of ``present`` all gave the same mask, or the operation has none."""
    mask = -1
    for lane in range(32):
        if present >> lane & 1:
            mask = slots[first + lane, 2] if mask < 0 else mask
            if slots[first + lane, 2] != mask:
                return unmasked
    return True


@njit
def _exchange(first: Any, mask: Any, kind: Any, slots: Any, where: Any) -> Any:
    """Compute each lane's result of a warp operation; False if a shuffle reads from a lane that takes no part."""
    if kind <= SHFL_XOR and kind >= SHFL:
        return _shuffle(first, mask, kind, slots, where)
    true, equal, lowest = 0, True, -1
    for lane in range(32):
        if mask >> lane & 1:
            lowest = lane if lowest < 0 else lowest
            true |= (slots[first + lane, 0] & 1) << lane
            equal &= slots[first + lane, 0] == slots[first + lowest, 0]
    for lane in range(32):
        if not mask >> lane & 1:
            continue
        result = 0
        if kind == ALL:
            result = 1 if true == mask else 0
        elif kind == ANY:
            result = 1 if true else 0
        elif kind == EQ:
            result = 1 if true == mask or true == 0 else 0
        elif kind == BALLOT:
            result = true
        elif kind == ACTIVEMASK:
            result = mask
        elif kind == MATCH_ALL:
            result = mask if equal else 0
        elif kind == MATCH_ANY:
            for other in range(32):
                if mask >> other & 1 and slots[first + other, 0] == slots[first + lane, 0]:
                    result |= 1 << other
        slots[first + lane, 3] = result
    return True


@njit
def _shuffle(first: Any, mask: Any, kind: Any, slots: Any, where: Any) -> Any:
    """Give each lane the value of the lane that it names (PTX ISA, shfl.sync with the whole warp as its segment)."""
    for lane in range(32):
        if not mask >> lane & 1:
            continue
        operand = slots[first + lane, 1] & 31
        source = operand
        if kind == SHFL_UP:
            source = lane - operand
        elif kind == SHFL_DOWN:
            source = lane + operand
        elif kind == SHFL_XOR:
            source = lane ^ operand
        if source < 0 or source > 31:
            source = lane
        if not mask >> source & 1:
            where[1] = first + lane
            return False
        slots[first + lane, 3] = slots[first + source, 0]
    return True


@kept(cfunc, "int64(int64, int64, int64, int64, int64, int64, int64)")
def run_block(function: Any, states: Any, size: Any, work_space: Any, order: Any, count: Any, place: Any) -> Any:
    """Run all ``count`` threads of a block to their end; return how it ended, with the thread concerned at ``place``.

    All are addresses but ``size`` and ``count``. ``states`` has the generators, ``size`` bytes apart, which
    ``function`` resumes. ``work_space`` has int64 slots (count, 4), codes (count,) and status (count,); ``order``
    (warps, 32) the threads of each warp in the order of their turns; ``place`` three int64: block, thread, exception.
    A kernel calls it by its address, so that it is compiled once and not again as part of each kernel.
    """
    slots = array_at(work_space, (count, SLOT), types.int64)
    codes = array_at(work_space + 8 * SLOT * count, count, types.int64)
    status = array_at(work_space + 8 * (SLOT + 1) * count, count, types.int64)
    turns = array_at(order, ((count + 31) // 32, 32), types.int64)
    return _run(function, states, size, slots, codes, status, turns, array_at(place, 3, types.int64))


@functools.lru_cache(maxsize=64)
def turns_of_warps(threads: int, order: Order, seed: int) -> np.ndarray:
    """Return the threads of each warp in the order of their turns, -1 where a warp has fewer than 32. (warps, 32)"""
    generator = np.random.default_rng(seed)
    warps = np.full((-(-threads // 32), 32), -1, np.int64)
    for row, warp in zip(warps, turns(len(warps), order, generator), strict=True):
        size = min(32, threads - 32 * warp)
        row[:size] = 32 * warp + np.array(turns(size, order, generator))
    return warps
