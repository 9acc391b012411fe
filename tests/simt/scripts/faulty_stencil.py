"""Adds neighbours: reads before the first element, and computes in float64."""

import numba
import numpy as np


@numba.cuda.jit("void(float32[:], float32[:])")
def smooth(out, x):
    i = numba.cuda.grid(1)
    if i < x.size - 1:
        out[i] = (x[i - 1] + x[i + 1]) * 0.1  # fault: negative index, float64


x = np.ones(40, np.float32)
out = np.zeros_like(x)
smooth[2, 32](out, x)
