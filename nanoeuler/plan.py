"""What a run will take, known before it starts: parameters, arithmetic, memory.

``python -m nanoeuler.plan --config FILE`` prints it; training refuses a run that does not fit.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from nanoeuler.activations import Purpose, arena_shapes, statistic_shapes
from nanoeuler.config import Config, ModelConfig, Parser, add_config_options, config_from_options
from nanoeuler.console import format_bytes, format_count
from nanoeuler.corpus import choose_tokenizer, load_corpus
from nanoeuler.cpu.parallel import available_cores
from nanoeuler.device import HELP, op_table, why_no_gpu
from nanoeuler.errors import UserError, run_command
from nanoeuler.init_from import take_over
from nanoeuler.parameters import flat_size, parameter_count, parameter_shapes
from nanoeuler.precision import statistics, storage
from nanoeuler.step import cut_batch
from nanoeuler.tokenizer import make_tokenizer
from nanoeuler.weights.pretrained import outline_model

#: What the interpreter, the libraries and the blocks that ops work in take, about.
OVERHEAD_BYTES = 300 * 2**20
#: What CUDA, its libraries and our compiled kernels take on a GPU beside the arena, about.
GPU_OVERHEAD_BYTES = 512 * 2**20


def flops_per_token(config: ModelConfig, T: int) -> int:
    """Return the floating-point operations of forward and backward for one token of a sequence of length T.

    A product with an (O, I) matrix is O·I multiply-adds forward and twice that backward, so 6·O·I operations.
    Attention is two products of T/2 keys on average (a token sees those before it) with H·D channels, likewise three
    times. Everything else is linear in the channels and left out, as in Kaplan et al. 2020, arXiv:2001.08361.
    """
    shapes = parameter_shapes(config)
    matrices = [s for name, s in shapes.items() if len(s) == 2 and not name.startswith(("embedding", "position"))]
    head = config.vocabulary * config.hidden_dim  # counted once more for each further prediction head
    products = sum(o * i for o, i in matrices) + head * (config.num_prediction_heads - 1)
    if config.tie_embeddings:
        products += head
    attention = 2 * config.num_layers * config.num_heads * config.head_dim * (T + 1) // 2
    return 6 * (products + attention)


def memory_plan(config: Config, device: str = "cpu") -> dict[str, int]:
    """Return the bytes that each part of a training run takes in the device's memory.

    Raises:
        UserError: the kernels of the device cannot be had, or do not take the configuration.
    """
    model, training = config.model, config.training
    stored, T = storage(training.dtype), model.max_seq_len
    workers = (training.workers or available_cores()) if device == "cpu" else 0
    pieces = cut_batch(model, training, workers)
    n, rows = flat_size(parameter_shapes(model)), max(piece.stop - piece.start for piece in pieces)

    def activations(batch: int, purpose: Purpose) -> int:
        low = flat_size(arena_shapes(model, batch, T, purpose)) * stored.activations.itemsize
        return low + flat_size(statistic_shapes(model, batch, T, purpose)) * statistics(stored.activations).itemsize

    models = max(1, min(workers, len(pieces)))
    cache = flat_size({"cache": (2, model.num_layers, T, model.kv_heads, model.head_dim)}) * stored.activations.itemsize
    parts = {"weights": n * stored.master.itemsize}
    if stored.activations != stored.master:
        parts["weights, rounded for products"] = n * stored.activations.itemsize
    parts |= {
        f"gradients ({len(pieces)} x)": n * stored.master.itemsize * len(pieces),
        "optimizer state (m, v)": 2 * n * stored.master.itemsize,
        f"activations ({models} x {rows} sequences)": activations(rows, "training") * models,
        "sampling": activations(1, "generation") + cache,
    }
    if device == "cpu":
        parts["batches and tables"] = batches_and_tables(config, models, rows)
    else:
        parts["batches, tables, scratch memory of the kernels"] = rehearsal(config).allocated - sum(parts.values())
    if device == "gpu":
        from nanoeuler.gpu import cublas

        parts["working memory of cuBLAS"] = cublas.WORKSPACE_BYTES
    return parts


def batches_and_tables(config: Config, models: int, rows: int) -> int:
    """Return the bytes of a step's batches, and of the models' and the sampler's tokens, targets and RoPE tables.

    Args:
        config: of the run.
        models: how many models share a micro-batch.
        rows: sequences that each of them takes at once.
    """
    model, training, T = config.model, config.training, config.model.max_seq_len
    masked = int(config.data.doc_mask)  # then it is also known where the document of each token begins
    step = training.batch_size * T * (1 + model.num_prediction_heads + masked)
    tokens = step + models * rows * T * (2 + masked) + T * 2
    tables = (models + 1) * T * model.head_dim if model.position == "rope" else 0
    return tokens * np.dtype(np.int32).itemsize + tables * storage(training.dtype).master.itemsize


def rehearsal(config: Config) -> Any:
    """Return what a run on the GPU will allocate and launch (:class:`nanoeuler.gpu.rehearsal.Rehearsal`).

    Raises:
        UserError: Numba is not installed, or the kernels do not take the configuration.
    """
    op_table("sim", config.training.dtype)
    from nanoeuler.gpu.rehearsal import rehearse

    return rehearse(config)


def available_bytes() -> int | None:
    """Return the memory that can still be had, or None where the system does not say."""
    limits = [limit for limit in (_system_bytes(), _container_bytes(Path("/sys/fs/cgroup"))) if limit is not None]
    return min(limits, default=None)


def _system_bytes() -> int | None:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(AttributeError, OSError, ValueError):  # Windows has no sysconf
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _container_bytes(group: Path) -> int | None:
    """Return what a container's limit leaves (control groups, version 2 or 1), or None where there is no limit."""
    for limit, used, report, cache in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        with suppress(OSError, ValueError, KeyError):  # no such file, or "max"
            left = int((group / limit).read_text()) - int((group / used).read_text())
            reclaimable = dict(line.split() for line in (group / report).read_text().splitlines())[cache]
            return max(0, left + int(reclaimable))
    return None


def reserve(config: Config) -> None:
    """Reserve the GPU memory that a run takes, in one piece."""
    from nanoeuler.gpu import memory

    memory.reserve(sum(memory_plan(config, "gpu").values()))


def available_on(device: str) -> int | None:
    """Return the memory that can still be had where a device's arrays lie, or None where the system does not say."""
    if device != "gpu":
        return available_bytes()
    from nanoeuler.gpu.memory import free_bytes

    return free_bytes()


def overhead_bytes(device: str) -> int:
    """Return about what a run takes in a device's memory besides its arrays."""
    return GPU_OVERHEAD_BYTES if device == "gpu" else OVERHEAD_BYTES


def check_memory(config: Config, available: int | None, device: str = "cpu") -> None:
    """Refuse a run that cannot fit.

    Raises:
        UserError: it takes more than is available; the message gives the bytes of each part.
    """
    fewer = "" if device == "gpu" else " or training.workers"
    helps = f"A smaller training.batch_size (with more training.gradient_accumulation), model.max_seq_len{fewer} helps."
    _refuse_beyond("this run", memory_plan(config, device), available, device, helps)


def check_generation(model: ModelConfig, T: int, dtype: np.dtype, available: int | None, device: str = "cpu") -> None:
    """Refuse to generate sequences of T tokens where model, activations and cache cannot fit.

    Raises:
        UserError: they take more than is available; the message gives the bytes of each part.
    """
    cache = flat_size({"cache": (model.num_layers, 2, T, model.kv_heads, model.head_dim)})
    parts = {
        "weights": flat_size(parameter_shapes(model)) * dtype.itemsize,
        "activations": flat_size(arena_shapes(model, 1, T, "generation")) * dtype.itemsize,
        "keys and values": cache * dtype.itemsize,
    }
    _refuse_beyond("this", parts, available, device, "A shorter prompt or fewer --tokens, or a smaller model, helps.")


def _refuse_beyond(what: str, parts: dict[str, int], available: int | None, device: str, helps: str) -> None:
    needed = sum(parts.values()) + overhead_bytes(device)
    if available is not None and needed > available:
        lines = [f"  {format_bytes(size):>10}  {part}" for part, size in parts.items()]
        kind = "GPU memory" if device == "gpu" else "memory"
        raise UserError(
            f"{what} takes {format_bytes(needed)} of {kind} and {format_bytes(available)} are available:\n"
            + "\n".join([*lines, helps])
        )


def with_vocabulary(config: Config) -> Config:
    """Return the configuration with its vocabulary size set: the tokenizer's where it says nothing.

    Raises:
        UserError: the tokenizer cannot be had, or the corpus whose tokenizer it is.
    """
    if config.model.vocab_size is not None:
        return config
    wanted = config.data.tokenizer_path
    if wanted in (None, "char"):  # which is the corpus's
        size = choose_tokenizer(wanted, load_corpus(config.data.dataset).parts).vocab_size
    else:
        size = make_tokenizer(wanted, text="").vocab_size
    return config.model_copy(update={"model": config.model.model_copy(update={"vocab_size": size})})


def main(arguments: list[str]) -> int:
    """Print the plan of a configuration.

    Raises:
        UserError: a run of it does not fit here.
    """
    parser = Parser(prog="python -m nanoeuler.plan", description=__doc__)
    parser.add_argument("--device", default="cpu", help=HELP)
    add_config_options(parser)
    options = parser.parse_args(arguments)
    config = config_from_options(options)
    if source := config.training.init_from:
        config = config.model_copy(update={"model": take_over(config.model, outline_model(source).config, source)[0]})
    config = with_vocabulary(config)
    op_table("sim" if options.device == "gpu" else options.device, config.training.dtype)  # for a plan no GPU is needed
    available = None if options.device == "gpu" and why_no_gpu() else available_on(options.device)
    print_plan(config, options.device, available)
    check_memory(config, available, options.device)
    return 0


def print_plan(config: Config, device: str = "cpu", available: int | None = None) -> None:
    """Print parameters by part, operations and bytes."""
    model, training = config.model, config.training
    shapes = parameter_shapes(model)
    console = Console(width=None if sys.stdout.isatty() else 100)

    table = Table("parameters", "", title="Parameters", title_justify="left", show_header=False)
    groups: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        words = name.split(".")
        key = f"layers x {model.num_layers}: {words[2]}" if words[0] == "layers" else words[0]
        groups.setdefault(key, {})[name] = shape
    for key, members in groups.items():
        table.add_row(key, f"{parameter_count(members):,}")
    table.add_row("all", f"{parameter_count(shapes):,}", style="bold")
    console.print(table)

    tokens = training.batch_size * model.max_seq_len * training.gradient_accumulation
    flops = flops_per_token(model, model.max_seq_len)
    table = Table(title="Work", title_justify="left", show_header=False)
    table.add_row("tokens in a step", f"{tokens:,}")
    table.add_row("tokens in the run", f"{tokens * training.total_steps:,}")
    table.add_row("floating-point operations per token", format_count(flops))
    table.add_row("floating-point operations per step", format_count(flops * tokens))
    table.add_row("floating-point operations in the run", format_count(flops * tokens * training.total_steps))
    console.print(table)

    table = Table(title="Memory", title_justify="left", show_header=False)
    parts = memory_plan(config, device)
    for part, size in parts.items():
        table.add_row(part, format_bytes(size), f"{size:,}")
    overhead = overhead_bytes(device)
    what = "CUDA, libraries, kernels (about)" if device == "gpu" else "interpreter, libraries, blocks (about)"
    table.add_row(what, format_bytes(overhead), "")
    table.add_row("all", format_bytes(sum(parts.values()) + overhead), "", style="bold")
    if available is not None:
        table.add_row("available here", format_bytes(available), "")
    console.print(table)


if __name__ == "__main__":
    raise SystemExit(run_command(main))
