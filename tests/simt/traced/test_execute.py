"""``simt.trace``: what it takes, what it changes, what it refuses, and that a trace changes nothing about a launch."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from simt.kernels import correct
from simt.kernels.cases import assert_results
from simt.traced import kernels

from nanoeuler import simt
from nanoeuler.errors import UserError


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize("kernel", [pytest.param(kernel, id=kernel.name) for kernel in correct.CORRECT])
def test_a_traced_launch_gives_the_same_results(kernel: Any) -> None:
    """Run the whole catalogue: what it computes is right, there is no fault, and the trace has its writes."""
    low, high = kernel.sizes
    case = kernel.case(size=max(low, min(high, 37)))
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in case.args]
    found = simt.trace(kernel.kernel, case.grid, case.block, case.args, shared_bytes=case.shared_bytes, variables=True)
    assert found.faults == ()
    assert_results(case, kernel.tolerance)
    written = {found.arrays[n].name for n in found.accesses["array"][found.accesses["kind"] > 0]}
    for name, argument, old in zip(names(kernel), case.args, before, strict=True):
        if isinstance(argument, np.ndarray) and argument.tobytes() != old.tobytes():
            assert name in written


def names(kernel: Any) -> list[str]:
    function = getattr(kernel.kernel, "py_func", kernel.kernel)
    return list(function.__code__.co_varnames[: function.__code__.co_argcount])


def test_only_chosen_blocks_run() -> None:
    out = np.zeros(12, np.float32)
    found = simt.trace(kernels.copy, 3, 4, (out, ones(12)), blocks=1)
    assert found.blocks == (1,)
    np.testing.assert_array_equal(out, [0] * 4 + [1] * 4 + [0] * 4)
    assert set(found.accesses["block"]) == {1}
    found = simt.trace(kernels.product, (2, 2), (4, 4), (ones(8, 8), ones(8, 8), ones(8, 8)), blocks=[(1, 0), (1, 1)])
    assert found.blocks == (1, 3)


def test_only_chosen_warps_are_recorded_and_the_others_run() -> None:
    out = np.zeros(70, np.float32)
    found = simt.trace(kernels.copy, 1, 70, (out, ones(70)), warps=[0, 2])
    assert out.sum() == 70
    assert set(found.accesses["thread"] // 32) == {0, 2}
    assert set(found.visits["thread"] // 32) == {0, 2}
    one = simt.trace(kernels.exchanged, 1, 32, (ones(32), ones(32)), warps=0)
    assert len(one.waits) == 32 * 6


def test_warps_that_are_not_recorded_share_memory_and_barriers_with_those_that_are() -> None:
    out = np.zeros(64, np.float32)
    found = simt.trace(kernels.unordered, 1, 64, (out,), warps=1)
    assert {(f.kind, f.array) for f in found.faults} == {("race", "s")}
    c, a, b = ones(8, 8), ones(8, 8), ones(8, 8)
    assert simt.trace(kernels.product, (2, 2), (4, 4), (c, a, b), warps=0).faults == ()
    np.testing.assert_array_equal(c, a @ b)


def test_only_chosen_lines_are_recorded() -> None:
    whole = simt.trace(kernels.product, 1, (4, 4), (ones(4, 4), ones(4, 4), ones(4, 4)))
    line = next(i.line for i in whole.instructions if i.text == "tb[k, tx]")
    found = simt.trace(kernels.product, 1, (4, 4), (ones(4, 4), ones(4, 4), ones(4, 4)), lines=range(line, line + 1))
    assert {i.line for i in found.instructions} == {line}
    assert len(found.accesses) == whole.select(line=line).sum() == 2 * 4 * 16


def test_a_trace_that_is_too_long_says_what_to_choose_and_changes_nothing() -> None:
    out = np.zeros(64, np.float32)
    with pytest.raises(UserError, match=r"more than 20 records: choose less of the launch \(blocks=0 is its first"):
        simt.trace(kernels.copy, 1, 64, (out, ones(64)), limit=20)
    assert not out.any()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"blocks": 5}, r"block 5 is not in the grid \(2, 1, 1\)"),
        ({"blocks": (0, 1)}, r"block \(0, 1\) is not in the grid"),
        ({"blocks": -1}, "block -1 is not"),
        ({"blocks": "x"}, "block x is not"),
        ({"warps": 2}, "warp 2 is not in a block of 33 threads: it has 0 to 1"),
        ({"warps": [-1]}, "warp -1 is not"),
        ({"order": "sideways"}, "unknown order"),
        ({"limit": 0}, "limit"),
        ({"limit": None}, "limit None"),
        ({"blocks": ()}, r"block \(\) is not"),
        ({"blocks": []}, "blocks: none are chosen"),
        ({"warps": "0"}, "warps='0': give an integer or several"),
        ({"warps": 0.0}, "warps=0.0: give"),
        ({"warps": []}, "warps: none are chosen"),
        ({"lines": [3.5]}, "lines=.*give an integer"),
        ({"lines": range(0)}, "lines: none are chosen"),
    ],
)
def test_a_wrong_choice_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        simt.trace(kernels.copy, 2, 33, (ones(66), ones(66)), **given)


def test_arguments_that_are_no_tuple_and_kernels_that_are_none_are_refused() -> None:
    with pytest.raises(UserError, match="give a tuple of the kernel's arguments"):
        simt.trace(kernels.copy, 1, 1, ones(1))
    with pytest.raises(UserError, match="is no kernel"):
        simt.trace(SimpleNamespace(), 1, 1, (ones(1),))


def bad(out):
    out[0] = [1, 2][0]


def test_a_syntax_that_cannot_be_followed_is_told_with_its_line() -> None:
    line = bad.__code__.co_firstlineno + 1
    with pytest.raises(simt.UnsupportedError, match=rf"test_execute.py:{line}: .*cannot be run here"):
        simt.trace(bad, 1, 1, (ones(1),))


def test_faults_stand_in_the_trace_and_nothing_is_raised() -> None:
    found = simt.trace(kernels.parted, 1, 6, (ones(6),))
    assert [f.kind for f in found.faults] == ["barrier divergence"]
    assert [(w.thread, w.passed) for w in found.waits] == [(0, False), (1, False), (2, False)]
    assert {int(t) for t in found.accesses["thread"]} == set(range(6))


def test_numbers_of_numpy_choose_as_those_of_python_do() -> None:
    out = np.zeros(66, np.float32)
    zero = np.int64(0)
    found = simt.trace(kernels.copy, 2, 33, (out, ones(66)), blocks=zero, warps=zero, lines=np.array([zero, 15]))
    assert (found.blocks, found.warps, found.lines) == ((0,), {0}, {0, 15})
    assert "(0, 0, 0)" in found.report()


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_of_a_huge_grid_only_the_chosen_blocks_are_looked_at(order: Any) -> None:
    """Going through all of them would take hours."""
    grid = (2**31 - 1, 2, 1)
    found = simt.trace(kernels.copy, grid, 32, (ones(64), ones(64)), blocks=[(1, 0), (0, 0)], order=order)
    assert found.blocks == (0, 1)
    assert len(found.accesses) == 2 * 64
    with pytest.raises(UserError, match="a trace counts to"):
        simt.trace(kernels.copy, (2**31 - 1, 9), 32, (ones(64), ones(64)), blocks=(0, 8))


def test_a_loop_without_accesses_keeps_to_the_limit() -> None:
    """What the second thread does is no new execution, and counts all the same as soon as it is much."""
    out = np.zeros(2, np.int32)
    limit = 50_000
    with pytest.raises(UserError, match="more than 50,000 records"):
        simt.trace(kernels.counting, 1, 2, (out, 45_000), limit=limit)
    assert not out.any()


def test_an_interrupted_trace_leaves_arrays_as_they_were_and_the_next_one_runs(monkeypatch: Any) -> None:
    out = np.zeros(8, np.float32)

    def interrupted(self: Any, *record: Any) -> None:
        if out.any():
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("nanoeuler.simt.traced.recorder.Recorder.access", interrupted)
        with pytest.raises(KeyboardInterrupt):
            simt.trace(kernels.copy, 1, 8, (out, ones(8)))
    assert not out.any()
    assert len(simt.trace(kernels.copy, 1, 8, (out, ones(8))).accesses) == 16
    assert out.all()


def test_a_launch_that_would_be_far_too_long_is_given_up_after_its_first_block() -> None:
    out, x = np.zeros(64 * 100, np.float32), ones(64 * 100)
    told = "the first block makes 256 records, so all would make about 25,600; the limit is 999: choose less"
    with pytest.raises(UserError, match=told):
        simt.trace(kernels.copy, 100, 64, (out, x), limit=999)
    assert not out.any()
    assert len(simt.trace(kernels.copy, 100, 64, (out, x), limit=999, blocks=3).accesses) == 128
