"""``python -m nanoeuler.bench tokenizer``: training and running a tokenizer beside Hugging Face's Rust library.

Both train on the same file with as many threads or processes, in turns, each time in a process of its own; both must
come to the same merges. Time is from the file's name to the merges, without the start of the interpreter and imports,
but with that of our worker processes. Memory is the sum of the peaks of all processes that take part.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from nanoeuler.bench import measure
from nanoeuler.bench.tokenizer_runs import ENCODING, OURS, RUST, run
from nanoeuler.bench.tokenizer_text import made_up_text
from nanoeuler.bench.train import describe_machine, version_of, warn_if_busy, write_json
from nanoeuler.config import Parser, number
from nanoeuler.console import format_bytes, format_count
from nanoeuler.corpus import tinyshakespeare
from nanoeuler.errors import UserError

#: Bytes of a file that are encoded.
ENCODED = 10_000_000
ABOUT = (
    "Time the training of a byte-level BPE, and encoding with it, beside Hugging Face's tokenizers. Run it on a "
    "machine with nothing else to do."
)

Result = dict[str, Any]


def main(arguments: list[str]) -> None:
    """Parse the options, measure on every text, print a table for each and write the JSON file after each.

    Raises:
        UserError: an option is wrong, a file cannot be read or written, or the two come to different merges.
    """
    options = _parse(arguments)
    console = Console(stderr=True, highlight=False)
    machine = describe_machine(options.workers, "tokenizers", "tiktoken", "regex")
    warn_if_busy(machine, console)
    if not version_of("tokenizers"):
        console.print("tokenizers is not installed (python -m pip install tokenizers): ours alone", soft_wrap=True)
    report: Result = {"machine": machine, "texts": []}
    write_json(options.json, report)
    with tempfile.TemporaryDirectory() as folder:
        for name, path in _texts(options, Path(folder)):
            result = measure_text(name, path, options, console)
            report["texts"].append(result)
            write_json(options.json, report)
            print_tables(result, Console(highlight=False))


def _parse(arguments: list[str]) -> Any:
    parser = Parser(prog="python -m nanoeuler.bench tokenizer", description=ABOUT)
    parser.add_argument(
        "--input", type=Path, metavar="FILE", help="a UTF-8 text [TinyShakespeare, and a made-up text of --megabytes]"
    )
    parser.add_argument(
        "--megabytes", type=number(int, 0), default=100, metavar="N", help="of made-up text; 0: none [100]"
    )
    parser.add_argument("--vocab-size", type=number(int, 257), default=4096, metavar="V", help="tokens [4096]")
    parser.add_argument("--steps", type=number(int, 1), default=5, metavar="N", help="timed runs of each [5]")
    parser.add_argument(
        "--workers", type=number(int, 1), default=2, metavar="N", help="processes; threads of theirs [2]"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there too")
    return parser.parse_args(arguments)


def _texts(options: Any, folder: Path) -> Iterator[tuple[str, Path]]:
    """Give the name and the file of each text."""
    if options.input:
        if not options.input.is_file():
            raise UserError(f"--input {options.input}: no such file")
        yield options.input.name, options.input
        return
    path = folder / "text.txt"
    text, _ = tinyshakespeare.load()
    path.write_bytes(text.encode())
    yield tinyshakespeare.NAME, path
    if options.megabytes:
        with path.open("wb") as file:
            file.writelines(part.encode() for part in made_up_text(options.megabytes * 1_000_000))
        yield "made up", path


def measure_text(name: str, path: Path, options: Any, console: Console) -> Result:
    """Train on a text in turns, then encode it.

    Returns:
        For each contender its runs, a summary of their seconds and, for the Rust library, what ours take as a share of
        its seconds; and the bytes a second of each encoder.

    Raises:
        UserError: two runs come to different merges.
    """
    task = {"file": str(path), "vocab_size": options.vocab_size, "workers": options.workers}
    names = [OURS, RUST] if version_of("tokenizers") else [OURS]
    runs: dict[str, list[Result]] = {contender: [] for contender in names}
    for i in range(options.steps):
        for contender in names[:: (-1) ** i]:
            console.print(f"{name}: run {i + 1} of {options.steps}, {contender}", soft_wrap=True)
            runs[contender].append(run(task | {"name": contender}))
    merges = {result["merges"] for results in runs.values() for result in results}
    if len(merges) > 1:
        raise UserError(
            f"{name}: the merges differ ({', '.join(sorted(merges))}), so the times are not compared. (The library "
            "reads files line by line, which is not the same if three or more line ends follow each other)"
        )
    seconds = {contender: [[r["seconds"]] for r in results] for contender, results in runs.items()}
    console.print(f"{name}: encoding", soft_wrap=True)
    encoding = run(task | {"name": ENCODING, "bytes": ENCODED, "rounds": options.steps})
    return {
        "name": name,
        "bytes": path.stat().st_size,
        "vocab_size": options.vocab_size,
        "workers": options.workers,
        "runs": runs,
        "seconds": {contender: measure.summary(times) for contender, times in seconds.items()},
        "our_time": {c: measure.compare(seconds[OURS], times) for c, times in seconds.items() if c != OURS},
        "encoding": encoding["rates"],
    }


def print_tables(result: Result, console: Console) -> None:
    """Print who trained how long in how much memory, and who encodes how fast."""
    ours = result["runs"][OURS]
    size, distinct = format_bytes(result["bytes"]), f"{ours[0]['pretokens']:,}"
    table = Table(
        title=f"training on {result['name']}, {result['workers']} workers",
        caption=f"{size}, {distinct} distinct pre-tokens, {result['vocab_size']} tokens",
    )
    table.add_column("")
    for column in ("median", "quartiles", "peak memory", "ours / its"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, runs in result["runs"].items():
        t, ratio = result["seconds"][name], result["our_time"].get(name)
        peaks = [r["peak"] for r in runs if r["peak"]]
        quartiles = f"{_seconds(t['lower_quartile'])}, {_seconds(t['upper_quartile'])}"
        memory = format_bytes(max(peaks)) if peaks else "unknown"
        table.add_row(name, _seconds(t["median"]), quartiles, memory, f"{ratio['of_medians']:.2f}" if ratio else "")
        if name == OURS:
            for part in ("counting", "merging"):
                table.add_row(f"  {part}", _seconds(float(np.median([r[part] for r in ours]))))
    console.print(table)
    table = Table(title=f"encoding {result['name']}, one thread")
    table.add_column("")
    table.add_column("median", justify="right", no_wrap=True)
    for name, rates in result["encoding"].items():
        table.add_row(name, f"{format_count(float(np.median(rates)))}B/s")
    console.print(table)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s"
