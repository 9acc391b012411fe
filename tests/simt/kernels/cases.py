"""What the two catalogues are made of: a kernel, how to launch it, and what must come out."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ANY = (1, 2, 7, 31, 32, 33, 97, 128, 64)  # threads of a block; the last is the usual one
WARPS = (32, 96, 128, 64)
POWERS = (1, 2, 4, 8, 16, 32, 128, 64)


@dataclass(frozen=True)
class Case:
    """One launch, and for each argument that it changes, by position, what must be in it afterwards."""

    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    args: tuple[Any, ...]
    expected: dict[int, Array] = field(default_factory=dict)
    shared_bytes: int = 0
    unordered: bool = False  # results come in the order of the threads' arrival: compare them sorted


@dataclass(frozen=True)
class CorrectKernel:
    """A kernel without a fault. ``make(generator, size, threads)`` draws arguments for a size and a block size."""

    name: str
    kernel: Any
    make: Callable[[np.random.Generator, int, int], Case]
    sizes: tuple[int, int]  # smallest and largest; the largest is the usual one
    threads: tuple[int, ...]
    tolerance: float  # relative, and absolute for numbers below 1; 0: every bit is the same
    beyond_stock: str  # why Numba's own simulator cannot run it; "" if it can

    def case(self, size: int | None = None, threads: int | None = None, seed: int = 0) -> Case:
        """Return a launch of the usual or a given size; the same seed gives the same arguments."""
        return self.make(np.random.default_rng(seed), size or self.sizes[1], threads or self.threads[-1])


@dataclass(frozen=True)
class FaultyKernel:
    """A kernel with one fault, marked ``# fault`` in its source, and what a report of it must say."""

    name: str
    kernel: Any
    make: Callable[[], Case]
    kind: str
    executors: tuple[str, ...]  # those that must find it
    functions: tuple[Any, ...]  # device functions whose source has marks too
    block: tuple[int, int, int] | None  # of the first thread reported, where only one is possible; else None
    thread: tuple[int, int, int] | None
    index: tuple[int, ...] | None
    orders_differ: bool  # the results depend on the order of the threads

    @property
    def lines(self) -> set[int]:
        """The lines on which it may be reported: those with the comment ``# fault``."""
        marked = set()
        for function in (self.kernel, *self.functions):
            source, first = inspect.getsourcelines(getattr(function, "py_func", function))
            marked |= {first + number for number, text in enumerate(source) if "# fault" in text}
        return marked


def assert_results(case: Case, tolerance: float) -> None:
    """Compare what a launch left in its arguments with what must be there, bit for bit where ``tolerance`` is 0."""
    for position, wanted in case.expected.items():
        found = case.args[position]
        if case.unordered:
            found, wanted = np.sort(found), np.sort(wanted)
        if tolerance:
            np.testing.assert_allclose(found, wanted, tolerance, tolerance, err_msg=f"argument {position}")
        else:
            np.testing.assert_array_equal(found, wanted, err_msg=f"argument {position}")
