"""Residual connection on the GPU: ``out = x + branch``; see :mod:`nanoeuler.cpu.residual`.

A thread takes four elements, a block's width apart, so that neighbouring threads meet neighbouring addresses and each
has several reads under way at once. 12 bytes an element forward. Backward nothing is computed: dx = dbranch = dout, 8
bytes an element for each of the two that is not ``dout`` itself.
"""

from typing import Any

from nanoeuler.gpu.backend import cuda, uint32
from nanoeuler.gpu.bfloat16 import narrow, widen
from nanoeuler.gpu.launch import launch

Array = Any

THREADS = 256  # of a block
PER_THREAD = 4  # elements


@cuda.jit
def add(out: Array, x: Array, branch: Array) -> None:
    """Write the sum of two vectors."""
    first, n = cuda.blockIdx.x * (THREADS * PER_THREAD) + cuda.threadIdx.x, out.shape[0]
    for k in range(PER_THREAD):
        i = uint32(first + k * THREADS)
        if i < n:
            out[i] = narrow(widen(x[i]) + widen(branch[i]))


@cuda.jit
def copy(out: Array, x: Array) -> None:
    """Write a vector as it is, whatever its elements are."""
    first, n = cuda.blockIdx.x * (THREADS * PER_THREAD) + cuda.threadIdx.x, out.shape[0]
    for k in range(PER_THREAD):
        i = uint32(first + k * THREADS)
        if i < n:
            out[i] = x[i]


def residual_forward(out: Array, x: Array, branch: Array) -> None:
    """Write ``x + branch``.

    Args:
        out: any shape, written; may be ``x`` or ``branch`` itself.
        x: as ``out``.
        branch: as ``out``.
    """
    launch(add, -(-out.size // (THREADS * PER_THREAD)), THREADS, out.reshape(-1), x.reshape(-1), branch.reshape(-1))


def residual_backward(dx: Array, dbranch: Array, dout: Array) -> None:
    """Write the gradient of both terms, which is ``dout``.

    Args:
        dx: as ``dout``, written; may be ``dout`` itself, and then nothing is copied.
        dbranch: as ``dout``, written; may be ``dout`` itself.
        dout: any shape.
    """
    for target in (dx, dbranch):
        if target is not dout:
            launch(copy, -(-dout.size // (THREADS * PER_THREAD)), THREADS, target.reshape(-1), dout.reshape(-1))
