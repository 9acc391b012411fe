"""What the checks of all lessons are made of: values to try, kernels run and watched, results compared in words.

Each function here raises :class:`CheckFailed` with a message for the learner: what is wrong, where, what to look at.
"""

import inspect
import linecache
import re
import traceback
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.lessons.compare import MARKER, Difference, difference
from nanoeuler.simt.faults import BARRIER_DIVERGENCE, MISSING_LANES
from nanoeuler.simt.launch import Dimensions, Order


class CheckFailed(UserError):  # noqa: N818  (a wrong answer is no error of the program)
    """The learner's work is not right yet. The message says what is wrong, where, and what to look at next."""


@dataclass
class Tally:
    """What a check has tried, to be told when all is right."""

    labels: list[str] = field(default_factory=list)
    orders: int = 0
    on_gpu: bool = False


tally = Tally()


def require(condition: Any, message: str) -> None:
    """Fail with a message unless a condition holds.

    Raises:
        CheckFailed: it does not.
    """
    if not condition:
        raise CheckFailed(message)


# Values ---------------------------------------------------------------------------------------------------------------


def different(*shape: int, seed: int = 0, dtype: Any = np.float32, low: float = -1.0, high: float = 1.5) -> np.ndarray:
    """Return an array without two equal values, without any order, whose sum is not 0; the same in every run.

    >>> different(3, dtype=np.int32, low=0, high=10)
    array([8, 5, 1], dtype=int32)

    Args:
        shape: its shape.
        seed: another one gives other values.
        dtype: of floats, or of integers, which then are spread between the limits.
        low: no value is below.
        high: no value is above.
    """
    count = int(np.prod(shape))
    spread = low + (np.arange(count) + 0.5) * ((high - low) / max(count, 1))
    return np.random.default_rng((seed, count)).permutation(spread).astype(dtype).reshape(shape)


def empty(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Return an array for a kernel to fill, in which it shows what was not written: NaN, or an odd number."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else MARKER, dtype)


def same(
    got: Any,
    expected: Any,
    what: str,
    *,
    tolerance: float = 1e-5,
    hints: Mapping[str, str] | None = None,
    others: Mapping[str, Any] | None = None,
) -> None:
    """Fail unless a result is what it should be.

    Args:
        got: an array or a number.
        expected: what it should be.
        what: how the message calls it.
        tolerance: relative to the largest expected value.
        hints: more words, by the kind of difference that is found (see ``compare``).
        others: arrays by name that it may have been mistaken for.

    Raises:
        CheckFailed: it is not.
    """
    if got is None:
        raise CheckFailed(f"{what} is None: is there a return?")
    found = difference(got, expected, what, tolerance=tolerance, others=others)
    if found is not None:
        raise CheckFailed(_with_hint(found, hints))


def _with_hint(found: Difference, hints: Mapping[str, str] | None) -> str:
    hint = (hints or {}).get(found.kind) or (hints or {}).get("wrong")
    return f"{found.message}\n{hint}" if hint else found.message


# Functions ------------------------------------------------------------------------------------------------------------


def call(function: Any, *args: Any) -> Any:
    """Return what the learner's function returns.

    Raises:
        CheckFailed: it is no function, an exception ends it, or it returns nothing.
    """
    require(callable(function), f"this is {_article(type(function).__name__)}, and should be a function")
    name = getattr(function, "__name__", "your function")
    given = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)
    try:
        with np.errstate(all="ignore"):
            result = function(*given)
    except UserError:
        raise
    except Exception as error:
        raise CheckFailed(f"{name} stops with {type(error).__name__}: {error}{_line_of(error, function)}") from None
    require(result is not None, f"{name} returns nothing: is there a return?")
    for n, (before, after) in enumerate(zip(args, given, strict=True)):
        if isinstance(before, np.ndarray) and not np.array_equal(before, after, equal_nan=before.dtype.kind == "f"):
            raise CheckFailed(f"{name} changes its argument {n + 1}: make a new array, and return that")
    return result


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _line_of(error: BaseException, function: Any) -> str:
    """Return the last line of the learner's own code that an exception passed."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if not frames:
        return ""
    number = frames[-1].lineno or 0
    return f"\n  line {number}: {linecache.getline(str(file), number).strip()}"


def numeric_gradient(f: Callable[[np.ndarray], Any], x: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Return the gradient of a function by central differences: (f(x + h) − f(x − h)) / 2h in each element, float64.

    Args:
        f: takes an array of the shape of ``x``, returns one number.
        x: where; any shape.
        step: h.
    """
    x = np.asarray(x, np.float64)
    gradient = np.empty_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (float(f(up)) - float(f(down))) / (up[index] - down[index])
    return gradient


def gradients_match(
    f: Callable[[np.ndarray], Any],
    x: np.ndarray,
    gradient: Any,
    what: str,
    *,
    tolerance: float = 1e-6,
    hints: Mapping[str, str] | None = None,
) -> None:
    """Fail unless a gradient is what central differences in float64 say.

    Raises:
        CheckFailed: it is not.
    """
    same(gradient, numeric_gradient(f, x), what, tolerance=tolerance, hints=hints)


# Kernels --------------------------------------------------------------------------------------------------------------


def run_kernel(
    kernel: Any,
    grid: Dimensions,
    block: Dimensions,
    args: Mapping[str, Any],
    expected: Mapping[str, Any],
    *,
    label: str,
    tolerance: float = 1e-5,
    shared_bytes: int = 0,
    orders: tuple[Order, ...] = ("forward", "reverse"),
    hints: Mapping[str, str] | None = None,
    deterministic: bool = False,
) -> dict[str, np.ndarray]:
    """Run the learner's kernel with every access watched, in several orders of its threads, and compare.

    Where there is a GPU it runs there as well.

    Args:
        kernel: decorated with ``@cuda.jit``.
        grid: blocks of the launch.
        block: threads of a block.
        args: arrays and numbers by the names of the kernel's parameters, in their order. They are not changed.
        expected: what is to be in some of the arrays afterwards; the others are to be as they were.
        label: how messages call this launch: "33 numbers, blocks of 32".
        tolerance: relative to the largest expected value of an array.
        shared_bytes: dynamic shared memory of a block.
        orders: in which blocks, warps and lanes take their turns.
        hints: more words, by the kind of a fault ("race") or of a difference ("unwritten").
        deterministic: the outputs are to have the same bits in every order.

    Returns:
        The outputs of the first run, by name.

    Raises:
        CheckFailed: something is wrong with the kernel or with what it computes.
    """
    require_kernel(kernel, tuple(args))
    first: dict[str, np.ndarray] = {}
    for order in orders:
        given = _copies(args)
        with _told(f"with {label}", hints):
            simt.run(
                kernel, grid, block, tuple(given.values()), executor="checked", shared_bytes=shared_bytes, order=order
            )
        _compare(given, args, expected, f"with {label}", tolerance, hints)
        outputs = {name: given[name] for name in expected}
        if deterministic and first and any(outputs[n].tobytes() != first[n].tobytes() for n in outputs):
            raise CheckFailed(
                f"with {label}: with the threads in another order ({order}) the result has other last bits"
            )
        first = first or outputs
    if _gpu():
        given = _copies(args)
        with _told(f"with {label}, on the GPU", hints):
            kernel[grid, block, 0, shared_bytes](*given.values())
        _compare(given, args, expected, f"with {label}, on the GPU", tolerance, hints)
        tally.on_gpu = True
    tally.labels.append(label)
    tally.orders = max(tally.orders, len(orders))
    return first


def traced(kernel: Any, grid: Dimensions, block: Dimensions, args: Mapping[str, Any] | tuple) -> "simt.Trace":
    """Return the trace of the learner's kernel, for its numbers: sectors, conflicts. Arrays are not changed.

    Raises:
        CheckFailed: it cannot be run.
    """
    named = args if isinstance(args, Mapping) else {str(n): a for n, a in enumerate(args)}
    require_kernel(kernel, tuple(args) if isinstance(args, Mapping) else None)
    with _told("while its accesses are counted", None):
        trace = simt.trace(kernel, grid, block, tuple(_copies(named).values()))
        if trace.faults:
            raise simt.KernelFaults(list(trace.faults))
        return trace


def require_kernel(kernel: Any, parameters: tuple[str, ...] | None = None) -> None:
    """Fail unless this is a kernel, with parameters of these names.

    Raises:
        CheckFailed: it is none.
    """
    function = getattr(kernel, "py_func", None)
    if function is None:
        plain = inspect.isfunction(kernel)
        what = "a plain function: put @cuda.jit above it" if plain else _article(type(kernel).__name__)
        raise CheckFailed(f"this is {what}{'' if plain else ', and should be a kernel, a function under @cuda.jit'}")
    has = tuple(inspect.signature(function).parameters)
    if parameters is not None and has != parameters:
        raise CheckFailed(
            f"the kernel {function.__name__} has the parameters ({', '.join(has)}), "
            f"and should have ({', '.join(parameters)})"
        )


#: Faults that other faults come of: they are told first.
CAUSES = (BARRIER_DIVERGENCE, MISSING_LANES)


def _copies(args: Mapping[str, Any]) -> dict[str, Any]:
    return {name: a.copy() if isinstance(a, np.ndarray) else a for name, a in args.items()}


@contextmanager
def _told(label: str, hints: Mapping[str, str] | None) -> Any:
    """Turn what the runner says of a kernel into words for the learner."""
    try:
        yield
    except simt.KernelFaults as error:
        fault = min(error.faults, key=lambda each: each.kind not in CAUSES)
        hint = (hints or {}).get(fault.kind)
        more = f"\n({len(error.faults) - 1} more like it)" if len(error.faults) > 1 else ""
        # a cell's file has a name that says nothing
        told = re.sub(r"(in kernel \w+), [^\n]*?:(\d+):", r"\1, line \2:", str(fault), count=1)
        raise CheckFailed(f"{label}: {told}{more}{f'{chr(10)}{hint}' if hint else ''}") from None
    except UserError as error:
        told = re.sub(r"^\S*?:(\d+): ", r"line \1 of its cell: ", str(error), count=1)
        raise CheckFailed(f"{label}: {told}") from None
    except Exception as error:
        raise CheckFailed(f"{label}: the kernel stops with {type(error).__name__}: {error}") from None


def _compare(
    given: Mapping[str, Any],
    before: Mapping[str, Any],
    expected: Mapping[str, Any],
    label: str,
    tolerance: float,
    hints: Mapping[str, str] | None,
) -> None:
    others = {name: a for name, a in before.items() if isinstance(a, np.ndarray) and name not in expected}
    for name, right in expected.items():
        found = difference(given[name], right, name, tolerance=tolerance, others=others)
        if found is not None:
            raise CheckFailed(f"{label}: {_with_hint(found, hints)}")
    for name, was in others.items():
        if difference(given[name], was, name, tolerance=0) is not None:
            raise CheckFailed(f"{label}: the kernel changes its input {name}: it should only read it")


def _gpu() -> bool:
    from nanoeuler.lessons.running import gpu

    return gpu()
