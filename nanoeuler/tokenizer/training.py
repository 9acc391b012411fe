r"""Byte pair encoding is learned here (Sennrich et al. 2016, algorithm 1): by its definition, and in the form in use.

Both are given how often each pre-token occurs, and merge, again and again, the pair of neighbours that is the most
frequent within pre-tokens; of equally frequent ones the pair with the smallest ids. Ids are those of :mod:`.merges`:
0 to 255 are the bytes in the order of :data:`alphabet.BYTES`, 256 + i is what merge i makes. These are the rules of
Hugging Face's ``tokenizers``, and the merges are the same.

:func:`train_bpe` keeps every pre-token as a ``str`` whose characters are ids, so that ``str.split`` finds a pair,
from left to right as BPE has it, and ``str.join`` puts the new id between what is left: few steps of Python for
each place that is merged. Pairs are two characters, and Python orders them as their ids.
"""

import heapq
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise

from nanoeuler.errors import UserError
from nanoeuler.tokenizer.alphabet import BYTES
from nanoeuler.tokenizer.merges import Pair

#: Told how many merges there are, and how many are wanted.
Progress = Callable[[int, int], None]

#: An id is a character's number, of which Python has this many.
MOST_IDS = 0x110000
_ID_OF_BYTE = bytes(BYTES.index(bytes([byte])) for byte in range(256))


def train_bpe_definition(counts: Mapping[bytes, int], merges: int, min_frequency: int = 0) -> list[Pair]:
    """Return the same as :func:`train_bpe`: slow, and to be read.

    >>> train_bpe_definition({b"abab": 2, b"bc": 3}, 2)  # a b is there 4 times, then b c 3 times; the id of a is 64
    [(64, 65), (65, 66)]
    """
    words = [(list(pretoken.translate(_ID_OF_BYTE)), count) for pretoken, count in counts.items()]
    learned: list[Pair] = []
    while len(learned) < merges:
        frequency: Counter[Pair] = Counter()
        for ids, count in words:
            for pair in pairwise(ids):
                frequency[pair] += count
        best = min(frequency, key=lambda pair: (-frequency[pair], pair), default=None)
        if best is None or frequency[best] < max(min_frequency, 1):
            break
        for ids, _ in words:
            _replace(ids, best, len(BYTES) + len(learned))
        learned.append(best)
    return learned


def _replace(ids: list[int], pair: Pair, new: int) -> None:
    """Put a new id in every place of a pair, from left to right: of a a a the first two are merged."""
    i = 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == pair:
            ids[i : i + 2] = [new]
        i += 1


def train_bpe(
    counts: Mapping[bytes, int], merges: int, min_frequency: int = 0, progress: Progress = lambda done, wanted: None
) -> list[Pair]:
    """Return the pairs of ids that are merged, in order.

    Args:
        counts: how often each pre-token occurs.
        merges: how many pairs are wanted; there are fewer where no pair is left to merge.
        min_frequency: pairs that occur less often are not merged.
        progress: told after each merge.

    Raises:
        UserError: more merges are wanted than there can be ids.
    """
    if len(BYTES) + merges > MOST_IDS:
        raise UserError(f"{merges} merges are wanted, and there can be {MOST_IDS - len(BYTES)}")
    words = [pretoken.translate(_ID_OF_BYTE).decode("latin-1") for pretoken in counts]
    learner = _Learner(words, list(counts.values()), max(min_frequency, 1))
    learned: list[Pair] = []
    while len(learned) < merges and (pair := learner.most_frequent()):
        learner.merge(pair, chr(len(BYTES) + len(learned)))
        learned.append((ord(pair[0]), ord(pair[1])))
        progress(len(learned), merges)
    return learned


class _Learner:
    """The pre-tokens as merged so far, with what is known of their pairs.

    A pair is only ever added to when one of its two tokens is new, and then only in that one merge; later its count can
    only fall. So a count in the queue is right or too high, and one that comes out on top and is right is the highest.
    """

    def __init__(self, words: list[str], counts: list[int], floor: int) -> None:
        self._words = words
        self._counts = counts  # of each word
        self._floor = floor
        self._where: dict[str, list[int]] = {}  # words that have, or once had, a pair
        self._frequency: dict[str, int] = {}  # of each pair
        self._queue: list[tuple[int, str]] = []  # minus its frequency, or more; pair
        where: defaultdict[str, list[int]] = defaultdict(list)
        for i, word in enumerate(words):
            for pair in map(operator.add, word, word[1:]):
                where[pair].append(i)
        for pair, places in where.items():
            self._add(pair, places)

    def _add(self, pair: str, places: list[int]) -> int:
        """Take note of a new pair, whose every place is given by the word that it is in; return its frequency."""
        frequency = self._frequency[pair] = sum(map(self._counts.__getitem__, places))
        if frequency >= self._floor:
            self._where[pair] = places
            heapq.heappush(self._queue, (-frequency, pair))
        return frequency

    def most_frequent(self) -> str | None:
        """Return the pair to merge next; None if there is none."""
        while self._queue:
            noted, pair = self._queue[0]
            frequency = self._frequency[pair]
            if frequency == -noted:
                return pair
            if frequency >= self._floor:
                heapq.heapreplace(self._queue, (-frequency, pair))
            else:
                heapq.heappop(self._queue)
                del self._where[pair]
        return None

    def merge(self, pair: str, new: str) -> None:
        """Put a new token in every place of the pair on top of the queue."""
        heapq.heappop(self._queue)
        words = self._words
        lefts, rights = defaultdict(list), defaultdict(list)  # neighbour of the new token -> word, for each place
        twice = []  # words, for each place where the new token is its own neighbour
        for i in dict.fromkeys(self._where.pop(pair)):
            parts = words[i].split(pair)
            if len(parts) == 1:
                continue  # other merges have used up what it had
            words[i] = new.join(parts)
            for before, after in pairwise(parts):
                if before:
                    lefts[before[-1]].append(i)
                if after:
                    rights[after[0]].append(i)
            if len(parts) > 2:
                twice += [i] * parts[1:-1].count("")
        first, second = pair[0], pair[1]
        for left, places in lefts.items():
            self._frequency[left + first] -= self._add(left + new, places)
        for right, places in rights.items():
            self._frequency[second + right] -= self._add(new + right, places)
        if twice:
            self._frequency[second + first] -= self._add(new + new, twice)
        del self._frequency[pair]
