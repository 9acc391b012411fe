"""The lines of a task's file, with errors that say which line and what is expected of it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanoeuler.errors import UserError
from nanoeuler.tokenizer.files import read_utf8


@dataclass(frozen=True)
class Record:
    """A line of a ``.jsonl`` file: a JSON object."""

    place: str  # file:line
    values: dict[str, Any]
    expected: str  # what a line of this task is, for messages

    def text(self, key: str) -> str:
        """Return a string.

        Raises:
            UserError: there is none under this key.
        """
        value = self.values.get(key)
        if not isinstance(value, str):
            raise self.fault(f"'{key}' is missing" if key not in self.values else f"'{key}' is not a string")
        return value

    def index(self, key: str, count: int, first: int = 0) -> int:
        """Return a number from ``first`` on, in digits or as it is, as an index below ``count``.

        Raises:
            UserError: it is missing, as in files whose answers are kept secret, or no such number.
        """
        if key not in self.values:
            raise self.fault(f"no answer: '{key}' is missing, as in a test set whose answers are not published")
        return index_of(self.values[key], count, first, f"{self.place}: '{key}'")

    def fault(self, what: str) -> UserError:
        """Return the error that says what is wrong with this line."""
        return UserError(f"{self.place}: {what}; expected is {self.expected}")


def index_of(value: Any, count: int, first: int, what: str) -> int:
    """Return a number from ``first`` on, in digits or as it is, as an index below ``count``.

    Raises:
        UserError: it is no such number; the message begins with ``what``.
    """
    for i in range(count):
        if value == str(i + first) or (type(value) is int and value == i + first):
            return i
    raise UserError(f"{what} is {value!r}; expected is a number from {first} to {first + count - 1}")


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines of a text file that are not blank, each with its place: file:line.

    Raises:
        UserError: it cannot be read, is not UTF-8, or has no such line.
    """
    lines = read_utf8(path).removeprefix("\ufeff").split("\n")
    filled = [(f"{path}:{number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    if not filled:
        raise UserError(f"{path}: nothing in it")
    yield from filled


def read_jsonl(path: Path, expected: str) -> Iterator[Record]:
    """Yield the objects of a ``.jsonl`` file.

    Raises:
        UserError: as :func:`read_lines`, or a line is not a JSON object; it says what is ``expected`` of a line.
    """
    for place, line in read_lines(path):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            raise UserError(f"{place}: not JSON; expected is {expected}") from None
        if not isinstance(values, dict):
            raise UserError(f"{place}: not a JSON object; expected is {expected}")
        yield Record(place, values, expected)
