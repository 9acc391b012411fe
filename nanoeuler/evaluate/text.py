"""How well a model predicts a text: loss in nats per token, perplexity, bits per byte."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from nanoeuler.corpus import check_vocabulary
from nanoeuler.corpus.stream import Stream
from nanoeuler.errors import UserError
from nanoeuler.evaluate.engine import Engine
from nanoeuler.evaluate.metrics import perplexity
from nanoeuler.evaluate.progress import Progress
from nanoeuler.evaluate.sources import Source
from nanoeuler.evaluate.windows import Window, sliding_windows
from nanoeuler.model import Transformer
from nanoeuler.tokenizer import Tokenizer

Batch = tuple[np.ndarray, np.ndarray]  # inputs and targets (B, T) int32; the target of what is not scored is -1


@dataclass(frozen=True)
class TextLoss:
    """What a model makes of a text."""

    tokens: int  # scored
    nats: float  # their losses' sum
    text_bytes: int  # UTF-8 bytes that they stand for; a special token stands for none

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """Of a token."""
        return perplexity(self.loss)

    @property
    def bits_per_byte(self) -> float | None:
        """The same for models of any tokenizer; None where the tokens stand for no text."""
        return self.nats / math.log(2) / self.text_bytes if self.text_bytes else None


def text_loss(engine: Engine, source: Source, progress: Progress, stride: int, limit: int | None = None) -> TextLoss:
    """Return how well a model predicts a text.

    Args:
        engine: the model.
        source: the text.
        progress: shows how far this is.
        stride: tokens that a window scores (see :mod:`nanoeuler.evaluate.windows`).
        limit: most tokens to score.

    Raises:
        UserError: there is no token to score, one is beyond the model's vocabulary, or the loss is not finite.
    """
    count = len(source.stream) if limit is None else min(len(source.stream), source.first + limit)
    windows = list(sliding_windows(count, engine.length, stride, source.first))
    if not windows:
        raise UserError(f"{source.name}: {count} tokens are too few to predict one from another")
    progress.begin(sum(window.end - window.begin for window in windows))
    times, nats = np.zeros(engine.config.vocabulary, np.int64), 0.0  # how often each id is scored; their losses
    for total, targets in engine.run(_score, _batches(engine, source.stream, windows)):
        nats += total
        times += np.bincount(targets[targets >= 0], minlength=len(times))
        progress.advance(targets.size)
    if not math.isfinite(nats):
        raise UserError(f"{source.name}: the model's loss is {nats}; are its weights damaged?")
    text_bytes = source.text_bytes if count == len(source.stream) else None
    if text_bytes is None:
        text_bytes = _text_bytes(source.tokenizer, times)
    return TextLoss(int(times.sum()), nats, text_bytes)


def _score(model: Transformer, batch: Batch) -> tuple[float, np.ndarray]:
    """Return the sum of a batch's losses, and its targets."""
    return float(model.losses(*batch).sum(dtype=np.float64)), batch[1]


def _batches(engine: Engine, stream: Stream, windows: list[Window]) -> Iterator[Batch]:
    """Yield windows, which are of one length, as batches."""
    left = iter(windows)
    while rows := list(islice(left, engine.batch_tokens // engine.length)):
        begins, T = np.array([window.begin for window in rows]), rows[0].end - rows[0].begin
        tokens = stream.windows(begins, T + 1)

        def where(index: int, begins: np.ndarray = begins, T: int = T) -> str:
            row, column = divmod(index, T + 1)
            return stream.where(int(begins[row]) + column)

        check_vocabulary(tokens, engine.config.vocabulary, where)
        targets = tokens[:, 1:].copy()
        for row, window in zip(targets, rows, strict=True):
            row[: window.first - window.begin - 1] = -1
        yield np.ascontiguousarray(tokens[:, :-1]), targets


def _text_bytes(tokenizer: Tokenizer, times: np.ndarray) -> int:
    """Return how many bytes tokens stand for, of which each id is there so many ``times``: (V,)."""
    special = {*tokenizer.special.values(), tokenizer.end_of_text}
    ids = [i for i in np.flatnonzero(times).tolist() if i not in special]
    return sum(int(times[i]) * len(tokenizer.decode_bytes([i])) for i in ids)
