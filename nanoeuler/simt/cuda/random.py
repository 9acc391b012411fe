"""``numba.cuda.random``: the generator xoroshiro128+ by Blackman and Vigna, one state per thread, as device functions.

Sequences are those of numba-cuda; the seed is spread by SplitMix64. Source: D. Blackman, S. Vigna, "Scrambled linear
pseudorandom number generators", 2018.
"""

import math
from typing import Any

import numpy as np
from numba.core.types import float32, float64, uint32, uint64
from numba.np.numpy_support import from_dtype

from nanoeuler.simt.cuda.arrays import DeviceNDArray, device_array
from nanoeuler.simt.cuda.dispatch import jit

xoroshiro128p_dtype = np.dtype([("s0", np.uint64), ("s1", np.uint64)], align=True)
xoroshiro128p_type = from_dtype(xoroshiro128p_dtype)

TWO_PI_FLOAT32 = np.float32(2 * math.pi)
TWO_PI_FLOAT64 = np.float64(2 * math.pi)
UNIT = 2.0**-53
MASK = (1 << 64) - 1
JUMP = 0xD86B048B86AA9922BEAC0467EBA5FACB  # which of the next 128 states make up the one 2**64 steps ahead


@jit(device=True)
def xoroshiro128p_next(states: Any, index: Any) -> Any:
    """Return the next random uint64 of ``states[index]``."""
    s0 = states[index]["s0"]
    s1 = states[index]["s1"]
    result = s0 + s1
    s1 ^= s0
    states[index]["s0"] = ((s0 << uint32(55)) | (s0 >> uint32(9))) ^ s1 ^ (s1 << uint32(14))
    states[index]["s1"] = (s1 << uint32(36)) | (s1 >> uint32(28))
    return result


@jit(device=True)
def uint64_to_unit_float64(x: Any) -> Any:
    """Return a uint64 as a float64 in [0, 1)."""
    return float64(uint64(x) >> uint32(11)) * UNIT


@jit(device=True)
def uint64_to_unit_float32(x: Any) -> Any:
    """Return a uint64 as a float32 in [0, 1]: rounding may reach 1."""
    return float32(uint64_to_unit_float64(x))


@jit(device=True)
def xoroshiro128p_uniform_float32(states: Any, index: Any) -> Any:
    """Return the next float32 of ``states[index]``, uniform in [0, 1)."""
    return uint64_to_unit_float32(xoroshiro128p_next(states, index))


@jit(device=True)
def xoroshiro128p_uniform_float64(states: Any, index: Any) -> Any:
    """Return the next float64 of ``states[index]``, uniform in [0, 1)."""
    return uint64_to_unit_float64(xoroshiro128p_next(states, index))


@jit(device=True)
def xoroshiro128p_normal_float32(states: Any, index: Any) -> Any:
    """Return a normally distributed float32 (Box and Muller); it takes two steps of ``states[index]``."""
    u1 = xoroshiro128p_uniform_float32(states, index)
    u2 = xoroshiro128p_uniform_float32(states, index)
    return math.sqrt(-float32(2.0) * math.log(u1)) * math.cos(TWO_PI_FLOAT32 * u2)


@jit(device=True)
def xoroshiro128p_normal_float64(states: Any, index: Any) -> Any:
    """Return a normally distributed float64 (Box and Muller); it takes two steps of ``states[index]``."""
    u1 = xoroshiro128p_uniform_float32(states, index)
    u2 = xoroshiro128p_uniform_float32(states, index)
    return math.sqrt(-float64(2.0) * math.log(u1)) * math.cos(TWO_PI_FLOAT64 * u2)


# States, made by the host --------------------------------------------------------------------------------------------


def _next(s0: int, s1: int) -> tuple[int, int]:
    """Return the state after one step."""
    s1 ^= s0
    rotated = (s0 << 55 | s0 >> 9) & MASK
    return (rotated ^ s1 ^ (s1 << 14)) & MASK, (s1 << 36 | s1 >> 28) & MASK


def _jump(s0: int, s1: int) -> tuple[int, int]:
    """Return the state after 2**64 steps."""
    jumped = 0, 0
    for bit in range(128):
        if JUMP >> bit & 1:
            jumped = jumped[0] ^ s0, jumped[1] ^ s1
        s0, s1 = _next(s0, s1)
    return jumped


def _jump_matrix() -> np.ndarray:
    """Return what a jump makes of each bit of a state, (128, 2) uint64: a jump is linear over exclusive or."""
    return np.array([_jump(bit & MASK, bit >> 64) for bit in (1 << n for n in range(128))], np.uint64)


def _jumped(matrix: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Return ``states``, (n, 2) uint64, after the jump that ``matrix`` is."""
    after = np.zeros_like(states)
    for bit, column in enumerate(matrix):
        isolated = (states[:, bit // 64] >> np.uint64(bit % 64)) & np.uint64(1)
        after ^= isolated[:, None] * column
    return after


def _seeded(seed: int) -> int:
    """Return one number of SplitMix64."""
    z = (seed + 0x9E3779B97F4A7C15) & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def init_xoroshiro128p_states(states: Any, seed: int, subsequence_start: int = 0, stream: Any = 0) -> None:
    """Set ``states``, a device array of ``xoroshiro128p_dtype``: each is 2**64 steps ahead of the one before."""
    matrix = _jump_matrix()
    values = np.full((max(states.size, 1), 2), _seeded(seed & MASK), np.uint64)
    power = matrix
    while subsequence_start:
        if subsequence_start & 1:
            values[:1] = _jumped(power, values[:1])
        power = _jumped(power, power)
        subsequence_start >>= 1
    done = 1
    while done < len(values):  # of the states that are there, each jumps as far as there are
        values[done : 2 * done] = _jumped(matrix, values[: min(done, len(values) - done)])
        matrix = _jumped(matrix, matrix)
        done *= 2
    values = values[: states.size].view(xoroshiro128p_dtype).reshape(states.shape)
    states.copy_to_device(values, stream)


def create_xoroshiro128p_states(n: int, seed: int, subsequence_start: int = 0, stream: Any = 0) -> DeviceNDArray:
    """Return ``n`` states for as many threads, as ``init_xoroshiro128p_states`` sets them."""
    states = device_array(n, xoroshiro128p_dtype, stream=stream)
    init_xoroshiro128p_states(states, seed, subsequence_start, stream)
    return states
