"""Which pictures a page shows of a launch: those that say most get room first, as long as there is any.

A picture is part of the page, a few ten thousand characters long. Those of lines that are worth a look are always
shown. Where there is no more room, the page says which are left out, and how to see them.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nanoeuler.errors import UserError
from nanoeuler.simt.traced.hints import hints
from nanoeuler.simt.traced.numbers import LineNumbers, Numbers
from nanoeuler.simt.traced.page.html import element, words
from nanoeuler.simt.traced.pictures.animation import animation
from nanoeuler.simt.traced.pictures.banks import banks
from nanoeuler.simt.traced.pictures.grid import grid
from nanoeuler.simt.traced.pictures.picture import Picture
from nanoeuler.simt.traced.pictures.sectors import sectors
from nanoeuler.simt.traced.pictures.timeline import timeline
from nanoeuler.simt.traced.pictures.wording import line_name
from nanoeuler.simt.traced.recorder import TracedArray
from nanoeuler.simt.traced.result import Trace

LINES = 6  # of which a page shows a warp's addresses, for each kind of memory
ARRAYS = 8
FEW = 512  # elements of an array that is small: in a grid of more of them none has a tooltip of its own
OF_HINT = 3  # lines of one thing that is worth a look, at most, whose pictures are always shown
LARGEST = 800_000  # characters of one picture
#: Which pictures get room first.
ADVISED, OTHER_LINES, TIMELINE, SMALL, ANIMATION, LARGE_SHARED, LARGE, LARGE_ANIMATION = range(8)


@dataclass(frozen=True)
class Figure:
    """A picture that a page may show: ``draw`` makes it, ``call`` is how a notebook does.

    ``group`` is the heading that it stands under, ``turn`` says when it gets room.
    """

    group: str
    name: str
    call: str
    turn: int
    draw: Callable[[], Picture]


def figures(trace: Trace, found: Numbers) -> list[Figure]:
    """Return what there is to draw, in the order in which it is shown."""
    return [*_arrays(trace), *_lines(trace, found), *_times(trace), *_more(trace, found)]


def drawn(
    candidates: Iterable[Figure], room: int, suffix: str
) -> tuple[dict[str, list[str]], list[tuple[Figure, str]]]:
    """Return the figures as HTML by their group, in ``room`` characters, and those left out, with the reason if known.

    ``suffix`` makes the names inside of them differ from those of the same pictures elsewhere in the page.
    """
    given = list(candidates)
    pictures: dict[int, str] = {}
    left_out: list[tuple[Figure, str]] = []
    for n in sorted(range(len(given)), key=lambda n: given[n].turn):
        try:
            svg = given[n].draw().svg
        except UserError as error:  # too many elements, or nothing to show
            left_out.append((given[n], str(error)))
            continue
        if svg in pictures.values():
            continue
        if len(svg) > (LARGEST if given[n].turn == ADVISED else min(room, LARGEST)):
            left_out.append((given[n], ""))
            continue
        room -= len(svg)
        pictures[n] = svg
    first: dict[str, int] = {}  # of each group what got room first: it is not folded away
    for n in pictures:
        first.setdefault(given[n].group, n)
    shown: dict[str, list[str]] = {}
    for n in sorted(pictures):
        one = folded(given[n].name, unique(pictures[n], suffix), first[given[n].group] == n)
        shown.setdefault(given[n].group, []).append(one)
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
        yield _grid(trace, array, "who touches what")


def _grid(trace: Trace, array: TracedArray, what: str, **how: Any) -> Figure:
    """Return an array as a grid; ``how`` it is coloured."""
    small = math.prod(array.shape) <= FEW
    given = "".join(f', {name}="{value}"' for name, value in how.items())
    call = f"trace.grid({_named_in_call(trace, array)}{given})"
    draw = partial(grid, trace, array.number, tooltips=small, **how)
    turn = SMALL if small else LARGE_SHARED if array.scope == "shared" else LARGE
    return Figure("arrays", f"{_label(trace, array)}: {what}", call, turn, draw)


def _named_in_call(trace: Trace, array: TracedArray) -> str:
    return f'"{array.name}"' if len(trace.named(array.name)) == 1 else str(array.number)


def _label(trace: Trace, array: TracedArray) -> str:
    same = [a for a in trace.arrays if a.name == array.name]
    return array.name if len(same) == 1 else f"{array.name} ({array.scope}, number {array.number})"


def _lines(trace: Trace, found: Numbers) -> Iterator[Figure]:
    """Yield lines that go to memory, those worth a look and the costliest, in the order in which they stand."""
    advised = _advised(trace, found)
    ways: list[tuple[str, Callable[..., Picture], Callable[[LineNumbers], int]]] = [
        ("sectors", sectors, lambda one: one.traffic.sectors),
        ("banks", banks, lambda one: one.banks.wavefronts),
    ]
    for what, draw, cost in ways:
        for one in _costliest(found, cost, advised):
            turn = ADVISED if (one.file, one.line) in advised else OTHER_LINES
            where = one.line if one.file == trace.file else (Path(one.file).name, one.line)
            picture = partial(draw, trace, (one.file, one.line))
            yield Figure("lines", _named(trace, one, what), f"trace.{what}({where})", turn, picture)


def _advised(trace: Trace, found: Numbers) -> set[tuple[str, int]]:
    """Return the lines that go to memory and are worth a look: the first ones of each hint."""
    places = []
    for hint in hints(trace, found):
        own = [(hint.file, line) for line in hint.lines]
        places += [p for p in own if p in found.lines and _goes_to_memory(found.lines[p])][:OF_HINT]
    return set(places)


def _goes_to_memory(one: LineNumbers) -> bool:
    return bool(one.traffic.sectors or one.banks.wavefronts)


def _named(trace: Trace, one: LineNumbers, what: str) -> str:
    """Return the name of a picture of a line: what of memory it shows, the line's number and its source."""
    code = trace.source_line(one.line, one.file).strip()
    return f"{what}, {line_name(trace, one)}: {code if len(code) <= 70 else code[:69] + '…'}"


def _costliest(found: Numbers, cost: Callable[[LineNumbers], int], advised: set[tuple[str, int]]) -> list[LineNumbers]:
    costing = {place: one for place, one in found.lines.items() if cost(one)}
    chosen = {*sorted(costing, key=lambda place: -cost(costing[place]))[:LINES], *advised}
    return [one for place, one in costing.items() if place in chosen]


def _times(trace: Trace) -> Iterator[Figure]:
    if len(trace.visits):
        draw = partial(timeline, trace)
        yield Figure("time", "the warps of a block over time", "trace.timeline()", TIMELINE, draw)


def _more(trace: Trace, found: Numbers) -> Iterator[Figure]:
    """Yield how an array fills, whose block writes what, and how often what is loaded again is loaded."""
    numbered = dict(enumerate(found.arrays))
    written = [n for n, a in numbered.items() if a.stores + a.atomics and a.scope in ("shared", "global")]
    for number in sorted(written, key=lambda n: (numbered[n].scope != "shared", n))[:1]:
        array = trace.arrays[number]
        name, call = f"animation of {_label(trace, array)}", f"trace.animation({_named_in_call(trace, array)})"
        turn = ANIMATION if math.prod(array.shape) <= FEW else LARGE_ANIMATION
        yield Figure("time", name, call, turn, partial(animation, trace, number))
    if len(trace.blocks) > 1:
        for number in [n for n in written if numbered[n].scope == "global"][:1]:
            yield _grid(trace, trace.arrays[number], "which block touches what", by="block")
    often = [n for n, a in numbered.items() if a.loads_per_element > 1.5 and a.scope == "global"]
    for number in often[:ARRAYS]:
        yield _grid(trace, trace.arrays[number], "how often each element is touched", by="count")
