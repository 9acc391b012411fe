"""Differences between arrays in words: each of the common mistakes is known by the values it leaves."""

from typing import Any

import numpy as np
import pytest

from nanoeuler.lessons.checking import different, empty
from nanoeuler.lessons.compare import difference

X = different(7)
M = different(4, 5, seed=3)
S = different(5, 5, seed=4)


def unwritten(x: np.ndarray, where: Any) -> np.ndarray:
    out = x.copy()
    out[where] = np.nan
    return out


def changed(x: np.ndarray, where: Any) -> np.ndarray:
    out = x.copy()
    out[where] += 9
    return out


@pytest.mark.parametrize(
    ("got", "right", "kind", "words"),
    [
        (None, X, "wrong", "y is NoneType, and should be an array of shape (7,)"),
        ("text", np.float32(1), "wrong", "y is str, and should be a number"),
        ([[1], [2, 3]], X, "wrong", "y is list"),
        (X[:6], X, "shape", "has the shape (6,), and should have (7,)"),
        (M.T, M, "transposed", "rows and columns have changed places"),
        (empty(7), X, "unwritten", "nothing was written there"),
        (empty(3, dtype=np.int32), np.arange(3, dtype=np.int32), "unwritten", "nothing was written there"),
        (unwritten(X, slice(4, None)), X, "tail", "of 7 elements the first 4 were written and the last 3"),
        (unwritten(X, [1, 2]), X, "unwritten", "2 of 7 elements were not written, or are NaN"),
        (unwritten(changed(X, 0), [1, 2]), X, "unwritten", "1 others have wrong values"),
        (S.T, S, "transposed", "rows and columns have changed places"),
        (M.T.reshape(M.shape), M, "transposed", "laid out with rows and columns exchanged"),
        (np.roll(X, 1), X, "shifted", "one place too far later"),
        (np.roll(X, -1), X, "shifted", "one place too far earlier"),
        (np.roll(M, 1, 1), M, "shifted", "along axis 1"),
        (X[::-1], X, "reversed", "in reverse order"),
        (np.zeros(7), X, "zero", "it is 0 everywhere"),
        (2 * X, X, "scaled", "all of it is 2 times"),
        (-M, M, "scaled", "the sign is wrong"),
        (X + 3, X, "offset", "off by the same 3"),
        (X[[0, 2, 1, 3, 6, 5, 4]], X, "swapped", "all the right values are there"),
        (changed(X, slice(4, None)), X, "tail", "the first 4 elements are right"),
        (changed(M, 1), M, "rows", "only these rows are wrong: 1"),
        (changed(M, (slice(None), [0, 2])), M, "columns", "only these columns are wrong: 0, 2"),
        (changed(X, [0, 3]), X, "wrong", "wrong are the elements 0, 3"),
        (np.float32(2), np.float32(3), "wrong", "y is 2, and should be 3"),
        (2, np.int64(3), "wrong", "y is 2, and should be 3"),
    ],
)
def test_a_difference_is_told_by_its_kind(got: Any, right: Any, kind: str, words: str) -> None:
    found = difference(got, right, "y")
    assert found is not None
    assert (found.kind, words in found.message) == (kind, True), found.message


def test_the_first_wrong_element_is_named() -> None:
    found = difference(changed(M, (2, 3)), M, "out")
    assert found is not None
    assert found.message.startswith("out[2, 3] is ")
    assert "(1 of its 20 elements are wrong)" in found.message


def test_an_array_taken_for_another() -> None:
    found = difference(X, different(7, seed=8), "out", others={"z": different(7, seed=9), "x": X})
    assert found is not None
    assert (found.kind, found.message.splitlines()[1]) == ("copied", "these are the values of x")


def test_rounding_is_no_difference_and_more_is() -> None:
    assert difference(X * np.float32(1 + 1e-6), X, "y") is None
    assert difference(X * 1.001, X, "y") is not None
    assert difference(X * 1.001, X, "y", tolerance=1e-2) is None
    assert difference(np.array([np.inf, np.nan, 1]), np.array([np.inf, np.nan, 1]), "y") is None
    assert difference(np.array([np.inf, 1]), np.array([1.0, 1]), "y") is not None
    assert difference(np.zeros(3), np.zeros(3), "y") is None
    assert difference(np.full(3, 1e-12), np.zeros(3), "y") is not None
    assert difference(np.array([2**53 + 1]), np.array([2**53]), "y") is not None
    assert difference(np.zeros((0, 3)), np.zeros((0, 3)), "y") is None
