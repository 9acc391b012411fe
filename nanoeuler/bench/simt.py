"""``python -m nanoeuler.bench simt``: the executors of kernels beside each other and beside Numba's own simulator.

The executors take turns within one process, as the contenders of the training benchmark do; what they compile at first
is timed apart, in processes of their own: one that finds nothing compiled, and one that finds what the other kept.
Numba's simulator is chosen when Numba is imported, so it has a process of its own as well.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from nanoeuler.bench import measure
from nanoeuler.bench.train import describe_machine, milliseconds, version_of, warn_if_busy, write_json
from nanoeuler.config import Parser, number
from nanoeuler.console import format_duration
from nanoeuler.errors import UserError, nearest
from nanoeuler.simt import EXECUTORS, INSTALL_GPU

COMPILED, STOCK = "compiled", "stock"
WORKLOADS = {
    "product": "tiled product, 64 x 64, blocks of 8 x 8",
    "attention": "flash attention forward, 8 heads, T = 32, D = 8",
    "step": "training step of a tiny transformer",
}
#: What of an executor's first runs is kept: with nothing compiled, and in the next process.
FIRST = ("first_seconds", "first_again_seconds")
#: Runs of Numba's simulator, which takes many seconds for each.
STOCK_RUNS = 2
#: Largest difference between two executors' results, as a share of the largest number in them. They sum in float32.
TOLERANCE = 1e-5

ABOUT = (
    "Time each executor of kernels, and Numba's own simulator, on a tiled product, flash attention and a training step "
    "of a tiny transformer. Run it on a machine with nothing else to do."
)

Result = dict[str, Any]


def main(arguments: list[str]) -> None:
    """Parse the options, measure every workload, print a table for each and write the JSON file after each.

    Raises:
        UserError: an option is wrong, the file cannot be written, Numba is not installed, or two executors differ.
    """
    options = _parse(arguments)
    console = Console(stderr=True, highlight=False)
    machine = describe_machine(1, "numba", "numba-cuda")
    warn_if_busy(machine, console)
    report: Result = {"machine": machine, "workloads": []}
    write_json(options.json, report)
    for name in options.workloads:
        result = measure_workload(name, options.steps, options.stock, console)
        report["workloads"].append(result)
        write_json(options.json, report)
        print_table(result, Console(highlight=False))


def _parse(arguments: list[str]) -> Any:
    parser = Parser(prog="python -m nanoeuler.bench simt", description=ABOUT)
    parser.add_argument(
        "--workloads",
        default=",".join(WORKLOADS),
        metavar="LIST",
        help="which workloads, with commas: " + "; ".join(f"{name} ({text})" for name, text in WORKLOADS.items()),
    )
    parser.add_argument(
        "--steps", type=number(int, 1), default=12, metavar="N", help="timed runs of each executor [12]"
    )
    parser.add_argument("--no-stock", dest="stock", action="store_false", help="leave Numba's simulator out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there too")
    options = parser.parse_args(arguments)
    options.workloads = [name.strip() for name in options.workloads.split(",")]
    for name in options.workloads:
        if name not in WORKLOADS:
            raise UserError(
                f"unknown workload '{name}'{nearest(name, WORKLOADS)}; workloads are {', '.join(WORKLOADS)}"
            )
    return options


def measure_workload(name: str, steps: int, stock: bool, console: Console) -> Result:
    """Check that the executors agree on a workload, then time them.

    Returns:
        For each executor: ``run_seconds``, a summary of its times; ``first_seconds``, what the first run takes in a new
        process with nothing compiled, and ``first_again_seconds`` with what the one before kept; ``times_compiled``,
        its median as a multiple of the compiled executor's. ``skipped`` says who could not run and why.
    """

    def tell(text: str) -> None:
        console.print(f"{name}: {text}", soft_wrap=True)

    executors, skipped = _available()
    tell("first runs, each in a process of its own")
    first = {executor: first_runs(name, executor) for executor in executors}
    tell("do the executors agree?")
    runs = _start(name, executors)
    count = measure.rounds(steps)
    tell(f"{count} x {measure.TURN_STEPS} timed runs of {', '.join(executors)}")
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=count * len(executors))
        times = time_in_turns(runs, count, lambda: progress.advance(task))
    results: dict[str, Result] = {
        executor: {"run_seconds": measure.summary(times[executor]), **first[executor]} for executor in executors
    }
    if stock:
        tell(f"{STOCK_RUNS} runs of Numba's simulator")
        try:
            seconds = run_process(name, STOCK, STOCK_RUNS, {"NUMBA_ENABLE_CUDASIM": "1"})
            results[STOCK] = {"run_seconds": measure.summary([seconds])}
        except UserError as error:
            skipped[STOCK] = str(error)
    for result in results.values():
        result["times_compiled"] = result["run_seconds"]["median"] / results[COMPILED]["run_seconds"]["median"]
    return {"name": name, "executors": results, "skipped": skipped}


def _available() -> tuple[list[str], dict[str, str]]:
    """Return the executors that can run here, and for the others why not.

    Raises:
        UserError: Numba is not installed, and none can.
    """
    if version_of("numba") is None:
        raise UserError(f"running kernels takes Numba: {INSTALL_GPU}")
    from nanoeuler.simt.toolchain import require_toolkit

    try:
        require_toolkit()
    except UserError as error:
        return [executor for executor in EXECUTORS if executor != "ptx"], {"ptx": str(error)}
    return list(EXECUTORS), {}


def first_runs(workload: str, executor: str) -> dict[str, float]:
    """Return the seconds of the first run in a process that finds nothing compiled, and in the next."""
    with tempfile.TemporaryDirectory() as folder:
        first, again = (run_process(workload, executor, 1, {"NUMBA_CACHE_DIR": folder})[0] for _ in range(2))
    return dict(zip(FIRST, (first, again), strict=True))


def run_process(workload: str, executor: str, runs: int, environment: dict[str, str]) -> list[float]:
    """Run a workload in a process of its own; return the seconds of each run.

    Raises:
        UserError: it failed; the message is the last line that it wrote.
    """
    command = [sys.executable, "-m", "nanoeuler.bench.simt_workloads", workload, executor, str(runs)]
    child = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if child.returncode:
        reason = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
        raise UserError(f"{workload} failed in executor {executor}: {reason}")
    return json.loads(child.stdout.splitlines()[-1])


def _start(name: str, executors: list[str]) -> dict[str, Callable[[], np.ndarray]]:
    """Prepare the workload once for each executor, run it once, and compare what came out.

    Raises:
        UserError: two executors differ.
    """
    from nanoeuler.bench import simt_workloads

    runs: dict[str, Callable[[], np.ndarray]] = {}
    results: dict[str, np.ndarray] = {}
    for executor in executors:
        runs[executor] = partial(simt_workloads.WORKLOADS[name](), simt_workloads.launcher(executor))
        results[executor] = runs[executor]().copy()
        check_agreement(name, executor, results[executor], results[COMPILED])
    return runs


def check_agreement(workload: str, executor: str, result: np.ndarray, expected: np.ndarray) -> None:
    """Compare the results of two executors.

    Raises:
        UserError: they differ by more than :data:`TOLERANCE`.
    """
    difference = float(np.abs(result - expected).max() / np.abs(expected).max())
    if not difference <= TOLERANCE:  # not a number does not agree either
        raise UserError(
            f"{workload}: the results of {executor} and {COMPILED} differ by {difference:.2g} of their largest number, "
            "so their times are not compared. This is a bug; please report it"
        )


def time_in_turns(
    runs: dict[str, Callable[[], Any]], rounds: int, after_turn: Callable[[], None] = lambda: None
) -> dict[str, measure.Rounds]:
    """Time each in turns, in a new order each round; the first run of a turn, which wakes the caches, is not timed."""
    times: dict[str, measure.Rounds] = {name: [] for name in runs}
    names = itertools.cycle(runs)
    for _ in range(rounds):
        for name in itertools.islice(names, len(runs)):
            runs[name]()
            times[name].append([measure.seconds_of(runs[name]) for _ in range(measure.TURN_STEPS)])
            after_turn()
        next(names)
    return times


def print_table(result: Result, console: Console) -> None:
    """Print who took how long, and as a multiple of the compiled executor; then the first runs of two processes."""
    table = Table(title=f"{result['name']}: {WORKLOADS[result['name']]}")
    table.add_column("executor")
    for column in ("run", "quartiles", "ratio", "first run", "next process"):
        table.add_column(column, justify="right", no_wrap=True)
    for executor, numbers in result["executors"].items():
        t, times = numbers["run_seconds"], numbers["times_compiled"]
        quartiles = f"{milliseconds(t['lower_quartile'])}, {milliseconds(t['upper_quartile'])}"
        first = [format_duration(numbers[key]) if key in numbers else "" for key in FIRST]
        table.add_row(executor, milliseconds(t["median"]), quartiles, f"{times:.{0 if times >= 10 else 1}f}", *first)
    for executor in result["skipped"]:
        table.add_row(executor, "-")
    console.print(table)
    for executor, reason in result["skipped"].items():
        console.print(f"without {executor}: {reason}", soft_wrap=True)
