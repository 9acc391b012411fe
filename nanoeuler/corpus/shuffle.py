"""Two ways to shuffle the windows of an epoch: by sorting random numbers, and by a formula.

Both depend on a seed alone, through PCG64's raw output, which NumPy keeps the same from version to version.
"""

from collections.abc import Callable

import numpy as np

#: From a place in the shuffled order to what lies there, for (N,) places at once.
Order = Callable[[np.ndarray], np.ndarray]
#: Takes how many there are and a seed; returns their order, and one more random number below 2**64.
Shuffle = Callable[[int, np.random.SeedSequence], tuple[Order, int]]

ROUNDS = 6


def by_sorting(n: int, seed: np.random.SeedSequence) -> tuple[Order, int]:
    """Give each of n a random number and sort: 16 bytes and most of a microsecond for each, before the first is used.

    Texts are shuffled so, and always have been: runs on them go on with the same windows.
    """
    random = np.random.PCG64(seed).random_raw(n + 1)
    return np.argsort(random[:-1], kind="stable").__getitem__, int(random[-1])


def by_formula(n: int, seed: np.random.SeedSequence) -> tuple[Order, int]:
    """Shuffle by a :class:`Permutation`: nothing is stored and nothing prepared, however many there are."""
    random = np.random.PCG64(seed).random_raw(ROUNDS + 1)
    return Permutation(n, random[:-1]), int(random[-1])


class Permutation:
    """A permutation of 0 .. n - 1 that is computed where it is needed.

    It is a cipher: a Feistel network turns a number of 2h bits into another one to one, whatever its round function,
    and a number that leaves 0 .. n - 1 goes through once more until it is back (Black and Rogaway 2002, "Ciphers with
    arbitrary finite domains"). That takes fewer than four turns on average, n being more than a quarter of 4**h, but
    for the few n below 5.
    """

    def __init__(self, n: int, keys: np.ndarray) -> None:
        """Take one key, uint64, for each round."""
        self.n, self.keys = n, keys
        half = max(2, -(-(n - 1).bit_length() // 2))  # h: even for the smallest n there are 16 numbers to mix
        self._shift, self._mask = np.uint64(half), np.uint64(2**half - 1)

    def __call__(self, places: np.ndarray) -> np.ndarray:
        """Return where each of (N,) places, from 0 to n - 1, goes: (N,) int64."""
        out = self._encipher(places.astype(np.uint64))
        while len(outside := np.flatnonzero(out >= self.n)):
            out[outside] = self._encipher(out[outside])
        return out.astype(np.int64)

    def _encipher(self, x: np.ndarray) -> np.ndarray:
        left, right = x >> self._shift, x & self._mask
        for key in self.keys:
            left, right = right, left ^ (_mix(right ^ key) & self._mask)
        return left << self._shift | right


def _mix(x: np.ndarray) -> np.ndarray:
    """Return uint64 numbers in which every bit depends on all bits of the given ones (SplitMix64's finalizer)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)
