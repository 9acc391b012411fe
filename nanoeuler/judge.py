"""What the GPU's compiler makes of our kernels: ``python -m nanoeuler.judge [--config FILE]``, with no GPU.

A training step, an evaluation and the sampling of a token are rehearsed (:mod:`nanoeuler.gpu.rehearsal`), so the
kernels come in the very types and launch shapes that such a run gives them. Each is compiled for seven architectures
along the path of a launch, and must be clean on all: no spilled registers, no stack, no float64. A line a kernel is
printed.
"""

import importlib
import multiprocessing
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from nanoeuler import simt
from nanoeuler.config import Config, ModelConfig, Parser, TrainingConfig, add_config_options, config_from_options
from nanoeuler.cpu.parallel import available_cores
from nanoeuler.errors import UserError, nearest, run_command
from nanoeuler.plan import rehearsal, with_vocabulary
from nanoeuler.simt import needing_numba

if TYPE_CHECKING:
    from nanoeuler.gpu.launch import Launch

#: What is rehearsed where no configuration is named: both presets at sizes that people train, and shapes between them
#: that take other kernels: grouped queries, several heads, dropout, no bias, wide rows, small vocabularies.
_GPT2 = {
    "preset": "gpt2",
    "vocab_size": 50257,
    "max_seq_len": 1024,
    "num_layers": 2,
    "num_heads": 12,
    "hidden_dim": 768,
}
_TINY = {"vocab_size": 65, "max_seq_len": 16, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "hidden_dim": 32}
MODELS = {
    "gpt2, 124M": (8, ModelConfig(**_GPT2), ("float32", "bf16")),
    "euler, heads of 128, rows of 2048": (
        4,
        ModelConfig(vocab_size=32000, max_seq_len=2048, num_layers=2, num_heads=16, num_kv_heads=4, hidden_dim=2048),
        ("float32", "bf16"),
    ),
    "euler, tiny, prediction heads, dropout": (
        2, ModelConfig(**_TINY, num_prediction_heads=2, dropout=0.1), ("float32", "bf16"),
    ),
    "euler, norms of queries and keys, heads of 128": (
        2, ModelConfig(**_TINY, qk_norm=True, qkv_bias=True, attention_head_dim=128), ("float32", "bf16"),
    ),
    "gpt2, tiny, no bias": (2, ModelConfig(**_TINY, preset="gpt2", bias=False), ("float32",)),
}  # fmt: skip
#: The architecture whose instructions are read from its machine code, where an accidental float64 cannot hide; those of
#: the others are read from PTX, registers and spills of all from the assembler.
SASS = ("sm_90",)


@dataclass(frozen=True)
class Verdict:
    """What became of one kernel."""

    kernel: str
    file: str
    arrays: str  # a letter for the type of each
    threads: int
    architectures: tuple[str, ...]
    usage: tuple[str, ...]  # on each architecture: registers and occupancy
    complaint: str


def launches_of(configs: Iterable[Config]) -> "list[Launch]":
    """Return one launch for each kernel in each combination of types that runs of the configurations make.

    Raises:
        UserError: Numba is not installed, or the kernels do not take a configuration.
    """
    return distinct(launch for config in configs for launch in rehearsal(config).launches)


def distinct(launches: "Iterable[Launch]") -> "list[Launch]":
    """Return the first launch of each kernel in each combination of types."""
    found: dict[Any, Any] = {}
    for launch in launches:
        found.setdefault((id(launch.kernel), tuple(map(_type, launch.args)), launch.block), launch)
    return list(found.values())


def _type(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.c_contiguous
    return type(argument)


def default_configs() -> list[Config]:
    """Return the configurations that are rehearsed where none is named."""
    return [
        Config(model=model, training=TrainingConfig(batch_size=batch, dtype=dtype))
        for batch, model, dtypes in MODELS.values()
        for dtype in dtypes
    ]


def other_launches() -> "list[Launch]":
    """Return what no rehearsal comes to: every version of every ladder, what goes with cuBLAS, ops of other models.

    And attention with the borders of documents.
    """
    import nanoeuler.gpu
    from nanoeuler.gpu.launch import Launch, launch, recording
    from nanoeuler.gpu.linear import repeat_row
    from nanoeuler.gpu.rehearsal import shape_only

    def array(*shape: int, dtype: Any = np.float32) -> np.ndarray:
        return shape_only(int(np.prod(shape)), dtype).reshape(shape)

    N, C, V, heads = 128, 768, 50257, (2, 64, 4, 64)
    arguments: dict[str, tuple] = {
        "attention": (array(*heads), array(2, 4, 64), array(*heads), array(*heads), array(*heads)),
        "cross_entropy": (array(N), array(N, V), array(N, V), array(N, dtype=np.int32), array(1)),
        "linear": (array(N, C), array(N, C), array(C, C), array(C)),
        "rmsnorm": (array(N, C), array(N), array(N, C), array(C), 1e-5),
    }
    launches: list[Any] = []
    for op, given in arguments.items():
        for version in importlib.import_module(f"nanoeuler.gpu.ladder.{op}").VERSIONS:
            with recording(execute=False) as work:
                version.run(*given)
            launches += [each for each in work if isinstance(each, Launch)]
    with recording(execute=False) as work:
        for dtype in (np.float32, np.uint16):
            x, flat = array(N, C, dtype=dtype), array(N * C)
            launch(repeat_row, (N, 4), 256, x, array(C, dtype=dtype))
            nanoeuler.gpu.residual_backward(array(N, C, dtype=dtype), array(N, C, dtype=dtype), x)
            nanoeuler.gpu.accumulate(flat, [flat])
            for D in (32, 64, 128):
                packed, lse, starts = array(2, 256, 12, D, dtype=dtype), array(2, 8, 256), array(2, 256, dtype=np.int32)
                out, (q, k, v) = array(2, 256, 8, D, dtype=dtype), np.split(packed, (8, 10), axis=2)
                nanoeuler.gpu.attention_forward(out, lse, q, k, v, starts)
                nanoeuler.gpu.attention_backward(q, k, v, out, out, lse, q, k, v, starts)
    return distinct(launches + [each for each in work if isinstance(each, Launch)])


def file_of(launch: "Launch") -> Path:
    """Return the file of a launch's kernel, inside ``nanoeuler/gpu``."""
    file = Path(launch.kernel.py_func.__code__.co_filename)
    return file.relative_to(Path(__file__).parent / "gpu")


def judge(launch: "Launch") -> Verdict:
    """Compile the kernel of a launch for every architecture; say what is wrong with it."""
    how: dict[str, Any] = {"block": launch.block, "shared_bytes": launch.shared_bytes, "sass": SASS}
    report = simt.compile_report(launch.kernel, launch.args, **how)
    try:
        report.require_clean()
        complaint = ""
    except UserError as error:
        complaint = str(error)
    letters = {"float32": "f", "uint16": "b", "int32": "i", "int64": "l", "uint32": "u", "uint64": "L"}
    return Verdict(
        report.kernel,
        file_of(launch).as_posix(),
        "".join(letters.get(str(a.dtype), "?") for a in launch.args if isinstance(a, np.ndarray)),
        report.block_threads,
        tuple(one.architecture for one in report.architectures),
        tuple(f"{one.registers} {one.occupancy.fraction:.0%}" for one in report.architectures),
        complaint,
    )


def judge_all(launches: "list[Launch]", processes: int) -> Iterator[Verdict]:
    """Judge many, in processes of their own: the compiler takes one core at a time."""
    global _launches
    _launches = launches  # which a forked process has too: a launch cannot be sent to one
    if processes == 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield from map(judge, launches)
        return
    with warnings.catch_warnings(), multiprocessing.get_context("fork").Pool(processes) as pool:
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which are idle here
        yield from pool.imap(_judge_number, range(len(launches)))


_launches: list[Any] = []


def _judge_number(i: int) -> Verdict:
    return judge(_launches[i])


def main(arguments: list[str]) -> int:
    """Judge; return 0 if every kernel is clean, else 1."""
    parser = Parser(prog="python -m nanoeuler.judge", description=__doc__)
    parser.add_argument("--op", metavar="NAME", help="only the kernels of one op, such as rmsnorm, and of its ladder")
    add_config_options(parser)
    options = parser.parse_args(arguments)
    if options.config or any("." in name for name in vars(options)):
        launches = launches_of([with_vocabulary(config_from_options(options))])
    else:
        launches = launches_of(default_configs()) + other_launches()
    files = sorted({file_of(launch).stem for launch in launches})
    if options.op is not None:
        if options.op not in files:
            raise UserError(f"--op: no kernel is of '{options.op}'{nearest(options.op, files)}: {', '.join(files)}")
        launches = [launch for launch in launches if file_of(launch).stem == options.op]
    needing_numba("toolchain").require_toolkit()
    table, complaints = Table("kernel", "file", "arrays", "threads"), []
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for verdict in progress.track(
            judge_all(launches, available_cores()), total=len(launches), description="judging"
        ):
            if not table.row_count:
                architectures = verdict.architectures
                for name in architectures:
                    table.add_column(name, justify="right")
            complaints += [verdict.complaint] if verdict.complaint else []
            columns = (verdict.kernel, verdict.file, verdict.arrays, str(verdict.threads), *verdict.usage)
            table.add_row(*columns, style="bold red" if verdict.complaint else "")
    console.print(table)
    print("registers of a thread, and the share of a multiprocessor's warps that they and shared memory leave room for")
    if complaints:
        print("\n".join(complaints), f"NOT CLEAN: {len(complaints)} of {table.row_count} kernels", sep="\n")
        return 1
    print(f"all {table.row_count} kernels clean on {len(architectures)} architectures: no spills, no stack, no float64")
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
