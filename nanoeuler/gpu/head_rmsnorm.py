"""RMSNorm of each head on the GPU; source, letters and formulas are those of :mod:`nanoeuler.cpu.head_rmsnorm`.

A head has few channels, 64 or 128, so a warp takes one: lane l has channels l, l + 32 ... in registers, and the sum
over them is five shuffles, with no barrier and no shared memory. The arrays may be slices of packed q|k|v, whose rows
lie apart; within a row neighbours read neighbours.

Forward: x is read once and out written once. Backward: a warp takes several heads, one after the other, adds up their
share of dweight in registers, and writes it when it is through, a row of partial sums per warp, which
:mod:`nanoeuler.gpu.column_sums` adds up in a fixed order.

Moved: 2 elements for each element of x forward, 3 backward, and the partial sums.
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
from nanoeuler.gpu.warp import WARP, warp_sum

Array = Any

PER_LANE = 4  # channels of a head that a lane keeps; more for heads wider than 128
WARPS = 8  # of a block: heads side by side


def fitted(kernel: Any, D: int) -> Any:
    """Return the kernel whose lanes keep enough channels for heads of D."""
    per_lane = PER_LANE
    while per_lane * WARP < D:
        per_lane *= 2
    return kernel if per_lane == PER_LANE else variant(kernel, PER_LANE=per_lane)


@cuda.jit
def normalise_heads(out: Array, rstd: Array, x: Array, weight: Array, eps: Any) -> None:
    """Write a head of out and its rstd: a warp for each."""
    values = cuda.local.array(PER_LANE, float32)
    T, H, D = uint32(x.shape[1]), uint32(x.shape[2]), uint32(x.shape[3])
    lane, head = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
    if head >= uint32(x.shape[0]) * T * H:
        return
    h, t, b = head % H, head // H % T, head // H // T
    squares = float32(0)
    for i in range(PER_LANE):
        d = uint32(lane + i * WARP)
        values[i] = widen(x[b, t, h, d]) if d < D else float32(0)
        squares += values[i] * values[i]
    r = float32(1) / math.sqrt(warp_sum(squares) / float32(D) + eps)
    for i in range(PER_LANE):
        d = uint32(lane + i * WARP)
        if d < D:
            out[b, t, h, d] = narrow(values[i] * r * widen(weight[d]))
    if lane == 0:
        rstd[b, t, h] = r


@cuda.jit
def normalise_heads_backward(dx: Array, dweight: Array, dout: Array, x: Array, weight: Array, rstd: Array) -> None:
    """Write dx, and each warp's share of dweight, (warps, D): a warp for every so many heads."""
    w = cuda.local.array(PER_LANE, float32)
    dw = cuda.local.array(PER_LANE, float32)
    g = cuda.local.array(PER_LANE, float32)
    xhat = cuda.local.array(PER_LANE, float32)
    T, H, D = uint32(x.shape[1]), uint32(x.shape[2]), uint32(x.shape[3])
    lane, warp = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
    for i in range(PER_LANE):
        d = uint32(lane + i * WARP)
        dw[i] = float32(0)
        w[i] = widen(weight[d]) if d < D else float32(0)
    head, heads = warp, uint32(x.shape[0]) * T * H
    while head < heads:
        h, t, b = head % H, head // H % T, head // H // T
        r = rstd[b, t, h]
        products = float32(0)
        for i in range(PER_LANE):
            d = uint32(lane + i * WARP)
            g[i] = widen(dout[b, t, h, d]) if d < D else float32(0)
            xhat[i] = widen(x[b, t, h, d]) * r if d < D else float32(0)
            dw[i] += g[i] * xhat[i]
            g[i] *= w[i]
            products += g[i] * xhat[i]
        mean = warp_sum(products) / float32(D)
        for i in range(PER_LANE):
            d = uint32(lane + i * WARP)
            if d < D:
                dx[b, t, h, d] = narrow(r * (g[i] - xhat[i] * mean))
        head += uint32(dweight.shape[0])
    for i in range(PER_LANE):
        d = uint32(lane + i * WARP)
        if d < D:
            dweight[warp, d] = dw[i]


def head_rmsnorm_forward(out: Array, rstd: Array, x: Array, weight: Array, eps: float) -> None:
    """Write the normalised heads and what the backward needs of them.

    Args:
        out: (B, T, H, D), written; rows may lie apart.
        rstd: (B, T, H) float32, written: one over each head's root mean square.
        x: (B, T, H, D); rows may lie apart (a slice of packed q|k|v).
        weight: (D,).
        eps: added to the mean square.
    """
    B, T, H, D = x.shape
    launch(fitted(normalise_heads, D), -(-B * T * H // WARPS), (WARP, WARPS), out, rstd, x, weight, eps)


def head_rmsnorm_backward(dx: Array, dweight: Array, dout: Array, x: Array, weight: Array, rstd: Array) -> None:
    """Write the input's gradient, add to the weight's.

    Args:
        dx: (B, T, H, D), written; may be ``dout`` itself; rows may lie apart, as those of dout and x.
        dweight: (D,) float32, added to.
        dout: (B, T, H, D).
        x: (B, T, H, D), the forward's.
        weight: (D,).
        rstd: (B, T, H) float32, the forward's.
    """
    B, T, H, D = x.shape
    blocks = -(-partial_rows(B * T * H, D) // WARPS)
    partial = scratch("head_rmsnorm partial", (blocks * WARPS, D), np.float32, like=x)
    launch(fitted(normalise_heads_backward, D), blocks, (WARP, WARPS), dx, partial, dout, x, weight, rstd)
    add_column_sums(dweight, partial)
