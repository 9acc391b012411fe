"""The steps of a trace: which statements, in which order, with which threads, and what belongs to each."""

import inspect

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba import cuda, float32
from simt.traced.catalogue import CORRECT, FAULTY, traced

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.traced.steps import Steps, shown, warp


@cuda.jit
def loops(out, x):
    i = cuda.grid(1)
    if i >= x.size:
        return
    n = 0
    while n < i % 3:
        out[i] += x[i]
        n += 1
    for k in range(i % 2):
        out[i] -= k


@cuda.jit(device=True)
def outer(x, i):
    return inner(x, i) + x[0]


@cuda.jit(device=True)
def inner(x, i):
    if i > 1:
        return x[i]
    return x[0]


@cuda.jit
def calls(out, x):
    i = cuda.threadIdx.x
    total = outer(x, i)  # noqa: F841
    if inner(x, i) > 2:
        out[i] = outer(x, i) + inner(x, i)
    nothing(out)


@cuda.jit(device=True)
def nothing(out):
    pass


@cuda.jit
def barriers(out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = t
    cuda.syncthreads()
    if t < 32:
        s[t] += s[t + 32]
    else:
        s[t] = 0
    cuda.syncthreads()
    out[t] = s[63 - t]


@cuda.jit
def misses_a_barrier(out):
    t = cuda.threadIdx.x
    out[t] = 1
    if t < 2:
        cuda.syncthreads()
        out[t] = 2
    out[t] = 3


@cuda.jit
def asserts(out, x):
    t = cuda.threadIdx.x
    assert x[t] < 3
    out[t] = x[t]
    out[t] += 1


@cuda.jit
def never_assigned(out):
    t = cuda.threadIdx.x
    if t > 0:
        z = t
    out[t] = z
    out[t] += 1


@cuda.jit
def over_an_array(out, x):
    t = cuda.threadIdx.x
    for v in x:
        if v > t:
            out[t] += v


@cuda.jit
def no_parameters():
    pass


@cuda.jit
def one_barrier():
    cuda.syncthreads()


def made(kernel, grid, block, *args, **how):
    """Trace a launch, and return its steps."""
    return Steps(simt.trace(kernel, grid, block, args, variables=True, **how))


def line(kernel, text):
    """Return the number of the first line of this file's ``kernel`` with ``text`` in it."""
    lines, first = inspect.getsourcelines(kernel.py_func)
    return next(n for n, found in enumerate(lines, first) if text in found)


def told(steps, kernel):
    """Return the lines of the steps, from the kernel's first on, with the kind of what is no plain statement."""
    first = kernel.py_func.__code__.co_firstlineno + 1
    kinds = {"enter": "enter ", "return": "return ", "statement": ""}
    return [f"{kinds[s.kind]}{s.function}:{s.line - first}" for s in steps.list]


def numbers(count):
    return np.arange(count, dtype=np.float32)


# Which steps there are


def test_a_loop_has_a_step_for_each_test_and_each_round():
    steps = made(loops, 1, 4, np.zeros(3, np.float32), numbers(3))
    lines = [s.split(":")[1] for s in told(steps, loops)]
    assert "".join(lines) == "01234" + "5" + "675" + "675" + "8" + "89"
    threads = [s.threads.tolist() for s in steps.list]
    assert threads[2:5] == [[0, 1, 2, 3], [3], [0, 1, 2]]  # the guard, and the thread that returns
    assert threads[5:12] == [[0, 1, 2], [1, 2], [1, 2], [1, 2], [2], [2], [2]]
    assert threads[12:] == [[0, 1, 2], [1], [1]]


def test_a_call_has_its_steps_between_those_of_its_statement():
    steps = made(calls, 1, 3, np.zeros(3, np.float32), numbers(3) + 1)
    found = [f"{s.kind} {s.function}" for s in steps.list]
    call = ["enter outer", "statement outer", "enter inner", "statement inner", "statement inner", "statement inner"]
    assert found[:2] == ["enter calls", "statement calls"]
    assert found[2:9] == ["statement calls", *call]
    assert found[9:11] == ["return outer", "return calls"]  # x[0] is read, total assigned
    assert [len(s.threads) for s in steps.list[4:11]] == [3, 3, 3, 1, 2, 3, 3]
    assert found.count("return calls") == 2  # nothing is left of the `if`, nor behind the first call of the sum
    assert found[-2:] == ["statement calls", "enter nothing"]


def test_blocks_come_one_after_the_other():
    steps = made(loops, 3, 2, np.zeros(5, np.float32), numbers(5), blocks=[0, 2])
    assert steps.blocks == [0, 2]
    blocks = [s.block for s in steps.list]
    assert blocks == sorted(blocks)
    assert steps[blocks.index(2) + 3].threads.tolist() == [1]  # thread 5 returns


def test_barriers_are_marked():
    steps = made(barriers, 1, 64, np.zeros(64, np.float32))
    stops = [s.line for s in steps.list if s.barrier]
    first = line(barriers, "cuda.syncthreads()")
    assert stops == [first, first + 5]
    assert all(len(steps.waits(s.number)) == 64 for s in steps.list if s.barrier)


def test_a_kernel_without_parameters_or_accesses():
    assert [s.kind for s in made(no_parameters, 1, 33).list] == ["enter"]
    steps = made(one_barrier, (2, 1, 1), (3, 2, 2))
    assert [(s.kind, s.barrier, len(s.threads)) for s in steps.list] == 2 * [
        ("enter", False, 12),
        ("statement", True, 12),
    ]


def test_only_the_warps_that_are_followed():
    steps = made(barriers, 1, 64, np.zeros(64, np.float32), warps=1)
    assert {t for s in steps.list for t in s.threads.tolist()} == set(range(32, 64))
    assert warp(steps[0], 1).all()
    assert not warp(steps[0], 0).any()


def test_a_for_over_an_array_reads_in_each_round():
    steps = made(over_an_array, 1, 3, np.zeros(3, np.float32), numbers(3))
    head = line(over_an_array, "for v in x")
    counts = [len(steps.accesses(s.number)) for s in steps.list if s.line == head]
    assert counts == [0, 3, 3, 3]  # none where the loop begins, then an element in each round


# Threads that do not get to the end


def test_a_thread_that_waits_in_vain_goes_no_further():
    steps = made(misses_a_barrier, 1, 4, np.zeros(4, np.float32))
    assert steps.trace.faults
    last = [s for s in steps.list if s.threads[0] < 2][-1]
    assert (last.line, last.threads.tolist()) == (line(misses_a_barrier, "syncthreads"), [0, 1])
    assert not steps.waits(last.number)[0].passed
    assert steps[len(steps) - 1].threads.tolist() == [2, 3]


def test_a_thread_that_raised_goes_no_further():
    steps = made(asserts, 1, 4, np.zeros(4, np.float32), numbers(4))
    assert [s.threads.tolist() for s in steps.list] == [[0, 1, 2, 3]] * 3 + [[0, 1, 2]] * 2


def test_a_thread_without_the_variable_goes_no_further():
    steps = made(never_assigned, 1, 3, np.zeros(3, np.float32))
    assert [s.threads.tolist() for s in steps.list][-2:] == [[0, 1, 2], [1, 2]]


# What belongs to a step


def test_the_accesses_and_assignments_of_a_step():
    steps = made(loops, 1, 4, np.zeros(3, np.float32), numbers(3))
    add = steps.list[6]
    assert add.line == line(loops, "out[i] += x[i]")
    trace = steps.trace
    records = trace.accesses[steps.accesses(add.number)]
    assert records["thread"].tolist() == [1, 1, 1, 2, 2, 2]
    assert [trace.arrays[a].name for a in records["array"][:3]] == ["out", "x", "out"]
    assert [(v.name, v.thread, v.value) for v in steps.assignments(add.number + 1)] == [("n", 1, 1), ("n", 2, 1)]


def test_variables_of_a_thread_forward_and_back():
    steps = made(loops, 1, 4, np.zeros(3, np.float32), numbers(3))
    at = {s.number: steps.variables(s.number, 2).get("n") for s in steps.list}
    known = [at[n] for n in sorted(at)]
    assert known == [None] * 4 + [0] * 3 + [1] * 3 + [2] * 5
    assert steps.variables(3, 2)["i"] == 2
    assert steps.variables(0, 2)["x"] == "x: float32[3]"
    assert [steps.variables(n, 2).get("n") for n in reversed(range(len(steps)))] == known[::-1]


def test_each_call_has_variables_of_its_own():
    steps = made(calls, 1, 3, np.zeros(3, np.float32), numbers(3) + 1)
    inside = next(s for s in steps.list if s.function == "inner" and s.kind == "statement")
    frames = steps.stack(inside.number, 2)
    assert [f.function for f in frames] == ["calls", "outer", "inner"]
    assert [f.line for f in frames[:2]] == [line(calls, "total = outer"), line(outer, "return inner")]
    assert steps.variables(inside.number, 2) == {"x": "x: float32[3]", "i": 2}
    assert set(steps.variables(inside.number, 2, frames[0].execution)) == {"out", "x", "i"}
    assert steps.variables(len(steps) - 1, 2, frames[0].execution)["total"] == np.float32(4)


def test_where_a_thread_was_last_and_comes_next():
    steps = made(loops, 2, 2, np.zeros(3, np.float32), numbers(3))
    assert steps.last(len(steps) - 1, 1) is not None
    second = next(s.number for s in steps.list if s.block == 1)
    assert [steps.last(second + n, 1) for n in (0, 3, 4)] == [second, second + 3, second + 3]  # it returns
    assert steps.next(second + 3, [1]) is None
    assert steps.next(second - 1, [1]) == second
    assert steps.previous(second, [0, 1]) == second - 1
    assert steps.previous(0, [0, 1]) is None
    assert steps.last(0, 7) is None
    assert steps.stack(0, 7) == []


def test_a_trace_without_variables_is_refused():
    with pytest.raises(UserError, match="variables=True"):
        Steps(simt.trace(loops, 1, 4, (np.zeros(3, np.float32), numbers(3))))


def test_values_as_people_read_them():
    assert [shown(v) for v in (np.float32(0.1), np.int64(3), np.bool_(True), np.complex64(1 - 2j), None)] == [
        *("0.1", "3", "True", "(1-2j)", "None")
    ]
    assert shown((np.float32(1),)) == "(1.0,)"
    assert shown("p: [('x', '<f4'), ('y', '<i4')][3, 2]") == "p: records[3, 2]"
    assert shown("x: float32[40]") == "x: float32[40]"


# Any kernel


@pytest.mark.parametrize("name", [*CORRECT, *list(FAULTY)[::3]])
def test_every_thread_goes_through_its_steps_in_the_order_of_what_it_did(name):
    """Each record is in one step, that its thread takes part in, on its line; and a thread's records in order."""
    steps = traced(name)[1]
    trace = steps.trace
    threads = trace.launch.block_threads
    taken = np.concatenate([s.number * threads + s.threads for s in steps.list])
    for who, groups in (
        ([(int(a["block"]), int(a["thread"])) for a in trace.accesses], steps.of_accesses),
        ([(w.block, w.thread) for w in trace.waits], steps.of_waits),
        ([(v.block, v.thread) for v in trace.variables], steps.of_variables),
    ):
        of = np.empty(len(who), np.int64)
        of[groups.members] = np.repeat(np.arange(len(steps)), np.diff(groups.starts))
        assert np.array_equal(np.sort(groups.members), np.arange(len(who)))
        block, thread = np.array(who, np.int64).reshape(-1, 2).T
        assert np.isin(of * threads + thread, taken).all()
        order = np.argsort(block * threads + thread, kind="stable")
        same = np.diff((block * threads + thread)[order]) == 0
        assert (np.diff(of[order])[same] >= 0).all()
        assert np.array_equal(np.array([s.block for s in steps.list])[of], block)
    lines = np.array([trace.instructions[n].line for n in trace.accesses["instruction"]], np.int64)
    assert (np.abs(np.array([s.line for s in steps.list])[steps.step_of_access] - lines) <= 12).all()
