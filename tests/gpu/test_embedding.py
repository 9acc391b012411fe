"""The embedding's kernels against the CPU op: tokens of all frequencies, in one tile and piece and in many."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, arguments_of, check, check_bfloat16, every_run, in_every_run, normal, unwritten
from simt.kernels.toolkit import need_toolkit

import nanoeuler.cpu
from nanoeuler.gpu import embedding
from nanoeuler.gpu.launch import executing
from nanoeuler.gpu.variant import variant


def drawn_tokens(random: np.random.Generator, B: int, T: int, V: int, power: float) -> np.ndarray:
    """Return tokens of which small ones are the more frequent the larger the power."""
    return (V * random.random((B, T)) ** power).astype(np.int32)


def forward(
    random: np.random.Generator, B: int, T: int, C: int, V: int, start: int | None = None, power: float = 1
) -> dict[str, Any]:
    """Positions where there is a ``start``."""
    return {
        "out": unwritten(B, T, C), "tokens": drawn_tokens(random, B, T, V, power), "weight": normal(random, V, C),
        "position": None if start is None else normal(random, start + T + 1, C), "start": start or 0,
    }  # fmt: skip


def backward(
    random: np.random.Generator, B: int, T: int, C: int, V: int, start: int | None = None, power: float = 1
) -> dict[str, Any]:
    return {
        "dweight": normal(random, V, C), "dposition": None if start is None else normal(random, start + T + 1, C),
        "dout": normal(random, B, T, C), "tokens": drawn_tokens(random, B, T, V, power), "start": start or 0,
    }  # fmt: skip


def cases(name: str, big: bool = False, **shape: Any) -> list[Case]:
    gradients = ("dweight",) if shape.get("start") is None else ("dweight", "dposition")
    return [
        Case("embedding_forward", name, partial(forward, **shape), ("out",), big=big),
        Case("embedding_backward", name, partial(backward, **shape), gradients, big=big),
    ]


CASES = [
    *cases("one of all", B=1, T=1, C=1, V=1),
    *cases("odd", B=2, T=5, C=33, V=37),
    *cases("positions", B=2, T=5, C=33, V=37, start=0),
    *cases("later positions", B=6, T=3, C=5, V=7, start=2),
    *cases("one token, over a piece", B=1, T=67, C=3, V=1),
    *cases("few tokens, pieces", B=5, T=39, C=2, V=3, power=2),
    *cases("no sequences", B=0, T=5, C=3, V=7, start=1),
    *cases("no positions", B=2, T=0, C=3, V=7, start=1),
    *cases("wide", B=1, T=2, C=259, V=3),
    *cases("wider", B=2, T=3, C=1025, V=5, start=1, big=True),
    *cases("few tokens, tiles", B=3, T=433, C=3, V=4, start=1, power=3, big=True),
    *cases("many tokens, tiles", B=5, T=331, C=2, V=2003, power=4, big=True),
    *cases("a tile to the last place", B=2, T=512, C=1, V=3, big=True),
]

MUTANTS = [
    ("shift = widen(position[uint32(start + t), column])", "shift = widen(position[t, column])"),
    ("-(-B // ROWS)", "max(1, B // ROWS)"),
    ("int32(V - 1))\n    cuda.syncthreads()", "int32(V - 1))"),
    ("tile_places[first + rank] = first + thread", "tile_places[first + rank] = thread"),
    ("counts[team, lane] = before\n    cuda.syncthreads()", "counts[team, lane] = before"),
    ("int32(low < at)", "int32(0)"),
    ("continues = first > 0 and run_tokens[first - 1] == run_tokens[first]", "continues = first > 0"),
    ("                    continues = False\n", ""),
    ("at + 1 == end or ", ""),
    ("began_earlier = piece > 1 and run_tokens[first - PIECE - 1] == token", "began_earlier = False"),
    ("first += int32(PIECE)\n    dweight", "first += run_tokens.size\n    dweight"),
    ("dposition[uint32(start + t), column] += total", "dposition[uint32(start + t), column] = total"),
]  # fmt: skip


#: A batch of a few places is then cut into several tiles, pieces, and teams' shares.
SMALL = {"TILE": 8, "PIECE": 4, "TEAMS": 2, "AHEAD": 3}


@pytest.fixture
def tiny_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in SMALL.items():
        monkeypatch.setattr(embedding, name, size)
    for kernel in ("sort_tiles", "merge_tiles", "sum_pieces", "add_rests"):
        monkeypatch.setattr(embedding, kernel, variant(getattr(embedding, kernel), **SMALL))


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, embedding, executor, order)


@pytest.mark.usefixtures("tiny_tiles")
@every_run
@pytest.mark.parametrize("power", [1, 4])
@pytest.mark.parametrize("V", [1, 3, 100])
@pytest.mark.parametrize("places", [7, 8, 9, 33])
def test_tiles_and_pieces_of_every_kind(places: int, V: int, power: int, executor: Any, order: Any) -> None:
    if executor == "ptx":
        need_toolkit()
    check(cases(f"{places}", B=1, T=places, C=2, V=V, power=power)[1], embedding, executor, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16(case: Case) -> None:
    check_bfloat16(case, embedding)


def test_bits_do_not_depend_on_the_order_of_the_threads() -> None:
    case = Case("embedding_backward", "", partial(backward, B=4, T=150, C=5, V=9, start=0, power=2), ())
    results = []
    for order in ("forward", "reverse", "random"):
        arguments = arguments_of(case)
        with executing("compiled", order, seed=3):
            embedding.embedding_backward(**arguments)
        results.append((arguments["dweight"], arguments["dposition"]))
    for dweight, dposition in results[1:]:
        assert (dweight == results[0][0]).all()
        assert (dposition == results[0][1]).all()


def test_rows_of_tokens_that_do_not_occur_stay() -> None:
    arguments = backward(np.random.default_rng(0), B=2, T=5, C=3, V=50)
    before = arguments["dweight"].copy()
    embedding.embedding_backward(**arguments)
    absent = np.setdiff1d(np.arange(50), arguments["tokens"])
    assert len(absent) >= 40
    assert (arguments["dweight"][absent] == before[absent]).all()


def test_tokens_outside_the_vocabulary_read_the_first_or_the_last_row() -> None:
    """The loader refuses them; here nothing outside the table is read, or written, should one come."""
    arguments = forward(np.random.default_rng(0), B=1, T=3, C=4, V=5)
    arguments["tokens"][:] = [[-2, 5, 2**30]]
    expected = {**arguments, "out": unwritten(1, 3, 4)}
    nanoeuler.cpu.embedding_forward(**expected)
    for executor in ("compiled", "checked"):
        with executing(executor):
            embedding.embedding_forward(**arguments)
            dweight = np.zeros((5, 4), np.float32)
            embedding.embedding_backward(dweight, None, np.ones((1, 3, 4), np.float32), arguments["tokens"])
        assert (arguments["out"] == expected["out"]).all()
        assert (dweight.sum(axis=1) == [4, 0, 0, 0, 8]).all()


def test_nan_stays_with_its_token_and_position() -> None:
    arguments = backward(np.random.default_rng(0), B=2, T=5, C=3, V=3, start=0)
    arguments["dout"][1, 2, 1] = np.nan
    embedding.embedding_backward(**arguments)
    assert np.argwhere(np.isnan(arguments["dweight"])).tolist() == [[arguments["tokens"][1, 2], 1]]
    assert np.argwhere(np.isnan(arguments["dposition"])).tolist() == [[2, 1]]
