"""Each check: a kernel that breaks one rule, and the line, thread and words with which it is told."""

import inspect

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="python -m pip install -e '.[gpu,compile]'")

from numba import cuda, float32, int32

from nanoeuler.simt import faults
from nanoeuler.simt.launch import launch_shape
from nanoeuler.simt.ptx import run_ptx, run_text

pytestmark = pytest.mark.usefixtures("compiler")


def ones(count, dtype=np.float32):
    return np.ones(count, dtype)


def line_of(function, mark="# here"):
    """Return the number of the line of ``function`` that ends with ``mark``."""
    lines, first = inspect.getsourcelines(getattr(function, "py_func", function))
    return first + next(i for i, line in enumerate(lines) if line.rstrip().endswith(mark))


def fault_of(kernel, *args, grid=1, block=64, **options):
    """Run ``kernel`` and return the fault that it ends with."""
    with pytest.raises(faults.KernelFaults) as caught:
        run_ptx(kernel, launch_shape(grid, block, options.pop("shared_bytes", 0)), args, **options)
    (fault,) = caught.value.faults
    assert fault.file == __file__
    return fault


def test_read_out_of_bounds():
    def kernel(a, out):
        i = cuda.grid(1)
        out[i] = a[i + 1]  # here

    fault = fault_of(kernel, ones(128), ones(128), grid=2)
    assert (fault.kind, fault.line, fault.array, fault.index) == (faults.OUT_OF_BOUNDS, line_of(kernel), "a", (128,))
    assert fault.kernel == "kernel"
    assert (fault.parties[0].block, fault.parties[0].thread, fault.parties[0].action) == (
        (1, 0, 0),
        (63, 0, 0),
        "reads",
    )
    assert "element 128 of 'a', which has 128 elements" in str(fault)


def test_write_far_out_of_bounds_meets_no_other_array():
    def kernel(a, b):
        i = cuda.grid(1)
        b[i] = a[i]
        a[i + 100_000_000] = 0  # here

    fault = fault_of(kernel, ones(64), ones(64))
    assert (fault.kind, fault.line, fault.array, fault.index) == (
        faults.OUT_OF_BOUNDS,
        line_of(kernel),
        "a",
        (100_000_000,),
    )


def test_before_the_first_element():
    def kernel(a):
        i = cuda.grid(1)
        a[i - 65] = 0  # here

    # Numba adds the length to a negative index once; -65 + 64 is still before the array
    fault = fault_of(kernel, ones(64))
    assert (fault.kind, fault.line, fault.array, fault.index) == (faults.OUT_OF_BOUNDS, line_of(kernel), "a", (-1,))


def test_gaps_of_a_strided_array_are_not_its_own():
    text = """.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a) {
.reg .u64 %p; .reg .f32 %f;
ld.param.u64 %p, [a];
ld.global.f32 %f, [%p+4];
ret; }"""
    with pytest.raises(faults.KernelFaults, match="out of bounds"):
        run_text(text, launch_shape(1, 1), (ones(8)[::2],))
    run_text(text, launch_shape(1, 1), (ones(8),))


@cuda.jit(device=True)
def behind(a, i):
    return a[i + 1]  # here


def test_inside_an_inlined_device_function_both_lines_are_named():
    def kernel(a, out):
        i = cuda.grid(1)
        out[i] = behind(a, i)  # caller

    fault = fault_of(kernel, ones(64), ones(64))
    assert (fault.kind, fault.line) == (faults.OUT_OF_BOUNDS, line_of(behind))
    assert f"inlined from line {line_of(kernel, '# caller')}" in fault.message


def test_shared_array_overrun():
    def kernel(a):
        first = cuda.shared.array(32, float32)
        second = cuda.shared.array(32, float32)
        i = cuda.threadIdx.x
        second[i % 32] = 0
        first[i] = a[i]  # here
        cuda.syncthreads()
        a[i] = first[i % 32] + second[i % 32]

    fault = fault_of(kernel, ones(64))
    assert (fault.kind, fault.line, fault.array) == (faults.OUT_OF_BOUNDS, line_of(kernel), "first")
    assert fault.parties[0].thread == (32, 0, 0)
    assert "byte 128 of shared 'first', which has 128 bytes" in fault.message


@cuda.jit(device=True)
def through_shared(x):
    mine = cuda.shared.array(8, float32)
    mine[cuda.threadIdx.x] = x  # here
    cuda.syncthreads()
    return mine[0]


def test_shared_arrays_have_the_names_of_their_variables():
    def kernel(a):
        ours = cuda.shared.array(shape=(2, 16), dtype=float32)
        i = cuda.threadIdx.x
        ours[0, i % 16] = through_shared(a[i])
        cuda.syncthreads()
        a[i] = ours[1, i]  # here

    fault = fault_of(kernel, ones(8), block=8)
    assert (fault.kind, fault.line, fault.array) == (faults.UNINITIALISED, line_of(kernel), "ours")
    fault = fault_of(kernel, ones(9), block=9)
    assert (fault.kind, fault.line, fault.array) == (faults.OUT_OF_BOUNDS, line_of(through_shared), "mine")


def test_a_shared_array_whose_variable_is_not_plain_keeps_the_compilers_name():
    def kernel(a):
        left, right = cuda.shared.array(32, float32), cuda.shared.array(8, float32)
        i = cuda.threadIdx.x
        left[i], right[i] = a[i], a[i]  # here
        cuda.syncthreads()
        a[i] = left[31 - i] + right[0]

    fault = fault_of(kernel, ones(32), block=32)
    assert (fault.kind, fault.line) == (faults.OUT_OF_BOUNDS, line_of(kernel))
    assert fault.array is not None
    assert fault.array.startswith("_cudapy_smem_")


def test_dynamic_shared_memory_that_was_not_asked_for():
    def kernel(a):
        shared = cuda.shared.array(0, float32)
        i = cuda.threadIdx.x
        shared[i] = a[i]  # here
        cuda.syncthreads()
        a[i] = shared[63 - i]

    run_ptx(kernel, launch_shape(1, 64, 256), (ones(64),))
    fault = fault_of(kernel, ones(64), shared_bytes=128)
    assert (fault.kind, fault.line) == (faults.OUT_OF_BOUNDS, line_of(kernel))
    assert "dynamic shared memory" in fault.message


def test_local_array_overrun():
    def kernel(a):
        local = cuda.local.array(8, float32)
        i = cuda.threadIdx.x
        for k in range(8):
            local[k] = a[i] + k
        a[i] = local[int(a[i]) * 9]  # here

    fault = fault_of(kernel, ones(64))
    assert (fault.kind, fault.line) == (faults.OUT_OF_BOUNDS, line_of(kernel))


def test_uninitialised_shared_memory():
    def kernel(a):
        shared = cuda.shared.array(64, float32)
        i = cuda.threadIdx.x
        if i != 5:
            shared[i] = a[i]
        cuda.syncthreads()
        a[i] = shared[63 - i]  # here

    fault = fault_of(kernel, ones(64))
    assert (fault.kind, fault.line, fault.parties[0].thread) == (faults.UNINITIALISED, line_of(kernel), (58, 0, 0))


def test_uninitialised_local_memory():
    """In PTX text only: what Numba leaves unwritten in a local array, it fills with zeros before."""
    text = """.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a) {
.local .align 4 .b8 depot[64];
.reg .u64 %p, %o; .reg .u32 %t; .reg .f32 %f;
mov.u64 %p, depot;
st.local.f32 [%p+4], 0f3F800000;
mov.u32 %t, %tid.x;
mul.wide.u32 %o, %t, 4;
add.u64 %p, %p, %o;
ld.local.f32 %f, [%p+4];
ret; }"""
    run_text(text, launch_shape(1, 1), (ones(1),))
    with pytest.raises(faults.KernelFaults) as caught:
        run_text(text, launch_shape(1, 4), (ones(1),))
    (fault,) = caught.value.faults
    assert (fault.kind, fault.parties[0].thread, fault.array) == (faults.UNINITIALISED, (1, 0, 0), "depot")


def test_barrier_in_a_divergent_branch():
    def kernel(a):
        i = cuda.threadIdx.x
        if i < 32:
            cuda.syncthreads()  # here
            a[i] = 1
        a[i] += 1

    fault = fault_of(kernel, ones(64))
    assert (fault.kind, fault.line) == (faults.BARRIER_DIVERGENCE, line_of(kernel))
    assert [party.thread for party in fault.parties] == [(0, 0, 0), (32, 0, 0)]
    assert "32 of the 64 threads" in fault.message


def test_barrier_after_an_early_return():
    def kernel(a):
        i = cuda.threadIdx.x
        if i >= 40:
            return
        a[i] = 1
        cuda.syncthreads()  # here
        a[i] = a[39 - i]

    fault = fault_of(kernel, ones(64))
    assert (fault.kind, fault.line) == (faults.BARRIER_DIVERGENCE, line_of(kernel))
    assert "has returned" in fault.message


def test_two_barriers_are_not_the_same():
    def kernel(a):
        i = cuda.threadIdx.x
        if i % 64 < 32:
            cuda.syncthreads()  # here
            a[i] = 1
        else:
            a[i] = 2
            cuda.syncthreads()  # other
            a[i] = 3

    fault = fault_of(kernel, ones(64))
    assert fault.kind == faults.BARRIER_DIVERGENCE
    assert {party.line for party in fault.parties} == {line_of(kernel), line_of(kernel, "# other")}


def test_barrier_missed_in_a_later_round_of_a_loop_of_the_last_block():
    def kernel(a):
        i = cuda.threadIdx.x
        for k in range(4):
            if not (k == 2 and cuda.blockIdx.x == 2 and i == 7):
                cuda.syncthreads()  # here
            a[cuda.grid(1)] += 1

    fault = fault_of(kernel, ones(192), grid=3)
    assert (fault.kind, fault.line) == (faults.BARRIER_DIVERGENCE, line_of(kernel))
    assert fault.parties[0].block == (2, 0, 0)


def test_shuffle_with_missing_lanes():
    def kernel(a):
        i = cuda.threadIdx.x
        v = a[i]
        if i % 32 < 16:
            v += cuda.shfl_xor_sync(0xFFFFFFFF, v, 1)  # here
        a[i] = v

    fault = fault_of(kernel, ones(64))
    assert (fault.kind, fault.line) == (faults.MISSING_LANES, line_of(kernel))
    assert [party.thread for party in fault.parties] == [(0, 0, 0), (16, 0, 0)]


def test_syncwarp_with_missing_lanes():
    def kernel(a):
        i = cuda.threadIdx.x
        if i % 2 == 0:
            a[i] = 2
            cuda.syncwarp(0xFFFFFFFF)  # here
            a[i + 1] = 3
        a[i] += 1

    fault = fault_of(kernel, ones(64))
    assert (fault.kind, fault.line) == (faults.MISSING_LANES, line_of(kernel))


def test_a_mask_that_does_not_name_the_caller():
    def kernel(a, mask):
        i = cuda.threadIdx.x
        a[i] = cuda.ballot_sync(mask, a[i] > 0)  # here

    fault = fault_of(kernel, ones(64), np.int32(0xFF))
    assert (fault.kind, fault.line, fault.parties[0].thread) == (faults.MISSING_LANES, line_of(kernel), (8, 0, 0))


def test_lanes_that_name_different_masks_do_not_meet():
    def kernel(a):
        i = cuda.threadIdx.x
        mask = 0xFFFFFFFF if i % 2 == 0 else 0xFFFFFFFE
        a[i] = cuda.shfl_xor_sync(mask, a[i], 2)  # here

    fault = fault_of(kernel, ones(64))
    assert (fault.kind, fault.line) == (faults.MISSING_LANES, line_of(kernel))


def test_shuffle_from_a_lane_that_has_returned_or_never_was():
    def kernel(a):
        i = cuda.threadIdx.x
        if i % 32 >= 20:
            return
        a[i] = cuda.shfl_sync(0xFFFFFFFF, a[i], i % 32 + 1)  # here

    fault = fault_of(kernel, ones(64))
    assert (fault.kind, fault.line, fault.parties[0].thread) == (faults.MISSING_LANES, line_of(kernel), (19, 0, 0))
    fault = fault_of(kernel, ones(64), block=8)
    assert (fault.kind, fault.line, fault.parties[0].thread) == (faults.MISSING_LANES, line_of(kernel), (7, 0, 0))


def test_a_mask_may_name_lanes_that_have_returned():
    def kernel(a):
        i = cuda.threadIdx.x
        if i % 32 >= 20:
            return
        a[i] = cuda.ballot_sync(0xFFFFFFFF, i % 2 == 0)

    a = ones(64, np.int64)
    run_ptx(kernel, launch_shape(1, 64), (a,))
    assert a[:20].tolist() == [0x55555] * 20


def test_a_wait_that_never_ends():
    def kernel(flag):
        while cuda.atomic.add(flag, 0, 0) == 0:  # here
            pass

    fault = fault_of(kernel, np.zeros(1, np.int32), step_limit=10_000)
    assert (fault.kind, fault.line) == (faults.DEADLOCK, line_of(kernel))
    assert "10,000 steps" in fault.message


def test_misaligned_access():
    text = """.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a) {
.reg .u64 %p; .reg .f32 %f<4>; .reg .u32 %t; .reg .u64 %o;
ld.param.u64 %p, [a];
mov.u32 %t, %tid.x;
mul.wide.u32 %o, %t, 8;
add.u64 %p, %p, %o;
ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%p];
ret; }"""
    with pytest.raises(faults.KernelFaults) as caught:
        run_text(text, launch_shape(1, 2), (ones(8),))
    (fault,) = caught.value.faults
    assert (fault.kind, fault.parties[0].thread, fault.array, fault.index) == (faults.MISALIGNED, (1, 0, 0), "a", (2,))


def test_a_trap_is_told():
    text = """.version 9.0
.target sm_90
.address_size 64
.visible .entry k() {
.reg .pred %p; .reg .u32 %t;
mov.u32 %t, %tid.x;
setp.eq.u32 %p, %t, 3;
@%p trap;
ret; }"""
    with pytest.raises(faults.KernelFaults) as caught:
        run_text(text, launch_shape(1, 32), ())
    (fault,) = caught.value.faults
    assert (fault.kind, fault.parties[0].thread) == (faults.RAISED, (3, 0, 0))


def test_arguments_are_left_alone_by_a_kernel_that_ends_with_a_fault():
    def kernel(a):
        i = cuda.grid(1)
        a[i] = int32(7)
        a[i + 1] = 8

    a = ones(64)
    fault_of(kernel, a)
    assert (a == 1).all()
