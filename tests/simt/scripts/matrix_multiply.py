"""Multiplies two matrices by tiles in shared memory; the sizes fill no whole tile."""

import numpy as np
from numba import cuda, float32

TILE = 8


@cuda.jit
def multiply(A, B, C):
    a = cuda.shared.array(shape=(TILE, TILE), dtype=float32)
    b = cuda.shared.array(shape=(TILE, TILE), dtype=float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range((A.shape[1] + TILE - 1) // TILE):
        a[ty, tx] = float32(0)
        b[ty, tx] = float32(0)
        if y < A.shape[0] and tx + tile * TILE < A.shape[1]:
            a[ty, tx] = A[y, tx + tile * TILE]
        if x < B.shape[1] and ty + tile * TILE < B.shape[0]:
            b[ty, tx] = B[ty + tile * TILE, x]
        cuda.syncthreads()
        for k in range(TILE):
            total += a[ty, k] * b[k, tx]
        cuda.syncthreads()
    if y < C.shape[0] and x < C.shape[1]:
        C[y, x] = total


A = np.arange(11 * 13, dtype=np.float32).reshape(11, 13) % 7
B = np.arange(13 * 9, dtype=np.float32).reshape(13, 9) % 5
C = cuda.device_array((11, 9), np.float32)
multiply[(2, 2), (TILE, TILE)](cuda.to_device(A), cuda.to_device(B), C)
np.testing.assert_array_equal(C.copy_to_host(), A @ B)
print("product", C.shape)
