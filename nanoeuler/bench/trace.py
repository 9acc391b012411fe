"""``python -m nanoeuler.bench trace``: what it costs to watch a kernel, beside running it checked.

One block of 32 x 32 threads of a tiled product of 64 x 64 matrices is traced, with and without local variables, and
the numbers of a line are computed from the trace. The contenders take turns. What it costs to import
:mod:`nanoeuler.simt` is timed in processes of their own, beside importing NumPy.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from nanoeuler import simt
from nanoeuler.bench import measure
from nanoeuler.bench.simt import time_in_turns
from nanoeuler.bench.train import describe_machine, milliseconds, version_of, warn_if_busy, write_json
from nanoeuler.config import Parser, number
from nanoeuler.errors import UserError

SIZE, TILE = 64, 32
IMPORTS = 5  # processes that import

ABOUT = "Time simt.trace on a 32 x 32 block of a tiled product, and the import of nanoeuler.simt."

Result = dict[str, Any]


def main(arguments: list[str]) -> None:
    """Parse the options, measure, print a table and write the JSON file.

    Raises:
        UserError: an option is wrong, the file cannot be written, or Numba is not installed.
    """
    parser = Parser(prog="python -m nanoeuler.bench trace", description=ABOUT)
    parser.add_argument("--steps", type=number(int, 1), default=12, metavar="N", help="timed runs of each [12]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there too")
    options = parser.parse_args(arguments)
    if version_of("numba") is None:
        raise UserError(f"running kernels takes Numba: {simt.INSTALL_GPU}")
    machine = describe_machine(1, "numba")
    warn_if_busy(machine, Console(stderr=True, highlight=False))
    times = time_in_turns(contenders(), measure.rounds(options.steps))
    report: Result = {
        "machine": machine,
        "seconds": {name: measure.summary(seconds) for name, seconds in times.items()},
        "import_seconds": {name: measure.summary([imports(name)]) for name in ("numpy", "nanoeuler.simt")},
    }
    write_json(options.json, report)
    print_table(report, Console(highlight=False))


def contenders() -> dict[str, Callable[[], Any]]:
    """Return what is timed, each on matrices of its own."""
    from nanoeuler.bench.simt_kernels import product
    from nanoeuler.gpu.variant import variant
    from nanoeuler.simt.traced.numbers import numbers

    kernel = variant(product, TILE=TILE)
    a, b = np.random.default_rng(0).standard_normal((2, SIZE, SIZE), np.float32)
    out = np.zeros_like(a)
    block = TILE, TILE
    traced = partial(simt.trace, kernel, (2, 2), block, (out, a, b), blocks=(0, 0))
    found = traced()
    return {
        "checked": partial(simt.run, kernel, 1, block, (out[:TILE, :TILE], a[:TILE], b[:, :TILE]), executor="checked"),
        "traced": traced,
        "traced with variables": partial(traced, variables=True),
        "numbers from a trace": lambda: numbers(found),
    }


def imports(name: str) -> list[float]:
    """Return the seconds that new processes take to import a module, the first of which wakes the disk left out."""
    code = f"import time; start = time.perf_counter(); import {name}; print(time.perf_counter() - start)"
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(IMPORTS + 1)]
    return [float(run.stdout) for run in runs[1:]]


def print_table(report: Result, console: Console) -> None:
    """Print medians and quartiles."""
    table = Table(title=f"a block of {TILE} x {TILE} threads, tiled product, n = {SIZE}")
    table.add_column("")
    for column in ("median", "quartiles"):
        table.add_column(column, justify="right", no_wrap=True)
    rows = report["seconds"] | {f"import {name}": t for name, t in report["import_seconds"].items()}
    for name, t in rows.items():
        quartiles = f"{milliseconds(t['lower_quartile'])}, {milliseconds(t['upper_quartile'])}"
        table.add_row(name, milliseconds(t["median"]), quartiles)
    console.print(table)
