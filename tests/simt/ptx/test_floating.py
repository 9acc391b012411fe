"""Floating-point instructions against exact rational arithmetic, in every rounding mode, on awkward values."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}
DTYPES = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}
MODES = ("rn", "rz", "rm", "rp")


def rounded(exact: Fraction, kind: str, mode: str = "rn") -> float:
    """Return ``exact`` in the format ``kind``, rounded by ``mode`` (zero: positive)."""
    precision, lowest, highest = FORMATS[kind]
    if exact == 0:
        return 0.0
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, lowest) - precision + 1)
    whole, rest = divmod(magnitude, unit)
    up = {
        "rn": rest * 2 > unit or (rest * 2 == unit and whole % 2 == 1),
        "rz": False,
        "rm": rest > 0 and exact < 0,
        "rp": rest > 0 and exact > 0,
    }[mode]
    value = (whole + up) * unit
    largest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** highest
    if value > largest:
        away = mode == "rn" or (mode == "rp" and exact > 0) or (mode == "rm" and exact < 0)
        value = largest if not away else None
    result = math.inf if value is None else float(value)
    return -result if exact < 0 else result


def values_of(kind: str, count: int = 40, seed: int = 0) -> np.ndarray:
    """Return awkward finite and infinite values of ``kind`` as float64, and random ones of all exponents."""
    precision, lowest, highest = FORMATS[kind]
    generator = np.random.default_rng(seed)
    tiny, smallest = 2.0 ** (lowest - precision + 1), 2.0**lowest
    largest = (2 - 2.0 ** (1 - precision)) * 2.0**highest
    edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        3.0,
        tiny,
        -tiny,
        smallest,
        smallest - tiny,
        largest,
        -largest,
        math.inf,
        -math.inf,
        math.nan,
    ]
    edges += [1 + 2.0 ** (1 - precision), 1 - 2.0**-precision, 0.1, 1 / 3]
    scale = 2.0 ** generator.integers(lowest // 2, highest // 2, count)
    return as_values(np.concatenate([edges, generator.standard_normal(count) * scale]), kind)


def as_values(values: np.ndarray, kind: str) -> np.ndarray:
    """Return float64 ``values`` rounded to ``kind``."""
    finite = np.isfinite(values)
    return np.array(
        [
            rounded(Fraction(v), kind) * math.copysign(1, v) if v == 0 else rounded(Fraction(v), kind) if f else v
            for v, f in zip(values.tolist(), finite, strict=True)
        ]
    )


def encode(values: np.ndarray, kind: str) -> np.ndarray:
    """Return float64 ``values`` of ``kind`` as an instruction's operands."""
    if kind != "bf16":
        return values.astype(DTYPES[kind])
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def decode(words: np.ndarray, kind: str) -> np.ndarray:
    """Return an instruction's results as float64."""
    if kind == "bf16":
        return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return words.astype(np.float64)


def same(found: np.ndarray, expected: list[float]) -> None:
    """Assert equality with the signs of zeros, NaN equal to NaN."""
    wanted = np.array(expected, np.float64)
    equal = (found == wanted) & (np.signbit(found) == np.signbit(wanted)) | (np.isnan(found) & np.isnan(wanted))
    bad = np.flatnonzero(~equal)
    assert not bad.size, [(int(i), float(found[i]).hex(), float(wanted[i]).hex()) for i in bad[:5]]


def ieee(function, kind: str, mode: str, *columns: np.ndarray) -> list[float]:
    """Return what IEEE 754 gives; ``function`` works on Fractions and, for what is not finite or zero, on float64."""
    results = []
    for row in zip(*(column.tolist() for column in columns), strict=True):
        with np.errstate(all="ignore"):
            plain = float(function(*(np.float64(v) for v in row)))
        if not all(math.isfinite(v) for v in row):
            results.append(plain)
            continue
        try:
            exact = function(*(Fraction(v) for v in row))
        except ZeroDivisionError:
            results.append(plain)
            continue
        if exact != 0:
            results.append(rounded(exact, kind, mode))
        elif mode == "rm" and not math.copysign(1, plain) < 0 and cancels(function, row):
            results.append(-0.0)
        else:
            results.append(plain if plain == 0 else 0.0)
    return results


def cancels(function, row: tuple[float, ...]) -> bool:
    """Whether a zero is the sum of opposite terms, which is -0 where rounding is down."""
    if function in (product, quotient):
        return False
    terms = [row[0] * row[1], row[2]] if function is product_sum else [row[0], row[1] if function is total else -row[1]]
    return any(math.copysign(1, term) < 0 for term in terms)


def total(a, b):
    return a + b


def difference(a, b):
    return a - b


def product(a, b):
    return a * b


def quotient(a, b):
    return a / b


def product_sum(a, b, c):
    return a * b + c


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize(
    ("name", "function"), [("add", total), ("sub", difference), ("mul", product), ("div", quotient)]
)
def test_arithmetic_in_every_rounding_mode(evaluate, name, function, kind, mode):
    a, b = (np.array(x) for x in zip(*itertools.product(values_of(kind, 14), values_of(kind, 14, 1)), strict=True))
    (d,) = evaluate(f"{name}.{mode}.{kind} %d0, %a, %b", f"{kind} {kind}", kind, encode(a, kind), encode(b, kind))
    same(decode(d, kind), ieee(function, kind, mode, a, b))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize(("name", "function"), [("add", total), ("sub", difference), ("mul", product)])
def test_arithmetic_in_half_precision(evaluate, name, function, kind):
    a, b = (np.array(x) for x in zip(*itertools.product(values_of(kind, 14), values_of(kind, 14, 1)), strict=True))
    (d,) = evaluate(f"{name}.rn.{kind} %d0, %a, %b", f"{kind} {kind}", kind, encode(a, kind), encode(b, kind))
    same(decode(d, kind), ieee(function, kind, "rn", a, b))


def fma_rows(kind: str) -> list[np.ndarray]:
    """Return operands of fma: near cancellation, near half-way cases, all exponents and the edges."""
    generator = np.random.default_rng(5)
    precision, lowest, highest = FORMATS[kind]
    n = 150
    a, b = (as_values(generator.standard_normal(n), kind) for _ in range(2))
    shifts = 2.0 ** generator.integers(-2 * precision, precision, n)
    c = as_values(-a * b * shifts, kind)
    half = as_values(1 + generator.integers(0, 4, n) * 2.0 ** (1 - precision), kind)
    tiny = as_values(generator.standard_normal(n) * 2.0 ** (lowest // 2), kind)
    far = as_values(generator.standard_normal(n) * 2.0 ** (highest // 2), kind)
    edges = values_of(kind, 0)
    grid = [np.array(x) for x in zip(*itertools.product(edges, edges[::2], [*edges[:3], *edges[8:14:2]]), strict=True)]
    rows = [
        (a, b, c),
        (half, half, as_values(shifts, kind)),
        (tiny, tiny, tiny * tiny[::-1]),
        (far, far[::-1], c),
        grid,
    ]
    return [np.concatenate([as_values(row[k], kind) for row in rows]) for k in range(3)]


@pytest.mark.parametrize(
    ("kind", "mode"), [("f32", m) for m in MODES] + [("f64", m) for m in MODES] + [("f16", "rn"), ("bf16", "rn")]
)
def test_fma_is_rounded_once(evaluate, kind, mode):
    columns = fma_rows(kind)
    kinds = f"{kind} {kind} {kind}"
    (d,) = evaluate(f"fma.{mode}.{kind} %d0, %a, %b, %c", kinds, kind, *(encode(v, kind) for v in columns))
    same(decode(d, kind), ieee(product_sum, kind, mode, *columns))


def root_of(value: float, kind: str, mode: str) -> float:
    """Return the square root, rounded once."""
    if not math.isfinite(value) or value <= 0:
        return value if value == 0 or value == math.inf else math.nan
    fraction = Fraction(value)
    scale = 1 << 2 * 1200
    whole = math.isqrt(fraction.numerator * scale // fraction.denominator)
    exact = Fraction(whole, 1 << 1200)
    if exact * exact != fraction:
        exact += Fraction(1, 1 << 1202)  # on the right side, and far nearer than any tie
    return rounded(exact, kind, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_square_root_and_reciprocal(evaluate, kind, mode):
    a = values_of(kind, 150)
    (d,) = evaluate(f"sqrt.{mode}.{kind} %d0, %a", kind, kind, encode(a, kind))
    same(decode(d, kind), [root_of(v, kind, mode) for v in a.tolist()])
    (d,) = evaluate(f"rcp.{mode}.{kind} %d0, %a", kind, kind, encode(a, kind))
    same(decode(d, kind), ieee(quotient, kind, mode, np.ones(a.size), a))


def test_flush_to_zero_and_saturation(evaluate):
    tiny = 2.0**-140
    a, b = [tiny, -tiny, 2.0**-126, 5.0, -1.0, math.nan, 0.5], [1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0]
    (d,) = evaluate("mul.ftz.f32 %d0, %a, %b", "f32 f32", "f32", a, b)
    same(d.astype(np.float64), [0.0, -0.0, 0.0, 5.0, -1.0, math.nan, 0.5])
    (d,) = evaluate("mul.sat.f32 %d0, %a, %b", "f32 f32", "f32", a, b)
    same(d.astype(np.float64), [tiny, 0.0, 2.0**-127, 1.0, 0.0, 0.0, 0.5])
    (d,) = evaluate("fma.rn.ftz.sat.f32 %d0, %a, %b, %a", "f32 f32", "f32", a, b)
    same(d.astype(np.float64), [0.0, 0.0, 2.0**-126 * 1.5, 1.0, 0.0, 0.0, 1.0])


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_min_max_abs_neg(evaluate, kind):
    edges = values_of(kind, 3)
    a, b = (np.array(x) for x in zip(*itertools.product(edges, edges), strict=True))
    kinds, left, right = f"{kind} {kind}", encode(a, kind), encode(b, kind)

    def smaller(x: float, y: float) -> float:
        if math.isnan(x) or math.isnan(y):
            return y if math.isnan(x) else x
        return min((x, y), key=lambda v: (v, math.copysign(1, v)))

    (d,) = evaluate(f"min.{kind} %d0, %a, %b", kinds, kind, left, right)
    same(decode(d, kind), [smaller(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])
    (d,) = evaluate(f"max.{kind} %d0, %a, %b", kinds, kind, left, right)
    same(decode(d, kind), [-smaller(-x, -y) for x, y in zip(a.tolist(), b.tolist(), strict=True)])
    (d,) = evaluate(f"min.NaN.{kind} %d0, %a, %b", kinds, kind, left, right)
    assert (np.isnan(decode(d, kind)) == (np.isnan(a) | np.isnan(b))).all()
    (d,) = evaluate(f"neg.{kind} %d0, %a", kind, kind, encode(edges, kind))
    same(decode(d, kind), (-edges).tolist())
    (d,) = evaluate(f"abs.{kind} %d0, %a", kind, kind, encode(edges, kind))
    same(decode(d, kind), np.abs(edges).tolist())


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_packed_pairs(evaluate, kind):
    generator = np.random.default_rng(2)
    halves = [[as_values(generator.standard_normal(32), kind) for _ in range(2)] for _ in range(3)]
    words = [
        encode(low, kind).view(np.uint16).astype(np.uint32) | encode(high, kind).view(np.uint16).astype(np.uint32) << 16
        for low, high in halves
    ]

    def split(word: np.ndarray) -> list[np.ndarray]:
        parts = [(word & 0xFFFF).astype(np.uint16), (word >> 16).astype(np.uint16)]
        return [decode(part.view(DTYPES[kind]), kind) for part in parts]

    pair = f"{kind}x2"
    (d,) = evaluate(f"add.rn.{pair} %d0, %a, %b", f"{pair} {pair}", pair, *words[:2])
    for half in range(2):
        same(split(d)[half], ieee(total, kind, "rn", halves[0][half], halves[1][half]))
    (d,) = evaluate(f"fma.rn.relu.{pair} %d0, %a, %b, %c", f"{pair} {pair} {pair}", pair, *words)
    for half in range(2):
        expected = ieee(product_sum, kind, "rn", *(h[half] for h in halves))
        same(split(d)[half], [max(v, 0.0) for v in expected])
    (d,) = evaluate(f"neg.{pair} %d0, %a", pair, pair, words[0])
    for half in range(2):
        same(split(d)[half], (-halves[0][half]).tolist())
    p, q = evaluate(f"setp.lt.{pair} %d0|%d1, %a, %b", f"{pair} {pair}", "pred pred", *words[:2])
    assert (p == (halves[0][0] < halves[1][0])).all()
    assert (q == (halves[0][1] < halves[1][1])).all()


APPROXIMATE = {
    "ex2": (lambda x: 2.0**x, np.linspace(-20, 20, 64), 2**-21),
    "lg2": (math.log2, np.linspace(0.01, 90, 64), 2**-21),
    "sin": (math.sin, np.linspace(-3, 3, 64), 2**-20),
    "cos": (math.cos, np.linspace(-3, 3, 64), 2**-20),
    "tanh": (math.tanh, np.linspace(-4, 4, 64), 2**-10),
    "rsqrt": (lambda x: x**-0.5, np.linspace(0.01, 90, 64), 2**-21),
    "rcp": (lambda x: 1 / x, np.linspace(0.01, 90, 64), 2**-22),
    "sqrt": (math.sqrt, np.linspace(0.01, 90, 64), 2**-22),
}


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_functions_are_within_the_errors_of_the_isa(evaluate, name):
    function, x, tolerance = APPROXIMATE[name]
    x = x.astype(np.float32)
    ftz = "" if name == "tanh" else ".ftz"
    (d,) = evaluate(f"{name}.approx{ftz}.f32 %d0, %a", "f32", "f32", x)
    expected = np.array([function(float(v)) for v in x])
    np.testing.assert_allclose(d, expected, rtol=tolerance, atol=tolerance)


def test_approximate_functions_at_the_edges(evaluate):
    edges = [0.0, -0.0, math.inf, -math.inf, math.nan, -1.0]
    expected = {
        "ex2": [1.0, 1.0, math.inf, 0.0, math.nan, 0.5],
        "lg2": [-math.inf, -math.inf, math.inf, math.nan, math.nan, math.nan],
        "rsqrt": [math.inf, -math.inf, 0.0, math.nan, math.nan, math.nan],
        "rcp": [math.inf, -math.inf, 0.0, -0.0, math.nan, -1.0],
    }
    for name, wanted in expected.items():
        (d,) = evaluate(f"{name}.approx.ftz.f32 %d0, %a", "f32", "f32", edges)
        same(d.astype(np.float64), wanted)


def test_approximate_division(evaluate):
    a, b = [1.0, math.inf, 6.0, -3.0], [2.0**127, 2.0**127, 3.0, -(2.0**127)]
    (d,) = evaluate("div.approx.f32 %d0, %a, %b", "f32 f32", "f32", a, b)
    same(d.astype(np.float64), [0.0, math.nan, 2.0, 0.0])
    (d,) = evaluate("div.full.f32 %d0, %a, %b", "f32 f32", "f32", a, b)
    same(d.astype(np.float64), [2.0**-127, math.inf, 2.0, 3.0 * 2.0**-127])


def test_coarse_reciprocal_of_float64(evaluate):
    a = np.array([3.0, -7.5, 0.0, math.inf])
    (d,) = evaluate("rcp.approx.ftz.f64 %d0, %a", "f64", "f64", a)
    np.testing.assert_allclose(d, [1 / 3, -1 / 7.5, math.inf, 0.0], rtol=2**-20)
    assert not (d.view(np.uint64) & 0xFFFFFFFF).any()


def test_copysign_and_testp(evaluate):
    edges = values_of("f32", 2)
    (d,) = evaluate("copysign.f32 %d0, %a, %b", "f32 f32", "f32", edges[::-1], edges)
    same(d.astype(np.float64), np.copysign(edges, edges[::-1]).tolist())
    smallest = 2.0**-126
    classes = {
        "finite": np.isfinite(edges),
        "infinite": np.isinf(edges),
        "number": ~np.isnan(edges),
        "notanumber": np.isnan(edges),
        "normal": np.isfinite(edges) & (np.abs(edges) >= smallest),
        "subnormal": (np.abs(edges) < smallest) & (edges != 0),
    }
    for name, expected in classes.items():
        (d,) = evaluate(f"testp.{name}.f32 %d0, %a", "f32", "pred", edges)
        assert (d == expected).all(), name
