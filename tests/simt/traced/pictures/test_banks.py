"""The banks of shared memory: counted by hand, and against the rule by plain loops."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from simt.traced.pictures import kernels
from simt.traced.pictures.reading import line_of, marked, read, texts, told

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.traced.pictures.banks import banks
from nanoeuler.simt.traced.pictures.picture import Picture
from nanoeuler.simt.traced.requests import requests
from nanoeuler.simt.traced.transactions import wavefronts

STORE = line_of(kernels.banked, "s[i * step] =")
SUM = line_of(kernels.banked, "out[i] =")


def costs(picture: Picture) -> list[str]:
    return [text for text in texts(read(picture)) if "wavefront" in text]


def words(picture: Picture) -> list[list[int]]:
    """Return how many words each bank has to give, for each pass."""
    counts = [int(e.get("data-words", "")) for e in marked(read(picture), "bank")]
    return [counts[n : n + 32] for n in range(0, len(counts), 32)]


def banked(step: int, threads: int = 32) -> simt.Trace:
    return simt.trace(kernels.banked, 1, threads, (np.zeros(threads, np.float32), step))


@pytest.mark.parametrize(
    ("step", "said", "of_bank"),
    [
        (1, "1 wavefront, no bank conflict", [1] * 32),
        (2, "2 wavefronts where 1 would do: a bank conflict, 2 words in the worst bank", [2, 0] * 16),
        (3, "1 wavefront, no bank conflict", [1] * 32),
        (32, "32 wavefronts where 1 would do: a bank conflict, 32 words in the worst bank", [32] + [0] * 31),
        (33, "1 wavefront, no bank conflict", [1] * 32),
    ],
)
def test_strides(step: int, said: str, of_bank: list[int]) -> None:
    picture = banks(banked(step), STORE)
    assert costs(picture) == [said]
    assert words(picture) == [of_bank]
    boxes = marked(read(picture), "word-bank")
    assert sorted(int(e.get("data-lanes", "")) for e in boxes) == list(range(32))
    assert all(int(e.get("data-word-bank", "")) == int(e.get("data-lanes", "")) * step % 32 for e in boxes)


def test_a_broadcast_and_eight_bytes_a_lane() -> None:
    picture = banks(banked(1), SUM)
    strided, broadcast, doubles = costs(picture)
    assert strided == "1 wavefront, no bank conflict"
    assert broadcast == "1 wavefront, no bank conflict; a word goes to all who read it (broadcast)"
    assert doubles == "2 wavefronts, no bank conflict"
    assert words(picture) == [[1] * 32, [1] + [0] * 31, [1] * 32, [1] * 32]
    assert "×32" in texts(read(picture))
    assert {"lanes 0–15: bank", "lanes 16–31: bank"} <= set(texts(read(picture)))
    assert costs(banks(banked(1), SUM, array="d")) == [doubles]


def test_atomics_take_turns() -> None:
    trace = simt.trace(kernels.counted, 1, 40, (np.zeros(40, np.int32),))
    line = line_of(kernels.counted, "cuda.atomic.add")
    said = "wavefronts where 1 would do: atomics take turns"
    assert costs(banks(trace, line)) == [f"32 {said}, 31 lanes wait for another at the same address"]
    assert costs(banks(trace, line, warp=1)) == [f"8 {said}, 7 lanes wait for another at the same address"]
    assert words(banks(trace, line, warp=1)) == [[8] + [0] * 31]


def test_lanes_that_wait_for_their_turn_are_no_words() -> None:
    """A histogram: 4 lanes update one word, 2 another of the same bank, and 1 each of two others."""
    bins = np.array([0, 0, 0, 0, 32, 32, 1, 2], np.int32)
    trace = simt.trace(kernels.shared_histogram, 1, 8, (np.zeros(64, np.int32), bins))
    picture = banks(trace, line_of(kernels.shared_histogram, "cuda.atomic.add"))
    root = read(picture)
    assert costs(picture) == [
        "6 wavefronts where 1 would do: atomics take turns, 4 lanes wait for another at the same address"
    ]
    assert words(picture) == [[6, 1, 1] + [0] * 29]
    assert "turns" in texts(root)
    assert not {"words", "word that a lane wants"} & set(texts(root))
    assert told(marked(root, "bank")[0]) == "bank 0: 6 turns, to update 2 words"
    found = {(e.get("data-lanes"), told(e).partition("\n")[2]) for e in marked(root, "word-bank")}
    assert found == {
        ("0,1,2,3", "one after the other: 3 lanes wait"),
        ("4,5", "one after the other: 1 lane waits"),
        *(("6", ""), ("7", "")),
    }
    assert "words" in texts(read(banks(trace, line_of(kernels.shared_histogram, "counts[t] = s[t]"))))


def test_partial_warps_and_turns() -> None:
    trace = simt.trace(kernels.row_sum, 2, 64, (np.zeros(2, np.float32), np.zeros((2, 64), np.float32)))
    picture = banks(trace, line_of(kernels.row_sum, "+= partial"), block=1, nth=3)
    active = [e.get("data-active") for e in marked(read(picture), "lane")]
    assert active == (["1"] * 4 + ["0"] * 28) * 3
    assert words(picture) == [[1] * 4 + [0] * 28, [0] * 4 + [1] * 4 + [0] * 24, [1] * 4 + [0] * 28]
    assert {"partial[0]", "partial[4]"} <= set(texts(read(picture)))


@pytest.mark.parametrize("line", ["s[i * step] =", "d[i] =", "out[i] ="])
@pytest.mark.parametrize(("step", "threads"), [(4, 32), (5, 20), (0, 32), (31, 3)])
def test_numbers_agree_with_the_report(line: str, step: int, threads: int) -> None:
    """The wavefronts that a picture shows are those that the trace's numbers count."""
    trace = banked(step, threads)
    number = line_of(kernels.banked, line)
    found = requests(trace, "shared")
    records = trace.accesses[found.access]
    turns, _ = wavefronts(found.request, found.lane, found.address, found.size, records["kind"] == 2, len(found))
    own = [n for n, first in enumerate(found.first) if trace.instructions[records["instruction"][first]].line == number]
    assert len(own) == len(costs(banks(trace, number)))
    assert sum(max(p) for p in words(banks(trace, number))) == sum(turns[n] for n in own)
    said = [int(text.split()[0]) for text in costs(banks(trace, number))]
    assert said == [turns[n] for n in own]


def test_lines_without_shared_memory_are_told() -> None:
    trace: Any = simt.trace(kernels.copy, 1, 4, (np.zeros(4, np.float32), np.zeros(4, np.float32)))
    with pytest.raises(UserError, match="does not access shared memory; no line does"):
        banks(trace, line_of(kernels.copy, "out[i] ="))
    with pytest.raises(UserError, match=f"does not access shared memory; lines that do: {STORE}, {STORE + 1}, {SUM}$"):
        banks(banked(1), 1)
