"""The two op tables in step: ``python -m nanoeuler.parity --config FILE [--device gpu|sim]``.

One training step is run on an op table made of two: every array is a pair, one in NumPy's memory and one in the
device's, and every op runs on both. After each call what it wrote is compared, so the first tensor that diverges is
known by name and op, long before the loss would show it. The model and the step are the very ones of training.

The difference of two tensors is the largest of all elements, relative to the largest element of NumPy's. It must stay
below 1e-4 in float32; the arithmetic of tf32 and bf16 is rounded to 11 and 8 bits, and errors add up over the layers.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import nanoeuler.cpu
from nanoeuler.config import Config, Parser, add_config_options, config_from_options
from nanoeuler.corpus import load_corpus
from nanoeuler.device import op_table
from nanoeuler.errors import UserError, run_command
from nanoeuler.parameters import named_views
from nanoeuler.step import Batch, StepResult, TrainingStep
from nanoeuler.train import prepare

#: Largest relative difference by ``training.dtype``.
LIMITS = {"float32": 1e-4, "tf32": 1e-2, "bf16": 1e-1}


@dataclass
class Difference:
    """The largest difference of one tensor in one pass."""

    direction: str  # forward, backward or update
    tensor: str
    op: str
    shape: tuple[int, ...]
    error: float


class Pair:
    """An array that is in NumPy's memory and in the device's: what the model does to it is done to both."""

    def __init__(self, cpu: np.ndarray, device: Any) -> None:
        self.cpu, self.device = cpu, device
        self.shape, self.ndim, self.size, self.dtype = cpu.shape, cpu.ndim, cpu.size, device.dtype

    def reshape(self, *shape: Any) -> "Pair":
        """Return both with another shape."""
        return Pair(self.cpu.reshape(*shape), self.device.reshape(*shape))

    def __getitem__(self, index: Any) -> "Pair":
        return Pair(self.cpu[index], self.device[index])


@dataclass
class Comparison:
    """The op table of pairs, and the differences met."""

    device: Any  # the op table that is compared with NumPy's
    limit: float
    found: dict[tuple[str, str], Difference] = field(default_factory=dict)
    first: Difference | None = None  # that went over the limit
    names: list[tuple[int, int, str]] = field(default_factory=list)  # address, end, name of NumPy's arrays

    def table(self) -> SimpleNamespace:
        """Return the op table."""
        ops = {
            name: self._both(name, function)
            for name, function in vars(nanoeuler.cpu).items()
            if name in nanoeuler.cpu.__all__ and name not in ("rope_tables", "Team", "parallel")
        }
        return SimpleNamespace(
            **ops
            | {
                "empty": self._empty,
                "from_numpy": self._from_numpy,
                "to_numpy": lambda x: x.cpu.copy(),
                "rope_tables": nanoeuler.cpu.rope_tables,
                "Team": self.device.Team,
                "parallel": self.device.parallel,
                "workers": self.device.workers,
                "repeated": lambda function: function,
            }
        )

    def name(self, views: dict[str, Pair]) -> None:
        """Let arrays be known by name."""
        for name, pair in views.items():
            address = pair.cpu.ctypes.data
            self.names.append((address, address + pair.cpu.nbytes, name))

    def _empty(self, size: int, dtype: Any) -> Pair:
        device = self.device.empty(size, dtype)
        return Pair(nanoeuler.cpu.empty(size, np.float32 if np.dtype(dtype) == np.uint16 else dtype), device)

    def _from_numpy(self, out: Pair, x: np.ndarray) -> None:
        nanoeuler.cpu.from_numpy(out.cpu, x)
        self.device.from_numpy(out.device, out.cpu)

    def _both(self, name: str, cpu: Callable[..., None]) -> Callable[..., None]:
        outputs = written_by(cpu)
        device = getattr(self.device, name)

        def op(*args: Any) -> None:
            cpu(*(side(a, "cpu") for a in args))
            device(*(side(a, "device") for a in args))
            for parameter, pair in zip(signature(cpu).parameters, args, strict=False):
                if parameter in outputs and isinstance(pair, Pair):
                    self._compare(name, parameter, pair)

        return op

    def _compare(self, op: str, parameter: str, pair: Pair) -> None:
        expected, got = pair.cpu, self.device.to_numpy(contiguous(self.device, pair.device))
        scale = max(float(np.abs(expected).max(initial=0)), 1e-30)
        error = float(np.abs(got - expected).max(initial=0)) / scale
        address = expected.ctypes.data
        array = next((name for start, end, name in self.names if start <= address < end), "")
        tensor = array if array and parameter in ("out", "x", "") else f"{array} ({parameter})".strip()
        backward = op.endswith("_backward") or array.startswith("d") or op == "accumulate"
        direction = "update" if op in ("adamw", "global_norm", "copy") else "backward" if backward else "forward"
        difference = Difference(direction, tensor, op, pair.shape, error)
        old = self.found.get((direction, tensor))
        if old is None or not error <= old.error:
            self.found[direction, tensor] = difference
        if self.first is None and not error < self.limit:
            self.first = difference


def written_by(op: Callable[..., None]) -> set[str]:
    """Return the parameters that an op's docstring says are written, added to or updated."""
    section = re.search(r"Args:\n(.*?)(?:\n\n|\Z)", op.__doc__ or "", re.DOTALL)
    told = re.findall(r"^ *(\w+): (.*)$", section[1], re.MULTILINE) if section else []
    return {name for name, text in told if re.search("written|added to|updated", text)}


def side(argument: Any, which: str) -> Any:
    """Return one side of a pair, also inside a list, and anything else itself."""
    if isinstance(argument, list):
        return [side(a, which) for a in argument]
    return getattr(argument, which) if isinstance(argument, Pair) else argument


def contiguous(ops: Any, x: Any) -> Any:
    """Return a device array whose elements lie side by side: itself, or a copy."""
    if isinstance(x, np.ndarray) or x.is_c_contiguous():
        return x
    whole = ops.empty(x.size, x.dtype).reshape(x.shape)
    ops.copy(whole, x)
    return whole


def compare_step(
    config: Config, batches: list[Batch], device: Any, document_start: int | None = None
) -> tuple[Comparison, StepResult]:
    """Run one training step on NumPy's op table and on another, in step.

    Args:
        config: with its vocabulary size known.
        batches: as many micro-batches as the configuration accumulates.
        device: the other op table.
        document_start: the token that begins each document, if attention is to stay within them.
    """
    comparison = Comparison(device, LIMITS[config.training.dtype])
    step = TrainingStep(config.model, config.training, comparison.table(), document_start=document_start)
    comparison.name({f"gradient of {name}": pair for name, pair in step.gradient_views().items()})
    comparison.name(named_views(step.weights, step.shapes))
    comparison.name({"m": step.m, "v": step.v, "norm": step.norm})
    for model in step.models:
        comparison.name(model.activations(config.training.batch_size, config.model.max_seq_len))
    with step:
        return comparison, step.run(batches, config.training.learning_rate)


def print_differences(comparison: Comparison, console: Console) -> None:
    """Print the largest difference of every tensor, in the order in which they were first computed."""
    table = Table()
    for heading in ("pass", "tensor", "op", "shape"):
        table.add_column(heading, no_wrap=True)
    table.add_column("largest difference", justify="right", no_wrap=True)
    last = ""
    for row in comparison.found.values():
        if last and row.direction != last:
            table.add_section()
        last = row.direction
        bad = "" if row.error < comparison.limit else "bold red"
        shape = " x ".join(str(n) for n in row.shape)
        table.add_row(row.direction, row.tensor, row.op, shape, f"{row.error:.1e}", style=bad)
    console.print(table)


def main(arguments: list[str]) -> int:
    """Compare; return 0 if no tensor diverges, else 1."""
    parser = Parser(prog="python -m nanoeuler.parity", description="One training step on two op tables, compared.")
    parser.add_argument("--device", default="sim", help="what is compared with NumPy: gpu, or sim [sim]")
    add_config_options(parser)
    options = parser.parse_args(arguments)
    if options.device == "cpu":
        raise UserError("--device cpu is what the other is compared with: give gpu or sim")
    config = config_from_options(options)
    ops = op_table(options.device, config.training.dtype)
    config, data = prepare(config, load_corpus(config.data.dataset))
    batches = list(islice(data.batches.training_batches(), config.training.gradient_accumulation))
    comparison, result = compare_step(config, batches, ops, data.document_start)
    print_differences(comparison, Console(highlight=False, width=None if sys.stdout.isatty() else 120))
    print(f"loss {result.loss:.6f}, gradient norm {result.grad_norm:.6f} (NumPy's)")
    if comparison.first is not None:
        first = comparison.first
        print(
            f"DIVERGED: the first tensor is {first.tensor}, written by {first.op} ({first.direction}): "
            f"{first.error:.1e} of its largest element, allowed {comparison.limit:.0e}"
        )
        return 1
    largest = max(row.error for row in comparison.found.values())
    print(
        f"all {len(comparison.found)} tensors agree: largest difference {largest:.1e} of a tensor's largest element, "
        f"allowed {comparison.limit:.0e}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
