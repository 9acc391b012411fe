"""Timing: contenders in turns on one machine, what that machine can do, and where our own step spends its time.

A shared or a warm machine is not as fast now as it was a minute ago, so nobody is timed alone: the contenders take
turns of a few steps, in a new order each round, and are compared within the round. PyTorch's OpenMP threads go on
spinning after their work is done, up to 200 ms with LLVM's and Intel's runtime, and would take the cores from whoever
comes next: before each turn everybody sleeps for longer than that, and the turn's first step, which wakes the threads
and the caches, is not timed. Our own worker threads end with the turn, and so does the limit on BLAS threads.
"""

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from nanoeuler import cpu
from nanoeuler.bench.contender import Contender
from nanoeuler.bench.workload import Workload
from nanoeuler.cpu.parallel import Team, parallel, scratch
from nanoeuler.step import TrainingStep, cut_batch

#: Timed steps in one turn.
TURN_STEPS = 3
#: Seconds of sleep before a turn.
PAUSE = 0.25
#: Side of the square matrices, and products per thread, that the machine's multiply-add rate is measured with.
SGEMM_SIZE, SGEMM_PRODUCTS = 1024, 4

Rounds = list[list[float]]  # seconds, the steps of one turn together


def time_in_turns(
    contenders: Sequence[Contender], steps: int, after_turn: Callable[[], None] = lambda: None
) -> tuple[dict[str, Rounds], list[float]]:
    """Time at least ``steps`` steps of each contender.

    Returns:
        Seconds of every step by contender's name and round, and the machine's sgemm rate (FLOP/s) in each round.
    """
    times: dict[str, Rounds] = {contender.name: [] for contender in contenders}
    rates, batch = [], itertools.count()
    workers = contenders[0].workload.training.workers
    for i in range(rounds(steps)):
        time.sleep(PAUSE)
        rates.append(sgemm_rate(workers))
        first = i % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            time.sleep(PAUSE)
            with contender.turn():
                contender.step(next(batch))
                times[contender.name].append([seconds_of(contender.step, next(batch)) for _ in range(TURN_STEPS)])
            after_turn()
    return times, rates


def rounds(steps: int) -> int:
    """Return how many rounds hold so many timed steps of each contender."""
    return -(-steps // TURN_STEPS)


def seconds_of(function: Callable[..., Any], *arguments: Any) -> float:
    """Return how long one call takes."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def summary(seconds: Rounds) -> dict[str, Any]:
    """Return median, quartiles and the single times of a contender's steps, in seconds.

    >>> summary([[1.0, 2.0, 3.0], [4.0, 5.0]])["median"]
    3.0
    """
    lower, median, upper = np.percentile([t for turn in seconds for t in turn], (25, 50, 75))
    return {
        "median": float(median),
        "lower_quartile": float(lower),
        "upper_quartile": float(upper),
        "rounds": seconds,
    }


def compare(ours: Rounds, other: Rounds) -> dict[str, float]:
    """Return our time as a share of the other's: below 1 we are quicker.

    ``of_medians`` is the ratio of the two medians. The quartiles are those of the ratios within each round, which a
    machine that is slow for a while changes little.

    >>> compare([[1.0], [4.0]], [[2.0], [8.0]])
    {'of_medians': 0.5, 'lower_quartile': 0.5, 'upper_quartile': 0.5}
    """
    within = [np.median(a) / np.median(b) for a, b in zip(ours, other, strict=True)]
    lower, upper = np.percentile(within, (25, 75))
    return {
        "of_medians": summary(ours)["median"] / summary(other)["median"],
        "lower_quartile": float(lower),
        "upper_quartile": float(upper),
    }


def sgemm_rate(workers: int) -> float:
    """Return the FLOP/s of float32 matrix products, each thread at products of its own with single-threaded BLAS."""
    n = SGEMM_SIZE
    a, b = np.random.default_rng(0).standard_normal((2, n, n), np.float32)

    def product(_: int) -> None:
        np.matmul(a, b, out=scratch("sgemm", (n, n), np.float32))

    with Team(workers):
        parallel(product, range(workers))  # wakes the threads
        items = range(SGEMM_PRODUCTS * workers)
        return len(items) * 2 * n**3 / seconds_of(parallel, product, items)


def profile(workload: Workload, steps: int = 2) -> list[dict[str, Any]]:
    """Return the seconds that one step of ours spends in each op, on a single thread, the longest first.

    The batch is cut into the same pieces as with all workers, so each op meets the shapes that it meets then. The
    last entry is what is spent outside the ops.
    """
    training = workload.training
    pieces = len(cut_batch(workload.model, training))
    alone = training.model_copy(update={"workers": 1, "pieces": pieces})
    seconds: dict[str, float] = defaultdict(float)
    step = TrainingStep(workload.model, alone, _timed_ops(seconds), length=workload.length)
    batches = workload.batches()
    with step:
        step.run(batches[0], training.learning_rate)
        seconds.clear()
        whole = seconds_of(lambda: [step.run(batches[1 + i % 7], training.learning_rate) for i in range(steps)])
    entries = list(_entries(seconds, steps))
    entries.append({"op": "between the ops", "forward": (whole - sum(seconds.values())) / steps, "backward": 0.0})
    for entry in entries:
        entry["share"] = (entry["forward"] + entry["backward"]) * steps / whole
    return entries


def _entries(seconds: dict[str, float], steps: int) -> Iterator[dict[str, Any]]:
    """Put an op's forward and backward in one entry; an op that has neither counts as forward."""
    ops: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for function, spent in seconds.items():
        op = function.removesuffix("_backward").removesuffix("_forward")
        ops[op][1 if function.endswith("_backward") else 0] += spent / steps
    for op, (forward, backward) in sorted(ops.items(), key=lambda item: -sum(item[1])):
        yield {"op": op, "forward": forward, "backward": backward}


def _timed_ops(seconds: dict[str, float]) -> SimpleNamespace:
    """Return the op table with a clock around every op; what shares the ops out, and so holds them, has none."""

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments)
            seconds[name] += time.perf_counter() - start
            return result

        return call

    table = {name: getattr(cpu, name) for name in cpu.__all__}
    return SimpleNamespace(
        **{name: f if f.__module__ == Team.__module__ else timed(name, f) for name, f in table.items()}
    )
