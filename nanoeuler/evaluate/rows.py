"""Items as rows of tokens that a model reads, those of one length beside each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from nanoeuler.corpus import check_vocabulary
from nanoeuler.errors import UserError
from nanoeuler.evaluate.items import Choice, Item
from nanoeuler.tokenizer import Tokenizer


@dataclass(frozen=True)
class Row:
    """Inputs, and the continuations that they end in.

    The last token of a continuation is no input. Continuations that differ in it alone have the same inputs: the
    letters after a question are one row.
    """

    inputs: np.ndarray  # (T,) int32
    scored: int  # tokens of a continuation: the last so many inputs predict them
    lasts: list[int] = field(default_factory=list)  # the last token of each continuation
    asked: list[tuple[int, int]] = field(default_factory=list)  # for which item and choice each is

    def targets(self) -> np.ndarray:
        """Return what each input should predict, (T,) int32, for the first continuation; -1 before it."""
        targets = np.append(self.inputs[1:], np.int32(self.lasts[0]))
        targets[: len(targets) - self.scored] = -1
        return targets


def encode_choice(tokenizer: Tokenizer, choice: Choice) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of a context and of its continuation.

    Both are encoded as one text, and what comes after as many tokens as the context has by itself is the continuation;
    spaces at the context's end are the continuation's, as tokenizers have them at the beginning of words. This is how
    lm-evaluation-harness does it.
    """
    context = tokenizer.encode(choice.context.rstrip())
    return context, tokenizer.encode(choice.context + choice.continuation)[len(context) :]


def make_rows(items: Sequence[Item], tokenizer: Tokenizer, length: int, vocab_size: int) -> list[Row]:
    """Return what a model has to read for all choices, in the order of the items.

    What the tokenizer puts in front of every text (a BOS) stands in front of every context too, as models were trained;
    lm-evaluation-harness does so where it is told to, with ``add_bos_token``. A context that is too long loses its
    beginning, that token first.

    Args:
        items: of a task.
        tokenizer: of the model.
        length: most inputs of a row.
        vocab_size: the model's.

    Raises:
        UserError: a context or a continuation has no tokens, the latter has more than fit, or one is unknown to the
            model.
    """
    prefix = np.array(tokenizer.prefix, np.int32)
    rows: dict[tuple[bytes, int], Row] = {}
    for i, item in enumerate(items):
        for j, choice in enumerate(item.choices):
            context, continuation = encode_choice(tokenizer, choice)
            whole = np.concatenate([prefix, context, continuation], dtype=np.int32)
            _check(whole, len(continuation), length, vocab_size, f"{item.place}, choice {j + 1}")
            inputs = whole[-(length + 1) : -1]
            row = rows.setdefault((inputs.tobytes(), len(continuation)), Row(inputs, len(continuation)))
            row.lasts.append(int(whole[-1]))
            row.asked.append((i, j))
    return list(rows.values())


def _check(whole: np.ndarray, scored: int, length: int, vocab_size: int, where: str) -> None:
    if scored == 0:
        raise UserError(f"{where}: nothing to score: its text has no tokens")
    if scored == len(whole):
        raise UserError(f"{where}: nothing stands before it")
    if scored > length:
        raise UserError(f"{where}: {scored} tokens, and a row takes {length}: give a larger --length")
    check_vocabulary(whole, vocab_size, lambda index: f"position {index} of {where}")


def batched(rows: Sequence[Row], tokens: int) -> Iterator[list[Row]]:
    """Yield rows in batches, the longest first, so that memory and time run short at once or not at all.

    Args:
        rows: each of them has at most ``tokens``.
        tokens: most of a batch, once its rows are padded to the length of its longest.
    """
    batch: list[Row] = []
    for row in sorted(rows, key=lambda row: -len(row.inputs)):
        if batch and (len(batch) + 1) * len(batch[0].inputs) > tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def pad(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Return a batch's inputs and targets, (B, T) int32. What follows a row on its right is not seen by it."""
    B, T = len(rows), max(len(row.inputs) for row in rows)
    inputs, targets = np.zeros((B, T), np.int32), np.full((B, T), -1, np.int32)
    for b, row in enumerate(rows):
        inputs[b, : len(row.inputs)] = row.inputs
        targets[b, : len(row.inputs)] = row.targets()
    return inputs, targets
