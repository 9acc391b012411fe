"""Conditions on the columns of a data set: ``int_score >= 4``, ``language == 'en'``, ``dump in ['a', 'b']``.

A condition is one comparison of a column with a constant. Nothing of it is run as code.
"""

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nanoeuler.errors import UserError

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    "in": lambda value, choices: value in choices,
}
FORM = re.compile(
    r"\s*(?P<column>.+?)\s*(?P<operator>>=|<=|==|!=|>(?!=)|<(?!=)|(?<=\s)in(?=\s|\[|\())\s*(?P<value>.+?)\s*", re.S
)
#: Signs that are taken for an operator, and the operator that they stand for.
MISWRITTEN = {"=": "==", "=>": ">=", "=<": "<=", "<>": "!=", "===": "==", "!==": "!=", "=!": "!="}
EXAMPLES = "a condition reads as \"int_score >= 4\", \"language == 'en'\" or \"dump in ['a', 'b']\""
ORDERED = (">=", "<=", ">", "<")


@dataclass(frozen=True)
class Condition:
    """One comparison of a column with a constant: a number, a string, True or False, or for ``in`` several of a kind.

    >>> condition = parse_condition("int_score >= 4")
    >>> condition.met(5), condition.met(3), condition.met(None), str(condition)
    (True, False, False, 'int_score >= 4')
    """

    column: str
    operator: str  # one of OPERATORS
    value: Any  # a constant; for "in" a tuple of constants

    def __str__(self) -> str:
        shown = list(self.value) if isinstance(self.value, tuple) else self.value
        return f"{self.column} {self.operator} {shown!r}"

    @property
    def expected(self) -> Any:
        """A constant of the type that the column must have."""
        return self.value[0] if isinstance(self.value, tuple) else self.value

    def met(self, value: Any) -> bool:
        """Return whether a row's value meets the condition; null never does.

        Raises:
            TypeError: the value is of another type than the constant.
        """
        if value is None:
            return False
        if kind(value) != kind(self.expected):
            raise TypeError(
                f"column '{self.column}' holds a {kind(value)}, {shortened(value)}, "
                f"and '{self}' compares it with a {kind(self.expected)}"
            )
        return OPERATORS[self.operator](value, self.value)


def parse_condition(text: str) -> Condition:
    """Read a condition.

    Raises:
        UserError: it is not one comparison of a column with a constant.
    """
    match = FORM.fullmatch(text)
    place = match.start("operator") if match else None
    runs = re.finditer(r"[=<>!]+", text)
    signs = next((run[0] for run in runs if place is None or run.start() <= place < run.end()), "")
    if match is None or signs in MISWRITTEN:
        hint = f"; write {MISWRITTEN[signs]} instead of {signs}" if signs in MISWRITTEN else ""
        raise UserError(f"'{text}' is not a condition{hint}; {EXAMPLES}")
    column, symbol, written = match["column"], match["operator"], match["value"]
    value = _constant(written, text)
    if symbol == "in":
        if not isinstance(value, list | tuple) or not value or {kind(v) for v in value} != {kind(value[0])}:
            raise UserError(f"'{text}': after 'in' comes a list of constants of one type, such as ['a', 'b']")
        value = tuple(value)
    expected = kind(value[0] if isinstance(value, tuple) else value)
    if expected not in ("number", "string", "boolean"):
        raise UserError(f"'{text}': {written} is not a number, a string, True or False; {EXAMPLES}")
    if expected == "boolean" and symbol in ORDERED:
        raise UserError(f"'{text}': True and False have no order; use == or !=")
    return Condition(column, symbol, value)


def _constant(written: str, text: str) -> Any:
    """Return the constant that ``written``, a part of the condition ``text``, stands for."""
    named = {"true": True, "false": False}
    if written in named:  # as JSON has it
        return named[written]
    try:
        return ast.literal_eval(written)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        quoted = re.fullmatch(r"[\w.-]+", written)
        advice = f"; a string stands in quotes: '{written}'" if quoted else f"; {EXAMPLES}"
        raise UserError(f"\"{text}\": '{written}' is not a constant{advice}") from None


def kind(value: Any) -> str:
    """Return the type of a value as conditions see it, in a word for people.

    >>> [kind(value) for value in (1, 2.5, "a", True, [1])]
    ['number', 'number', 'string', 'boolean', 'list']
    """
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else type(value).__name__


def number_from_text(text: str | None) -> int | float | str | None:
    """Return the number that the field of a CSV file stands for, None for an empty one, and else the field itself."""
    if not text:
        return None
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def shortened(value: Any, characters: int = 40) -> str:
    """Return a value as Python writes it, cut where it is long."""
    written = repr(value)
    return written if len(written) <= characters else written[:characters] + "..."
