"""Shuffles, votes, matches and reductions against their definitions, lane by lane."""

import itertools

import numpy as np
import pytest

from nanoeuler.simt.faults import UnsupportedError

LANES = np.arange(32)


def source_of(mode: str, lane: int, by: int, bounds: int) -> tuple[int, bool]:
    """Return the lane that is read and whether it is in range: the pseudocode of the PTX ISA, shfl.sync."""
    by, clamp, segment = by & 31, bounds & 31, bounds >> 8 & 31
    highest = (lane & segment) | (clamp & ~segment & 31)
    lowest = lane & segment
    other, inside = {
        "up": (lane - by, lane - by >= highest),
        "down": (lane + by, lane + by <= highest),
        "bfly": (lane ^ by, lane ^ by <= highest),
        "idx": (lowest | (by & ~segment & 31), (lowest | (by & ~segment & 31)) <= highest),
    }[mode]
    return (other if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 16, 8, 2, 1])
def test_shuffles_in_segments(evaluate, mode, width):
    bounds = (32 - width) << 8 | (0 if mode == "up" else 31)
    values = np.random.default_rng(0).integers(0, 2**32, 64, dtype=np.uint32)
    for by in (0, 1, 3, 7, 16, 31, 33):
        text = f"shfl.sync.{mode}.b32 %d0|%d1, %a, {by}, {bounds}, 0xffffffff"
        d, p = evaluate(text, "b32", "b32 pred", values)
        expected = [source_of(mode, lane, by, bounds) for lane in range(32)]
        for warp in range(2):
            assert d[32 * warp :][:32].tolist() == [values[32 * warp + source] for source, _ in expected]
            assert p[32 * warp :][:32].tolist() == [inside for _, inside in expected]


def test_shuffle_of_floats_with_a_lane_for_each(evaluate):
    values = np.arange(32, dtype=np.float32) / 7
    (d,) = evaluate("shfl.sync.idx.b32 %d0, %a, %b, 31, -1", "f32 u32", "f32", values, LANES[::-1])
    np.testing.assert_array_equal(d, values[::-1])


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x0000FFFF])
def test_votes(evaluate, mask):
    generator = np.random.default_rng(1)
    for flags in (generator.random(64) < 0.5, np.ones(64, bool), np.zeros(64, bool)):
        members = [mask if lane < 16 or mask == 0xFFFFFFFF else 0xFFFF0000 for lane in list(range(32)) * 2]
        (ballot,) = evaluate("vote.sync.ballot.b32 %d0, %a, %b", "pred u32", "u32", flags, members)
        (every,) = evaluate("vote.sync.all.pred %d0, %a, %b", "pred u32", "pred", flags, members)
        (some,) = evaluate("vote.sync.any.pred %d0, !%a, %b", "pred u32", "pred", flags, members)
        (equal,) = evaluate("vote.sync.uni.pred %d0, %a, %b", "pred u32", "pred", flags, members)
        for lane in range(64):
            warp = flags[lane // 32 * 32 :][:32]
            named = [bool(warp[i]) for i in range(32) if members[lane] >> i & 1]
            assert ballot[lane] == sum(int(warp[i]) << i for i in range(32) if members[lane] >> i & 1)
            assert (every[lane], some[lane], equal[lane]) == (all(named), not all(named), len(set(named)) == 1)


@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_match(evaluate, kind):
    values = np.random.default_rng(2).integers(0, 4, 64) + (1 << 40 if kind == "b64" else 0)
    (d,) = evaluate(f"match.any.sync.{kind} %d0, %a, 0xffffffff", kind, "b32", values)
    for lane in range(64):
        warp = values[lane // 32 * 32 :][:32]
        assert d[lane] == sum(1 << i for i in range(32) if warp[i] == values[lane])
    same = np.repeat([5, 6], 32)
    same[40] = 7
    d, p = evaluate(f"match.all.sync.{kind} %d0|%d1, %a, -1", kind, "b32 pred", same)
    assert d.tolist() == [2**32 - 1] * 32 + [0] * 32
    assert p.tolist() == [True] * 32 + [False] * 32


@pytest.mark.parametrize(
    ("operation", "function"),
    [
        ("add.s32", lambda v: int(v.sum()) % 2**32),
        ("min.s32", lambda v: int(v.min()) % 2**32),
        ("max.s32", lambda v: int(v.max()) % 2**32),
        ("min.u32", lambda v: int(v.view(np.uint32).min())),
        ("and.b32", lambda v: int(np.bitwise_and.reduce(v.view(np.uint32)))),
        ("or.b32", lambda v: int(np.bitwise_or.reduce(v.view(np.uint32)))),
        ("xor.b32", lambda v: int(np.bitwise_xor.reduce(v.view(np.uint32)))),
    ],
)
def test_redux(evaluate, operation, function):
    values = np.random.default_rng(3).integers(-(2**31), 2**31, 64).astype(np.int32)
    (d,) = evaluate(f"redux.sync.{operation} %d0, %a, 0xffffffff", "s32", "u32", values)
    assert d.tolist() == [function(values[:32])] * 32 + [function(values[32:])] * 32


def test_activemask_in_branches_and_partial_warps(evaluate):
    (d,) = evaluate("mov.u32 %d0, 0; @%a activemask.b32 %d0", "pred", "u32", [lane % 3 == 0 for lane in range(40)])
    first = sum(1 << lane for lane in range(32) if lane % 3 == 0)
    rest = sum(1 << lane - 32 for lane in range(32, 40) if lane % 3 == 0)
    assert d.tolist() == [(first if lane < 32 else rest) if lane % 3 == 0 else 0 for lane in range(40)]


def test_lane_masks_and_identities(evaluate):
    names = ["laneid", "warpid", "nwarpid", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge"]
    text = "; ".join(f"mov.u32 %d{i}, %{name}" for i, name in enumerate(names))
    found = evaluate(text, "u32", " ".join(["u32"] * len(names)), np.zeros(70), block=70)
    lane = np.arange(70) % 32
    bit = 1 << lane
    everything = (1 << 32) - 1
    expected = [
        lane,
        np.arange(70) // 32,
        np.full(70, 3),
        bit,
        bit - 1,
        2 * bit - 1,
        everything - (2 * bit - 1),
        everything - (bit - 1),
    ]
    for name, d, e in zip(names, found, expected, strict=True):
        np.testing.assert_array_equal(d, e, err_msg=name)


@pytest.mark.parametrize(("operation", "function"), [("popc", np.sum), ("and", np.all), ("or", np.any)])
def test_barrier_reductions(evaluate, operation, function):
    for flags in (np.arange(96) % 3 == 0, np.arange(96) < 48):
        kind = "u32" if operation == "popc" else "pred"
        (d,) = evaluate(f"barrier.cta.red.{operation}.aligned.{kind} %d0, 0, %a", "pred", kind, flags, block=48)
        assert d.tolist() == [function(flags[:48])] * 48 + [function(flags[48:])] * 48


def test_lanes_that_part_wait_for_each_other_at_a_shuffle(evaluate):
    text = """.reg .pred %q; setp.gt.u32 %q, %a, 15; mov.u32 %d0, %a;
    @%q bra high;
    add.u32 %d0, %d0, 100;
    bra join;
    high:
    add.u32 %d0, %d0, 200;
    join:
    shfl.sync.bfly.b32 %d0, %d0, 16, 31, 0xffffffff"""
    (d,) = evaluate(text, "u32", "u32", LANES)
    assert d.tolist() == [lane + 216 if lane < 16 else lane + 84 for lane in range(32)]


def test_halves_of_a_warp_may_meet_apart(evaluate):
    text = """.reg .pred %q; setp.gt.u32 %q, %a, 15; mov.u32 %d0, 0;
    @%q bra high;
    shfl.sync.bfly.b32 %d0, %a, 1, 31, 0x0000ffff;
    bra join;
    high:
    shfl.sync.bfly.b32 %d0, %a, 2, 31, 0xffff0000;
    join:"""
    (d,) = evaluate(text + " bar.warp.sync -1", "u32", "u32", LANES)
    assert d.tolist() == [lane ^ 1 if lane < 16 else lane ^ 2 for lane in range(32)]


def test_only_the_sync_forms_are_known(evaluate):
    with pytest.raises(UnsupportedError, match=r"shfl\.bfly"):
        evaluate("shfl.bfly.b32 %d0, %a, 1, 31", "b32", "b32", LANES)


def test_named_barriers_are_refused(evaluate):
    with pytest.raises(UnsupportedError, match=r"bar\.sync 1, 64"):
        evaluate("bar.sync 1, 64", "b32", "", list(itertools.repeat(0, 64)))
