"""The elements of an array as squares: in the colour of who touches them, hatched where they are written."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nanoeuler.simt.traced.pictures.cells import Cells
from nanoeuler.simt.traced.pictures.colours import CATEGORIES, INKS, SEVERAL, ink_on
from nanoeuler.simt.traced.pictures.drawing import ROOT, number, tag, text, tooltip
from nanoeuler.simt.traced.pictures.legend import written
from nanoeuler.simt.traced.pictures.users import By, Users, fill_of, name_of, patterns, tooltips
from nanoeuler.simt.traced.result import Trace

ROOMY = 14.0  # pixels of an element's side, from which on a number finds room in it
HALF = 'transform="translate(0.5 0.5)"'  # lines that are one pixel wide fill a pixel
MEANINGS = {
    "thread": "thread, by its number in its block",
    "lane": "lane of its warp",
    "warp": "warp of its block",
    "block": "block",
    "count": "accesses",
}


def squares(trace: Trace, cells: Cells, found: Users) -> Iterator[str]:
    """Yield the elements: squares with their tooltips, hatching over them, and what stands in them."""
    names = [name_of(found, n) for n in range(len(cells))]
    fills = [fill_of(found, n) for n in range(len(cells))]
    side = cells.side - 1
    yield f'<g class="n-hair" {HALF}>'
    for n, (fill, told) in enumerate(zip(fills, tooltips(trace, cells, found), strict=True)):
        yield tag(
            *("rect", tooltip(told)),
            **{"x": cells.x[n], "y": cells.y[n], "width": side, "height": side, "fill": fill or None},
            class_=None if fill else "n-empty",
            **{"data-index": ",".join(map(str, cells.index(n))), "data-key": int(found.key[n])},
            **{"data-users": int(found.several[n]), "data-kinds": int(found.kinds[n])},
        )
    yield "</g>"
    yield from hatched(cells, patterns(found, fills))
    yield from labels(cells, names, fills)


def outlines(cells: Cells, which: Sequence[int], **look: Any) -> str:
    """Return the squares of elements as one path; to be moved by HALF."""
    side = number(cells.side - 1)
    corners = (f"M{number(cells.x[n])} {number(cells.y[n])}h{side}v{side}h-{side}z" for n in which)
    return tag("path", d="".join(corners), **look)


def hatched(cells: Cells, patterns_: dict[str, list[int]]) -> Iterator[str]:
    """Yield elements' hatchings, by the names of patterns: on their lower edge, so that numbers stay clear of it.

    Neighbours are hatched by one stroke.
    """
    high = number(cells.side * (0.25 if cells.side >= ROOMY else 1) - 1)
    for pattern, which in patterns_.items():
        x, y = cells.x[which], cells.y[which]
        apart = np.flatnonzero(np.diff(x, prepend=-1e9) != cells.side * (np.diff(y, prepend=-1e9) == 0))
        path = ""
        for start, end in itertools.pairwise([*apart.tolist(), len(which)]):
            wide = number((end - start) * cells.side - 1)
            path += f"M{number(x[start])} {number(y[start] + cells.side - 1)}v-{high}h{wide}v{high}z"
        yield tag("path", d=path, fill=f"url(#{ROOT}-{pattern})", class_="n-over")


def labels(cells: Cells, names: Sequence[str], fills: Sequence[str]) -> Iterator[str]:
    """Yield what stands in the elements, where there is room for it, in an ink that shows on the colour."""
    longest = max(map(len, names), default=0)
    size = max(6.5, min(11.0, (cells.side - 3) / (0.6 * max(longest, 1))))
    for ink in INKS:
        which = [n for n, fill in enumerate(fills) if fill and ink_on(fill) == ink]
        made = [
            text(cells.x[n] + cells.side / 2, cells.y[n] + cells.side * 0.44 + 0.36 * size, names[n])
            for n in which
            if 0.6 * size * len(names[n]) <= cells.side - 2
        ]
        if made:
            yield tag("g", *made, fill=ink, font_size=size, text_anchor="middle")


Entry = tuple[str, str, str]


def meanings(found: Users, by: By) -> tuple[list[Entry], tuple[str, Sequence[str], str, str] | None]:
    """Return what the colours and hatchings mean, as :func:`legend` takes it: entries, and a ramp."""
    fills, names = found.fills, found.names
    ramped = len(fills) > len(CATEGORIES) or by in ("thread", "lane", "count")
    entries = [] if ramped else [(fill, "", f"{by} {name}") for fill, name in zip(fills, names, strict=True)]
    if by != "count" and (found.several > 1).any():
        entries.append((SEVERAL, "", f"×n: by n {'threads' if by == 'lane' else by + 's'}"))
    if (found.several == 0).any():
        entries.append(("", "", "not touched"))
    sample = fills[-1] if len(fills) else SEVERAL
    if (found.kinds & 2).any():
        entries.append((sample, written(sample), "hatched: written"))
    if (found.kinds & 4).any():
        entries.append((sample, written(sample, "a"), "hatched twice: updated atomically"))
    return entries, (MEANINGS[by], fills, names[0], names[-1]) if ramped and len(fills) else None
