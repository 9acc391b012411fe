"""Counts values in bins: in shared memory first, then by atomics in global memory. The shared size is dynamic."""

import numpy as np
from numba import cuda, int32


@cuda.jit
def histogram(counts, values, low, width):
    local = cuda.shared.array(0, int32)
    for b in range(cuda.threadIdx.x, counts.size, cuda.blockDim.x):
        local[b] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        b = int((values[i] - low) / width)
        if b >= 0 and b < counts.size:
            cuda.atomic.add(local, b, 1)
    cuda.syncthreads()
    for b in range(cuda.threadIdx.x, counts.size, cuda.blockDim.x):
        cuda.atomic.add(counts, b, local[b])


values = np.random.default_rng(1).random(500).astype(np.float32)
counts = np.zeros(10, np.int32)
histogram[3, 32, 0, counts.nbytes](counts, values, np.float32(0), np.float32(0.1))
assert counts.sum() == values.size
print("counts", counts)
