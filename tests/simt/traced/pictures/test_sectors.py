"""A warp's addresses against sectors: counted by hand, and against the trace byte by byte."""

import itertools
import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from simt.traced.pictures import kernels
from simt.traced.pictures.reading import line_of, marked, read, texts, told

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.traced.pictures.picture import Picture
from nanoeuler.simt.traced.pictures.sectors import sectors

LOAD = line_of(kernels.gathered, "out[i] =")


def costs(picture: Picture) -> list[str]:
    """Return what the rows of a picture say that they cost."""
    return [text for text in texts(read(picture)) if "bytes moved" in text]


def gathered(where: Any, x: Any = None, threads: int = 32) -> simt.Trace:
    x = np.zeros(4096, np.float32) if x is None else x
    return simt.trace(kernels.gathered, 1, threads, (np.zeros(threads, x.dtype), x, np.asarray(where)))


@pytest.mark.parametrize(
    ("where", "offset", "said"),
    [
        (range(32), 0, "4 sectors, 128 bytes moved, 128 asked for, 100 %"),
        (range(32), 1, "5 sectors, 160 bytes moved, 128 asked for, 80 %; 4 would do if the bytes lay together"),
        (range(31, -1, -1), 0, "4 sectors, 128 bytes moved, 128 asked for, 100 %"),
        (range(0, 64, 2), 0, "8 sectors, 256 bytes moved, 128 asked for, 50 %; 4 would do if the bytes lay together"),
        (
            range(0, 256, 8),
            0,
            "32 sectors, 1,024 bytes moved, 128 asked for, 12.5 %; 4 would do if the bytes lay together",
        ),
        ([5] * 32, 0, "1 sector, 32 bytes moved, 4 asked for, 12.5 %"),
        ([-1] * 31 + [2], 0, "1 sector, 32 bytes moved, 4 asked for, 12.5 %"),
        (
            [0] * 16 + [900] * 16,
            0,
            "2 sectors, 64 bytes moved, 8 asked for, 12.5 %; 1 would do if the bytes lay together",
        ),
    ],
)
def test_hand_counts(where: Any, offset: int, said: str) -> None:
    trace = gathered(list(where), np.zeros(4096, np.float32)[offset:])
    assert costs(sectors(trace, LOAD, array="x")) == [said]


def check(trace: simt.Trace, line: int, array: str, **which: Any) -> None:
    """Compare lanes, bytes and sectors of a single row with the trace's events."""
    picture = sectors(trace, line, array=array, **which)
    root = read(picture)
    (of,) = trace.named(array)
    picked = {k: v for k, v in which.items() if k != "nth"}
    events = list(trace.events(array=array, line=line, **picked))
    start = {
        e.thread[0] % 32: of.past + of.lead + sum(i * s for i, s in zip(e.index, of.strides, strict=True))
        for e in events
    }
    asked = {lane: set(range(at, at + of.dtype.itemsize)) for lane, at in start.items()}
    lanes = {int(e.get("data-lane", "")): e.get("data-active") for e in marked(root, "lane")}
    assert {lane for lane, active in lanes.items() if active == "1"} == set(asked)
    drawn: dict[int, set[int]] = {}
    for box in marked(root, "byte"):
        first, size = int(box.get("data-byte", "")), int(box.get("data-size", ""))
        for lane in box.get("data-lanes", "").split(","):
            drawn.setdefault(int(lane), set()).update(range(first, first + size))
    assert drawn == asked
    everything = set().union(*asked.values())
    boxes = {int(e.get("data-sector", "")): e for e in marked(root, "sector")}
    moved = {number for number, e in boxes.items() if e.get("data-moved") == "1"}
    assert moved == {byte // 32 for byte in everything}
    assert {n // 4 for n in boxes} == {n // 4 for n in moved}
    assert len(boxes) == 4 * len({n // 4 for n in moved})
    for number, box in boxes.items():
        assert int(box.get("data-used", "")) == len({byte for byte in everything if byte // 32 == number})
    share = 100 * len(everything) / (32 * len(moved))
    assert f"{len(everything):,} asked for, {share:.3g} %" in costs(picture)[0]
    for box in marked(root, "byte"):  # each piece stands where it lies in its sector
        first = int(box.get("data-byte", ""))
        sector = boxes[first // 32]
        left, width = float(sector.get("x", "")) - 0.5, float(sector.get("width", "")) + 1
        assert float(box.get("x", "")) == pytest.approx(left + first % 32 * width / 32, abs=0.05)
    for number, following in itertools.pairwise(sorted(boxes)):  # and the sectors side by side, cache lines apart
        step = float(boxes[following].get("x", "")) - float(boxes[number].get("x", ""))
        width = float(boxes[number].get("width", "")) + 1
        assert step == pytest.approx(width, abs=0.05) if following == number + 1 else step > width


@pytest.mark.parametrize("seed", range(6))
def test_random_addresses(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype = rng.choice(["uint8", "bool", "float16", "float32", "int64", "float64"])
    spread = int(rng.choice([8, 64, 600, 4000]))
    x = np.zeros(5000, dtype)[int(rng.integers(0, 40)) :]
    threads = int(rng.choice([1, 7, 32]))
    where = rng.integers(0, spread, threads)
    where[rng.random(threads) < 0.2] = -1
    where[-1] = 3
    check(gathered(where, x, threads), LOAD, "x")


def test_layouts() -> None:
    for x in (
        np.zeros((9, 11), np.float32).T,
        np.zeros((11, 9), np.float32)[::-1, ::2],
        np.zeros((5, 6), np.complex64)[1:],
    ):
        trace = simt.trace(kernels.transposed, 1, (8, 4), (np.zeros(x.shape[::-1], x.dtype), x))
        if x.dtype.kind != "c":
            check_rows(trace, line_of(kernels.transposed, "out[j, i] ="))


def check_rows(trace: simt.Trace, line: int) -> None:
    """Compare the sectors of arrays with two axes with the trace's events."""
    for array in ("x", "out"):
        (of,) = trace.named(array)
        events = list(trace.events(array=array, line=line))
        at = [of.past + of.lead + sum(i * s for i, s in zip(e.index, of.strides, strict=True)) for e in events]
        boxes = marked(read(sectors(trace, line, array=array)), "sector")
        moved = {int(e.get("data-sector", "")) for e in boxes if e.get("data-moved") == "1"}
        assert moved == {byte // 32 for start in at for byte in range(start, start + of.dtype.itemsize)}


def test_each_access_of_a_line_has_a_row() -> None:
    trace = simt.trace(kernels.strided, 1, 32, (np.zeros(32, np.float32), np.zeros(99, np.float32), 3))
    line = line_of(kernels.strided, "out[i] =")
    said = texts(read(sectors(trace, line)))
    rows = ("reads x[i * step]", "reads x[0]", "writes out[i]")
    assert [text for text in said if text in rows] == list(rows)
    assert len(costs(sectors(trace, line))) == 3
    assert len(costs(sectors(trace, line, array="x"))) == 2


def test_complex_numbers_are_two_requests() -> None:
    trace = simt.trace(kernels.copy, 1, 32, (np.zeros(32, np.complex64), np.zeros(32, np.complex64)))
    said = texts(read(sectors(trace, line_of(kernels.copy, "out[i] ="), array="x")))
    assert {"reads x[i] (real part)", "reads x[i] (imaginary part)"} <= set(said)
    least = "8 sectors, 256 bytes moved, 128 asked for, 50 %; 4 would do if the bytes lay together"
    assert [text for text in said if "bytes moved" in text] == [least] * 2


def test_packed_records_are_moved_byte_by_byte() -> None:
    points = np.zeros(40, np.dtype([("x", np.uint8), ("y", np.float64)]))  # 9 bytes each
    trace = simt.trace(kernels.fields, 1, 32, (np.zeros(32, np.float32), points))
    picture = sectors(trace, line_of(kernels.fields, "out[i] ="), array="points")
    assert "reads points[i].y (byte 1 of 8, each of which is a request of its own)" in texts(read(picture))
    assert len(costs(picture)) == 2
    moved = [int(e.get("data-used", "")) for e in marked(read(picture), "sector") if e.get("data-moved") == "1"]
    assert moved[:9] == [4, 4, 3, 4, 3, 4, 3, 4, 3]  # bytes 0, 9, 18, 27; 36, 45, 54, 63; 72, ...
    assert sum(moved[:9]) == sum(moved[9:]) == 32


def test_accesses_that_straddle_sectors_and_lines() -> None:
    memory = np.zeros(600, np.uint8)
    x = memory[4:548].view(np.float64)
    check(gathered(range(32), x), LOAD, "x")
    pieces = marked(read(sectors(gathered(range(32), x), LOAD, array="x")), "byte")
    sizes = [int(e.get("data-size", "")) for e in pieces]
    assert sizes.count(4) == 2 * 2  # over the ends of the cache lines at bytes 128 and 256
    assert sizes.count(8) == 30


def test_lanes_that_take_no_part_and_lanes_that_are_missing() -> None:
    trace = simt.trace(kernels.copy, 1, 50, (np.zeros(40, np.float32), np.zeros(40, np.float32)))
    root = read(sectors(trace, line_of(kernels.copy, "out[i] ="), warp=1, array="x"))
    lanes = {int(e.get("data-lane", "")): e.get("data-active") for e in marked(root, "lane")}
    assert lanes == {n: "1" if n < 8 else "0" for n in range(18)}
    assert "warp 1, which has 18 lanes" in " ".join(texts(root))
    (idle, *_) = [e for e in marked(root, "lane") if e.get("data-lane") == "9"]
    assert told(idle) == "lane 9 takes no part"
    first = next(e for e in marked(root, "lane") if e.get("data-lane") == "0")
    assert told(first) == "lane 0, thread 32\nreads x[32]: 0\n4 bytes"


def test_which_warp_and_which_time() -> None:
    x = np.zeros((2, 200), np.float32)
    trace = simt.trace(kernels.row_sum, 2, 64, (np.zeros(2, np.float32), x))
    line = line_of(kernels.row_sum, "+= x")
    row = sectors(trace, line, block=1, warp=1, nth=1)
    first = 4 * (200 + 32 + 64)
    boxes = marked(read(row), "byte")
    assert min(int(e.get("data-byte", "")) for e in boxes) == first
    assert "warp 1 of block 1 · time 2 of 3 (nth=1)" in " ".join(texts(read(row)))
    assert sectors(trace, line, block=(1, 0), warp=1, nth=1).svg == row.svg
    assert "warp 0 of block 0 · time 1 of 4" in " ".join(texts(read(sectors(trace, line))))
    for which, message in (
        ({"nth": 4}, "the warp comes to line .* 4 times: nth is 0 to 3, not 4"),
        ({"nth": -1}, "nth is 0 to 3, not -1"),
        ({"warp": 2}, "warp 2 accesses this memory on line .*warps that do: 0, 1"),
        ({"block": 2}, "block 2 is not in the grid"),
        ({"array": "xx"}, r"no array 'xx'"),
        (
            {"array": "out"},
            rf"does not access 'out' in global memory; lines that do: {line_of(kernels.row_sum, 'out[')}",
        ),
    ):
        with pytest.raises(UserError, match=message):
            sectors(trace, line, **which)


def test_lines_without_global_memory_are_told() -> None:
    trace = simt.trace(kernels.row_sum, 1, 64, (np.zeros(1, np.float32), np.zeros((1, 70), np.float32)))
    does = f"{line_of(kernels.row_sum, '+= x')}, {line_of(kernels.row_sum, 'out[')}"
    with pytest.raises(UserError, match=f"does not access global memory; lines that do: {does}$"):
        sectors(trace, line_of(kernels.row_sum, "+= partial"))
    nothing = simt.trace(kernels.nothing, 1, 1, (np.zeros(1, np.float32),))
    with pytest.raises(UserError, match="line 3 does not access global memory; no line does"):
        sectors(nothing, 3)


def test_a_line_of_another_function_that_comes_to_two_arrays() -> None:
    out, x, y = (np.zeros(32, np.float32) for _ in range(3))
    trace = simt.trace(kernels.calling, 1, 32, (out, x, y))
    line = line_of(kernels.calling, "out[i] =")
    assert len(costs(sectors(trace, line))) == 1
    inner = line - next(n for n in range(40) if (line - n) in {i.line for i in trace.instructions} and n)
    for nth in (0, 1):
        assert costs(sectors(trace, (trace.file, inner), nth=nth)) == [
            "4 sectors, 128 bytes moved, 128 asked for, 100 %"
        ]
    assert re.search(r"time 1 of 2", " ".join(texts(read(sectors(trace, ("kernels.py", inner))))))
