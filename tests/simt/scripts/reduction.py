"""Sums an array three ways: a tree in shared memory, shuffles inside warps, and ``cuda.reduce``."""

import numpy as np
from numba import cuda, int32

THREADS = 64


@cuda.jit
def sum_tree(out, x):
    s = cuda.shared.array(THREADS, int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    s[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            s[t] += s[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        cuda.atomic.add(out, 0, s[0])


@cuda.jit
def sum_warps(out, x):
    i = cuda.grid(1)
    value = int32(0)
    if i < x.size:
        value = x[i]
    for shift in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, shift)
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, value)


@cuda.reduce
def add(a, b):
    return a + b


x = np.arange(300, dtype=np.int32)
blocks = -(-x.size // THREADS)
for kernel in (sum_tree, sum_warps):
    out = np.zeros(1, np.int32)
    kernel[blocks, THREADS](out, x)
    assert out[0] == x.sum()
assert add(x) == x.sum()
assert add(x, init=5) == x.sum() + 5
print("sum", x.sum())
