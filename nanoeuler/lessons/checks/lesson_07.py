"""Lesson 7: byte pair encoding, trained and applied; and its counting as kernels with integer atomics."""

from itertools import pairwise
from typing import Any

import numpy as np

from nanoeuler.console import plural
from nanoeuler.lessons.checking import CheckFailed, call, different, require, run_kernel

Pair = tuple[int, int]


def _ids(text: str) -> list[int]:
    return list(text.encode())


def _counts(pieces: list[list[int]]) -> dict[Pair, int]:
    counts: dict[Pair, int] = {}
    for ids in pieces:
        for pair in pairwise(ids):
            counts[pair] = counts.get(pair, 0) + 1
    return counts


def _merge(ids: list[int], pair: Pair, new: int) -> list[int]:
    out: list[int] = []
    i = 0
    while i < len(ids):
        found = tuple(ids[i : i + 2]) == pair
        out.append(new if found else ids[i])
        i += 2 if found else 1
    return out


def _train(pieces: list[list[int]], merges: int) -> list[Pair]:
    learned: list[Pair] = []
    while len(learned) < merges and (counts := _counts(pieces)):
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        pieces = [_merge(ids, best, 256 + len(learned)) for ids in pieces]
        learned.append(best)
    return learned


def pair_counts(function: Any) -> None:
    """Check ``pair_counts(pieces)``: how often each pair of neighbours occurs, within pieces."""
    for pieces in ([_ids("abab"), _ids("bc")], [_ids("aaa")], [[7]], [[1, 2], [1, 2], [2, 1]], []):
        got, right = call(function, [list(ids) for ids in pieces]), _counts(pieces)
        require(hasattr(got, "items"), f"pair_counts returns {type(got).__name__}, and should return a dict")
        found = {_pair(pair): int(count) for pair, count in got.items() if count}
        if found != right:
            joined = [i for ids in pieces for i in ids]
            across = "\nPairs are counted within a piece, not across two." if found == _counts([joined]) else ""
            missing = next((pair for pair in right if found.get(pair) != right[pair]), None)
            wrong = missing if missing is not None else next(pair for pair in found if pair not in right)
            raise CheckFailed(
                f"in the pieces {pieces} the pair {wrong} occurs {right.get(wrong, 0)} times, "
                f"and you count {found.get(wrong, 0)}{across}"
            )


def _pair(pair: Any) -> Pair:
    try:
        a, b = (int(i) for i in pair)
    except (TypeError, ValueError):
        raise CheckFailed(f"the keys are pairs of ids, (97, 98), and one of yours is {pair!r}") from None
    return a, b


def merge(function: Any) -> None:
    """Check ``merge(ids, pair, new)``: a new list, in which each place of the pair has become one id."""
    for ids, pair in (
        ([1, 2, 3, 1, 2], (1, 2)),
        ([1, 1, 1], (1, 1)),
        ([1, 1, 1, 1], (1, 1)),
        ([3, 1], (1, 2)),
        ([1, 2], (1, 2)),
        ([1], (1, 2)),
        ([2, 1, 2], (1, 2)),
    ):
        given = list(ids)
        got, right = call(function, given, pair, 256), _merge(ids, pair, 256)
        require(given == ids, "merge changes the list that it is given: build a new one")
        if list(got) != right:
            more = ""
            if list(got)[: len(right)] == right[:-1]:
                more = "\nThe last id is lost: the last place of the list has no right neighbour, and stays."
            elif pair[0] == pair[1]:
                more = "\nOf 1 1 1 the first two become one; the third has no partner left: go on *behind* the pair."
            raise CheckFailed(f"merge({ids}, {pair}, 256) is {list(got)}, and should be {right}{more}")


TEXTS = ("the cat sat on the mat, the rat sat on the cat", "aaaa aaa aa a", "ab ba ab ba", "x")


def train(function: Any) -> None:
    """Check ``train(pieces, merges)``: the pairs in the order in which they are merged."""
    for text in TEXTS:
        pieces = [_ids(word) for word in text.split(" ")]
        for count in (1, 5, 40):
            given = [list(ids) for ids in pieces]
            got = call(function, given, count)
            pairs, right = [_pair(pair) for pair in got], _train(pieces, count)
            require(given == pieces, "train changes the pieces that it is given: work on lists of your own")
            if pairs != right:
                raise CheckFailed(_first_merge(text, pairs, right, pieces))


def _first_merge(text: str, got: list[Pair], right: list[Pair], pieces: list[list[int]]) -> str:
    """Return what is wrong with the first merge that is not as it should be."""
    n = next((k for k, (a, b) in enumerate(zip(got, right, strict=False)) if a != b), min(len(got), len(right)))
    head = f"of {text!r}: "
    if n == len(got):
        return f"{head}there are {len(right)} merges, and you stop after {n}"
    if n == len(right):
        return f"{head}after {n} merges no pair is left, and you make another: stop when there is none"
    for k, pair in enumerate(right[:n]):
        pieces = [_merge(ids, pair, 256 + k) for ids in pieces]
    counts = _counts(pieces)
    mine, theirs = counts.get(got[n], 0), counts[right[n]]
    tie = "\nBoth are equally frequent: the pair with the smaller ids is first." if mine == theirs else ""
    ids = (
        ""
        if mine or n == 0
        else "\nMerge number k makes the id 256 + k, in all pieces, before pairs are counted again."
    )
    return f"{head}merge {n} is {got[n]}, which occurs {mine} times, and should be {right[n]}, {theirs} times{tie}{ids}"


def encode(function: Any) -> None:
    """Check ``encode(ids, merges)``: merges applied, the first learned first."""
    merges = _train([_ids(word) for word in TEXTS[0].split(" ")] * 2 + [_ids("aaaa")], 30)
    tricky = [(98, 99), (97, 98), (97, 256)]  # b c before a b
    for text, learned in (
        ("abc", tricky),
        ("ababc", tricky),
        ("that", merges),
        ("aaaaa", merges),
        ("", merges),
        ("q", merges),
        ("theatsat", merges),
    ):
        got = list(call(function, _ids(text), list(learned)))
        right = _encoded(_ids(text), learned)
        if got != right:
            more = ""
            if got == _by_position(_ids(text), learned):
                more = "\nYou merge from left to right. The pair that was *learned* first comes first, wherever it is."
            elif len(got) > len(right):
                more = "\nSomething is left to merge: go on until no pair of neighbours is among the merges."
            raise CheckFailed(f"encode of {text!r} is {got}, and should be {right}{more}")


def _encoded(ids: list[int], merges: list[Pair]) -> list[int]:
    for rank, pair in enumerate(merges):
        ids = _merge(ids, pair, 256 + rank)
    return ids


def _by_position(ids: list[int], merges: list[Pair]) -> list[int]:
    rank_of = {pair: rank for rank, pair in enumerate(merges)}
    i = 0
    while i < len(ids) - 1:
        pair = (ids[i], ids[i + 1])
        if pair in rank_of:
            ids = [*ids[:i], 256 + rank_of[pair], *ids[i + 2 :]]
            i = 0
        else:
            i += 1
    return ids


def pair_table(kernel: Any) -> None:
    """Check ``pair_table(table, ids)``: table[a, b] += 1 for each pair of neighbours."""
    for n, V in ((2, 3), (33, 5), (100, 7), (1, 2)):
        ids = np.random.default_rng(n).integers(0, V, n).astype(np.int32)
        if n > 1:
            ids[:2] = 0, 1
        right = np.zeros((V, V), np.int32)
        np.add.at(right, (ids[:-1], ids[1:]), 1)
        run_kernel(
            kernel,
            -(-n // 32),
            32,
            {"table": np.zeros((V, V), np.int32), "ids": ids},
            expected={"table": right},
            label=f"{plural(n, 'id')} below {V}",
            hints={
                "out of bounds": "n ids have n - 1 pairs: the last id has no right neighbour.",
                "race": "Two places with the same pair add to one element at the same time: cuda.atomic.add.",
                "race between blocks": "Two places with the same pair add to one element at the same time: "
                "cuda.atomic.add.",
                "transposed": "The row is the left one of the pair, the column the right one.",
                "zero": "Add 1 to table[left, right], for each pair.",
                "wrong": "Add 1 to table[left, right], once for each pair, those across blocks too.",
            },
        )


def histogram(kernel: Any) -> None:
    """Check ``histogram(counts, data)``: how often each byte occurs, counted in shared memory first."""
    for n, grid in ((1, 1), (50, 2), (200, 2), (300, 1)):
        data = different(n, dtype=np.int32, low=0, high=256) // 3 * 3 if n < 256 else np.arange(n, dtype=np.int32) % 256
        run_kernel(
            kernel,
            grid,
            64,
            {"counts": np.zeros(256, np.int32), "data": data.astype(np.int32)},
            expected={"counts": np.bincount(data, minlength=256).astype(np.int32)},
            label=f"{plural(n, 'byte')}, {plural(grid, 'block')} of 64",
            hints={
                "uninitialised read": "Shared memory begins with anything: set all 256 counts to 0 first, and wait.",
                "race": "Three steps, for which everybody has to wait: zeros, counting, adding up. Counting and adding "
                "take atomics.",
                "race between blocks": "Blocks add to counts at the same time: cuda.atomic.add.",
                "out of bounds": "There are 256 counts, and 64 threads: range(t, 256, cuda.blockDim.x).",
                "zero": "64 threads have 256 counts to add up, not 64.",
                "tail": "64 threads have 256 counts to add up, not 64.",
                "wrong": "Each block counts its share of the bytes, and adds all its 256 counts to counts.",
            },
        )
