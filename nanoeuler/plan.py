"""What a run will take, known before it starts: parameters, arithmetic, memory.

``python -m nanoeuler.plan --config FILE`` prints it; training refuses a run that does not fit.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from nanoeuler.activations import arena_shapes
from nanoeuler.config import Config, ModelConfig, Parser, add_config_options, config_from_options
from nanoeuler.console import format_bytes, format_count
from nanoeuler.errors import UserError, run_command
from nanoeuler.parameters import flat_size, parameter_count, parameter_shapes
from nanoeuler.step import available_cores, cut_batch
from nanoeuler.tokenizer import make_tokenizer

#: What the interpreter, the libraries and the blocks that ops work in take, about.
OVERHEAD_BYTES = 300 * 2**20


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
    attention = 2 * config.num_layers * config.hidden_dim * (T + 1) // 2
    return 6 * (products + attention)


def memory_plan(config: Config) -> dict[str, int]:
    """Return the bytes that each part of a training run takes."""
    model, training = config.model, config.training
    itemsize = np.dtype(training.dtype).itemsize
    weights = flat_size(parameter_shapes(model)) * itemsize
    workers = training.workers or available_cores()
    pieces = cut_batch(model, training)
    rows = max(piece.stop - piece.start for piece in pieces)
    arena = flat_size(arena_shapes(model, rows, model.max_seq_len)) * itemsize
    sampler = flat_size(arena_shapes(model, 1, model.max_seq_len, "generation")) * itemsize
    cache = 2 * model.num_layers * model.max_seq_len * model.kv_heads * model.head_dim * itemsize
    return {
        "weights": weights,
        f"gradients ({len(pieces)} x)": weights * len(pieces),
        "optimizer state (m, v)": 2 * weights,
        f"activations ({min(workers, len(pieces))} x {rows} sequences)": arena * min(workers, len(pieces)),
        "sampling": sampler + cache,
    }


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
    for limit, used, statistics, cache in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        with suppress(OSError, ValueError, KeyError):  # no such file, or "max"
            left = int((group / limit).read_text()) - int((group / used).read_text())
            reclaimable = dict(line.split() for line in (group / statistics).read_text().splitlines())[cache]
            return max(0, left + int(reclaimable))
    return None


def check_memory(config: Config, available: int | None) -> None:
    """Refuse a run that cannot fit.

    Raises:
        UserError: it takes more than is available; the message gives the bytes of each part.
    """
    parts = memory_plan(config)
    needed = sum(parts.values()) + OVERHEAD_BYTES
    if available is not None and needed > available:
        lines = [f"  {format_bytes(size):>10}  {part}" for part, size in parts.items()]
        raise UserError(
            f"this run takes {format_bytes(needed)} of memory and {format_bytes(available)} are available:\n"
            + "\n".join(lines)
            + "\nA smaller training.batch_size (with more training.gradient_accumulation), model.max_seq_len or "
            "training.workers helps."
        )


def with_vocabulary(config: Config, text: str = "") -> Config:
    """Return the configuration with its vocabulary size set: the tokenizer's where it says nothing.

    Raises:
        UserError: the tokenizer cannot be had.
    """
    if config.model.vocab_size is not None:
        return config
    size = make_tokenizer(config.data.tokenizer_path, text).vocab_size
    return config.model_copy(update={"model": config.model.model_copy(update={"vocab_size": size})})


def main(arguments: list[str]) -> int:
    """Print the plan of a configuration.

    Raises:
        UserError: a run of it does not fit here.
    """
    parser = Parser(prog="python -m nanoeuler.plan", description=__doc__)
    add_config_options(parser)
    options = parser.parse_args(arguments)
    config = config_from_options(options)
    if config.model.vocab_size is None and config.data.tokenizer_path == "char":
        from nanoeuler.corpus import load_corpus  # a character vocabulary is the text's

        config = with_vocabulary(config, load_corpus(config.data.dataset).text)
    config = with_vocabulary(config)
    print_plan(config)
    check_memory(config, available_bytes())
    return 0


def print_plan(config: Config) -> None:
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
    parts = memory_plan(config)
    for part, size in parts.items():
        table.add_row(part, format_bytes(size), f"{size:,}")
    table.add_row("interpreter, libraries, blocks (about)", format_bytes(OVERHEAD_BYTES), "")
    table.add_row("all", format_bytes(sum(parts.values()) + OVERHEAD_BYTES), "", style="bold")
    available = available_bytes()
    if available is not None:
        table.add_row("available here", format_bytes(available), "")
    console.print(table)


if __name__ == "__main__":
    raise SystemExit(run_command(main))
