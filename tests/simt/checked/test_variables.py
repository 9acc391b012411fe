"""One type for each variable where branches meet: what the PTX executor computes, and what is told of float64."""

import math
from typing import Any

import numpy as np
import pytest
from numba import cuda, float32, int32, types
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.simt import faults
from nanoeuler.simt.checked.execute import collect_faults
from nanoeuler.simt.launch import launch_shape


def behind_an_if(out, x, n):
    a = x[0]
    b = a * a
    if n > 2:
        a = 0.1
    out[0] = a * a  # fault
    out[1] = b


def in_one_branch_only(out, x, n):
    if n > 0:
        a = x[0]
    if n > 2:
        a = 3
    elif n < 0:
        return
    else:
        a = x[1]
    out[0] = a * x[2]  # fault


def of_integers(out, x, n):
    big = int32(2**31 - 1)
    if n > 2:
        big = 7
    out[0] = big + big
    narrow, wide = types.uint8(200), n
    while wide < 4:
        wide += 1
        narrow = types.int16(-300) if wide == 3 else types.uint8(17)
    out[1] = narrow


def at_a_loops_head(out, x, n):
    best = -math.inf
    for i in range(n):
        if x[i] > best:  # fault
            best = x[i]
    out[0] = best


def ways_out_of_a_loop(out, x, n):
    i = 0
    while True:
        if i > n:
            v = x[i]
            break
        i += 1
        if i == 3:
            v = 1
            break
        if i == 2:
            v = 0.5
            continue
        v = x[i]
    out[0] = v * x[0]  # fault


def behind_a_loops_else(out, x, n):
    for i in range(n):
        v = x[i]
        if v > 3:
            break
    else:
        v = 2
    out[0] = v / 3  # fault


def conditional_expression(out, x, n):
    v = n if n > 2 else x[0]
    out[0] = v * v  # fault
    out[1] = x[0] if n > 2 else 0


@cuda.jit(device=True)
def pick(x, n):
    if n > 2:
        return x[0]
    return 0.1


def results_of_a_function(out, x, n):
    out[0] = pick(x, n) * x[1]  # fault


def whole_numbers(out, x, n):
    total = 0
    for i in range(n):
        total += x[i]  # fault
    out[0] = float32(total) / x[2]


def of_tuples_and_arrays(out, x, n):
    row = x[2:]
    if n > 2:
        row = x
    first, (second, third) = row[0], (row[1], 1.5 if n > 1 else x[0])
    out[0] = first + second
    out[1] = third * 2  # fault


def in_a_shared_array(out, x, n):
    kept = cuda.shared.array(4, float32)
    kept[cuda.threadIdx.x] = x[cuda.threadIdx.x]
    cuda.syncthreads()
    v = kept[0]
    for k in range(n):
        v = max(v, kept[k % 1]) if k % 2 else cuda.shfl_sync(1, v, 0)
    if cuda.any_sync(1, n > 2):
        v = cuda.atomic.add(out, 2, 1)
    if n == 0:
        v = 1e300
    out[0] = v * v  # fault


def marked(kernel: Any) -> set[int]:
    """Return the lines of a kernel that are marked as faults."""
    import inspect

    lines, first = inspect.getsourcelines(kernel)
    return {first + n for n, text in enumerate(lines) if "# fault" in text}


KERNELS = (
    *(behind_an_if, in_one_branch_only, of_integers, at_a_loops_head, ways_out_of_a_loop, behind_a_loops_else),
    *(conditional_expression, results_of_a_function, whole_numbers, of_tuples_and_arrays, in_a_shared_array),
)
X = np.array([1.1, 2.7, 3.3, 4.9, 5, 6.1, 7.7, 8.3], np.float32)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_values_are_those_of_the_gpus_code(kernel: Any) -> None:
    """Whichever way a thread takes."""
    need_toolkit()
    for n in (0, 1, 2, 3, 5):
        found, wanted = np.zeros(3, np.float32), np.zeros(3, np.float32)
        collect_faults(kernel, launch_shape(1, 1), (found, X, n))
        simt.run(kernel, 1, 1, (wanted, X, n), executor="ptx")
        assert found.tobytes() == wanted.tobytes(), n


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_float64_is_told_on_every_way(kernel: Any) -> None:
    """Also by a thread that did not take the branch which makes the variable float64."""
    for n in (2, 3, 5):
        found = collect_faults(kernel, launch_shape(1, 1), (np.zeros(3, np.float32), X, n))
        assert {f.kind for f in found} <= {faults.FLOAT64}
        assert {f.line for f in found} == marked(kernel), n


def one_type_each(out, x, n):
    t = x[0]
    if n > 0:
        t = 0.5
        out[0] = t
    t = x[1]
    for i in range(n):
        t = 0.25
        t = x[i] * x[1]
    out[1] = t
    low = x[0] if n > 2 else float32(0)
    best = float32(-math.inf)
    for i in range(n):
        low = min(low, x[i])
        if x[i] > best:
            best = x[i]
    out[2] = low + best if n else low


def doubles(out, x, n):
    a = np.float64(x[0])
    if n > 2:
        a = 0.1
    elif n > 1:
        a = x[1]
    out[0] = a * x[0]


def test_nothing_is_told_of_what_is_not_float64_or_is_meant_to_be() -> None:
    """A variable that is assigned anew before it is read is another one; one branch asks for float64 by name."""
    for kernel in (one_type_each, doubles):
        for n in (0, 1, 2, 3):
            assert collect_faults(kernel, launch_shape(1, 1), (np.zeros(3, np.float32), X, n)) == []


def maybe_assigned(out, x, n):
    i = cuda.threadIdx.x
    if i > 0:
        v = x[i]
    if i > 1:
        v = 2
    out[i] = i
    if i > 0:
        out[i] = v


def test_a_cast_reads_no_variable_that_was_not_assigned() -> None:
    """Thread 0 comes by the places where types meet, and never assigns the variable nor reads it."""
    out = np.zeros(3, np.float32)
    assert collect_faults(maybe_assigned, launch_shape(1, 3), (out, X, 0)) == []
    assert out.tolist() == [0, X[1], 2]


@cuda.jit(device=True)
def first_of(values, n):
    v = values[0]
    if n > 2:
        v = 1
    return v


def two_types_of_arguments(out, x, n):
    numbers = cuda.local.array(1, int32)
    numbers[0] = 2**31 - 1
    out[0] = first_of(numbers, n)
    out[1] = first_of(x, n)


def test_the_limit() -> None:
    """A function whose calls need different casts does none, and still gives each caller its value."""
    out = np.zeros(3, np.float32)
    assert collect_faults(two_types_of_arguments, launch_shape(1, 1), (out, X, 0)) == []
    assert out[:2].tolist() == [2.0**31, X[0]]
