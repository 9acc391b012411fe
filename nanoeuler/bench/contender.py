"""Who takes part: our own step, PyTorch's, and PyTorch's compiled, behind one call."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from nanoeuler import cpu
from nanoeuler.bench.workload import Workload
from nanoeuler.step import TrainingStep

OURS, EAGER, COMPILED = "nanoeuler", "PyTorch eager", "torch.compile"


@dataclass(frozen=True)
class Contender:
    """A training step that is ready to run."""

    name: str
    workload: Workload
    step: Callable[[int], tuple[float, float]]  # number of a batch -> loss, gradient norm before clipping
    turn: Callable[[], AbstractContextManager[Any]]  # holds what the steps need and nobody else should meet
    optimizer: str = ""  # which of PyTorch's AdamW variants


def build(name: str, workload: Workload, optimizer: str | None = None) -> Contender:
    """Allocate a contender's weights and activations; ``workload.training.workers`` is its number of threads.

    Args:
        name: :data:`OURS`, :data:`EAGER` or :data:`COMPILED`.
        workload: the model and its batches.
        optimizer: which of PyTorch's AdamW variants; the fastest, measured now, if None.

    Raises:
        ImportError: PyTorch is needed and not installed.
    """
    if name == OURS:
        return _build_ours(workload)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # compile in this process: it leaves no other behind
    from nanoeuler.bench import pytorch

    step, chosen = pytorch.make_step(workload, name == COMPILED, optimizer)
    return Contender(name, workload, step, nullcontext, chosen)


def _build_ours(workload: Workload) -> Contender:
    training_step = TrainingStep(workload.model, workload.training, cpu, length=workload.length)
    batches, learning_rate = workload.batches(), workload.training.learning_rate

    def step(index: int) -> tuple[float, float]:
        result = training_step.run(batches[index % len(batches)], learning_rate)
        return result.loss, result.grad_norm

    return Contender(OURS, workload, step, lambda: training_step)
