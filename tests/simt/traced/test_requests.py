"""The lanes of requests: how elements are split and joined, and where they lie."""

import itertools

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba import complex64, cuda, float32
from simt.kernels.intrinsics import load_float4
from simt.traced.hand_counted import CASES, copy

from nanoeuler import simt
from nanoeuler.simt.traced.requests import Requests, addresses, itemsizes, requests


def rows(found: Requests) -> list[tuple[int, int, int, int]]:
    """Return request, lane, address and size of each entry."""
    columns = found.request, found.lane, found.address, found.size
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_a_request_for_each_warp_in_order() -> None:
    trace = simt.trace(copy, 2, 33, (np.zeros(66, np.float32), np.zeros(66, np.float32)))
    found = requests(trace, "global")
    assert len(found) == 8  # 2 blocks, 2 warps, a load and a store
    lanes = np.bincount(found.request).tolist()
    assert lanes == [32, 32, 1, 1, 32, 32, 1, 1]
    assert found.access[found.first].tolist() == [int(np.flatnonzero(found.request == n)[0]) for n in range(8)]


def test_parts_of_a_complex_number() -> None:
    trace = simt.trace(copy, 1, 2, (np.zeros(2, np.complex128), np.zeros(2, np.complex128)))
    assert itemsizes(trace).tolist() == [16] * 4
    # x is the second memory, behind the 256 bytes of out; two requests for the load, two for the store
    expected = [(0, 0, 256, 8), (0, 1, 272, 8), (1, 0, 264, 8), (1, 1, 280, 8)]
    expected += [(2, 0, 0, 8), (2, 1, 16, 8), (3, 0, 8, 8), (3, 1, 24, 8)]
    assert rows(requests(trace, "global")) == expected


def test_packed_records_go_byte_by_byte() -> None:
    case = CASES["packed structures"]
    trace = simt.trace(case.kernel, 1, 1, (np.zeros(1, np.float32), case.args()[1]))
    loads = [row for row in rows(requests(trace, "global")) if row[3] == 1]
    assert [row[2] - loads[0][2] for row in loads] == list(range(12))
    assert len({row[0] for row in loads}) == 12


@cuda.jit
def vectors(out, x):
    i = cuda.threadIdx.x
    if i != 1:
        a, b, c, d = load_float4(x, 4 * i)
        out[i] = a + b + c + d
    out[2 * i : 2 * i + 2] = 0  # a slice is a store for each element


def test_a_vector_is_one_access_and_a_slice_is_not() -> None:
    trace = simt.trace(vectors, 1, 3, (np.zeros(6, np.float32), np.zeros(12, np.float32)))
    found = rows(requests(trace, "global"))
    assert [row for row in found if row[3] == 16] == [(0, 0, 256, 16), (0, 2, 288, 16)]
    assert [len([row for row in found if row[0] == n]) for n in range(4)] == [2, 2, 3, 3]
    assert {row[3] for row in found if row[0] > 0} == {4}


@cuda.jit
def mixed(out, x, y):
    s = cuda.shared.array(8, complex64)
    t = cuda.local.array(2, float32)
    i = cuda.threadIdx.x
    t[0] = x[i]
    s[i] = y[i]
    out[i] = t[0]


def test_scopes_and_places() -> None:
    x = np.zeros(70, np.float32)[3:]
    trace = simt.trace(mixed, 1, 2, (np.zeros(2, np.float32), x, np.zeros(2, np.complex64)))
    shared = requests(trace, "shared")
    assert [(lane, size) for _, lane, _, size in rows(shared)] == [(0, 8), (1, 8)]
    assert shared.address.min() % 256 == 0  # a shared array begins in bank 0
    found = addresses(trace)
    places = {a.name: sorted(set(found[trace.select(array=a.name)].tolist())) for a in trace.arrays}
    assert [place % 256 for place in places["x"]] == [12, 16]
    assert [place % 256 for place in places["y"]] == [0, 8]
    spans = sorted((min(places[name]), max(places[name])) for name in places)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(spans))


def test_a_slice_and_its_whole_share_their_memory() -> None:
    x = np.zeros(64, np.float32)
    trace = simt.trace(copy, 1, 2, (x, x[8:]))
    found = addresses(trace)
    assert sorted(found[trace.select(array="x")].tolist()) == [32, 36]
    assert sorted(found[trace.select(array="out")].tolist()) == [0, 4]


def test_no_accesses() -> None:
    assert len(requests(simt.trace(nothing, 1, 1, (np.zeros(1),)), "global")) == 0


@cuda.jit
def nothing(out):
    pass
