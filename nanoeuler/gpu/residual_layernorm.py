"""Residual connection and LayerNorm in one kernel; formulas are those of :mod:`nanoeuler.cpu.residual_layernorm`.

Work is shared as in :mod:`nanoeuler.gpu.layernorm`: a block for each row, and the sum of x and branch is the row that
it keeps in registers. 16 bytes an element forward, where the two ops one after the other move 20: total is not read
again.

Backward: dtotal is read beside dout and total, and added where dx is written. 16 bytes an element instead of 24. The
shares of dweight and dbias gather in registers, become two rows of partial sums per block, and are added up by a second
kernel.

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
def add_and_standardise_rows(
    out: Array,
    total: Array,
    mean: Array,
    rstd: Array,
    x: Array,
    branch: Array,
    weight: Array,
    bias: Array,
    has_bias: Any,
    eps: Any,
) -> None:
    """Write a row of total and of out, its mean and its rstd: a block for each row."""
    partial = cuda.shared.array(MAX_WARPS, float32)
    values = cuda.local.array(PER_THREAD, float32)
    row, thread, threads, C = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x, uint32(x.shape[1])
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        values[i] = widen(x[row, c]) + widen(branch[row, c]) if c < C else float32(0)
    own = float32(0)
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        if c < C:
            total[row, c] = narrow(values[i])
        own += values[i]
    m = block_sum(own, partial) / float32(C)
    squares = float32(0)
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        values[i] = values[i] - m if c < C else float32(0)
        squares += values[i] * values[i]
    r = float32(1) / math.sqrt(block_sum(squares, partial) / float32(C) + eps)
    for i in range(PER_THREAD):  # a loop of its own: the compiler would not read weights ahead of writes
        c = uint32(thread + i * threads)
        if c < C:
            b = widen(bias[c]) if has_bias else float32(0)
            values[i] = values[i] * r * widen(weight[c]) + b
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        if c < C:
            out[row, c] = narrow(values[i])
    if thread == 0:
        mean[row] = m
        rstd[row] = r


@cuda.jit
def add_and_standardise_rows_backward(
    dx: Array,
    dweight: Array,
    dbias: Array,
    dout: Array,
    dtotal: Array,
    total: Array,
    weight: Array,
    mean: Array,
    rstd: Array,
) -> None:
    """Write dx, and each block's share of dweight and dbias, (blocks, C): a block for every so many rows."""
    partial = cuda.shared.array(MAX_WARPS, float32)
    w = cuda.local.array(PER_THREAD, float32)
    dw = cuda.local.array(PER_THREAD, float32)
    db = cuda.local.array(PER_THREAD, float32)
    g = cuda.local.array(PER_THREAD, float32)
    xhat = cuda.local.array(PER_THREAD, float32)
    others = cuda.local.array(PER_THREAD, float32)
    thread, threads, C = cuda.threadIdx.x, cuda.blockDim.x, uint32(total.shape[1])
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        dw[i] = float32(0)
        db[i] = float32(0)
        w[i] = widen(weight[c]) if c < C else float32(0)
    for row in range(cuda.blockIdx.x, total.shape[0], cuda.gridDim.x):
        m, r = mean[row], rstd[row]
        own = float32(0)
        products = float32(0)
        for i in range(PER_THREAD):
            c = uint32(thread + i * threads)
            g[i] = widen(dout[row, c]) if c < C else float32(0)
            xhat[i] = (widen(total[row, c]) - m) * r if c < C else float32(0)
            others[i] = widen(dtotal[row, c]) if c < C else float32(0)
            dw[i] += g[i] * xhat[i]
            db[i] += g[i]
            g[i] *= w[i]
            own += g[i]
            products += g[i] * xhat[i]
        mean_g = block_sum(own, partial) / float32(C)
        mean_g_xhat = block_sum(products, partial) / float32(C)
        for i in range(PER_THREAD):
            c = uint32(thread + i * threads)
            if c < C:
                dx[row, c] = narrow(others[i] + r * (g[i] - mean_g - xhat[i] * mean_g_xhat))
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        if c < C:
            dweight[cuda.blockIdx.x, c] = dw[i]
            dbias[cuda.blockIdx.x, c] = db[i]


def residual_layernorm_forward(
    out: Array,
    total: Array,
    mean: Array,
    rstd: Array,
    x: Array,
    branch: Array,
    weight: Array,
    bias: Array | None,
    eps: float,
) -> None:
    """Write ``x + branch``, its normalised rows, and what the backward needs of them.

    Args:
        out: (N, C), written.
        total: (N, C), written; may be ``x`` or ``branch`` itself.
        mean: (N,) float32, written: of each row of ``total``.
        rstd: (N,) float32, written: one over the standard deviation of each row of ``total``.
        x: (N, C).
        branch: (N, C).
        weight: (C,).
        bias: (C,) or None.
        eps: added to the variance.
    """
    N, C = x.shape
    kernel, threads = fitted(add_and_standardise_rows, C)
    has_bias = bias is not None
    given = out, total, mean, rstd, x, branch, weight, bias if has_bias else weight, has_bias, eps
    launch(kernel, N, threads, *given)


def residual_layernorm_backward(
    dx: Array,
    dweight: Array,
    dbias: Array | None,
    dout: Array,
    dtotal: Array,
    total: Array,
    weight: Array,
    mean: Array,
    rstd: Array,
) -> None:
    """Write the gradient that both terms of the sum have, add to the weight's and the bias's.

    Args:
        dx: (N, C), written; may be ``dout`` or ``dtotal`` itself.
        dweight: (C,) float32, added to.
        dbias: (C,) float32, added to, or None.
        dout: (N, C).
        dtotal: (N, C), what other uses of ``total`` hand back.
        total: (N, C), the forward's.
        weight: (C,).
        mean: (N,) float32, the forward's.
        rstd: (N,) float32, the forward's.
    """
    N, C = total.shape
    blocks = partial_rows(N, C)
    partial = scratch("residual_layernorm partial", (2, blocks, C), np.float32, like=total)
    kernel, threads = fitted(add_and_standardise_rows_backward, C)
    launch(kernel, blocks, threads, dx, partial[0], partial[1], dout, dtotal, total, weight, mean, rstd)
    add_column_sums(dweight, partial[0])
    if dbias is not None:
        add_column_sums(dbias, partial[1])
