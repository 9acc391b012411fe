"""Byte pair encoding in the plainest way there is, for the tests of several files."""

from collections import Counter
from itertools import pairwise

from nanoeuler.tokenizer.alphabet import BYTES
from nanoeuler.tokenizer.patterns import PATTERNS, split


def learn(text: str, count: int, pattern: str = "gpt2") -> list[tuple[int, int]]:
    """Return merges learned from a text."""
    words = [[BYTES.index(bytes([byte])) for byte in word.encode()] for word in split(PATTERNS[pattern], text)]
    merges: list[tuple[int, int]] = []
    while len(merges) < count:
        pairs = Counter(pair for word in words for pair in pairwise(word))
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        words = [merged(word, best, 256 + len(merges)) for word in words]
        merges.append(best)
    return merges


def merged(ids: list[int], pair: tuple[int, int], made: int) -> list[int]:
    """Return ids with a pair replaced from left to right."""
    out: list[int] = []
    for i in ids:
        if out and (out[-1], i) == pair:
            out[-1] = made
        else:
            out.append(i)
    return out
