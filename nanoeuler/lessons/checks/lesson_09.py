"""Lesson 9: central differences, a backward to check with them, a judge of gradients, and the backward as a kernel."""

from typing import Any

import numpy as np

from nanoeuler.console import plural
from nanoeuler.lessons.checking import CheckFailed, call, different, empty, require, run_kernel, same


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def central(function: Any) -> None:
    """Check ``central(f, x, h)``: the gradient of a scalar function by central differences, in each element."""
    x = different(2, 3, dtype=np.float64)
    weights = different(2, 3, seed=1, dtype=np.float64)
    places: list[np.ndarray] = []

    def watched(a: np.ndarray) -> float:
        places.append(np.array(a))
        return float((weights * a**3).sum())

    got = call(function, watched, x, 1e-4)
    require(places, "your function never calls f: a difference is made of two of its values")
    _moves(places, x, 1e-4)
    same(got, weights * (3 * x**2 + 1e-8), "the gradient of a cubic", tolerance=1e-7, hints=CENTRAL)
    for shape in ((1,), (5,), (2, 1, 2)):
        z = different(*shape, seed=3, dtype=np.float64)
        got = call(function, lambda a: float(np.sin(a).sum()), z, 1e-5)
        same(got, np.cos(z), f"the gradient of sin at an x of shape {shape}", tolerance=1e-8, hints=CENTRAL)


CENTRAL = {
    "scaled": "Two points that are 2 h apart: by what is their difference divided?",
    "wrong": "Each element moves alone, up by h and down by h, and comes back before the next one moves.",
}


def _moves(places: list[np.ndarray], x: np.ndarray, h: float) -> None:
    """Fail unless f was asked where central differences ask it."""
    for a in places:
        require(np.shape(a) == x.shape, f"f is given an array of shape {np.shape(a)}, and x has {x.shape}")
        moved = np.flatnonzero(np.abs(a - x) > h / 100)
        require(
            len(moved) <= 1,
            f"f is asked at a point where {len(moved)} elements have moved: move one, and put it back before the next",
        )
    down = any((a - x < -h / 2).any() for a in places)
    require(down, "f is asked at x + h only: this is a forward difference, whose error is of the order of h, not h²")


def backward(function: Any) -> None:
    """Check ``backward(dy, x, w)``: the gradients dx and dw of y = w · silu(x)."""
    for rows, columns in ((1, 1), (3, 5), (7, 2)):
        x = different(rows, columns, dtype=np.float64, low=-4, high=4)
        w = different(columns, seed=1, dtype=np.float64)
        dy = different(rows, columns, seed=2, dtype=np.float64)
        got = call(function, dy, x, w)
        require(
            isinstance(got, tuple) and len(got) == 2,
            "backward returns two things, the gradients of x and of w: return dx, dw",
        )
        s = sigmoid(x)
        where = f"with {plural(rows, 'row')} and {plural(columns, 'column')}"
        same(got[0], dy * w * s * (1 + x * (1 - s)), f"dx {where}", tolerance=1e-9, hints=_dx_hints(dy, x, w, got[0]))
        same(got[1], (dy * x * s).sum(axis=0), f"dw {where}", tolerance=1e-9, hints=DW)


DW = {
    "shape": "w is used once in every row, so its gradient is a sum over the rows: one number for each column.",
    "wrong": "w[c] multiplies silu(x[r, c]) in every row r: what does dy[r, c] have to be multiplied by?",
}


def _dx_hints(dy: np.ndarray, x: np.ndarray, w: np.ndarray, got: Any) -> dict[str, str]:
    """Return hints for dx: which of the usual terms is missing."""
    s = sigmoid(x)
    mistakes = {
        "the factor w is missing": dy * s * (1 + x * (1 - s)),
        "only x is taken for a variable: sigmoid(x) depends on x too": dy * w * s,
        "only sigmoid is taken for a variable: the x in front of it is one too": dy * w * x * s * (1 - s),
        "the factor dy is missing": w * s * (1 + x * (1 - s)),
        "the derivative of sigmoid is s (1 - s), not s": dy * w * s * (1 + x),
    }
    for words, wrong in mistakes.items():
        if np.shape(got) == wrong.shape and np.allclose(got, wrong):
            return dict.fromkeys(("wrong", "scaled", "rows", "columns", "tail"), f"It looks as if {words}.")
    return {"wrong": "Product rule: x · sigmoid(x) has two factors that depend on x."}


def worst(function: Any) -> None:
    """Check ``worst(gradient, numeric)``: the largest relative error of a gradient, which tells right from wrong."""
    numeric = different(40, dtype=np.float64, low=0.5, high=2)
    small = numeric * 10.0 ** -np.arange(40).clip(0, 8)
    for name, gradient, reference, wrong in _cases(numeric, small):
        found = _number(call(function, gradient, reference), name)
        if wrong:
            require(
                found > 1e-3, f"{name}: this gradient is wrong, and your error says {found:.2g}: it would pass\n{wrong}"
            )
        else:
            require(found < 1e-5, f"{name}: this gradient is right, and your error says {found:.2g}: it would fail")
    expected = 1 / 3
    same(
        _number(call(function, np.array([1.0, 2.0]), np.array([1.0, 3.0])), "two numbers"),
        expected,
        "the error of 2 beside 3",
        tolerance=1e-6,
        hints={"wrong": "Relative to the larger of the two, |2 - 3| / 3; of all errors the largest, not the mean."},
    )


def _cases(numeric: np.ndarray, small: np.ndarray) -> list[tuple[str, np.ndarray, np.ndarray, str]]:
    """Return gradients to judge: what it is, the gradient, the reference, and a hint where it is wrong."""
    rounded = numeric * (1 + 1e-9 * different(40, seed=5, dtype=np.float64))
    one = small.copy()
    one[8] *= 2
    negative = numeric.copy()
    negative[3] *= -1
    nan = numeric.copy()
    nan[7] = np.nan
    zeros = np.zeros(4)
    return [
        ("equal but for rounding", rounded, numeric, ""),
        ("zeros beside zeros", zeros, zeros, ""),
        ("zeros beside rounding", zeros, np.full(4, 1e-13), ""),
        (
            "a small element is doubled",
            one,
            small,
            "An error relative to the largest element of all overlooks it: divide element by element.",
        ),
        (
            "one sign is wrong",
            negative,
            numeric,
            "Take the absolute value of the difference, and the largest of all, not the mean.",
        ),
        ("one element is NaN", nan, numeric, "A comparison with NaN is false: let NaN count as an infinite error."),
        ("all of it is doubled", 2 * numeric, numeric, "The difference is as large as the gradient."),
    ]


def _number(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise CheckFailed(f"{name}: worst returns {type(value).__name__}, and should return one number") from None
    return float("inf") if np.isnan(number) else number


def dx_kernel(kernel: Any) -> None:
    """Check the kernel ``dx_kernel(dx, dy, x, w)``: the gradient of x, one thread an element, x of (rows, columns)."""
    for rows, columns, block in ((1, 1, (32, 1)), (3, 5, (8, 4)), (5, 33, (32, 2)), (9, 40, (16, 4))):
        x = different(rows, columns, low=-4, high=4)
        w, dy = different(columns, seed=1), different(rows, columns, seed=2)
        s = sigmoid(x.astype(np.float64))
        dx = dy * w * s * (1 + x * (1 - s))
        grid = (-(-columns // block[0]), -(-rows // block[1]))
        run_kernel(
            kernel,
            grid,
            block,
            {"dx": empty(rows, columns), "dy": dy, "x": x, "w": w},
            expected={"dx": dx.astype(np.float32)},
            label=f"{plural(rows, 'row')} of {columns}, blocks of {block[0]} by {block[1]}",
            hints={
                "out of bounds": "Blocks stick out at the right and at the bottom: guard the column and the row.",
                "float64": "exp of a float32 stays float32 if every number in it is one: write float32(1).",
                "wrong": "Hold the formula against your NumPy backward, term by term.",
            },
        )
