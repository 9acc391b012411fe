"""What the warps of a block do over time: statements in the order of the program, and the barriers where they wait."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nanoeuler.console import plural
from nanoeuler.errors import UserError
from nanoeuler.simt.launch import WARP_SIZE
from nanoeuler.simt.traced.pictures.choice import Index, block_number
from nanoeuler.simt.traced.pictures.drawing import breadth, head, number, tag, text, tooltip
from nanoeuler.simt.traced.pictures.legend import legend
from nanoeuler.simt.traced.pictures.moments import Moments, Stop, moments
from nanoeuler.simt.traced.pictures.picture import Picture, picture
from nanoeuler.simt.traced.pictures.wording import line_name, position, ranges
from nanoeuler.simt.traced.result import Trace

WIDTH, LEFT, RIGHT = 860.0, 76.0, 128.0  # pixels: of time, of what stands on its left and right
NARROWEST = 560.0  # pixels of the whole, for the words
WIDEST = 14.0  # pixels of a moment
MARK = 12.0  # pixels that a barrier takes, less if there are many
BARS = 1500  # that are drawn at most: moments are put together until they are fewer
WARP_ROW, THREAD_ROW = 24.0, 15.0  # heights


def timeline(trace: Trace, block: Index | None = None) -> Picture:
    """Draw what the warps of a block do over time; thread by thread where the block has 32 threads or less.

    Time runs in statements: each is drawn equally long, and the warps side by side; a GPU's clock runs otherwise. A bar
    is as high as the share of the warp's lanes that run the statement. A warp that is done waits at the barrier for the
    others. What waits for ever, as the other threads never come, is marked.

    Args:
        trace: what happened.
        block: index or number of the block; None: the first that was traced.

    Raises:
        UserError: the block was not traced, or nothing of it was recorded.
    """
    chosen = block_number(trace, block)
    chosen = trace.blocks[0] if chosen is None else chosen
    found, stops = moments(trace, chosen)
    if not len(found.warp):
        raise UserError(f"no thread of block {position(chosen, trace.launch.grid)} was recorded: choose other warps=")
    rows = _rows(trace, found, stops)
    scale = _scale(found, rows, stops)
    width = max(LEFT + float(scale.ends[-1]) + RIGHT, NARROWEST)
    threads = trace.launch.block_threads
    title = f"Block {position(chosen, trace.launch.grid)} of {trace.kernel} over time"
    told = [f"{plural(threads, 'thread')} in {plural(-(-threads // WARP_SIZE), 'warp')}{_recorded(trace)}"]
    told += ["Time runs in statements, each drawn equally long. A bar is as high as the share of lanes that run."]
    top, y = head(title, told, width)
    y += 16
    tall = THREAD_ROW if rows[0].lane is not None else WARP_ROW
    body = [top, *_barriers(trace, stops, scale, y, tall * len(rows)), *_column_heads(scale, rows, y)]
    for n, row in enumerate(rows):
        body.append(f'<g transform="translate({number(LEFT)} {number(y + n * tall)})">')
        said, look = _sum(row)
        body.append(text(scale.ends[-1] + 10, tall / 2 + 1.5, said, class_=look, font_size=11))
        body += [*_bars(found, row, scale, tall - 5), *_marks(trace, row, scale, tall - 5), "</g>"]
    key, end = legend(y + tall * len(rows) + 12, width, _meanings(stops))
    return picture(title, _description(rows, stops), width, end, [*body, key])


def _recorded(trace: Trace) -> str:
    """Return what is missing of a trace that is a part."""
    warps = "" if trace.warps is None else f" · recorded: warps {ranges(trace.warps)}"
    return warps + ("" if trace.lines is None else f" · barriers on lines {ranges(trace.lines)} only")


@dataclass(frozen=True)
class Row:
    """What a row shows: a warp, or one ``lane`` of it.

    ``moments`` are the numbers of the warp's moments, ``share`` (moments,) the share of the row's lanes that run each.
    """

    name: str
    warp: int
    lane: int | None
    moments: np.ndarray
    share: np.ndarray
    stops: list[Stop]


def _rows(trace: Trace, found: Moments, stops: list[Stop]) -> list[Row]:
    threads, made = trace.launch.block_threads, []
    for warp in np.unique(found.warp).tolist():
        mine = np.flatnonzero(found.warp == warp)
        there = min(WARP_SIZE, threads - warp * WARP_SIZE)
        of_warp = [s for s in stops if s.warp == warp]
        if threads > WARP_SIZE:
            made.append(Row(f"warp {warp}", warp, None, mine, found.lanes[mine].sum(1) / there, of_warp))
            continue
        for lane in range(there):
            name = f"thread {position(lane, trace.launch.block)}"
            own = [s for s in of_warp if lane in s.lanes]
            made.append(Row(name, warp, lane, mine, found.lanes[mine, lane].astype(np.float64), own))
    return made


@dataclass(frozen=True)
class Scale:
    """Where phases lie: (phases,) their left and right edges in pixels, the latter behind the barrier.

    ``unit`` is the width of a moment, ``mark`` that of a barrier; ``step`` moments are put together in a bar.
    """

    starts: np.ndarray
    ends: np.ndarray
    unit: float
    mark: float
    step: int


def _scale(found: Moments, rows: list[Row], stops: list[Stop]) -> Scale:
    last = max([int(found.phase.max()), *(s.phase for s in stops)])
    lengths = np.zeros(last + 1)
    np.maximum.at(lengths, found.phase, found.place + 1.0)
    barriers = np.isin(np.arange(last + 1), [s.phase for s in stops if s.barrier])
    mark = min(MARK, WIDTH / 3 / max(1, int(barriers.sum())))
    marks = barriers * mark
    unit = min(WIDEST, (WIDTH - marks.sum()) / lengths.sum())
    ends = np.cumsum(lengths * unit + marks)
    return Scale(ends - lengths * unit - marks, ends, unit, mark, _step(found, rows))


def _barriers(trace: Trace, stops: list[Stop], scale: Scale, y: float, height: float) -> Iterator[str]:
    """Yield the barriers that the block passed: lines through all rows, with the lines of source above."""
    by_phase: dict[int, list[Stop]] = {}
    for stop in stops:
        if stop.barrier and stop.passed:
            by_phase.setdefault(stop.phase, []).append(stop)
    free = 0.0
    for phase, here in sorted(by_phase.items()):
        x = LEFT + float(scale.ends[phase]) - scale.mark / 2
        name = line_name(trace, trace.instructions[here[0].instruction])
        told = f"{here[0].operation} on {name}: passed by {plural(sum(len(s.lanes) for s in here), 'thread')}"
        line = tag("path", tooltip(told), d=f"M{number(x)} {number(y - 3)}v{number(height + 4)}", class_="n-line")
        yield tag("g", line, stroke_width=min(2.5, scale.mark / 2), data_barrier=phase, data_line=_line(trace, here[0]))
        if x - breadth(name, 10) / 2 > free:
            yield text(x, y - 7, name, class_="n-dim", font_size=10, text_anchor="middle")
            free = x + breadth(name, 10) / 2 + 4


def _line(trace: Trace, stop: Stop) -> int:
    return trace.instructions[stop.instruction].line


def _column_heads(scale: Scale, rows: list[Row], y: float) -> Iterator[str]:
    x = LEFT + float(scale.ends[-1]) + 10
    what = "statements" if rows[0].lane is not None else "statements · busy lanes"
    yield text(x, y - 7, what, class_="n-dim", font_size=10)


def _parts(found: Moments, row: Row) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield each phase in which a row has moments: its number, the moments and their shares."""
    phases = found.phase[row.moments]
    for phase in np.unique(phases).tolist():
        yield phase, row.moments[phases == phase], row.share[phases == phase]


def _runs(share: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return bars for moments with these shares, ``step`` of them put together: first and last, and their share."""
    starts = np.arange(0, len(share), step)
    means = np.add.reduceat(share, starts) / np.diff(starts, append=len(share))
    first = np.flatnonzero(np.diff(means, prepend=-1.0))
    return starts[first], np.append(starts[first][1:], len(share)), means[first]


def _step(found: Moments, rows: list[Row]) -> int:
    """Return how many moments are put together so that not too many bars are drawn: 1, 2, 4, ..."""
    shares = [share for row in rows for _, _, share in _parts(found, row)]
    step = 1
    while sum(len(_runs(share, step)[0]) for share in shares) > BARS and step < len(found.warp):
        step *= 2
    return step


def _bars(found: Moments, row: Row, scale: Scale, high: float) -> Iterator[str]:
    """Yield what a row does: bars as high as the share of lanes that run, over a track that is as high as all."""
    yield text(-8, high / 2 + 4, row.name, class_="n-ink", font_size=11, text_anchor="end")
    for phase, mine, share in _parts(found, row):
        marked = [s.place for s in row.stops if s.phase == phase and not (s.barrier and s.passed)]
        left, wide = float(scale.starts[phase]), len(share) * scale.unit
        yield tag("rect", x=left, y=0, width=wide, height=high, class_="n-idle")
        for start, end, mean in zip(*_runs(share, scale.step), strict=True):
            if mean > 0:
                x, width = left + float(start) * scale.unit, float(end - start) * scale.unit
                named = not any(start <= place < end for place in marked)  # no words under a mark
                yield _bar(found, row, mine[start:end], float(mean), x, width, high, named)
        waits = float(scale.ends[phase]) - scale.mark - left - wide
        if waits > 0.5 and any(s.barrier and s.passed and s.phase == phase for s in row.stops):
            line = f"M{number(left + wide)} {number(high / 2)}h{number(waits)}"
            told = tooltip(f"{row.name} waits at the barrier for the others")
            yield tag("path", told, d=line, class_="n-rule", stroke_width=2, stroke_dasharray="2 3", data_waits=phase)


def _bar(
    found: Moments, row: Row, mine: np.ndarray, mean: float, x: float, width: float, high: float, named: bool
) -> str:
    """Return one bar, with its lines of source on it if it is ``named`` and there is room."""
    lines = f"line{'s' * (len(np.unique(found.line[mine])) > 1)} {ranges(found.line[mine])}"
    active = np.flatnonzero(found.lanes[mine].any(0))
    who = f"lanes {ranges(active)}" if row.lane is None else row.name
    told = f"{row.name}, {lines}\n{plural(len(mine), 'statement')}, run by {who}"
    tall = max(1.5, mean * (high - 2))
    box = tag(
        *("rect", tooltip(told)),
        **{"x": x, "y": high - 1 - tall, "width": max(width - 0.5, 0.5), "height": tall},
        **{"class": "n-mark", "data-warp": row.warp, "data-moments": len(mine), "data-share": mean},
    )
    if not named or width < breadth(lines, 10) + 6 or tall < 12:
        return box
    return box + text(x + width / 2, high / 2 + 3.5, lines, class_="n-on", font_size=10, text_anchor="middle")


GLYPHS = {  # of warp operations, around their centre
    "shfl": "M0-4L4 0L0 4L-4 0z",
    "syncwarp": "M-1.2-4h2.4v8h-2.4z",
    "vote": "M0-4L4 3.4H-4z",
}
VAIN = "M-4-4L4 4M4-4L-4 4"


def _glyph(operation: str) -> str:
    return "shfl" if operation.startswith("shfl") else "syncwarp" if operation == "syncwarp" else "vote"


def _marks(trace: Trace, row: Row, scale: Scale, high: float) -> Iterator[str]:
    """Yield a row's warp operations, and where it waits in vain."""
    before = -1e9
    for stop in row.stops:
        if stop.barrier and stop.passed:
            continue
        x = float(scale.starts[stop.phase]) + (stop.place + 0.75) * scale.unit
        who = f"lanes {ranges(stop.lanes)}" if row.lane is None else row.name
        where = f"{stop.operation} on {line_name(trace, trace.instructions[stop.instruction])}"
        look = {"data-operation": stop.operation, "data-lanes": len(stop.lanes), "data-passed": int(stop.passed)}
        look["transform"] = f"translate({number(x)} {number(high / 2)})"
        if not stop.passed:
            told = tooltip(f"{who}: {where}, where the others never come")
            cross = tag("path", d=VAIN, class_="n-fault", stroke_width=2.5)
            yield tag("g", told, tag("path", d=VAIN, class_="n-cut", stroke_width=6), cross, **look)
        elif x > before + 1:
            yield tag("path", tooltip(f"{who}: {where}"), d=GLYPHS[_glyph(stop.operation)], class_="n-op n-cut", **look)
            before = x


def _sum(row: Row) -> tuple[str, str]:
    """Return what stands at the right of a row: how much it runs, or that it waits for ever; and the class of that."""
    vain = [stop for stop in row.stops if not stop.passed]
    if vain:
        count = sum(len(stop.lanes) for stop in vain)
        return "waits for ever" if row.lane is not None else f"{plural(count, 'lane')} for ever", "n-warn n-bold"
    if row.lane is not None:
        return f"{int(row.share.sum()):,} of {len(row.share):,}", "n-dim"
    return f"{len(row.share):,} · {row.share.mean():.0%}", "n-dim"


def _meanings(stops: list[Stop]) -> list[tuple[str, str, str]]:
    """Return what is what in this picture."""
    made = [("n-mark", "", "lanes that run"), ("n-idle", "", "lanes of the warp that are idle meanwhile")]
    if any(s.barrier and s.passed for s in stops):
        made.append((tag("path", d="M7-1v16", class_="n-line", stroke_width=2.5), "", "barrier"))
        line = tag("path", d="M0 7h14", class_="n-rule", stroke_width=2, stroke_dasharray="2 3")
        made.append((line, "", "waits at it for the others"))
    names = {"shfl": "shuffle", "syncwarp": "syncwarp", "vote": "vote or match"}
    for glyph in sorted({_glyph(s.operation) for s in stops if not s.barrier}):
        shape = tag("path", d=GLYPHS[glyph], class_="n-op", transform="translate(7 7)")
        made.append((shape, "", names[glyph]))
    if not all(s.passed for s in stops):
        cross = tag("path", d=VAIN, class_="n-fault", stroke_width=2.5, transform="translate(7 7)")
        made.append((cross, "", "waits for ever: the others never come"))
    return made


def _description(rows: list[Row], stops: list[Stop]) -> str:
    """Return what the picture shows, for those who cannot see it."""
    barriers = len({s.phase for s in stops if s.barrier and s.passed})
    parts = [
        f"{row.name}: {plural(len(row.share), 'statement')}, {row.share.mean():.0%} of its lanes busy" for row in rows
    ]
    vain = sum(len(s.lanes) for s in stops if not s.passed)
    end = f" {plural(vain, 'thread')} wait for ever." if vain else ""
    return f"{plural(barriers, 'barrier')}. {'; '.join(parts)}.{end}"
