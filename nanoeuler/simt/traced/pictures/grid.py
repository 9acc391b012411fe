"""An array as a grid of its elements, each in the colour of the thread that touches it.

The idea of drawing reads and writes of each thread over the array is that of S. Rush, "GPU Puzzles" (2022).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nanoeuler.errors import UserError, nearest
from nanoeuler.simt.traced.pictures.cells import Cells, laid_out
from nanoeuler.simt.traced.pictures.choice import Index, Line, block_number, kind_number, on_line, one_array
from nanoeuler.simt.traced.pictures.colours import CATEGORIES, INKS, SEVERAL, ink_on
from nanoeuler.simt.traced.pictures.drawing import ROOT, head, number, tag, text, tooltip
from nanoeuler.simt.traced.pictures.legend import legend, written
from nanoeuler.simt.traced.pictures.picture import Picture, picture
from nanoeuler.simt.traced.pictures.region import named, shown_region
from nanoeuler.simt.traced.pictures.users import By, Users, fill_of, name_of, patterns, tooltips, users
from nanoeuler.simt.traced.pictures.wording import kind_of, plural, position, ranges, source
from nanoeuler.simt.traced.recorder import TracedArray
from nanoeuler.simt.traced.result import Trace

ROOMY = 14.0  # pixels of an element's side, from which on a number finds room in it
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
) -> Picture:
    """Draw an array as a grid of its elements, coloured by who touches each.

    One axis is wrapped into lines, two are rows and columns, more are panels. Elements that several touch are grey,
    with how many; what is written is hatched. A tooltip says which threads do what, on which line, and the last value.
    Accesses through another array in the same memory count.

    Args:
        trace: what happened.
        array: its name, or number where several have the name.
        by: "thread" (within its block), "lane" (within its warp), "warp" (within its block), "block", or "count": how
            often.
        kind: only these accesses: "read", "write" or "atomic".
        line: only those on this line of the source; (file, line) in another file than the kernel's.
        block: only those of this block, by index or number. None: all, but of a shared array, of which each block has
            its own, the first block that touches it.
        part: what of the array is drawn, as an index of slices and integers: ``np.s_[0:64, 3]``. None: all of an array
            of 4096 elements or less, and of a larger one the rectangle that holds all accesses.

    Raises:
        UserError: there is no such array, line or block, or more than 4096 elements would have to be drawn.
    """
    if by not in BY:
        raise UserError(f"by={by!r}{nearest(str(by), BY)}: use {', '.join(BY)}")
    one = one_array(trace, array)
    if block is None and by != "block":
        block = first_block(trace, one)
    chosen = chosen_accesses(trace, one, kind, line, block)
    cells = laid_out(one, shown_region(trace, one, trace.accesses[chosen], part))
    found = users(trace, cells, chosen, by)
    width = max(cells.width, 560.0)
    title = f"{named(one, cells.region)}: {BY[by]}"
    code = "" if line is None else source(trace, on_line(trace, line)[0])
    top, y = head(title, [subject(trace, one, kind, block)], width, code)
    key, end = _legend(found, by, y + cells.height + 14, width)
    body = [top, f'<g transform="translate(0 {number(y)})">', cells.frame, *_drawn(trace, cells, found), "</g>", key]
    return picture(title, _description(cells, found, by), width, end, body)


def first_block(trace: Trace, one: TracedArray) -> int | None:
    """Return the first block that touches a shared array, as each has its own; None for other arrays."""
    blocks = trace.accesses["block"][trace.accesses["array"] == one.number]
    return int(blocks.min()) if one.scope == "shared" and len(blocks) else None


def chosen_accesses(
    trace: Trace, one: TracedArray, kind: str | None, line: Line | None, block: Index | None
) -> np.ndarray:
    """Return which accesses count, (accesses,) bool."""
    fits = trace.select(block=block_number(trace, block), kind=kind_number(kind))
    if line is not None:
        fits &= np.isin(trace.accesses["instruction"], [i.number for i in on_line(trace, line)])
    return fits


def _drawn(trace: Trace, cells: Cells, found: Users) -> Iterator[str]:
    """Yield the elements: squares with their tooltips, hatching over them, and what stands in them."""
    names = [name_of(found, n) for n in range(len(cells))]
    fills = [fill_of(found, n) for n in range(len(cells))]
    side = cells.side - 1
    yield '<g class="n-hair">'
    for n, (fill, told) in enumerate(zip(fills, tooltips(trace, cells, found), strict=True)):
        yield tag(
            *("rect", tooltip(told)),
            **{"x": cells.x[n] + 0.5, "y": cells.y[n] + 0.5, "width": side, "height": side, "fill": fill or None},
            class_=None if fill else "n-empty",
            **{"data-index": ",".join(map(str, cells.index(n))), "data-key": int(found.key[n])},
            **{"data-users": int(found.several[n]), "data-kinds": int(found.kinds[n])},
        )
    yield "</g>"
    for pattern, which in patterns(found, fills).items():
        yield tag("path", d="".join(bands(cells, which)), fill=f"url(#{ROOT}-{pattern})", class_="n-over")
    yield from labels(cells, names, fills)


def bands(cells: Cells, which: Sequence[int]) -> Iterator[str]:
    """Yield what is hatched of elements, as parts of a path: their lower edge, so that numbers stay clear of it."""
    high = cells.side * (0.25 if cells.side >= ROOMY else 1) - 1
    for n in which:
        x, y = number(cells.x[n] + 0.5), number(cells.y[n] + cells.side - 0.5 - high)
        yield f"M{x} {y}h{number(cells.side - 1)}v{number(high)}h{number(1 - cells.side)}z"


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


def subject(trace: Trace, one: TracedArray, kind: str | None, block: Index | None) -> str:
    """Return what array it is, and whose accesses are shown."""
    launch = trace.launch
    if block is None:
        some = len(trace.blocks) < launch.blocks
        which = f"{len(trace.blocks):,} of " * some + plural(launch.blocks, "block")
    else:
        which = f"block {position(block_number(trace, block) or 0, launch.grid)}"
    made = f"{kind_of(one)} · {which} of {plural(launch.block_threads, 'thread')}"
    if trace.warps is not None:
        made += f", of warps {ranges(trace.warps)}"
    if trace.lines is not None:
        made += f" · traced on lines {ranges(trace.lines)}"
    if kind is not None:
        made += f" · {kind}s only"
    copies = {"shared": "each block has a copy of its own", "local": "each thread has a copy of its own"}
    return made + (f" · {copies[one.scope]}" if one.scope in copies else "")


MEANINGS = {
    "thread": "thread, by its number in its block",
    "lane": "lane of its warp",
    "warp": "warp of its block",
    "block": "block",
    "count": "accesses",
}


def _legend(found: Users, by: By, y: float, width: float) -> tuple[str, float]:
    """Return what the colours and hatchings of this picture mean, and where that ends."""
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
    scale = (MEANINGS[by], fills, names[0], names[-1]) if ramped and len(fills) else None
    return legend(y, width, entries, scale)


def _description(cells: Cells, found: Users, by: By) -> str:
    """Return what the picture shows, for those who cannot see it."""
    touched, shared = int((found.several > 0).sum()), int((found.several > 1).sum())
    what = {"lane": "thread", "count": "thread"}.get(by, by)
    several = f"; {shared:,} by more than one {what}" if shared else f", each by one {what}" if touched else ""
    changed = int((found.kinds & 6 > 0).sum())
    found_in = f"{plural(len(cells), 'element')} of {cells.array.name}"
    return f"{found_in}: {touched:,} are touched{several}. {changed:,} are written."
