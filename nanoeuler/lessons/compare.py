"""What is wrong with an array, in words: not that it differs from what was expected, but how.

Right values in the wrong order, the end of an array that nobody wrote, a factor: each is another mistake, and each
leaves a trace of its own when all the values that went in are different.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

MARKER = -77  # in arrays of integers that a kernel is to fill, where floats have NaN


@dataclass(frozen=True)
class Difference:
    """How an array differs from the one expected. ``kind`` is the name of a diagnosis, ``message`` its words."""

    kind: str
    message: str


def difference(
    got: Any, expected: Any, what: str, *, tolerance: float = 1e-5, others: Mapping[str, Any] | None = None
) -> Difference | None:
    """Return how a result differs from the expected one; None where it is right.

    Args:
        got: an array or a number.
        expected: what it should be.
        what: its name, for the message.
        tolerance: how far it may be off, relative to the largest expected value.
        others: arrays by name that it may have been mistaken for.
    """
    try:
        found, right = np.asarray(got), np.asarray(expected)
        numeric = found.dtype.kind in "biufc"
    except (TypeError, ValueError):
        numeric = False
    if not numeric:
        return Difference("wrong", f"{what} is {type(got).__name__}, and should be {_kind(np.asarray(expected))}")
    if found.shape != right.shape:
        turned = found.ndim > 1 and found.shape == right.shape[::-1]
        more = ": rows and columns have changed places" if turned else ""
        return Difference(
            "transposed" if turned else "shape",
            f"{what} has the shape {found.shape}, and should have {right.shape}{more}",
        )
    wrong = _wrong(found, right, tolerance)
    if not wrong.any():
        return None
    kind, why = _diagnosis(found, right, wrong, tolerance, others or {})
    return Difference(kind, f"{_first(found, right, wrong, what)}\n{why}".rstrip())


def _kind(right: np.ndarray) -> str:
    return "a number" if right.ndim == 0 else f"an array of shape {right.shape}"


def _wrong(got: np.ndarray, right: np.ndarray, tolerance: float) -> np.ndarray:
    """Return where two arrays of one shape differ, bool."""
    if got.dtype.kind in "biu" and right.dtype.kind in "biu":
        return got != right
    finite = np.abs(right[np.isfinite(right)], dtype=np.float64)
    allowed = tolerance * max(float(finite.max(initial=0)), 1e-30)
    with np.errstate(all="ignore"):
        close = np.abs(got.astype(np.float64) - right.astype(np.float64)) <= allowed
    return ~(close | (got == right) | (np.isnan(got.astype(np.float64)) & np.isnan(right.astype(np.float64))))


def _first(got: np.ndarray, right: np.ndarray, wrong: np.ndarray, what: str) -> str:
    if got.ndim == 0:
        return f"{what} is {shown(got)}, and should be {shown(right)}"
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = int(wrong.sum())
    many = "its only element" if wrong.size == 1 else f"{count:,} of its {wrong.size:,} elements are wrong"
    index = f"[{', '.join(map(str, at))}]"
    element = f"{what}{index}" if what.isidentifier() else f"{what}: element {index}"
    return f"{element} is {shown(got[at])}, and should be {shown(right[at])} ({many})"


def shown(value: Any) -> str:
    """Return a number as a message has it; what nobody wrote is said so."""
    number = np.asarray(value)
    if number.dtype.kind == "f":
        return "NaN" if np.isnan(number) else f"{float(number):.6g}"
    return str(number.item())


# How it differs -------------------------------------------------------------------------------------------------------


def _diagnosis(
    got: np.ndarray, right: np.ndarray, wrong: np.ndarray, tolerance: float, others: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the kind of difference and a sentence about it: the first of the questions below that fits."""

    def same(a: np.ndarray, b: np.ndarray) -> bool:
        return a.shape == b.shape and a.size > 0 and not _wrong(a, b, tolerance).any()

    for question in (_unwritten, _moved, _scaled):
        for kind, why in question(got, right, wrong, same):
            return kind, why
    for name, other in others.items():
        if right.size > 1 and same(got, np.asarray(other)):
            return "copied", f"these are the values of {name}"
    return _where(right, wrong, same(np.sort(got, None), np.sort(right, None)))


Same = Callable[[np.ndarray, np.ndarray], bool]
Found = Iterator[tuple[str, str]]


def _unwritten(got: np.ndarray, right: np.ndarray, wrong: np.ndarray, same: Same) -> Found:
    """Whether elements still have what was in the array before."""
    left = np.isnan(got) & ~np.isnan(right) if got.dtype.kind == "f" else (got == MARKER) & wrong
    if not left.any() or got.ndim == 0:
        return
    if left.all():
        nan = ", or NaN was computed" if got.dtype.kind == "f" else ""
        yield "unwritten", f"nothing was written there{nan}{'' if got.size == 1 else '; so it is with every element'}"
    at = np.flatnonzero(left)
    others = int((wrong & ~left).sum())
    rest = f"; {others:,} others have wrong values" if others else ""
    if got.dtype.kind == "f" and others == 0 and at[-1] == got.size - 1 and len(at) == got.size - at[0]:
        written = f"of {got.size:,} elements the first {at[0]:,} were written and the last {len(at):,} were not"
        yield "tail", f"{written}: does the work end with the last whole block?"
    which = "were not written, or are NaN by what was computed" if got.dtype.kind == "f" else "were not written"
    yield "unwritten", f"{len(at):,} of {got.size:,} elements {which}{rest}"


def _moved(got: np.ndarray, right: np.ndarray, wrong: np.ndarray, same: Same) -> Found:
    """Whether the right values are at other places."""
    if right.size < 2:
        return
    if right.ndim == 2 and min(right.shape) > 1:
        if same(got.T, right):
            yield "transposed", "the values are right, and rows and columns have changed places"
        if same(got.reshape(right.shape[::-1]).T, right):
            yield "transposed", "the values are right, but laid out with rows and columns exchanged"
    for axis in range(right.ndim):
        if right.shape[axis] < 3:
            continue
        for by in (1, -1):
            inner = slice(1, None) if by == 1 else slice(None, -1)
            moved = np.roll(right, by, axis)
            index = (slice(None),) * axis + (inner,)
            if same(got[index], moved[index]):
                where = "later" if by == 1 else "earlier"
                yield "shifted", f"the values are right, but one place too far {where}{_along(right, axis)}"
        if same(np.flip(got, axis), right):
            yield "reversed", f"the values are right, but in reverse order{_along(right, axis)}"


def _along(right: np.ndarray, axis: int) -> str:
    return "" if right.ndim == 1 else f" along axis {axis}"


def _scaled(got: np.ndarray, right: np.ndarray, wrong: np.ndarray, same: Same) -> Found:
    """Whether all is off by one factor, or by one number."""
    if not np.isfinite(got).all() or not np.any(right):
        return
    if not got.any():
        yield "zero", "it is 0 everywhere"
    if right.size < 2:
        return
    a, b = got.astype(np.float64), right.astype(np.float64)
    factor = float((a * b).sum() / (b * b).sum())
    if factor and same(a, factor * b):
        name = "the sign is wrong" if abs(factor + 1) < 1e-4 else f"all of it is {factor:.4g} times what it should be"
        yield "scaled", name
    offset = float((a - b).mean())
    if got.dtype.kind == "f" and same(a, b + offset):
        yield "offset", f"all of it is off by the same {offset:.4g}"


def _where(right: np.ndarray, wrong: np.ndarray, permuted: bool) -> tuple[str, str]:
    """Say where the wrong elements lie, when nothing better is known."""
    if permuted and right.size > 1:
        return "swapped", "all the right values are there, but at the wrong places"
    at = np.flatnonzero(wrong)
    if at[0] > 0 and len(at) == right.size - at[0]:
        return "tail", f"the first {at[0]:,} elements are right, and every one from there on is wrong"
    if right.ndim == 2:
        rows, columns = np.flatnonzero(wrong.any(axis=1)), np.flatnonzero(wrong.any(axis=0))
        if 1 <= len(rows) < right.shape[0] and right.shape[0] > 1:
            return "rows", f"only these rows are wrong: {_some(rows)}"
        if 1 <= len(columns) < right.shape[1] and right.shape[1] > 1:
            return "columns", f"only these columns are wrong: {_some(columns)}"
    if 0 < len(at) < right.size:
        return "wrong", f"wrong are the elements {_some(at)}" if right.ndim == 1 else ""
    return "wrong", ""


def _some(numbers: np.ndarray) -> str:
    """Return the first of some numbers, as a list in words."""
    first = ", ".join(str(int(n)) for n in numbers[:6])
    return f"{first} …" if len(numbers) > 6 else first
