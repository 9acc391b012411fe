"""What the GPU's compiler makes of our kernels: ``python -m nanoeuler.judge [--config FILE]``, with no GPU.

A training step, an evaluation and the sampling of a token are rehearsed (:mod:`nanoeuler.gpu.rehearsal`), so the
kernels come in the very types and launch shapes that such a run gives them. Each is compiled for seven architectures
along the path of a launch, and must be clean on all: no spilled registers, no stack, no float64. A line a kernel is
printed.
"""

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from nanoeuler import simt
from nanoeuler.config import Config, ModelConfig, Parser, TrainingConfig, add_config_options, config_from_options
from nanoeuler.errors import UserError, run_command
from nanoeuler.plan import rehearsal, with_vocabulary

_SIZES = {"vocab_size": 37, "max_seq_len": 16, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "hidden_dim": 32}
#: What is rehearsed where no configuration is named: both presets with every switch that has kernels of its own.
MODELS = {
    "euler": ModelConfig(**_SIZES, num_prediction_heads=2, dropout=0.1),
    "gpt2": ModelConfig(**_SIZES, preset="gpt2"),
    "gpt2, no bias, wide": ModelConfig(
        **_SIZES | {"hidden_dim": 384, "num_heads": 3, "num_kv_heads": 1}, preset="gpt2", bias=False
    ),
}


def launches_of(configs: Iterable[Config]) -> list[Any]:
    """Return one launch for each kernel in each combination of types that runs of the configurations make.

    Raises:
        UserError: Numba is not installed, or the kernels do not take a configuration.
    """
    found: dict[Any, Any] = {}
    for config in configs:
        for launch in rehearsal(config).launches:
            found.setdefault((id(launch.kernel), tuple(map(_type, launch.args)), launch.block), launch)
    return list(found.values())


def _type(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.c_contiguous
    return type(argument)


def default_configs() -> list[Config]:
    """Return the configurations that are rehearsed where none is named: every model in float32 and in bf16."""
    training = {"batch_size": 2, "workers": 1}
    return [
        Config(model=model, training=TrainingConfig(**training, dtype=dtype))
        for dtype in ("float32", "bf16")
        for model in MODELS.values()
    ]


def main(arguments: list[str]) -> int:
    """Judge; return 0 if every kernel is clean, else 1."""
    parser = Parser(prog="python -m nanoeuler.judge", description=__doc__)
    add_config_options(parser)
    options = parser.parse_args(arguments)
    chosen = options.config or any("." in name for name in vars(options))
    configs = [with_vocabulary(config_from_options(options))] if chosen else default_configs()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    table = Table("kernel", "file", "arrays", "threads")
    architectures: tuple[str, ...] = ()
    complaints = []
    for launch in launches_of(configs):
        report = simt.compile_report(launch.kernel, launch.args, block=launch.block, shared_bytes=launch.shared_bytes)
        if not architectures:
            architectures = tuple(one.architecture for one in report.architectures)
            for name in architectures:
                table.add_column(name, justify="right")
        try:
            report.require_clean()
            style = ""
        except UserError as error:
            complaints.append(str(error))
            style = "bold red"
        row = (f"{one.registers} {one.occupancy.fraction:.0%}" for one in report.architectures)
        file = report.file.replace("\\", "/").partition("nanoeuler/gpu/")[2]
        table.add_row(report.kernel, file, arrays_of(launch), str(report.block_threads), *row, style=style)
    console.print(table)
    print("registers of a thread, and the share of a multiprocessor's warps that they and shared memory leave room for")
    if complaints:
        print("\n".join(complaints), f"NOT CLEAN: {len(complaints)} of {table.row_count} kernels", sep="\n")
        return 1
    print(f"all {table.row_count} kernels clean on {len(architectures)} architectures: no spills, no stack, no float64")
    return 0


def arrays_of(launch: Any) -> str:
    """Return the element types of a launch's arrays, in short."""
    letters = {"float32": "f", "uint16": "b", "int32": "i", "int64": "l", "uint32": "u", "uint64": "L"}
    return "".join(letters.get(str(a.dtype), "?") for a in launch.args if isinstance(a, np.ndarray))


if __name__ == "__main__":
    raise SystemExit(run_command(main))
