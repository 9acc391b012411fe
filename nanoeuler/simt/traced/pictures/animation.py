"""An array while the kernel runs: the grid step by step, again and again, with a rest at the end.

A step is a line of source in one execution of it: the threads that come there, of all warps and blocks that are shown,
side by side. A GPU's warps run each at its own pace; this is the order of the program.

The SVG moves by CSS alone. Where that is not wanted (``prefers-reduced-motion``), on paper, and in programs that know
no animation, it shows the end: who has touched what.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nanoeuler.console import plural
from nanoeuler.errors import UserError, nearest
from nanoeuler.simt.traced.pictures.cells import Cells
from nanoeuler.simt.traced.pictures.choice import Index, Line
from nanoeuler.simt.traced.pictures.drawing import MONO, ROOT, head, number, shortened, tag, text
from nanoeuler.simt.traced.pictures.grid import BY, NARROWEST
from nanoeuler.simt.traced.pictures.legend import legend
from nanoeuler.simt.traced.pictures.picture import Picture, picture
from nanoeuler.simt.traced.pictures.region import named
from nanoeuler.simt.traced.pictures.squares import HALF, MANY, hatched, labels, meanings, outlines, squares
from nanoeuler.simt.traced.pictures.users import By, Users, fill_of, name_of, patterns, users
from nanoeuler.simt.traced.pictures.view import View, view
from nanoeuler.simt.traced.pictures.wording import DONE, line_name, source
from nanoeuler.simt.traced.recorder import Instruction
from nanoeuler.simt.traced.result import Trace

FRAMES = 60  # at most
ROOM = 900_000  # characters of all frames
LONGEST, SLOWEST, REST = 40.0, 1.2, 3.0  # seconds: of all frames, of one, and of the rest at the end


def animation(
    trace: Trace,
    array: str | int,
    *,
    by: By = "thread",
    kind: str | None = None,
    line: Line | None = None,
    block: Index | None = None,
    part: Any = None,
) -> Picture:
    """Draw an array step by step: who touches which elements at each line of source that comes to it.

    Steps are put together where there are more than 60, or too many elements in them; the words above say so. While
    the pointer rests on the picture it stands still.

    Args:
        trace: what happened.
        array: its name, or number where several have the name.
        by: whose colours: "thread" (within its block), "lane" (within its warp), "warp" (within its block) or "block".
        kind: only these accesses: "read", "write" or "atomic".
        line: only those on this line of the source; (file, line) in another file than the kernel's.
        block: only those of this block. None: all, but of a shared array the first block that touches it.
        part: what of the array is drawn, as in :func:`grid`.

    Raises:
        UserError: there is no such array, line or block, nothing touches the array, or it is too large to be drawn.
    """
    colours = [name for name in BY if name != "count"]
    if by not in colours:
        raise UserError(f"by={by!r}{nearest(str(by), colours)}: use {', '.join(colours)}")
    seen = view(trace, array, kind=kind, line=line, block=block, part=part, blocks=by == "block")
    cells = seen.cells
    if not len(seen.cell):
        raise UserError(f"nothing that was chosen touches {named(cells.array, cells.region)}: there is nothing to show")
    step, count = _steps(trace, seen)
    width = max(cells.width, NARROWEST)
    frames, moving = _fitting(trace, seen, by, step, width)
    told = [seen.subject]
    if len(frames) < count:
        told.append(f"{count:,} steps are too many to be shown one by one: they are put together in {len(frames)}.")
    top, y = head(f"{named(cells.array, cells.region)}, step by step", told, width)
    final = users(trace, cells, seen.cell, seen.access, by)
    end = "".join(_end(trace, cells, final, count, width))
    entries, ramp = meanings(trace, by, final)
    entries = [("n-soft n-hair", "", "touched in an earlier step"), *entries]
    key, bottom = legend(y + CAPTION + cells.height + 14, width, entries, ramp)
    body = [top, f'<g transform="translate(0 {number(y)})">', moving, end, "</g>", key]
    style = _style(len(frames), min(SLOWEST, LONGEST / len(frames)))
    title = f"{cells.array.name}, step by step"
    return picture(title, _description(trace, frames), width, bottom, body, style=style)


@dataclass(frozen=True)
class Frame:
    """Steps that are shown at once: ``first`` to ``last``, counted from 1, out of ``count``.

    ``instruction`` is where the first of them stands, ``threads`` is how many different threads take part.
    """

    first: int
    last: int
    count: int
    instruction: Instruction
    threads: int
    users: Users


def _fitting(trace: Trace, seen: View, by: By, step: np.ndarray, width: float) -> tuple[list[Frame], str]:
    """Return frames, and their drawing, that are not too many nor too large: without numbers, or put together."""
    count = int(step.max()) + 1
    together = -(-count // FRAMES)
    while True:
        frames = _frames(trace, seen, by, step, together)
        for numbered in (True, False):
            moving = "".join(_moving(trace, seen.cells, frames, width, numbered))
            if len(moving) <= ROOM or (together >= count and not numbered):
                return frames, moving
        together *= 2


def _frames(trace: Trace, seen: View, by: By, step: np.ndarray, together: int) -> list[Frame]:
    """Return what is shown one after the other, so many steps ``together``."""
    count = int(step.max()) + 1
    made = []
    for first in range(0, count, together):
        here = np.flatnonzero(step // together == first // together)
        records = trace.accesses[seen.access[here]]
        instruction = trace.instructions[records["instruction"][step[here].argmin()]]
        threads = len(np.unique(records["block"].astype(np.int64) << 32 | records["thread"]))
        found = users(trace, seen.cells, seen.cell[here], seen.access[here], by, seen.access)
        made.append(Frame(first + 1, min(first + together, count), count, instruction, threads, found))
    return made


def _steps(trace: Trace, seen: View) -> tuple[np.ndarray, int]:
    """Return the step of each touch, (touches,) int64 from 0, and how many there are."""
    _, first, which = np.unique(trace.ranks[seen.access], return_index=True, return_inverse=True)
    records = trace.accesses[seen.access[first]]
    places = [trace.instructions[n] for n in records["instruction"]]
    keys = [(int(e), i.file, i.line) for e, i in zip(records["execution"], places, strict=True)]
    new = np.array([a != b for a, b in zip(keys, [None, *keys[:-1]], strict=True)])
    steps = np.cumsum(new) - 1
    return steps[which.ravel()], int(steps[-1]) + 1


CAPTION = 54.0  # pixels of the words and the bar above the grid
DOWN = f'transform="translate(0 {number(CAPTION)})"'


def _moving(trace: Trace, cells: Cells, frames: list[Frame], width: float, numbered: bool) -> Iterator[str]:
    """Yield the empty elements, and over them what is seen of each frame, and after it."""
    empty = outlines(cells, range(len(cells)), class_="n-empty n-hair")
    yield tag("rect", x=0, y=38, width=width, height=4, rx=2, class_="n-idle")
    yield f"<g {DOWN}>{cells.frame}<g {HALF}>{empty}</g></g>"
    before = np.zeros(len(cells), np.int64)  # kinds of accesses in earlier steps, as in Users.kinds
    for n, frame in enumerate(frames):
        yield f'<g class="n-f n-f{n}" data-step="{frame.first}">{"".join(_words(trace, frame, width))}<g {DOWN}>'
        yield from _current(cells, frame.users, numbered)
        yield "</g></g>"
        after = before | frame.users.kinds
        left = "".join(_trail(cells, before, after))
        if left and n + 1 < len(frames):
            yield f'<g class="n-t n-t{n}" {DOWN}>{left}</g>'
        before = after


def _end(trace: Trace, cells: Cells, final: Users, count: int, width: float) -> Iterator[str]:
    """Yield what is seen at the end."""
    yield '<g class="n-z">'
    yield text(0, 12, f"After {plural(count, 'step')}: all who touch each element", class_="n-ink n-bold")
    yield f"{_bar(width)}<g {DOWN}>"
    yield from squares(trace, cells, final, many=len(cells) > MANY)
    yield "</g></g>"


def _words(trace: Trace, frame: Frame, width: float) -> Iterator[str]:
    """Yield what happens in a frame, the line of source, and a bar that grows."""
    several = frame.last > frame.first
    steps = f"Steps {frame.first:,}–{frame.last:,}" if several else f"Step {frame.first:,}"
    kinds = [done for bit, done in enumerate(DONE) if (frame.users.kinds & 1 << bit).any()]
    who = f"{' and '.join(kinds)} by {plural(frame.threads, 'thread')}"
    yield text(0, 12, f"{steps} of {frame.count:,} · {who}", class_="n-ink n-bold")
    code = source(trace, frame.instruction) + (" …" if several else "")
    yield text(0, 30, shortened(code, width, 12, MONO), class_="n-code")
    yield _bar(width * frame.last / frame.count)


def _bar(width: float) -> str:
    return tag("rect", x=0, y=38, width=width, height=4, rx=2, class_="n-mark")


def _current(cells: Cells, found: Users, numbered: bool) -> Iterator[str]:
    """Yield the elements that a frame touches: in colour, outlined, hatched if written."""
    fills = [fill_of(found, n) for n in range(len(cells))]
    by_fill: dict[str, list[int]] = {}
    for n in np.flatnonzero(found.several).tolist():
        by_fill.setdefault(fills[n], []).append(n)
    yield f'<g class="n-line" {HALF}>'
    yield from (outlines(cells, which, fill=fill) for fill, which in by_fill.items())
    yield "</g>"
    yield from hatched(cells, patterns(found, fills))
    if numbered:
        yield from labels(cells, [name_of(found, n) for n in range(len(cells))], fills)


def _trail(cells: Cells, before: np.ndarray, after: np.ndarray) -> Iterator[str]:
    """Yield what is left of a frame: elements that were touched for the first time, and written for the first time."""
    touched = np.flatnonzero((before == 0) & (after > 0)).tolist()
    if touched:
        yield f'<g class="n-soft n-hair" {HALF}>{outlines(cells, touched)}</g>'
    changed = np.flatnonzero((before & 6 == 0) & (after & 6 > 0)).tolist()
    yield from hatched(cells, {"trail": changed} if changed else {})


def _style(frames: int, seconds: float) -> str:
    """Return the rules by which the frames are seen one after the other: none of them without animation."""
    whole = frames * seconds + REST
    often = f"{whole:.3f}s step-end infinite"
    rules = [f".{ROOT} .n-f{{animation:{ROOT}-f {often}}}.{ROOT} .n-z{{animation:{ROOT}-z {often}}}"]
    rules += [f".{ROOT}:hover *{{animation-play-state:paused}}"]
    rules += [_keyframes("f", "visible", seconds / whole), _keyframes("z", "hidden", 1 - REST / whole)]
    for n in range(frames):
        rules.append(f".{ROOT} .n-f{n}{{animation-delay:{n * seconds:.3f}s}}")
        if n + 1 < frames:  # what is left of a frame is seen until the end
            rules.append(f".{ROOT} .n-t{n}{{animation:{ROOT}-t{n} {often} {(n + 1) * seconds:.3f}s}}")
            rules.append(_keyframes(f"t{n}", "visible", (frames - n - 1) * seconds / whole))
    still = f".{ROOT} .n-f,.{ROOT} .n-t{{visibility:hidden}}"
    return f"{still}@media screen and (prefers-reduced-motion:no-preference){{{''.join(rules)}}}"


def _keyframes(name: str, first: str, share: float) -> str:
    """Return keyframes that are ``first`` for a share of the time, and then the opposite."""
    then = "hidden" if first == "visible" else "visible"
    return f"@keyframes {ROOT}-{name}{{0%{{visibility:{first}}}{100 * share:.4f}%,100%{{visibility:{then}}}}}"


def _description(trace: Trace, frames: list[Frame]) -> str:
    """Return what the picture shows, for those who cannot see it."""
    lines = dict.fromkeys(line_name(trace, frame.instruction) for frame in frames)
    return f"{plural(frames[-1].count, 'step')} in {plural(len(frames), 'picture')}: {', '.join(lines)}."
