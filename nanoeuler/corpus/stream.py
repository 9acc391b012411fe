"""A split of a corpus as one stream of tokens, whatever it lies in: an array, or shards that are mapped into memory."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from nanoeuler.corpus.shards import read_shard
from nanoeuler.errors import UserError

#: Shards that are kept open. Each holds a file descriptor, and systems give a process 1024 or even 256.
MOST_OPEN = 128


class Stream:
    """Tokens of neighbouring parts, read as if they were one array. No part is copied as a whole."""

    def __init__(self, lengths: Sequence[int], part: Callable[[int], np.ndarray], names: Sequence[str] = ()) -> None:
        """Take the parts by their lengths.

        Args:
            lengths: tokens in each part.
            part: gives a part by its number: (length,) of any integer type.
            names: what the parts are called in messages, if they have names.
        """
        self.lengths = list(lengths)
        self.ends = np.cumsum(np.array(lengths, np.int64))
        self.begins = self.ends - np.array(lengths, np.int64)
        self._part, self.names = part, list(names)

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def windows(self, starts: np.ndarray, length: int) -> np.ndarray:
        """Return ``length`` tokens from each of (N,) places on: (N, length) int32.

        Raises:
            UserError: a shard is missing or damaged.
        """
        out = np.empty((len(starts), length), np.int32)
        parts = np.searchsorted(self.ends, starts, "right")
        for row, part, place in zip(out, parts.tolist(), (starts - self.begins[parts]).tolist(), strict=True):
            done = 0
            while done < length:  # one turn for each part that the window touches
                piece = self._part(part)[place : place + length - done]
                row[done : done + len(piece)] = piece
                done, part, place = done + len(piece), part + 1, 0
        return out

    def where(self, position: int) -> str:
        """Return in words where a token is."""
        if not self.names:
            return f"position {position}"
        part = int(np.searchsorted(self.ends, position, "right"))
        return f"position {position - self.begins[part]} of {self.names[part]}"


def array_stream(tokens: np.ndarray) -> Stream:
    """Return a stream of one array."""
    return Stream([len(tokens)], lambda part: tokens)


def shard_stream(paths: Sequence[Path]) -> Stream:
    """Return a stream of shards, which are opened when a window lies in them.

    Raises:
        UserError: one is missing or damaged; the message names the first.
    """
    lengths = [len(read_shard(path)) for path in paths]

    @lru_cache(maxsize=MOST_OPEN)
    def part(number: int) -> np.ndarray:
        tokens = read_shard(paths[number]).view(np.ndarray)  # np.memmap itself is slow to cut
        if len(tokens) != lengths[number]:
            raise UserError(f"{paths[number]}: it has changed since training started")
        return tokens

    return Stream(lengths, part, [str(path) for path in paths])
