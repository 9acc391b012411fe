"""Measuring one op: who does it, whether they all give the same, and how long each takes, in turns.

Beside the op in use there may be its simpler versions (the ladder), our own kernel where the op leaves its products to
cuBLAS, and PyTorch. The machine's roof is one more that takes its turns: what it can do is measured when it is needed.
"""

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from nanoeuler.bench import measure, ops_roofs
from nanoeuler.bench.contender import EAGER, OURS
from nanoeuler.bench.ops_arguments import in_order, make_arguments
from nanoeuler.bench.ops_clock import Clock, EventClock, HostClock, Sample, smallest_launch, time_in_turns
from nanoeuler.bench.ops_entries import OpBench, Size
from nanoeuler.bench.ops_recorded import Timed
from nanoeuler.bench.ops_roofs import COPY, PRODUCT

#: A hand-written kernel, where the op itself leaves the work to cuBLAS.
KERNEL = "our kernel"
#: Largest difference of another version's results from the op's, as a share of the largest number among them.
TOLERANCES = {"float32": 1e-4, "tf32": 1e-2, "bf16": 2e-2}

Arguments = dict[str, Any]
Result = dict[str, Any]
Run = Callable[[], Any]


@dataclass(frozen=True)
class Bench:
    """What all ops are timed with."""

    dtype: str
    size: Size
    ops: Any  # the op table
    clock: Clock
    roofs: dict[str, ops_roofs.Roof] = field(default_factory=dict)
    ladders: dict[str, list[Any]] = field(default_factory=dict)  # by op, from the simplest to the one in use
    cublas: bool = False  # does the products
    pytorch: Any = None  # the module of its equivalents
    smallest: Result | None = None  # of :func:`smallest`, on a GPU


class Kept:
    """A function of which the last result is kept."""

    def __init__(self, run: Run) -> None:
        self._run, self.result = run, None

    def __call__(self) -> None:
        """Run it."""
        self.result = self._run()


@dataclass(frozen=True)
class Contender:
    """Something that does what an op does."""

    run: Run
    idea: str = ""  # of a version of a ladder


def prepare(device: str, dtype: str, size: Size, ops: Any, workers: int, ladder: bool = False) -> Bench:
    """Return what the ops of a device are timed with, but for PyTorch; on a CPU within the team."""
    ladders = find_ladders() if ladder else {}
    if device == "sim":
        return Bench(dtype, size, ops, HostClock(), ladders=ladders)
    if device == "cpu":
        return Bench(dtype, size, ops, HostClock(ops), ops_roofs.on_cpu(workers))
    from nanoeuler.gpu import cublas
    from nanoeuler.gpu.backend import cuda

    library = cublas.available()
    roofs = ops_roofs.on_gpu(ops, dtype, library)
    clock = EventClock(ops, cuda)
    return Bench(dtype, size, ops, clock, roofs, ladders, library, smallest=smallest(ops, clock))


def find_ladders() -> dict[str, list[Any]]:
    """Return the versions of every op that has a ladder; the last is the op itself."""
    from nanoeuler.gpu import ladder

    files = pkgutil.iter_modules(ladder.__path__, f"{ladder.__name__}.")
    modules = (importlib.import_module(file.name) for file in files)
    versions = [module.VERSIONS for module in modules if hasattr(module, "VERSIONS")]
    return {each[-1].run.__name__: each for each in versions}


def with_pytorch(bench: Bench) -> tuple[Bench, dict[str, str]]:
    """Return the same with PyTorch taking part, or why it cannot."""
    try:
        import torch
    except ImportError:
        return bench, {EAGER: "it is not installed (pip install torch)"}
    if not torch.cuda.is_available():
        return bench, {EAGER: f"its version {torch.__version__} sees no GPU"}
    from nanoeuler.bench import ops_pytorch

    return replace(bench, pytorch=ops_pytorch), {}


def measure_op(entry: OpBench, bench: Bench, steps: int) -> Result:
    """Call every contender once, compare what they give, and time them.

    Returns:
        ``bytes`` and ``flops`` that the op cannot avoid; ``roof``, what it is judged by, None where nothing is claimed;
        for each contender ``run_seconds``, a summary of its samples, ``first_seconds`` of the call that compiles,
        ``launch_seconds`` that a call costs the host, rates, ``share`` of the roof's, ``our_time``, our own as a share
        of its, and what :func:`_way` tells; ``skipped``, who could not take part and why.
    """
    result: Result = {
        "op": entry.op,
        "case": entry.case,
        "bytes": entry.moved_bytes(bench.size, bench.dtype),
        "flops": entry.flops(bench.size.extents) if entry.flops else None,
        "roof": None,
        "contenders": {},
        "skipped": {},
    }
    if bench.pytorch:
        bench.pytorch.release()  # what the op before this one needed
    try:
        arguments = make_arguments(entry, bench.ops, bench.size, bench.dtype)
        contenders = _contenders(entry, bench, arguments, result["skipped"])
        first = _first_calls(entry, bench, arguments, contenders, result["skipped"])
    except Exception as error:
        if not _out_of_memory(error):
            raise
        result["skipped"] = {OURS: "its arrays do not fit in memory: take a smaller --size"}
        return result
    _time(result, contenders, bench, steps)
    for name, numbers in result["contenders"].items():
        numbers["first_seconds"] = first[name]
    return result


def _time(result: Result, contenders: dict[str, Contender], bench: Bench, steps: int) -> None:
    """Time all contenders, and the roof, in turns; note their numbers in the op's result."""
    judge = PRODUCT if result["flops"] is not None else COPY
    runs = {name: bench.clock.prepared(contender.run) for name, contender in contenders.items()}
    if judge in bench.roofs:
        runs["roof"] = bench.clock.prepared(bench.roofs[judge].run)
    samples = time_in_turns(runs, bench.clock, steps)
    if judge in bench.roofs:
        result["roof"] = _roof(bench.roofs[judge], judge, runs["roof"], samples.pop("roof"))
    for name, turns in samples.items():
        seconds = measure.summary(_seconds(turns))
        result["contenders"][name] = {
            "idea": contenders[name].idea,
            "run_seconds": seconds,
            "launch_seconds": _launch(turns),
            "our_time": measure.compare(_seconds(samples[OURS]), _seconds(turns)),
            **_rates(result, seconds["median"]),
            **_way(runs[name], turns),
        }


def _contenders(entry: OpBench, bench: Bench, arguments: Arguments, skipped: dict[str, str]) -> dict[str, Contender]:
    """Return who does an op, ourselves first. PyTorch copies what it changes, so it comes here before anybody runs."""
    given = in_order(entry.op, arguments)
    ours = partial(getattr(bench.ops, entry.op), *given)
    ladder = bench.ladders.get(entry.op, [])
    by_cublas, idea = bench.cublas and entry.op.startswith("linear"), ladder[-1].idea if ladder else ""
    contenders = {OURS: Contender(ours, "cuBLAS" if by_cublas else idea)}
    if bench.pytorch:
        try:
            contenders[EAGER] = Contender(bench.pytorch.equivalent(entry.op, arguments, bench.dtype))
        except Exception as error:
            skipped[EAGER] = _failed(error)
    if by_cublas:
        contenders[KERNEL] = Contender(without_cublas(ours), idea)
    for version in ladder[:-1]:
        names = inspect.signature(version.run).parameters
        if set(entry.shapes) <= set(names):  # simpler versions know no documents
            contenders[version.name] = Contender(partial(version.run, *map(arguments.get, names)), version.idea)
    return contenders


def without_cublas(run: Run) -> Run:
    """Return what does the same with our own kernels."""
    from nanoeuler.gpu.linear import products

    def call() -> None:
        before, products.use_cublas = products.use_cublas, False
        try:
            run()
        finally:
            products.use_cublas = before

    return call


def _first_calls(
    entry: OpBench, bench: Bench, arguments: Arguments, contenders: dict[str, Contender], skipped: dict[str, str]
) -> dict[str, float]:
    """Call everybody once; return the seconds. Who fails, or gives something else than the op, is taken out."""
    seconds: dict[str, float] = {}
    expected: dict[str, np.ndarray] = {}
    for name, contender in list(contenders.items()):
        tolerance, difference = TOLERANCES[bench.dtype], 0.0
        try:
            if name not in (OURS, EAGER):
                expected = expected or _outputs(entry, bench.ops, arguments)
                _forget(entry, bench.ops, arguments)
            run = Kept(contender.run)
            seconds[name] = bench.clock.until_done(run)
            if name == EAGER:
                tolerance = bench.pytorch.TOLERANCES[bench.dtype]
                difference = bench.pytorch.difference(entry.op, run.result, arguments)
            elif name != OURS:
                difference = _difference(_outputs(entry, bench.ops, arguments), expected)
        except Exception as error:
            if name == OURS:
                raise
            skipped[name] = _failed(error)
        if not difference <= tolerance:  # not a number does not agree either
            skipped[name] = f"its results differ from ours by {difference:.2g} of the largest number among them"
        if name in skipped:
            del contenders[name]
    return seconds


def _outputs(entry: OpBench, ops: Any, arguments: Arguments) -> dict[str, np.ndarray]:
    """Return copies of what an op has written or added to."""
    return {name: np.array(ops.to_numpy(arguments[name])) for name in entry.written | entry.added}


def _forget(entry: OpBench, ops: Any, arguments: Arguments) -> None:
    """Let nothing be left of what was written, and 0 of what was added to, as at the start."""
    for name in entry.written | entry.added:
        x = arguments[name]
        ops.fill(x.reshape(x.size), math.nan if name in entry.written else 0.0)


def _difference(got: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    """Return the largest difference, as a share of the largest number of its array."""
    worst = [
        np.abs(got[name] - expected[name]).max() / max(float(np.abs(expected[name]).max()), 1e-30) for name in expected
    ]
    return float(np.max(worst))


def _failed(error: Exception) -> str:
    if _out_of_memory(error):
        return "what it needs besides does not fit in memory"
    return f"it failed here: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _out_of_memory(error: Exception) -> bool:
    """Return whether an error says so: NumPy's, the CUDA driver's, or PyTorch's."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in ("OUT_OF_MEMORY", "out of memory"))


def _seconds(turns: list[list[Sample]]) -> measure.Rounds:
    return [[sample.seconds for sample in turn] for turn in turns]


def _launch(turns: list[list[Sample]]) -> float | None:
    costs = [sample.launch for turn in turns for sample in turn if sample.launch is not None]
    return float(np.median(costs)) if costs else None


def _way(timed: Timed, turns: list[list[Sample]]) -> Result:
    """Return how something was timed.

    Returns:
        ``graph``, whether as a CUDA graph, and ``without_graph``, why not; ``launches_hidden``, whether its launches
        were always in the queue before the GPU came to them, else its time is an upper bound. None without a GPU.
    """
    hidden = [sample.hidden for turn in turns for sample in turn]
    return {
        "graph": timed.graph,
        "without_graph": timed.without_graph,
        "launches_hidden": None if None in hidden else all(hidden),
    }


def smallest(ops: Any, clock: Clock) -> Result:
    """Return the time of a launch that sets one number, and how it was timed."""
    timed, sample = smallest_launch(ops, clock)
    return {"seconds": sample.seconds, **_way(timed, [[sample]])}


def _roof(roof: ops_roofs.Roof, name: str, timed: Timed, turns: list[list[Sample]]) -> Result:
    seconds = measure.summary(_seconds(turns))
    rate = roof.work / seconds["median"]
    return {"name": name, "about": roof.about, "run_seconds": seconds, "per_second": rate, **_way(timed, turns)}


def _rates(result: Result, seconds: float) -> dict[str, float]:
    """Return what is done in a second, and what share of the roof's that is; nothing where nothing is claimed."""
    if result["roof"] is None:
        return {}
    rates = {"bytes_per_second": result["bytes"] / seconds}
    if result["flops"] is not None:
        rates["flops_per_second"] = result["flops"] / seconds
    judged = rates["flops_per_second" if result["roof"]["name"] == PRODUCT else "bytes_per_second"]
    return rates | {"share": judged / result["roof"]["per_second"]}
