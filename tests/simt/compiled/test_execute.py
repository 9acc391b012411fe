"""The compiled executor: what waiting calls become, memory, numbers as on a GPU, faults, and the cache on disk."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import complex64, cuda, float32, float64, int8, int32, int64, types, uint32, uint64
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt import faults
from nanoeuler.simt.compiled import rewrite as rewrite_module
from nanoeuler.simt.compiled.build import build
from nanoeuler.simt.compiled.cache import fingerprint
from nanoeuler.simt.compiled.rewrite import HELPERS, rewrite
from nanoeuler.simt.faults import KernelFaults, UnsupportedError

FULL = 0xFFFFFFFF
float16 = types.float16


def launched(kernel: Any, *args: Any, grid: Any = 1, block: Any = 32, **options: Any) -> None:
    simt.run(kernel, grid, block, args, **options)


# Waiting calls in every position ------------------------------------------------------------------------------------


@cuda.jit(device=True)
def warp_sum(value, width=32):
    step = width // 2
    while step > 0:
        value += cuda.shfl_xor_sync(FULL, value, step)
        step //= 2
    return value


@cuda.jit(device=True)
def first_above(x, limit):
    """Several returns, some from inside loops, each after a barrier or not."""
    if limit < 0:
        return int32(-2)
    for row in range(x.shape[0]):
        cuda.syncthreads()
        for column in range(x.shape[1]):
            if x[row, column] > limit:
                return int32(row * x.shape[1] + column)
    return int32(-1)


@pytest.mark.parametrize("limit", [-1.0, 2.5, 6.5, 100.0])
def test_a_waiting_device_function_may_return_from_anywhere(limit: float) -> None:
    def kernel(out: Any, x: Any, limit: Any) -> None:
        i = cuda.threadIdx.x
        out[i] = first_above(x, limit) + first_above(x, limit) * 100

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    out = np.zeros(40, np.int64)
    launched(kernel, out, x, np.float32(limit), block=40)
    position = -2 if limit < 0 else int(np.argmax(x > limit)) if limit < 11 else -1
    assert (out == position * 101).all()


def test_arguments_of_a_waiting_device_function_by_keyword_and_default() -> None:
    def kernel(out: Any) -> None:
        i = cuda.threadIdx.x
        out[i] = warp_sum(width=8, value=int32(i)) + 1000 * warp_sum(int32(1))

    out = np.zeros(32, np.int32)
    launched(kernel, out)
    assert (out == np.arange(32).reshape(4, 8).sum(1).repeat(8) + 32000).all()


def test_waiting_calls_in_conditions_and_expressions() -> None:
    def kernel(out: Any, x: Any) -> None:
        i = cuda.threadIdx.x
        rounds = 0
        while cuda.any_sync(FULL, x[i] > rounds):
            rounds += 1
            if rounds == 3:
                continue
        else:
            out[i, 0] = rounds
        out[i, 1] = 7 if cuda.all_sync(FULL, x[i] >= 0) and cuda.ballot_sync(FULL, i < 4) == 15 else 8
        out[i, 2] = 1 if x[0] > 100 and cuda.any_sync(FULL, True) else 2
        out[i, 3] = x[i] + warp_sum(int32(i)) * (x[i] + cuda.shfl_sync(FULL, int32(i), 3))
        for _ in range(cuda.shfl_sync(FULL, int32(i), 2)):
            out[i, 4] += warp_sum(int32(1))
        if not cuda.all_sync(FULL, i != 5):
            out[i, 5] = max(cuda.shfl_up_sync(FULL, int32(i), 1), cuda.shfl_down_sync(FULL, int32(i), 2), 9)

    x = np.arange(32, dtype=np.int32) % 7
    out = np.zeros((32, 6), np.int64)
    launched(kernel, out, x)
    i = np.arange(32)
    assert (out[:, 0] == 6).all()
    assert (out[:, 1] == 7).all()
    assert (out[:, 2] == 2).all()
    assert (out[:, 3] == x + 496 * (x + 3)).all()
    assert (out[:, 4] == 64).all()
    assert (out[:, 5] == np.maximum(np.maximum(np.maximum(i - 1, 0), np.where(i < 30, i + 2, i)), 9)).all()


def test_an_operand_is_read_before_the_call_that_waits() -> None:
    """Python reads ``x[0]`` before it calls; another thread changes it while this one waits."""

    def kernel(out: Any, x: Any) -> None:
        i = cuda.threadIdx.x
        out[i] = x[0] + warp_sum(int32(0))
        cuda.syncwarp()
        x[0] = 5

    out = np.zeros(32, np.int32)
    launched(kernel, out, np.array([3], np.int32))
    assert (out == 3).all()


def test_nested_waiting_device_functions_and_constants_of_other_scopes() -> None:
    weight = np.float32(3)

    @cuda.jit(device=True)
    def weighted(value):
        return warp_sum(value) * weight

    def kernel(out: Any) -> None:
        weight = int32(2)
        out[cuda.threadIdx.x] = weighted(float32(1)) + weight

    out = np.zeros(32, np.float32)
    launched(kernel, out)
    assert (out == 98).all()


def test_waiting_calls_in_the_place_that_is_assigned_to() -> None:
    def kernel(out: Any) -> None:
        i = cuda.threadIdx.x
        out[cuda.shfl_xor_sync(FULL, int32(i), 1), 0] = i
        out[31 - cuda.shfl_xor_sync(FULL, int32(i), 1), 1] += warp_sum(int32(1))
        out[warp_sum(int32(0)) + i, 2] = warp_sum(int32(i))

    out = np.ones((32, 3), np.int32)
    launched(kernel, out)
    i = np.arange(32)
    assert (out == np.stack([i ^ 1, np.full(32, 33), np.full(32, 496)], 1)).all()


def test_max_of_three_compares_as_numba_cuda_does() -> None:
    def kernel(out: Any, x: Any) -> None:
        out[0], out[1] = max(x[0], float32(1), float32(0)), max(x[0], float32(1))

    out = np.zeros(2, np.float32)
    launched(kernel, out, np.array([np.nan], np.float32), block=1)
    assert np.isnan(out[0])
    assert out[1] == 1


def test_augmented_assignment_around_a_waiting_call_reads_its_target_first() -> None:
    def kernel(out: Any) -> None:
        i = cuda.threadIdx.x
        out[i] += warp_sum(int32(i))
        out[i] <<= 1

    out = np.full(32, 4, np.int64)
    launched(kernel, out)
    assert (out == 1000).all()


# Memory -------------------------------------------------------------------------------------------------------------


def test_shared_arrays_are_one_per_call_site_and_local_ones_one_per_thread() -> None:
    def kernel(out: Any) -> None:
        i = cuda.threadIdx.x
        a, b = cuda.shared.array(64, int32), cuda.shared.array((8, 8), int32)
        own = cuda.local.array(shape=3, dtype=int64)
        a[i], b[i // 8, i % 8] = i, 100 + i
        for k in range(3):
            own[k] = i * 10 + k
        cuda.syncthreads()
        out[i, 0], out[i, 1], out[i, 2] = a[63 - i], b[7 - i // 8, 7 - i % 8], own[2]

    out = np.zeros((64, 3), np.int64)
    launched(kernel, out, block=64)
    i = np.arange(64)
    assert (out == np.stack([63 - i, 163 - i, i * 10 + 2], 1)).all()


def test_memory_starts_as_bytes_of_255_in_every_block() -> None:
    def kernel(out: Any) -> None:
        s, own = cuda.shared.array(4, int8), cuda.local.array(4, float32)
        i = cuda.grid(1)
        out[i, 0], out[i, 1] = s[i % 4], own[0]
        cuda.syncthreads()
        s[i % 4], own[0] = 1, 2

    out = np.zeros((12, 2))
    launched(kernel, out, grid=3, block=4)
    assert (out[:, 0] == -1).all()
    assert np.isnan(out[:, 1]).all()


def test_dynamic_shared_memory_is_one_piece_under_all_its_arrays() -> None:
    def kernel(out: Any) -> None:
        whole, bytes_ = cuda.shared.array(0, float32), cuda.shared.array(0, int8)
        i = cuda.threadIdx.x
        half = whole[4:]
        if i < 4:
            whole[i], half[i] = i, 10 + i
        cuda.syncthreads()
        out[i] = whole[i] + 1000 * bytes_.size + 0 * bytes_[0]

    out = np.zeros(8, np.float32)
    launched(kernel, out, block=8, shared_bytes=32)
    assert (out == np.array([0, 1, 2, 3, 10, 11, 12, 13]) + 32000).all()


def test_arguments_of_any_layout_and_kind() -> None:
    def kernel(out: Any, x: Any, pair: Any, flag: Any, z: Any) -> None:
        i = cuda.threadIdx.x
        if flag:
            out[i] = x[i] * pair[0] + pair[1] + z[i].real

    base = np.arange(24, dtype=np.float32)
    out = np.zeros((3, 12), np.float32)
    for row, x in enumerate((base[::2], base[::-1], np.asfortranarray(base.reshape(2, 12))[1])):
        z = np.arange(12).astype(np.complex64)
        launched(kernel, out[row], x, (np.float32(2), 1), True, z, block=12)
        assert (out[row] == x[:12] * 2 + 1 + np.arange(12)).all()


# Numbers as on a GPU ------------------------------------------------------------------------------------------------


def test_types_are_those_of_cuda() -> None:
    """float32 stays float32: the sum of 1 and 1e-8 shows it. Indices of CUDA are int32, and int32 + int32 is int64."""

    def kernel(out: Any, wide: Any, x: Any) -> None:
        i = cuda.threadIdx.x
        out[0] = (x[0] + float32(1e-8)) - float32(1)
        out[1] = (x[0] + 1e-8) - 1
        wide[0] = int32(2**31 - 1) + int32(1)
        wide[1] = int32(int32(2**31 - 1) + int32(1))
        wide[2] = uint32(2**32 - 1) + uint32(1)
        wide[3] = uint32(uint32(2**32 - 1) * uint32(3))
        wide[4] = int64(2**62) * 4
        wide[5] = i - 1

    out, wide = np.zeros(2), np.zeros(6, np.int64)
    launched(kernel, out, wide, np.ones(1, np.float32), block=1)
    assert out[0] == 0
    assert out[1] == pytest.approx(1e-8)
    assert wide.tolist() == [2**31, -(2**31), 2**32, 2**32 - 3, 0, -1]


def test_floats_become_integers_with_saturation() -> None:
    """PTX ISA, cvt: NaN is 0, or the top bit of 64; to 8 bits by way of 16. Casts that nobody wrote do the same."""

    def kernel(out: Any, narrow: Any, x: Any) -> None:
        i = cuda.threadIdx.x
        v = x[i]
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = int32(v), int8(v), int(v), uint32(v)
        narrow[i] = v

    x = np.array([1.9, -1.9, 1e20, -1e20, np.nan, np.inf, -np.inf, 2**31, 2**63, 300], np.float32)
    out, narrow = np.zeros((10, 4), np.int64), np.zeros(10, np.int32)
    launched(kernel, out, narrow, x, block=10)
    low, high = -(2**31), 2**31 - 1
    assert out[:, 0].tolist() == narrow.tolist() == [1, -1, high, low, 0, high, low, high, high, 300]
    assert out[:, 1].tolist() == [1, -1, -1, 0, 0, -1, 0, -1, -1, 44]
    assert out[:, 2].tolist() == [1, -1, 2**63 - 1, low << 32, low << 32, 2**63 - 1, low << 32, 2**31, 2**63 - 1, 300]
    assert out[:, 3].tolist() == [1, 0, 2**32 - 1, 0, 0, 2**32 - 1, 0, 2**31, 2**32 - 1, 300]


EDGES = [0.0, -0.0, 1.5, -1.5, 127.9, 128, -129, 255, 256, 300, -200, 32767.5, 65535.5, 65504, 70000, 2.0**31, 2.0**32]
EDGES += [-(2.0**31) - 1, 2.0**63, 2.0**64, -(2.0**63), 1e30, -1e30, np.nan, np.inf, -np.inf]


@pytest.mark.slow
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
def test_conversions_are_those_of_the_gpu(source: Any) -> None:
    """Every integer type, by a cast and by a store, against what NVIDIA's compiler makes of the same kernel."""
    need_toolkit()

    def kernel(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, wide: Any, x: Any) -> None:
        i = cuda.threadIdx.x
        v = x[i]
        a[i], b[i], c[i], d[i], e[i], f[i], g[i], h[i] = v, v, v, v, v, v, v, v
        wide[i, 0], wide[i, 1], wide[i, 2], wide[i, 3] = int8(v), int32(v), int64(v), int(v)
        wide[i, 4], wide[i, 5] = uint32(v), max(int32(v), 5)

    with np.errstate(over="ignore"):
        x = np.array(EDGES).astype(source)
    kinds = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
    results = []
    for executor in ("compiled", "ptx"):
        arrays = (*(np.zeros(x.size, kind) for kind in kinds), np.zeros((x.size, 6), np.int64))
        simt.run(kernel, 1, x.size, (*arrays, x), executor=executor)
        results.append(arrays)
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_zeros_have_an_order() -> None:
    def kernel(out: Any, x: Any) -> None:
        out[0], out[1] = min(x[0], x[1]), min(x[1], x[0])
        out[2], out[3] = max(x[0], x[1]), max(x[1], x[0])

    out = np.zeros(4, np.float32)
    launched(kernel, out, np.array([-0.0, 0.0], np.float32), block=1)
    assert np.signbit(out).tolist() == [True, True, False, False]


def test_shifts_clamp_their_counts() -> None:
    def kernel(out: Any, x: Any, count: Any) -> None:
        i = cuda.threadIdx.x
        n = count[i]
        out[i, 0], out[i, 1], out[i, 2] = x[0] << n, x[0] >> n, x[1] >> n

    count = np.array([0, 1, 63, 64, 1000], np.int64)
    out = np.zeros((5, 3), np.int64)
    launched(kernel, out, np.array([5, -8]), count, block=5)
    assert out[:, 0].tolist() == [5, 10, -(2**63), 0, 0]
    assert out[:, 1].tolist() == [5, 2, 0, 0, 0]
    assert out[:, 2].tolist() == [-8, -4, -1, -1, -1]


def test_min_and_max_pass_over_nan_and_nothing_raises() -> None:
    def kernel(out: Any, x: Any) -> None:
        i = cuda.threadIdx.x
        out[i, 0], out[i, 1] = max(x[i], float32(1)), min(float32(1), x[i])
        out[i, 2], out[i, 3] = math.exp(x[i] * float32(1000)), math.log(x[i] - x[i])
        out[i, 4], out[i, 5] = float32(1) / (x[i] - x[i]), i // (i - i)

    x = np.array([2, np.nan, -3], np.float32)
    out = np.zeros((3, 6), np.float32)
    launched(kernel, out, x, block=3)
    assert out[:, 0].tolist() == [2, 1, 1]
    assert out[:, 1].tolist() == [1, 1, -3]
    assert out[0, 2:5].tolist() == [np.inf, -np.inf, np.inf]
    assert out[2, 2] == 0
    assert (out[:, 5] == 0).all()


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
def test_functions_on_bits(kind: Any) -> None:
    def kernel(out: Any, x: Any) -> None:
        i = cuda.threadIdx.x
        out[i, 0], out[i, 1], out[i, 2] = cuda.popc(x[i]), cuda.clz(x[i]), cuda.ffs(x[i])

    bits = np.dtype(kind).itemsize * 8
    x = np.array([0, 1, 6, np.iinfo(kind).max, np.iinfo(kind).min], kind)
    out = np.zeros((5, 3), np.int64)
    launched(kernel, out, x, block=5)
    patterns = [int(v) & (2**bits - 1) for v in x]
    assert out[:, 0].tolist() == [p.bit_count() for p in patterns]
    assert out[:, 1].tolist() == [bits - p.bit_length() for p in patterns]
    assert out[:, 2].tolist() == [(p & -p).bit_length() for p in patterns]


def test_fma_is_rounded_once_and_brev_selp_cbrt() -> None:
    def kernel(out: Any, x: Any) -> None:
        out[0] = cuda.fma(x[0], x[0], -x[0] * x[0])
        out[1], out[2] = cuda.brev(uint32(1)), cuda.selp(x[0] > 2, int32(1), int32(2))
        out[3] = cuda.cbrt(x[1])

    x = np.array([1 + 2**-12, 27], np.float32)
    out = np.zeros(4)
    launched(kernel, out, x, block=1)
    assert out.tolist() == [2.0**-24, 2**31, 2, 3]


def test_float16_is_stored_cast_and_computed_with() -> None:
    def kernel(out: Any, x: Any, wide: Any) -> None:
        i = cuda.threadIdx.x
        s = cuda.shared.array(64, float16)
        s[i] = x[i]
        out[i, 0], out[i, 1] = s[i], x[i] * x[i] + x[i]
        out[i, 2], out[i, 3] = float32(x[i]) * float32(3), wide[i]

    generator = np.random.default_rng(0)
    x = generator.standard_normal(64).astype(np.float16)
    wide = generator.standard_normal(64) * 10.0 ** generator.integers(-9, 5, 64)
    wide[:4] = [65519.999999, 65520, 1 + 2**-11 + 2**-40, np.nan]
    out = np.zeros((64, 4), np.float16)
    launched(kernel, out, x, wide, block=64)
    with np.errstate(over="ignore"):
        expected = np.stack([x, x * x + x, (x.astype(np.float32) * 3).astype(np.float16), wide.astype(np.float16)], 1)
    np.testing.assert_array_equal(out, expected)


def test_vectors_take_scalars_and_vectors() -> None:
    def kernel(out: Any, x: Any) -> None:
        v = cuda.float32x4(x[0], cuda.float2(1, 2), 3)
        w = cuda.uchar2(300, v.y)
        out[0], out[1], out[2], out[3], out[4], out[5] = v.x, v.y, v.z, v.w, w.x, w.y

    out = np.zeros(6)
    launched(kernel, out, np.array([0.1]), block=1)
    assert out.tolist() == [np.float32(0.1), 1, 2, 3, 44, 1]


def test_complex_and_bool() -> None:
    def kernel(out: Any, z: Any, mask: Any) -> None:
        i = cuda.threadIdx.x
        out[i] = z[i] * complex64(1j) if mask[i] else z[i] - 1

    z, mask = np.array([1 + 2j, 3 - 1j], np.complex64), np.array([True, False])
    out = np.zeros(2, np.complex64)
    launched(kernel, out, z, mask, block=2)
    assert out.tolist() == [-2 + 1j, 2 - 1j]


# Faults -------------------------------------------------------------------------------------------------------------


def fault_of(kernel: Any, *args: Any, **options: Any) -> faults.Fault:
    with pytest.raises(KernelFaults) as caught:
        launched(kernel, *args, **options)
    (fault,) = caught.value.faults
    return fault


def line(kernel: Any, offset: int) -> int:
    return int(kernel.__code__.co_firstlineno) + offset


def test_a_barrier_that_part_of_the_block_misses() -> None:
    def kernel(out: Any) -> None:
        if cuda.threadIdx.x < 40:
            cuda.syncthreads()

    fault = fault_of(kernel, np.zeros(1), grid=2, block=64, order="reverse")
    assert (fault.kind, fault.line) == (faults.BARRIER_DIVERGENCE, line(kernel, 2))
    assert fault.parties[0].block == (1, 0, 0)
    assert "40 of 64 threads wait" in fault.message
    assert "24 have returned" in fault.message


def test_two_barriers_at_once() -> None:
    def kernel(out: Any) -> None:
        if cuda.threadIdx.x < 8:
            cuda.syncthreads()
        else:
            cuda.syncthreads()

    fault = fault_of(kernel, np.zeros(1))
    assert fault.kind == faults.BARRIER_DIVERGENCE
    assert [p.line for p in fault.parties] == [line(kernel, 2), line(kernel, 4)]


def test_a_shuffle_that_a_lane_of_its_mask_misses() -> None:
    def kernel(out: Any) -> None:
        if cuda.laneid < 8:
            out[0] = cuda.shfl_sync(FULL, int32(1), 0)
        cuda.syncthreads()

    fault = fault_of(kernel, np.zeros(1))
    assert (fault.kind, fault.line) == (faults.MISSING_LANES, line(kernel, 2))


def test_lanes_that_have_returned_may_be_named_but_not_read_from() -> None:
    def votes(out: Any) -> None:
        i = cuda.threadIdx.x
        if i >= 20:
            return
        out[i] = cuda.ballot_sync(FULL, True)

    def reads(out: Any) -> None:
        i = cuda.threadIdx.x
        if i >= 20:
            return
        out[i] = cuda.shfl_down_sync(FULL, int32(i), 1)

    out = np.zeros(32, np.int64)
    launched(votes, out)
    assert (out[:20] == 2**20 - 1).all()
    fault = fault_of(reads, out)
    assert (fault.kind, fault.line, fault.parties[0].thread) == (faults.MISSING_LANES, line(reads, 4), (19, 0, 0))


def test_masks_that_disagree() -> None:
    def kernel(out: Any) -> None:
        i = cuda.threadIdx.x
        out[i] = cuda.any_sync(FULL if i % 2 else 0x0000FFFF, True)

    assert fault_of(kernel, np.zeros(32)).kind == faults.MISSING_LANES


@pytest.mark.parametrize("waits", [False, True])
def test_an_index_out_of_bounds_never_reaches_memory(waits: bool) -> None:
    def kernel(out: Any) -> None:
        if waits:
            cuda.syncthreads()
        out[cuda.threadIdx.x + 1] = 1

    fault = fault_of(kernel, np.zeros(32))
    assert (fault.kind, fault.parties[0].thread) == (faults.OUT_OF_BOUNDS, (31, 0, 0))
    assert 'executor="checked"' in fault.message


def test_a_kernel_that_raises() -> None:
    def kernel(out: Any) -> None:
        if cuda.threadIdx.y + cuda.threadIdx.x == 2:
            raise ValueError("three")

    fault = fault_of(kernel, np.zeros(1), block=(2, 2, 2))
    assert (fault.kind, fault.parties[0].thread) == (faults.RAISED, (1, 1, 0))
    assert "three" in fault.message


@pytest.mark.parametrize("waits", [False, True])
def test_a_loop_without_an_end(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite_module, "ROUNDS", 1000)
    monkeypatch.setattr(rewrite_module, "WAITING_ROUNDS", 1000)

    def kernel(out: Any) -> None:
        step = 16
        while step > 0:
            if waits:
                cuda.syncthreads()
            out[0] += 1

    fault = fault_of(kernel, np.zeros(1), block=2)
    assert (fault.kind, fault.line) == (faults.DEADLOCK, line(kernel, 2))
    assert "more often than 1,000 times" in fault.message


def test_a_waiting_kernel_that_raises() -> None:
    def kernel(out: Any) -> None:
        cuda.syncthreads()
        if cuda.threadIdx.x == 3:
            raise ValueError("three")

    fault = fault_of(kernel, np.zeros(1), block=8)
    assert (fault.kind, fault.line, fault.parties[0].thread) == (faults.RAISED, line(kernel, 3), (3, 0, 0))
    assert "ValueError: three" in fault.message


def test_threads_that_wait_for_nobody() -> None:
    def kernel(lock: Any) -> None:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass

    assert fault_of(kernel, np.ones(1, np.int32)).kind == faults.DEADLOCK


def test_two_barriers_on_one_line_are_two() -> None:
    def kernel(out: Any) -> None:
        cuda.syncthreads() if cuda.threadIdx.x < 8 else cuda.syncthreads()  # noqa: RUF034

    assert fault_of(kernel, np.zeros(1)).kind == faults.BARRIER_DIVERGENCE


def test_predicates_are_integers_of_32_bits_at_a_barrier() -> None:
    def counts(out: Any) -> None:
        out[cuda.threadIdx.x] = cuda.syncthreads_count(2**32)

    def of_a_float(out: Any) -> None:
        out[0] = cuda.ballot_sync(FULL, out[0])

    out = np.ones(32, np.int32)
    launched(counts, out)
    assert (out == 0).all()
    with pytest.raises(UnsupportedError, match="a predicate is an integer or a bool, not float64"):
        launched(of_a_float, np.zeros(32))


def test_arguments_are_bound_and_refused_before_anything_runs() -> None:
    def kernel(out: Any, scale: Any = 3) -> None:
        out[cuda.threadIdx.x] = scale

    out = np.zeros(2)
    launched(kernel, out, block=2)
    assert out.tolist() == [3, 3]
    for args, text in (
        ((), "was given 0 arguments: missing a required argument: 'out'"),
        ((out, 1, 2), "was given 3 arguments: too many"),
        (([1, 2],), "argument 'out' is a list: give a NumPy array"),
        ((out.astype(">f8"),), "in another byte order"),
        ((out.astype(np.clongdouble),), "which no GPU has: give float64 or complex128"),
        ((np.array([None]),), "an array of object"),
        ((out, "text"), "argument 'scale' is str"),
        ((np.ma.masked_array(out), 1), "a masked array"),
    ):
        with pytest.raises(UserError, match=text):
            launched(kernel, *args, block=2)


def test_recursion_is_run_but_not_beside_a_local_array() -> None:
    @cuda.jit(device=True)
    def sum_to(n):
        if n < 1:
            return 0
        return n + sum_to(n - 1)

    @cuda.jit(device=True)
    def kept_sum_to(n):
        own = cuda.local.array(1, int64)
        own[0] = n
        if n < 1:
            return 0
        return kept_sum_to(n - 1) + own[0]

    def runs(out: Any) -> None:
        out[0] = sum_to(4)

    def refused(out: Any) -> None:
        out[0] = kept_sum_to(4)

    out = np.zeros(1, np.int64)
    launched(runs, out, block=1)
    assert out[0] == 10
    assert build(runs).run.stats.cache_path is None  # from Numba's cache the next process would crash
    with pytest.raises(UnsupportedError, match="a local array beside recursion"):
        launched(refused, out, block=1)


def test_an_emulation_registered_anew_is_run() -> None:
    class _Intrinsic:
        """Stands for numba's intrinsics, which are told by the name of their type."""

    number = _Intrinsic()

    def kernel(out: Any) -> None:
        out[0] = number()

    out = np.zeros(1)
    for value in (2, 11):
        scope = {"value": value}

        @simt.emulates(number)
        def emulation(scope: Any = value) -> Any:
            return scope

        launched(kernel, out, block=1)
        assert out[0] == scope["value"]


def test_what_cannot_be_typed_is_said_with_the_users_line() -> None:
    def shuffles_bytes(out: Any) -> None:
        out[0] = cuda.shfl_sync(FULL, int8(1), 0)

    def wrong_atomic(out: Any) -> None:
        cuda.atomic.add(out, 0, 1)

    def size_of_a_local(out: Any) -> None:
        n = out.size
        cuda.shared.array(n, float32)

    for kernel, array, offset, text in (
        (shuffles_bytes, np.zeros(1), 1, "int32, int64, float32 or float64, not int8"),
        (wrong_atomic, np.zeros(1, np.int8), 1, "cuda.atomic.add takes arrays of"),
        (size_of_a_local, np.zeros(1), 2, "a size given by 'n'"),
    ):
        with pytest.raises(UnsupportedError) as caught:
            launched(kernel, array)
        assert f"{__file__}:{line(kernel, offset)}: " in str(caught.value)
        assert text in str(caught.value)


# Orders and the cache -----------------------------------------------------------------------------------------------


def test_blocks_warps_and_lanes_take_their_turns_in_the_order_asked_for() -> None:
    def kernel(out: Any, counter: Any) -> None:
        out[cuda.grid(1)] = cuda.atomic.add(counter, 0, 1)

    def turns(**options: Any) -> list[int]:
        out = np.zeros(140, np.int64)
        launched(kernel, out, np.zeros(1, np.int32), grid=2, block=70, **options)
        return [int(v) for v in out]

    assert turns() == list(range(140))
    assert turns(order="reverse") == list(range(139, -1, -1))
    shuffled = turns(order="random", seed=3)
    assert sorted(shuffled) == list(range(140))
    assert shuffled != turns(order="random", seed=4)
    assert shuffled == turns(order="random", seed=3)


SCRIPT = """
import numpy as np
from numba import cuda, int32
from nanoeuler import simt
from nanoeuler.simt.compiled.build import build

SIZE = {size}

@cuda.jit(device=True)
def scaled(value):
    return value * SIZE

@cuda.jit
def kernel(out):
    i = cuda.threadIdx.x
    out[i] = scaled(cuda.shfl_xor_sync(-1, int32(i), 1))

out = np.zeros(32, np.int32)
simt.run(kernel, 1, 32, (out,))
hits = sum(build(kernel.py_func).run.stats.cache_hits.values())
print(hits, out[0])
"""


def run_script(folder: Path, size: int, cache: Path) -> list[str]:
    script = folder / "script.py"
    script.write_text(SCRIPT.format(size=size))
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=True)
    return done.stdout.split()


LONG = """
import signal
import numpy as np
from nanoeuler import simt

def kernel(x):
    for i in range(1000000):
        x[0] += i * 0.5

signal.signal(signal.SIGINT, signal.default_int_handler)  # as from a terminal: a job in the background ignores it
simt.run(kernel, 1, 1, (np.zeros(1),))
print("compiled", flush=True)
simt.run(kernel, 1000000, 1, (np.zeros(1),))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise on Windows")
def test_ctrl_c_ends_a_long_launch(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(LONG)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, script], text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "compiled\n"
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in error


def test_another_process_finds_what_was_compiled_and_not_what_has_changed(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert run_script(tmp_path, 3, cache) == ["0", "3"]
    assert run_script(tmp_path, 3, cache) == ["1", "3"]
    assert run_script(tmp_path, 5, cache) == ["0", "5"]  # a global that a device function reads has another value


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    assert run_script(tmp_path, 3, blocked) == ["0", "3"]


def test_files_of_the_cache_that_are_cut_off_are_compiled_once_more(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run_script(tmp_path, 3, cache)
    kept = list(cache.rglob("*.nb?"))
    assert len(kept) >= 4
    for path in kept:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert run_script(tmp_path, 3, cache) == ["0", "3"]


def test_what_has_no_text_is_compiled_in_memory_and_what_is_not_read_does_not_count() -> None:
    holder = object()

    def reads_nothing(out: Any) -> None:
        out[0] = float64(2) * uint64(3)

    def reads_module(out: Any) -> None:
        out[0] = faults.__name__ == "nanoeuler.simt.faults"

    reads_nothing.__globals__["holder"] = holder
    assert fingerprint(rewrite(reads_nothing), "", HELPERS) is not None
    assert fingerprint(rewrite(reads_module), "", HELPERS) is None
