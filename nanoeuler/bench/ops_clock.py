"""The clocks that ops are timed by: the host's, and on a GPU the GPU's own.

Two things would make an op look faster, or slower, than it is in a training step.

Its arguments would lie in a cache from the call before, where in a model they come from memory. So before each timed
call as much memory is read as no cache holds (:data:`COLD_BYTES`), and nothing is left of them. It is read, not
written: what is written would have to leave the cache while the op runs.

And a small kernel takes less time than Python needs to launch it. Between the events that measure an op, the GPU would
mostly wait. But it works through its launches in their order and the host need not wait for it, so while it is busy
reading the cold memory, as often as it takes, the op is launched behind; then the events see the GPU's time only. What
the launches cost the host is measured apart.
"""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from nanoeuler.bench import measure

#: Read between two calls: more than the last cache of a GPU, and of nearly every CPU, holds.
COLD_BYTES = 256 << 20
#: A sample on the GPU is the mean of as many calls as fit in so many seconds, but at most so many calls.
SAMPLE_SECONDS, MOST_CALLS = 0.02, 50

Run = Callable[[], Any]


class Sample(NamedTuple):
    """What one measurement gives, in seconds for one call."""

    seconds: float
    launch: float | None  # what the call costs the host, where it does not wait for the end


class Clock(Protocol):
    """Measures a function that works on a device."""

    def until_done(self, run: Run) -> float:
        """Return the seconds of one call until all of its work is done."""
        ...

    def sample(self, run: Run) -> Sample:
        """Return the seconds of a call."""
        ...


class HostClock:
    """For ops that have done their work when they return."""

    def __init__(self, ops: Any = None) -> None:
        """Given an op table, the caches are emptied of the op's arguments before each timed call."""
        self._flush: Run = (lambda: None) if ops is None else cold_read(ops)

    def until_done(self, run: Run) -> float:
        """Return the seconds of one call."""
        return measure.seconds_of(run)

    def sample(self, run: Run) -> Sample:
        """Return the seconds of one call."""
        self._flush()
        return Sample(measure.seconds_of(run), None)


class EventClock:
    """For a GPU: events on the default stream, where our launches and PyTorch's go."""

    def __init__(self, ops: Any, cuda: Any) -> None:
        """``cuda`` is Numba's, or what has its functions."""
        self._cuda, self._flush = cuda, cold_read(ops)
        self._flush()  # compiles
        self._flush_seconds = min(self._between_events(self._flush, 0) for _ in range(3))

    def until_done(self, run: Run) -> float:
        """Return the seconds of one call until the GPU has done it."""

        def to_its_end() -> None:
            run()
            self._cuda.synchronize()

        self._cuda.synchronize()
        return measure.seconds_of(to_its_end)

    def sample(self, run: Run) -> Sample:
        """Return the mean of several calls."""
        self._cuda.synchronize()
        launch = measure.seconds_of(run)
        whole = self.until_done(run)
        flushes = math.ceil(2 * launch / self._flush_seconds)  # twice: the events take their time too
        calls = min(MOST_CALLS, max(1, int(SAMPLE_SECONDS / whole)))
        return Sample(self._between_events(run, flushes, calls), launch)

    def _between_events(self, run: Run, flushes: int, calls: int = 1) -> float:
        pairs = [(self._cuda.event(), self._cuda.event()) for _ in range(calls)]
        self._cuda.synchronize()
        for start, end in pairs:
            for _ in range(flushes):
                self._flush()
            start.record()
            run()
            end.record()
        self._cuda.synchronize()
        return float(np.mean([self._cuda.event_elapsed_time(start, end) for start, end in pairs])) / 1000


def cold_read(ops: Any) -> Run:
    """Return what reads :data:`COLD_BYTES` of memory: the global norm of that many zeros."""
    memory, norm = ops.empty(COLD_BYTES // 4, np.float32), ops.empty(1, np.float32)
    ops.fill(memory, 0.0)
    return partial(ops.global_norm, norm, memory)


def time_in_turns(
    runs: dict[str, Run], clock: Clock, steps: int, after_turn: Callable[[], None] = lambda: None
) -> dict[str, list[list[Sample]]]:
    """Take at least ``steps`` samples of each, in turns, in a new order each round; a turn's first call is not one."""
    samples: dict[str, list[list[Sample]]] = {name: [] for name in runs}
    names = itertools.cycle(runs)
    for _ in range(measure.rounds(steps)):
        for name in itertools.islice(names, len(runs)):
            runs[name]()
            samples[name].append([clock.sample(runs[name]) for _ in range(measure.TURN_STEPS)])
            after_turn()
        next(names)
    return samples
