"""One training step: forward, backward, AdamW (which clips), with the batch shared out among worker threads.

A micro-batch is cut into pieces. A worker takes a piece, runs forward and backward on it with its own activations and
adds to that piece's own gradient; the pieces' gradients are then summed in their order. So the result depends on the
number of pieces but not on which worker was quick. With a single piece the workers share out each op instead.
"""

import itertools
import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np

from nanoeuler.config import ModelConfig, TrainingConfig
from nanoeuler.cpu.parallel import Team, parallel
from nanoeuler.model import Dropout, Transformer
from nanoeuler.parameters import decayed_size, flat_size, initial_weights, named_views, parameter_shapes

Batch = tuple[np.ndarray, np.ndarray]  # inputs (B, T) and targets (heads, B, T), int32

#: Parameters up to which a gradient for each piece is cheap beside the work on it, and how many all pieces may have.
SMALL_MODEL, ALL_GRADIENTS = 30_000_000, 250_000_000
#: Tokens that a piece should have: with fewer, the fixed cost of a NumPy call shows.
PIECE_TOKENS = 512


@dataclass(frozen=True)
class StepResult:
    """What a step did."""

    loss: float  # mean over the targets, nats, of the first head
    grad_norm: float  # before clipping
    skipped: str  # why the update was not applied; empty if it was


class TrainingStep:
    """Weights, gradients and moments, and the threads that work on them. A context manager.

    Attributes:
        weights, m, v: flat buffers laid out by :func:`~nanoeuler.parameters.parameter_shapes`.
        updates: how many updates were applied, AdamW's step count.
        micro_batches: how many micro-batches were seen, where dropout's random numbers stand.
    """

    def __init__(
        self, config: ModelConfig, training: TrainingConfig, ops: Any, weights: np.ndarray | None = None
    ) -> None:
        self.config, self.training, self.ops = config, training, ops
        self.shapes = parameter_shapes(config)
        n, dtype = flat_size(self.shapes), np.dtype(training.dtype)
        self.weights = ops.empty(n, dtype)
        self.weights[:] = initial_weights(config, training.seed, dtype) if weights is None else weights
        self.m, self.v = ops.empty(n, dtype), ops.empty(n, dtype)
        ops.fill(self.m, 0)
        ops.fill(self.v, 0)
        self.updates = self.micro_batches = 0
        self._recent = Outliers(training.outlier_z, training.outlier_window)
        self._norm = ops.empty(1, dtype)

        self.workers = training.workers or available_cores()
        self.pieces = cut_batch(config, training)
        self._gradients = [ops.empty(n, dtype) for _ in self.pieces]
        self._views = [named_views(gradient, self.shapes) for gradient in self._gradients]
        rows = max(piece.stop - piece.start for piece in self.pieces)
        self._models: SimpleQueue[Transformer] = SimpleQueue()  # whoever works takes one, and puts it back
        for _ in range(min(self.workers, len(self.pieces))):
            self._models.put(Transformer(config, ops, self.weights, rows, config.max_seq_len))

    def __enter__(self) -> "TrainingStep":
        self._team = Team(self.workers)
        self._team.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._team.__exit__(*error)

    def run(self, micro_batches: Sequence[Batch], learning_rate: float) -> StepResult:
        """Train on the micro-batches as on one batch: the loss is the mean over all their targets."""
        loss = self._backward(micro_batches)
        self.micro_batches += len(micro_batches)
        self.ops.accumulate(self._gradients[0], self._gradients[1:])
        self.ops.global_norm(self._norm, self._gradients[0])
        norm = float(self.ops.to_numpy(self._norm)[0])
        skipped = self._recent.judge(loss, norm)
        if not skipped:
            self.updates += 1
            self._update(learning_rate)
        return StepResult(loss, norm, skipped)

    def evaluate(self, batches: Sequence[Batch], cancelled: Callable[[], bool] = lambda: False) -> float:
        """Return the mean loss of the first head over all targets of the batches, in nats.

        Once ``cancelled`` is true the batches that are left are passed over.
        """
        sums = np.zeros((len(batches), len(self.pieces)))

        def item(index: tuple[int, int]) -> None:
            (inputs, targets), piece = batches[index[0]], self.pieces[index[1]]
            if len(inputs[piece]) and not cancelled():
                with self._model() as model:
                    sums[index] = model.losses(inputs[piece], targets[0, piece]).sum(dtype=np.float64)

        self._for_each(item, [(b, p) for b in range(len(batches)) for p in range(len(self.pieces))])
        return float(sums.sum()) / max(1, sum(int((targets[0] >= 0).sum()) for _, targets in batches))

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold besides the flat buffers."""
        return {"updates": self.updates, "micro_batches": self.micro_batches, "outliers": self._recent.state()}

    def restore(self, state: dict[str, Any], m: np.ndarray, v: np.ndarray) -> None:
        """Take up where :meth:`state` and the moments were saved."""
        self.updates, self.micro_batches = state["updates"], state["micro_batches"]
        self._recent.restore(state["outliers"])
        self.m[:], self.v[:] = m, v

    def _backward(self, micro_batches: Sequence[Batch]) -> float:
        """Leave each piece's gradient in its buffer; return the mean loss."""
        heads = self.config.num_prediction_heads
        counts = [max(1, sum(int((t[k] >= 0).sum()) for _, t in micro_batches)) for k in range(heads)]
        further = self.config.prediction_loss_weight / max(1, heads - 1)
        dloss = [(1.0 if k == 0 else further) / counts[k] for k in range(heads)]
        losses = np.zeros((len(self.pieces), len(micro_batches)))

        def item(p: int) -> None:
            piece = self.pieces[p]
            self.ops.fill(self._gradients[p], 0)
            with self._model() as model:
                for i, (inputs, targets) in enumerate(micro_batches):
                    dropout = Dropout(self.training.seed, self.micro_batches + i, piece.start * inputs.shape[1])
                    per_head = model.loss_and_gradients(
                        self._views[p], inputs[piece], targets[:, piece], dloss, dropout
                    )
                    losses[p, i] = per_head[0]

        self._for_each(item, range(len(self.pieces)))
        return float(losses.sum()) / counts[0]

    def _update(self, learning_rate: float) -> None:
        t, split = self.training, decayed_size(self.shapes)
        for span, decay in ((slice(0, split), t.weight_decay), (slice(split, None), 0.0)):
            self.ops.adamw(
                self.weights[span],
                self.m[span],
                self.v[span],
                self._gradients[0][span],
                self._norm,
                t.grad_clip,
                learning_rate,
                t.beta1,
                t.beta2,
                t.adam_eps,
                decay,
                self.updates,
            )

    @contextmanager
    def _model(self) -> Iterator[Transformer]:
        model = self._models.get()
        try:
            yield model
        finally:
            self._models.put(model)

    def _for_each(self, item: Any, items: Sequence[Any]) -> None:
        """Run the items on the team; with a single piece one after the other, each op then sharing out its work."""
        if len(self.pieces) > 1:
            parallel(item, items)
        else:
            for one in items:
                item(one)


class Outliers:
    """Judges a step by the last ones: is its loss or gradient norm not a number, or far above what was usual?"""

    def __init__(self, z: float, window: int) -> None:
        self.z, self.window = z, window
        self._losses: deque[float] = deque(maxlen=window)
        self._norms: deque[float] = deque(maxlen=window)

    def judge(self, loss: float, norm: float) -> str:
        """Return why the step's update should be skipped, or an empty string.

        Outliers enter the window too: after a lasting change what is usual is the new value.
        """
        for name, value in (("loss", loss), ("gradient norm", norm)):
            if not math.isfinite(value):
                return f"{name} is {value}"
        reasons = []
        for name, value, recent in (("loss", loss, self._losses), ("gradient norm", norm, self._norms)):
            if self.z and len(recent) == self.window:
                mean, deviation = np.mean(recent), np.std(recent)
                if value > mean + self.z * deviation:
                    reasons.append(
                        f"{name} {value:.4g} is more than {self.z:g} deviations above its recent mean {mean:.4g}"
                    )
            if self.z:
                recent.append(value)
        return " and ".join(reasons)

    def state(self) -> dict[str, list[float]]:
        """Return the window, for a checkpoint."""
        return {"losses": list(self._losses), "norms": list(self._norms)}

    def restore(self, state: dict[str, list[float]]) -> None:
        """Take up a saved window."""
        self._losses.extend(state["losses"])
        self._norms.extend(state["norms"])


def available_cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cut_batch(config: ModelConfig, training: TrainingConfig) -> list[slice]:
    """Cut the sequences of a micro-batch into the pieces that workers take.

    Small pieces keep activations in the cache and no worker waiting, but each piece has a gradient of its own: a large
    model with few tokens stays in one piece, and its ops are parallel inside.
    """
    B, T = training.batch_size, config.max_seq_len
    pieces = training.pieces
    if not pieces:
        workers, size = training.workers or available_cores(), flat_size(parameter_shapes(config))
        each = min(2, max(1, B * T // (PIECE_TOKENS * workers)))  # for every worker, so that all have as many
        cut = workers > 1 and size <= SMALL_MODEL and each * workers * size <= ALL_GRADIENTS
        pieces = each * workers if cut else 1
    pieces = min(pieces, B)
    edges = [B * i // pieces for i in range(pieces + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]
