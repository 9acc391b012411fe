"""Operators on scalars: types and values compared with Numba itself, and the GPU's values at the edges."""

import ast
import itertools
import math
import operator
from typing import Any

import numba
import numpy as np
import pytest

from nanoeuler.simt.checked import operators, scalars
from nanoeuler.simt.checked.scalars import Literal, UntypedError

i8, i32, i64, u8, u32, u64 = np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64
f16, f32, f64, c64 = np.float16, np.float32, np.float64, np.complex64
ADD, SUB, MUL, DIV, FLOOR, MOD, POW, SHL, SHR = (
    operators.OPERATORS[o]
    for o in (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
)
BINARY = {
    **{operator.add: ADD, operator.sub: SUB, operator.mul: MUL, operator.truediv: DIV, operator.floordiv: FLOOR},
    **{operator.mod: MOD, operator.lshift: SHL, operator.rshift: SHR},
    **{operator.and_: operators.OPERATORS[ast.BitAnd], operator.lt: operators.OPERATORS[ast.Lt]},
}

pytestmark = pytest.mark.usefixtures("quiet")


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
    ],
)
def test_values_and_types(found: Any, wanted: Any, same: Any) -> None:
    """Overflow wraps, and division by zero is no error."""
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
    source = f"def run(a, b): return a {operators.SYMBOLS.get(function) or SPELLED[function]} b"
    space: dict[str, Any] = {}
    exec(source, space)
    compiled = numba.njit(error_model="numpy")(space["run"])
    checked = 0
    for kinds in itertools.product(SAMPLES, repeat=2):
        try:
            scalars.signature(function, scalars.kinds_of(kinds))
        except UntypedError:
            continue
        result = scalars.signature(function, scalars.kinds_of(kinds))[0]
        for a, b in itertools.product(*(SAMPLES[k] for k in kinds)):
            if function in (operator.lshift, operator.rshift) and not 0 <= b < 64:
                continue  # not defined on a CPU
            found, wanted = BINARY[function](a, b), compiled(a, b)
            assert scalars.KINDS[type(found)] == result
            assert found == wanted or (found != found and wanted != wanted), (a, b, found, wanted)
            checked += 1
    assert checked > 10


SPELLED = {operator.lshift: "<<", operator.rshift: ">>", operator.and_: "&"}


@pytest.mark.parametrize(
    "compute",
    [
        lambda: MUL(f32(2), Literal(0.1)),
        lambda: MUL(i64(2), f32(3)),
        lambda: DIV(i32(1), i32(3)),
        lambda: operators.OPERATORS[ast.Lt](f32(1), Literal(0.1)),
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
        lambda: operators.OPERATORS[ast.Lt](f32(1), Literal(0.5)),
    ],
)
def test_float64_that_was_asked_for_is_not_told(compute: Any, creeping: list[str]) -> None:
    """An operand is float64 by itself, or nothing is float64 in the end."""
    compute()
    assert creeping == []


def test_a_literal_stays_one_until_it_meets_a_variable() -> None:
    """-(0.1) * 2.0 is computed by the compiler."""
    assert type(MUL(operators.OPERATORS[ast.USub](Literal(0.1)), Literal(2))) is Literal


def test_what_numba_does_not_have_is_refused() -> None:
    """A shift by a float, and an operator of complex numbers that have no order."""
    for compute in (lambda: SHL(f32(1), i64(1)), lambda: operators.OPERATORS[ast.Lt](c64(1), c64(2))):
        with pytest.raises(UntypedError):
            compute()
