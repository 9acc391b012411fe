"""What a trace holds: values, order, warp instructions and executions, against what can be counted by hand."""

import importlib
import inspect
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from simt.traced import kernels

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.traced.page.document import NO_STEPS


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def instructions(found: simt.Trace) -> list[tuple[str, list[int]]]:
    """Return each warp instruction: its text, and its lanes."""
    warp, threads = found.warp_instructions, found.accesses["thread"]
    lanes = [sorted(threads[warp.of_access == n].tolist()) for n in range(len(warp))]
    return [(found.instructions[number].text, of) for number, of in zip(warp.instruction, lanes, strict=True)]


def test_events_tell_who_accessed_what_and_where() -> None:
    found = simt.trace(kernels.copy, 2, 3, (np.zeros(5, np.float32), numbers(5)))
    line = kernels.copy.py_func.__code__.co_firstlineno + 5
    told = [(e.block, e.thread, e.line, e.text, e.action, e.array, e.index, e.value) for e in found.events()]
    expected = []
    for block, count in ((0, 3), (1, 2)):
        for text, action, array in (("x[i]", "reads", "x"), ("out[i]", "writes", "out")):
            for thread in range(count):
                i = block * 3 + thread
                expected.append(((block, 0, 0), (thread, 0, 0), line, text, action, array, (i,), i))
    assert told == expected
    assert str(next(found.events(array="out"))) == f"line {line}: thread (0, 0, 0) writes out[0] = 0.0"
    assert str(next(found.events(array="x", thread=1))) == f"line {line}: thread (1, 0, 0) reads x[1] == 1.0"


def test_select_finds_by_array_line_thread_block_warp_and_kind() -> None:
    found = simt.trace(kernels.product, (2, 1), (4, 4), (np.zeros((4, 8), np.float32), numbers(4, 8), numbers(8, 8)))
    assert found.select(array="ta", kind=1).sum() == 2 * 2 * 16
    assert found.select(array="a", thread=(1, 2), block=(1, 0)).sum() == 2
    assert [e.index for e in found.events(array="a", thread=(1, 2), block=1)] == [(2, 1), (2, 5)]
    assert found.select(warp=0).all()
    assert not found.select(warp=1).any()
    with pytest.raises(UserError, match=r"no array 'tc'.*product has"):
        found.select(array="tc")


def test_lanes_go_together_through_branches_loops_and_calls() -> None:
    """Count the warp instructions of a kernel with every kind of branch, lane by lane."""
    out = np.zeros(7, np.float32)
    found = simt.trace(kernels.ways, 1, 9, (out, numbers(6)))
    assert instructions(found) == [
        ("out[i]", [1, 2, 4, 5]),  # round 0 of the while: loaded
        ("out[i]", [1, 2, 4, 5]),  # and stored
        ("out[i]", [2, 5]),  # round 1
        ("out[i]", [2, 5]),
        ("out[i]", [0, 2, 4]),  # even lanes
        ("x[i]", [0, 2, 4]),  # the first call
        ("x[i]", [0, 2]),  # behind its early return
        ("x[i]", [0, 2, 4]),  # the second call, for x[0]
        ("x[i]", [0, 2, 4]),
        ("out[i]", [0, 2, 4]),
        ("cuda.atomic.add(out, x.size, float32(1))", [1, 3, 5]),
    ]


def test_rounds_count_for_lanes_that_leave_a_loop_or_skip_a_part_of_it() -> None:
    found = simt.trace(kernels.leaving, 1, 4, (np.zeros((4, 5), np.float32), numbers(5)))
    by_round = [lanes for text, lanes in instructions(found) if text == "x[k]"]
    assert by_round == [[1, 2, 3], [2, 3], [3]]
    assert [lanes for text, lanes in instructions(found) if text == "x[4]"] == [[0, 1, 2, 3]]


def test_bounds_are_loaded_before_the_loop_that_they_bound() -> None:
    starts = np.array([0, 2, 2, 5], np.int64)
    found = simt.trace(kernels.rows, 1, 3, (np.zeros(3, np.float32), starts, numbers(5)))
    assert instructions(found) == [
        ("starts[i]", [0, 1, 2]),
        ("starts[i + 1]", [0, 1, 2]),
        ("x[k]", [0, 2]),
        ("x[k]", [0, 2]),
        ("x[k]", [2]),
        ("out[i]", [0, 1, 2]),
    ]


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_the_warp_instructions_do_not_depend_on_the_order_of_the_threads(order: Any) -> None:
    def traced(**options: Any) -> simt.Trace:
        args = np.zeros((8, 8), np.float32), numbers(8, 8), numbers(8, 8)
        return simt.trace(kernels.product, (2, 2), (4, 4), args, **options)

    one, two = traced(), traced(order=order, seed=3)
    assert instructions(one) == instructions(two)
    assert [str(e) for e in one.events()] == [str(e) for e in two.events()]


def test_a_thread_that_does_an_instruction_several_times_at_once_makes_several_warp_instructions() -> None:
    out = np.zeros((2, 3), np.float32)
    found = simt.trace(kernels.sliced, 1, 2, (out, numbers(2, 3)))
    np.testing.assert_array_equal(out, numbers(2, 3))
    whole = [(text, lanes) for text, lanes in instructions(found) if text == "out[i, :]"]
    assert len(whole) == 6  # of each element the local array's load and the store
    assert all(lanes == [0, 1] for _, lanes in whole)
    assert {a.name: a.scope for a in found.arrays} == {"out": "global", "x": "global", "row": "local"}


def test_fields_of_records_are_elements_of_their_array() -> None:
    points = np.zeros(3, [("x", "f4"), ("y", "f4")])
    points["x"], points["y"] = [1, 2, 3], [10, 20, 30]
    out = np.zeros(3, np.float32)
    found = simt.trace(kernels.fields, 1, 3, (out, points))
    assert [(e.index, e.value) for e in found.events(array="points", thread=1)] == [((1,), 2), ((1,), 20)]
    assert sorted(set(found.accesses["offset"][found.select(array="points")])) == [0, 4, 8, 12, 16, 20]


LAYOUTS = {
    "rows": lambda: numbers(3, 5),
    "columns": lambda: np.asfortranarray(numbers(3, 5)),
    "transposed": lambda: numbers(5, 3).T,
    "every second": lambda: numbers(6, 10)[::2, ::2],
    "backwards": lambda: numbers(3, 5)[::-1, ::-1],
    "one row": lambda: numbers(1, 5),
    "part": lambda: numbers(9, 9)[2:5, 3:8],
}


def all_elements(out, x):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_indices_are_those_of_the_array_whatever_its_layout(layout: str) -> None:
    x = LAYOUTS[layout]()
    found = simt.trace(all_elements, 1, 1, (np.zeros(x.shape, np.float32), x))
    read = [(e.index, e.value) for e in found.events(array="x")]
    assert read == [(index, x[index]) for index in np.ndindex(*x.shape)]


def test_a_slice_is_placed_where_it_is_within_its_owner() -> None:
    owner = numbers(100)
    found = simt.trace(kernels.copy, 1, 4, (np.zeros(4, np.float32), owner[3:7]))
    x = found.named("x")[0]
    assert (x.past, x.lead) == (12, 0)
    assert found.named("out")[0].past == 0


def test_values_keep_their_types_and_bits() -> None:
    for dtype in ("bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8"):
        x = np.array([0, 1, 3, 100], dtype)
        if dtype == "i8":
            x[3] = -(2**62) - 1
        if dtype == "u8":
            x[3] = 2**64 - 1
        found = simt.trace(kernels.copy, 1, 4, (np.zeros_like(x), x))
        for array in ("x", "out"):
            values = [e.value for e in found.events(array=array)]
            assert [v.dtype for v in values] == [x.dtype] * 4
            np.testing.assert_array_equal(values, x)


def test_global_arrays_have_what_was_in_them_before() -> None:
    out = np.full(4, 7, np.float32)
    found = simt.trace(kernels.copy, 1, 4, (out, numbers(4)))
    np.testing.assert_array_equal(found.named("out")[0].initial, [7] * 4)
    table = simt.trace(kernels.scaled_by_table, 1, 4, (out, numbers(4)))
    assert [(a.name, a.scope) for a in table.arrays] == [("out", "global"), ("x", "global"), ("TABLE", "constant")]
    assert [e.value for e in table.events(array="TABLE")] == [1, 10, 1, 10]


def test_waits_know_what_was_exchanged() -> None:
    x = numbers(32)
    found = simt.trace(kernels.exchanged, 1, 32, (np.zeros(32, np.float32), x))
    shuffles = [w for w in found.waits if w.operation == "shfl_down_sync" and w.thread == 3]
    assert [w.source for w in shuffles] == [19, 11, 7, 5, 4]
    assert (shuffles[0].given, shuffles[0].got) == (3, 19)
    assert [w.source for w in found.waits if w.operation == "shfl_down_sync" and w.thread == 31] == [31] * 5
    votes = [w for w in found.waits if w.operation == "any_sync"]
    assert len(votes) == 32
    assert [w.given for w in votes if w.thread in (6, 7)] == [False, True]
    assert all(w.got for w in votes)


def test_barriers_count_the_phases_of_their_block() -> None:
    args = np.zeros((4, 8), np.float32), numbers(4, 8), numbers(8, 8)
    found = simt.trace(kernels.product, (2, 1), (4, 4), args)
    for block in (0, 1):
        for thread in range(16):
            assert [w.phase for w in found.waits if (w.block, w.thread) == (block, thread)] == [0, 1, 2, 3]
    assert all(w.passed for w in found.waits)


def test_visits_tell_which_lanes_came_where() -> None:
    found = simt.trace(kernels.ways, 1, 9, (np.zeros(7, np.float32), numbers(6)))
    lanes: dict[tuple[str, int], list[int]] = {}
    for visit in found.visits:
        _, block, turn = found.executions[visit["execution"]]
        if found.basic_blocks[block].kind in ("loop", "test"):
            lanes.setdefault((found.basic_blocks[block].kind, turn // 2), []).append(int(visit["thread"]))
    assert {key: sorted(value) for key, value in lanes.items()} == {
        ("test", 0): [0, 1, 2, 3, 4, 5],
        ("loop", 0): [1, 2, 4, 5],
        ("test", 1): [1, 2, 4, 5],
        ("loop", 1): [2, 5],
        ("test", 2): [2, 5],
    }
    pairs = list(zip(found.visits["thread"], found.visits["execution"], strict=True))
    assert len(pairs) == len(set(pairs))


def test_arithmetic_is_counted_by_line_operator_and_type() -> None:
    found = simt.trace(kernels.arithmetic, 1, 5, (np.zeros(5, np.float32), numbers(5)))
    first = kernels.arithmetic.py_func.__code__.co_firstlineno
    counted = {(line - first, name): tally for (_, line, name), tally in found.operations.items()}
    f4, i8 = np.float32, np.int64
    passed = 5  # a is -1, 0.5, 4, 9.5 and 17; b = a * a + a is 0, 0.75, 20, ...: always more
    assert counted == {
        (4, "*"): {f4: 5},
        (4, "+"): {f4: 5},
        (4, "/"): {f4: 5},
        (4, "-"): {f4: 5},
        (5, "fma"): {f4: 5},
        (6, "*"): {i8: 5},
        (6, "+"): {i8: 5},
        (7, "<"): {f4: 5},
        (8, "max"): {f4: passed},
        (8, "+"): {f4: passed},
    }


def test_variables_are_kept_where_they_are_asked_for() -> None:
    args = (np.zeros(3, np.float32), np.array([0, 2, 2, 5], np.int64), numbers(5))
    assert simt.trace(kernels.rows, 1, 3, args).variables == []
    found = simt.trace(kernels.rows, 1, 3, args, variables=True)
    told = [(v.name, v.value) for v in found.variables if v.thread == 2]
    assert told[:3] == [("out", "out: float32[3]"), ("starts", "starts: int64[4]"), ("x", "x: float32[5]")]
    rounds = [[("k", k), ("total", sum(range(2, k + 1)))] for k in (2, 3, 4)]
    assert told[3:] == [("i", 2), ("total", 0), *itertools.chain(*rounds)]


def test_an_empty_trace_has_no_instruction() -> None:
    found = simt.trace(kernels.nothing, 1, 3, (numbers(3),))
    assert len(found.accesses) == len(found.warp_instructions) == 0
    assert list(found.events()) == []
    assert len(found.visits) == 3


def test_arrays_of_one_name_at_two_places_are_two() -> None:
    found = simt.trace(kernels.namesakes, 2, 4, (np.zeros(4, np.float32), numbers(4)))
    assert [a.scope for a in found.arrays if a.name == "tile"] == ["shared"] * 2  # and not one for each block
    assert [a.scope for a in found.arrays if a.name == "row"] == ["local"] * 2
    one, two = found.named("tile")
    assert found.select(array=one.number).sum() == 2 * 8
    assert found.select(array=two.number).sum() == 2 * 12


def test_lines_are_those_of_the_kernels_file() -> None:
    args = np.zeros(4, np.float32), numbers(4)
    whole = simt.trace(kernels.namesakes, 1, 4, args)
    line = next(i.line for i in whole.instructions if i.text == "row[1]")
    assert len(simt.trace(kernels.namesakes, 1, 4, args, lines=line).accesses) == whole.select(line=line).sum() == 8


def test_a_trace_has_its_numbers_report_and_pictures() -> None:
    found = simt.trace(kernels.product, 1, (4, 4), (np.zeros((4, 4), np.float32), numbers(4, 4), numbers(4, 4)))
    line = next(i.line for i in found.instructions if i.text == "tb[k, tx]")
    assert found.line(line).executions == 4
    assert str(found) == found.report()
    assert "H100 SXM" in found.report("h100")
    assert found.roofline("h100").flops == 2 * 4**3
    assert repr(found) == "<Trace of product: 208 accesses, 0 faults>"
    loads = next(i.line for i in found.instructions if i.text == "a[row, start + tx]")
    pictures = [found.grid("ta"), found.sectors(loads), found.banks(line), found.timeline(), found.animation("ta")]
    assert all(picture.svg.startswith("<svg") for picture in pictures)
    assert "ta[ty, k]" in found._repr_html_()
    with pytest.raises(UserError, match="nothing was done on line 1; lines on which something was: "):
        found.line(1)


def test_arrays_over_dynamic_shared_memory_lie_in_one_memory() -> None:
    out = np.zeros(4, np.int32)
    found = simt.trace(kernels.two_kinds, 1, 4, (out, numbers(4)), shared_bytes=16)
    np.testing.assert_array_equal(out, numbers(4).view(np.int32))
    one, two = found.named("numbers")[0], found.named("bits")[0]
    assert one.memory == two.memory
    assert len({a.memory for a in found.arrays}) == 3


def test_threads_that_fail_an_assertion_come_no_further() -> None:
    found = simt.trace(kernels.asserted, 1, 6, (np.zeros(6, np.float32), numbers(6)))
    assert [f.kind for f in found.faults] == ["raised"]
    (behind,) = [b.number for b in found.basic_blocks if b.kind == "after"]
    came = [int(v["thread"]) for v in found.visits if found.executions[v["execution"]][1] == behind]
    assert sorted(came) == [0, 1, 2]


def test_a_loop_over_elements_loads_each_in_its_round_for_all_lanes_at_once() -> None:
    out = np.zeros(4, np.float32)
    found = simt.trace(kernels.over_elements, 1, 4, (out, numbers(5), numbers(3)))
    assert out.tolist() == [6 + 1, 5 + 2, 3 + 1, 4 + 2]  # the first loop and the second
    loads = [lanes for text, lanes in instructions(found) if text in ("x", "enumerate(y)")]
    assert loads == [[0, 1, 2, 3]] * 8


def test_parts_of_an_expression_are_in_the_order_in_which_they_run() -> None:
    points = np.zeros(1, [("x", np.float32), ("y", np.float32)])
    found = simt.trace(kernels.ordered, 1, 1, (np.zeros(1, np.float32), np.float32([0, 1, 2, 3]), points))
    assert found.faults == ()
    order = np.lexsort((found.repetitions, found.ranks))
    assert order.tolist() == list(range(len(found.accesses)))
    texts = [e.text for e in found.events()]
    assert texts[:2] == ["x[i]", "x[i + 2]"]
    assert texts[4:7] == ["points[i32(x[i])].y", "x[i + 3]", "points[i32(x[i])].y"]
    assert texts[8:] == ["x[i + 1]", "x[i + 2]", "x[i]", "out[i]"]


def test_tables_of_one_name_are_told_apart() -> None:
    found = simt.trace(kernels.two_tables, 1, 2, (np.zeros(2, np.float32),))
    tables = [array for array in found.arrays if array.scope == "constant"]
    assert [t.initial.tolist() for t in tables if t.initial is not None] == [[1, 2], [30, 40]]
    assert [len(list(found.events(array=t.number))) for t in tables] == [2, 2]


def test_dates_keep_their_unit() -> None:
    days = np.array(["2024-02-29", "2024-03-01"], "datetime64[D]")
    found = simt.trace(kernels.copy, 1, 2, (np.zeros(2, days.dtype), days))
    assert [e.value for e in found.events(array="x")] == days.tolist()
    assert str(next(found.events(array="x"))).endswith("reads x[0] == 2024-02-29")


def test_a_line_of_another_file_is_told_apart() -> None:
    found = simt.trace(kernels.copy, 1, 4, (np.zeros(4, np.float32), numbers(4)))
    line = kernels.copy.py_func.__code__.co_firstlineno + 5
    assert found.select(line=line).sum() == found.select(line=line, file=found.file).sum() == 8
    assert not found.select(line=line, file="another.py").any()


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ({"thread": (2, 0)}, r"thread \(2, 0\) is not in the block \(2, 3, 1\)"),  # not the same as (0, 1)
        ({"thread": 6}, "thread 6 is not in"),
        ({"thread": -1}, "thread -1 is not in"),
        ({"thread": ()}, r"thread \(\) is not in"),
        ({"thread": "x"}, "thread x is not in"),
        ({"block": (0, 1)}, r"block \(0, 1\) is not in the grid \(2, 1, 1\)"),
    ],
)
def test_a_thread_or_block_that_there_is_not_is_told(which: dict[str, Any], message: str) -> None:
    found = simt.trace(kernels.copy, 2, (2, 3), (np.zeros(4, np.float32), numbers(4)))
    with pytest.raises(UserError, match=message):
        found.select(**which)


@pytest.mark.parametrize("name", ["grid", "animation", "sectors", "banks", "timeline"])
def test_pictures_take_the_options_of_their_functions(name: str) -> None:
    function = getattr(importlib.import_module(f"nanoeuler.simt.traced.pictures.{name}"), name)

    def parameters(of: Any) -> list[tuple[str, Any, Any]]:
        return [(p.name, p.kind, p.default) for p in list(inspect.signature(of).parameters.values())[1:]]

    assert parameters(getattr(simt.Trace, name)) == parameters(function)


def test_a_trace_saves_a_page(tmp_path: Path) -> None:
    args = np.zeros((4, 4), np.float32), numbers(4, 4), numbers(4, 4)
    simt.trace(kernels.product, 1, (4, 4), args).save(tmp_path / "one.html", card="T4")
    text = (tmp_path / "one.html").read_text()
    assert "ta[ty, k]" in text
    assert "T4" in text
    assert NO_STEPS in text
    simt.trace(kernels.product, 1, (4, 4), args, variables=True).save(tmp_path / "two.html")
    assert NO_STEPS not in (tmp_path / "two.html").read_text()
