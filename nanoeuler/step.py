"""One training step: forward, backward, AdamW (which clips), with the batch shared out among worker threads.

A micro-batch is cut into pieces. A worker takes a piece, runs forward and backward on it with its own activations and
adds to that piece's own gradient; the pieces' gradients are then summed in their order. So the result depends on the
number of pieces but not on which worker was quick. With a single piece the workers share out each op instead; a GPU
takes a single piece always.

What a micro-batch computes is the same work on the same arrays every time: the batch, and the few numbers that change,
are put into arrays of the device first. An op table can so record and repeat it.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np

from nanoeuler.config import ModelConfig, TrainingConfig
from nanoeuler.cpu.parallel import available_cores
from nanoeuler.model import Arrays, Dropout, Transformer
from nanoeuler.parameters import decayed_size, flat_size, initial_weights, named_views, parameter_shapes
from nanoeuler.precision import storage

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
        weights, m, v: flat buffers laid out by :func:`~nanoeuler.parameters.parameter_shapes`, in the device's memory.
        model_weights: what a model computes with: the weights, or their copies in bfloat16.
        norm: (1,), the gradient's global norm in the last step, before clipping.
        models: those that the pieces go through, one for each worker.
        updates: how many updates were applied, AdamW's step count.
        micro_batches: how many micro-batches were seen, where dropout's random numbers stand.
    """

    def __init__(
        self,
        config: ModelConfig,
        training: TrainingConfig,
        ops: Any,
        weights: np.ndarray | None = None,
        length: int | None = None,
        document_start: int | None = None,
    ) -> None:
        """Allocate all that a step needs.

        Args:
            config: the architecture, with its vocabulary size.
            training: everything else that is configured.
            ops: the op table.
            weights: to start from, in the host's memory; initial ones if None.
            length: T of the batches; the longest that the model takes if None.
            document_start: id of the token that begins each document, the end-of-text token: attention then stays
                within the documents of a sequence; None if it goes across them.
        """
        self.config, self.training, self.ops = config, training, ops
        self.length = config.max_seq_len if length is None else length
        self.document_start = document_start
        self.shapes = parameter_shapes(config)
        n, stored = flat_size(self.shapes), storage(training.dtype)
        self.weights, self.m, self.v = (ops.empty(n, stored.master) for _ in range(3))
        ops.from_numpy(
            self.weights, initial_weights(config, training.seed, stored.master) if weights is None else weights
        )
        ops.fill(self.m, 0)
        ops.fill(self.v, 0)
        self.model_weights = self.weights
        if stored.activations != stored.master:
            self.model_weights = ops.empty(n, stored.activations)
            ops.copy(self.model_weights, self.weights)
        self.updates = self.micro_batches = 0
        self._recent = Outliers(training.outlier_z, training.outlier_window)

        self.workers = ops.workers(training.workers)
        self.pieces = cut_batch(config, training, self.workers)
        self._gradients = [ops.empty(n, stored.master) for _ in self.pieces]
        self._views = [named_views(gradient, self.shapes) for gradient in self._gradients]
        self._allocate_inputs(stored.master)
        self._begin, self._end = ops.repeated(self._clear), ops.repeated(self._sum_up)
        self.passes = ops.repeated(self._forward_backward)
        rows = max(piece.stop - piece.start for piece in self.pieces)
        self.models = [
            Transformer(config, ops, self.model_weights, rows, self.length)
            for _ in range(min(max(1, self.workers), len(self.pieces)))
        ]
        self._idle: SimpleQueue[Transformer] = SimpleQueue()  # whoever works takes one, and puts it back
        for model in self.models:
            self._idle.put(model)

    def _allocate_inputs(self, dtype: np.dtype) -> None:
        """Allocate what a step is given, and what it gives back: losses of each piece and head, and the norm."""
        ops, t, T = self.ops, self.training, self.length
        B, heads, P = t.batch_size, self.config.num_prediction_heads, len(self.pieces)
        self._inputs = ops.empty(B * T, np.int32).reshape(B, T)
        self._targets = ops.empty(heads * B * T, np.int32).reshape(heads, B, T)
        self._starts = None if self.document_start is None else ops.empty(B * T, np.int32).reshape(B, T)
        self._dloss = ops.empty(heads, dtype)
        self._counter = ops.empty(1, np.int64)
        self._results = ops.empty(P * heads + 1, dtype)
        self._losses, self.norm = self._results[: P * heads].reshape(P, heads), self._results[P * heads :]

    def __enter__(self) -> "TrainingStep":
        self._team = self.ops.Team(self.workers)
        self._team.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._team.__exit__(*error)

    def run(self, micro_batches: Sequence[Batch], learning_rate: float) -> StepResult:
        """Train on the micro-batches as on one batch: the loss is the mean over all their targets.

        Raises:
            ValueError: they are not as many, or not of the shape, as the step was made for.
        """
        targets = self._weigh_losses(micro_batches)
        self._begin()
        for micro_batch in micro_batches:
            self._upload(micro_batch)
            self.passes()
        self._end()
        results = self.ops.to_numpy(self._results)
        losses = results[:-1].reshape(len(self.pieces), -1)
        loss, norm = float(losses[:, 0].sum(dtype=np.float64)) / targets, float(results[-1])
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
                starts = self._document_starts(inputs[piece])
                with self._model() as model:
                    sums[index] = model.losses(inputs[piece], targets[0, piece], starts).sum(dtype=np.float64)

        self._for_each(item, [(b, p) for b in range(len(batches)) for p in range(len(self.pieces))])
        return float(sums.sum()) / max(1, sum(int((targets[0] >= 0).sum()) for _, targets in batches))

    def gradient_views(self) -> Arrays:
        """Return the gradient of every parameter by name, as the last step left it."""
        return self._views[0]

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold besides the flat buffers."""
        return {"updates": self.updates, "micro_batches": self.micro_batches, "outliers": self._recent.state()}

    def restore(self, state: dict[str, Any], m: np.ndarray, v: np.ndarray) -> None:
        """Take up where :meth:`state` and the moments were saved."""
        self.updates, self.micro_batches = state["updates"], state["micro_batches"]
        self._recent.restore(state["outliers"])
        self.ops.from_numpy(self.m, m)
        self.ops.from_numpy(self.v, v)

    def _weigh_losses(self, micro_batches: Sequence[Batch]) -> int:
        """Let each head's loss be the mean over all its targets; return how many the first head has."""
        A, (heads, B, T) = self.training.gradient_accumulation, self._targets.shape
        shapes = [(inputs.shape, targets.shape) for inputs, targets in micro_batches]
        if shapes != [((B, T), (heads, B, T))] * A:
            raise ValueError(
                f"a step takes {A} micro-batches of inputs {(B, T)} and targets {(heads, B, T)}; "
                f"given are {len(shapes)} of {sorted(set(shapes))}"
            )
        counts = [max(1, sum(int((t[k] >= 0).sum()) for _, t in micro_batches)) for k in range(heads)]
        further = self.config.prediction_loss_weight / max(1, heads - 1)
        self.ops.from_numpy(self._dloss, np.array([(1.0 if k == 0 else further) / counts[k] for k in range(heads)]))
        return counts[0]

    def _upload(self, micro_batch: Batch) -> None:
        """Put what differs from micro-batch to micro-batch where the passes read it."""
        self.ops.from_numpy(self._inputs, micro_batch[0])
        self.ops.from_numpy(self._targets, micro_batch[1])
        if self._starts is not None:
            self.ops.from_numpy(self._starts, self._document_starts(micro_batch[0]))
        self.ops.from_numpy(self._counter, np.array([self.micro_batches]))
        self.micro_batches += 1

    def _document_starts(self, inputs: np.ndarray) -> np.ndarray | None:
        return None if self.document_start is None else document_starts(inputs, self.document_start)

    # What these launch is the same in every step: an op table may record it and repeat it.

    def _clear(self) -> None:
        """Set losses and gradients to 0."""
        self.ops.fill(self._results, 0)
        self._for_each(lambda gradient: self.ops.fill(gradient, 0), self._gradients)

    def _forward_backward(self) -> None:
        """Add the micro-batch's gradient to each piece's buffer, and its losses to the results."""

        def item(p: int) -> None:
            piece = self.pieces[p]
            dropout = Dropout(self.training.seed, self._counter, piece.start * self.length)
            batch = self._inputs[piece], self._targets[:, piece]
            starts = None if self._starts is None else self._starts[piece]
            with self._model() as model:
                model.loss_and_gradients(self._views[p], self._losses[p], *batch, self._dloss, dropout, starts)

        self._for_each(item, range(len(self.pieces)))

    def _sum_up(self) -> None:
        """Leave the gradient in the first piece's buffer, and its norm in the results."""
        self.ops.accumulate(self._gradients[0], self._gradients[1:])
        self.ops.global_norm(self.norm, self._gradients[0])

    def _update(self, learning_rate: float) -> None:
        t, split = self.training, decayed_size(self.shapes)
        for span, decay in ((slice(0, split), t.weight_decay), (slice(split, None), 0.0)):
            self.ops.adamw(
                self.weights[span],
                self.m[span],
                self.v[span],
                self._gradients[0][span],
                self.norm,
                t.grad_clip,
                learning_rate,
                t.beta1,
                t.beta2,
                t.adam_eps,
                decay,
                self.updates,
            )
        if self.model_weights is not self.weights:
            self.ops.copy(self.model_weights, self.weights)

    @contextmanager
    def _model(self) -> Iterator[Transformer]:
        model = self._idle.get()
        try:
            yield model
        finally:
            self._idle.put(model)

    def _for_each(self, item: Any, items: Sequence[Any]) -> None:
        """Run the items on the team; with a single piece one after the other, each op then sharing out its work."""
        if len(self.pieces) > 1:
            self.ops.parallel(item, items)
        else:
            for one in items:
                item(one)


class Outliers:
    """Judges a step by the last ones: is its loss or gradient norm not a number, or far above what was usual?"""

    def __init__(self, z: float, window: int) -> None:
        self.z, self.window = z, window
        self._losses: deque[float] = deque(maxlen=window)
        self.norms: deque[float] = deque(maxlen=window)

    def judge(self, loss: float, norm: float) -> str:
        """Return why the step's update should be skipped, or an empty string.

        Outliers enter the window too: after a lasting change what is usual is the new value.
        """
        for name, value in (("loss", loss), ("gradient norm", norm)):
            if not math.isfinite(value):
                return f"{name} is {value}"
        reasons = []
        for name, value, recent in (("loss", loss, self._losses), ("gradient norm", norm, self.norms)):
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
        return {"losses": list(self._losses), "norms": list(self.norms)}

    def restore(self, state: dict[str, list[float]]) -> None:
        """Take up a saved window."""
        self._losses.extend(state["losses"])
        self.norms.extend(state["norms"])


def document_starts(tokens: np.ndarray, first: int) -> np.ndarray:
    """Return where in its sequence the document of each token begins: (B, T) int32 of (B, T) tokens.

    A sequence may begin in the middle of a document: that one begins at 0.

    Args:
        tokens: (B, T), integers.
        first: the token that begins each document.
    """
    places = np.arange(tokens.shape[1], dtype=np.int32)
    return np.maximum.accumulate(np.where(tokens == first, places, np.int32(0)), axis=1)


def cut_batch(config: ModelConfig, training: TrainingConfig, workers: int | None = None) -> list[slice]:
    """Cut the sequences of a micro-batch into the pieces that workers take.

    Small pieces keep activations in the cache and no worker waiting, but each piece has a gradient of its own: a large
    model with few tokens stays in one piece, and its ops are parallel inside. So does everything on a device that has
    no workers, a GPU.

    Args:
        config: the architecture.
        training: batch size, and pieces if they were chosen.
        workers: the device's (``ops.workers``); None for those of a CPU.
    """
    B, T = training.batch_size, config.max_seq_len
    if workers is None:
        workers = training.workers or available_cores()
    pieces = training.pieces if workers else 1
    if not pieces:
        size = flat_size(parameter_shapes(config))
        each = min(2, max(1, B * T // (PIECE_TOKENS * workers)))  # for every worker, so that all have as many
        cut = workers > 1 and size <= SMALL_MODEL and each * workers * size <= ALL_GRADIENTS
        pieces = each * workers if cut else 1
    pieces = min(pieces, B)
    edges = [B * i // pieces for i in range(pieces + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]
