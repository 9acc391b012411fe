"""Tokens into batches. Each batch is a function of its number, so the loader's whole state is one integer.

Letters: B sequences in a batch, T tokens in a sequence. A window is T + heads neighbouring tokens, heads being the
model's prediction heads: the inputs are its first T, and head k (from 0) has as targets the T that begin k + 1 later.
"""

from collections.abc import Iterator

import numpy as np

from nanoeuler.errors import UserError


def split(tokens: np.ndarray, val_fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Return views of the first part, to train on, and of the last ``val_fraction``, to validate on (as nanoGPT)."""
    border = int(len(tokens) * (1 - val_fraction))
    return tokens[:border], tokens[border:]


def check_vocabulary(tokens: np.ndarray, vocab_size: int) -> None:
    """Check that every token id is one the model has an embedding for.

    Raises:
        UserError: one is not; the message names the first, and where it is.
    """
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < vocab_size):
        position = int(np.argmax((tokens < 0) | (tokens >= vocab_size)))
        raise UserError(
            f"token {tokens[position]} at position {position} is beyond the model's vocabulary of {vocab_size}: "
            "the model and the tokenizer must be of one size (leave model.vocab_size out to take the tokenizer's)"
        )


class Batches:
    """The batches of a run.

    An epoch cuts the training tokens into windows T apart, shuffles them, and deals them out without repetition; the
    next epoch starts its cuts elsewhere, by fewer than T tokens, so that a token is not always at the same place of
    a window. A batch may lie across the border of two epochs. Seed and epoch alone decide shuffle and start, through
    PCG64's raw output, which NumPy keeps the same from version to version.
    """

    def __init__(
        self, train: np.ndarray, val: np.ndarray, batch_size: int, T: int, heads: int = 1, seed: int = 0
    ) -> None:
        """Take the two parts of the text as 1-D arrays of token ids, of any integer type; they are not copied.

        Raises:
            UserError: a part is shorter than one window.
        """
        for name, part in (("training", train), ("validation", val)):
            if len(part) < T + heads:
                raise UserError(
                    f"the {name} part of the text has {len(part)} tokens, and one window takes {T + heads} "
                    f"({T} of context and {heads} to predict): give a longer text, a smaller model.max_seq_len"
                    + (" or a larger data.val_fraction" if name == "validation" else "")
                )
        self.train, self.val, self.batch_size, self.T, self.heads, self.seed = train, val, batch_size, T, heads, seed
        self.starting_places = min(T, len(train) - (T + heads) + 1)  # an epoch's first window begins at one of them
        self.windows_per_epoch = (len(train) - heads - (self.starting_places - 1)) // T  # from whichever it begins
        self._shuffled = (-1, np.empty(0, np.int64))  # the epoch last used, and its windows' first tokens

    def training_batch(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return batch ``index``, from 0 on without end: inputs (B, T) and targets (heads, B, T), int32."""
        first = index * self.batch_size
        starts = np.empty(self.batch_size, np.int64)
        done = 0
        while done < self.batch_size:  # one turn for each epoch that the batch touches
            epoch, within = divmod(first + done, self.windows_per_epoch)
            part = self._epoch(epoch)[within : within + self.batch_size - done]
            starts[done : done + len(part)] = part
            done += len(part)
        return self._gather(self.train, starts)

    def validation_batches(self, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield ``count`` batches, always the same, of windows evenly spaced over the validation tokens.

        Shapes as in :meth:`training_batch`. Windows overlap where the text is short, but no two are the same: a text
        with fewer places than ``count`` batches need gives fewer, and the last may have fewer than B sequences.
        """
        places = len(self.val) - (self.T + self.heads) + 1
        windows = min(count * self.batch_size, places)
        starts = np.arange(windows) * (places - 1) // max(windows - 1, 1)
        for first in range(0, windows, self.batch_size):
            yield self._gather(self.val, starts[first : first + self.batch_size])

    def _epoch(self, epoch: int) -> np.ndarray:
        """Return the first token of each of an epoch's windows, shuffled: (windows_per_epoch,) int64."""
        if self._shuffled[0] != epoch:
            seed = np.random.SeedSequence(self.seed, spawn_key=(epoch,))
            random = np.random.PCG64(seed).random_raw(self.windows_per_epoch + 1)
            offset = int(random[-1] % self.starting_places)
            self._shuffled = (epoch, offset + self.T * np.argsort(random[:-1], kind="stable"))
        return self._shuffled[1]

    def _gather(self, tokens: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shift = np.arange(self.heads + 1)[:, None, None]  # 0 is the inputs, k + 1 the targets of head k
        windows = tokens[shift + starts[:, None] + np.arange(self.T)]  # (heads + 1, B, T)
        windows = windows.astype(np.int32, copy=False)
        return windows[0], windows[1:]
