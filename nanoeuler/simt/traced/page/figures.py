"""Which pictures a page shows of a launch: those that say most first, as long as there is room.

A picture is part of the page, a few ten thousand characters long. Where there is no more room, the page says which are
left out.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nanoeuler.errors import UserError
from nanoeuler.simt.traced.numbers import LineNumbers, Numbers
from nanoeuler.simt.traced.page.html import element, words
from nanoeuler.simt.traced.pictures.animation import animation
from nanoeuler.simt.traced.pictures.banks import banks
from nanoeuler.simt.traced.pictures.grid import grid
from nanoeuler.simt.traced.pictures.picture import Picture
from nanoeuler.simt.traced.pictures.sectors import sectors
from nanoeuler.simt.traced.pictures.timeline import timeline
from nanoeuler.simt.traced.recorder import TracedArray
from nanoeuler.simt.traced.result import Trace

LINES = 6  # of which a page shows a warp's addresses, for each kind of memory
ARRAYS = 8
LARGEST = 800_000  # characters of one picture


@dataclass(frozen=True)
class Figure:
    """A picture that a page may show: ``draw`` makes it. ``group`` is the heading that it stands under."""

    group: str
    name: str
    draw: Callable[[], Picture]


def figures(trace: Trace, found: Numbers) -> list[Figure]:
    """Return what there is to draw, the most telling first."""
    return [*_arrays(trace), *_lines(trace, found), *_times(trace), *_more(trace, found)]


def drawn(candidates: Iterable[Figure], room: int, suffix: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return the figures as HTML by their group, in ``room`` characters, and the names of those left out.

    ``suffix`` makes the names inside of them differ from those of the same pictures elsewhere in the page.
    """
    shown: dict[str, list[str]] = {}
    left_out, seen = [], set()
    for figure in candidates:
        try:
            picture = figure.draw()
        except UserError:  # too many elements, or nothing to show
            left_out.append(figure.name)
            continue
        svg = picture.svg
        if svg in seen:
            continue
        size = len(svg)
        if size > min(room, LARGEST):
            left_out.append(figure.name)
            continue
        room -= size
        seen.add(svg)
        first = not shown.get(figure.group)
        shown.setdefault(figure.group, []).append(folded(figure.name, unique(svg, suffix), first))
    return shown, left_out


def unique(svg: str, suffix: str) -> str:
    """Return a picture under a name that is its own even where the page has the same picture twice."""
    name = re.search(r' class="(n[0-9a-f]+)"', svg)
    return svg.replace(name[1], name[1] + suffix) if name else svg


def folded(name: str, content: str, is_open: bool) -> str:
    """Return a picture that can be folded away, under its name."""
    summary = element("summary", words(name))
    return element("details", summary, element("div", content, class_="picture", tabindex="0"), class_="figure",
                   open=is_open)  # fmt: skip


def _arrays(trace: Trace) -> Iterator[Figure]:
    """Yield the arrays that were touched, those of global memory first; local ones are a thread's own."""
    touched = set(trace.accesses["array"].tolist())
    scopes = ("global", "shared", "constant")
    arrays = [a for scope in scopes for a in trace.arrays if a.scope == scope and a.number in touched]
    for array in arrays[:ARRAYS]:
        yield Figure("arrays", f"{_label(trace, array)}: who touches what", partial(grid, trace, array.number))


def _label(trace: Trace, array: TracedArray) -> str:
    same = [a for a in trace.arrays if a.name == array.name]
    return array.name if len(same) == 1 else f"{array.name} ({array.scope}, number {array.number})"


def _lines(trace: Trace, found: Numbers) -> Iterator[Figure]:
    """Yield lines that go to memory, the costliest first, in the order in which they stand."""
    for one in _costliest(found, lambda one: one.traffic.sectors):
        yield Figure("lines", _named(trace, one, "sectors"), partial(sectors, trace, (one.file, one.line)))
    for one in _costliest(found, lambda one: one.banks.wavefronts):
        yield Figure("lines", _named(trace, one, "banks"), partial(banks, trace, (one.file, one.line)))


def _named(trace: Trace, one: LineNumbers, what: str) -> str:
    """Return the name of a picture of a line: what of memory it shows, the line's number and its source."""
    where = f"line {one.line}" if one.file == trace.file else f"line {one.line} of {Path(one.file).name}"
    code = trace.source_line(one.line, one.file).strip()
    return f"{what}, {where}: {code if len(code) <= 70 else code[:69] + '…'}"


def _costliest(found: Numbers, cost: Callable[[LineNumbers], int]) -> list[LineNumbers]:
    costly = sorted((one for one in found.lines.values() if cost(one)), key=lambda one: -cost(one))[:LINES]
    return [one for one in found.lines.values() if one in costly]


def _times(trace: Trace) -> Iterator[Figure]:
    if len(trace.visits):
        yield Figure("time", "the warps of a block over time", partial(timeline, trace))


def _more(trace: Trace, found: Numbers) -> Iterator[Figure]:
    """Yield how an array fills, whose block writes what, and how often what is loaded again is loaded."""
    numbered = dict(enumerate(found.arrays))
    written = [n for n, a in numbered.items() if a.stores + a.atomics and a.scope in ("shared", "global")]
    for number in sorted(written, key=lambda n: (numbered[n].scope != "shared", n))[:1]:
        name = f"{_label(trace, trace.arrays[number])}, step by step"
        yield Figure("time", name, partial(animation, trace, number))
    if len(trace.blocks) > 1:
        for number in [n for n in written if numbered[n].scope == "global"][:1]:
            name = f"{_label(trace, trace.arrays[number])}: which block"
            yield Figure("arrays", name, partial(grid, trace, number, by="block"))
    often = [n for n, a in numbered.items() if a.loads_per_element > 1.5 and a.scope == "global"]
    for number in often[:ARRAYS]:
        name = f"{_label(trace, trace.arrays[number])}: how often"
        yield Figure("arrays", name, partial(grid, trace, number, by="count"))
