"""A corpus cut into windows, which are dealt out in a shuffled order, epoch after epoch."""

import numpy as np

from nanoeuler.corpus.shuffle import Order, Shuffle


class Windows:
    """The windows of one corpus's training tokens, numbered in the order in which they are dealt, without end.

    An epoch cuts the tokens into windows T apart, shuffles them, and deals each out once; the next epoch starts its
    cuts elsewhere, by fewer than T tokens, so that a token is not always at the same place of a window. Seed and epoch
    alone decide shuffle and start.
    """

    def __init__(self, tokens: int, T: int, heads: int, seed: int, shuffle: Shuffle, number: int = 0) -> None:
        """Cut so many tokens, at least T + heads.

        Args:
            tokens: how many there are.
            T: of a window's inputs; ``heads`` more are to be predicted.
            heads: prediction heads.
            seed: decides the order.
            shuffle: how an epoch is shuffled.
            number: of the corpus among those of one run, so that no two have the same shuffle.
        """
        self.T, self.seed, self.shuffle, self.number = T, seed, shuffle, number
        self.starting_places = min(T, tokens - (T + heads) + 1)  # an epoch's first window begins at one of them
        self.per_epoch = (tokens - heads - (self.starting_places - 1)) // T  # from whichever it begins
        self._current: tuple[int, Order, int] | None = None  # the epoch last used, its order, its first token

    def starts(self, numbers: np.ndarray) -> np.ndarray:
        """Return the first token of each of the windows with (N,) numbers, from 0 on: (N,) int64."""
        epochs, places = np.divmod(numbers, self.per_epoch)
        starts = np.empty(len(numbers), np.int64)
        for epoch in np.unique(epochs):
            order, first = self._epoch(int(epoch))
            within = epochs == epoch
            starts[within] = first + self.T * order(places[within])
        return starts

    def _epoch(self, epoch: int) -> tuple[Order, int]:
        """Return an epoch's order, and the first token of its first window in the text."""
        if self._current is None or self._current[0] != epoch:
            key = (epoch, self.number) if self.number else (epoch,)
            order, random = self.shuffle(self.per_epoch, np.random.SeedSequence(self.seed, spawn_key=key))
            self._current = epoch, order, random % self.starting_places
        return self._current[1:]
