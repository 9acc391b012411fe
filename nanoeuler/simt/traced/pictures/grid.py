"""An array as a grid of its elements, each in the colour of the thread that touches it.

The idea of drawing reads and writes of each thread over the array is that of S. Rush, "GPU Puzzles" (2022).
"""

from typing import Any

import numpy as np

from nanoeuler.console import plural
from nanoeuler.errors import UserError, nearest
from nanoeuler.simt.traced.pictures.cells import GAP, WIDTH, Cells, laid_out
from nanoeuler.simt.traced.pictures.choice import Index, Line
from nanoeuler.simt.traced.pictures.drawing import head, number, text
from nanoeuler.simt.traced.pictures.legend import legend
from nanoeuler.simt.traced.pictures.picture import Picture, picture
from nanoeuler.simt.traced.pictures.region import MOST, named
from nanoeuler.simt.traced.pictures.squares import MANY, meanings, squares
from nanoeuler.simt.traced.pictures.users import By, Users, units, users
from nanoeuler.simt.traced.pictures.view import View, view
from nanoeuler.simt.traced.recorder import READ
from nanoeuler.simt.traced.result import Trace

HEADING = 22.0  # pixels above each of two panels
NARROWEST = 560.0  # pixels, for the words
BY: dict[str, str] = {
    "thread": "which thread touches each element",
    "lane": "which lane of a warp touches each element",
    "warp": "which warp touches each element",
    "block": "which block touches each element",
    "count": "how often each element is touched",
}


def grid(
    trace: Trace,
    array: str | int,
    *,
    by: By = "thread",
    kind: str | None = None,
    line: Line | None = None,
    block: Index | None = None,
    part: Any = None,
    tooltips: bool | None = None,
) -> Picture:
    """Draw an array as a grid of its elements, coloured by who touches each.

    One axis is wrapped into lines, two are rows and columns, more are panels. Elements that several touch are grey,
    with how many; what is written is hatched. Where an element is written by one and read by another, there are two
    grids, of who writes and of who reads. A tooltip says which threads do what, on which line, and the last value.
    Accesses through another array in the same memory count.

    Args:
        trace: what happened.
        array: its name, or number where several have the name.
        by: "thread" (within its block), "lane" (within its warp), "warp" (within its block), "block", or "count": how
            often.
        kind: only these accesses: "reads", "writes" or "atomics"; "all": reads and writes in one grid. None: in two
            grids where that tells more.
        line: only those on this line of the source; (file, line) in another file than the kernel's.
        block: only those of this block, by index or number. None: all, but of a shared array, of which each block has
            its own, the first block that touches it.
        part: what of the array is drawn, as an index of slices and integers: ``np.s_[0:64, 3]``. None: all of an array
            of 4096 elements or less, and of a larger one the rectangle that holds all accesses.
        tooltips: whether each element has a tooltip of its own, which makes a picture of many elements large. None: if
            there are 1024 or less.

    Raises:
        UserError: there is no such array, line or block, or more than 4096 elements would have to be drawn.
    """
    if by not in BY:
        raise UserError(f"by={by!r}{nearest(str(by), BY)}: use {', '.join(BY)}")
    seen = view(trace, array, kind=kind, line=line, block=block, part=part, blocks=by == "block")
    cells = seen.cells
    whole = np.ones(len(seen.cell), np.bool_)
    parts = {"": whole} if kind is not None or by == "count" else _parts(trace, seen, by)
    found = {name: users(trace, cells, seen.cell[of], seen.access[of], by, seen.access) for name, of in parts.items()}
    narrow = laid_out(cells.array, cells.region, WIDTH / 2 - 3 * GAP)
    beside = len(parts) > 1 and 2 * (narrow.width + GAP) <= WIDTH
    cells = narrow if beside else cells
    width = max(2 * (cells.width + GAP) if beside else cells.width, NARROWEST)
    many = len(parts) * len(cells) > MANY if tooltips is None else not tooltips
    top, y = head(f"{named(cells.array, cells.region)}: {BY[by]}", [seen.subject], width, seen.code)
    body, x = [top], 0.0
    for name, one in found.items():
        body.append(f'<g transform="translate({number(x)} {number(y)})" data-panel="{name}">')
        if name:
            body.append(text(0, 12, name, class_="n-ink n-bold") + f'<g transform="translate(0 {number(HEADING)})">')
        numbered = len(parts) * len(cells) <= MOST
        body += [cells.frame, *squares(trace, cells, one, many, numbered), "</g>" * (2 if name else 1)]
        high = cells.height + (HEADING if name else 0)
        x, y = (x + cells.width + 2 * GAP, y) if beside else (x, y + high + GAP)
    key, end = legend(y + (high + GAP if beside else 0), width, *meanings(trace, by, *found.values()))
    said = " ".join(f"{name}: {_description(cells, one, by)}".removeprefix(": ") for name, one in found.items())
    return picture(f"{cells.array.name}: {BY[by]}", said, width, end, [*body, key])


def _parts(trace: Trace, seen: View, by: By) -> dict[str, np.ndarray]:
    """Return which touches belong into a grid together: all, but where one writes what another reads."""
    reads = trace.accesses["kind"][seen.access] == READ
    touch = np.stack([seen.cell, *units(trace, seen.access, by)])
    _, which = np.unique(touch, axis=1, return_inverse=True)
    own = np.isin(which.ravel(), which.ravel()[~reads])
    if not (reads & ~own & np.isin(seen.cell, seen.cell[~reads])).any():
        return {"": np.ones(len(reads), np.bool_)}
    return {"who writes": ~reads, "who reads": reads}


def _description(cells: Cells, found: Users, by: By) -> str:
    """Return what the picture shows, for those who cannot see it."""
    touched, shared = int((found.several > 0).sum()), int((found.several > 1).sum())
    what = {"lane": "thread", "count": "thread"}.get(by, by)
    several = f"; {shared:,} by more than one {what}" if shared else f", each by one {what}" if touched else ""
    changed = int((found.kinds & 6 > 0).sum())
    found_in = f"{plural(len(cells), 'element')} of {cells.array.name}"
    return f"{found_in}: {touched:,} are touched{several}. {changed:,} are written."
