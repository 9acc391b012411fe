"""Animations: what each frame shows, against steps counted by hand, and what is seen where nothing moves."""

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from simt.traced.pictures import kernels
from simt.traced.pictures.reading import SVG, line_of, marked, read, texts

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.traced.pictures import animation as module
from nanoeuler.simt.traced.pictures.animation import animation
from nanoeuler.simt.traced.pictures.colours import SEVERAL, ramp
from nanoeuler.simt.traced.pictures.grid import grid


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def row_sum() -> simt.Trace:
    return simt.trace(kernels.row_sum, 2, 64, (floats(2), floats(2, 64)))


def drawn(frame: ElementTree.Element) -> list[ElementTree.Element]:
    """Return the paths of the elements that a frame touches."""
    return [e for g in frame.iter(f"{SVG}g") if g.get("class") == "n-line" for e in g.iter(f"{SVG}path")]


def corners(path: ElementTree.Element) -> list[tuple[float, float]]:
    """Return the upper left corners of the squares of a path."""
    return [(float(x), float(y)) for x, y in re.findall(r"M([-\d.]+) ([-\d.]+)h", path.get("d", ""))]


def indices(root: ElementTree.Element) -> dict[tuple[float, float], int]:
    """Return which element has its corner where, of an array with one axis."""
    squares = marked(root, "index")
    return {(float(e.get("x", "")), float(e.get("y", ""))): int(e.get("data-index", "")) for e in squares}


def frames(root: ElementTree.Element) -> list[dict[int, str]]:
    """Return the colours of the elements that each frame touches."""
    where, found = indices(root), []
    for frame in marked(root, "step"):
        found.append({where[corner]: e.get("fill", "") for e in drawn(frame) for corner in corners(e)})
    return found


def test_a_tree_of_sums_by_hand() -> None:
    root = read(animation(row_sum(), "partial"))
    colours, shown = ramp(64), frames(root)
    assert shown[0] == {i: colours[i] for i in range(64)}
    for frame, step in zip(shown[1:7], (32, 16, 8, 4, 2, 1), strict=True):
        assert frame == {i: colours[i % step] for i in range(2 * step)}
    assert shown[7] == {0: colours[0]}
    assert len(shown) == 8
    tree = line_of(kernels.row_sum, "+= partial")
    said = [texts(frame)[:2] for frame in marked(root, "step")]
    assert said[1] == ["Step 2 of 8 · read and written by 32 threads", f"{tree}  partial[t] += partial[t + step]"]
    assert said[7][0] == "Step 8 of 8 · read by 1 thread"
    numbers = texts(marked(root, "step")[3])[2:]
    assert sorted(map(int, numbers)) == sorted([*range(8), *range(8)])


def test_what_is_left_of_a_frame() -> None:
    trace = simt.trace(kernels.shifted, 1, 6, (floats(8), 2))  # reads 0 to 5, writes 2 to 7, on one line
    assert [sorted(f) for f in frames(read(animation(trace, "x")))] == [list(range(8))]
    trace = simt.trace(kernels.leaving_marks, 1, 4, (floats(8),))
    root = read(animation(trace, "x"))
    where = indices(root)
    left = [e for e in root.iter(f"{SVG}g") if "n-t" in e.get("class", "").split()]
    soft = [[where[c] for e in g.iter(f"{SVG}path") if not e.get("fill") for c in corners(e)] for g in left]
    assert soft == [[0, 1, 2, 3], [4, 5, 6, 7]]  # the others touch nothing new
    assert ["-trail)" in ElementTree.tostring(g, "unicode") for g in left] == [True, False]
    low, high = [0, 1, 2, 3], [4, 5, 6, 7]
    assert [sorted(f) for f in frames(root)] == [low, high, [*low, *high], low, high]


def test_the_end_is_the_grid() -> None:
    trace = row_sum()
    pictures = animation(trace, "partial"), grid(trace, "partial", kind="all")
    moving, still = (marked(read(picture), "index") for picture in pictures)
    look = ("fill", "data-index", "data-users", "data-kinds")
    assert [[e.get(k) for k in look] for e in moving] == [[e.get(k) for k in look] for e in still]
    assert {e.get("fill") for e in moving} == {ramp(64)[0], SEVERAL}


def test_without_motion_only_the_end_is_seen() -> None:
    root = read(animation(row_sum(), "partial"))
    style = root.findtext(f"{SVG}style") or ""
    always, moving = style.split("@media screen and (prefers-reduced-motion:no-preference)")
    assert ".n-f,." in always
    assert "{visibility:hidden}" in always
    assert "animation" not in always
    assert "@keyframes" not in always
    assert moving.count("{") == moving.count("}")
    assert ":hover *{animation-play-state:paused}" in moving


def test_each_frame_has_its_turn() -> None:
    """Follow the style sheet: in the middle of each frame's time just that frame is seen, and what was before it."""
    root = read(animation(row_sum(), "partial"))
    style = root.findtext(f"{SVG}style") or ""
    shares = {n: float(s) / 100 for n, s in re.findall(r"@keyframes n\w+-(\w+)\{0%\{visibility:\w+\}([\d.]+)%", style)}
    whole = float(re.findall(r"-f ([\d.]+)s", style)[0])
    starts = [float(s) for s in re.findall(r"\.n-f\d+\{animation-delay:([\d.]+)s\}", style)]
    each = (whole - 3) / len(starts)
    assert starts == pytest.approx([n * each for n in range(len(starts))], abs=1e-3)
    assert shares["f"] * whole == pytest.approx(each, abs=1e-3)
    assert shares["z"] * whole == pytest.approx(len(starts) * each, abs=1e-3)
    for n, delay in re.findall(r"\.n-t(\d+)\{animation:n\w+-t\d+ [\d.]+s step-end infinite ([\d.]+)s\}", style):
        assert float(delay) == pytest.approx((int(n) + 1) * each, abs=1e-3)
        assert shares[f"t{n}"] * whole + float(delay) == pytest.approx(len(starts) * each, abs=1e-3)


def test_long_runs_are_put_together() -> None:
    trace = simt.trace(kernels.many_barriers, 1, 64, (floats(64), 200))
    picture = animation(trace, "s")
    root = read(picture)
    steps = [int(e.get("data-step", "")) for e in marked(root, "step")]
    assert len(steps) == 51  # 202 steps, by fours
    assert steps == list(range(1, 202, 4))
    assert "202 steps are too many to be shown one by one: they are put together in 51." in texts(root)
    assert any(text.startswith("Steps 1–4 of 202 · ") for text in texts(root))
    assert any(text.startswith("Steps 201–202 of 202") for text in texts(root))


def test_large_pictures_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = simt.trace(kernels.rewritten, 4, 1024, (np.zeros((64, 64), np.int32), 4))
    picture = animation(trace, "x")
    root = read(picture)
    assert len(picture.svg) < 2_000_000
    assert [e.get("data-step") for e in marked(root, "step")] == list("1234")
    assert all(
        len(corners(e))
        for frame in marked(root, "step")
        for e in frame.iter(f"{SVG}path")
        if e.get("class") == "n-line"
    )
    monkeypatch.setattr(module, "ROOM", 400_000)
    assert [e.get("data-step") for e in marked(read(animation(trace, "x")), "step")] == list("13")


def test_several_blocks_go_side_by_side() -> None:
    trace = simt.trace(kernels.copy, 3, 4, (floats(10), floats(10)))
    root = read(animation(trace, "x", by="block"))
    (frame,) = frames(root)
    assert sorted(frame) == list(range(10))
    assert len(set(frame.values())) == 3
    assert [sorted(f) for f in frames(read(animation(trace, "x", block=1)))] == [[4, 5, 6, 7]]
    assert [sorted(f) for f in frames(read(animation(trace, "x", part=np.s_[2:6])))] == [[2, 3, 4, 5]]


@pytest.mark.parametrize("shape", [(), (1,), (3, 5, 2)])
def test_awkward_shapes(shape: tuple[int, ...]) -> None:
    kernel: Any = {0: kernels.scalar, 1: kernels.copy, 3: kernels.cube}[len(shape)]
    block = (2, 5, 3) if len(shape) == 3 else 8
    trace = simt.trace(kernel, 1, block, (floats(*shape), floats(*shape)))
    root = read(animation(trace, "out"))
    (frame,) = marked(root, "step")
    assert sum(len(corners(e)) for e in drawn(frame)) == np.prod(shape)


def test_what_cannot_be_shown_is_said() -> None:
    trace = row_sum()
    with pytest.raises(UserError, match="by='count': use thread, lane, warp, block"):
        animation(trace, "partial", by="count")
    with pytest.raises(UserError, match="nothing that was chosen touches x: there is nothing to show"):
        animation(trace, "x", kind="write")
    with pytest.raises(UserError, match="no array 'y'"):
        animation(trace, "y")
