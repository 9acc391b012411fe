"""How likely a model finds the continuations of its rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.evaluate.engine import Engine
from nanoeuler.evaluate.items import Item
from nanoeuler.evaluate.progress import Progress
from nanoeuler.evaluate.rows import Row, batched, make_rows, pad
from nanoeuler.model import Transformer
from nanoeuler.tokenizer import Tokenizer


@dataclass(frozen=True)
class Likelihood:
    """Of a continuation after its context."""

    log: float  # natural logarithm of its probability
    greedy: bool | None = None  # is each of its tokens the likeliest? None where nobody has asked


def likelihoods(
    engine: Engine, items: Sequence[Item], tokenizer: Tokenizer, progress: Progress, greedy: bool = False
) -> list[list[Likelihood]]:
    """Return the likelihoods of every item's choices.

    Args:
        engine: the model.
        items: of a task.
        tokenizer: the model's.
        progress: shows how far this is.
        greedy: whether each continuation's tokens are the likeliest is asked too.

    Raises:
        UserError: as :func:`make_rows`, or the model gives NaN.
    """
    rows = make_rows(items, tokenizer, engine.length, engine.config.vocabulary)
    batches = list(batched(rows, engine.batch_tokens))
    progress.begin(sum(len(batch) * len(batch[0].inputs) for batch in batches))
    found: list[dict[int, Likelihood]] = [{} for _ in items]
    results = engine.run(lambda model, batch: _score(model, batch, greedy), batches)
    for batch, result in zip(batches, results, strict=True):
        for row, each in zip(batch, result, strict=True):
            for (i, j), likelihood in zip(row.asked, each, strict=True):
                if not np.isfinite(likelihood.log):
                    raise UserError(
                        f"{items[i].place}: the model's log-likelihood is {likelihood.log}: damaged weights?"
                    )
                found[i][j] = likelihood
        progress.advance(len(batch) * len(batch[0].inputs))
    return [[each[j] for j in range(len(each))] for each in found]


def _score(model: Transformer, rows: list[Row], greedy: bool) -> list[list[Likelihood]]:
    """Return the likelihoods of each row's continuations. Of the logits only what is needed comes to the host."""
    inputs, targets = pad(rows)
    B, T = inputs.shape
    losses = model.losses(inputs, targets)
    logits = model.activations(B, T)["logits"]  # (N, V), which the losses have left as they were
    results = []
    for b, row in enumerate(rows):
        log = -float(losses[b].sum(dtype=np.float64))
        if greedy or len(row.lasts) > 1:
            end = b * T + len(row.inputs)
            results.append(_from_logits(row, log, model.ops.to_numpy(logits[end - row.scored : end])))
        else:
            results.append([Likelihood(log)])
    return results


def _from_logits(row: Row, log: float, logits: np.ndarray) -> list[Likelihood]:
    """Return the likelihoods of a row's continuations, of which the first has ``log``.

    The others end in another token: what differs is the last logit. ``logits``: (scored, V).
    """
    likeliest = logits.argmax(axis=1).tolist()
    beginning = likeliest[:-1] == row.inputs[len(row.inputs) - row.scored + 1 :].tolist()
    last = logits[-1].astype(np.float64)
    return [
        Likelihood(log + float(last[token] - last[row.lasts[0]]), beginning and token == likeliest[-1])
        for token in row.lasts
    ]
