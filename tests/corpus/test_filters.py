"""Conditions: what they read as, what they let through, and what is refused."""

import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanoeuler.corpus.filters import Condition, number_from_text, parse_condition
from nanoeuler.errors import UserError


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("int_score >= 4", Condition("int_score", ">=", 4)),
        ("score>3.5", Condition("score", ">", 3.5)),
        ("  balance < -1e-3 ", Condition("balance", "<", -1e-3)),
        ("language == 'en'", Condition("language", "==", "en")),
        ('language != "de"', Condition("language", "!=", "de")),
        ("is_good == true", Condition("is_good", "==", True)),
        ("is_good == False", Condition("is_good", "==", False)),
        ("two words <= 3", Condition("two words", "<=", 3)),
        ("sign == '>='", Condition("sign", "==", ">=")),
        ("dump in ['a', 'b']", Condition("dump", "in", ("a", "b"))),
        ("year in (2023, 2024.5)", Condition("year", "in", (2023, 2024.5))),
        ("in_domain in [1]", Condition("in_domain", "in", (1,))),
        ("origin >= 2", Condition("origin", ">=", 2)),
        ("a=b >= 2", Condition("a=b", ">=", 2)),
        ("x in ['=', '=>']", Condition("x", "in", ("=", "=>"))),
    ],
)
def test_conditions_are_read_and_written(text: str, condition: Condition) -> None:
    assert parse_condition(text) == condition
    assert parse_condition(str(condition)) == condition


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int_score", "'int_score' is not a condition"),
        ("", "is not a condition"),
        (">= 4", "is not a condition"),
        ("score >=", "is not a condition"),
        ("language = 'en'", "write == instead of ="),
        ("score => 3", "write >= instead of =>"),
        ("score=<3", "write <= instead of =<"),
        ("language <> 'en'", "write != instead of <>"),
        ("score === 3", "write == instead of ==="),
        ("language !== 'en'", "write != instead of !=="),
        ("language == en", "a string stands in quotes: 'en'"),
        ("score > 3.5 and token_count < 1000", "'3.5 and token_count < 1000' is not a constant"),
        ("x == __import__('os').getcwd()", "is not a constant"),
        ("x == [1]", "[1] is not a number, a string, True or False"),
        ("x == None", "None is not a number"),
        ("x == " + "(" * 9999, "is not a constant"),
        ("x < True", "have no order"),
        ("x in 'abc'", "after 'in' comes a list of constants of one type"),
        ("x in []", "after 'in' comes a list"),
        ("x in [1, 'a']", "after 'in' comes a list"),
        ("x in [[1], [2]]", "is not a number"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        parse_condition(text)
    assert message in str(error.value)


@given(st.integers() | st.floats(allow_nan=False), st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_compare_as_in_python(value: float, constant: float) -> None:
    for symbol, compare in [(">=", operator.ge), ("<", operator.lt), ("==", operator.eq), ("!=", operator.ne)]:
        assert parse_condition(f"x {symbol} {constant!r}").met(value) == compare(value, constant)


@given(st.text(), st.text())
def test_any_string_can_be_compared_with(value: str, constant: str) -> None:
    condition = parse_condition(f"x == {constant!r}")
    assert condition.met(value) == (value == constant)
    assert condition.met(constant)
    assert parse_condition(f"x in {[constant]!r}").met(constant)


@pytest.mark.parametrize("text", ["x >= 1", "x != 1", "x == 'a'", "x != 'a'", "x in [1]", "x == true"])
def test_null_meets_no_condition(text: str) -> None:
    assert not parse_condition(text).met(None)


@pytest.mark.parametrize(
    ("text", "value", "message"),
    [
        ("x >= 4", "4", "column 'x' holds a string, '4', and 'x >= 4' compares it with a number"),
        ("x == 'a'", 1, "holds a number, 1, and"),
        ("x == 1", True, "holds a boolean, True"),
        ("x in ['a']", 1, "compares it with a string"),
        ("x == 'a'", ["a" * 100], "holds a list, ['aaa"),
    ],
)
def test_another_type_is_an_error(text: str, value: Any, message: str) -> None:
    with pytest.raises(TypeError) as error:
        parse_condition(text).met(value)
    assert message in str(error.value)
    assert len(str(error.value)) < 150


def test_fields_of_csv_become_numbers_where_they_are() -> None:
    assert [number_from_text(field) for field in ("4", "-2.5", "1e3", "", "high", None)] == [
        4, -2.5, 1000.0, None, "high", None,
    ]  # fmt: skip
