"""How the ops share out their work: cache-sized blocks, a team of threads, scratch memory that is kept.

NumPy releases the interpreter lock inside BLAS and ufuncs, so threads really run side by side. Two levels can be
parallel, and as in OpenMP a parallel region inside another runs serially:

* the batch, cut into pieces, each piece a whole forward and backward on one thread (:mod:`nanoeuler.step`);
* inside an op, blocks of rows or tiles of a matrix product (few tokens, many parameters).

Items are taken as they come, so a slow core delays nobody, and every item writes to its own place, so the results
do not depend on who took what. BLAS is held to one thread while a team exists (OpenBLAS, MKL and BLIS are; Apple's
Accelerate cannot be told).
"""

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

#: Elements of one array in one block: 256 KB of float32, so that the few arrays of an op stay in L2.
BLOCK_ELEMENTS = 65536

#: About how many tiles a matrix product is cut into when the op itself is parallel.
TILES = 8

#: Seconds that a thread may keep the interpreter while another waits for it: a call of NumPy takes about as long.
SWITCH_SECONDS = 1e-4

_thread = threading.local()  # .inside: running an item of a parallel region; .scratch: this thread's buffers
_team: "Team | None" = None


class Team:
    """``size`` threads, the caller's among them, that run the items of one loop. A context manager.

    While it is entered, :func:`parallel` uses it and BLAS runs single-threaded. ``Team(1)`` starts no thread.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(size - 1)]

    def __enter__(self) -> "Team":
        global _team
        if _team is not None:
            raise RuntimeError("one team at a time: leave the other first")
        self._limits = ThreadpoolController().limit(limits=1, user_api="blas")
        self._limits.__enter__()
        self._switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        for thread in self._threads:
            thread.start()
        _team = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _team
        _team = None
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        sys.setswitchinterval(self._switch_interval)
        self._limits.__exit__(kind, error, trace)

    def run(self, function: Callable[[Any], None], items: Sequence[Any]) -> None:
        """Call ``function(item)`` once for every item, on all threads, and return when the last is done.

        The first exception that an item raised is raised again here.
        """
        job = _Job(function, items)
        for _ in range(min(len(self._threads), len(items) - 1)):
            self._jobs.put(job)
        job.finish()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.work()


class _Job:
    """One loop: the items that are left, and who has finished."""

    def __init__(self, function: Callable[[Any], None], items: Sequence[Any]) -> None:
        self.function, self.items = function, items
        self.next = itertools.count().__next__  # atomic under the interpreter lock: one call of C code
        self.finished: SimpleQueue[BaseException | None] = SimpleQueue()

    def work(self) -> int:
        """Take items until none is left; return how many were taken."""
        outer, _thread.inside = getattr(_thread, "inside", False), True
        taken = 0
        while (index := self.next()) < len(self.items):
            error = None
            try:
                self.function(self.items[index])
            except BaseException as caught:  # handed to the caller's thread, which raises it
                error = caught
            self.finished.put(error)
            taken += 1
        _thread.inside = outer
        return taken

    def finish(self) -> None:
        """Work too, then wait for the items that other threads took. A thread that wakes late is not waited for."""
        self.work()
        errors = [self.finished.get() for _ in self.items]
        for error in errors:
            if error is not None:
                raise error


def available_cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers(asked: int) -> int:
    """Return how many threads can share the pieces of a batch: as many as asked for, or one for each core."""
    return asked or available_cores()


def repeated(function: Callable[[], None]) -> Callable[[], None]:
    """Return what does the same as a function that is called again and again: on a CPU the function itself."""
    return function


def is_parallel() -> bool:
    """Return whether :func:`parallel` would use more than this thread."""
    return _team is not None and _team.size > 1 and not getattr(_thread, "inside", False)


def parallel(function: Callable[[Any], None], items: Iterable[Any]) -> None:
    """Call ``function(item)`` for every item: on the team if there is one and this is not inside such a call."""
    items = list(items)
    if len(items) > 1 and is_parallel():
        assert _team is not None
        _team.run(function, items)
    else:
        for item in items:
            function(item)


def blocks(rows: int, columns: int = 1) -> list[slice]:
    """Cut ``rows`` rows of ``columns`` elements into slices that fit the cache.

    >>> blocks(5, 32768)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = max(1, BLOCK_ELEMENTS // max(1, columns))
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def tiles(n: int) -> list[slice]:
    """Cut one side of a matrix product into tiles for the team, or leave it whole when this thread is alone."""
    size = max(64, -(-n // (TILES * 16)) * 16) if is_parallel() else max(1, n)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def scratch(name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an uninitialised array of this thread's own, valid until the next call with the same name.

    It is allocated when a thread first asks, or asks for more; afterwards the same memory is handed out.
    """
    pool: dict[tuple[str, Any], np.ndarray] = _thread.__dict__.setdefault("scratch", {})
    size = 1
    for extent in shape:
        size *= extent
    buffer = pool.get((name, dtype))
    if buffer is None or buffer.size < size:
        buffer = pool[name, dtype] = np.empty(size, dtype)
    return buffer[:size].reshape(shape)


def ones(n: int, dtype: Any) -> np.ndarray:
    """Return a vector of n ones. ``x @ ones`` sums rows several times faster than ``x.sum(axis=1)``."""
    pool: dict[tuple[str, Any], np.ndarray] = _thread.__dict__.setdefault("scratch", {})
    vector = pool.get(("ones", dtype))
    if vector is None or vector.size < n:
        vector = pool["ones", dtype] = np.ones(n, dtype)
    return vector[:n]
