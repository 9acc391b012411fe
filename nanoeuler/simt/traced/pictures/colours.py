"""Colours that all readers can tell apart, light and dark themes, and the style sheet of every picture.

A few things take the palette of Okabe and Ito ("Color Universal Design", 2008). Many that have an order, threads say,
take a ramp whose lightness rises all the way, viridis (van der Walt and Smith, for matplotlib, 2015), so that it can be
read without any sense of hue, and printed in grey.

A picture has its own background, so it can be read on any page. Its ink follows the reader's system, and the theme of
JupyterLab, VS Code, Colab or of a page that says ``data-theme``, where the picture stands in one of these.
"""

import functools
from collections.abc import Sequence
from typing import Any

from nanoeuler.simt.traced.pictures.drawing import ROOT, tag

CATEGORIES = ("#0072b2", "#e69f00", "#009e73", "#f0e442", "#d55e00", "#56b4e9", "#cc79a7")  # dark and light in turn
SEVERAL = "#b9bfc6"  # of what belongs to more than one
_RAMP = ("#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")

LIGHT = {
    **{"paper": "#ffffff", "ink": "#1f2328", "dim": "#59636e", "hair": "#d1d9e0", "rule": "#818b98"},
    **{"empty": "#f6f8fa", "warn": "#b33a00", "soft": "#dceeff", "edge": "#0a5cb8"},
}
DARK = {
    **{"paper": "#0f1419", "ink": "#e6edf3", "dim": "#a0aab5", "hair": "#343c46", "rule": "#7d8793"},
    **{"empty": "#171d24", "warn": "#ff9d66", "soft": "#14334f", "edge": "#6cb6ff"},
}
_RULES = (
    *(("n-paper", "fill", "paper"), ("n-ink", "fill", "ink"), ("n-title", "fill", "ink"), ("n-code", "fill", "ink")),
    *(
        ("n-dim", "fill", "dim"),
        ("n-cut", "stroke", "paper"),
        ("n-hair", "stroke", "hair"),
        ("n-rule", "stroke", "rule"),
        ("n-line", "stroke", "ink"),
    ),
    *(("n-empty", "fill", "empty"), ("n-warn", "fill", "warn"), ("n-fault", "stroke", "warn")),
    *(("n-soft", "fill", "soft"), ("n-edge", "stroke", "edge"), ("n-mark", "fill", "edge")),
    *(("n-on", "fill", "paper"), ("n-op", "fill", "ink"), ("n-idle", "fill", "hair")),
)
_FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'
_HOSTS = ('body[data-jp-theme-light="{}"]', "body.vscode-{}", 'html[theme="{}"]', 'html[data-theme="{}"]')


def ramp(count: int) -> list[str]:
    """Return ``count`` colours in order, from dark to light.

    >>> ramp(2)
    ['#46327e', '#fde725']
    """
    return [_between(i / max(1, count - 1)) for i in range(count)]


def _between(share: float) -> str:
    place = share * (len(_RAMP) - 1)
    low = min(int(place), len(_RAMP) - 2)
    pairs = zip(_channels(_RAMP[low]), _channels(_RAMP[low + 1]), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (place - low)):02x}" for a, b in pairs)


def colours(count: int) -> Sequence[str]:
    """Return a colour for each of ``count`` things that are numbered; no two are the same."""
    return CATEGORIES[:count] if count <= len(CATEGORIES) else ramp(count)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, 0 to 1 (WCAG 2.2, "relative luminance")."""
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in _channels(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """Return the contrast of two colours, 1 to 21 (WCAG 2.2, "contrast ratio")."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@functools.cache
def ink_on(colour: str) -> str:
    """Return black or white: the one that can be read on ``colour``."""
    return max("#000000", "#ffffff", key=lambda ink: contrast(ink, colour))


def style_sheet(root: str) -> str:
    """Return the CSS of a picture of class ``root``: nothing in it touches what is outside.

    No variables: programs that make PDF of SVG do not know them, and skip what they do not know.
    """
    dark, light = (":is(" + ",".join(h.format(name) for h in _HOSTS) + ") " for name in ("dark", "light"))
    dark, light = dark.replace('light="dark', 'light="false'), light.replace('light="light', 'light="true')
    return (
        f".{root}{{font:12px {_FONT}}}.{root} text,.{root} .n-over{{pointer-events:none}}"
        f".{root} .n-title{{font-size:16px;font-weight:600}}"
        f".{root} .n-code{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}}"
        f".{root} .n-small{{font-size:10px}}.{root} .n-bold{{font-weight:600}}"
        f"{_themed(f'.{root}', LIGHT)}@media screen and (prefers-color-scheme:dark){{{_themed(f'.{root}', DARK)}}}"
        f"{_themed(f'{light}.{root}', LIGHT)}{_themed(f'{dark}.{root}', DARK)}"
    )


def _themed(root: str, theme: dict[str, str]) -> str:
    return "".join(f"{root} .{name}{{{what}:{theme[colour]}}}" for name, what, colour in _RULES)


def _hatching(name: str, both: bool, **ink: Any) -> str:
    lines = "M-1 1L1 -1M0 6L6 0M5 7L7 5" + ("M-1 5L1 7M0 0L6 6M5 -1L7 1" if both else "")
    path = tag("path", d=lines, stroke_width=1.2, **ink)
    return tag("pattern", path, id=f"{ROOT}-{name}", width=6, height=6, patternUnits="userSpaceOnUse")


# What was written is hatched, what an atomic updated is hatched twice: ``w`` and ``a``, in dark and in light ink.
INKS = {"#000000": "k", "#ffffff": "w"}
PATTERNS = "".join(
    _hatching(f"{kind}{c}", kind == "a", stroke=ink, stroke_opacity=0.6) for kind in "wa" for ink, c in INKS.items()
) + _hatching("trail", False, class_="n-rule")
