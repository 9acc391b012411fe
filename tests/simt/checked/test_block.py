"""Barriers and warp operations: what they give, and who is missing."""

from typing import Any

import numpy as np
import pytest
from numba import cuda

from nanoeuler.simt import faults
from nanoeuler.simt.checked import block as block_module
from nanoeuler.simt.checked.execute import collect_faults
from nanoeuler.simt.faults import Fault, UnsupportedError
from nanoeuler.simt.launch import ORDERS, launch_shape

FULL = 0xFFFFFFFF


def find(kernel: Any, *args: Any, grid: Any = 1, block: Any = 32, **more: Any) -> list[Fault]:
    """Run a kernel and return its faults."""
    return collect_faults(kernel, launch_shape(grid, block, **more), args)


def line(kernel: Any, offset: int) -> int:
    """Return the line ``offset`` lines below a kernel's `def`."""
    return kernel.__code__.co_firstlineno + offset


def shuffles(out, x):
    i = cuda.threadIdx.x
    v = x[i]
    out[0, i] = cuda.shfl_sync(FULL, v, 33)
    out[1, i] = cuda.shfl_up_sync(FULL, v, 3)
    out[2, i] = cuda.shfl_down_sync(FULL, v, 3)
    out[3, i] = cuda.shfl_xor_sync(FULL, v, 5)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_shuffles(order: Any, dtype: Any) -> None:
    """A source outside the warp gives the lane's own value; the source of shfl_sync counts modulo 32."""
    x = np.arange(64).astype(dtype)
    out = np.zeros((4, 64), dtype)
    assert find(shuffles, out, x, block=64, order=order) == []
    lane = np.arange(64) % 32
    base = np.arange(64) - lane
    assert (out[0] == base + 1).all()
    assert (out[1] == base + np.where(lane >= 3, lane - 3, lane)).all()
    assert (out[2] == base + np.where(lane < 29, lane + 3, lane)).all()
    assert (out[3] == base + (lane ^ 5)).all()


def votes(out, x):
    i = cuda.threadIdx.x
    v = x[i]
    out[0, i] = cuda.any_sync(FULL, v)
    out[1, i] = cuda.all_sync(FULL, v)
    out[2, i] = cuda.eq_sync(FULL, v)
    out[3, i] = cuda.ballot_sync(FULL, v) & FULL
    out[4, i] = cuda.match_any_sync(FULL, v) & FULL
    mask, same = cuda.match_all_sync(FULL, v)
    out[5, i] = mask
    out[6, i] = same
    out[7, i] = cuda.lanemask_lt()
    out[8, i] = cuda.syncthreads_count(v)
    out[9, i] = cuda.syncthreads_and(v)
    out[10, i] = cuda.syncthreads_or(v)


@pytest.mark.parametrize("order", ORDERS)
def test_votes(order: Any) -> None:
    """Votes and matches of a warp, predicates of a block; the second warp is not full."""
    x = np.zeros(40, np.int32)
    x[3] = x[5] = 2
    out = np.zeros((11, 40), np.int64)
    assert find(votes, out, x, block=40, order=order) == []
    first, second = out[:, :32], out[:, 32:]
    ones = 1 << 3 | 1 << 5
    assert (first[:3].T == [1, 0, 0]).all()
    assert (first[3] == ones).all()
    assert first[4].tolist() == [ones if i in (3, 5) else FULL - ones for i in range(32)]
    assert (first[5:7] == 0).all()
    assert (second[:3].T == [0, 0, 1]).all()
    assert (second[4] == 255).all()
    assert (second[5].astype(np.uint32) == 255).all()
    assert (second[6] == 1).all()
    assert out[7, 33] == 1
    assert (out[8:] == [[2], [0], [1]]).all()


def active(out):
    i = cuda.threadIdx.x
    if i % 2:
        out[i] = cuda.activemask()
    cuda.syncwarp()
    out[i] |= cuda.activemask() << 32


def test_activemask() -> None:
    """The lanes that come to one place together."""
    out = np.zeros(32, np.uint64)
    assert find(active, out) == []
    assert set(out[1::2].tolist()) == {0xAAAAAAAA | FULL << 32}
    assert set(out[::2].tolist()) == {FULL << 32}


def groups(out):
    """Two halves of a warp exchange at two places."""
    lane = cuda.laneid
    if lane < 16:
        out[lane] = cuda.shfl_xor_sync(0x0000FFFF, lane, 1)
    else:
        out[lane] = cuda.shfl_xor_sync(0xFFFF0000, lane, 2)


def early_exit_then_vote(out):
    if cuda.laneid >= 16:
        return
    cuda.syncwarp()
    out[cuda.laneid] = cuda.ballot_sync(FULL, 1)


def test_lanes_that_may_be_absent() -> None:
    """A mask names who takes part; lanes that have ended may be named."""
    out = np.zeros(32, np.int32)
    assert find(groups, out) == []
    assert out.tolist() == [i ^ 1 if i < 16 else i ^ 2 for i in range(32)]
    assert find(early_exit_then_vote, out) == []
    assert out[0] == 0xFFFF


def missing_behind_barrier(out):
    i = cuda.threadIdx.x
    if i < 16:
        out[i] = cuda.shfl_down_sync(FULL, i, 1)
    cuda.syncthreads()


def other_operation(out):
    i = cuda.threadIdx.x
    if i < 16:
        out[i] = cuda.any_sync(FULL, i)
    else:
        out[i] = cuda.all_sync(FULL, i)


def other_place(out):
    if cuda.threadIdx.x < 16:
        cuda.syncwarp()
    else:
        cuda.syncwarp()


def mask_without_itself(out):
    cuda.syncwarp(0x0000FFFF)


def masks_that_disagree(out):
    mask = 0xFFFFFFFF
    if cuda.laneid == 0:
        mask = 0x00000003
    out[cuda.laneid] = cuda.any_sync(mask, 1)


def read_from_the_ended(out):
    if cuda.laneid == 31:
        return
    out[cuda.laneid] = cuda.shfl_down_sync(FULL, cuda.laneid, 1)


def read_from_outside_the_mask(out):
    if cuda.laneid < 16:
        out[cuda.laneid] = cuda.shfl_sync(0x0000FFFF, cuda.laneid, 20)
    cuda.syncthreads()


def reduce_tail(out):
    out[cuda.laneid] = cuda.shfl_down_sync(FULL, cuda.laneid, 4)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("kernel", "offset", "block", "told"),
    [
        (missing_behind_barrier, 3, 32, "wait elsewhere"),
        (other_operation, (3, 5), 32, "wait elsewhere"),
        (other_place, (2, 4), 32, "wait elsewhere"),
        (mask_without_itself, 1, 32, "does not name it"),
        (masks_that_disagree, 4, 32, "with the mask"),
        (read_from_the_ended, 3, 32, "lane 30 reads from lane 31, which has ended"),
        (read_from_outside_the_mask, 2, 32, "lane 20, which is not in the mask"),
        (reduce_tail, 1, 8, "does not exist: the block has 8 threads"),
    ],
)
def test_missing_lanes(kernel: Any, offset: Any, block: int, told: str, order: Any) -> None:
    """Each way in which a lane can fail to take part ends the launch, on the line of the operation."""
    (fault,) = find(kernel, np.zeros(32, np.int32), block=block, order=order)
    assert fault.kind == faults.MISSING_LANES
    assert fault.line in [line(kernel, n) for n in np.atleast_1d(offset)]
    assert told in fault.message


def returns_early(out):
    if cuda.threadIdx.x == 40:
        return
    cuda.syncthreads()


def two_barriers(out):
    if cuda.threadIdx.x < 40:
        cuda.syncthreads()
    else:
        cuda.syncthreads()


def barrier_in_a_loop(out):
    for _ in range(cuda.threadIdx.x // 32 + 1):
        cuda.syncthreads()


def two_barriers_of_one_line(out):
    cuda.syncthreads() if cuda.threadIdx.x < 40 else cuda.syncthreads()  # noqa: RUF034


@cuda.jit(device=True)
def meet():
    cuda.syncthreads()


def behind_a_device_function(out):
    if cuda.threadIdx.x < 32:
        meet()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("kernel", "lines"),
    [
        *((returns_early, (3,)), (two_barriers, (2, 4)), (two_barriers_of_one_line, (1,)), (barrier_in_a_loop, (2,))),
        (behind_a_device_function, (-3,)),
    ],
)
def test_barrier_divergence(kernel: Any, lines: tuple[int, ...], order: Any) -> None:
    """Threads that end, or wait at another barrier, leave the others waiting for ever."""
    (fault,) = find(kernel, np.zeros(64, np.int32), block=64, order=order)
    assert fault.kind == faults.BARRIER_DIVERGENCE
    assert fault.line in [line(kernel, n) for n in lines]
    assert len(fault.parties) == 2


def spin_for_another_block(flag):
    while cuda.atomic.cas(flag, 0, 2, 2) != 2:
        cuda.nanosleep(10)


def spin_behind_a_barrier(flag):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(flag, 0, 1, 1) != 1:
            pass
    cuda.syncthreads()
    cuda.atomic.exch(flag, 0, 1)


def poll(flag):
    while flag[0] == 0:
        pass


def ticket(turn, out):
    """Threads of one block take turns: each waits for the one before it."""
    i = cuda.threadIdx.x
    while cuda.atomic.cas(turn, 0, i, i) != i:
        pass
    cuda.threadfence()
    out[0] = out[0] * 2 + i
    cuda.threadfence()
    cuda.atomic.exch(turn, 0, i + 1)


def wait_for_a_flag(flag, out):
    """One thread of the block sets a flag, the others ask an atomic that changes nothing until it is set."""
    i = cuda.threadIdx.x
    if i == 35:
        cuda.atomic.add(flag, 0, 1)
    while cuda.atomic.add(flag, 0, 0) == 0:
        pass
    out[i] = 1


@pytest.mark.parametrize("order", ORDERS)
def test_polling_an_atomic(order: Any) -> None:
    """A loop whose test is any atomic lets others take their turns; one that waits in vain is told."""
    flag, out = np.zeros(1, np.int32), np.zeros(64, np.int32)
    assert find(wait_for_a_flag, flag, out, block=64, order=order) == []
    assert out.all()
    (fault,) = find(wait_for_a_flag, np.zeros(1, np.int32), out, block=32, order=order)
    assert (fault.kind, fault.line) == (faults.DEADLOCK, line(wait_for_a_flag, 5))


def test_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of a block can wait for each other, in any order; who waits for nothing is told."""
    monkeypatch.setattr(block_module, "STALLED_ROUNDS", 50)
    for order in ORDERS:
        turn, out = np.zeros(1, np.int32), np.zeros(1, np.int64)
        assert find(ticket, turn, out, block=40, order=order) == []
        assert out[0] == sum(i * 2 ** (39 - i) for i in range(40))
    for kernel in (spin_for_another_block, spin_behind_a_barrier):
        (fault,) = find(kernel, np.zeros(1, np.int32))
        assert fault.kind == faults.DEADLOCK
        assert fault.line in (line(kernel, 1), line(kernel, 2))
    (fault,) = find(poll, np.zeros(1, np.int32), block=1)
    assert (fault.kind, fault.line) == (faults.DEADLOCK, line(poll, 1))
    assert f"{block_module.ENDLESS:,}" in fault.message


def places(out):
    x, y, z = cuda.grid(3)
    w, h, _ = cuda.gridsize(3)
    i = (z * h + y) * w + x
    out[i, 0] = cuda.threadIdx.x + 10 * cuda.threadIdx.y + 100 * cuda.threadIdx.z
    out[i, 1] = cuda.blockIdx.x + 10 * cuda.blockIdx.y + 100 * cuda.blockIdx.z
    out[i, 2] = cuda.blockDim.x + 10 * cuda.blockDim.y + 100 * cuda.blockDim.z
    out[i, 3] = cuda.gridDim.x + 10 * cuda.gridDim.y + 100 * cuda.gridDim.z
    out[i, 4] = cuda.laneid + cuda.warpsize


def test_three_dimensions() -> None:
    """Threads are numbered with x fastest."""
    grid, block = (2, 3, 2), (4, 3, 5)
    out = np.full((2 * 4 * 3 * 3 * 2 * 5, 5), -1)
    assert find(places, out, grid=grid, block=block) == []
    z, y, x = np.meshgrid(np.arange(10), np.arange(9), np.arange(8), indexing="ij")
    parts = (x % 4 + 10 * (y % 3) + 100 * (z % 5), x // 4 + 10 * (y // 3) + 100 * (z // 5))
    assert (out[:, :2] == np.stack([p.ravel() for p in parts], axis=1)).all()
    assert (out[:, 2:4] == [534, 232]).all()
    number = x % 4 + 4 * (y % 3) + 12 * (z % 5)
    assert (out[:, 4] == (number % 32 + 32).ravel()).all()


def shuffle_of_a_byte(x, out):
    out[cuda.laneid] = cuda.shfl_sync(FULL, x[cuda.laneid], 0)


def test_types_that_shuffles_do_not_have() -> None:
    """Numba exchanges four types; the error names the line."""
    with pytest.raises(UnsupportedError, match=rf":{line(shuffle_of_a_byte, 1)}: cuda.shfl_sync of uint8"):
        find(shuffle_of_a_byte, np.zeros(32, np.uint8), np.zeros(32, np.uint8))


def vote_of_a_float(x, out):
    out[0] = cuda.any_sync(FULL, x[cuda.laneid])


def count_of_a_float(x, out):
    out[0] = cuda.syncthreads_count(x[cuda.laneid])


def count(x, out):
    out[cuda.laneid] = cuda.syncthreads_count(x[cuda.laneid])
    out[cuda.laneid] += 100 * cuda.syncthreads_or(x[cuda.laneid])
    out[cuda.laneid] += 1000 * cuda.syncthreads_and(x[cuda.laneid])


@pytest.mark.parametrize(("kernel", "name"), [(vote_of_a_float, "any_sync"), (count_of_a_float, "syncthreads_count")])
def test_predicates_are_integers(kernel: Any, name: str) -> None:
    """Numba takes integers and bools; the error names the line."""
    with pytest.raises(UnsupportedError, match=rf":{line(kernel, 1)}: cuda.{name} of float32: it takes an integer"):
        find(kernel, np.zeros(32, np.float32), np.zeros(32, np.int32))


def test_a_barriers_predicate_is_an_int32() -> None:
    """What has no bit among the low 32 counts as false, as numba-cuda casts it; a vote compares all 64."""
    x, out = np.full(32, 2**32, np.int64), np.zeros(32, np.int32)
    x[:3] = 1, -1, 2**32 + 1
    assert find(count, x, out) == []
    assert (out == 103).all()
    assert find(count, np.ones(32, np.bool_), out) == []
    assert (out == 1132).all()
    assert find(votes, np.zeros((11, 32), np.int64), np.full(32, 2**32)) == []


def raises(out):
    i = cuda.threadIdx.x
    if i == 3:
        raise ValueError("three")
    assert i != 5, "five"
    cuda.syncwarp()
    out[i] = 1


def test_raise_and_assert() -> None:
    """A thread that raises ends; the others go on."""
    out = np.zeros(32, np.int32)
    found = find(raises, out)
    assert [(f.kind, f.line) for f in found] == [(faults.RAISED, line(raises, n)) for n in (3, 4)]
    assert out.tolist() == [i not in (3, 5) for i in range(32)]
    assert "three" in found[0].message
