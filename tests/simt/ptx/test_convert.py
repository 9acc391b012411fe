"""Conversions against exact arithmetic: every width, rounding and saturation."""

import math
from fractions import Fraction

import numpy as np
import pytest

from nanoeuler.simt.faults import UnsupportedError

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
ROUND = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
PRECISION = {"f16": 11, "f32": 24, "f64": 53}


def limits(kind: str) -> tuple[int, int]:
    """Return the least and the greatest value of an integer kind."""
    width = int(kind[1:])
    return (-(1 << width - 1), (1 << width - 1) - 1) if kind[0] == "s" else (0, (1 << width) - 1)


def wrap(value: int, kind: str) -> int:
    """Return ``value`` modulo the width of ``kind``."""
    low, high = limits(kind)
    return (value - low) % (high - low + 1) + low


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", INTEGERS)
def test_between_integers(evaluate, source, target, saturate):
    low, high = limits(source)
    values = [value for value in (low, low + 1, -1, 0, 1, 127, 128, 200, 40000, high - 1, high) if low <= value <= high]
    sat = ".sat" if saturate else ""
    (d,) = evaluate(f"cvt{sat}.{target}.{source} %d0, %a", source, target, values)
    bound = limits(target)
    expected = [max(bound[0], min(bound[1], v)) if saturate else wrap(v, target) for v in values]
    assert d.tolist() == expected


@pytest.mark.parametrize("mode", ROUND)
@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
def test_float_to_integer_saturates(evaluate, source, target, mode):
    values = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 2.75, -2.75, 127.5, 128.0, 300.25, -300.25, 40000.0, -40000.0]
    values += [] if source == "f16" else [2.0**31, -(2.0**31) - 512, 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 1e30, -1e30]
    (d,) = evaluate(f"cvt.{mode}.{target}.{source} %d0, %a", source, target, values)
    low, high = limits(target)
    assert d.tolist() == [max(low, min(high, ROUND[mode](v))) for v in values]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("f32", "s32", 0),
        ("f32", "u16", 0),
        ("f32", "s64", -(2**63)),
        ("f64", "s32", -(2**31)),
        ("f64", "u64", 2**63),
    ],
)
def test_nan_and_infinity_to_integer(evaluate, source, target, expected):
    """PTX ISA, cvt: NaN is 0, or the highest bit alone where the source is f64 or the result has 64 bits."""
    (d,) = evaluate(f"cvt.rzi.{target}.{source} %d0, %a", source, target, [math.nan, math.inf, -math.inf])
    low, high = limits(target)
    assert d.tolist() == [expected, high, low]


def nearest(value: int, precision: int, mode: str) -> Fraction:
    """Return an integer rounded to ``precision`` bits."""
    drop = max(abs(value).bit_length() - precision, 0)
    whole, rest = divmod(abs(value), 1 << drop)
    half = 1 << drop - 1 if drop else 1
    up = {
        "rn": drop > 0 and (rest > half or (rest == half and whole % 2 == 1)),
        "rz": False,
        "rm": rest > 0 and value < 0,
        "rp": rest > 0 and value > 0,
    }[mode]
    return Fraction((whole + up) << drop) * (-1 if value < 0 else 1)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("target", ["f32", "f64"])
@pytest.mark.parametrize("source", ["s32", "u32", "s64", "u64", "s16", "u8"])
def test_integer_to_float(evaluate, source, target, mode):
    low, high = limits(source)
    generator = np.random.default_rng(1)
    near = [
        (1 << 24) + 1,
        (1 << 25) + 2,
        (1 << 25) + 3,
        (1 << 53) + 1,
        (1 << 54) + 2,
        (1 << 54) + 6,
        (1 << 60) + (1 << 36),
        (1 << 60) + (1 << 36) + 1,
    ]
    values = [low, low + 1, -1, 0, 1, high, high - 1, *near, *(-v for v in near)]
    values += [int(v) for v in generator.integers(max(low, -(2**63)), min(high, 2**63 - 1), 40)]
    values = [v for v in values if low <= v <= high]
    (d,) = evaluate(f"cvt.{mode}.{target}.{source} %d0, %a", source, target, values)
    assert [Fraction(float(v)) for v in d] == [nearest(v, PRECISION[target], mode) for v in values]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_float64_to_float32(evaluate, mode):
    generator = np.random.default_rng(3)
    edges = [
        0.0,
        -0.0,
        1e300,
        -1e300,
        1e-300,
        -1e-300,
        1 + 2.0**-24,
        1 + 3 * 2.0**-24,
        2.0**-149 * 0.5,
        2.0**-149 * 1.5,
        3.4e38,
        3.5e38,
    ]
    a = np.concatenate([edges, generator.standard_normal(200) * 2.0 ** generator.integers(-150, 120, 200)])
    (d,) = evaluate(f"cvt.{mode}.f32.f64 %d0, %a", "f64", "f32", a)
    for value, found in zip(a.tolist(), d, strict=True):
        with np.errstate(all="ignore"):
            below = np.float32(value)
            below = np.nextafter(below, np.float32(-np.inf)) if float(below) > value else below
            above = below if float(below) == value else np.nextafter(below, np.float32(np.inf))
            expected = {"rn": np.float32(value), "rm": below, "rp": above, "rz": above if value < 0 else below}[mode]
        assert found == expected, (value, found, expected)


def test_float16_and_back(evaluate):
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    (wide,) = evaluate("cvt.f32.f16 %d0, %a", "f16", "f32", every)
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    values = np.array([65519.0, 65520.0, 1e-8, 2.0**-25, 2.0**-24 * 1.5, 1 + 2.0**-11, -(1 + 3 * 2.0**-11)], np.float32)
    (d,) = evaluate("cvt.rn.f16.f32 %d0, %a", "f32", "f16", values)
    assert d.tolist() == [65504.0, math.inf, 0.0, 0.0, 2.0**-23, 1.0, -(1 + 2.0**-9)]
    (d,) = evaluate("cvt.rz.f16.f32 %d0, %a", "f32", "f16", values)
    assert d.tolist() == [65504.0, 65504.0, 0.0, 0.0, 2.0**-24, 1.0, -(1 + 2.0**-10)]
    (d,) = evaluate("cvt.rn.relu.f16.f32 %d0, %a", "f32", "f16", [-1.5, 1.5])
    assert d.tolist() == [0.0, 1.5]


def test_bfloat16(evaluate):
    values = np.array([1.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.4e38, -2.5e-39, math.inf, math.nan], np.float32)
    (d,) = evaluate("cvt.rn.bf16.f32 %d0, %a", "f32", "bf16", values)
    back = (d.astype(np.uint32) << 16).view(np.float32)
    assert back[:4].tolist() == [1.0, 1.0, 1 + 2.0**-6, math.inf]
    assert abs(back[4] + 2.5e-39) < 2.0**-134
    assert back[5] == math.inf
    assert d[6] == 0x7FFF
    (d,) = evaluate("cvt.rz.bf16.f32 %d0, %a", "f32", "bf16", values[:4])
    assert (d.astype(np.uint32) << 16).view(np.float32).tolist() == [1.0, 1.0, 1 + 2.0**-7, 255 * 2.0**120]
    (d,) = evaluate("cvt.f32.bf16 %d0, %a", "bf16", "f32", [0x3FC0, 0xFF80])
    assert d.tolist() == [1.5, -math.inf]


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_pairs_have_the_first_operand_on_top(evaluate, kind):
    (d,) = evaluate(f"cvt.rn.{kind}.f32 %d0, %a, %b", "f32 f32", "b32", [1.5], [-2.0])
    halves = np.array([d[0] & 0xFFFF, d[0] >> 16], np.uint16)
    values = halves.view(np.float16) if kind == "f16x2" else (halves.astype(np.uint32) << 16).view(np.float32)
    assert values.tolist() == [-2.0, 1.5]


def test_integral_values_keep_the_sign_of_zero(evaluate):
    a = [-0.3, 0.5, 1.5, -2.5, 1e30, math.inf]
    for mode, expected in (
        ("rni", [-0.0, 0.0, 2.0, -2.0]),
        ("rpi", [-0.0, 1.0, 2.0, -2.0]),
        ("rmi", [-1.0, 0.0, 1.0, -3.0]),
    ):
        for kind in ("f32", "f64"):
            (d,) = evaluate(f"cvt.{mode}.{kind}.{kind} %d0, %a", kind, kind, a)
            assert d[:4].tolist() == expected
            assert np.signbit(d[0])
            assert d[5] == math.inf


def test_saturated_and_flushed_floats(evaluate):
    (d,) = evaluate("cvt.sat.f32.f32 %d0, %a", "f32", "f32", [-1.0, 0.25, 7.0, math.nan])
    assert d.tolist() == [0.0, 0.25, 1.0, 0.0]
    (d,) = evaluate("cvt.rn.ftz.f32.f64 %d0, %a", "f64", "f32", [1e-40, -1e-40])
    assert d.tolist() == [0.0, -0.0]
    (d,) = evaluate("cvt.ftz.f64.f32 %d0, %a", "f32", "f64", [2.0**-140])
    assert d.tolist() == [0.0]


def test_tf32(evaluate):
    values = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-10]
    (d,) = evaluate("cvt.rna.tf32.f32 %d0, %a", "f32", "b32", values)
    assert d.view(np.float32).tolist() == [1 + 2.0**-10, 1 + 2.0**-9, 1 + 2.0**-10]
    (d,) = evaluate("cvt.rn.tf32.f32 %d0, %a", "f32", "b32", values)
    assert d.view(np.float32).tolist() == [1.0, 1 + 2.0**-9, 1 + 2.0**-10]


def test_an_unknown_type_is_refused(evaluate):
    with pytest.raises(UnsupportedError, match="e4m3x2"):
        evaluate("cvt.rn.satfinite.e4m3x2.f32 %d0, %a, %b", "f32 f32", "b16", [1.0], [2.0])
