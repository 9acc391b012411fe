"""Moving through a launch, and what there is to see at each place."""

import inspect
import sys

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba import cuda, float32, int32
from simt.traced import kernels as traced_kernels

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.faults import UnsupportedError
from nanoeuler.simt.traced import terminal
from nanoeuler.simt.traced.stepper import Stepper, step


@cuda.jit
def tree(out, x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.blockIdx.x, t]
    cuda.syncthreads()
    half = 32
    while half > 0:
        if t < half:
            s[t] += s[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = s[0]


@cuda.jit
def two_of_a_name(out):
    t = cuda.threadIdx.x
    if t < 0:
        s = cuda.shared.array(4, int32)
    else:
        s = cuda.shared.array(4, int32)
    s[t] = t
    out[t] = s[t]


@cuda.jit
def no_kernel(x):
    x[0] = [1]


def launch(**how):
    x = np.ones((3, 64), np.float32)
    out = np.zeros(3, np.float32)
    return step(tree, 3, 64, (out, x), **how), out


def test_only_the_first_block_runs_unless_others_are_asked_for():
    stepper, out = launch()
    assert stepper.steps.blocks == [0]
    assert out.tolist() == [64, 0, 0]
    stepper, out = launch(blocks=[(2, 0), 1])
    assert stepper.steps.blocks == [1, 2]
    assert out.tolist() == [0, 64, 64]


def test_moves():
    stepper, _ = launch()
    end = len(stepper.steps) - 1
    assert stepper.step.number == stepper.position == 0
    assert stepper.next().number == 1
    assert stepper.next(3).number == 4
    assert stepper.back(2).number == 2
    assert stepper.back(9).number == 0
    assert stepper.next(10**6).number == end
    assert stepper.to(5).number == 5
    for wrong in (-1, end + 1):
        with pytest.raises(UserError, match=f"0 to {end}"):
            stepper.to(wrong)
    assert stepper.position == 5


def test_to_barriers():
    stepper, _ = launch()
    barriers = [s.number for s in stepper.steps.list if s.barrier]
    assert len(barriers) == 7
    assert [stepper.next_barrier().number for _ in range(8)] == [*barriers, len(stepper.steps) - 1]
    assert [stepper.previous_barrier().number for _ in range(8)] == [*barriers[::-1], 0]


def test_to_the_steps_of_a_thread_or_warp():
    stepper, _ = launch()
    stepper.choose(40)
    adds = [s for s in stepper.steps.list if s.line == line("s[t] += ")]
    stepper.to(adds[0].number - 1)  # the branch is for warp 0 alone, from here on
    assert stepper.next_of().number == adds[0].number + 1
    assert stepper.previous_of().number == adds[0].number - 1
    assert stepper.next_of(warp=0).number == adds[0].number
    assert stepper.next_of(warp=1).number == adds[0].number + 1
    stepper.to(len(stepper.steps) - 1)
    assert stepper.next_of().number == len(stepper.steps) - 1
    stepper.to(0)
    assert stepper.previous_of().number == 0


def line(text):
    """Return the number of the first line of ``tree`` with ``text`` in it."""
    lines, first = inspect.getsourcelines(tree.py_func)
    return next(n for n, found in enumerate(lines, first) if text in found)


def test_choosing_a_thread():
    stepper = step(tree, 1, (8, 4, 2), (np.zeros(1, np.float32), np.ones((1, 64), np.float32)))
    assert stepper.thread == 0
    stepper.choose((3, 2, 1))
    assert stepper.thread == 3 + 8 * (2 + 4 * 1)
    stepper.choose((5, 1))
    assert stepper.thread == 13
    stepper.choose(63)
    assert stepper.thread == 63
    for wrong in (64, -1, (8, 0), (0, 0, 2), (0, 0, 0, 0)):
        with pytest.raises(UserError, match=r"thread .* is not in the block"):
            stepper.choose(wrong)


def test_only_threads_that_are_followed_can_be_chosen():
    stepper, _ = launch(warps=1)
    assert stepper.thread == 32
    with pytest.raises(UserError, match="warp 0, which is not followed"):
        stepper.choose(5)


def test_what_there_is_to_see():
    stepper, _ = launch()
    stepper.choose(5)
    assert stepper.array("s").mask.all()
    stepper.next_barrier()
    assert stepper.array("s").tolist() == [1] * 64
    assert stepper.variables["t"] == 5
    stepper.next_barrier()
    assert stepper.variables["half"] == 32
    assert stepper.array("s")[:33].tolist() == [2] * 32 + [1]
    stepper.back(10)
    assert "half" not in stepper.variables
    stepper.to(len(stepper.steps) - 1)
    assert stepper.array("out").tolist() == [64, 0, 0]
    with pytest.raises(UserError, match=r"no array 'S'.*there is out, x, s"):
        stepper.array("S")


def test_of_two_arrays_of_one_name_the_one_in_use():
    stepper = step(two_of_a_name, 1, 4, (np.zeros(4, np.int32),))
    stepper.to(len(stepper.steps) - 1)
    assert stepper.array("s").tolist() == [0, 1, 2, 3]


def test_it_says_where_it_is():
    stepper, _ = launch()
    stepper.next(2)
    end, at = len(stepper.steps) - 1, line("t = cuda.threadIdx.x")
    assert repr(stepper) == f"<Stepper of tree: step 2 of {end}, line {at}>"


def test_faults_do_not_stop_it():
    x = np.ones((1, 32), np.float32)
    stepper = step(tree, 1, 64, (np.zeros(1, np.float32), x))
    assert stepper.trace.faults
    assert stepper.next_barrier().barrier


def test_what_cannot_be_followed_says_why():
    with pytest.raises(UnsupportedError, match=r"test_stepper.py:\d+"):
        step(no_kernel, 1, 1, (np.zeros(1),))
    with pytest.raises(UserError, match="not in the grid"):
        launch(blocks=7)
    with pytest.raises(UserError, match="more than 100 records"):
        launch(limit=100)
    with pytest.raises(UserError, match="variables=True"):
        Stepper(simt.trace(tree, 1, 64, (np.zeros(1, np.float32), np.ones((1, 64), np.float32))))


@pytest.mark.parametrize(("stdin", "stdout", "notebook"), [(1, 1, 0), (0, 1, 0), (1, 0, 0), (1, 1, 1)])
def test_a_terminal_opens_the_prompt(monkeypatch, stdin, stdout, notebook):
    opened = []
    monkeypatch.setattr(terminal.Terminal, "run", lambda self: opened.append(self))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: bool(stdin), raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: bool(stdout), raising=False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    if notebook:
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    launch()
    assert len(opened) == (stdin and stdout and not notebook)


def test_a_local_array_without_a_name_is_shown_in_the_call_that_has_it() -> None:
    out = np.zeros(3, np.float32)
    stepper = simt.step(traced_kernels.unnamed, 1, 3, (out, np.arange(3, dtype=np.float32)))
    np.testing.assert_array_equal(out, [0, 2, 4])
    assert "iframe" in stepper._repr_html_()
    assert "could not" not in stepper._repr_html_()
