"""A training run rehearsed: what it allocates and what it launches, with no memory and no GPU.

The step runs on arrays that are shapes only, its launches are recorded and not made. So the memory plan of a run counts
the very allocations that it will make, scratch memory included, and the judge of the machine code (``simt.gate``) is
given the very kernels, types and launch shapes of any configuration.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nanoeuler.config import Config
from nanoeuler.device import op_table
from nanoeuler.gpu import memory
from nanoeuler.gpu.launch import Launch, recording
from nanoeuler.model import Transformer
from nanoeuler.step import TrainingStep


@dataclass(frozen=True)
class Rehearsal:
    """What a run will do.

    Attributes:
        allocated: bytes, each array's rounded up as in the arena.
        launches: those of a training step, then of an evaluation, then of a prompt and a token sampled.
    """

    allocated: int
    launches: list[Launch]


def shape_only(size: int, dtype: Any) -> np.ndarray:
    """Return an array of a size and a type with no memory behind it: nobody may read or write it."""
    return np.lib.stride_tricks.as_strided(np.empty(1, dtype), (size,), (np.dtype(dtype).itemsize,))


def rehearse(config: Config) -> Rehearsal:
    """Go through a step, an evaluation and the sampling of a token of a configuration whose vocabulary is known.

    Raises:
        UserError: the kernels do not take the configuration.
    """
    model, training = config.model, config.training
    allocated = 0

    def empty(size: int, dtype: Any) -> np.ndarray:
        nonlocal allocated
        allocated += memory.rounded_up(size * np.dtype(dtype).itemsize)
        return shape_only(size, dtype)

    table = op_table("sim", training.dtype)
    table.empty = empty
    table.from_numpy = lambda out, x: None
    table.to_numpy = lambda x: np.zeros(x.shape, np.float32)
    table.repeated = lambda function: function
    B, T = training.batch_size, model.max_seq_len
    batch = np.zeros((B, T), np.int32), np.zeros((model.num_prediction_heads, B, T), np.int32)
    with memory.scratch_from(empty), recording(execute=False) as work:
        first = 0 if config.data.doc_mask else None
        step = TrainingStep(model, training, table, np.empty(0, np.float32), document_start=first)
        step.run([batch] * training.gradient_accumulation, training.learning_rate)
        step.evaluate([batch])
        sampler = Transformer(model, table, step.model_weights, 1, T, "generation")
        for prompt in {max(1, T // 2), 1}:
            sampler.next_logits(np.zeros((1, prompt), np.int32), sampler.cache)
    return Rehearsal(allocated, [each for each in work if isinstance(each, Launch)])
