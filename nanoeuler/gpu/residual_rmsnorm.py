"""Residual connection and RMSNorm in one kernel; formulas are those of :mod:`nanoeuler.cpu.residual_rmsnorm`.

Work is shared as in :mod:`nanoeuler.gpu.rmsnorm`: a block for each row, and the sum of x and branch is the row that it
keeps in registers. 16 bytes an element forward, where the two ops one after the other move 20: total is not read again.

Backward: dtotal is read beside dout and total, and added where dx is written. 16 bytes an element instead of 24. The
shares of dweight gather in registers, become a row of partial sums per block, and are added up by a second kernel.

In bfloat16 what is normalised is the sum before it is rounded; total holds it rounded, and the backward goes by that.
"""

import math
from typing import Any

import numpy as np

from nanoeuler.gpu.backend import cuda, float32, uint32
from nanoeuler.gpu.bfloat16 import narrow, widen
from nanoeuler.gpu.column_sums import add_column_sums, partial_rows
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.memory import scratch
from nanoeuler.gpu.rmsnorm import PER_THREAD, fitted
from nanoeuler.gpu.warp import MAX_WARPS, block_sum

Array = Any


@cuda.jit
def add_and_normalise_rows(
    out: Array, total: Array, rstd: Array, x: Array, branch: Array, weight: Array, eps: Any
) -> None:
    """Write a row of total and of out, and its rstd: a block for each row."""
    partial = cuda.shared.array(MAX_WARPS, float32)
    values = cuda.local.array(PER_THREAD, float32)
    row, thread, threads, C = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x, uint32(x.shape[1])
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        values[i] = widen(x[row, c]) + widen(branch[row, c]) if c < C else float32(0)
    squares = float32(0)
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        if c < C:
            total[row, c] = narrow(values[i])
        squares += values[i] * values[i]
    r = float32(1) / math.sqrt(block_sum(squares, partial) / float32(C) + eps)
    for i in range(PER_THREAD):  # a loop of its own: the compiler would not read weights ahead of writes
        c = uint32(thread + i * threads)
        if c < C:
            values[i] = values[i] * r * widen(weight[c])
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        if c < C:
            out[row, c] = narrow(values[i])
    if thread == 0:
        rstd[row] = r


@cuda.jit
def add_and_normalise_rows_backward(
    dx: Array, dweight: Array, dout: Array, dtotal: Array, total: Array, weight: Array, rstd: Array
) -> None:
    """Write dx, and each block's share of dweight, (blocks, C): a block for every so many rows."""
    partial = cuda.shared.array(MAX_WARPS, float32)
    w = cuda.local.array(PER_THREAD, float32)
    dw = cuda.local.array(PER_THREAD, float32)
    g = cuda.local.array(PER_THREAD, float32)
    xhat = cuda.local.array(PER_THREAD, float32)
    others = cuda.local.array(PER_THREAD, float32)
    thread, threads, C = cuda.threadIdx.x, cuda.blockDim.x, uint32(total.shape[1])
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        dw[i] = float32(0)
        w[i] = widen(weight[c]) if c < C else float32(0)
    for row in range(cuda.blockIdx.x, total.shape[0], cuda.gridDim.x):
        r = rstd[row]
        products = float32(0)
        for i in range(PER_THREAD):
            c = uint32(thread + i * threads)
            g[i] = widen(dout[row, c]) if c < C else float32(0)
            xhat[i] = widen(total[row, c]) * r if c < C else float32(0)
            others[i] = widen(dtotal[row, c]) if c < C else float32(0)
            dw[i] += g[i] * xhat[i]
            g[i] *= w[i]
            products += g[i] * xhat[i]
        mean = block_sum(products, partial) / float32(C)
        for i in range(PER_THREAD):
            c = uint32(thread + i * threads)
            if c < C:
                dx[row, c] = narrow(others[i] + r * (g[i] - xhat[i] * mean))
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        if c < C:
            dweight[cuda.blockIdx.x, c] = dw[i]


def residual_rmsnorm_forward(
    out: Array, total: Array, rstd: Array, x: Array, branch: Array, weight: Array, eps: float
) -> None:
    """Write ``x + branch``, its normalised rows, and what the backward needs of them.

    Args:
        out: (N, C), written.
        total: (N, C), written; may be ``x`` or ``branch`` itself.
        rstd: (N,) float32, written: one over the root mean square of each row of ``total``.
        x: (N, C).
        branch: (N, C).
        weight: (C,).
        eps: added to the mean square, so that a row of zeros stays zeros.
    """
    N, C = x.shape
    kernel, threads = fitted(add_and_normalise_rows, C)
    launch(kernel, N, threads, out, total, rstd, x, branch, weight, eps)


def residual_rmsnorm_backward(
    dx: Array, dweight: Array, dout: Array, dtotal: Array, total: Array, weight: Array, rstd: Array
) -> None:
    """Write the gradient that both terms of the sum have, add to the weight's.

    Args:
        dx: (N, C), written; may be ``dout`` or ``dtotal`` itself.
        dweight: (C,) float32, added to.
        dout: (N, C).
        dtotal: (N, C), what other uses of ``total`` hand back.
        total: (N, C), the forward's.
        weight: (C,).
        rstd: (N,) float32, the forward's.
    """
    N, C = total.shape
    blocks = partial_rows(N, C)
    partial = scratch("residual_rmsnorm partial", (blocks, C), np.float32, like=total)
    kernel, threads = fitted(add_and_normalise_rows_backward, C)
    launch(kernel, blocks, threads, dx, partial, dout, dtotal, total, weight, rstd)
    add_column_sums(dweight, partial)
