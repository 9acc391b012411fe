"""LayerNorm on the GPU; source, letters and formulas are those of :mod:`nanoeuler.cpu.layernorm`.

Work is shared as in :mod:`nanoeuler.gpu.rmsnorm`: a block for each row, the row in registers. So the variance is summed
when the mean is known, from the differences, and a large mean drowns nothing; yet x is read once.

Backward: a block takes several rows, each of which needs two sums, mean_c(g) and mean_c(g xhat). The shares of dweight
= Σ_n dout xhat and dbias = Σ_n dout gather in registers, become two rows of partial sums per block, and a second
kernel adds those up, always in the same order. 8 bytes an element forward, 12 backward.
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
def standardise_rows(
    out: Array, mean: Array, rstd: Array, x: Array, weight: Array, bias: Array, has_bias: Any, eps: Any
) -> None:
    """Write a row of out, its mean and its rstd: a block for each row."""
    partial = cuda.shared.array(MAX_WARPS, float32)
    values = cuda.local.array(PER_THREAD, float32)
    row, thread, threads, C = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x, uint32(x.shape[1])
    total = float32(0)
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        values[i] = widen(x[row, c]) if c < C else float32(0)
        total += values[i]
    m = block_sum(total, partial) / float32(C)
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
def standardise_rows_backward(
    dx: Array, dweight: Array, dbias: Array, dout: Array, x: Array, weight: Array, mean: Array, rstd: Array
) -> None:
    """Write dx, and each block's share of dweight and dbias, (blocks, C): a block for every so many rows."""
    partial = cuda.shared.array(MAX_WARPS, float32)
    w = cuda.local.array(PER_THREAD, float32)
    dw = cuda.local.array(PER_THREAD, float32)
    db = cuda.local.array(PER_THREAD, float32)
    g = cuda.local.array(PER_THREAD, float32)
    xhat = cuda.local.array(PER_THREAD, float32)
    thread, threads, C = cuda.threadIdx.x, cuda.blockDim.x, uint32(x.shape[1])
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        dw[i] = float32(0)
        db[i] = float32(0)
        w[i] = widen(weight[c]) if c < C else float32(0)
    for row in range(cuda.blockIdx.x, x.shape[0], cuda.gridDim.x):
        m, r = mean[row], rstd[row]
        total = float32(0)
        products = float32(0)
        for i in range(PER_THREAD):
            c = uint32(thread + i * threads)
            g[i] = widen(dout[row, c]) if c < C else float32(0)
            xhat[i] = (widen(x[row, c]) - m) * r if c < C else float32(0)
            dw[i] += g[i] * xhat[i]
            db[i] += g[i]
            g[i] *= w[i]
            total += g[i]
            products += g[i] * xhat[i]
        mean_g = block_sum(total, partial) / float32(C)
        mean_g_xhat = block_sum(products, partial) / float32(C)
        for i in range(PER_THREAD):
            c = uint32(thread + i * threads)
            if c < C:
                dx[row, c] = narrow(r * (g[i] - mean_g - xhat[i] * mean_g_xhat))
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        if c < C:
            dweight[cuda.blockIdx.x, c] = dw[i]
            dbias[cuda.blockIdx.x, c] = db[i]


def layernorm_forward(
    out: Array, mean: Array, rstd: Array, x: Array, weight: Array, bias: Array | None, eps: float
) -> None:
    """Write the normalised rows and what the backward needs of them.

    Args:
        out: (N, C), written.
        mean: (N,) float32, written.
        rstd: (N,) float32, written: one over each row's standard deviation.
        x: (N, C).
        weight: (C,).
        bias: (C,) or None.
        eps: added to the variance.
    """
    N, C = x.shape
    kernel, threads = fitted(standardise_rows, C)
    has_bias = bias is not None
    launch(kernel, N, threads, out, mean, rstd, x, weight, bias if has_bias else weight, has_bias, eps)


def layernorm_backward(
    dx: Array,
    dweight: Array,
    dbias: Array | None,
    dout: Array,
    x: Array,
    weight: Array,
    mean: Array,
    rstd: Array,
) -> None:
    """Write the input's gradient, add to the weight's and the bias's.

    Args:
        dx: (N, C), written; may be ``dout`` itself.
        dweight: (C,) float32, added to.
        dbias: (C,) float32, added to, or None.
        dout: (N, C).
        x: (N, C), the forward's.
        weight: (C,).
        mean: (N,) float32, the forward's.
        rstd: (N,) float32, the forward's.
    """
    N, C = x.shape
    blocks = partial_rows(N, C)
    partial = scratch("layernorm partial", (2, blocks, C), np.float32, like=x)
    kernel, threads = fitted(standardise_rows_backward, C)
    launch(kernel, blocks, threads, dx, partial[0], partial[1], dout, x, weight, mean, rstd)
    add_column_sums(dweight, partial[0])
    if dbias is not None:
        add_column_sums(dbias, partial[1])
