"""Sectors and wavefronts against small cases counted by hand, and against plain loops over random ones."""

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from nanoeuler.simt.traced.transactions import (
    collisions,
    distinct_bytes,
    ideal_sectors,
    touched_sectors,
    wavefronts,
)

LANES = np.arange(32)


def sectors(address: Any, size: int) -> list[int]:
    address = np.asarray(address, np.int64)
    return touched_sectors(np.zeros_like(address), address, np.full_like(address, size))[1].tolist()


def passes(address: Any, size: int, atomic: bool = False, lane: np.ndarray | None = None) -> tuple[int, int]:
    """Return wavefronts of one request, and the least."""
    address = np.asarray(address, np.int64)
    lane = np.arange(len(address)) if lane is None else lane
    same = np.zeros_like(address)
    found = wavefronts(same, lane, address, np.full_like(address, size), np.full(len(address), atomic), 1)
    return int(found[0][0]), int(found[1][0])


def test_an_access_may_straddle_sectors() -> None:
    assert sectors([28], 4) == [0]
    assert sectors([29], 4) == [0, 1]
    assert sectors([31, 95], 1) == [0, 2]
    assert sectors([24], 16) == [0, 1]
    assert sectors([0], 128) == [0, 1, 2, 3]


def test_a_sector_counts_once_in_a_request_and_again_in_the_next() -> None:
    request = np.array([1, 0, 0, 1, 1])
    address = np.array([40, 0, 4, 32, 1 << 40])
    found = touched_sectors(request, address, np.full(5, 4))
    assert found[0].tolist() == [0, 1, 1]
    assert found[1].tolist() == [0, 1, 1 << 35]


def test_bytes_asked_for_count_once() -> None:
    request, size = np.array([0, 0, 0, 2, 2]), np.array([4, 8, 4, 16, 4])
    address = np.array([100, 100, 106, 0, 8])  # 100-103, 100-107, 106-109: ten bytes; 0-15, 8-11: sixteen
    assert distinct_bytes(request, address, size, 3).tolist() == [10, 0, 16]
    assert ideal_sectors(np.array([0, 1, 32, 33, 128])).tolist() == [0, 1, 1, 2, 4]


def test_nothing_at_all() -> None:
    empty = np.zeros(0, np.int64)
    assert [len(part) for part in touched_sectors(empty, empty, empty)] == [0, 0]
    assert distinct_bytes(empty, empty, empty, 0).tolist() == []
    assert [part.tolist() for part in wavefronts(empty, empty, empty, empty, empty > 0, 2)] == [[0, 0], [0, 0]]
    assert collisions(empty, empty, 1).tolist() == [0]


@pytest.mark.parametrize(
    ("address", "size", "expected"),
    [
        (4 * LANES, 4, (1, 1)),  # a word in each bank
        (128 * LANES, 4, (32, 1)),  # all in bank 0
        (132 * LANES, 4, (1, 1)),  # an odd distance in words
        (8 * LANES, 4, (2, 1)),
        (12 * LANES, 4, (1, 1)),
        (0 * LANES, 4, (1, 1)),  # broadcast
        (4 * (LANES // 2), 4, (1, 1)),
        (128 * (LANES // 16), 4, (2, 1)),  # two words of bank 0, each for half of the lanes
        (LANES, 1, (1, 1)),  # four bytes of each of eight words
        (4 * LANES + LANES % 4, 1, (1, 1)),
        (8 * LANES, 8, (2, 2)),  # half warps
        (16 * LANES, 8, (4, 2)),
        (0 * LANES, 8, (2, 2)),
        (16 * LANES, 16, (4, 4)),  # quarter warps
        (32 * LANES, 16, (8, 4)),
        (256 * LANES, 16, (32, 4)),
        (8 * LANES[:16], 8, (1, 1)),  # the other half warp is not there
    ],
)
def test_wavefronts(address: np.ndarray, size: int, expected: tuple[int, int]) -> None:
    assert passes(address, size) == expected


def test_an_idle_half_warp_takes_no_wavefront() -> None:
    assert passes([0, 8], 8, lane=np.array([3, 5])) == (1, 1)
    assert passes([0, 8], 8, lane=np.array([3, 16])) == (2, 2)
    assert passes([0, 16], 16, lane=np.array([7, 8])) == (2, 2)


def test_atomics_on_one_address_wait_for_each_other() -> None:
    assert passes(0 * LANES, 4, atomic=True) == (32, 1)
    assert passes(4 * (LANES // 2), 4, atomic=True) == (2, 1)
    assert passes(4 * LANES, 4, atomic=True) == (1, 1)
    assert collisions(np.array([0, 0, 0, 0, 1, 1]), np.array([8, 8, 4, 8, 8, 4]), 2).tolist() == [2, 0]


ACCESSES = st.lists(
    st.tuples(
        st.integers(0, 5),  # request
        st.integers(0, 31),  # lane
        st.integers(0, 600),  # address
        st.sampled_from([1, 2, 4, 8, 12, 16]),  # size
        st.booleans(),  # atomic
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(ACCESSES, st.sampled_from([0, 4, 1 << 33]))
def test_against_plain_loops(accesses: list[tuple], base: int) -> None:
    columns = np.array(accesses, np.int64).reshape(-1, 5).T
    request, lane, address, size = columns[0], columns[1], columns[2] + base, columns[3]
    touched, asked, here = defaultdict(set), defaultdict(set), defaultdict(list)
    words: dict[tuple[int, int], dict[int, Counter]] = defaultdict(lambda: defaultdict(Counter))
    for r, l, a, s, atomic in accesses:
        here[r].append(a + base)
        turn = l // (32 if s <= 4 else 16 if s <= 8 else 8)
        for byte in range(a + base, a + base + s):
            touched[r].add(byte // 32)
            asked[r].add(byte)
        for word in sorted({byte // 4 for byte in range(a + base, a + base + s)}):
            words[r, turn][word % 32][word if not atomic else (word, len(here[r]))] += 1
    found = touched_sectors(request, address, size)
    assert list(zip(found[0].tolist(), found[1].tolist(), strict=True)) == [
        (r, sector) for r in sorted(touched) for sector in sorted(touched[r])
    ]
    assert distinct_bytes(request, address, size, 6).tolist() == [len(asked[r]) for r in range(6)]
    assert collisions(request, address, 6).tolist() == [len(here[r]) - len(set(here[r])) for r in range(6)]
    taken, least = wavefronts(request, lane, address, size, columns[4] > 0, 6)
    turns = [[words[key] for key in words if key[0] == r] for r in range(6)]
    assert taken.tolist() == [sum(max(len(bank) for bank in turn.values()) for turn in of) for of in turns]
    assert least.tolist() == [len(of) for of in turns]
