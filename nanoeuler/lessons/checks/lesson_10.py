"""Lesson 10: RMSNorm and LayerNorm, forward and backward, in NumPy and as kernels."""

from typing import Any

import numpy as np

from nanoeuler.console import plural
from nanoeuler.lessons.checking import call, different, empty, require, run_kernel, same, traced

EPS = 1e-5
SHAPES = ((3, 5), (1, 1), (2, 33))


def rmsnorm_forward(function: Any) -> None:
    """Check ``rmsnorm_forward(x, w, eps)``: y and rstd, one for each row."""
    for rows, columns in SHAPES:
        x, w = _inputs(rows, columns)
        got = _several(call(function, x, w, EPS), "y, rstd")
        where = f"for {plural(rows, 'row')} of {columns}"
        right = 1 / np.sqrt((x**2).mean(axis=1) + EPS)
        hint = {
            "shape": "rstd has one number for each row: the mean is over the columns, axis 1.",
            "wrong": "rstd is 1 / sqrt(mean of the squares + eps), each row for itself.",
        }
        same(got[1], right, f"rstd {where}", tolerance=1e-9, hints=hint)
        hint = {"wrong": "y is x times its row's rstd times its column's w: rstd[:, None] is a column of numbers."}
        same(got[0], w * x * right[:, None], f"y {where}", tolerance=1e-9, hints=hint)
    tiny = np.full((1, 4), 1e-4)
    found = call(function, tiny, np.ones(4), EPS)[1]
    words = "eps stands inside of the root: 1 / sqrt(mean + eps). A row of tiny numbers shows it."
    same(found, 1 / np.sqrt(1e-8 + EPS).reshape(1), "rstd of tiny numbers", hints={"wrong": words})


def rmsnorm_backward(function: Any) -> None:
    """Check ``rmsnorm_backward(dy, x, w, rstd)``: dx and dw."""
    for rows, columns in SHAPES:
        x, w = _inputs(rows, columns)
        dy = different(rows, columns, seed=2, dtype=np.float64)
        rstd = 1 / np.sqrt((x**2).mean(axis=1) + EPS)
        dx, dw = _several(call(function, dy, x, w, rstd), "dx, dw")
        normed, r = x * rstd[:, None], rstd[:, None]
        inner = dy * w
        where = f"for {plural(rows, 'row')} of {columns}"
        mistakes = {
            "the projection is missing: rstd depends on x too": r * inner,
            "w is forgotten": r * (dy - normed * (dy * normed).mean(axis=1, keepdims=True)),
            "the mean is a sum: divide by the number of columns": r
            * (inner - normed * (inner * normed).sum(axis=1, keepdims=True)),
            "the projection is added, and should be taken away": r
            * (inner + normed * (inner * normed).mean(axis=1, keepdims=True)),
            "the factor rstd in front is missing": inner - normed * (inner * normed).mean(axis=1, keepdims=True),
        }
        _recognised(dx, mistakes, f"dx {where}")
        same(dx, r * (inner - normed * (inner * normed).mean(axis=1, keepdims=True)), f"dx {where}", tolerance=1e-9)
        hint = dict.fromkeys(("shape", "wrong"), "w[c] takes part in every row: dw is the sum over the rows of dy x̂.")
        same(dw, (dy * normed).sum(axis=0), f"dw {where}", tolerance=1e-9, hints=hint)


def layernorm_backward(function: Any) -> None:
    """Check ``layernorm_backward(dy, x, w, mean, rstd)``: dx, dw and db."""
    for rows, columns in SHAPES:
        x, w = _inputs(rows, columns)
        dy = different(rows, columns, seed=2, dtype=np.float64)
        mean = x.mean(axis=1)
        rstd = 1 / np.sqrt(x.var(axis=1) + EPS)
        dx, dw, db = _several(call(function, dy, x, w, mean, rstd), "dx, dw, db")
        r = rstd[:, None]
        normed, inner = (x - mean[:, None]) * r, dy * w
        along, level = (inner * normed).mean(axis=1, keepdims=True), inner.mean(axis=1, keepdims=True)
        where = f"for {plural(rows, 'row')} of {columns}"
        mistakes = {
            "this is RMSNorm's: the mean of dy w over the row is not taken away": r * (inner - normed * along),
            "the part along x̂ is not taken away": r * (inner - level),
            "neither projection is taken away": r * inner,
        }
        _recognised(dx, mistakes, f"dx {where}")
        same(dx, r * (inner - level - normed * along), f"dx {where}", tolerance=1e-9)
        same(dw, (dy * normed).sum(axis=0), f"dw {where}", tolerance=1e-9, hints={"wrong": "dw is the sum of dy x̂."})
        same(db, dy.sum(axis=0), f"db {where}", tolerance=1e-9, hints={"wrong": "db is the sum of dy over the rows."})


def rmsnorm(kernel: Any) -> None:
    """Check ``rmsnorm(y, rstd, x, w, eps)``: one warp a row."""
    for rows, columns in ((3, 5), (1, 1), (2, 32), (3, 33), (2, 100)):
        x, w = (a.astype(np.float32) for a in _inputs(rows, columns))
        right = (1 / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1) + EPS)).astype(np.float32)
        run_kernel(
            kernel,
            rows,
            32,
            {"y": empty(rows, columns), "rstd": empty(rows), "x": x, "w": w, "eps": np.float32(EPS)},
            expected={"rstd": right, "y": w * x * right[:, None]},
            label=f"{plural(rows, 'row')} of {columns}",
            deterministic=True,
            hints={
                "out of bounds": "A row may be shorter or longer than 32: range(lane, C, 32) covers it.",
                "race": "One lane is enough to write rstd[row].",
                "unwritten": "Each lane has the columns lane, lane + 32, … of its row, for writing as for reading.",
                "wrong": "The mean is over the C columns of the row, with eps inside of the root.",
            },
        )
    trace = traced(
        kernel,
        2,
        32,
        {"y": empty(2, 64), "rstd": empty(2), "x": different(2, 64), "w": different(64), "eps": np.float32(EPS)},
    )
    reads = [
        each.sectors for line in trace.numbers.lines.values() for (a, k), each in line.global_memory.items() if a == "x"
    ]
    require(sum(reads) <= 40, f"right, but not coalesced: {sum(reads)} sectors of x are read, and 32 would do")


def rmsnorm_dx(kernel: Any) -> None:
    """Check ``rmsnorm_dx(dx, dy, x, w, rstd)``: one warp a row."""
    for rows, columns in ((3, 5), (1, 2), (2, 32), (3, 33), (2, 100)):  # of one column nothing is left but rounding
        x, w = (a.astype(np.float32) for a in _inputs(rows, columns))
        dy = different(rows, columns, seed=2)
        rstd = (1 / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1) + EPS)).astype(np.float32)
        r, inner = rstd[:, None].astype(np.float64), dy.astype(np.float64) * w
        normed = x * r
        dx = r * (inner - normed * (inner * normed).mean(axis=1, keepdims=True))
        run_kernel(
            kernel,
            rows,
            32,
            {"dx": empty(rows, columns), "dy": dy, "x": x, "w": w, "rstd": rstd},
            expected={"dx": dx.astype(np.float32)},
            label=f"{plural(rows, 'row')} of {columns}",
            tolerance=2e-5,
            deterministic=True,
            hints={
                "out of bounds": "A row may be shorter or longer than 32: range(lane, C, 32) covers it.",
                "wrong": "First the mean of dy w x̂ over the row, then r (dy w − x̂ mean), with x̂ = x r.",
                "scaled": "First the mean of dy w x̂ over the row, then r (dy w − x̂ mean), with x̂ = x r.",
                "rows": "Every row has its own rstd and its own mean.",
                "columns": "w[c] belongs to column c, in both places.",
                "tail": "Lanes take the columns lane, lane + 32 …, and all lanes need the same sum.",
            },
        )


def layernorm(kernel: Any) -> None:
    """Check ``layernorm(y, mean, rstd, x, w, b, eps)``: 64 threads a row, the variance in a second pass."""
    for rows, columns in ((2, 5), (1, 1), (2, 64), (2, 100)):
        x, w = (a.astype(np.float32) for a in _inputs(rows, columns))
        x, b = x + np.float32(30), different(columns, seed=4)
        mean = x.mean(axis=1, dtype=np.float64)
        rstd = 1 / np.sqrt(x.var(axis=1, dtype=np.float64) + EPS)
        y = (x - mean[:, None]) * rstd[:, None] * w + b
        outputs = {"y": empty(rows, columns), "mean": empty(rows), "rstd": empty(rows)}
        run_kernel(
            kernel,
            rows,
            64,
            outputs | {"x": x, "w": w, "b": b, "eps": np.float32(EPS)},
            expected={k: v.astype(np.float32) for k, v in (("mean", mean), ("rstd", rstd), ("y", y))},
            label=f"{plural(rows, 'row')} of {columns}",
            tolerance=5e-5,
            deterministic=True,
            hints={
                "race": "partial is used twice: nobody may write into it again before everybody has read it.",
                "uninitialised read": "There are two warps: each has to write its sum into partial.",
                "out of bounds": "A row may be shorter or longer than 64: range(t, C, 64) covers it.",
                "barrier divergence": "All 64 threads must come to every barrier.",
                "wrong": "The variance is the mean of the squares of x − mean, not of x; and the mean is over C.",
            },
        )


def _inputs(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x and w, float64: rows of different sizes."""
    x = different(rows, columns, dtype=np.float64, low=-2, high=3)
    return x * np.linspace(0.5, 2, rows)[:, None], different(columns, seed=1, dtype=np.float64, low=0.5, high=2)


def _several(got: Any, names: str) -> tuple:
    count = names.count(",") + 1
    require(isinstance(got, tuple) and len(got) == count, f"return {count} arrays: return {names}")
    return got


def _recognised(got: Any, mistakes: dict[str, np.ndarray], what: str) -> None:
    """Fail if a result is that of a known mistake."""
    for words, wrong in mistakes.items():
        if np.shape(got) == wrong.shape and wrong.size > 1 and np.allclose(got, wrong):
            require(False, f"{what} looks as if {words}" if not words.startswith("this") else f"{what}: {words}")
