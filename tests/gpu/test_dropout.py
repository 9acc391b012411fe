"""Dropout's kernel: the masks of the CPU op, bit by bit."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import RUNS, Case, check, check_bfloat16, in_every_run, normal, unwritten
from simt.kernels.toolkit import need_toolkit

import nanoeuler.cpu
from nanoeuler.gpu import dropout
from nanoeuler.gpu.launch import executing

DRAWN = {"rate": 0.3, "seed": 2**64 - 5, "site": 7, "micro_batch": np.array([2**40 + 3]), "start": 0}
# shapes and what is drawn: sizes around a warp's 128 and a block's 1024 elements; where in the stream they begin
PLACES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((2, 5, 33), {}),
    ((128,), {"rate": 0.0}),
    ((129,), {"rate": 0.9}),
    ((5,), {"start": 1}),
    ((2, 63), {"start": 3}),  # from the last word of a group to the first one of another
    ((127,), {"start": 2**34 - 2}),  # the index passes 32 bits
    ((40,), {"seed": 5, "site": 0, "micro_batch": np.array([0])}),
    ((40,), {"seed": 2**64 - 1, "site": 2**16 - 1, "micro_batch": np.array([2**47 - 1]), "start": 2**60}),
    ((40,), {"rate": 1 - 1e-12}),  # a threshold of 2³²
]
BIG = [((1025,), {}), ((1024,), {"start": 3}), ((3, 1025), {"start": 1021})]


def drawn(
    random: np.random.Generator, out: str, x: str, shape: tuple[int, ...], changes: dict[str, Any]
) -> dict[str, Any]:
    return {out: unwritten(*shape), x: normal(random, *shape), **DRAWN, **changes}


def cases(
    name: str, shape: tuple[int, ...], changes: dict[str, Any], in_place: bool = False, big: bool = False
) -> list[Case]:
    return [
        Case(
            op, name, partial(drawn, out=out, x=x, shape=shape, changes=changes), (out,),
            ((out, x),) if in_place else (), big,
        )
        for op, out, x in (("dropout_forward", "out", "x"), ("dropout_backward", "dx", "dout"))
    ]  # fmt: skip


def name(shape: tuple[int, ...], changes: dict[str, Any]) -> str:
    return f"{' x '.join(map(str, shape))} {' '.join(changes)}".strip()


CASES = [
    *(case for place in PLACES for case in cases(name(*place), *place)),
    *(case for place in BIG for case in cases(name(*place), *place, big=True)),
    *cases("in place", (3, 47), {"start": 2}, in_place=True),
]

MUTANTS = [
    ("ROUNDS = 10", "ROUNDS = 9"),
    ("uint32(group >> 32)", "uint32(0)"),
    ("micro_batch[0] << SITE_BITS | site", "micro_batch[0] << SITE_BITS"),
    ("np.uint32(seed >> 32)", "np.uint32(0)"),
    ("    transpose_in_quads(words, place)\n\n", "\n"),
    ("(0, 3 - distance)", "(0, distance)"),
    ("place * (WARP // GROUP) + lane // GROUP", "lane"),
    ("start // GROUP + warp", "warp"),
    ("start % GROUP + out.size", "out.size"),
    ("values[k] * scale * kept", "values[k] * kept"),
]  # fmt: skip
SMALL = {"WARPS": 1}  # a block for 128 elements


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, dropout, executor, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16(case: Case) -> None:
    check_bfloat16(case, dropout)


@pytest.mark.parametrize("executor", sorted({executor for executor, _ in RUNS}))
@pytest.mark.parametrize("seed", [0, 3, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
def test_every_bit_is_the_cpus(executor: Any, seed: int) -> None:
    if executor == "ptx":
        need_toolkit()
    x = normal(np.random.default_rng(seed % 1000), 301)
    x[:3] = -0.0, np.inf, np.nan
    draw = 0.5, seed, 11, np.array([5]), 6
    expected, got = unwritten(301), unwritten(301)
    with np.errstate(invalid="ignore"):
        nanoeuler.cpu.dropout_forward(expected, x, *draw)
    with executing(executor):
        dropout.dropout_forward(got, x, *draw)
    assert (np.isnan(got) == np.isnan(expected)).all()
    assert (got[3:].view(np.uint32) == expected[3:].view(np.uint32)).all()


def test_pieces_are_the_whole() -> None:
    x, whole, pieces = normal(np.random.default_rng(0), 7, 45), unwritten(7, 45), unwritten(7, 45)
    draw = 0.3, 5, 6, np.array([7])
    dropout.dropout_forward(whole, x, *draw)
    dropout.dropout_forward(pieces[:3], x[:3], *draw)
    dropout.dropout_forward(pieces[3:], x[3:], *draw, start=3 * 45)
    assert (pieces == whole).all()


def test_a_launch_repeated_draws_what_the_micro_batch_then_says() -> None:
    micro_batch, masks = np.array([0]), []
    for _ in range(2):
        out = unwritten(64)
        dropout.dropout_forward(out, np.ones(64, np.float32), 0.5, 5, 6, micro_batch)
        masks.append((out != 0).tobytes())
        micro_batch += 1
    assert masks[0] != masks[1]


def test_nothing_lies_outside_the_array_that_is_written() -> None:
    padded = np.ones(40, np.float32)
    dropout.dropout_forward(padded[5:-5], padded[5:-5], 0.5, 5, 6, np.array([7]), start=3)
    assert (padded[:5] == 1).all()
    assert (padded[-5:] == 1).all()
    assert set(padded[5:-5].tolist()) == {0.0, 2.0}
