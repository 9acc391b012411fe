"""Comparisons and selections against Python's."""

import itertools
import math
import operator

import numpy as np
import pytest

ORDERED = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
EDGES = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.0**-140]


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", [*ORDERED, *(f"{name}u" for name in ORDERED), "num", "nan"])
def test_float_comparisons_with_nan(evaluate, name, kind):
    a, b = (list(x) for x in zip(*itertools.product(EDGES[:7], EDGES[:7]), strict=True))
    (d,) = evaluate(f"setp.{name}.{kind} %d0, %a, %b", f"{kind} {kind}", "pred", a, b)
    unordered = [math.isnan(x) or math.isnan(y) for x, y in zip(a, b, strict=True)]
    if name in ("num", "nan"):
        assert d.tolist() == [u == (name == "nan") for u in unordered]
        return
    compare = ORDERED[name.removesuffix("u") if name.endswith("u") else name]
    expected = [name.endswith("u") if u else compare(x, y) for x, y, u in zip(a, b, unordered, strict=True)]
    assert d.tolist() == expected


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", ORDERED)
def test_integer_comparisons(evaluate, name, kind):
    top = 1 << int(kind[1:]) - 1
    edges = [0, 1, top - 1, *([-1, -top] if kind[0] == "s" else [top, 2 * top - 1])]
    a, b = (list(x) for x in zip(*itertools.product(edges, edges), strict=True))
    (d,) = evaluate(f"setp.{name}.{kind} %d0, %a, %b", f"{kind} {kind}", "pred", a, b)
    assert d.tolist() == [ORDERED[name](x, y) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize(("name", "like"), [("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge")])
def test_unsigned_names(evaluate, name, like):
    (d,) = evaluate(f"setp.{name}.u32 %d0, %a, %b", "u32 u32", "pred", [1, 2, 2**32 - 1], [2, 2, 0])
    assert d.tolist() == [ORDERED[like](x, y) for x, y in ((1, 2), (2, 2), (2**32 - 1, 0))]


@pytest.mark.parametrize(("name", "function"), [("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)])
def test_combined_with_a_predicate_and_its_complement(evaluate, name, function):
    a, b, c = [1, 1, 3, 3], [2, 2, 2, 2], [0, 1, 0, 1]
    text = f"setp.lt.{name}.s32 %d0|%d1, %a, %b, !%c"
    p, q = evaluate(text, "s32 s32 pred", "pred pred", a, b, c)
    less = [x < y for x, y in zip(a, b, strict=True)]
    assert p.tolist() == [function(v, not z) for v, z in zip(less, c, strict=True)]
    assert q.tolist() == [function(not v, not z) for v, z in zip(less, c, strict=True)]


def test_flushed_comparison(evaluate):
    (d,) = evaluate("setp.eq.ftz.f32 %d0, %a, %b", "f32 f32", "pred", [2.0**-140, 2.0**-120], [0.0, 0.0])
    assert d.tolist() == [True, False]


def test_set_gives_ones_or_one(evaluate):
    (d,) = evaluate("set.lt.u32.f32 %d0, %a, %b", "f32 f32", "u32", [1.0, 2.0, math.nan], [2.0, 1.0, 1.0])
    assert d.tolist() == [2**32 - 1, 0, 0]
    (d,) = evaluate("set.lt.f32.s32 %d0, %a, %b", "s32 s32", "f32", [-1, 2], [2, 1])
    assert d.tolist() == [1.0, 0.0]


def test_selections(evaluate):
    (d,) = evaluate("selp.b32 %d0, %a, %b, %c", "b32 b32 pred", "b32", [1, 2], [3, 4], [1, 0])
    assert d.tolist() == [1, 4]
    (d,) = evaluate("selp.f64 %d0, %a, 0d3FF8000000000000, %c", "f64 f64 pred", "f64", [1.0, 2.0], [0.0, 0.0], [1, 0])
    assert d.tolist() == [1.0, 1.5]
    (d,) = evaluate("slct.b32.s32 %d0, %a, %b, %c", "b32 b32 s32", "b32", [1, 2, 3], [4, 5, 6], [0, -1, 9])
    assert d.tolist() == [1, 5, 3]
    (d,) = evaluate("slct.f32.f32 %d0, %a, %b, %c", "f32 f32 f32", "f32", [1, 2, 3], [4, 5, 6], [-0.0, -1.0, math.nan])
    assert d.tolist() == [1.0, 5.0, 6.0]


def test_predicates(evaluate):
    a, b = [0, 0, 1, 1], [0, 1, 0, 1]
    for name, function in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
        (d,) = evaluate(f"{name}.pred %d0, %a, %b", "pred pred", "pred", a, b)
        assert d.astype(int).tolist() == [function(x, y) for x, y in zip(a, b, strict=True)]
    (d,) = evaluate("not.pred %d0, %a", "pred", "pred", a)
    assert d.astype(int).tolist() == [1 - x for x in a]


def test_packing_and_unpacking(evaluate):
    low, high = evaluate("mov.b64 {%d0, %d1}, %a", "b64", "b32 b32", [0x1122334455667788])
    assert (low[0], high[0]) == (0x55667788, 0x11223344)
    (d,) = evaluate("mov.b64 %d0, {%a, %b}", "b32 b32", "b64", [0x55667788], [0x11223344])
    assert d[0] == 0x1122334455667788
    (d,) = evaluate("mov.b32 %d0, {%a, %b}", "b16 b16", "b32", [0x1234], [0xABCD])
    assert d[0] == 0xABCD1234
    (d,) = evaluate("mov.b32 {_, %d0}, %a", "b32", "b16", [0xABCD1234])
    assert d[0] == 0xABCD
    (d,) = evaluate("mov.b32 %d0, %a", "b32", "f32", [0x3FC00000])
    assert d[0] == np.float32(1.5)


def test_a_predicated_instruction_leaves_other_lanes_alone(evaluate):
    (d,) = evaluate(
        "mov.u32 %d0, 7; @%c mov.u32 %d0, %a; @!%c add.u32 %d0, %d0, 1", "u32 u32 pred", "u32", [1, 2], [0, 0], [1, 0]
    )
    assert d.tolist() == [1, 8]
