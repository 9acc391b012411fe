"""Linear layer: ``out = x @ weight.T + bias``.

Letters: N rows (tokens), I input channels, O output channels.

Backward, from ``out[n, o] = Σ_i x[n, i] weight[o, i] + bias[o]`` and the chain rule over every path::

    dx[n, i]      = Σ_o dout[n, o] weight[o, i]     ->  dx      = dout @ weight
    dweight[o, i] = Σ_n dout[n, o] x[n, i]          ->  dweight = dout.T @ x
    dbias[o]      = Σ_n dout[n, o]

so the backward is two matrix products, twice the forward's work.
"""

from collections.abc import Callable

import numpy as np

from nanoeuler.cpu.parallel import ones, parallel, scratch, tiles

#: Rows of ``dweight`` computed at a time: the product lands in a scratch tile of the cache and is added from there.
WEIGHT_ROWS = 384


def linear_forward(out: np.ndarray, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> None:
    """Write ``x @ weight.T + bias``.

    Args:
        out: (N, O), written.
        x: (N, I).
        weight: (O, I).
        bias: (O,) or None.
    """
    N, O = out.shape

    def tile(rows: slice, columns: slice) -> None:
        part = out[rows, columns]
        np.matmul(x[rows], weight[columns].T, out=part)
        if bias is not None:
            part += bias[columns]

    _tiled(tile, N, O)


def linear_backward(
    dx: np.ndarray | None,
    dweight: np.ndarray,
    dbias: np.ndarray | None,
    dout: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
) -> None:
    """Write the input's gradient, add to the parameters'.

    Args:
        dx: (N, I), written; may be ``x`` itself; None if nothing needs it.
        dweight: (O, I), added to.
        dbias: (O,), added to; None for a layer without bias.
        dout: (N, O).
        x: (N, I), the forward's.
        weight: (O, I).
    """
    (N, O), inputs = dout.shape, weight.shape[1]

    def input_tile(rows: slice, columns: slice) -> None:
        assert dx is not None
        np.matmul(dout[rows], weight[:, columns], out=dx[rows, columns])

    def weight_rows(rows: slice) -> None:
        product = scratch("linear", (rows.stop - rows.start, inputs), dweight.dtype)
        np.matmul(dout[:, rows].T, x, out=product)
        dweight[rows] += product
        if dbias is not None:
            dbias[rows] += ones(N, dout.dtype) @ dout[:, rows]

    parallel(weight_rows, _row_tiles(O))
    if dx is not None:  # last: it may lie over x
        _tiled(input_tile, N, inputs)


def _tiled(tile: Callable[[slice, slice], None], rows: int, columns: int) -> None:
    """Call ``tile(rows, columns)`` over a matrix cut along its longer side: the operand of the other is then shared."""
    if rows >= columns:
        parallel(lambda part: tile(part, slice(0, columns)), tiles(rows))
    else:
        parallel(lambda part: tile(slice(0, rows), part), tiles(columns))


def _row_tiles(rows: int) -> list[slice]:
    """Cut the rows of a weight gradient into tiles of at most :data:`WEIGHT_ROWS`, and at least two for a team."""
    size = min(WEIGHT_ROWS, max(t.stop - t.start for t in tiles(rows)))
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
