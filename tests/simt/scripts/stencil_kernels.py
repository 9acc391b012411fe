"""Kernels that another script imports; running this file by itself launches nothing."""

from numba.cuda import grid, jit, libdevice
from numba.cuda.libdevice import fabsf


@jit(device=True)
def neighbour(x, i):
    return fabsf(x[i + 1])  # fault: out of bounds


@jit
def shifted(out, x):
    i = grid(1)
    if i < x.size:
        out[i] = libdevice.sqrtf(neighbour(x, i))


@jit
def idle(out):
    out[0] = 1
