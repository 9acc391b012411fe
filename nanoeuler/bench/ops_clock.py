"""The clocks that ops are timed by: the host's, and on a GPU the GPU's own.

Two things would make an op look faster, or slower, than it is in a training step.

Its arguments would lie in a cache from the call before, where in a model they come from memory. So before each timed
call as much memory is read as no cache holds (:data:`COLD_BYTES`, :data:`GPU_COLD_BYTES`), and nothing is left of them.
It is read, not written: what is written would have to leave the cache while the op runs.

And a small kernel takes less time than Python needs to launch it. Between the events that measure an op, the GPU would
mostly wait. But it works through its launches in their order and the host need not wait for it: while it is still
reading the cold memory, the op is launched behind. So what is measured on a GPU is the time from the end of the cold
read to the end of the op's last kernel, for launches that all lie in the queue by then. That they do is not assumed.
Once the host has handed over a call and the event behind it, it asks whether the GPU has come to the event before it;
if so the call was late, and the sample is taken again behind twice the reading. A sample that stays late is marked: its
time is an upper bound.

The host's side is kept small, too: what is timed is a graph, or launches that are bound already
(:mod:`nanoeuler.bench.ops_recorded`), and so is the reading. What calling the op from Python costs the host is measured
apart. Events and the start of a graph take some microseconds themselves, which are in every time and not subtracted:
:func:`smallest_launch` tells how many.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from nanoeuler.bench import measure
from nanoeuler.bench.ops_recorded import Run, Timed, recorded

#: Read between two calls on a CPU: more than the last cache of nearly every one holds.
COLD_BYTES = 256 << 20
#: On a GPU: many times its last cache, and a few hundred microseconds on the fastest, in which to launch an op.
GPU_COLD_BYTES = 1 << 30
#: So many times at most, where launching takes longer.
MOST_READS = 16
#: A sample on the GPU is the mean of as many calls as fit in so many seconds, but at most so many calls.
SAMPLE_SECONDS, MOST_CALLS = 0.02, 50


class Sample(NamedTuple):
    """What one measurement gives, in seconds for one call."""

    seconds: float
    launch: float | None = None  # what the call costs the host, where it does not wait for the end
    hidden: bool | None = None  # whether every launch was in the queue in time; None where there is no queue


class Clock(Protocol):
    """Measures a function that works on a device."""

    def until_done(self, run: Run) -> float:
        """Return the seconds of one call until all of its work is done."""
        ...

    def prepared(self, run: Run) -> Timed:
        """Return a run made ready for :meth:`sample`."""
        ...

    def sample(self, timed: Timed) -> Sample:
        """Return the seconds of a call."""
        ...


class HostClock:
    """For ops that have done their work when they return."""

    def __init__(self, ops: Any = None) -> None:
        """Given an op table, the caches are emptied of the op's arguments before each timed call."""
        self._flush: Run = (lambda: None) if ops is None else cold_read(ops, COLD_BYTES)

    def until_done(self, run: Run) -> float:
        """Return the seconds of one call."""
        return measure.seconds_of(run)

    def prepared(self, run: Run) -> Timed:
        """Return the run, with nothing to prepare."""
        return Timed(run, run)

    def sample(self, timed: Timed) -> Sample:
        """Return the seconds of one call."""
        self._flush()
        return Sample(measure.seconds_of(timed.run))


class EventClock:
    """For a GPU: events on the default stream, where our launches and PyTorch's go."""

    def __init__(self, ops: Any, cuda: Any) -> None:
        """``cuda`` is Numba's, or what has its functions."""
        self._cuda, self._flush = cuda, recorded(cold_read(ops, GPU_COLD_BYTES)).repeat

    def until_done(self, run: Run) -> float:
        """Return the seconds of one call until the GPU has done it."""

        def to_its_end() -> None:
            run()
            self._cuda.synchronize()

        self._cuda.synchronize()
        return measure.seconds_of(to_its_end)

    def prepared(self, run: Run) -> Timed:
        """Return the run with its launches recorded, as a graph if they can be captured."""
        return recorded(run)

    def sample(self, timed: Timed) -> Sample:
        """Return the mean of several calls."""
        self._cuda.synchronize()
        launch = measure.seconds_of(timed.run)
        calls = min(MOST_CALLS, max(1, int(SAMPLE_SECONDS / self.until_done(timed.repeat))))
        reads = 1
        seconds, hidden = self._between_events(timed.repeat, calls, reads)
        while not hidden and reads < MOST_READS:
            reads *= 2
            seconds, hidden = self._between_events(timed.repeat, calls, reads)
        return Sample(seconds, launch, hidden)

    def _between_events(self, run: Run, calls: int, reads: int) -> tuple[float, bool]:
        """Return the mean of some calls, each behind cold reads, and whether all were launched in time."""
        pairs = [(self._cuda.event(), self._cuda.event()) for _ in range(calls)]
        hidden = True
        self._cuda.synchronize()
        for start, end in pairs:
            for _ in range(reads):
                self._flush()
            start.record()
            run()
            end.record()
            hidden = hidden and not start.query()
        self._cuda.synchronize()
        return float(np.mean([self._cuda.event_elapsed_time(start, end) for start, end in pairs])) / 1000, hidden


def cold_read(ops: Any, size: int) -> Run:
    """Return what reads so many bytes of memory: the global norm of that many zeros."""
    memory, norm = ops.empty(size // 4, np.float32), ops.empty(1, np.float32)
    ops.fill(memory, 0.0)
    return partial(ops.global_norm, norm, memory)


def smallest_launch(ops: Any, clock: Clock) -> tuple[Timed, Sample]:
    """Return what a clock says of a launch that sets one number: so much of every time is not the op's."""
    timed = clock.prepared(partial(ops.fill, ops.empty(1, np.float32), 0.0))
    return timed, clock.sample(timed)


def time_in_turns(
    runs: dict[str, Timed], clock: Clock, steps: int, after_turn: Callable[[], None] = lambda: None
) -> dict[str, list[list[Sample]]]:
    """Take at least ``steps`` samples of each, in turns, in a new order each round; a turn's first call is not one."""
    samples: dict[str, list[list[Sample]]] = {name: [] for name in runs}
    names = itertools.cycle(runs)
    for _ in range(measure.rounds(steps)):
        for name in itertools.islice(names, len(runs)):
            runs[name].repeat()
            samples[name].append([clock.sample(runs[name]) for _ in range(measure.TURN_STEPS)])
            after_turn()
        next(names)
    return samples
