"""RMSNorm on the GPU; source, letters and formulas are those of :mod:`nanoeuler.cpu.rmsnorm`.

Forward: a block of threads for each row. Thread t takes the elements t, t + threads, t + 2 threads ... (neighbours read
neighbours) and keeps them in registers while the block sums their squares, by shuffles within a warp and a few shared
elements between warps. So x is read once and out written once: 8 bytes an element, and nothing is faster than that.

Backward: the same, with dout beside x, and dx = rstd (g - xhat mean_c(g xhat)) needs one sum a row. dweight = Σ_n dout
xhat is a sum down the columns. A block takes several rows, one after the other, and since each thread meets the same
columns in all of them, it adds up their share of dweight in registers and writes it when it is through: a row of
partial sums per block. A second kernel adds those up, always in the same order (:mod:`nanoeuler.gpu.column_sums`). 12
bytes an element; the partial sums are a few megabytes at most.

How many elements a thread keeps is a constant of the compiled kernel: only then are they registers and not memory.
"""

import math
from typing import Any

import numpy as np

from nanoeuler.gpu.backend import cuda, float32, uint32
from nanoeuler.gpu.bfloat16 import narrow, widen
from nanoeuler.gpu.column_sums import add_column_sums, partial_rows
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.memory import scratch
from nanoeuler.gpu.variant import variant
from nanoeuler.gpu.warp import MAX_WARPS, WARP, block_sum

Array = Any

PER_THREAD = 4  # elements of a row that a thread keeps; more for rows wider than 1024, and beyond 4096 some may spill
MAX_THREADS = 256  # of a block: with the most registers that a thread can have, 255, they are still all there


def fitted(kernel: Any, C: int) -> tuple[Any, int]:
    """Return the kernel whose threads keep enough elements for rows of C, and the threads of a block.

    >>> fitted(normalise_rows, 768)[1]
    192
    """
    per_thread = PER_THREAD
    while per_thread * MAX_THREADS < C:
        per_thread *= 2
    threads = WARP * -(-C // (WARP * per_thread))
    return kernel if per_thread == PER_THREAD else variant(kernel, PER_THREAD=per_thread), threads


@cuda.jit
def normalise_rows(out: Array, rstd: Array, x: Array, weight: Array, eps: Any) -> None:
    """Write a row of out and its rstd: a block for each row."""
    partial = cuda.shared.array(MAX_WARPS, float32)
    values = cuda.local.array(PER_THREAD, float32)
    row, thread, threads, C = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x, uint32(x.shape[1])
    squares = float32(0)
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        values[i] = widen(x[row, c]) if c < C else float32(0)
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
def normalise_rows_backward(dx: Array, dweight: Array, dout: Array, x: Array, weight: Array, rstd: Array) -> None:
    """Write dx, and each block's share of dweight, (blocks, C): a block for every so many rows."""
    partial = cuda.shared.array(MAX_WARPS, float32)
    w = cuda.local.array(PER_THREAD, float32)
    dw = cuda.local.array(PER_THREAD, float32)
    g = cuda.local.array(PER_THREAD, float32)
    xhat = cuda.local.array(PER_THREAD, float32)
    thread, threads, C = cuda.threadIdx.x, cuda.blockDim.x, uint32(x.shape[1])
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        dw[i] = float32(0)
        w[i] = widen(weight[c]) if c < C else float32(0)
    for row in range(cuda.blockIdx.x, x.shape[0], cuda.gridDim.x):
        r = rstd[row]
        products = float32(0)
        for i in range(PER_THREAD):
            c = uint32(thread + i * threads)
            g[i] = widen(dout[row, c]) if c < C else float32(0)
            xhat[i] = widen(x[row, c]) * r if c < C else float32(0)
            dw[i] += g[i] * xhat[i]
            g[i] *= w[i]
            products += g[i] * xhat[i]
        mean = block_sum(products, partial) / float32(C)
        for i in range(PER_THREAD):
            c = uint32(thread + i * threads)
            if c < C:
                dx[row, c] = narrow(r * (g[i] - xhat[i] * mean))
    for i in range(PER_THREAD):
        c = uint32(thread + i * threads)
        if c < C:
            dweight[cuda.blockIdx.x, c] = dw[i]


def rmsnorm_forward(out: Array, rstd: Array, x: Array, weight: Array, eps: float) -> None:
    """Write the normalised rows and what the backward needs of them.

    Args:
        out: (N, C), written.
        rstd: (N,) float32, written: one over each row's root mean square.
        x: (N, C), of numbers whose squares float32 holds.
        weight: (C,).
        eps: added to the mean square, so that a row of zeros stays zeros.
    """
    N, C = x.shape
    kernel, threads = fitted(normalise_rows, C)
    launch(kernel, N, threads, out, rstd, x, weight, eps)


def rmsnorm_backward(dx: Array, dweight: Array, dout: Array, x: Array, weight: Array, rstd: Array) -> None:
    """Write the input's gradient, add to the weight's.

    Args:
        dx: (N, C), written; may be ``dout`` itself.
        dweight: (C,) float32, added to.
        dout: (N, C).
        x: (N, C), the forward's.
        weight: (C,).
        rstd: (N,) float32, the forward's.
    """
    N, C = x.shape
    blocks = partial_rows(N, C)
    partial = scratch("rmsnorm partial", (blocks, C), np.float32, like=x)
    kernel, threads = fitted(normalise_rows_backward, C)
    launch(kernel, blocks, threads, dx, partial, dout, x, weight, rstd)
    add_column_sums(dweight, partial)
