"""Checks: right kernels and functions pass, and each way to be wrong is told in words, never by a traceback."""

from typing import Any

import numpy as np
import pytest
from numba import cuda, float32

from nanoeuler.lessons import checking
from nanoeuler.lessons.checking import (
    CheckFailed,
    call,
    different,
    empty,
    gradients_match,
    numeric_gradient,
    require_kernel,
    run_kernel,
    same,
    traced,
)


@pytest.fixture(autouse=True)
def tally(monkeypatch: pytest.MonkeyPatch) -> checking.Tally:
    """Return what the checks of a test have tried; no GPU takes part."""
    monkeypatch.setattr(checking, "_gpu", lambda: False)
    monkeypatch.setattr(checking, "tally", checking.Tally())
    return checking.tally


def refusal(function: Any, *args: Any, **more: Any) -> str:
    with pytest.raises(CheckFailed) as caught:
        function(*args, **more)
    return str(caught.value)


# Values


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4), (0, 2), (200, 200)])
def test_values_are_all_different_and_the_same_every_time(shape: tuple[int, ...]) -> None:
    x = different(*shape)
    assert (x.shape, x.dtype) == (shape, np.float32)
    assert len(np.unique(x)) == x.size
    assert np.array_equal(x, different(*shape))
    assert ((x > -1) & (x < 1.5)).all()
    assert x.size == 0 or abs(x.sum()) > 0.1
    if x.size > 2:
        assert not np.array_equal(x, different(*shape, seed=1))
        assert not np.array_equal(np.sort(x, None), x.reshape(-1))


def test_integers_lie_between_the_limits() -> None:
    x = different(10, dtype=np.int32, low=0, high=10)
    assert sorted(x) == list(range(10))


def test_what_nobody_writes_shows() -> None:
    assert np.isnan(empty(2, 3)).all()
    assert (empty(3, dtype=np.int64) < 0).all()


# Functions


def test_a_function_is_called_with_copies() -> None:
    x = different(3)
    assert np.array_equal(call(lambda a: a * 2, x), x * 2)

    def changes(a: np.ndarray) -> np.ndarray:
        a += 1
        return a

    assert "changes its argument 1" in refusal(call, changes, x)
    assert np.array_equal(x, different(3))


def stops(x: Any) -> Any:
    return x[99]


def test_what_is_wrong_with_a_function_is_told() -> None:
    assert refusal(call, None) == "this is a NoneType, and should be a function"
    assert refusal(call, 3) == "this is an int, and should be a function"
    assert "returns nothing: is there a return?" in refusal(call, lambda: None)
    message = refusal(call, stops, different(3))
    assert "stops stops with IndexError: index 99 is out of bounds" in message
    assert "return x[99]" in message
    assert "TypeError" in refusal(call, lambda: 1, 2)


def test_results_are_compared_with_hints() -> None:
    x = different(5)
    same(x, x, "y")
    assert "is there a return" in refusal(same, None, x, "y")
    assert refusal(same, -x, x, "y", hints={"scaled": "Which way?"}).endswith("the sign is wrong\nWhich way?")
    assert refusal(same, x + different(5, seed=2), x, "y", hints={"wrong": "Look."}).endswith("Look.")


def test_gradients() -> None:
    x = different(2, 3, dtype=np.float64)
    gradient = numeric_gradient(lambda a: (a**3).sum(), x)
    np.testing.assert_allclose(gradient, 3 * x**2, rtol=1e-8, atol=1e-9)
    gradients_match(lambda a: (a**3).sum(), x, 3 * x**2, "dx")
    assert "all of it is 0.6667 times" in refusal(gradients_match, lambda a: (a**3).sum(), x, 2 * x**2, "dx")


# Kernels


@cuda.jit
def add(out, x, y):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


@cuda.jit
def without_guard(out, x, y):
    i = cuda.grid(1)
    out[i] = x[i] + y[i]


@cuda.jit
def whole_blocks(out, x, y):
    i = cuda.grid(1)
    if (cuda.blockIdx.x + 1) * cuda.blockDim.x <= out.size:
        out[i] = x[i] + y[i]


@cuda.jit
def spoils(out, x, y):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]
        y[i] = 0


@cuda.jit
def neighbours(out, x, y):
    shared = cuda.shared.array(32, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    shared[t] = x[i] if i < x.size else float32(0)
    if i < out.size:
        out[i] = shared[31 - t] + y[i]


@cuda.jit
def stops_short(out, x, y):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + z[i]  # noqa: F821


def plain(out, x, y):  # type: ignore[no-untyped-def]
    out[:] = x + y


def launch(kernel: Any, n: int = 40, **more: Any) -> dict[str, np.ndarray]:
    x, y = different(n), different(n, seed=1)
    args = {"out": empty(n), "x": x, "y": y}
    return run_kernel(kernel, -(-n // 32), 32, args, expected={"out": x + y}, label=f"{n} numbers", **more)


def test_a_right_kernel_passes_and_is_counted(tally: checking.Tally) -> None:
    outputs = launch(add, orders=("forward", "reverse", "random"), deterministic=True)
    assert set(outputs) == {"out"}
    launch(add, 1)
    assert (tally.labels, tally.orders, tally.on_gpu) == (["40 numbers", "1 numbers"], 3, False)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (without_guard, ["40 numbers: out of bounds in kernel without_guard, line ", "out[i] = x[i] + y[i]", "HINT"]),
        (whole_blocks, ["40 numbers: out[32] is NaN", "of 40 elements the first 32 were written", "TAIL"]),
        (spoils, ["the kernel changes its input y"]),
        (neighbours, ["race in kernel neighbours", "put cuda.syncthreads() between"]),
        (stops_short, ["40 numbers: line ", " of its cell: the name 'z' cannot be run here"]),
        (plain, ["a plain function: put @cuda.jit above it"]),
        (None, ["this is a NoneType, and should be a kernel"]),
        (7, ["this is an int"]),
    ],
)
def test_what_is_wrong_with_a_kernel_is_told(kernel: Any, words: list[str]) -> None:
    message = refusal(launch, kernel, hints={"out of bounds": "HINT", "tail": "TAIL"})
    assert [word for word in words if word not in message] == [], message
    assert ".py" not in message


def test_parameters_of_other_names() -> None:
    assert "has the parameters (out, x, y), and should have (out, x)" in refusal(require_kernel, add, ("out", "x"))


@cuda.jit
def sums(out, x):
    cuda.atomic.add(out, 0, x[cuda.threadIdx.x])


def test_last_bits_that_depend_on_the_order() -> None:
    x = (10.0 ** different(32, low=-4, high=4)).astype(np.float32)
    args = {"out": np.zeros(1, np.float32), "x": x}
    expected = {"out": x.sum(keepdims=True)}
    run_kernel(sums, 1, 32, args, expected, label="a sum")
    message = refusal(run_kernel, sums, 1, 32, args, expected, label="a sum", deterministic=True)
    assert "in another order (reverse) the result has other last bits" in message


def test_a_trace_leaves_the_arrays_alone() -> None:
    out = empty(40)
    trace = traced(add, 2, 32, {"out": out, "x": different(40), "y": different(40)})
    assert np.isnan(out).all()
    assert trace.line(add.py_func.__code__.co_firstlineno + 4).global_memory["x", "reads"].sectors == 5
    with pytest.raises(CheckFailed, match="while its accesses are counted: out of bounds"):
        traced(without_guard, 2, 32, (empty(40), different(40), different(40)))
