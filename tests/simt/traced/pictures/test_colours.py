"""Colours: told apart without hue, readable in both themes."""

import itertools

import pytest

from nanoeuler.simt.traced.pictures.colours import (
    CATEGORIES,
    DARK,
    LIGHT,
    SEVERAL,
    colours,
    contrast,
    ink_on,
    luminance,
    ramp,
    style_sheet,
)

# What a protanope and a deuteranope see, on linear RGB (M. Machado, M. Oliveira, L. Fernandes, "A Physiologically-based
# Model for Simulation of Color Vision Deficiency", 2009)
SEEN = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanope": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranope": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def linear(colour: str) -> list[float]:
    values = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]


@pytest.mark.parametrize("count", [2, 7, 32, 256, 1024])
@pytest.mark.parametrize("eyes", SEEN)
def test_the_ramp_rises_in_lightness(count: int, eyes: str) -> None:
    levels = []
    for colour in ramp(count):
        seen = [sum(m * c for m, c in zip(row, linear(colour), strict=True)) for row in SEEN[eyes]]
        levels.append(0.2126 * seen[0] + 0.7152 * seen[1] + 0.0722 * seen[2])
    rises = [b - a for a, b in itertools.pairwise(levels)]
    assert min(rises) > (0 if count <= 32 else -1e-3)  # among more, neighbours may be equal but for rounding
    assert levels[-1] > 8 * levels[0]


def test_no_two_are_the_same() -> None:
    for count in (1, 3, 7, 8, 100):
        assert len(set(colours(count))) == count == len(colours(count))
    assert SEVERAL not in {*CATEGORIES, *ramp(32)}


def test_ink_can_be_read_on_every_colour() -> None:
    for colour in (*CATEGORIES, SEVERAL, *ramp(64)):
        assert contrast(ink_on(colour), colour) >= 4.5, colour


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_words_can_be_read_in_both_themes(theme: dict[str, str]) -> None:
    for ink, ground in (
        *(("ink", "paper"), ("dim", "paper"), ("warn", "paper"), ("ink", "soft"), ("dim", "empty"), ("paper", "edge")),
        *(("warn", "soft"), ("dim", "soft")),
    ):
        assert contrast(theme[ink], theme[ground]) >= 4.5, (ink, ground)
    for line in ("rule", "edge", "warn"):
        assert contrast(theme[line], theme["paper"]) >= 3, line


def test_both_themes_have_the_same_colours() -> None:
    assert LIGHT.keys() == DARK.keys()
    style = style_sheet("root")
    assert all(colour in style for theme in (LIGHT, DARK) for colour in theme.values())
    assert "var(" not in style
    assert luminance(LIGHT["paper"]) > 0.9 > 0.1 > luminance(DARK["paper"])
