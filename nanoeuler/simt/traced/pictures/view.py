"""What a grid is drawn of: the elements that are shown, and the accesses that count."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nanoeuler.console import plural
from nanoeuler.simt.traced.pictures.cells import Cells, laid_out
from nanoeuler.simt.traced.pictures.choice import KINDS, Index, Line, block_number, kind_number, on_line, one_array
from nanoeuler.simt.traced.pictures.region import shown_region, touches
from nanoeuler.simt.traced.pictures.wording import kind_of, position, ranges, source
from nanoeuler.simt.traced.recorder import TracedArray
from nanoeuler.simt.traced.result import Trace


@dataclass(frozen=True)
class View:
    """What a grid is drawn of.

    Attributes:
        cells: the elements, and where they lie.
        cell, access: (touches,) int64, which element is touched by which access.
        subject: in words, what array it is and whose accesses are shown.
        code: the line of source that was chosen, "" for none.
    """

    cells: Cells
    cell: np.ndarray
    access: np.ndarray
    subject: str
    code: str


def view(
    trace: Trace,
    array: str | int,
    *,
    kind: str | None,
    line: Line | None,
    block: Index | None,
    part: Any,
    blocks: bool,
) -> View:
    """Return what :func:`grid` draws; ``blocks``: of a shared array too the accesses of all blocks count.

    Raises:
        UserError: there is no such array, line or block, or too many elements would have to be drawn.
    """
    one = one_array(trace, array)
    if block is None and not blocks:
        block = _first_block(trace, one)
    fits = trace.select(block=block_number(trace, block), kind=kind_number(kind))
    if line is not None:
        fits &= np.isin(trace.accesses["instruction"], [i.number for i in on_line(trace, line)])
    cells = laid_out(one, shown_region(trace, one, trace.accesses[fits], part))
    code = "" if line is None else source(trace, on_line(trace, line)[0])
    return View(cells, *touches(trace, one, cells.region, fits), _subject(trace, one, kind, block), code)


def _first_block(trace: Trace, one: TracedArray) -> int | None:
    """Return the first block that touches a shared array, as each has its own; None for other arrays."""
    blocks = trace.accesses["block"][trace.accesses["array"] == one.number]
    return int(blocks.min()) if one.scope == "shared" and len(blocks) else None


def _subject(trace: Trace, one: TracedArray, kind: str | None, block: Index | None) -> str:
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
    if (number := kind_number(kind)) is not None:
        made += f" · {list(KINDS)[number]}s only"
    copies = {"shared": "each block has a copy of its own", "local": "each thread has a copy of its own"}
    return made + (f" · {copies[one.scope]}" if one.scope in copies else "")
