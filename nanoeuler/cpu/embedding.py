"""Token embedding, and learned positions where the model has them: rows of a table.

Letters: B batch, T sequence, C channels, V vocabulary, S longest sequence.

    out[b, t] = weight[tokens[b, t]] + position[start + t]

Backward: a row's gradient is the sum over every place where it was used (a scatter-add)::

    dweight[v]          = Σ over (b, t) with tokens[b, t] = v of dout[b, t]
    dposition[start+t]  = Σ_b dout[b, t]
"""

import numpy as np

from nanoeuler.cpu.parallel import blocks, parallel, scratch


def embedding_forward(
    out: np.ndarray, tokens: np.ndarray, weight: np.ndarray, position: np.ndarray | None, start: int = 0
) -> None:
    """Write each token's row, plus its position's.

    Args:
        out: (B, T, C), written.
        tokens: (B, T) int32, each in [0, V): not checked here, the loader does.
        weight: (V, C).
        position: (S, C), or None where positions are not learned.
        start: position of the first token.
    """
    B, T, C = out.shape
    rows, ids = out.reshape(B * T, C), tokens.reshape(-1)
    parallel(lambda part: np.take(weight, ids[part], axis=0, out=rows[part], mode="clip"), blocks(B * T, C))
    if position is not None:
        out += position[start : start + T]


def embedding_backward(
    dweight: np.ndarray, dposition: np.ndarray | None, dout: np.ndarray, tokens: np.ndarray, start: int = 0
) -> None:
    """Add each place's gradient to its rows, in a fixed order: the same bits in every run.

    Args:
        dweight: (V, C), added to.
        dposition: (S, C), added to, or None.
        dout: (B, T, C).
        tokens: (B, T) int32.
        start: the forward's.
    """
    B, T, C = dout.shape
    ids = tokens.reshape(-1)
    order = np.argsort(ids, kind="stable")  # equal tokens side by side, each run summed in one go
    runs = np.flatnonzero(np.r_[True, np.diff(ids[order]) != 0][: ids.size])  # of no places there is no first run
    rows = scratch("embedding rows", (B * T, C), dout.dtype)
    np.take(dout.reshape(B * T, C), order, axis=0, out=rows, mode="clip")
    used = ids[order[runs]]
    sums = np.add.reduceat(rows, runs, axis=0, out=scratch("embedding sums", (runs.size, C), dout.dtype))
    sums += np.take(dweight, used, axis=0, out=rows[: runs.size], mode="clip")
    dweight[used] = sums
    if dposition is not None:
        dposition[start : start + T] += dout.sum(axis=0)
