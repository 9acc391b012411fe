"""Functions on scalars, of Python, math and numba.cuda: Numba's types, and the GPU's values at the edges."""

import math
import operator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.simt.checked import functions, scalars
from nanoeuler.simt.checked.functions import call
from nanoeuler.simt.checked.scalars import Literal, UntypedError

i8, i32, i64, u8, u32, u64 = np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64
f16, f32, f64, c64 = np.float16, np.float32, np.float64, np.complex64

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (lambda: call(abs, (i32(-3),)), i32(3)),
        (lambda: call(abs, (c64(3 + 4j),)), f32(5)),
        (lambda: call(min, (i32(3), i32(2))), i32(2)),
        (lambda: call(max, (f32(math.nan), f32(1))), f32(1)),
        (lambda: call(min, (f32(1), f32(math.nan))), f32(1)),
        (lambda: call(max, (f32(math.nan), f32(math.nan))), f32(math.nan)),
        (lambda: call(max, (i64(1), i64(5), i64(3))), i64(5)),
        (lambda: call(min, (f32(0), f32(-0.0))), f32(-0.0)),
        (lambda: call(min, (f32(-0.0), f32(0))), f32(-0.0)),
        (lambda: call(max, (f64(0), f64(-0.0))), f64(0)),
        (lambda: call(max, (f64(-0.0), f64(0))), f64(0)),
        (lambda: call(max, (f32(-0.0), f64(0))), f64(0)),
        (lambda: call(min, (f16(0), f16(-0.0))), f16(-0.0)),
        (lambda: call(max, (f32(-0.0), f32(-0.0))), f32(-0.0)),
        (lambda: call(min, (f32(0), f32(math.nan))), f32(0)),
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
        (lambda: functions.popc(i64(-1)), i64(64)),
        (lambda: functions.popc(i32(-1)), i32(32)),
        (lambda: functions.clz(i32(1)), i32(31)),
        (lambda: functions.clz(u64(0)), u64(64)),
        (lambda: functions.ffs(i32(8)), u32(4)),
        (lambda: functions.ffs(i64(0)), u32(0)),
        (lambda: functions.brev(u32(1)), u32(2**31)),
        (lambda: functions.brev(u64(1)), u64(2**63)),
        (lambda: functions.brev(i32(-2)), u32(2**31 - 1)),
        (lambda: functions.cbrt(f32(27)), f32(3)),
        (lambda: functions.selp(np.bool_(False), i32(1), i32(2)), i32(2)),
    ],
)
def test_values_and_types(found: Any, wanted: Any, same: Any) -> None:
    """NaN and the sign of zero, overflow and poles: a number, and no error."""
    assert same(found(), wanted), (found(), wanted)


@pytest.mark.slow
def test_types_are_those_of_the_cuda_target() -> None:
    """The rules written out here, for float16, min, max and math, are what numba-cuda's typing says."""
    descriptor = pytest.importorskip("numba.cuda.descriptor", reason="pip install numba-cuda")
    context = descriptor.cuda_target.typing_context
    context.refresh()
    one = [s for s in scalars.SCALARS.values() if not issubclass(s, np.complexfloating)]
    unary = [operator.neg, operator.invert, operator.not_, abs, int]
    unary += [getattr(math, name) for name in (*functions.UNARY_MATH, "isnan") if hasattr(math, name)]
    two = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]
    two += [operator.lshift, operator.rshift, operator.and_, operator.lt]
    two += [math.pow, math.atan2, math.hypot, math.copysign, math.fmod, math.ldexp]
    cases = [(f, (s,)) for f in unary for s in one]
    cases += [(f, (s, t)) for f in two for s in one for t in one]
    cases += [(f, (s, t)) for f in (min, max) for s in one for t in one if np.bool_ not in (s, t)]
    for function, operands in cases:
        kinds = scalars.kinds_of(operands)
        try:
            wanted = context.resolve_function_type(function, kinds, {})
        except Exception:
            wanted = None
        try:
            found = scalars.KINDS[type(call(function, tuple(s(1) for s in operands)))]
        except UntypedError:
            found = None
        assert str(found) == str(wanted and wanted.return_type), (function.__name__, kinds)


@pytest.mark.parametrize(
    "compute",
    [
        lambda: call(math.sqrt, (i64(2),)),
        lambda: call(max, (Literal(-math.inf), f32(1))),
        lambda: call(float, (i64(1),)),
        lambda: functions.fma(f32(1), f32(1), Literal(1)),
        lambda: call(np.sqrt, (i32(2),)),
        lambda: functions.cbrt(Literal(2)),
    ],
)
def test_float64_that_nobody_asked_for_is_told(compute: Any, creeping: list[str]) -> None:
    """A literal, or an integer beside a float32, widens the result."""
    compute()
    assert len(creeping) == 1


@pytest.mark.parametrize(
    "compute",
    [
        lambda: call(math.sqrt, (f32(2),)),
    ],
)
def test_float64_that_was_asked_for_is_not_told(compute: Any, creeping: list[str]) -> None:
    """An operand is float64 by itself, or nothing is float64 in the end."""
    compute()
    assert creeping == []


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(FLOATS, FLOATS, FLOATS)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    """float32 fma is the float32 nearest to the exact value."""
    found = functions.fma(f32(a), f32(b), f32(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if abs(exact) < Fraction(2) ** 127:
        error = abs(Fraction(float(found)) - exact)
        for neighbour in (np.nextafter(found, f32(math.inf)), np.nextafter(found, f32(-math.inf))):
            assert error <= abs(Fraction(float(neighbour)) - exact)
    else:
        assert abs(found) >= f32(2) ** 126


def test_ranges_have_numbas_types() -> None:
    """int32 for small types, uint64 for unsigned ones."""
    assert [type(v) for v in functions.numbers(i32(2))] == [i32, i32]
    assert list(functions.numbers(i64(5), i64(0), i64(-2))) == [5, 3, 1]
    assert type(next(iter(functions.numbers(u32(1))))) is u64
    assert sum(1 for _ in functions.numbers(i64(5000))) == 5000


def test_what_numba_does_not_have_is_refused() -> None:
    """A gcd, a bit count of a float, two types in selp."""
    for compute in (
        lambda: call(math.gcd, (i64(1), i64(1))),
        lambda: functions.popc(f32(1)),
        lambda: functions.selp(True, i32(1), i64(1)),
    ):
        with pytest.raises(UntypedError):
            compute()
