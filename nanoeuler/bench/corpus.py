"""``python -m nanoeuler.bench corpus``: preparing a corpus beside tiktoken's own batch encoding.

Both get the same documents and as many workers: ours as processes, tiktoken's ``encode_ordinary_batch`` as threads. It
returns lists of ids; ours also hashes, leaves duplicates out, writes shards to the disk and their SHA-256. The
contenders take turns. Starting our processes, which a real corpus pays once in hours, is timed apart, by preparing a
corpus of one document, and both rates are given: with it and without.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tiktoken
from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table

from nanoeuler.bench import measure
from nanoeuler.bench.train import describe_machine, milliseconds, warn_if_busy, write_json
from nanoeuler.config import Parser, number
from nanoeuler.corpus.documents import BATCH_CHARACTERS, Batch, Options, Source
from nanoeuler.corpus.load import load_default
from nanoeuler.corpus.prepare import Settings, prepare
from nanoeuler.corpus.progress import Progress
from nanoeuler.cpu.parallel import available_cores
from nanoeuler.errors import UserError
from nanoeuler.tokenizer import BPETokenizer
from nanoeuler.tokenizer.gpt2 import find_gpt2
from nanoeuler.tokenizer.patterns import PATTERNS

START, OURS, TIKTOKEN = "start", "nanoeuler", "tiktoken"
#: Characters of a document: about a page.
PAGE = 4000
ABOUT = "Time the preparing of a corpus beside tiktoken's own batch encoding of the same documents."

Result = dict[str, Any]


class Pages(Source):
    """Pages in memory, in batches of the usual size."""

    def __init__(self, pages: Sequence[str]) -> None:
        self.pages = pages
        self.description = {"kind": "benchmark", "pages": len(pages)}

    def read(self, state: Any | None = None) -> Iterator[Batch]:
        """Yield batches; the state is how many pages are done."""
        size = BATCH_CHARACTERS // PAGE
        for first in range(state or 0, len(self.pages), size):
            pages = list(self.pages[first : first + size])
            yield Batch(pages, rows=len(pages), state=first + len(pages))

    def progress(self) -> tuple[int, None]:
        """Return nothing of interest."""
        return 0, None


def main(arguments: list[str]) -> None:
    """Parse the options, measure, print a table and write the JSON file.

    Raises:
        UserError: an option is wrong, a file cannot be written, or the two give different tokens.
    """
    parser = Parser(prog="python -m nanoeuler.bench corpus", description=ABOUT)
    parser.add_argument("--megabytes", type=number(int, 1), default=64, metavar="N", help="of text [64]")
    parser.add_argument("--workers", type=number(int, 1), default=available_cores(), metavar="N", help="[the cores]")
    parser.add_argument("--rounds", type=number(int, 1), default=5, metavar="N", help="timed runs of each [5]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there too")
    options = parser.parse_args(arguments)
    console = Console(stderr=True, highlight=False)
    machine = describe_machine(options.workers, "tiktoken")
    warn_if_busy(machine, console)
    pages = make_pages(options.megabytes * 1_000_000)
    report = {"machine": machine, **compare(pages, options.workers, options.rounds, console)}
    write_json(options.json, report)
    print_table(report, Console(highlight=False))


def make_pages(size: int) -> list[str]:
    """Return different pages of TinyShakespeare, or of the plays where it is not at hand: ``size`` characters or so."""
    text = load_default().text
    copies = -(-size // len(text))
    pages = [f"{i}\n{text[start : start + PAGE]}" for i in range(copies) for start in range(0, len(text), PAGE)]
    return pages[: size // PAGE]


def compare(pages: Sequence[str], workers: int, rounds: int, console: Console) -> Result:
    """Time both, in turns, each round in another order.

    Returns:
        ``seconds`` of every contender and of starting our processes, summaries; ``rates``, bytes of text per second,
        of ours both with and without the start; ``shares``, our two rates as shares of tiktoken's.

    Raises:
        UserError: the two give different numbers of tokens.
    """
    tokenizer = find_gpt2()
    encoding = as_tiktoken(tokenizer)
    contenders: dict[str, Callable[[Path], int]] = {
        START: lambda folder: prepared(pages[:1], tokenizer, folder, workers),
        OURS: lambda folder: prepared(pages, tokenizer, folder, workers),
        TIKTOKEN: lambda folder: encoded(pages, encoding, workers),
    }
    names = list(contenders)
    times: dict[str, list[float]] = {name: [] for name in names}
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{rounds} rounds", total=rounds * len(names))
        for i in range(rounds):
            counts = {}
            for name in names[i % len(names) :] + names[: i % len(names)]:
                seconds, counts[name] = timed(contenders[name])
                times[name].append(seconds)
                bar.advance(task)
            if counts[OURS] != counts[TIKTOKEN] + len(pages):
                raise UserError(
                    f"ours are {counts[OURS]} tokens, and tiktoken's {counts[TIKTOKEN]} and one for each of "
                    f"{len(pages)} pages: they do not encode alike. This is a bug; please report it"
                )
    return summarize(times, sum(len(page.encode()) for page in pages))


def timed(contender: Callable[[Path], int]) -> tuple[float, int]:
    """Return the seconds that a contender takes, with a folder of its own that is removed, and its tokens."""
    counts: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        seconds = measure.seconds_of(lambda: counts.append(contender(Path(folder) / "corpus")))
    return seconds, counts[0]


def summarize(times: dict[str, list[float]], text_bytes: int) -> Result:
    """Return what :func:`compare` does, from the seconds of every round.

    >>> summarize({"start": [1.0, 1.0], "nanoeuler": [5.0, 5.0], "tiktoken": [4.0, 4.0]}, 8)["shares"]
    {'whole': 0.8, 'once started': 1.0}
    """
    rounds = list(zip(times[START], times[OURS], times[TIKTOKEN], strict=True))
    whole = {name: measure.summary([seconds]) for name, seconds in times.items()}
    medians = {name: summary["median"] for name, summary in whole.items()}
    return {
        "text_bytes": text_bytes,
        "seconds": whole,
        "rates": {
            OURS: text_bytes / medians[OURS],
            f"{OURS}, once started": text_bytes / (medians[OURS] - medians[START]),
            TIKTOKEN: text_bytes / medians[TIKTOKEN],
        },
        "shares": {
            "whole": float(np.median([theirs / ours for _, ours, theirs in rounds])),
            "once started": float(np.median([theirs / (ours - start) for start, ours, theirs in rounds])),
        },
    }


def prepared(pages: Sequence[str], tokenizer: BPETokenizer, folder: Path, workers: int) -> int:
    """Prepare a corpus of the pages; return its tokens."""
    with Path(os.devnull).open("w") as nowhere, Progress(nowhere) as progress:
        corpus = prepare(Pages(pages), Options(), tokenizer, folder, Settings(), workers, progress)
    return corpus.total("train", "tokens") + corpus.total("val", "tokens")


def encoded(pages: Sequence[str], encoding: tiktoken.Encoding, workers: int) -> int:
    """Encode the pages by tiktoken's own batch function; return how many tokens they are."""
    return sum(map(len, encoding.encode_ordinary_batch(list(pages), num_threads=workers)))


def as_tiktoken(tokenizer: BPETokenizer) -> tiktoken.Encoding:
    """Return tiktoken's own object of the same vocabulary, cut by GPT-2's pattern."""
    ranks = {token: i for i, token in enumerate(tokenizer.tokens)}
    special = dict(tokenizer.special)
    return tiktoken.Encoding("gpt2", pat_str=PATTERNS["gpt2"], mergeable_ranks=ranks, special_tokens=special)


def print_table(report: Result, console: Console) -> None:
    """Print medians, quartiles and rates."""
    machine, seconds = report["machine"], report["seconds"]
    title = f"{report['text_bytes'] / 1e6:.0f} MB of text, gpt2, {machine['workers']} workers"
    table = Table(title=title)
    table.add_column("")
    for column in ("median", "quartiles", "MB/s"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, label in ((OURS, OURS), (START, "of it, start of the processes"), (TIKTOKEN, "tiktoken's batch")):
        quartiles = f"{milliseconds(seconds[name]['lower_quartile'])}, {milliseconds(seconds[name]['upper_quartile'])}"
        rate = f"{report['rates'][name] / 1e6:.2f}" if name in report["rates"] else ""
        table.add_row(label, milliseconds(seconds[name]["median"]), quartiles, rate)
    console.print(table)
    shares = report["shares"]
    console.print(f"ours is {shares['whole']:.0%} of tiktoken's rate, {shares['once started']:.0%} once started")
