"""What orders two accesses and what does not, whichever thread runs first."""

import random
from typing import Any

import numpy as np
import pytest
from numba import cuda, float32, int32, uint32

from nanoeuler.simt import faults
from nanoeuler.simt.checked.execute import collect_faults
from nanoeuler.simt.checked.races import Cell, Monitor, VectorClock, barrier, join
from nanoeuler.simt.faults import RACE, RACE_BETWEEN_BLOCKS, Fault
from nanoeuler.simt.launch import Order, launch_shape

ORDERS: tuple[tuple[Order, int], ...] = (("forward", 0), ("reverse", 0), ("random", 1), ("random", 2))


def find(
    kernel: Any, *args: Any, grid: Any = 1, block: Any = 64, order: Order = "forward", seed: int = 0
) -> list[Fault]:
    """Run a kernel on copies of its arguments and return its faults."""
    copies = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)
    return collect_faults(kernel, launch_shape(grid, block, 0, order, seed), copies)


def reals(n: int = 64) -> np.ndarray:
    """Return n float32."""
    return np.arange(n, dtype=np.float32)


def ints(n: int = 1) -> np.ndarray:
    """Return n int32."""
    return np.zeros(n, np.int32)


# Inside a block


def neighbour(a):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = a[t]
    a[t] = s[t ^ 1]


def neighbour_with_barrier(a):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = a[t]
    cuda.syncthreads()
    a[t] = s[63 - t]


def neighbour_with_syncwarp(a):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = a[t]
    cuda.syncwarp()
    a[t] = s[t ^ 1]


def other_warp_with_syncwarp(a):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = a[t]
    cuda.syncwarp()
    a[t] = s[63 - t]


def neighbour_with_shuffle(a):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = a[t]
    cuda.shfl_sync(0xFFFFFFFF, t, 0)
    cuda.any_sync(0xFFFFFFFF, t)
    a[t] = s[t ^ 1]


def half_a_syncwarp(a):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = a[t]
    if cuda.laneid < 16:
        cuda.syncwarp(0x0000FFFF)
        a[t] = s[t ^ 1]
        a[t] += s[t ^ 16]


def written_after_read(a):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = 0
    cuda.syncthreads()
    for _ in range(2):
        a[t] = s[63 - t]
        s[t] = 1
        cuda.syncthreads()


def read_by_all_then_written(a):
    t = cuda.threadIdx.x
    for i in range(64):
        a[64 + t] += a[i]
    cuda.syncwarp()
    a[t] = 0


def read_by_warp_then_written(a):
    t = cuda.threadIdx.x
    first = t // 32 * 32
    for i in range(32):
        a[64 + t] += a[first + i]
    cuda.syncwarp()
    a[t] = 0


def same_value(flag):
    flag[0] = 1


def chain(a):
    """The order is handed on: lane 0 to lane 1, then lane 1 to lane 2."""
    s = cuda.shared.array(1, float32)
    lane = cuda.laneid
    if lane == 0:
        s[0] = a[0]
    if lane < 2:
        cuda.syncwarp(0b011)
    if lane == 1 or lane == 2:
        cuda.syncwarp(0b110)
    if lane == 2:
        a[2] = s[0]


def broken_chain(a):
    """The first step comes after the second."""
    s = cuda.shared.array(1, float32)
    lane = cuda.laneid
    if lane == 1 or lane == 2:
        cuda.syncwarp(0b110)
    if lane == 0:
        s[0] = a[0]
    if lane < 2:
        cuda.syncwarp(0b011)
    if lane == 2:
        a[2] = s[0]


def histogram(counts, a):
    cuda.atomic.add(counts, cuda.threadIdx.x % 4, 1)


def histogram_read_beside(counts, a):
    t = cuda.threadIdx.x
    cuda.atomic.add(counts, t % 4, 1)
    a[t] = counts[0]


def histogram_with_barriers(counts, a):
    t = cuda.threadIdx.x
    if t < 4:
        counts[t] = 0
    cuda.syncthreads()
    cuda.atomic.add(counts, t % 4, 1)
    cuda.syncthreads()
    a[t] = counts[t % 4]


def histogram_zeroed_beside(counts, a):
    t = cuda.threadIdx.x
    if t < 4:
        counts[t] = 0
    cuda.atomic.add(counts, t % 4, 1)


def locked(lock, a):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    cuda.threadfence_block()
    a[0] += 1
    cuda.threadfence_block()
    cuda.atomic.exch(lock, 0, 0)


def locked_without_release(lock, a):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    cuda.threadfence()
    a[0] += 1
    cuda.atomic.exch(lock, 0, 0)


def locked_without_acquire(lock, a):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    a[0] += 1
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)


def unlocked_too_early(lock, a):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    cuda.threadfence()
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)
    a[0] += 1


@pytest.mark.parametrize(("order", "seed"), ORDERS)
@pytest.mark.parametrize(
    ("kernel", "args", "racy"),
    [
        (neighbour, (reals(),), True),
        (neighbour_with_barrier, (reals(),), False),
        (neighbour_with_syncwarp, (reals(),), False),
        (other_warp_with_syncwarp, (reals(),), True),
        (neighbour_with_shuffle, (reals(),), True),
        (half_a_syncwarp, (reals(),), True),
        (written_after_read, (reals(),), True),
        (read_by_all_then_written, (reals(128),), True),
        (read_by_warp_then_written, (reals(128),), False),
        (same_value, (ints(),), True),
        (chain, (reals(),), False),
        (broken_chain, (reals(),), True),
        (histogram, (ints(4), reals()), False),
        (histogram_read_beside, (ints(4), reals()), True),
        (histogram_with_barriers, (ints(4), reals()), False),
        (histogram_zeroed_beside, (ints(4), reals()), True),
        (locked, (ints(), ints()), False),
        (locked_without_release, (ints(), ints()), True),
        (locked_without_acquire, (ints(), ints()), True),
        (unlocked_too_early, (ints(), ints()), True),
    ],
)
def test_inside_a_block(kernel: Any, args: tuple, racy: bool, order: Order, seed: int) -> None:
    """Whether there is a race does not depend on the order of the threads, and a race is nothing else."""
    block = 32 if kernel in (chain, broken_chain) else 64
    found = find(kernel, *args, block=block, order=order, seed=seed)
    assert {fault.kind for fault in found} == ({RACE} if racy else set())


# Between blocks


def one_element(a):
    if cuda.threadIdx.x == 0:
        a[0] = cuda.blockIdx.x


def own_element(a):
    if cuda.threadIdx.x == 0:
        a[cuda.blockIdx.x] = a[63]


def read_then_written_by_the_last(a):
    if cuda.threadIdx.x == 0 and cuda.blockIdx.x > 0:
        a[cuda.blockIdx.x] = a[63]
    if cuda.threadIdx.x == 0 and cuda.blockIdx.x == 0:
        a[63] = 1


def counted(a):
    cuda.atomic.add(a, 0, 1)


def last_block_sums(partial, counter, out):
    """CUDA samples, threadFenceReduction: each block writes, fences and counts; the last one reads all."""
    last = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        partial[cuda.blockIdx.x] = cuda.blockIdx.x
        cuda.threadfence()
        last[0] = cuda.atomic.inc(counter, 0, uint32(cuda.gridDim.x)) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0] and t < cuda.gridDim.x:
        cuda.atomic.add(out, 0, partial[t])


def last_block_sums_without_fence(partial, counter, out):
    last = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        partial[cuda.blockIdx.x] = cuda.blockIdx.x
        last[0] = cuda.atomic.inc(counter, 0, uint32(cuda.gridDim.x)) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0] and t < cuda.gridDim.x:
        cuda.atomic.add(out, 0, partial[t])


def last_block_sums_with_block_fence(partial, counter, out):
    last = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        partial[cuda.blockIdx.x] = cuda.blockIdx.x
        cuda.threadfence_block()
        last[0] = cuda.atomic.inc(counter, 0, uint32(cuda.gridDim.x)) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0] and t < cuda.gridDim.x:
        cuda.atomic.add(out, 0, partial[t])


def last_block_sums_all_threads_wrote(partial, counter, out):
    """The barrier before the fence hands over what the other threads of the block wrote."""
    last = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    partial[cuda.blockIdx.x * 8 + t] = 1
    cuda.syncthreads()
    if t == 0:
        cuda.threadfence()
        last[0] = cuda.atomic.add(counter, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0]:
        for i in range(t, 8 * cuda.gridDim.x, 8):
            cuda.atomic.add(out, 0, partial[i])
            partial[i] = 0


def last_block_sums_no_barrier(partial, counter, out):
    last = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    partial[cuda.blockIdx.x * 8 + t] = 1
    if t == 0:
        cuda.threadfence()
        last[0] = cuda.atomic.add(counter, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0]:
        for i in range(t, 8 * cuda.gridDim.x, 8):
            cuda.atomic.add(out, 0, partial[i])


@pytest.mark.parametrize(("order", "seed"), ORDERS)
@pytest.mark.parametrize(
    ("kernel", "args", "racy"),
    [
        (one_element, (reals(),), True),
        (own_element, (reals(),), False),
        (read_then_written_by_the_last, (reals(),), True),
        (counted, (ints(),), False),
        (last_block_sums, (ints(4), np.zeros(1, np.uint32), ints()), False),
        (last_block_sums_without_fence, (ints(4), np.zeros(1, np.uint32), ints()), True),
        (last_block_sums_with_block_fence, (ints(4), np.zeros(1, np.uint32), ints()), True),
        (last_block_sums_all_threads_wrote, (ints(32), ints(), ints()), False),
        (last_block_sums_no_barrier, (ints(32), ints(), ints()), True),
    ],
)
def test_between_blocks(kernel: Any, args: tuple, racy: bool, order: Order, seed: int) -> None:
    """Blocks have no order, but for a fence and an atomic on one side, an atomic and a barrier on the other."""
    found = find(kernel, *args, grid=4, block=8, order=order, seed=seed)
    assert {fault.kind for fault in found} == ({RACE_BETWEEN_BLOCKS} if racy else set())


# Against an oracle

LANES, BLOCKS = 3, 3
ACCESSES = ("read", "write", "update")


def draw_program(generator: random.Random) -> list[list[tuple]]:
    """Return what the lanes of each block do to one location, in the order of the run. A signal is an atomic elsewhere.

    Half of the programs have fences, and steps by which one thread hands over to another, some of them left out.
    """
    everyone, lane = frozenset(range(LANES)), lambda: generator.randrange(LANES)
    accesses = generator.choice((("read", "write"), ("read", "read", "write"), ("update", "read"), ACCESSES))
    fenced, syncs = generator.random() < 0.5, generator.sample(("join", "barrier"), generator.choice((0, 1, 2)))
    steps: list[tuple] = []
    while len(steps) < 10:
        kind = generator.choice(("access", "access", *syncs, *(("hand over",) if fenced else ())))
        if kind == "access":
            steps.append((generator.choice(accesses), lane()))
        elif kind in ("join", "barrier"):
            steps.append((kind, everyone - {lane()} if kind == "join" else everyone))
        else:
            giver, taker = lane(), lane()
            fences = [generator.choice(("fence", "fence", "fence_block")) for _ in range(2)]
            chain = [(generator.choice(accesses), giver), (fences[0], giver), ("signal", giver), ("signal", taker)]
            chain += [
                generator.choice(((fences[1], taker), ("barrier", everyone))),
                (generator.choice(accesses), taker),
            ]
            steps += [step for step in chain if generator.random() < 0.9]
    cuts = sorted(generator.sample(range(len(steps)), generator.randint(0, BLOCKS - 1)))
    return [steps[i:j] for i, j in zip([0, *cuts], [*cuts, len(steps)], strict=True)]


def events(program: list[list[tuple]]) -> list[tuple]:
    """Return (action, block, lanes) in the order of the run: block by block."""
    return [
        (action, block, lanes if isinstance(lanes, frozenset) else frozenset({lanes}))
        for block, steps in enumerate(program)
        for action, lanes in steps
    ]


def first_race_by_search(program: list[list[tuple]]) -> int | None:
    """Return the first access that no path of ordering events joins with an earlier one: all pairs are tried."""
    run = events(program)
    before: list[set[int]] = []  # of each event: those that happened before it, itself among them
    newest: dict[tuple[int, int], int] = {}
    for n, (action, block, lanes) in enumerate(run):
        known = {n}
        for lane in lanes:
            if (block, lane) in newest:
                known |= before[newest[block, lane]]
            if action in ("join", "barrier", "fence", "fence_block"):
                for release in released_to(run[:n], block, lane, action):
                    known |= before[release]
        before.append(known)
        newest |= dict.fromkeys(((block, lane) for lane in lanes), n)
        for m, (other, _, _) in enumerate(run[:n]):
            both = {action, other}
            apart = both <= set(ACCESSES) and both not in ({"read"}, {"update"}) and m not in known
            if apart and not acquired_here(run, m, n, known):
                return n
    return None


def acquired_here(run: list[tuple], m: int, n: int, known: set[int]) -> bool:
    """Whether the atomic m released, and the thread of n has the latest atomic and knows of the fence before m.

    What a barrier between that fence and m has told of the fence does not count: m came later.
    """
    updates = [i for i in range(n) if run[i][0] == "update"]
    if run[m][0] != "update" or run[updates[-1]][1:] != run[n][1:]:
        return False
    fences = ("fence", "fence_block")
    own = [i for i in range(m) if run[i][1] == run[m][1] and run[m][2] <= run[i][2]]
    turns = [i for i in own if run[i][0] in (*fences, "join")]
    if not turns or run[turns[-1]][0] == "join" or turns[-1] not in known:
        return False
    told = run[m][1] == run[n][1] and any(run[i][0] == "barrier" for i in own if i > turns[-1])
    steps = [run[i] for i in range(updates[-1], n) if run[i][1] == run[n][1] and run[n][2] <= run[i][2]]
    return not told or any(step[0] in (*fences, "join", "barrier") for step in steps)


def released_to(run: list[tuple], block: int, lane: int, action: str) -> list[int]:
    """Return the fences that other threads' atomics have handed to a lane by its own atomics before."""
    found = []
    for n, (kind, b, lanes) in enumerate(run):
        if kind not in ("signal", "update") or b != block or lane not in lanes:
            continue
        for m, (other, giver, giving) in enumerate(run[:n]):
            for f, (fence, fencer, fencing) in enumerate(run[:m]):
                if other != kind or fence not in ("fence", "fence_block") or (fencer, fencing) != (giver, giving):
                    continue
                if giver == block or (fence == "fence" and action != "fence_block"):
                    found.append(f)
    return found


def first_race_by_monitor(program: list[list[tuple]]) -> int | None:
    """Return the first access at which the detector finds a race."""
    run = events(program)
    used = {action for action, *_ in run}
    monitor = Monitor(launch_shape(BLOCKS, LANES), "program", "join" in used, bool(used & {"fence", "fence_block"}))
    cell, signals, phase, block = Cell(), Cell(), 0, -1
    threads: list[VectorClock] = []
    for n, (action, where, lanes) in enumerate(run):
        if where != block:
            block, phase = where, phase + 1
            threads = [VectorClock(block, lane, phase) for lane in range(LANES)]
        among = [threads[lane] for lane in lanes]
        monitor.enter(among[0])
        if action == "barrier":
            phase += 1
            barrier(threads, phase)
        elif action == "join":
            join(among)
        elif action in ("fence", "fence_block"):
            among[0].fence(device=action == "fence")
        elif action == "signal":
            assert monitor.update(signals, ("file", 1), wrote=True) is None
        elif getattr(monitor, action)(cell, ("file", 1), **({"wrote": True} if action == "update" else {})):
            return n
    return None


@pytest.mark.parametrize("seed", range(4))
def test_the_detector_finds_what_a_search_of_all_pairs_finds(seed: int) -> None:
    """What a location forgets never matters: the first race is the same access, or there is none."""
    generator, races = random.Random(seed), 0
    for _ in range(4000):
        program = draw_program(generator)
        found = first_race_by_monitor(program)
        assert found == first_race_by_search(program), program
        races += found is not None
    assert 1000 < races < 3800


# What is told


def test_both_threads_are_named() -> None:
    """The report has the element, the later access first, and both lines."""
    (fault, *_) = find(one_element, reals(), grid=2, block=1)
    first, second = fault.parties[1], fault.parties[0]
    assert (fault.array, fault.index, fault.kernel) == ("a", (0,), "one_element")
    assert (first.block, second.block) == ((0, 0, 0), (1, 0, 0))
    assert first.line == second.line == one_element.__code__.co_firstlineno + 2
    assert first.action == second.action == "writes"
    assert "same value" in fault.message
    assert "a[0] = cuda.blockIdx.x" in str(fault)


def test_a_race_with_a_first_write_is_no_uninitialised_read() -> None:
    """Thread 0 reads what thread 1 has yet to write: a race in every order."""
    for order, seed in ORDERS:
        assert faults.UNINITIALISED not in {f.kind for f in find(neighbour, reals(), order=order, seed=seed)}


@cuda.jit
def swapped(x):
    i = cuda.threadIdx.x
    x[i] = i
    y = x[(i + 1) % 64]
    x[i] = y


def test_a_race_of_two_lines_is_told_once_whichever_came_first() -> None:
    for order, seed in ORDERS:
        found = find(swapped, np.zeros(64, np.int32), order=order, seed=seed)
        pairs = [frozenset(party.line for party in fault.parties) for fault in found]
        assert pairs
        assert len(pairs) == len(set(pairs))


def test_each_line_is_told_once_and_the_limit_holds() -> None:
    """64 threads race on one line: one fault. ``limit`` ends the launch."""
    assert len(find(same_value, ints())) == 1
    a = reals()
    found = collect_faults(neighbour, launch_shape(1, 64), (a,), limit=1)
    assert len(found) == 1


@pytest.mark.parametrize("fenced", [True, False])
def test_the_last_block_may_reset_the_counter_that_told_it_so(fenced: bool) -> None:
    """As NVIDIA's sample threadFenceReduction does it; without the fence everything about it is a race."""

    @cuda.jit
    def reduction(out, count):
        last = cuda.shared.array(1, uint32)
        if cuda.threadIdx.x == 0:
            out[cuda.blockIdx.x] = 1
            if fenced:
                cuda.threadfence()
            last[0] = cuda.atomic.inc(count, 0, cuda.gridDim.x)
        cuda.syncthreads()
        if cuda.threadIdx.x == 0 and last[0] == cuda.gridDim.x - 1:
            total = 0
            for i in range(cuda.gridDim.x):
                total += out[i]
            out[0] = total
            count[0] = 0

    for order in ("forward", "reverse", "random"):
        out, count = np.zeros(4, np.int64), np.zeros(1, np.uint32)
        found = collect_faults(reduction, launch_shape(4, 32, order=order), (out, count))
        assert {fault.kind for fault in found} == (set() if fenced else {faults.RACE_BETWEEN_BLOCKS})
        assert out[0] == 4
        assert count[0] == 0
