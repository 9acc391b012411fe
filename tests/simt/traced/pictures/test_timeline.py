"""Timelines: bars against moments, barriers, warp operations and threads that wait for ever."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from simt.traced.pictures import kernels
from simt.traced.pictures.reading import line_of, marked, read, texts, told

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.traced.pictures import timeline as timeline_module
from nanoeuler.simt.traced.pictures.moments import moments
from nanoeuler.simt.traced.pictures.timeline import timeline


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def busy(bars: list[Any], warp: int) -> float:
    """Return moments times share of a warp's bars, summed."""
    mine = [e for e in bars if e.get("data-warp") == str(warp)]
    return sum(int(e.get("data-moments")) * float(e.get("data-share")) for e in mine)


def test_bars_are_the_lanes_that_run() -> None:
    trace = simt.trace(kernels.uneven, 1, 100, (floats(100),))
    root = read(timeline(trace))
    found, _ = moments(trace, 0)
    bars = marked(root, "share")
    for warp, there in ((0, 32), (1, 32), (2, 32), (3, 4)):
        mine = found.lanes[found.warp == warp]
        assert busy(bars, warp) == pytest.approx(mine.sum() / there, abs=0.05)
        assert f"{len(mine)} · {mine.sum() / there / len(mine):.0%}" in texts(root)
    first = bars[0]
    start = line_of(kernels.uneven, "i = cuda.threadIdx.x")
    assert told(first) == f"warp 0, lines {start}–{start + 2}\n3 statements, run by lanes 0–31"
    height = {e.get("data-share"): float(e.get("height")) for e in bars}
    assert height["0.5"] == pytest.approx(height["1"] / 2, abs=0.02)


def test_warps_wait_at_barriers_for_the_slowest() -> None:
    trace = simt.trace(kernels.uneven, 1, 100, (floats(100),))
    root = read(timeline(trace))
    barriers = marked(root, "barrier")
    assert [int(e.get("data-line", "")) for e in barriers] == [
        i.line for i in trace.instructions if i.text == "cuda.syncthreads()"
    ]
    assert told(barriers[0]) == ""
    assert "passed by 100 threads" in "".join(told(child) for child in barriers[0])
    waits = marked(root, "waits")
    assert [e.get("data-waits") for e in waits] == ["0"] * 3  # warp 3 has most to do before the first barrier
    ends = [e.get("d") for e in waits]
    assert len(ends) == 3


def test_few_threads_have_rows_of_their_own() -> None:
    trace = simt.trace(kernels.uneven, 1, (5, 4), (floats(20),))
    root = read(timeline(trace))
    assert {"thread (0, 0)", "thread (4, 3)"} <= set(texts(root))
    trace = simt.trace(kernels.uneven, 1, 20, (floats(20),))
    root = read(timeline(trace))
    found, _ = moments(trace, 0)
    for lane in range(20):
        assert f"thread {lane}" in texts(root)
    ran = [int(text.split(" of ")[0]) for text in texts(root) if text.endswith(f" of {len(found.warp)}")]
    assert ran == found.lanes.sum(0)[:20].tolist()


def test_what_waits_for_ever_is_marked() -> None:
    root = read(timeline(simt.trace(kernels.parted, 1, 8, (floats(8),))))
    assert texts(root).count("waits for ever") == 3
    crosses = marked(root, "passed")
    assert [e.get("data-passed") for e in crosses] == ["0"] * 3
    line = line_of(kernels.parted, "cuda.syncthreads()")
    assert told(crosses[1]) == f"thread 1: syncthreads on line {line}, where the others never come"
    assert not marked(root, "barrier")
    assert "3 threads wait for ever." in (root[1].text or "")
    root = read(timeline(simt.trace(kernels.parted, 1, 70, (floats(70),))))
    assert "3 lanes for ever" in texts(root)
    root = read(timeline(simt.trace(kernels.missing, 1, 32, (floats(32),))))
    assert texts(root).count("waits for ever") == 32
    assert [e.get("data-operation") for e in marked(root, "passed")] == ["shfl_sync"] * 4 + ["syncthreads"] * 28


def test_warp_operations_are_ticks() -> None:
    root = read(timeline(simt.trace(kernels.exchanged, 1, 32, (floats(32), floats(32)))))
    ticks = [e.get("data-operation") for e in marked(root, "operation")]
    assert ticks == (["shfl_down_sync"] * 5 + ["any_sync"]) * 32
    assert {"shuffle", "vote or match"} <= set(texts(root))
    root = read(timeline(simt.trace(kernels.many_barriers, 1, 64, (floats(64), 3))))
    ticks = [(e.get("data-operation"), e.get("data-lanes")) for e in marked(root, "operation")]
    assert ticks == [("shfl_xor_sync", "32"), ("syncwarp", "32")] * 3
    assert len(marked(root, "barrier")) == 3


def test_no_words_are_under_a_tick() -> None:
    def named(trace: Any) -> list[str]:
        return [text for text in texts(read(timeline(trace))) if text.startswith("lines ")]

    assert named(simt.trace(kernels.uneven, 1, 64, (floats(64),)))
    assert not named(simt.trace(kernels.exchanged, 1, 64, (floats(64), floats(64))))


def test_which_block() -> None:
    trace = simt.trace(kernels.row_sum, 3, 64, (floats(3), floats(3, 100)), blocks=[(1,), (2,)])
    assert timeline(trace).svg == timeline(trace, block=1).svg
    assert "Block 2 of row_sum over time" in texts(read(timeline(trace, block=(2, 0))))
    with pytest.raises(UserError, match="block 0 was not traced; these were: 1, 2"):
        timeline(trace, block=0)


def test_part_of_a_launch_and_of_lines() -> None:
    trace = simt.trace(kernels.row_sum, 1, 96, (floats(1), floats(1, 100)), warps=[1], lines=[1])
    root = read(timeline(trace))
    assert [text for text in texts(root) if text.startswith("warp ")] == ["warp 1"]
    assert "96 threads in 3 warps · recorded: warps 1 · barriers on lines 1 only" in texts(root)
    assert not marked(root, "barrier")


def test_nothing_but_an_end() -> None:
    root = read(timeline(simt.trace(kernels.nothing, 1, 1, (floats(1),))))
    assert "1 of 1" in texts(root)


def test_many_barriers() -> None:
    trace = simt.trace(kernels.many_barriers, 1, 64, (floats(64), 100))
    root = read(timeline(trace))
    assert len(marked(root, "barrier")) == 100
    names = [text for text in texts(root) if text == f"line {line_of(kernels.many_barriers, 'cuda.syncthreads()')}"]
    assert 5 < len(names) < 30  # as many as there is room for


def test_many_bars_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = simt.trace(kernels.uneven, 1, 256, (floats(256),))
    before = marked(read(timeline(trace)), "share")
    monkeypatch.setattr(timeline_module, "BARS", 50)
    after = marked(read(timeline(trace)), "share")
    assert len(after) <= 50 < len(before)
    assert sum(int(e.get("data-moments", "")) for e in after) == sum(int(e.get("data-moments", "")) for e in before)
    for warp in range(8):
        assert busy(after, warp) == pytest.approx(busy(before, warp), abs=0.1)
