"""Residual connection on the GPU: ``out = x + branch``; see :mod:`nanoeuler.cpu.residual`.

A thread takes four elements, a block's width apart, so that neighbouring threads meet neighbouring addresses and each
has several reads under way at once. 12 bytes an element forward. Backward nothing is computed: dx = dbranch = dout,
copied (:mod:`nanoeuler.gpu.memory`) at 8 bytes an element to each of the two that is not ``dout`` itself.
"""

from typing import Any

from nanoeuler.gpu.backend import cuda, int64
from nanoeuler.gpu.bfloat16 import narrow, widen
from nanoeuler.gpu.launch import launch
from nanoeuler.gpu.memory import copy

Array = Any

THREADS = 256  # of a block
PER_THREAD = 4  # elements


@cuda.jit
def add(out: Array, x: Array, branch: Array) -> None:
    """Write the sum of two vectors."""
    first = int64(cuda.blockIdx.x) * (THREADS * PER_THREAD) + cuda.threadIdx.x
    for k in range(PER_THREAD):
        i = first + k * THREADS
        if i < out.shape[0]:
            out[i] = narrow(widen(x[i]) + widen(branch[i]))


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
            copy(target.reshape(-1), dout.reshape(-1))
