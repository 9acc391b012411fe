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

MANY = 1024  # elements of a picture; of more of them those of a colour are drawn as one, without tooltips of their own
ROOMY = 14.0  # pixels of an element's side, from which on a number finds room in it
HALF = 'transform="translate(0.5 0.5)"'  # lines that are one pixel wide fill a pixel
MEANINGS = {
    "thread": "thread, by its number in its block",
    "lane": "lane of its warp",
    "warp": "warp of its block",
    "block": "block",
    "count": "accesses",
}


def squares(trace: Trace, cells: Cells, found: Users, many: bool = False, numbered: bool = True) -> Iterator[str]:
    """Yield the elements: squares with their tooltips, hatching over them, and if ``numbered`` what stands in them.

    If there are ``many``, the elements of a colour are one shape together.
    """
    names = [name_of(found, n) for n in range(len(cells))]
    fills = [fill_of(found, n) for n in range(len(cells))]
    yield from _together(cells, found, names, fills) if many else _one_by_one(trace, cells, found)
    yield from hatched(cells, patterns(found, fills))
    if numbered:
        yield from labels(cells, names, fills)


def _together(cells: Cells, found: Users, names: Sequence[str], fills: Sequence[str]) -> Iterator[str]:
    """Yield the elements as a shape for each colour; a tooltip says whose it is."""
    groups: dict[tuple[int, str], list[int]] = {}
    for n, (fill, name) in enumerate(zip(fills, names, strict=True)):
        groups.setdefault((int(found.key[n]), name if fill else ""), []).append(n)
    yield f"<g {HALF}>"
    for (key, name), which in groups.items():
        look = {"fill": fills[which[0]]} if name else {"class_": "n-empty n-hair"}
        yield outlines(cells, which, *([tooltip(name)] if name else []), **look, **{"data-key": key})
    yield "</g>"


def _one_by_one(trace: Trace, cells: Cells, found: Users) -> Iterator[str]:
    """Yield each element as a square, with its tooltip."""
    fills, side = [fill_of(found, n) for n in range(len(cells))], cells.side - 1
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


def outlines(cells: Cells, which: Sequence[int], *content: str, **look: Any) -> str:
    """Return the squares of elements as one path, with ``content`` in it; to be moved by HALF."""
    side = number(cells.side - 1)
    corners = (f"M{number(cells.x[n])} {number(cells.y[n])}h{side}v{side}h-{side}z" for n in which)
    return tag("path", *content, d="".join(corners), **look)


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
        fitting = [n for n in which if 0.6 * size * len(names[n]) <= cells.side - 2]
        made = [text(cells.x[n], cells.y[n], names[n]) for n in fitting]
        middle = f"translate({number(cells.side / 2)} {number(cells.side * 0.44 + 0.36 * size)})"
        if made:
            yield tag("g", *made, transform=middle, fill=ink, font_size=size, text_anchor="middle")


Entry = tuple[str, str, str]


def meanings(trace: Trace, by: By, *parts: Users) -> tuple[list[Entry], tuple[str, Sequence[str], str, str] | None]:
    """Return what the colours and hatchings mean, as :func:`legend` takes it: entries, and a ramp.

    ``parts`` are one or several grids that have their colours in common; what is in none of them is left out.
    """
    fills, names = parts[0].fills, parts[0].names
    several, kinds, key = (np.concatenate([getattr(p, name) for p in parts]) for name in ("several", "kinds", "key"))
    coloured = bool((key >= 0).any())
    ramped = len(fills) > len(CATEGORIES) or by in ("thread", "lane", "count")
    entries = [(fills[n], "", f"{by} {names[n]}") for n in np.unique(key[key >= 0]).tolist() if not ramped]
    if by != "count" and (several > 1).any():
        entries.append((SEVERAL, "", f"×n: by n {'threads' if by == 'lane' else by + 's'}"))
    if (several == 0).any():
        entries.append(("", "", "not touched"))
    sample = fills[-1] if coloured else SEVERAL
    if (kinds & 2).any():
        entries.append((sample, written(sample), "hatched: written"))
    if (kinds & 4).any():
        entries.append((sample, written(sample, "a"), "hatched twice: updated atomically"))
    if not ramped or not coloured:
        return entries, None
    size = trace.launch.block_threads
    meaning = MEANINGS[by] + (f" of {size}: no others come" if by == "thread" and len(fills) < size else "")
    return entries, (meaning, fills, names[0], names[-1])
