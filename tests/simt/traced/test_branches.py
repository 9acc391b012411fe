"""Which threads find a condition true, against what the kernels' own arithmetic says."""

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba import cuda, int32
from simt.traced.catalogue import CORRECT, traced

from nanoeuler.simt.traced.branches import Branches
from nanoeuler.simt.traced.stepper import Stepper, step
from nanoeuler.simt.traced.steps import ENTER


@cuda.jit
def ways(out, x):
    """All kinds of conditions."""
    t = cuda.threadIdx.x
    n = int32(0)
    while n < t % 3:
        n += 1
    if t == 99:
        out[t] = 9
    if t < 2: out[t] = 1  # fmt: skip  # noqa: E701
    elif t < 5:
        pass
    elif even(t):
        while n < 4:
            n += 1
    else:
        for k in range(2):
            if k == t:
                break
    if x[t] > 0 and t > 3:  # noqa: SIM102
        if t > 4:
            out[t] = n
    if t == 6:
        return
    out[t] += 1


@cuda.jit(device=True)
def even(t):
    if t % 2 == 0:  # noqa: SIM103
        return True
    return False


def found():
    """Return what is found true: for each line the threads of each of its steps that decide."""
    out, x = np.zeros(8, np.int32), np.array([1, 1, 1, 0, 1, 1, 0, 1], np.int32)
    at = step(ways, 1, 8, (out, x))
    branches, lines = Branches(at.steps), {}
    for one in at.steps.list:
        taken = branches.taken(one.number)
        if taken is not None:
            assert set(taken) <= set(one.threads)
            text = at.trace.source_line(one.line).strip().partition(":")[0]
            lines.setdefault(text, []).append((one.threads.tolist(), taken.tolist()))
    return lines


def test_all_kinds_of_conditions():
    everyone = list(range(8))
    assert found() == {
        "while n < t % 3": [
            (everyone, [1, 2, 4, 5, 7]),
            ([1, 2, 4, 5, 7], [2, 5]),
            ([2, 5], []),
        ],
        "if t == 99": [(everyone, [])],
        "if t < 2": [(everyone, [0, 1])],
        "elif t < 5": [([2, 3, 4, 5, 6, 7], [2, 3, 4])],
        "elif even(t)": [([5, 6, 7], [6])],
        "if t % 2 == 0": [([5, 6, 7], [6])],
        "while n < 4": [*[([6], [6])] * 4, ([6], [])],
        "if k == t": [([5, 7], []), ([5, 7], [])],
        "if x[t] > 0 and t > 3": [(everyone, [4, 5, 7])],
        "if t > 4": [([4, 5, 7], [5, 7])],
        "if t == 6": [(everyone, [6])],
    }


@pytest.mark.parametrize("name", list(CORRECT)[::8])
def test_only_conditions_decide(name):
    at = Stepper(traced(name)[1].trace)
    branches = Branches(at.steps)
    for one in at.steps.list:
        taken = branches.taken(one.number)
        code = at.trace.source_line(one.line, one.file).strip()
        if taken is not None:
            assert code.startswith(("if ", "elif ", "while "))
            assert one.kind != ENTER
            assert set(taken) <= set(one.threads)
