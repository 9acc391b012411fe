"""What memory does for a warp instruction: sectors of global memory, wavefronts of shared memory.

Pure functions of arrays that have an entry for each lane's access: the number of its *request* (warp instruction), the
address in bytes, the size in bytes.

Global memory is moved in sectors of 32 bytes. A request costs as many as its lanes touch, each once, in whatever order
("Coalesced Access to Global Memory" in NVIDIA's CUDA C++ Best Practices Guide). Nsight Compute counts requests in
``l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum`` and sectors in ``l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum``
(``op_st`` for stores, ``op_red`` and ``op_atom`` for atomics), those that hit in a cache included.

Shared memory has 32 banks; word n, of 4 bytes, lies in bank n % 32. A bank serves one word at a time, and all lanes
that want this word together, whichever bytes of it ("Shared Memory" in the CUDA C++ Programming Guide, under "Compute
Capability 5.x", to which all later ones refer). So a request takes as many passes, *wavefronts*, as there are different
words in its worst bank. A bank delivers 4 bytes a pass: with 8 bytes a lane the two half warps go one after the other,
with 16 bytes the four quarters, each with wavefronts of its own. Lanes that store to one word do not conflict: one of
them wins. Atomics cannot be merged so: each lane's counts as a word of its own, which makes 32 of them on one address
32 wavefronts. A GPU may do better there, where the compiler first adds up in the warp. Nsight Compute has
``l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum`` and, for those above the least number,
``l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum`` (``op_st`` for stores).
"""

import numpy as np

SECTOR = 32  # bytes
BANKS = 32
WORD = 4  # bytes of a bank


def touched_sectors(request: np.ndarray, address: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each sector that a request touches, once: the requests and the sectors' numbers, sorted, int64.

    >>> touched_sectors(np.array([0, 0, 0]), np.array([0, 4, 30]), np.array([4, 4, 4]))  # the last one straddles two
    (array([0, 0]), array([0, 1]))
    """
    entry, sector = _spread(address, size, SECTOR)
    return _distinct(request[entry], sector)


def distinct_bytes(request: np.ndarray, address: np.ndarray, size: np.ndarray, requests: int) -> np.ndarray:
    """Return how many different bytes each request asks for, (requests,) int64.

    >>> distinct_bytes(np.array([0, 0, 1]), np.array([0, 0, 0]), np.array([4, 8, 4]), 2)
    array([8, 4])
    """
    if not len(request):
        return np.zeros(requests, np.int64)
    low = int(address.min())
    span = int((address + size).max()) - low
    start = request * span + (address - low)  # requests one behind the other, so that one sort does for all
    order = np.argsort(start)
    start, end = start[order], (start + size)[order]
    reached = np.concatenate([start[:1], np.maximum.accumulate(end)[:-1]])
    return _sum(request[order], np.maximum(end - np.maximum(start, reached), 0), requests)


def ideal_sectors(asked: np.ndarray) -> np.ndarray:
    """Return the least number of sectors that so many different bytes take."""
    return -(-asked // SECTOR)


def collisions(request: np.ndarray, address: np.ndarray, requests: int) -> np.ndarray:
    """Return how many lanes of each request have an address that a lane before them has too, (requests,) int64.

    >>> collisions(np.array([0, 0, 0, 1]), np.array([8, 8, 4, 8]), 2)
    array([1, 0])
    """
    apart, _ = _distinct(request, address)
    return np.bincount(request, minlength=requests) - np.bincount(apart, minlength=requests)


def wavefronts(
    request: np.ndarray, lane: np.ndarray, address: np.ndarray, size: np.ndarray, atomic: np.ndarray, requests: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return wavefronts of each request of shared memory, and the least possible, both (requests,) int64.

    ``lane`` is the place in the warp, 0 to 31, ``atomic`` whether the access is one. What is above the least are bank
    conflicts. The least is 1 for each warp, half or quarter warp with a lane that is active.

    >>> lane = np.arange(32)
    >>> words, conflicts = wavefronts(0 * lane, lane, 8 * lane, 4 + 0 * lane, lane < 0, 1)
    >>> int(words[0]), int(conflicts[0])  # every other word: two in each of 16 banks
    (2, 1)
    """
    passing = 4 * request + lane // np.where(size <= WORD, 32, np.where(size <= 2 * WORD, 16, 8))
    entry, word = _spread(address, size, WORD)
    alone = atomic[entry]
    turn = passing[entry]
    merged_turn, merged_word = _distinct(turn[~alone], word[~alone])
    turn = np.concatenate([merged_turn, turn[alone]])
    bank = np.concatenate([merged_word, word[alone]]) % BANKS
    filled, words = np.unique(turn * BANKS + bank, return_counts=True)  # how many words each bank has to give
    turns, first = np.unique(filled // BANKS, return_index=True)
    worst = np.maximum.reduceat(words, first) if len(first) else words
    return _sum(turns // 4, worst, requests), _sum(turns // 4, np.ones_like(worst), requests)


def _spread(address: np.ndarray, size: np.ndarray, unit: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which units of memory each access touches: numbers of accesses, repeated, and of units."""
    first = address // unit
    count = (address + size - 1) // unit - first + 1
    entry = np.repeat(np.arange(len(address)), count)
    behind = np.arange(len(entry)) - np.repeat(np.cumsum(count) - count, count)
    return entry, first[entry] + behind


def _distinct(group: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each pair of a group and a value once, sorted."""
    if not len(group):
        return group, value
    low = int(value.min())
    span = int(value.max()) - low + 1
    pairs = np.unique(group * span + (value - low))
    return pairs // span, pairs % span + low


def _sum(group: np.ndarray, value: np.ndarray, groups: int) -> np.ndarray:
    """Return the sums of the values of each group, int64. They are exact: far below 2**53."""
    return np.bincount(group, value, groups).astype(np.int64)
