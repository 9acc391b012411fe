"""Estimates pi with a random generator for each thread."""

import numpy as np
from numba import cuda, float32
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32


@cuda.jit
def count(inside, states, rounds):
    i = cuda.grid(1)
    if i >= inside.size:
        return
    hits = 0
    for _ in range(rounds):
        x = xoroshiro128p_uniform_float32(states, i)
        y = xoroshiro128p_uniform_float32(states, i)
        if x * x + y * y <= float32(1):
            hits += 1
    inside[i] = hits


inside = np.zeros(50, np.int32)
count[2, 32](inside, create_xoroshiro128p_states(64, seed=7), 20)
pi = 4 * inside.sum() / (inside.size * 20)
print("pi is about", pi)
assert 2.9 < pi < 3.4
