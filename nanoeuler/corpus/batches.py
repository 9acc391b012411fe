"""Tokens into batches. Each batch is a function of how many windows were dealt before: the loader's whole state.

Letters: B sequences in a batch, T tokens in a sequence. A window is T + heads neighbouring tokens, heads being the
model's prediction heads: the inputs are its first T, and head k (from 0) has as targets the T that begin k + 1 later.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import count

import numpy as np

from nanoeuler.corpus.mixture import Mixture
from nanoeuler.corpus.stream import Stream
from nanoeuler.corpus.tokens import Tokens
from nanoeuler.corpus.windows import Windows
from nanoeuler.errors import UserError
from nanoeuler.step import Batch

WRONG_SIZE = "the model and the tokenizer must be of one size (leave model.vocab_size out to take the tokenizer's)"


def check_vocabulary(
    tokens: np.ndarray, vocab_size: int, where: Callable[[int], str] = lambda index: f"position {index}"
) -> None:
    """Check that every token id is one the model has an embedding for.

    Args:
        tokens: of any shape.
        vocab_size: the model's.
        where: says in words where the token with an index in the flat array is.

    Raises:
        UserError: one is not; the message names the first, and where it is.
    """
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < vocab_size:
        index = int(np.argmax((tokens < 0) | (tokens >= vocab_size)))
        raise UserError(
            f"token {tokens.flat[index]} at {where(index)} is beyond the model's vocabulary of {vocab_size}: "
            + WRONG_SIZE
        )


class Batches:
    """The batches of a run, or of one of its ranks.

    The windows of a run are one sequence without end, which the seed decides: those of each corpus as
    :class:`~nanoeuler.corpus.windows.Windows` deals them, mixed as :class:`~nanoeuler.corpus.mixture.Mixture` says. A
    global batch is the next B * ranks of them, and rank r has the r-th B of these. So ranks never share a window, and
    a run goes on with the same sequence on another number of ranks.
    """

    def __init__(
        self,
        corpora: Sequence[Tokens],
        batch_size: int,
        T: int,
        heads: int = 1,
        seed: int = 0,
        weights: Sequence[Fraction] | None = None,
        vocab_size: int | None = None,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        """Take one corpus or several; their tokens are not copied.

        Args:
            corpora: to learn from.
            batch_size: B, sequences in a batch of one rank.
            T: tokens in a sequence.
            heads: the model's prediction heads.
            seed: decides the sequence of windows.
            weights: of the corpora, by which windows are shared out; equal ones if None.
            vocab_size: the model's, beyond which no token of a batch may be; None: any may.
            rank: whose batches these are, from 0 to ``ranks`` - 1.
            ranks: among how many a global batch is shared out.

        Raises:
            UserError: a split of a corpus is shorter than one window.
        """
        for corpus in corpora:
            _check_lengths(corpus, T, heads)
        self.corpora, self.batch_size, self.T, self.heads = list(corpora), batch_size, T, heads
        self.vocab_size, self.rank, self.ranks = vocab_size, rank, ranks
        self.mixture = Mixture(weights or [Fraction(1)] * len(corpora))
        self.windows = [Windows(len(c.train), T, heads, seed, c.shuffle, i) for i, c in enumerate(corpora)]

    @property
    def global_batch(self) -> int:
        """Windows that all ranks together take at once."""
        return self.batch_size * self.ranks

    def training_batches(self, dealt: int = 0) -> Iterator[Batch]:
        """Yield this rank's batches, without end, from where so many windows have been dealt to all ranks."""
        for first in count(dealt, self.global_batch):
            yield self.training_batch(first)

    def training_batch(self, dealt: int) -> Batch:
        """Return this rank's part of the global batch before which so many windows were dealt, from 0 on without end.

        Returns:
            inputs (B, T) and targets (heads, B, T), int32.

        Raises:
            UserError: a token id is beyond the vocabulary, or a shard is gone.
        """
        first = dealt + self.rank * self.batch_size
        corpus, number = np.array([self.mixture.place(m) for m in range(first, first + self.batch_size)], np.int64).T
        starts = np.empty(self.batch_size, np.int64)
        for i, windows in enumerate(self.windows):
            starts[corpus == i] = windows.starts(number[corpus == i])
        return self._gather([c.train for c in self.corpora], corpus, starts)

    def validation_batches(self, count: int) -> Iterator[Batch]:
        """Yield ``count`` batches, always the same, of windows evenly spaced over the validation tokens.

        Shapes as in :meth:`training_batch`. Windows overlap where the text is short, but no two are the same: a text
        with fewer places than ``count`` batches need gives fewer, and the last may have fewer than B sequences. Of
        several corpora each has its share of the windows.
        """
        counts = self.mixture.counts(count * self.batch_size)
        spread = [self._spread(len(c.val), wanted) for c, wanted in zip(self.corpora, counts, strict=True)]
        corpus, starts = np.repeat(np.arange(len(spread)), [len(places) for places in spread]), np.concatenate(spread)
        for first in range(0, len(starts), self.batch_size):
            rows = slice(first, first + self.batch_size)
            yield self._gather([c.val for c in self.corpora], corpus[rows], starts[rows])

    def _spread(self, tokens: int, wanted: int) -> np.ndarray:
        """Return the first tokens of as many windows as are wanted, or as there are: (N,) int64."""
        places = tokens - (self.T + self.heads) + 1
        windows = min(wanted, places)
        return np.arange(windows) * (places - 1) // max(windows - 1, 1)

    def _gather(self, streams: Sequence[Stream], corpus: np.ndarray, starts: np.ndarray) -> Batch:
        """Return the windows that begin at (N,) places of the streams with (N,) numbers, as inputs and targets."""
        T, length = self.T, self.T + self.heads
        windows = np.empty((len(starts), length), np.int32)
        for i, stream in enumerate(streams):
            windows[corpus == i] = stream.windows(starts[corpus == i], length)

        def where(index: int) -> str:
            row, column = divmod(index, length)
            return streams[corpus[row]].where(int(starts[row]) + column)

        if self.vocab_size is not None:
            check_vocabulary(windows, self.vocab_size, where)
        targets = np.stack([windows[:, k : k + T] for k in range(1, self.heads + 1)])
        return np.ascontiguousarray(windows[:, :T]), targets


def _check_lengths(corpus: Tokens, T: int, heads: int) -> None:
    for name, tokens, longer in (
        ("training", corpus.train, corpus.longer),
        ("validation", corpus.val, corpus.longer_val),
    ):
        if len(tokens) < T + heads:
            raise UserError(
                f"the {name} part of {corpus.name} has {len(tokens)} tokens, and one window takes {T + heads} "
                f"({T} of context and {heads} to predict): give a smaller model.max_seq_len, or {longer}"
            )
