"""Bias and GELU on the GPU; the formulas are in :mod:`nanoeuler.cpu.gelu`.

Letters: N rows (tokens), F feed-forward channels, P parts of the rows.

As ½ (1 + tanh u) = 1 / (1 + e^(-2u)) = s, of which the slope is s (1 - s) 2u', an exponential is all that is needed::

    out = z s        dx = dout (s + z s (1 - s) 2u')

Forward. A thread has one column, whose bias it loads once, and ``ROWS`` rows below each other. It loads them all before
it computes the first, so that enough reads are under way to fill the time that each takes; neighbouring threads have
neighbouring columns. Rows and columns come from the two sides of the grid, with no division.

Backward. A block has a part of the rows, in which its threads go down their columns, ``ROWS`` rows at a time, and add
up dx as they go. The P sums of each column go to scratch memory, and a second kernel adds them to dbias, in an order
that is the same in every run (:mod:`nanoeuler.gpu.column_sums`).

Moved: 2 elements for each element of ``out`` forward, 3 backward, and the P F sums, of which there are few beside N F.
"""

import math
from typing import Any

import numpy as np

from nanoeuler.gpu.backend import cuda, float32, uint32
from nanoeuler.gpu.bfloat16 import narrow, widen
from nanoeuler.gpu.column_sums import add_column_sums, partial_rows
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.memory import scratch
from nanoeuler.gpu.swiglu import sigmoid
from nanoeuler.gpu.warp import whole_warps

Array = Any

TWO_ROOT = np.float32(2 * math.sqrt(2 / math.pi))  # of 2u = TWO_ROOT z + TWO_ROOT_CUBIC z³
TWO_ROOT_CUBIC = np.float32(0.044715 * TWO_ROOT)
THREE = np.float32(3)
THREADS = 256  # of a block, at most: its columns
ROWS = 4  # of a thread, at a time


@cuda.jit
def add_bias_and_gelu(out: Array, x: Array, bias: Array, has_bias: bool) -> None:
    """Write ``gelu(x + bias)``."""
    N, F = uint32(x.shape[0]), uint32(x.shape[1])
    column = uint32(cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
    if column >= F:
        return
    b = widen(bias[column]) if has_bias else float32(0)
    values = cuda.local.array(ROWS, float32)
    for k in range(ROWS):
        row = uint32(cuda.blockIdx.x * ROWS + k)
        if row < N:
            values[k] = widen(x[row, column]) + b
    for k in range(ROWS):
        row = uint32(cuda.blockIdx.x * ROWS + k)
        if row < N:
            z = values[k]
            out[row, column] = narrow(z * sigmoid(z * (TWO_ROOT + TWO_ROOT_CUBIC * z * z)))


@cuda.jit
def gradient_and_column_sums(
    dx: Array, partial: Array, dout: Array, x: Array, bias: Array, has_bias: bool, sums_columns: bool, rows: Any
) -> None:
    """Write dx, and the sums over each part of the rows. A thread reads an element before it writes it."""
    N, F = uint32(x.shape[0]), uint32(x.shape[1])
    column = uint32(cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
    if column >= F:
        return
    b = widen(bias[column]) if has_bias else float32(0)
    values, incoming = cuda.local.array(ROWS, float32), cuda.local.array(ROWS, float32)
    total = float32(0)
    for first in range(0, rows, ROWS):
        for k in range(ROWS):
            row = uint32(cuda.blockIdx.x * rows + first + k)
            if row < N:
                values[k] = widen(x[row, column]) + b
                incoming[k] = widen(dout[row, column])
        for k in range(ROWS):
            row = uint32(cuda.blockIdx.x * rows + first + k)
            if row < N:
                z = values[k]
                s = sigmoid(z * (TWO_ROOT + TWO_ROOT_CUBIC * z * z))
                slope = TWO_ROOT + THREE * TWO_ROOT_CUBIC * z * z
                gradient = incoming[k] * (s + z * s * (float32(1) - s) * slope)
                total += gradient
                dx[row, column] = narrow(gradient)
    if sums_columns:
        partial[cuda.blockIdx.x, column] = total


def gelu_forward(out: Array, x: Array, bias: Array | None) -> None:
    """Write ``gelu(x + bias)``.

    Args:
        out: (N, F), written.
        x: (N, F).
        bias: (F,), or None.
    """
    N, F = x.shape
    threads = whole_warps(F, THREADS)
    given = x.reshape(-1) if bias is None else bias  # a kernel takes no None
    launch(add_bias_and_gelu, (-(-N // ROWS), -(-F // threads)), threads, out, x, given, bias is not None)


def gelu_backward(dx: Array, dbias: Array | None, dout: Array, x: Array, bias: Array | None) -> None:
    """Write the input's gradient, add to the bias's.

    Args:
        dx: (N, F), written; may be ``dout`` or ``x`` itself.
        dbias: (F,) float32, added to, or None.
        dout: (N, F).
        x: (N, F), the forward's input; of a size whose cube the dtype holds.
        bias: (F,), the forward's, or None.
    """
    N, F = x.shape
    threads = whole_warps(F, THREADS)
    rows = max(1, -(-N // (partial_rows(N, F) * ROWS))) * ROWS  # of a part
    parts = -(-N // rows)
    partial = scratch("gelu partial", (1, 1) if dbias is None else (parts, F), np.float32, like=x)
    given = x.reshape(-1) if bias is None else bias
    launch(
        gradient_and_column_sums, (parts, -(-F // threads)), threads,
        dx, partial, dout, x, given, bias is not None, dbias is not None, rows,
    )  # fmt: skip
    if dbias is not None:
        add_column_sums(dbias, partial)
