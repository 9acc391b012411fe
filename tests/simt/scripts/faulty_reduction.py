"""Sums a block's elements, and forgets the barrier in the loop."""

import numba.cuda as nc
import numpy as np
from numba import float32

THREADS = 64


@nc.jit
def total(out, x):
    s = nc.shared.array(THREADS, float32)
    t = nc.threadIdx.x
    s[t] = x[t]
    nc.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            s[t] += s[t + half]  # fault: race
        half //= 2
    if t == 0:
        out[0] = s[0]


out = np.zeros(1, np.float32)
total[1, THREADS](out, np.ones(THREADS, np.float32))
print("went on")
