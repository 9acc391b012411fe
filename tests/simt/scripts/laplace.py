"""Solves Laplace's equation by Jacobi's method: two buffers change places, launch after launch, on a stream."""

import numpy as np
from numba import cuda, float32

QUARTER = float32(0.25)


@cuda.jit
def step(new, old):
    i, j = cuda.grid(2)
    rows, columns = old.shape
    if i >= rows or j >= columns:
        return
    if i == 0 or j == 0 or i == rows - 1 or j == columns - 1:
        new[i, j] = old[i, j]
    else:
        new[i, j] = QUARTER * (old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1])


start = np.zeros((12, 10), np.float32)
start[:, 0] = 1
stream = cuda.stream()
begin, end = cuda.event(), cuda.event()
with stream.auto_synchronize():
    old = cuda.to_device(start, stream=stream)
    new = cuda.device_array_like(old, stream=stream)
    begin.record(stream)
    for _ in range(30):
        step[(2, 2), (8, 8), stream](new, old)
        old, new = new, old
    end.record(stream)
end.synchronize()
assert begin.elapsed_time(end) > 0
result = old.copy_to_host(stream=stream)
assert 0.3 < result[6, 1] < 1
print("middle", result[6, 5] > 0)
