"""An array as a grid of its elements, each in the colour of the thread that touches it.

The idea of drawing reads and writes of each thread over the array is that of S. Rush, "GPU Puzzles" (2022).
"""

from typing import Any

from nanoeuler.errors import UserError, nearest
from nanoeuler.simt.traced.pictures.cells import Cells
from nanoeuler.simt.traced.pictures.choice import Index, Line
from nanoeuler.simt.traced.pictures.drawing import head, number
from nanoeuler.simt.traced.pictures.legend import legend
from nanoeuler.simt.traced.pictures.picture import Picture, picture
from nanoeuler.simt.traced.pictures.region import named
from nanoeuler.simt.traced.pictures.squares import meanings, squares
from nanoeuler.simt.traced.pictures.users import By, Users, users
from nanoeuler.simt.traced.pictures.view import view
from nanoeuler.simt.traced.pictures.wording import plural
from nanoeuler.simt.traced.result import Trace

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
    seen = view(trace, array, kind=kind, line=line, block=block, part=part, blocks=by == "block")
    cells = seen.cells
    found = users(trace, cells, seen.cell, seen.access, by)
    width = max(cells.width, NARROWEST)
    top, y = head(f"{named(cells.array, cells.region)}: {BY[by]}", [seen.subject], width, seen.code)
    key, end = legend(y + cells.height + 14, width, *meanings(found, by))
    body = [top, f'<g transform="translate(0 {number(y)})">', cells.frame, *squares(trace, cells, found), "</g>", key]
    return picture(f"{cells.array.name}: {BY[by]}", _description(cells, found, by), width, end, body)


def _description(cells: Cells, found: Users, by: By) -> str:
    """Return what the picture shows, for those who cannot see it."""
    touched, shared = int((found.several > 0).sum()), int((found.several > 1).sum())
    what = {"lane": "thread", "count": "thread"}.get(by, by)
    several = f"; {shared:,} by more than one {what}" if shared else f", each by one {what}" if touched else ""
    changed = int((found.kinds & 6 > 0).sum())
    found_in = f"{plural(len(cells), 'element')} of {cells.array.name}"
    return f"{found_in}: {touched:,} are touched{several}. {changed:,} are written."
