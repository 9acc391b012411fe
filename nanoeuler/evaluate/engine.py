"""A model on a device that works through batches, with as many of them under way as there are workers."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from nanoeuler.activations import arena_shapes, statistic_shapes
from nanoeuler.config import ModelConfig
from nanoeuler.console import format_bytes
from nanoeuler.device import op_table
from nanoeuler.errors import UserError
from nanoeuler.model import Transformer
from nanoeuler.parameters import flat_size
from nanoeuler.plan import available_on

Batch = TypeVar("Batch")
Result = TypeVar("Result")

#: Tokens of one batch: enough to fill a device. On a CPU each worker has a batch, and a cache.
BATCH_TOKENS = {"cpu": 512, "gpu": 8192, "sim": 256}
#: Longest context that is taken unasked: that of some models would make a batch of gigabytes.
LONGEST = 2048
#: Share of the free memory that activations may take.
SHARE = 0.8


class Engine:
    """A model's weights, and activations for every worker. A context manager, whose threads live as long as it."""

    def __init__(
        self,
        config: ModelConfig,
        weights: np.ndarray,
        device: str = "cpu",
        length: int | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        """Allocate all that a batch needs.

        Args:
            config: the architecture.
            weights: flat buffer laid out by :func:`~nanoeuler.parameters.parameter_shapes`, in the host's memory.
            device: ``cpu``, ``gpu`` or ``sim``.
            length: most tokens of a sequence; the model's own, up to :data:`LONGEST`, if None.
            batch_tokens: of a batch, padding counted; :data:`BATCH_TOKENS` if None, and always one sequence.

        Raises:
            UserError: the device cannot be used, the sequence is longer than the model takes, or memory is short.
        """
        self.ops = op_table(device)
        self.length = min(config.max_seq_len, LONGEST) if length is None else length
        if self.length > config.max_seq_len:
            raise UserError(f"--length {self.length}: the model takes at most {config.max_seq_len} tokens")
        self.config, self.device = config, device
        rows = max(1, (BATCH_TOKENS[device] if batch_tokens is None else batch_tokens) // self.length)
        self.batch_tokens = rows * self.length
        self._workers = self.ops.workers(0)
        on_device = weights
        if device == "gpu":
            on_device = self.ops.empty(weights.size, weights.dtype)
            self.ops.from_numpy(on_device, weights)
        self.models = [
            Transformer(config, self.ops, on_device, rows, self.length, "evaluation")
            for _ in range(self._affordable(rows, weights.dtype))
        ]

    def _affordable(self, rows: int, dtype: np.dtype) -> int:
        """Return how many batches can be under way: one for each worker, if memory allows it."""
        shapes = arena_shapes, statistic_shapes
        size = sum(flat_size(of(self.config, rows, self.length, "evaluation")) for of in shapes) * dtype.itemsize
        available, wanted = available_on(self.device), max(1, self._workers)
        if available is None:
            return wanted
        if size > SHARE * available:
            raise UserError(
                f"a batch of {self.batch_tokens} tokens takes {format_bytes(size)} of memory, and "
                f"{format_bytes(available)} are free: give fewer --batch-tokens or a smaller --length"
            )
        return min(wanted, int(SHARE * available // size))

    def __enter__(self) -> "Engine":
        self._team = self.ops.Team(self._workers)
        self._team.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._team.__exit__(*error)

    def run(self, score: Callable[[Transformer, Batch], Result], batches: Iterable[Batch]) -> Iterator[Result]:
        """Yield ``score(model, batch)`` of every batch, in their order.

        Each model takes one batch, and the next ones are begun when all are done: so an interruption waits for no more
        than these. With a single model the workers share out each op instead.
        """
        left = iter(batches)
        while together := list(islice(left, len(self.models))):
            results: dict[int, Result] = {}

            def item(i: int, together: list[Batch] = together, results: dict[int, Result] = results) -> None:
                results[i] = score(self.models[i], together[i])

            self.ops.parallel(item, range(len(together)))
            yield from (results[i] for i in range(len(together)))
