"""Reading the files of tokenizers, with errors that say which file and which line."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from nanoeuler.errors import UserError


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        UserError: there is no such file, or it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror}") from None
    except ValueError:  # NUL or a lone surrogate
        raise UserError(f"{str(path)!r}: not the name of a file") from None


def read_utf8(path: Path) -> str:
    """Return the text of a file.

    Raises:
        UserError: it cannot be read, or is not UTF-8.
    """
    return decode_utf8(read_bytes(path), str(path))


def decode_utf8(data: bytes, name: str) -> str:
    """Return bytes as text; ``name`` is what they are called in the message.

    Raises:
        UserError: they are not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{name}:{line}: not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}") from None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        UserError: it cannot be read, is not JSON, not an object, or has a key twice.
    """
    try:
        record = json.loads(read_utf8(path), object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: damaged or cut off: not JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:  # brackets thousands deep, a number of thousands of digits
        raise UserError(f"{path}: damaged: not JSON that can be read: {error}") from None
    except KeyError as error:
        raise UserError(f"{path}: damaged: {error.args[0]!r} is there twice") from None
    if not isinstance(record, dict):
        raise UserError(f"{path}: damaged: not a JSON object")
    return record


def _without_duplicates(items: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(items)
    if len(record) < len(items):
        times = Counter(key for key, _ in items)
        raise KeyError(next(key for key in times if times[key] > 1))
    return record
