"""Scalars of a checked kernel: Numba's types, compared with Numba itself, and the GPU's values at the edges."""

import ast
import itertools
import math
import operator
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core import types

from nanoeuler.simt.checked import arithmetic
from nanoeuler.simt.checked.arithmetic import Literal, UntypedError, call, cast

i8, i32, i64, u8, u32, u64 = np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64
f16, f32, f64, c64 = np.float16, np.float32, np.float64, np.complex64
ADD, SUB, MUL, DIV, FLOOR, MOD, POW, SHL, SHR = (
    arithmetic.OPERATORS[o]
    for o in (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
)
BINARY = {
    **{operator.add: ADD, operator.sub: SUB, operator.mul: MUL, operator.truediv: DIV, operator.floordiv: FLOOR},
    **{operator.mod: MOD, operator.lshift: SHL, operator.rshift: SHR},
    **{operator.and_: arithmetic.OPERATORS[ast.BitAnd], operator.lt: arithmetic.OPERATORS[ast.Lt]},
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A kernel's arithmetic warns of nothing."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def creeping() -> Iterator[list[str]]:
    """What has become float64 without cause."""
    found: list[str] = []
    arithmetic.listen(found.append)
    yield found
    arithmetic.listen(None)


def same(a: Any, b: Any) -> bool:
    """Whether two scalars have one type and the same bits, or are NaN both."""
    return type(a) is type(b) and (a == b or (a != a and b != b))


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (lambda: ADD(i32(2**31 - 1), i32(1)), i64(2**31)),
        (lambda: ADD(i64(2**63 - 1), i64(1)), i64(-(2**63))),
        (lambda: MUL(u32(2**32 - 1), u32(2**32 - 1)), u64((2**32 - 1) ** 2)),
        (lambda: SUB(u32(1), i64(2)), i64(-1)),
        (lambda: ADD(u64(2**63), i64(1)), i64(-(2**63) + 1)),
        (lambda: ADD(np.bool_(True), np.bool_(True)), i64(2)),
        (lambda: ADD(np.int16(1), f32(0.5)), f32(1.5)),
        (lambda: ADD(f16(1), f16(0.5)), f16(1.5)),
        (lambda: MUL(c64(2j), f32(2)), c64(4j)),
        (lambda: DIV(i32(1), i32(4)), f64(0.25)),
        (lambda: DIV(i64(1), i64(0)), f64(math.inf)),
        (lambda: DIV(f32(0), f32(0)), f32(math.nan)),
        (lambda: FLOOR(i64(-7), i64(2)), i64(-4)),
        (lambda: FLOOR(i64(7), i64(0)), i64(0)),
        (lambda: MOD(i32(7), i32(0)), i64(0)),
        (lambda: FLOOR(i64(-(2**63)), i64(-1)), i64(0)),
        (lambda: MOD(f32(-1), f32(3)), f32(2)),
        (lambda: POW(f32(3), i64(2)), f32(9)),
        (lambda: POW(f32(2), i64(-2)), f32(0.25)),
        (lambda: POW(i64(2), i64(-1)), i64(0)),
        (lambda: POW(i64(-1), i64(-3)), i64(-1)),
        (lambda: POW(i64(0), i64(-1)), i64(-(2**63))),
        (lambda: POW(i32(3), i32(40)), i64(12157665459056928801 - 2**64)),
        (lambda: SHL(i32(1), i64(40)), i64(2**40)),
        (lambda: SHL(i64(1), i64(64)), i64(0)),
        (lambda: SHR(i32(-5), i64(64)), i64(-1)),
        (lambda: SHR(u32(5), i64(-1)), u64(0)),
        (lambda: call(abs, (i32(-3),)), i32(3)),
        (lambda: call(abs, (c64(3 + 4j),)), f32(5)),
        (lambda: call(min, (i32(3), i32(2))), i32(2)),
        (lambda: call(max, (f32(math.nan), f32(1))), f32(1)),
        (lambda: call(min, (f32(1), f32(math.nan))), f32(1)),
        (lambda: call(max, (f32(math.nan), f32(math.nan))), f32(math.nan)),
        (lambda: call(max, (i64(1), i64(5), i64(3))), i64(5)),
        (lambda: call(round, (f32(2.5),)), i64(2)),
        (lambda: call(round, (f32(2.345), i64(2))), f32(2.35)),
        (lambda: call(int, (f32(-2.9),)), i64(-2)),
        (lambda: call(int, (u32(7),)), u32(7)),
        (lambda: call(float, (f32(1.5),)), f32(1.5)),
        (lambda: call(bool, (f32(0),)), np.bool_(False)),
        (lambda: call(divmod, (i32(-7), i32(2)))[1], i64(1)),
        (lambda: call(math.sqrt, (f32(2),)), f32(math.sqrt(2))),
        (lambda: call(math.log, (f32(0),)), f32(-math.inf)),
        (lambda: call(math.exp, (f32(100),)), f32(math.inf)),
        (lambda: call(math.sqrt, (f32(-1),)), f32(math.nan)),
        (lambda: call(math.floor, (f32(1.5),)), f32(1)),
        (lambda: call(math.gamma, (f32(200),)), f32(math.inf)),
        (lambda: call(math.lgamma, (f32(-1),)), f32(math.inf)),
        (lambda: call(math.pow, (f32(2), i32(3))), f32(8)),
        (lambda: call(math.fmod, (f32(-7), f32(3))), f32(-1)),
        (lambda: call(math.isnan, (f32(math.nan),)), np.bool_(True)),
        (lambda: call(math.frexp, (f32(8),))[1], i32(4)),
        (lambda: call(math.ldexp, (f32(1), i32(3))), f32(8)),
        (lambda: call(math.modf, (f32(-1.5),))[1], f32(-1)),
        (lambda: call(np.exp, (f32(0),)), f32(1)),
        (lambda: call(operator.iadd, (i32(1), i32(1))), i64(2)),
        (lambda: cast(f32(3e9), types.int32), i32(2**31 - 1)),
        (lambda: cast(f32(-1), types.uint8), u8(0)),
        (lambda: cast(f64(math.nan), types.int64), i64(0)),
        (lambda: cast(f32(-math.inf), types.int64), i64(-(2**63))),
        (lambda: cast(i64(300), types.int8), i8(44)),
        (lambda: cast(i64(-1), types.uint32), u32(2**32 - 1)),
        (lambda: cast(f64(0.1), types.float32), f32(0.1)),
        (lambda: cast(f64(1e300), types.float32), f32(math.inf)),
        (lambda: cast(Literal(0.1), types.float64), f64(0.1)),
        (lambda: arithmetic.popc(i64(-1)), i64(64)),
        (lambda: arithmetic.popc(i32(-1)), i32(32)),
        (lambda: arithmetic.clz(i32(1)), i32(31)),
        (lambda: arithmetic.clz(u64(0)), u64(64)),
        (lambda: arithmetic.ffs(i32(8)), u32(4)),
        (lambda: arithmetic.ffs(i64(0)), u32(0)),
        (lambda: arithmetic.brev(u32(1)), u32(2**31)),
        (lambda: arithmetic.brev(u64(1)), u64(2**63)),
        (lambda: arithmetic.brev(i32(-2)), u32(2**31 - 1)),
        (lambda: arithmetic.cbrt(f32(27)), f32(3)),
        (lambda: arithmetic.selp(np.bool_(False), i32(1), i32(2)), i32(2)),
    ],
)
def test_values_and_types(found: Any, wanted: Any) -> None:
    """Overflow wraps, division by zero is no error, floats become integers with saturation."""
    assert same(found(), wanted), (found(), wanted)


SAMPLES: dict[type, list[Any]] = {
    np.bool_: [np.bool_(True)],
    i32: [i32(-7), i32(2**31 - 1)],
    u32: [u32(3), u32(2**32 - 1)],
    i64: [i64(5), i64(-(2**62))],
    f32: [f32(-2.75), f32(1e30)],
}


@pytest.mark.slow
@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
def test_operators_give_what_numba_compiles(function: Any) -> None:
    """Every pair of types, with Numba's NumPy error model: the same type and value."""
    source = f"def run(a, b): return a {arithmetic.SYMBOLS.get(function) or SPELLED[function]} b"
    space: dict[str, Any] = {}
    exec(source, space)
    compiled = numba.njit(error_model="numpy")(space["run"])
    checked = 0
    for kinds in itertools.product(SAMPLES, repeat=2):
        try:
            arithmetic.signature(function, arithmetic.kinds_of(kinds))
        except UntypedError:
            continue
        result = arithmetic.signature(function, arithmetic.kinds_of(kinds))[0]
        for a, b in itertools.product(*(SAMPLES[k] for k in kinds)):
            if function in (operator.lshift, operator.rshift) and not 0 <= b < 64:
                continue  # not defined on a CPU
            found, wanted = BINARY[function](a, b), compiled(a, b)
            assert arithmetic.KINDS[type(found)] == result
            assert found == wanted or (found != found and wanted != wanted), (a, b, found, wanted)
            checked += 1
    assert checked > 10


SPELLED = {operator.lshift: "<<", operator.rshift: ">>", operator.and_: "&"}


@pytest.mark.slow
def test_types_are_those_of_the_cuda_target() -> None:
    """The rules written out here, for float16, min, max and math, are what numba-cuda's typing says."""
    descriptor = pytest.importorskip("numba.cuda.descriptor", reason="pip install numba-cuda")
    context = descriptor.cuda_target.typing_context
    context.refresh()
    one = [s for s in arithmetic.SCALARS.values() if not issubclass(s, np.complexfloating)]
    unary = [operator.neg, operator.invert, operator.not_, abs, int]
    unary += [getattr(math, name) for name in (*arithmetic.UNARY_MATH, "isnan") if hasattr(math, name)]
    two = [*BINARY, math.pow, math.atan2, math.hypot, math.copysign, math.fmod, math.ldexp]
    cases = [(f, (s,)) for f in unary for s in one]
    cases += [(f, (s, t)) for f in two for s in one for t in one]
    cases += [(f, (s, t)) for f in (min, max) for s in one for t in one if np.bool_ not in (s, t)]
    for function, scalars in cases:
        kinds = arithmetic.kinds_of(scalars)
        try:
            wanted = context.resolve_function_type(function, kinds, {})
        except Exception:
            wanted = None
        try:
            found = arithmetic.KINDS[type(call(function, tuple(s(1) for s in scalars)))]
        except UntypedError:
            found = None
        assert str(found) == str(wanted and wanted.return_type), (function.__name__, kinds)


@pytest.mark.parametrize(
    "compute",
    [
        lambda: MUL(f32(2), Literal(0.1)),
        lambda: MUL(i64(2), f32(3)),
        lambda: DIV(i32(1), i32(3)),
        lambda: call(math.sqrt, (i64(2),)),
        lambda: call(max, (Literal(-math.inf), f32(1))),
        lambda: call(float, (i64(1),)),
        lambda: arithmetic.OPERATORS[ast.Lt](f32(1), Literal(0.1)),
        lambda: arithmetic.fma(f32(1), f32(1), Literal(1)),
        lambda: call(np.sqrt, (i32(2),)),
        lambda: arithmetic.cbrt(Literal(2)),
    ],
)
def test_float64_that_nobody_asked_for_is_told(compute: Any, creeping: list[str]) -> None:
    """A literal, or an integer beside a float32, widens the result."""
    compute()
    assert len(creeping) == 1


@pytest.mark.parametrize(
    "compute",
    [
        lambda: MUL(f64(2), f32(0.1)),
        lambda: MUL(f64(2), Literal(0.1)),
        lambda: MUL(f32(2), f32(0.1)),
        lambda: MUL(Literal(2), Literal(3)),
        lambda: arithmetic.OPERATORS[ast.Lt](f32(1), Literal(0.5)),
        lambda: cast(i64(1), types.float64),
        lambda: cast(Literal(0.1), types.float32),
        lambda: call(math.sqrt, (f32(2),)),
    ],
)
def test_float64_that_was_asked_for_is_not_told(compute: Any, creeping: list[str]) -> None:
    """An operand is float64 by itself, or nothing is float64 in the end."""
    compute()
    assert creeping == []


def test_a_literal_stays_one_until_it_meets_a_variable() -> None:
    """-(0.1) * 2.0 is computed by the compiler."""
    assert type(MUL(arithmetic.OPERATORS[ast.USub](Literal(0.1)), Literal(2))) is Literal


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(FLOATS, FLOATS, FLOATS)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    """float32 fma is the float32 nearest to the exact value."""
    found = arithmetic.fma(f32(a), f32(b), f32(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if abs(exact) < Fraction(2) ** 127:
        error = abs(Fraction(float(found)) - exact)
        for neighbour in (np.nextafter(found, f32(math.inf)), np.nextafter(found, f32(-math.inf))):
            assert error <= abs(Fraction(float(neighbour)) - exact)
    else:
        assert abs(found) >= f32(2) ** 126


def test_ranges_have_numbas_types() -> None:
    """int32 for small types, uint64 for unsigned ones."""
    assert [type(v) for v in arithmetic.numbers(i32(2))] == [i32, i32]
    assert list(arithmetic.numbers(i64(5), i64(0), i64(-2))) == [5, 3, 1]
    assert type(next(iter(arithmetic.numbers(u32(1))))) is u64
    assert sum(1 for _ in arithmetic.numbers(i64(5000))) == 5000


def test_what_numba_does_not_have_is_refused() -> None:
    """A gcd, a bit count of a float, two types in selp, bits of a float in a shift."""
    for compute in (
        lambda: call(math.gcd, (i64(1), i64(1))),
        lambda: arithmetic.popc(f32(1)),
        lambda: arithmetic.selp(True, i32(1), i64(1)),
        lambda: SHL(f32(1), i64(1)),
        lambda: cast(c64(1), types.float32),
    ):
        with pytest.raises(UntypedError):
            compute()
