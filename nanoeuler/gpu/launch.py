"""Launches: a kernel runs where its arrays lie, on the GPU or, through :mod:`nanoeuler.simt`, on the CPU.

An op computes the shape of its launch and calls :func:`launch`. What a training step launches is the same in every
step, so :func:`repeated` records it once and afterwards only repeats it: nothing is computed, bound or allocated again.
Where CUDA can capture the launches they become one graph (:mod:`nanoeuler.gpu.graph`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nanoeuler import simt
from nanoeuler.gpu.bfloat16 import BFLOAT16, in_bfloat16
from nanoeuler.gpu.graph import Graph

Dimensions = int | tuple[int, ...]


@dataclass(frozen=True)
class Launch:
    """One launch with everything that it needs."""

    kernel: Any
    grid: Dimensions
    block: Dimensions
    args: tuple
    shared_bytes: int

    def on_gpu(self) -> bool:
        """Return whether its arrays lie in the GPU's memory."""
        return any(on_gpu(a) for a in self.args)

    def bind(self) -> Callable[[], None]:
        """Return what does it, on the stream that is current now."""
        if self.on_gpu():
            return partial(self.kernel[self.grid, self.block, _state.stream, self.shared_bytes], *self.args)
        return partial(
            simt.run, self.kernel, self.grid, self.block, self.args, shared_bytes=self.shared_bytes,
            executor=_state.executor, order=_state.order, seed=_state.seed,
        )  # fmt: skip


@dataclass(frozen=True)
class Call:
    """Work of a library, such as a matrix product by cuBLAS, that has its place among the launches."""

    work: Callable[[], None]

    def on_gpu(self) -> bool:
        """Return true: libraries are called for the GPU only."""
        return True

    def bind(self) -> Callable[[], None]:
        """Return what does it; it asks for the stream by itself."""
        return self.work


@dataclass
class _State:
    """How launches run just now."""

    executor: simt.Executor = "compiled"
    order: Any = "forward"
    seed: int = 0
    stream: Any = 0
    execute: bool = True
    recording: list[Launch | Call] | None = None


_state = _State()


def launch(
    kernel: Any, grid: Dimensions, block: Dimensions, *args: Any, shared_bytes: int = 0, low: bool | None = None
) -> None:
    """Run ``kernel[grid, block](*args)``; nothing where the grid has no block.

    Arrays all lie in one memory, the GPU's or the host's. Floats are given as float32; where an array holds bfloat16
    the kernel is the variant for it.

    Args:
        kernel: decorated with ``cuda.jit``.
        grid: blocks.
        block: threads of a block.
        args: the kernel's arguments.
        shared_bytes: dynamic shared memory of a block.
        low: whether to take the variant for bfloat16; None asks the arrays.
    """
    if 0 in (grid if isinstance(grid, tuple) else (grid,)):
        return
    if low is None:
        low = any(getattr(a, "dtype", None) == BFLOAT16 for a in args)
    given = tuple(np.float32(a) if isinstance(a, float) else a for a in args)
    _do(Launch(in_bfloat16(kernel) if low else kernel, grid, block, given, shared_bytes))


def call(work: Callable[[], None]) -> None:
    """Do work of a library on the GPU, in its place among the launches, on :func:`current_stream`."""
    _do(Call(work))


def current_stream() -> Any:
    """Return the stream that launches go to: 0, the default one, but while a graph is captured."""
    return _state.stream


def _do(work: Launch | Call) -> None:
    if _state.recording is not None:
        _state.recording.append(work)
    if _state.execute:
        work.bind()()


def on_gpu(x: Any) -> bool:
    """Return whether an argument is an array in the GPU's memory."""
    return not isinstance(x, np.ndarray) and hasattr(x, "__cuda_array_interface__")


class Repeated:
    """A function that only launches, always the same: recorded in its first call, repeated in the others."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._bound: list[Callable[[], None]] | None = None
        self.graph: Graph | None = None
        self.without_graph = ""  # why launches go one by one

    def __call__(self) -> None:
        """Do what the function does."""
        if self._bound is None:
            with recording() as work:
                self._function()
            self._bound = [each.bind() for each in work]
            if any(each.on_gpu() for each in work):
                self.graph, self.without_graph = Graph.capture(lambda stream: _on_stream(stream, work))
        elif self.graph is not None:
            self.graph.launch()
        else:
            for do in self._bound:
                do()


def repeated(function: Callable[[], None]) -> Callable[[], None]:
    """Return what does the same as a function that does nothing but launch, with the same arguments every time."""
    return Repeated(function)


def _on_stream(stream: Any, work: list[Launch | Call]) -> None:
    before, _state.stream = _state.stream, stream
    try:
        for each in work:
            each.bind()()
    finally:
        _state.stream = before


def refuse_while_recording(what: str) -> None:
    """Raise a RuntimeError while launches are recorded: a repetition would leave this out."""
    if _state.recording is not None and _state.execute:
        raise RuntimeError(f"{what} while launches are recorded: repeated, it would not happen again")


@contextmanager
def executing(executor: simt.Executor, order: Any = "forward", seed: int = 0) -> Iterator[None]:
    """Run launches on host arrays by another executor of :func:`nanoeuler.simt.run`, in another order."""
    before = _state.executor, _state.order, _state.seed
    _state.executor, _state.order, _state.seed = executor, order, seed
    try:
        yield
    finally:
        _state.executor, _state.order, _state.seed = before


@contextmanager
def recording(execute: bool = True) -> Iterator[list[Launch | Call]]:
    """Yield a list that fills with the launches made; with ``execute`` false they are not run."""
    before = _state.recording, _state.execute
    work: list[Launch | Call] = []
    _state.recording, _state.execute = work, execute
    try:
        yield work
    finally:
        _state.recording, _state.execute = before
