"""Tiny training runs for tests: a text, options for a model that learns it in a moment, and what a run leaves."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nanoeuler import generate, train
from nanoeuler.errors import run_command

#: A model of some four thousand parameters; a step takes a few milliseconds.
TINY = {
    "model.hidden_dim": 16,
    "model.num_layers": 1,
    "model.num_heads": 2,
    "model.max_seq_len": 16,
    "training.batch_size": 4,
    "training.total_steps": 12,
    "training.warmup_steps": 2,
    "training.eval_batches": 2,
    "training.final_eval_batches": 3,
    "training.sample_tokens": 8,
    "training.workers": 2,
    "training.pieces": 2,
}
#: Everything that has a state which a resumed run must take up.
ALL_STATES = {
    "model.dropout": 0.2,
    "model.num_prediction_heads": 2,
    "training.gradient_accumulation": 2,
    "training.outlier_z": 3,
    "training.outlier_window": 8,
    "training.pieces": 3,
}


def write_text(path: Path, size: int = 4000) -> Path:
    """Write a text of short words that are easy to learn, and return its path."""
    words = random.Random(7).choices(["the", "owl", "saw", "a", "red", "moon.\n"], k=size // 4)
    path.write_text(" ".join(words), encoding="utf-8")
    return path


def options(run: Path, text: Path, *flags: str, **changes: Any) -> list[str]:
    """Return a command line of ``train``; ``training__seed=3`` stands for ``--training.seed 3``."""
    keys = {"data.dataset": text} | TINY | {key.replace("__", "."): value for key, value in changes.items()}
    return ["--run", str(run), *flags, *(word for key, value in keys.items() for word in (f"--{key}", str(value)))]


def all_states(**changes: Any) -> dict[str, Any]:
    """Return :data:`ALL_STATES` and more as changes for :func:`options`."""
    return {key.replace(".", "__"): value for key, value in ALL_STATES.items()} | changes


def train_here(arguments: list[str]) -> int:
    """Run ``python -m nanoeuler.train`` in this process; return its exit code."""
    return run_command(train.main, arguments)


def generate_here(*arguments: str) -> int:
    """Run ``python -m nanoeuler.generate`` in this process; return its exit code."""
    return run_command(generate.main, list(arguments))


def start(module: str, arguments: list[str], **more: Any) -> "subprocess.Popen[bytes]":
    """Start ``python -m nanoeuler.MODULE`` with its output in pipes; ``more`` goes to :class:`subprocess.Popen`."""
    return _start(["-m", f"nanoeuler.{module}", *arguments], **more)


def start_slowly(arguments: list[str]) -> "subprocess.Popen[bytes]":
    """Start ``train`` with a little rest in every step, so that a signal comes while it is still on its way."""
    return _start(["-c", SLOWLY, *arguments])


SLOWLY = """
import sys, time
from nanoeuler import train
from nanoeuler.console import Console
from nanoeuler.errors import run_command
show = Console.step
def rest(*arguments, **numbers):
    time.sleep(0.02)
    show(*arguments, **numbers)
Console.step = rest
sys.exit(run_command(train.main))
"""


def _start(command: list[str], **more: Any) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment}
    return subprocess.Popen([sys.executable, *command], **(pipes | more))


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return a run's records so far, whole lines only."""
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def wait_for_step(process: "subprocess.Popen[bytes]", run: Path, step: int) -> None:
    """Wait until a running process has recorded a step."""
    deadline = time.monotonic() + 60
    while not (recorded := metrics(run)) or recorded[-1]["step"] < step:
        assert process.poll() is None, f"it ended by itself: {process.communicate()}"
        assert time.monotonic() < deadline, "no such step within a minute"
        time.sleep(0.005)


def steps_saved(run: Path) -> list[int]:
    """Return the steps of a run's checkpoints, in order."""
    folder = run / "checkpoints"
    return sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*"))


def learned(run: Path, step: int) -> dict[str, Any]:
    """Return everything of a run that must not depend on whether it was interrupted."""
    checkpoint = run / "checkpoints" / f"step-{step:08d}"
    progress = json.loads((checkpoint / "training.json").read_text(encoding="utf-8"))["progress"]
    records = metrics(run)
    for record in [progress, *records]:  # time is not what it was
        record.pop("elapsed_seconds")
        record.pop("tokens_per_second", None)
    return {
        "weights": (checkpoint / "model.safetensors").read_bytes(),
        "moments": (checkpoint / "optimizer.safetensors").read_bytes(),
        "progress": progress,
        "metrics": records,
        "samples": {path.name: path.read_bytes() for path in (run / "samples").iterdir()},
    }
