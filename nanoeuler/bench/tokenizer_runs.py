"""One run of the tokenizer benchmark, in a process of its own: training, by us or by the Rust library, or encoding.

A process says how long its work took, once everything was imported, and how large it and the processes that it started
have grown together: the sum of their peaks, which is at least what a machine must have.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from nanoeuler.bench.memory import peak_bytes
from nanoeuler.bench.train import version_of
from nanoeuler.errors import UserError
from nanoeuler.tokenizer.alphabet import BYTES, to_bytes
from nanoeuler.tokenizer.bpe import END_OF_TEXT, BPETokenizer
from nanoeuler.tokenizer.huggingface import TOKENIZER_FILE, write_huggingface
from nanoeuler.tokenizer.merges import Pair
from nanoeuler.tokenizer.pretokens import count_files, count_pretokens
from nanoeuler.tokenizer.training import train_bpe

OURS, RUST = "nanoeuler", "tokenizers (Rust)"
ENCODING, READABLE = "encoding", "nanoeuler, readable"
#: Seconds between two looks at the sizes of processes.
LOOK = 0.05
#: Characters that the readable encoder encodes.
READABLE_CHARACTERS = 100_000

Result = dict[str, Any]


def run(task: Result) -> Result:
    """Have a process of its own do a task; return what it says, with the sum of its and its children's peaks.

    Raises:
        UserError: it failed; the message is the last line that it wrote.
    """
    environment = os.environ | {"RAYON_NUM_THREADS": str(task["workers"]), "TOKENIZERS_PARALLELISM": "true"}
    command = [sys.executable, "-m", "nanoeuler.bench.tokenizer_runs", json.dumps(task)]
    peaks: dict[int, int] = {}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, env=environment, stdout=output, stderr=errors)
        try:
            while child.poll() is None:
                for process in children(child.pid):
                    with suppress(OSError):  # it has just ended
                        peaks[process] = peak_bytes(process) or peaks.get(process, 0)
                time.sleep(LOOK)
        finally:
            child.kill()  # where we were interrupted
        output.seek(0)
        errors.seek(0)
        if child.returncode:
            reason = (errors.read().strip().splitlines() or [f"exit code {child.returncode}"])[-1]
            raise UserError(f"{task['name']} failed: {reason}")
        result: Result = json.loads(output.read().splitlines()[-1])
    return result | {"peak": result["peak"] and result["peak"] + sum(peaks.values()), "processes": 1 + len(peaks)}


def children(process: int) -> list[int]:
    """Return the processes that a process has started, as far as the system tells."""
    with suppress(OSError):
        lists = [(thread / "children").read_text() for thread in Path(f"/proc/{process}/task").iterdir()]
        return [int(child) for line in lists for child in line.split()]
    return []


def train_ours(task: Result) -> Result:
    """Train a tokenizer: count the pre-tokens, learn the merges."""
    start = time.perf_counter()
    counts = count_files([Path(task["file"])], workers=task["workers"])
    counted = time.perf_counter()
    merges = train_bpe(counts, task["vocab_size"] - 257)
    end = time.perf_counter()
    seconds = {"seconds": end - start, "counting": counted - start, "merging": end - counted}
    return {**seconds, "pretokens": len(counts), "merges": fingerprint(merges)}


def train_rust(task: Result) -> Result:
    """Train one with Hugging Face's ``tokenizers``, with the same settings."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    start = time.perf_counter()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=task["vocab_size"],
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([task["file"]], trainer)
    seconds = time.perf_counter() - start
    pairs = [p.split(" ") if isinstance(p, str) else p for p in json.loads(tokenizer.to_str())["model"]["merges"]]
    rank_of = {token: rank for rank, token in enumerate(chain(BYTES, (to_bytes(a + b) for a, b in pairs)))}
    return {"seconds": seconds, "merges": fingerprint([(rank_of[to_bytes(a)], rank_of[to_bytes(b)]) for a, b in pairs])}


def encode(task: Result) -> Result:
    """Encode a text by our tokenizer, by its readable encoder, and by the Rust library's, each in turn.

    Returns:
        ``rates``, bytes a second of each in each round.

    Raises:
        UserError: they do not give the same ids.
    """
    text = Path(task["file"]).read_bytes()[: task["bytes"]].decode("utf-8", "ignore")
    tokenizer = BPETokenizer(train_bpe(count_pretokens([text], workers=1), task["vocab_size"] - 257))
    encoders: dict[str, tuple[str, Callable[[str], Any]]] = {
        OURS: (text, tokenizer.encode_ordinary),
        READABLE: (text[:READABLE_CHARACTERS], tokenizer.encode_definition),
    }
    if version_of("tokenizers"):
        from tokenizers import Tokenizer

        with tempfile.TemporaryDirectory() as folder:
            write_huggingface(Path(folder), tokenizer)
            theirs = Tokenizer.from_file(str(Path(folder, TOKENIZER_FILE)))
        encoders[RUST] = (text, lambda text: theirs.encode(text).ids)
    rates: dict[str, list[float]] = {name: [] for name in encoders}
    for _ in range(task["rounds"]):
        for name, (part, encoder) in encoders.items():
            start = time.perf_counter()
            ids = encoder(part)
            rates[name].append(len(part.encode()) / (time.perf_counter() - start))
            if list(ids) != tokenizer.encode(part).tolist():
                raise UserError(f"{name} gives other ids than {OURS}. This is a bug; please report it")
    return {"rates": rates}


def fingerprint(merges: list[Pair]) -> str:
    """Return a short text that is equal for equal merges."""
    return f"{len(merges)} merges, {zlib.crc32(repr(merges).encode()):08x}"


TASKS = {OURS: train_ours, RUST: train_rust, ENCODING: encode}


def main(arguments: list[str]) -> None:
    """Be that process: do the task, print the result."""
    task = json.loads(arguments[0])
    result = TASKS[task["name"]](task)
    print(json.dumps(result | {"peak": peak_bytes()}))


if __name__ == "__main__":
    main(sys.argv[1:])
