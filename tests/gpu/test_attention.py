"""FlashAttention's kernels against the CPU op, on slices, with cached keys, and by what they keep in memory."""

import inspect
from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, arguments_of, check, check_bfloat16, check_module, in_every_run, normal, unwritten
from simt.kernels.toolkit import need_toolkit

import nanoeuler.cpu
from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.gpu import attention
from nanoeuler.gpu.bfloat16 import BFLOAT16, in_bfloat16, to_bfloat16
from nanoeuler.gpu.launch import executing


def apart(x: np.ndarray) -> np.ndarray:
    """Return the same numbers in a slice, as of packed q|k|v: a row of NaN lies after the heads of each token."""
    not_a_number = 0xFFFF if x.dtype == BFLOAT16 else np.nan
    wide = np.full((x.shape[0], x.shape[1], x.shape[2] + 1, x.shape[3]), not_a_number, x.dtype)
    wide[:, :, :-1] = x
    return wide[:, :, :-1]


Starts = list[list[int]]  # for each sequence, where the document of each query begins


def forward(
    random: np.random.Generator, B: int, T: int, S: int, H: int, K: int, D: int, starts: Starts | None = None
) -> dict[str, Any]:
    q, k, v = normal(random, B, T, H, D), normal(random, B, S, K, D), normal(random, B, S, K, D)
    given = {"out": unwritten(B, T, H, D), "lse": unwritten(B, H, T), "q": apart(q), "k": apart(k), "v": apart(v)}
    return given | ({} if starts is None else {"starts": np.array(starts, np.int32)})


def backward(
    random: np.random.Generator, B: int, T: int, S: int, H: int, K: int, D: int, starts: Starts | None = None
) -> dict[str, Any]:
    given = forward(random, B, T, S, H, K, D, starts)
    nanoeuler.cpu.attention_forward(**given)
    gradients = {name: apart(unwritten(*given[name[1:]].shape)) for name in ("dq", "dk", "dv")}
    return {**gradients, "dout": normal(random, B, T, H, D), **given}


def begins(*lengths: int, earlier: int = 0) -> list[int]:
    """Return where the document of each query begins, of documents of these lengths after so many earlier keys."""
    return np.repeat(earlier + np.cumsum([0, *lengths[:-1]]), lengths).tolist()


def cases(
    B: int, T: int, S: int, H: int, K: int, D: int, starts: Starts | None = None, big: bool = False, ptx: bool = True
) -> list[Case]:
    name, shape = f"{B} {T} {S} {H} {K} {D}", {"B": B, "T": T, "S": S, "H": H, "K": K, "D": D}
    if starts is not None:
        name, shape = f"{name}, documents", shape | {"starts": starts}
    return [
        Case("attention_forward", name, partial(forward, **shape), ("out", "lse"), big=big, ptx=ptx),
        Case("attention_backward", name, partial(backward, **shape), ("dq", "dk", "dv"), big=big, ptx=ptx),
    ]


#: Whole tiles of other documents: the last block of queries skips three of keys, the first keys a tile of queries.
FAR_DOCUMENTS = [[3] * 10 + [60] * 15 + [80] * 39 + [120] * 6]

CASES = [
    *cases(
        1, 35, 67, 4, 2, 8, big=True, ptx=False
    ),  # several warps and tiles, two blocks of keys, earlier keys, groups
    *cases(2, 5, 5, 2, 1, 3),
    *cases(2, 1, 1, 1, 1, 1),
    *cases(1, 65, 65, 2, 2, 33, big=True),  # two blocks, whose last has one query; a head of more than one chunk
    *cases(2, 5, 5, 2, 1, 3, [begins(1, 2, 1, 1), begins(5)], ptx=False),
    *cases(1, 70, 130, 4, 2, 8, FAR_DOCUMENTS, big=True),
]

#: All multiples of 32 that head sizes are rounded up to, and one new query with earlier keys.
MORE_SHAPES = [
    *((1, 5, 5, 3, 3, 4), (2, 33, 33, 2, 1, 1), (1, 33, 64, 3, 1, 32), (1, 65, 65, 2, 2, 64), (1, 33, 33, 1, 1, 80)),
    *((1, 65, 70, 2, 1, 128), (1, 1, 70, 4, 2, 8)),
]

#: Documents that end where tiles do, and just before and after; of one token each; that begin in the cache.
DOCUMENTS = {
    "at the edges of tiles": (65, 65, [begins(32, 32, 1), begins(64, 1)]),
    "beside the edges of tiles": (130, 130, [begins(31, 34, 62, 3), begins(1, 128, 1)]),
    "of one token": (70, 70, [begins(*[1] * 70), begins(70)]),
    "among earlier keys": (70, 140, [[3] * 10 + [80] * 60, begins(5, 65, earlier=70)]),
}

#: What the mutants are tried on first: several tiles of few threads, in the executor that has nothing to compile.
ATTEMPTS = [
    partial(check_module, case)
    for starts in (None, [[0, 33, 65]], [[40, 64, 64]])
    for case in cases(1, 3, 66, 1, 1, 5, starts)
] + [partial(check_module, case) for case in cases(1, 20, 90, 1, 1, 1, [[70] * 20])]

EARLIEST, LATE = "earliest = first_key(starts, b, first)", "earliest = first_key(starts, b, first + 1)"
MUTANTS = [
    ("inside = n < x.shape[1] and d < x.shape[3]", "inside = d < x.shape[3]"),
    ("tile[column + LANES * j, d + x]", "tile[column + j, d + x]"),
    ("for start in range(0, D, VECTOR):", "for start in range(0, D - VECTOR, VECTOR):"),
    ("shrink = math.exp(largest[i] - new)", "shrink = float32(1)"),
    ("p[i, j] = MINUS_INFINITY", "p[i, j] = float32(0)"),
    ("cuda.syncthreads()  # the last tile is no longer needed\n        load(tile, read, k", "load(tile, read, k"),
    ("        cuda.syncthreads()\n        add_products(total, ", "        add_products(total, "),
    ("        cuda.syncwarp()\n        add_products", "        add_products"),
    ("            cuda.syncthreads()\n            add_products(total_k, ", "            add_products(total_k, "),
    ("earliest = max(0, first - (S - T)) // COLUMNS * COLUMNS", "earliest = first // COLUMNS * COLUMNS"),
    ('-(-S // sizes["ROWS"])', 'max(1, S // sizes["ROWS"])'),
    ("largest[i] = LOWEST", "largest[i] = MINUS_INFINITY"),
    ("S - T or s < begins[i]:", "S - T:"),
    ("if s < begins[i]:  # another document's", "if s + 1 < begins[i]:"),
    ("if first + row + i < column_begin:", "if first + row + i + 1 < column_begin:"),
    ("if first_key(starts, b, start) >= first + ROWS:", "if first_key(starts, b, start) >= first:"),
    (f"+ row + i)\n    clear(total)\n\n    {EARLIEST}", f"+ row + i)\n    clear(total)\n\n    {LATE}"),
    (f"b, t)\n    clear(total)\n\n    {EARLIEST}", f"b, t)\n    clear(total)\n\n    {LATE}"),
    ("starts[b, t] if t < starts.shape[1] else int32(0)", "starts[b, t]"),
]  # fmt: skip


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, attention, executor, order)


@pytest.mark.parametrize("shape", MORE_SHAPES, ids=str)
def test_head_sizes_and_tiles(shape: tuple[int, ...]) -> None:
    for case in cases(*shape):
        check(case, attention)


@pytest.mark.parametrize("documents", DOCUMENTS)
def test_documents(documents: str) -> None:
    T, S, starts = DOCUMENTS[documents]
    for case in cases(2, T, S, 2, 1, 8, starts):
        check(case, attention)


def test_documents_together_are_documents_alone() -> None:
    lengths = (33, 65, 40)
    together = run(1, 138, 138, 4, 2, 8, starts=np.array([begins(*lengths)], np.int32))
    for begin, length in zip(np.cumsum([0, *lengths]), lengths, strict=False):
        here = slice(begin, begin + length)
        given = {name: together[name][:, here].copy() for name in ("q", "k", "v", "dout")}
        alone = run(1, length, length, 4, 2, 8, **given)
        for name in ("out", "dq", "dk", "dv"):
            np.testing.assert_allclose(alone[name], together[name][:, here], rtol=0, atol=2e-6, err_msg=name)
        np.testing.assert_allclose(alone["lse"], together["lse"][:, :, here], rtol=0, atol=2e-6)


def test_nothing_of_another_document_is_seen() -> None:
    """Not even a key that is not a number: it is masked, and nothing of it is left."""
    starts = np.array([begins(35, 15)], np.int32)
    before = run(1, 50, 50, 4, 2, 8, starts=starts)
    k, dout = before["k"].copy(), before["dout"].copy()
    k[:, :35] = np.nan
    after = run(1, 50, 50, 4, 2, 8, k=k, starts=starts)
    assert np.isnan(after["out"][:, :35]).all()
    assert (after["out"][:, 35:] == before["out"][:, 35:]).all()
    dout[:, 35:] = 0
    given = run(1, 50, 50, 4, 2, 8, dout=dout, starts=starts)
    for name in ("dq", "dk", "dv"):
        assert (given[name][:, 35:] == 0).all()


def test_several_warps_and_tiles_have_no_races() -> None:
    """With documents, of which a kernel without them has the same barriers, and no more accesses between these."""
    for case in cases(1, 17, 33, 1, 1, 1, [begins(3, 14, earlier=16)]):
        check(case, attention, "checked", "random")


@pytest.mark.parametrize("case", [*CASES[:6], *CASES[10:]], ids=str)
def test_bfloat16(case: Case) -> None:
    check_bfloat16(case, attention)


def test_slices_of_bfloat16_give_the_same_bits() -> None:
    case = CASES[3]
    contiguous = {k: to_bfloat16(v) if k != "lse" else v for k, v in arguments_of(case).items()}
    sliced = {k: apart(v) if k in ("q", "k", "v", "dq", "dk", "dv") else v.copy() for k, v in contiguous.items()}
    attention.attention_backward(**contiguous)
    attention.attention_backward(**sliced)
    for name in case.outputs:
        assert (sliced[name] == contiguous[name]).all()


def test_what_lies_between_the_rows_stays() -> None:
    given = arguments_of(CASES[1])
    attention.attention_backward(**given)
    for name in ("dq", "dk", "dv"):
        assert np.isnan(given[name].base[:, :, -1]).all()


def run(B: int, T: int, S: int, H: int, K: int, D: int, **changed: np.ndarray) -> dict[str, np.ndarray]:
    """Run forward and backward, with some of the inputs given; return all arrays."""
    slices = {name: apart(x) if name in ("q", "k", "v") else x for name, x in changed.items()}
    given = {**backward(np.random.default_rng(0), B, T, S, H, K, D), **slices}
    names = {"out", "lse", "q", "k", "v", "starts"} & set(given)
    with np.errstate(all="ignore"):
        attention.attention_forward(**{name: given[name] for name in names})
        attention.attention_backward(**given)
    return given


def test_bits_do_not_depend_on_the_order_of_the_threads() -> None:
    results = []
    for order in ("forward", "reverse", "random"):
        with executing("compiled", order, seed=3):
            results.append(run(1, 35, 67, 4, 2, 8))
    for other in results[1:]:
        for name in ("out", "lse", "dq", "dk", "dv"):
            assert (other[name] == results[0][name]).all(), name


def test_no_query_sees_a_later_key() -> None:
    """Not even one that is not a number: it is masked, and nothing of it is left."""
    before = run(1, 35, 67, 4, 2, 8)
    k, dout = before["k"].copy(), before["dout"].copy()
    k[:, 32 + 20 :] = np.nan  # seen by query 20 and those after it
    dout[:, 20:] = 0
    after = run(1, 35, 67, 4, 2, 8, k=k, dout=dout)
    assert (after["out"][:, :20] == before["out"][:, :20]).all()
    assert np.isnan(after["out"][:, 20:]).all()


def test_gradients_of_the_first_queries_reach_no_later_key() -> None:
    dout = np.ones((1, 35, 4, 8), np.float32)
    dout[:, 20:] = 0
    given = run(1, 35, 67, 4, 2, 8, dout=dout)
    for name, seen in (("dq", 20), ("dk", 32 + 20), ("dv", 32 + 20)):
        assert (given[name][:, seen:] == 0).all()
        assert (given[name][:, seen - 1] != 0).any()


def test_queries_read_the_keys_of_their_group() -> None:
    before = run(1, 35, 67, 4, 2, 8)
    v = before["v"].copy()
    v[:, :, 1] += 1
    after = run(1, 35, 67, 4, 2, 8, v=v)
    assert (after["out"][:, :, :2] == before["out"][:, :, :2]).all()
    np.testing.assert_allclose(after["out"][:, :, 2:], before["out"][:, :, 2:] + 1, rtol=0, atol=1e-5)


def test_cached_keys_give_the_last_rows_of_the_whole() -> None:
    whole = run(1, 67, 67, 4, 2, 8)
    last = run(1, 35, 67, 4, 2, 8, **{name: whole[name] for name in ("k", "v")}, q=whole["q"][:, -35:])
    np.testing.assert_allclose(last["out"], whole["out"][:, -35:], rtol=0, atol=1e-6)
    np.testing.assert_allclose(last["lse"], whole["lse"][:, :, -35:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [1e2, 1e-4])
def test_huge_and_tiny_scores(scale: float) -> None:
    """Scores of about ±1e4 saturate the softmax and overflow nothing; tiny ones leave the mean of the values."""
    given = run(1, 35, 67, 4, 2, 8)
    given = run(1, 35, 67, 4, 2, 8, **{name: given[name] * np.float32(scale) for name in ("q", "k")})
    for name in ("out", "lse", "dq", "dk", "dv"):
        assert np.isfinite(given[name]).all(), name
    if scale < 1:
        means = np.cumsum(given["v"].astype(np.float64), axis=1) / np.arange(1, 68)[:, None, None]
        np.testing.assert_allclose(given["out"], np.repeat(means[:, 32:], 2, axis=2), rtol=0, atol=1e-5)


def test_memory_grows_with_the_queries_and_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []

    def scratch(name: str, shape: tuple[int, ...], dtype: Any, like: Any) -> np.ndarray:
        shapes.append(shape)
        return np.full(shape, np.nan, dtype)

    monkeypatch.setattr(attention, "scratch", scratch)
    run(1, 35, 67, 4, 2, 8)
    assert shapes == [(1, 4, 35)]


@pytest.mark.parametrize("backward", [False, True])
def test_tiles_fit_into_shared_memory(backward: bool) -> None:
    for D in range(1, 129):
        for owned in (1, 17, 33, 5000):
            sizes = attention.tile_sizes(D, owned, 5000, backward)
            assert 32 * sizes["CHUNKS"] >= D
            owned_tiles = 2 if backward else 1
            tiles = (owned_tiles * sizes["ROWS"] + sizes["COLUMNS"]) * sizes["STRIDE"]
            assert 4 * (tiles + sizes["COLUMNS"] * sizes["P_STRIDE"]) <= 48 * 1024


def test_larger_heads_are_refused() -> None:
    with pytest.raises(UserError, match="from 1 to 128, not 129"):
        attention.tile_sizes(129, 1, 1, backward=False)


@pytest.mark.parametrize("kernel", ["attend", "queries_gradient", "keys_gradients"])
def test_machine_code_is_clean(kernel: str) -> None:
    """On the oldest and the newest architecture, with large heads, bfloat16 and documents, which take many registers.

    ``python -m nanoeuler.judge`` looks at everything else.
    """
    need_toolkit()
    arrays = arguments_of(cases(1, 2, 3, 2, 1, 128, [[0, 2]])[1])
    starts = arrays.pop("starts")
    arrays = {name: x if name == "lse" else apart(to_bfloat16(x)) for name, x in arrays.items()}
    arrays |= {"delta": arrays["lse"], "starts": starts}
    sizes = attention.tile_sizes(128, 5000, 5000, kernel != "attend")
    fitted = attention.fitted(getattr(attention, kernel), sizes, arrays["q"], starts)
    signature = tuple(arrays.get(name, np.float32(1)) for name in inspect.signature(fitted.py_func).parameters)
    block = (32, sizes["WARPS"])
    simt.gate(in_bfloat16(fitted), signature, ["sm_75", "sm_120"], block=block)
