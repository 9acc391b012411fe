"""Grids of arrays against what the trace says, element by element."""

import itertools
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from simt.traced.pictures import kernels
from simt.traced.pictures.reading import line_of, marked, read, texts, told

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.traced.pictures.colours import CATEGORIES, SEVERAL, ramp
from nanoeuler.simt.traced.pictures.grid import grid
from nanoeuler.simt.traced.pictures.picture import Picture

KINDS = {"reads": 1, "writes": 2, "atomically updates": 4}


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)


def elements(picture: Any) -> dict[tuple[int, ...], Any]:
    """Return the squares of a grid, by index."""
    found = marked(read(picture), "index")
    by_index = {tuple(int(i) for i in e.get("data-index").split(",") if i): e for e in found}
    assert len(by_index) == len(found)
    return by_index


def expected(trace: simt.Trace, array: str, **which: Any) -> dict[tuple[int, ...], tuple[set, int, int]]:
    """Return for each element who touches it, the kinds of accesses, and how many there are."""
    found: dict[tuple[int, ...], tuple[set, int, int]] = {}
    for event in trace.events(array=array, **which):
        who, kinds, count = found.get(event.index, (set(), 0, 0))
        found[event.index] = who | {(event.block, event.thread)}, kinds | KINDS[event.action], count + 1
    return found


def check(trace: simt.Trace, array: str, shape: tuple[int, ...], **which: Any) -> None:
    """Compare a grid by thread, and one by count, with the trace."""
    said = expected(trace, array, **{name: value for name, value in which.items() if name != "tooltips"})
    drawn, colours = elements(grid(trace, array, **which)), ramp(trace.launch.block_threads)
    assert set(drawn) == set(np.ndindex(shape))
    for index, square in drawn.items():
        who, kinds, _ = said.get(index, (set(), 0, 0))
        assert int(square.get("data-users")) == len(who), index
        assert int(square.get("data-kinds")) == kinds, index
        number = -1
        if len(who) == 1:
            x, y, z = next(iter(who))[1]
            number = x + trace.launch.block[0] * (y + trace.launch.block[1] * z)
        assert int(square.get("data-key")) == number, index
        colour = colours[number] if number >= 0 else SEVERAL if who else None
        assert square.get("fill") == colour, index
        assert told(square).split("\n")[0].startswith(f"{array}[{', '.join(map(str, index)) or '()'}]")
    counts = sorted({count for _, _, count in said.values()})
    for index, square in elements(grid(trace, array, by="count", **which)).items():
        count = said.get(index, (set(), 0, 0))[2]
        assert int(square.get("data-key")) == (counts.index(count) if count else -1)


@pytest.mark.parametrize("count", [1, 2, 33, 97, 101])
def test_one_axis(count: int) -> None:
    trace = simt.trace(kernels.copy, 4, 32, (np.zeros(count, np.float32), numbers(count)))
    for array in ("x", "out"):
        check(trace, array, (count,))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "int64", "complex64", "complex128"])
def test_all_types_of_elements(dtype: str) -> None:
    trace = simt.trace(kernels.copy, 1, 7, (np.zeros(7, dtype), numbers(7, dtype=dtype)))
    check(trace, "x", (7,))
    check(trace, "out", (7,))


@pytest.mark.parametrize(
    "made",
    [
        lambda x: x.T,
        lambda x: np.asfortranarray(x),
        lambda x: x[::-1],
        lambda x: x[:, ::-1],
        lambda x: x[1:, 2:],
        lambda x: x[::2, ::3],
        lambda x: x[:1],
        lambda x: x[:, :1],
    ],
)
def test_layouts_of_two_axes(made: Any) -> None:
    x = made(numbers(5, 7))
    trace = simt.trace(kernels.transposed, (3, 2), (4, 3), (np.zeros(x.shape[::-1], np.float32), x))
    check(trace, "x", x.shape)
    check(trace, "out", x.shape[::-1])
    check(trace, "out", x.shape[::-1], block=(1, 0))


def test_more_axes_are_panels() -> None:
    trace = simt.trace(kernels.cube, (1, 2, 3), (5, 3, 2), (np.zeros((3, 5, 4), np.float32), numbers(3, 5, 4)))
    check(trace, "x", (3, 5, 4))
    assert {f"x[{i}, :, :]" for i in range(3)} <= set(texts(read(grid(trace, "x"))))
    trace = simt.trace(kernels.four_axes, 1, (2, 3), (np.zeros((2, 3, 1, 2), np.float32),))
    check(trace, "out", (2, 3, 1, 2))
    assert {"out[0, :, 0, :]", "out[1, :, 0, :]"} <= set(texts(read(grid(trace, "out"))))


def test_no_axis() -> None:
    trace = simt.trace(kernels.scalar, 1, 8, (np.zeros((), np.float32), np.ones((), np.float32)))
    check(trace, "x", ())
    (square,) = elements(grid(trace, "out")).values()
    line = line_of(kernels.scalar, "out[()]")
    assert told(square) == f"out[()]\nwritten on line {line} by thread 3: 1"


def test_squares_do_not_overlap_and_lie_inside() -> None:
    for shape in ((1,), (97,), (2000,), (3, 5), (70, 2), (2, 300), (100, 40), (3, 5, 4), (40, 2, 2)):
        trace = simt.trace(kernels.nothing, 1, 1, (np.zeros(shape, np.float32),))
        root = read(grid(trace, "x", tooltips=True))
        left, _, width, height = map(float, root.get("viewBox", "").split())
        squares = marked(root, "index")
        assert len(squares) == np.prod(shape)
        corners = {(e.get("x"), e.get("y")) for e in squares}
        assert len(corners) == len(squares)
        side = float(squares[0].get("width", ""))
        assert side >= 8
        xs, ys = (np.unique([float(c[n] or "") for c in corners]) for n in (0, 1))
        assert all(np.diff(xs) >= side - 1e-6)
        assert all(np.diff(ys) >= side - 1e-6)
        assert xs[0] >= 0
        assert xs[-1] + side <= left + width
        assert ys[-1] + side <= height
        assert width <= 1250


def test_neighbours_stand_side_by_side() -> None:
    trace = simt.trace(kernels.nothing, 1, 1, (np.zeros((4, 6), np.float32),))
    squares = elements(grid(trace, "x"))
    x, y = ({i: float(e.get(name)) for i, e in squares.items()} for name in "xy")
    assert all(x[i, j + 1] - x[i, j] == 28 for i in range(4) for j in range(5))
    assert all(y[i + 1, j] - y[i, j] == 28 for i in range(3) for j in range(6))
    assert len(set(x.values())) == 6


def test_colours_by_lane_warp_and_block() -> None:
    trace = simt.trace(kernels.copy, (2, 2), 40, (np.zeros(80, np.float32), numbers(80)))
    # cuda.grid(1) counts blocks along x, so blocks (0, 0) and (0, 1) touch the same elements, as do the other two
    warps = elements(grid(trace, "x", by="warp", block=(1, 0)))
    assert [int(warps[i,].get("data-key")) for i in (39, 40, 71, 72)] == [-1, 0, 0, 1]
    assert [warps[i,].get("fill") for i in (39, 40, 72)] == [None, *CATEGORIES[:2]]
    lanes = elements(grid(trace, "x", by="lane", block=(1, 0)))
    assert [int(lanes[i,].get("data-key")) for i in (40, 71, 72)] == [0, 31, 0]
    blocks = elements(grid(trace, "x", by="block"))
    assert {(e.get("data-users"), e.get("data-key"), e.get("fill")) for e in blocks.values()} == {("2", "-1", SEVERAL)}
    root = read(grid(trace, "x", by="block", block=3))
    assert {e.get("fill") for e in marked(root, "index")} == {None, CATEGORIES[3]}
    assert {"1,1", "block 1,1"} <= set(texts(root))


def test_the_ramp_ends_with_the_last_warp_that_comes() -> None:
    trace = simt.trace(kernels.copy, 2, 256, (np.zeros(40, np.float32), numbers(40)))
    squares = elements(grid(trace, "x"))
    assert [squares[i,].get("fill") for i in (0, 39)] == [ramp(64)[0], ramp(64)[39]]
    assert "63" in texts(read(grid(trace, "x")))
    assert {e.get("fill") for e in elements(grid(trace, "x", by="warp")).values()} == set(CATEGORIES[:2])


def test_many_blocks_have_colours_of_their_own() -> None:
    trace = simt.trace(
        kernels.copy, 12, 2, (np.zeros(24, np.float32), numbers(24)), blocks=[(n,) for n in range(2, 12)]
    )
    squares = elements(grid(trace, "out", by="block"))
    assert [squares[i,].get("fill") for i in (3, 4, 23)] == [None, ramp(10)[0], ramp(10)[9]]
    assert len({squares[i,].get("fill") for i in range(4, 24)}) == 10


def test_what_stands_in_the_elements() -> None:
    trace = simt.trace(kernels.histogram, 1, 5, (np.zeros(3, np.int32), np.array([0, 0, 2, 0, 0])))
    root = read(grid(trace, "counts"))
    assert texts(root).count("×4") == 1
    assert texts(root).count("2") == 2  # over the third element, and in it: thread 2
    assert [e.get("data-kinds") for e in marked(root, "index")] == ["4", "0", "4"]
    assert "url(#" in grid(trace, "counts").svg
    counts = texts(read(grid(trace, "counts", by="count")))
    assert "4" in counts
    assert "1" in counts


def test_the_tooltip_tells_who_does_what_where() -> None:
    trace = simt.trace(kernels.row_sum, 2, 64, (np.zeros(2, np.float32), np.ones((2, 64), np.float32)))
    tree, first = line_of(kernels.row_sum, "+= partial"), line_of(kernels.row_sum, "partial[t] = total")
    said = told(elements(grid(trace, "partial", block=1, kind="all"))[32,]).split("\n")
    assert said == [
        "partial[32]",
        f"written on line {first} by thread 32 of block 1: 1",
        f"read on line {tree} by thread 0 of block 1: 1",
    ]
    assert (
        told(elements(grid(trace, "partial", kind="all"))[0,])
        .split("\n")[-1]
        .startswith(f"read on line {line_of(kernels.row_sum, '= partial[0]')} by thread 0 of block 0: 64")
    )
    many = told(elements(grid(trace, "x", line=line_of(kernels.row_sum, "+= x")))[1, 3])
    assert many == f"x[1, 3]\nread on line {line_of(kernels.row_sum, '+= x')} by thread 3 of block 1: 1"


def test_a_shared_array_is_that_of_one_block() -> None:
    trace = simt.trace(kernels.product, 2, (4, 4), (np.zeros((4, 8), np.float32), numbers(4, 4), numbers(4, 8)))
    line = line_of(kernels.product, "ta[ty, tx] =")
    squares = elements(grid(trace, "ta", line=line, kind="write"))
    assert {e.get("data-users") for e in squares.values()} == {"1"}
    assert squares[2, 3].get("data-key") == str(2 * 4 + 3)
    both = elements(grid(trace, "ta", by="block"))
    assert {e.get("data-users") for e in both.values()} == {"2"}


def test_kinds_and_lines_choose_accesses() -> None:
    trace = simt.trace(kernels.shifted, 1, 6, (numbers(8), 2))
    assert [e.get("data-kinds") for e in elements(grid(trace, "x", kind="all")).values()] == list("11333322")
    for kind, column, expected_ in (("read", "data-kinds", "11111100"), ("write", "data-users", "00111111")):
        for name in (kind, f"{kind}s"):
            assert [e.get(column) for e in elements(grid(trace, "x", kind=name)).values()] == list(expected_)
            assert f" · {kind}s only" in " ".join(texts(read(grid(trace, "x", kind=name))))
    line = line_of(kernels.shifted, "x[i + step] =")
    with pytest.raises(UserError, match="unknown kind 'store': use read, write, atomic, or all"):
        grid(trace, "x", kind="store")
    with pytest.raises(UserError, match=f"line 1 accesses no memory in this trace; lines that do: {line}"):
        grid(trace, "x", line=1)


def test_arrays_that_overlap_count_for_each_other() -> None:
    memory = numbers(12)
    trace = simt.trace(kernels.both, 1, 8, (memory[:8], memory[4:]))
    squares = elements(grid(trace, "x", kind="all"))
    assert [e.get("data-kinds") for e in squares.values()] == list("11113333")
    line = line_of(kernels.both, "y[i] =")
    assert told(squares[5,]) == f"x[5]\nwritten as y on line {line} by thread 1: 1\nread on line {line} by thread 5: 1"
    assert [e.get("data-users") for e in elements(grid(trace, "y", kind="all")).values()] == list("22221111")


def test_views_of_other_types_and_windows() -> None:
    memory = np.zeros(4, np.float32)
    trace = simt.trace(kernels.both, 1, 4, (memory, memory.view(np.uint8)[4:12]))
    squares = elements(grid(trace, "x"))
    assert [int(e.get("data-users")) for e in squares.values()] == [1, 4, 1, 1]  # y's first four bytes are x[1]
    windows = np.lib.stride_tricks.sliding_window_view(numbers(6), 3)
    trace = simt.trace(kernels.transposed, 1, (3, 4), (np.zeros((3, 4), np.float32), windows))
    drawn = elements(grid(trace, "x"))
    # x[i, j] is element i + j: as many threads come to it as there are such pairs
    pairs = np.bincount(np.add.outer(np.arange(4), np.arange(3)).ravel())
    assert all(int(e.get("data-users")) == pairs[i + j] for (i, j), e in drawn.items())


def test_records() -> None:
    points = np.zeros(5, np.dtype([("x", np.float32), ("y", np.float64)]))
    trace = simt.trace(kernels.fields, 1, 5, (np.zeros(5, np.float32), points))
    squares = elements(grid(trace, "points"))
    assert [(e.get("data-users"), e.get("data-key")) for e in squares.values()] == [("1", str(n)) for n in range(5)]
    counted = elements(grid(trace, "points", by="count"))
    assert {told(e).count("read on") for e in counted.values()} == {2}


def test_a_large_array_is_shown_where_it_is_touched() -> None:
    trace = simt.trace(kernels.large, 1, 9, (np.zeros(50257, np.int64),))
    squares = elements(grid(trace, "x"))
    assert sorted(squares) == [(i,) for i in range(50000, 50057)]
    assert [i for (i,), e in squares.items() if e.get("data-users") == "1"] == list(range(50000, 50057, 7))
    assert "x[50000:50057]: which thread touches each element" in texts(read(grid(trace, "x")))
    part = elements(grid(trace, "x", part=np.s_[49990:50010:5]))
    assert [(i, e.get("data-key")) for (i,), e in part.items()] == [
        (49990, "-1"),
        (49995, "-1"),
        (50000, "0"),
        (50005, "-1"),
    ]
    trace = simt.trace(kernels.wide, 1, 40, (np.zeros(50257, np.int64),))
    with pytest.raises(UserError, match=r"x\[0:39001\] has 39,001 elements.*4,096 at most.*part=np.s_\[0:32\]"):
        grid(trace, "x")
    assert len(elements(grid(trace, "x", part=np.s_[:1000]))) == 1000
    with pytest.raises(UserError, match="nothing that was chosen touches x"):
        grid(trace, "x", kind="read")


def test_parts_are_indices() -> None:
    trace = simt.trace(kernels.four_axes, 1, (2, 3), (np.zeros((2, 3, 4, 5), np.float32),))
    for part, shown in (
        (np.s_[1], (1, range(3), range(4), range(5))),
        (np.s_[1, -1], (1, 2, range(4), range(5))),
        (np.s_[:, 0, 1:3, ::-2], (range(2), 0, range(1, 3), (4, 2, 0))),
    ):
        axes = [[a] if isinstance(a, int) else list(a) for a in shown]
        assert set(elements(grid(trace, "out", part=part))) == set(itertools.product(*axes))
    for part, message in (
        (np.s_[2], "2 is no index of an axis of 2"),
        (np.s_[0, 0, 0, 0, 0], "5 axes"),
        (np.s_[1:1], "nothing"),
        ("a", "'a' is no index"),
    ):
        with pytest.raises(UserError, match=message):
            grid(trace, "out", part=part)


def test_what_cannot_be_drawn_is_said() -> None:
    trace = simt.trace(kernels.two_tiles, (2, 2), 8, (np.zeros(8, np.float32),))
    with pytest.raises(
        UserError, match=r"2 arrays are called 's': give the number of one: \d \(shared, float32\[4\]\)"
    ):
        grid(trace, "s")
    numbers_ = [a.number for a in trace.arrays if a.name == "s"]
    assert [len(elements(grid(trace, n, kind="all"))) for n in numbers_] == [4, 4]
    assert "each thread has a copy of its own" in " ".join(texts(read(grid(trace, "mine"))))
    with pytest.raises(UserError, match=r"by='threads' \(did you mean 'thread'\?\)"):
        grid(trace, "out", by="threads")
    with pytest.raises(UserError, match="no array 'oot'"):
        grid(trace, "oot")
    with pytest.raises(UserError, match=r"block \(2, 0\) is not in the grid \(2, 2, 1\)"):
        grid(trace, "out", block=(2, 0))
    some = simt.trace(kernels.two_tiles, (2, 2), 8, (np.zeros(8, np.float32),), blocks=(1, 0))
    with pytest.raises(UserError, match=r"block 0 was not traced; these were: \(1, 0\)"):
        grid(some, "out", block=0)
    empty = simt.trace(kernels.copy, 1, 8, (np.zeros(0, np.float32), np.zeros(0, np.float32)))
    with pytest.raises(UserError, match=r"x has shape \(0,\): there is no element to draw"):
        grid(empty, "x")


def test_parts_of_launches() -> None:
    trace = simt.trace(kernels.copy, 3, 70, (np.zeros(200, np.float32), numbers(200)), warps=2, blocks=1)
    touched = [i for (i,), e in elements(grid(trace, "x")).items() if e.get("data-users") != "0"]
    assert touched == list(range(70 + 64, 140))
    assert "1 of 3 blocks of 70 threads, of warps 2" in " ".join(texts(read(grid(trace, "x"))))


def test_text_is_escaped() -> None:
    trace = simt.trace(kernels.sums, 1, 4, (numbers(4), np.zeros(4, np.float32)))
    line = line_of(kernels.sums, "y[i] +=")
    code = next(t for t in texts(read(grid(trace, "y", line=line))) if t.startswith(str(line)))
    assert code.endswith('y[i] += x[i]  # a < b & c > "d" ]]> é 漢')


def test_size_and_speed_of_a_full_grid() -> None:
    trace = simt.trace(kernels.transposed, (2, 2), (32, 32), (np.zeros((64, 64), np.float32), numbers(64, 64)))
    picture = grid(trace, "out")
    assert len(picture.svg) < 300_000
    inside = [text for text in texts(read(picture)) if text.isdigit() and int(text) > 64]
    assert "999" in inside
    assert max(map(int, inside)) == 1023  # of the legend: in a square of 16 pixels there is no room for it
    assert inside.count("1023") == 1


def squares_of(path: ElementTree.Element) -> set[tuple[str, ...]]:
    """Return the upper left corners of the squares that are drawn as one."""
    return set(re.findall(r"M([-\d.]+) ([-\d.]+)h", path.get("d", "")))


def test_many_elements_of_a_colour_are_one_shape() -> None:
    """Each element is drawn once, in the colour that it has where it is drawn by itself."""
    trace = simt.trace(kernels.transposed, (2, 2), (32, 32), (np.zeros((60, 62), np.float32), numbers(62, 60)))
    root = read(grid(trace, "out"))
    paths = marked(root, "key")
    drawn = [(corner, p.get("data-key"), p.get("fill")) for p in paths for corner in squares_of(p)]
    assert {told(p) for p in paths} == {str(n) for n in range(1024)}
    alone = elements(grid(trace, "out", tooltips=True)).values()
    assert sorted(drawn) == sorted(((e.get("x"), e.get("y")), e.get("data-key"), e.get("fill")) for e in alone)
    check(trace, "out", (60, 62), tooltips=True)
    assert marked(read(grid(trace, "out", part=np.s_[:3], tooltips=False)), "index") == []


# Who writes, and who reads


def panels(picture: Picture) -> dict[str, dict[int, ElementTree.Element]]:
    """Return the squares of each grid of a picture, by their numbers."""
    return {p.get("data-panel", ""): dict(enumerate(marked(p, "index"))) for p in marked(read(picture), "panel")}


def test_what_one_writes_and_another_reads_has_two_grids() -> None:
    trace = simt.trace(kernels.transposing, 1, (4, 4), (np.zeros((4, 4), np.float32), numbers(4, 4)))
    found = panels(grid(trace, "tile"))
    assert list(found) == ["who writes", "who reads"]
    rows, columns = np.arange(16).tolist(), np.arange(16).reshape(4, 4).T.ravel().tolist()
    assert [int(e.get("data-key", "")) for e in found["who writes"].values()] == rows
    assert [int(e.get("data-key", "")) for e in found["who reads"].values()] == columns
    assert {e.get("data-kinds") for e in found["who writes"].values()} == {"2"}
    assert {e.get("data-kinds") for e in found["who reads"].values()} == {"1"}
    assert {"who writes", "who reads"} <= set(texts(read(grid(trace, "tile"))))
    assert "×2" in texts(read(grid(trace, "tile", kind="all")))
    assert list(panels(grid(trace, "tile", by="block"))) == list(panels(grid(trace, "tile", by="count"))) == [""]
    assert list(panels(grid(trace, "tile", by="warp"))) == [""]  # there is only one


def test_what_one_thread_does_alone_has_one_grid() -> None:
    trace = simt.trace(kernels.product, 1, (4, 4), (np.zeros((4, 4), np.float32), numbers(4, 4), numbers(4, 4)))
    assert [list(panels(grid(trace, name))) for name in ("a", "c", "ta")] == [[""], [""], ["who writes", "who reads"]]
    trace = simt.trace(kernels.rewritten, 1, 32, (np.zeros((1, 64), np.float32), 2))
    assert list(panels(grid(trace, "x"))) == [""]


def test_two_grids_lie_beside_or_below_each_other_and_stay_small() -> None:
    for side in (4, 32, 64):
        threads = min(side, 32)
        x = np.zeros((side, side), np.float32)
        trace = simt.trace(kernels.mirrored, (side // threads,) * 2, (threads, threads), (x,))
        picture = grid(trace, "x")
        assert len(picture.svg) < 350_000
        root = read(picture)
        assert len(marked(root, "panel")) == 2
        assert float(root.get("width", "")) < 1250


# What the colours mean


def test_a_ramp_is_told_only_where_there_is_one() -> None:
    counts = np.zeros(1, np.int32)
    trace = simt.trace(kernels.histogram, 2, 128, (counts, np.zeros(256, np.int32)))
    said = texts(read(grid(trace, "counts")))
    assert {"×n: by n threads", "×256"} <= set(said)
    assert not [t for t in said if t.startswith("thread")]
    trace = simt.trace(kernels.copy, 1, 128, (np.zeros(9, np.float32), numbers(9)))
    assert "thread, by its number in its block of 128: no others come" in texts(read(grid(trace, "out")))
    trace = simt.trace(kernels.copy, 1, 128, (np.zeros(128, np.float32), numbers(128)))
    assert {"thread, by its number in its block", "127"} <= set(texts(read(grid(trace, "out"))))
