"""Rooflines: where points lie on logarithmic axes, and what is said of them."""

import itertools
import math
import re

import numpy as np
import pytest
from simt.traced.pictures.reading import SVG, marked, read, texts, told

from nanoeuler.errors import UserError
from nanoeuler.simt.traced.pictures.roof import HEIGHT, WIDTH, roof, si

T4 = {"card": "T4", "peak_flops": 8.1e12, "bandwidth": 320e9}


def dots(points: list[tuple[str, float, float | None]], **card: object) -> list[tuple[float, float]]:
    root = read(roof(points, **{**T4, **card}))
    return [
        (float(c.get("cx", "")), float(c.get("cy", "")))
        for e in marked(root, "point")
        for c in e.findall(f"{SVG}circle")[:1]
    ]


def test_points_lie_on_the_roof_or_where_they_were_measured() -> None:
    left, ridge, right, measured = dots(
        [("a", 1.0, None), ("b", 8.1e12 / 320e9, None), ("c", 100.0, None), ("d", 10.0, 1e12)]
    )
    # x: decades 0.1 to 1000 over the width; y: 10 GFLOP/s to 100 TFLOP/s
    assert left == pytest.approx((WIDTH / 4, HEIGHT * (1 - (math.log10(320e9) - 10) / 4)), abs=0.01)
    assert ridge[1] == right[1] == pytest.approx(HEIGHT * (1 - (math.log10(8.1e12) - 10) / 4), abs=0.01)
    assert right[0] == pytest.approx(WIDTH * 3 / 4, abs=0.01)
    assert measured == pytest.approx((WIDTH / 2, HEIGHT / 2), abs=0.01)


def test_what_is_said() -> None:
    root = read(
        roof([("saxpy <&>", 1 / 6, None), ("product", 100, 4.05e12), ("copy", 0, None), ("none", math.inf, None)], **T4)
    )
    said = texts(root)
    assert "8.1 TFLOP/s, 320 GB/s; the ridge is at 25.3 FLOP/byte" in said
    assert "saxpy <&>: 0.167 FLOP/byte, at most 53.3 GFLOP/s, limited by memory" in said
    assert (
        "product: 100 FLOP/byte, at most 8.1 TFLOP/s, limited by arithmetic; measured 4.05 TFLOP/s, 50% of that"
        in " ".join(said)
    )
    assert "copy: computes nothing" in said
    assert "none: moves nothing, at most 8.1 TFLOP/s, limited by arithmetic" in said
    assert told(marked(root, "point")[0]) == said[[t.startswith("saxpy") for t in said].index(True)]
    assert [t for t in said if re.fullmatch("[A-D]", t)] == [*"ABD", *"ABCD"]  # what computes nothing has no place


def test_letters_give_way_to_each_other() -> None:
    for step in (0.0, 0.1, 0.3, 1.0, 3.0):
        root = read(roof([(str(n), 10.0 + n * step, None) for n in range(4)], **T4))
        discs = [e.findall(f"{SVG}circle")[1] for e in marked(root, "point")]
        places = [(float(d.get("cx", "")), float(d.get("cy", ""))) for d in discs]
        assert min(math.dist(a, b) for a, b in itertools.combinations(places, 2)) >= 20
        stems = [re.findall(r"[-\d.]+", e.find(f"{SVG}path").get("d")) for e in marked(root, "point")]
        for (n, disc), (m, stem) in itertools.product(enumerate(places), enumerate(stems)):
            start, end = np.array(stem, float).reshape(2, 2)
            along = start + (end - start) * np.linspace(0, 1, 50)[:, None]
            assert n == m or np.hypot(*(along - disc).T).min() >= 11  # a letter's disc has a radius of 9


def test_any_magnitude() -> None:
    for intensity in (1e-9, 1e9):
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in dots([("a", intensity, None), ("b", 1, 1.0)]))
    assert dots([], peak_flops=1.0, bandwidth=1e15) == []
    assert all(0 <= y <= HEIGHT for _, y in dots([("a", 1, 0.0), ("b", 1, 1e18)]))


def test_names_may_be_any_text() -> None:
    name = "\x00<&\"'> ]]> \ufffe 漢"
    (point,) = marked(read(roof([(name, 1.0, None)], **T4)), "point")
    assert point.get("data-point") == "\ufffd<&\"'> ]]> \ufffd 漢"


def test_impossible_numbers() -> None:
    for points, message in (
        ([("a", -1.0, None)], "'a' has intensity -1.0"),
        ([("a", math.nan, None)], "'a' has intensity nan"),
        ([("a", 1.0, math.inf)], "inf FLOP/s"),
        ([("a", 1.0, None)] * 27, "27 points are too many"),
    ):
        with pytest.raises(UserError, match=message):
            roof(points, **T4)
    with pytest.raises(UserError, match="peak_flops=0: give a positive number, in FLOP/s"):
        roof([], **{**T4, "peak_flops": 0})
    with pytest.raises(UserError, match="bandwidth=nan: give a positive number, in bytes/s"):
        roof([], **{**T4, "bandwidth": math.nan})


def test_prefixes() -> None:
    assert [si(v, "B") for v in (0, 0.5, 1, 999, 999.9, 1e3, 3.35e12, 1e18)] == [
        "0 B",
        "0.5 B",
        "1 B",
        "999 B",
        "1 kB",
        "1 kB",
        "3.35 TB",
        "1e+03 PB",
    ]
