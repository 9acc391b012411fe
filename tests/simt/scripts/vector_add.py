"""Adds two vectors, each thread one element, and again with device arrays and a grid-stride loop."""

import numpy as np
from numba import cuda


@cuda.jit
def add(out, x, y):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


@cuda.jit
def add_strided(out, x, y):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = x[i] + y[i]


n = 1000
x = np.arange(n, dtype=np.float32)
y = np.full_like(x, 2)
out = np.zeros_like(x)
add[-(-n // 128), 128](out, x, y)
np.testing.assert_array_equal(out, x + y)

device_x, device_y = cuda.to_device(x), cuda.to_device(y)
device_out = cuda.device_array_like(device_x)
add_strided[2, 64](device_out, device_x, device_y)
np.testing.assert_array_equal(device_out.copy_to_host(), x + y)

add.forall(n)(device_out, device_y, device_y)
print("sum", device_out.copy_to_host().sum())
