"""Returns before a barrier in some threads; launched three times."""

import numpy as np
from numba import cuda, float32


@cuda.jit
def late(out, n):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    if t >= n:
        return
    s[t] = out[t]
    cuda.syncthreads()  # fault: barrier divergence
    out[t] = s[n - 1 - t]


for _ in range(3):
    late[1, 32](np.zeros(32, np.float32), 20)
