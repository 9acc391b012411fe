"""The kernel of rotary positions against the CPU op, in place, on slices, and there and back."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, check, check_bfloat16, in_every_run, normal, unwritten

from nanoeuler.gpu import rope

# B, T, H, D: one pair; odd everything; more sequences than a block; more heads and more pairs than a block
SHAPES = [(1, 1, 1, 2), (2, 5, 3, 6), (6, 2, 1, 8), (1, 1, 65, 8), (1, 2, 1, 514)]


def tables(T: int, D: int) -> dict[str, np.ndarray]:
    cos, sin = rope.rope_tables(T + 3, D, 100.0)
    return {"cos": cos[3:], "sin": sin[3:]}


def rotation(random: np.random.Generator, out: str, x: str, B: int, T: int, H: int, D: int) -> dict[str, Any]:
    return {out: unwritten(B, T, H, D), x: normal(random, B, T, H, D), **tables(T, D)}


def packed(random: np.random.Generator, out: str, x: str, B: int, T: int, H: int, D: int) -> dict[str, Any]:
    """Both arrays are slices: rows of other numbers lie between theirs."""
    arguments = rotation(random, out, x, B, T, H, D)
    for name in (out, x):
        arguments[name] = np.concatenate([arguments[name], np.ones((B, T, 2, D), np.float32)], axis=2)[:, :, :H]
    return arguments


def cases(name: str, arguments: Any, in_place: bool = False) -> list[Case]:
    return [
        Case(op, name, partial(arguments, out=out, x=x), (out,), ((out, x),) if in_place else ())
        for op, out, x in (("rope_forward", "out", "x"), ("rope_backward", "dx", "dout"))
    ]


CASES = [
    *(case for B, T, H, D in SHAPES for case in cases(f"{B} {T} {H} {D}", partial(rotation, B=B, T=T, H=H, D=D))),
    *cases("slices", partial(packed, B=2, T=3, H=3, D=6)),
    *cases("in place", partial(rotation, B=2, T=3, H=3, D=6), in_place=True),
    *cases("slice in place", partial(packed, B=2, T=3, H=3, D=6), in_place=True),
]

MUTANTS = [
    ("narrow(x2[k] * c + x1[k] * s)", "narrow(x2[k] * c + out[b, t, h, pair] * s)"),
    ("uint32(pair + half)", "uint32(pair + half - 1)"),
    ("h += uint32(cuda.blockDim.y)", "h += H"),
    ("-(-B // ROWS)", "max(1, B // ROWS)"),
    ("-(-D // 2 // pairs)", "1"),
    ("cuda.blockIdx.y * ROWS + k)\n            if b < B:\n                x1",
     "cuda.blockIdx.y + k)\n            if b < B:\n                x1"),
    ("cos, sin, -1.0", "cos, sin, 1.0"),
]  # fmt: skip


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, rope, executor, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16(case: Case) -> None:
    check_bfloat16(case, rope)


def test_backward_turns_back() -> None:
    x = normal(np.random.default_rng(0), 2, 5, 3, 6)
    there, back = unwritten(*x.shape), unwritten(*x.shape)
    rope.rope_forward(there, x, **tables(5, 6))
    rope.rope_backward(back, there, **tables(5, 6))
    np.testing.assert_allclose(back, x, rtol=0, atol=1e-6)
    assert np.abs(there - x).max() > 0.1


def test_what_lies_between_the_rows_stays() -> None:
    both = normal(np.random.default_rng(0), 2, 3, 5, 6)
    before = both.copy()
    rope.rope_forward(both[:, :, :3], both[:, :, :3], **tables(3, 6))
    assert (both[:, :, 3:] == before[:, :, 3:]).all()
    assert (both[:, :, :3] != before[:, :, :3]).any()


def test_nan_stays_in_its_pair() -> None:
    x = np.ones((1, 2, 2, 6), np.float32)
    x[0, 1, 0, 4] = np.nan
    out = unwritten(*x.shape)
    rope.rope_forward(out, x, **tables(2, 6))
    assert [tuple(place) for place in np.argwhere(np.isnan(out)).tolist()] == [(0, 1, 0, 1), (0, 1, 0, 4)]
