"""SwiGLU on the GPU; the formulas are in :mod:`nanoeuler.cpu.swiglu`.

Letters: N rows (tokens), F feed-forward channels.

A thread has one column and ``ROWS`` rows below each other. It loads all that it needs of them before it computes the
first, so that enough reads are under way to fill the time that each takes; neighbouring threads have neighbouring
columns. Rows and columns come from the two sides of the grid, with no division.

Moved: 3 elements read or written for each element of ``out`` forward, 5 backward. Memory is the limit.
"""

import math
from typing import Any

from nanoeuler.gpu.backend import cuda, float32, libdevice, uint32
from nanoeuler.gpu.bfloat16 import narrow, widen
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.warp import whole_warps

Array = Any

THREADS = 256  # of a block, at most: its columns
ROWS = 4  # of a block, and of each thread


@cuda.jit(device=True)
def sigmoid(x: Any) -> Any:
    """Return ``1 / (1 + e^-x)`` of a float32; where e^-x is infinite, 0 as it should be."""
    return libdevice.fast_fdividef(float32(1), float32(1) + math.exp(-x))


@cuda.jit
def silu_times_up(out: Array, gate_up: Array) -> None:
    """Write ``silu(gate) up``."""
    N, F = uint32(out.shape[0]), uint32(out.shape[1])
    column = uint32(cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
    if column >= F:
        return
    gates, ups = cuda.local.array(ROWS, float32), cuda.local.array(ROWS, float32)
    for k in range(ROWS):
        row = uint32(cuda.blockIdx.x * ROWS + k)
        if row < N:
            gates[k] = widen(gate_up[row, column])
            ups[k] = widen(gate_up[row, uint32(F + column)])
    for k in range(ROWS):
        row = uint32(cuda.blockIdx.x * ROWS + k)
        if row < N:
            out[row, column] = narrow(gates[k] * sigmoid(gates[k]) * ups[k])


@cuda.jit
def gradients_of_gate_and_up(dgate_up: Array, dout: Array, gate_up: Array) -> None:
    """Write both halves' gradients. What a thread writes it has read itself: dgate_up may lie over gate_up."""
    N, F = uint32(dout.shape[0]), uint32(dout.shape[1])
    column = uint32(cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
    if column >= F:
        return
    gates, ups = cuda.local.array(ROWS, float32), cuda.local.array(ROWS, float32)
    incoming = cuda.local.array(ROWS, float32)
    for k in range(ROWS):
        row = uint32(cuda.blockIdx.x * ROWS + k)
        if row < N:
            gates[k] = widen(gate_up[row, column])
            ups[k] = widen(gate_up[row, uint32(F + column)])
            incoming[k] = widen(dout[row, column])
    for k in range(ROWS):
        row = uint32(cuda.blockIdx.x * ROWS + k)
        if row < N:
            s = sigmoid(gates[k])
            a = gates[k] * s
            dgate_up[row, column] = narrow(incoming[k] * ups[k] * (s * (float32(1) - a) + a))
            dgate_up[row, uint32(F + column)] = narrow(incoming[k] * a)


def swiglu_forward(out: Array, gate_up: Array) -> None:
    """Write ``silu(gate) * up``.

    Args:
        out: (N, F), written.
        gate_up: (N, 2F), gate in the first F columns, up in the last.
    """
    grid, block = _shape(*out.shape)
    launch(silu_times_up, grid, block, out, gate_up)


def swiglu_backward(dgate_up: Array, dout: Array, gate_up: Array) -> None:
    """Write the gradient of both halves.

    Args:
        dgate_up: (N, 2F), written; may be ``gate_up`` itself.
        dout: (N, F).
        gate_up: (N, 2F), the forward's.
    """
    grid, block = _shape(*dout.shape)
    launch(gradients_of_gate_and_up, grid, block, dgate_up, dout, gate_up)


def _shape(N: int, F: int) -> tuple[tuple[int, int], int]:
    """Return grid and block for N rows of F columns; rows along x, where a grid may be long."""
    threads = whole_warps(F, THREADS)
    return (-(-N // ROWS), -(-F // threads)), threads
