"""Which documents have been seen before, by a 64-bit hash of each: eight bytes of memory for a document.

Two different documents have the same hash with a probability of 2^-64, so among n documents some n^2 / 2^65 are taken
for another by mistake: of ten million one with a chance of 3 in a million, of a billion one with a chance of 3 %.
"""

import hashlib

import numpy as np

HASH = np.dtype("<u8")


def hash_document(text: bytes) -> int:
    """Return the 64-bit hash (BLAKE2b) of a document's UTF-8 bytes, evenly spread over [0, 2^64).

    >>> hash_document(b"To be, or not to be")
    5282803554243547572
    """
    return int.from_bytes(hashlib.blake2b(text, digest_size=HASH.itemsize).digest(), "little")


class Seen:
    """A set of hashes that grows by a batch at a time.

    The hashes lie in sorted arrays, each more than twice as long as the next. A batch becomes one more array, and
    then the last two are merged for as long as that does not hold: an array is searched by halving it, there are never
    more of them than doublings of a batch, and a hash is moved once for each doubling (Bentley and Saxe 1980).
    """

    def __init__(self) -> None:
        self._arrays: list[np.ndarray] = []

    def __len__(self) -> int:
        return sum(len(array) for array in self._arrays)

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Add (N,) uint64 hashes; return (N,) bool, whether each was new: not here, and not earlier in ``hashes``."""
        distinct, first = np.unique(hashes, return_index=True)
        known = np.zeros(len(distinct), bool)
        for array in self._arrays:
            place = np.searchsorted(array, distinct)
            known |= array[np.minimum(place, len(array) - 1)] == distinct
        self._keep(distinct[~known])
        new = np.zeros(len(hashes), bool)
        new[first[~known]] = True
        return new

    def _keep(self, array: np.ndarray) -> None:
        while self._arrays and len(self._arrays[-1]) <= 2 * len(array):
            array = np.concatenate([self._arrays.pop(), array])
            array.sort(kind="stable")  # two sorted runs: one merge
        if len(array):
            self._arrays.append(array)
