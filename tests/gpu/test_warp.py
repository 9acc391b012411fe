"""Sums and maxima over warps and blocks, of one warp to 32."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import every_run
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.gpu.backend import cuda, float32
from nanoeuler.gpu.variant import variant
from nanoeuler.gpu.warp import MAX_WARPS, WARP, block_max, block_sum, warp_max, warp_sum, whole_warps

some_warps = pytest.mark.parametrize("warps", [1, 2, 3, 31, 32])


@cuda.jit
def of_warps(sums: Any, maxima: Any, x: Any) -> None:
    """Write, for each thread, what its warp gave it; blocks of one or two dimensions."""
    i = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    sums[i] = warp_sum(x[i])
    maxima[i] = warp_max(x[i])


@cuda.jit
def of_blocks(sums: Any, maxima: Any, x: Any) -> None:
    """Write, for each thread, what its block gave it, of one piece of shared memory for all four reductions."""
    partial = cuda.shared.array(MAX_WARPS, float32)
    i = cuda.grid(1)
    sums[i] = block_sum(x[i], partial)
    maxima[i] = block_max(x[i], partial)
    maxima[i] = max(maxima[i], block_max(x[i] - float32(1), partial))
    sums[i] += block_sum(x[i], partial)


MUTANTS = [
    ("for step in (16, 8, 4, 2, 1):\n        value += ", "for step in (16, 8, 4, 2):\n        value += "),
    ("value = max(value, cuda.shfl", "value = max(float32(0), cuda.shfl"),
    ("    cuda.syncthreads()  # whoever used ``partial`` before has read it\n", ""),
    ("partial[thread // WARP] = total\n    cuda.syncthreads()", "partial[thread // WARP] = total"),
    ("partial[lane] if lane < warps else float32(0)", "partial[lane] if lane <= warps else float32(0)"),
    ("largest = warp_max(value)\n    cuda.syncthreads()", "largest = warp_max(value)"),
    ("partial[thread // WARP] = largest\n    cuda.syncthreads()", "partial[thread // WARP] = largest"),
    ("partial[lane] if lane < warps else partial[0]", "partial[lane] if lane < warps else float32(0)"),
]


def attempt(warps: int, module: Any, executor: Any) -> None:
    """Reduce negative numbers with another module's functions in the place of those of this project."""
    x = normal(WARP * warps) - np.float32(5)
    names = {name: getattr(module, name) for name in ("warp_sum", "warp_max", "block_sum", "block_max")}
    sums, maxima = reduced(variant(of_warps, **names), x, executor)
    rows = x.reshape(-1, WARP)
    np.testing.assert_allclose(sums.reshape(-1, WARP), np.broadcast_to(rows.sum(1)[:, None], rows.shape), rtol=1e-5)
    assert (maxima.reshape(-1, WARP) == rows.max(1)[:, None]).all()
    sums, maxima = reduced(variant(of_blocks, **names), x, executor)
    np.testing.assert_allclose(sums, np.full_like(x, 2 * x.sum()), rtol=1e-5)
    assert (maxima == x.max()).all()


ATTEMPTS = [partial(attempt, warps) for warps in (1, 3)]


def reduced(
    kernel: Any, x: np.ndarray, executor: Any = "compiled", order: Any = "forward", grid: int = 1, block: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    if executor == "ptx":
        need_toolkit()
    sums, maxima = np.full_like(x, np.nan), np.full_like(x, np.nan)
    simt.run(kernel, grid, block or x.size // grid, (sums, maxima, x), executor=executor, order=order, seed=1)
    return sums, maxima


def normal(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal(n).astype(np.float32)


@every_run
@pytest.mark.parametrize("block", [(32, 1), (96, 1), (32, 3), (16, 4)])
def test_every_lane_has_its_warps(block: tuple[int, int], executor: Any, order: Any) -> None:
    x = normal(block[0] * block[1])
    sums, maxima = reduced(of_warps, x, executor, order, block=block)
    warps = x.reshape(-1, WARP)
    np.testing.assert_allclose(sums.reshape(-1, WARP), np.broadcast_to(warps.sum(1)[:, None], warps.shape), rtol=1e-5)
    assert (maxima.reshape(-1, WARP) == warps.max(1)[:, None]).all()


@every_run
@some_warps
def test_every_thread_has_its_blocks(warps: int, executor: Any, order: Any) -> None:
    x = normal(WARP * warps)
    sums, maxima = reduced(of_blocks, x, executor, order)
    np.testing.assert_allclose(sums, np.full_like(x, 2 * x.sum(dtype=np.float64)), rtol=1e-4, atol=1e-5)
    assert (sums == sums[0]).all()
    assert (maxima == x.max()).all()


@some_warps
def test_every_number_of_warps_counts_every_element_once(warps: int) -> None:
    """Small whole numbers add up exactly."""
    x = np.arange(WARP * warps, dtype=np.float32) % 61
    assert (reduced(of_blocks, x)[0] == 2 * x.sum()).all()


@some_warps
def test_blocks_do_not_mix(warps: int) -> None:
    x = np.arange(3 * WARP * warps, dtype=np.float32) % 61
    blocks = x.reshape(3, -1)
    sums, maxima = reduced(of_blocks, x, grid=3)
    assert (sums.reshape(3, -1) == 2 * blocks.sum(1)[:, None]).all()
    assert (maxima.reshape(3, -1) == blocks.max(1)[:, None]).all()


@some_warps
@pytest.mark.parametrize("lane", [0, 31, -1])
def test_one_element_is_found_wherever_it_is(warps: int, lane: int) -> None:
    x = np.full(WARP * warps, -5, np.float32)  # the largest is negative: 0 of a lane with no warp must not win
    x[lane] = -2
    assert (reduced(of_blocks, x)[1] == -2).all()


@pytest.mark.parametrize("warps", [1, 5])
def test_minus_infinity_is_a_maximum_and_infinity_a_sum(warps: int) -> None:
    x = np.full(WARP * warps, -np.inf, np.float32)
    sums, maxima = reduced(of_blocks, x)
    assert (maxima == -np.inf).all()
    assert (sums == -np.inf).all()


def test_a_sum_with_nan_is_nan_and_a_maximum_passes_over_it() -> None:
    """As the machine's own ``max`` does."""
    x = normal(64)
    x[40] = np.nan
    sums, maxima = reduced(of_blocks, x)
    assert np.isnan(sums).all()
    assert (maxima == np.nanmax(x)).all()


def test_the_bits_are_those_of_every_order_of_the_threads() -> None:
    x = normal(WARP * 7)
    sums = [reduced(of_blocks, x, order=order)[0] for order in ("forward", "reverse", "random")]
    assert (sums[1] == sums[0]).all()
    assert (sums[2] == sums[0]).all()


def test_a_block_has_whole_warps() -> None:
    assert [whole_warps(n, 256) for n in (1, 32, 33, 256, 1000)] == [32, 32, 64, 256, 256]
