"""``python -m nanoeuler.bench loader``: how long training waits for its batches, and how fast shards are read.

A training step is run on batches from shards of random tokens, with and without the thread that has the next batches
ready, in turns. Then windows are gathered from the shards alone, and the two ways to shuffle an epoch are measured.
"""

import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from nanoeuler import cpu
from nanoeuler.bench import measure
from nanoeuler.bench.train import describe_machine, milliseconds, warn_if_busy, write_json
from nanoeuler.config import Config, Parser, load_config, number
from nanoeuler.console import format_bytes, format_count
from nanoeuler.corpus.batches import Batches
from nanoeuler.corpus.prefetch import Prefetch
from nanoeuler.corpus.shards import format_for, write_shard
from nanoeuler.corpus.shuffle import Shuffle, by_formula, by_sorting
from nanoeuler.corpus.stream import Stream, shard_stream
from nanoeuler.corpus.tokens import Tokens
from nanoeuler.cpu.parallel import available_cores
from nanoeuler.step import TrainingStep

WITHOUT, WITH = "without prefetch", "with prefetch"
#: Steps of one turn.
TURN = 20
#: Shards of the corpus, and tokens in each.
SHARDS, SHARD_TOKENS = 16, 1 << 20
#: Sequences, and tokens of each, that are gathered at once when nothing else is measured.
GATHERED, LENGTH = 64, 1024
#: The model's vocabulary where the configuration leaves it open: that of a text's characters.
VOCABULARY = 65

ABOUT = "Time the waiting for batches, with and without prefetching, and the reading of shards."

Result = dict[str, Any]


def main(arguments: list[str]) -> None:
    """Parse the options, measure, print tables and write the JSON file.

    Raises:
        UserError: an option is wrong, or a file cannot be read or written.
    """
    parser = Parser(prog="python -m nanoeuler.bench loader", description=ABOUT)
    default = Path("configs/shakespeare-small.json")
    parser.add_argument("--config", type=Path, default=default, metavar="FILE", help=f"whose step is timed [{default}]")
    parser.add_argument("--steps", type=number(int, 1), default=200, metavar="N", help="timed steps of each [200]")
    parser.add_argument(
        "--windows", type=number(int, 1), default=10**7, metavar="N", help="of a shuffled epoch [10000000]"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there too")
    options = parser.parse_args(arguments)
    config = with_vocabulary(load_config(options.config))
    machine: Result = describe_machine(config.training.workers or available_cores())
    warn_if_busy(machine, Console(stderr=True, highlight=False))
    with shards(config.model.vocabulary) as stream:
        report: Result = {
            "machine": machine,
            "config": str(options.config),
            "waiting": measure_waiting(config, stream, options.steps),
            "gathered_tokens_per_second": measure_gathering(stream),
            "shuffle": {f.__name__: measure_shuffle(f, options.windows) for f in (by_sorting, by_formula)},
            "windows": options.windows,
        }
    write_json(options.json, report)
    print_tables(report, Console(highlight=False))


def with_vocabulary(config: Config) -> Config:
    """Return the configuration with a vocabulary size, whatever its tokenizer would be."""
    model = config.model.model_copy(update={"vocab_size": config.model.vocab_size or VOCABULARY})
    return config.model_copy(update={"model": model})


@contextmanager
def shards(vocab_size: int) -> Iterator[Stream]:
    """Give a stream of shards of random tokens, which are removed in the end."""
    generator, form = np.random.default_rng(0), format_for(vocab_size)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"random_train_{number:06d}.bin" for number in range(SHARDS)]
        for path in paths:
            write_shard(path, generator.integers(0, vocab_size, SHARD_TOKENS), form)
        yield shard_stream(paths)


def measure_waiting(config: Config, stream: Stream, steps: int) -> Result:
    """Return for each way the seconds of a step and of the waiting in it: summaries, and the share of all steps."""
    model, training = config.model, config.training
    tokens = Tokens(stream, stream, shuffle=by_formula)
    sizes = training.batch_size, model.max_seq_len, model.num_prediction_heads
    batches = Batches([tokens], *sizes, training.seed, vocab_size=model.vocabulary)
    step = TrainingStep(model, training, cpu)
    times: dict[str, tuple[measure.Rounds, measure.Rounds]] = {WITHOUT: ([], []), WITH: ([], [])}
    for turn in range(-(-steps // TURN)):
        for name in (WITHOUT, WITH) if turn % 2 else (WITH, WITHOUT):
            time.sleep(measure.PAUSE)
            waited, spent = run_turn(name, batches, step, turn * TURN, training.learning_rate)
            times[name][0].append(waited)
            times[name][1].append(spent)
    return {
        name: {
            "waited_seconds": measure.summary(waited),
            "step_seconds": measure.summary(spent),
            "share": sum(map(sum, waited)) / sum(map(sum, spent)),
        }
        for name, (waited, spent) in times.items()
    }


def run_turn(
    name: str, batches: Batches, step: TrainingStep, first: int, rate: float
) -> tuple[list[float], list[float]]:
    """Return the seconds waited in each step of a turn, and those of the whole step."""
    accumulation = step.training.gradient_accumulation
    items = batches.training_batches(first * accumulation * batches.global_batch)
    waited, spent = [], []
    with step, Prefetch(items) if name == WITH else nullcontext(items) as ready:
        for _ in range(TURN + 1):
            start = time.perf_counter()
            micro_batches = list(islice(ready, accumulation))
            waited.append(time.perf_counter() - start)
            step.run(micro_batches, rate)
            spent.append(time.perf_counter() - start)
    return waited[1:], spent[1:]  # the first wakes the threads


def measure_gathering(stream: Stream, repeats: int = 50) -> float:
    """Return the tokens of random windows that are gathered in a second, the files being in the system's memory."""
    starts = np.random.default_rng(1).integers(0, len(stream) - LENGTH, (repeats, GATHERED))
    stream.windows(starts[0], LENGTH)
    seconds = [measure.seconds_of(stream.windows, each, LENGTH) for each in starts]
    return GATHERED * LENGTH / float(np.median(seconds))


def measure_shuffle(shuffle: Shuffle, windows: int) -> Result:
    """Return seconds and peak memory in bytes until an epoch's first batch of windows is known."""
    tracemalloc.start()
    start = time.perf_counter()
    order, _ = shuffle(windows, np.random.SeedSequence(0))
    order(np.arange(min(GATHERED, windows)))
    seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"seconds": seconds, "peak_bytes": peak}


def print_tables(report: Result, console: Console) -> None:
    """Print medians and shares."""
    table = Table(title=f"{report['config']}, {report['machine']['workers']} workers")
    table.add_column("")
    for column in ("waits for its batch", "step", "share"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, row in report["waiting"].items():
        waited = f"{1e6 * row['waited_seconds']['median']:.0f} \u00b5s"
        table.add_row(name, waited, milliseconds(row["step_seconds"]["median"]), f"{row['share']:.2%}")
    console.print(table)
    rate = format_count(report["gathered_tokens_per_second"])
    console.print(f"gathered from {SHARDS} shards: {rate} tokens/s, in windows of {LENGTH}")
    for name, row in report["shuffle"].items():
        console.print(
            f"{format_count(report['windows'])} windows shuffled {name.replace('_', ' ')}: "
            f"{milliseconds(row['seconds'])}, {format_bytes(row['peak_bytes'])}"
        )
