"""The addresses of a warp's lanes against the 32-byte sectors in which global memory is moved.

A request costs as many sectors as its lanes touch, in whatever order (:mod:`..transactions` has the rule and where it
stands). Four sectors that lie together are a cache line of 128 bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nanoeuler.console import plural
from nanoeuler.simt.traced.pictures import lanes
from nanoeuler.simt.traced.pictures.choice import Index, Line, WarpRequest, warp_requests
from nanoeuler.simt.traced.pictures.colours import SEVERAL, ink_on
from nanoeuler.simt.traced.pictures.drawing import breadth, head, number, tag, text, tooltip
from nanoeuler.simt.traced.pictures.legend import legend
from nanoeuler.simt.traced.pictures.picture import Picture, picture
from nanoeuler.simt.traced.pictures.wording import element, line_name, ranges, source
from nanoeuler.simt.traced.result import Trace
from nanoeuler.simt.traced.transactions import SECTOR, distinct_bytes, ideal_sectors, touched_sectors

CACHE_LINE = 128  # bytes
WIDEST = 7.0  # pixels of a byte: the 128 bytes of a single cache line are then as wide as the lanes above them
APART = 10.0  # pixels between cache lines that are not neighbours
LANES, STRIP, SECTORS, HEIGHT = 38.0, 120.0, 20.0, 200.0  # y of lanes and of bytes; heights of sectors and of a row
MEANINGS = (
    (lanes.FILLS[20], "", "bytes that a lane asks for"),
    (SEVERAL, "", "×n: that n lanes ask for"),
    ("n-soft n-edge", "", "sector of 32 bytes that is moved"),
    ("", "", "not asked for, not moved"),
)


def sectors(
    trace: Trace,
    line: Line,
    *,
    warp: int | None = None,
    block: Index | None = None,
    nth: int = 0,
    array: str | int | None = None,
) -> Picture:
    """Draw which bytes of global memory the lanes of one warp ask for on a line, and which sectors that takes.

    Each access on the line has a row: ``out[i] = a[i] + b[i]`` has three.

    Args:
        trace: what happened.
        line: number of a line of the kernel's file; (file, line) in another.
        warp: number of the warp in its block; None: the first that comes there.
        block: index or number of its block; None: the first from which a warp comes there.
        nth: the how manieth time that the warp comes there, from 0.
        array: only accesses to this array.

    Raises:
        UserError: the line has no access to global memory, or not by this warp, or not so often.
    """
    requests = warp_requests(trace, line, "global", warp=warp, block=block, nth=nth, array=array)
    instruction = requests[0].instruction
    title = f"What a warp asks of global memory on {line_name(trace, instruction)}"
    rows = [(request, laid_out(request)) for request in requests]
    width = max(lanes.WIDTH, *(memory.width for _, memory in rows))
    subject = f"{lanes.subject(trace, requests[0])} · bytes count from the start of an array's memory"
    top, y = head(title, [subject], width, source(trace, instruction))
    body = [top]
    for request, memory in rows:
        body += [f'<g transform="translate(0 {number(y)})">', *_row(trace, request, memory), "</g>"]
        y += HEIGHT
    key, end = legend(y, width, MEANINGS)
    said = " ".join(f"The warp {lanes.heading(request)}: {cost(request)}." for request in requests)
    return picture(title, said, width, end, [*body, key])


def touched(request: WarpRequest) -> np.ndarray:
    """Return the numbers of the sectors that a request touches, int64."""
    return touched_sectors(np.zeros_like(request.lanes), request.addresses, request.sizes)[1]


def cost(request: WarpRequest) -> str:
    """Return what a request moves, in words."""
    count = len(touched(request))
    asked = distinct_bytes(np.zeros_like(request.lanes), request.addresses, request.sizes, 1)
    best = int(ideal_sectors(asked)[0])
    least = "" if best == count else f"; {best} would do if the bytes lay together"
    moved = f"{plural(count, 'sector')}, {count * SECTOR:,} bytes moved"
    return f"{moved}, {asked[0]:,} asked for, {100 * asked[0] / (count * SECTOR):.3g} %{least}"


@dataclass(frozen=True)
class Memory:
    """Where bytes lie in the picture.

    Attributes:
        lines: (lines,) the numbers of the cache lines that the request touches.
        lefts: (lines,) their left edges, in pixels.
        firsts: (lines,) which entry of the request has the lowest address in each.
        byte: pixels of a byte.
    """

    lines: np.ndarray
    lefts: np.ndarray
    firsts: list[int]
    byte: float

    @property
    def width(self) -> float:
        """Of all lines, in pixels."""
        return float(self.lefts[-1]) + CACHE_LINE * self.byte

    def x(self, address: int) -> float:
        """Return the left edge of a byte."""
        line = int(np.searchsorted(self.lines, address // CACHE_LINE))
        return float(self.lefts[line]) + address % CACHE_LINE * self.byte


def laid_out(request: WarpRequest) -> Memory:
    """Return where the cache lines lie that a request touches: side by side, with gaps where others lie between."""
    lines = np.unique(touched(request) * SECTOR // CACHE_LINE)
    gaps = np.diff(lines, prepend=lines[:1]) > 1
    apart = min(APART, lanes.WIDTH / 3 / len(lines))
    byte = min(WIDEST, (lanes.WIDTH - apart * gaps.sum()) / (CACHE_LINE * len(lines)))
    ends = request.addresses + request.sizes
    firsts = [int(np.where(ends > line * CACHE_LINE, request.addresses, ends.max()).argmin()) for line in lines]
    return Memory(lines, np.arange(len(lines)) * CACHE_LINE * byte + np.cumsum(gaps * apart), firsts, byte)


def _row(trace: Trace, request: WarpRequest, memory: Memory) -> Iterator[str]:
    """Yield the drawing of one request: the lanes above, the bytes they ask for and the sectors below."""
    yield text(0, 12, lanes.heading(request), class_="n-code n-bold")
    yield text(0, 29, cost(request), class_="n-dim")
    yield from lanes.lane_row(trace, request, LANES)
    pieces = list(_pieces(request))
    for who, address, size in pieces:
        for lane in who:
            yield _thread((lane + 0.5) * lanes.SIDE, memory.x(address) + size * memory.byte / 2)
    end = -APART
    for line, left, first in zip(memory.lines.tolist(), memory.lefts.tolist(), memory.firsts, strict=True):
        yield from _cache_line(request, memory, line * CACHE_LINE, left, int(request.starts[first]))
        label = _label(trace, request, line * CACHE_LINE, first)
        if left >= end + APART:
            yield text(left, STRIP + lanes.HIGH + SECTORS + 15, label, class_="n-dim", font_size=10)
            end = left + breadth(label, 10)
    for who, address, size in pieces:
        yield _asked(request, memory, who, address, size)


def _thread(lane: float, byte: float) -> str:
    """Return the line that leads from a lane to its bytes."""
    start, end, middle = map(number, (LANES + lanes.HIGH, STRIP, (LANES + lanes.HIGH + STRIP) / 2))
    x, to = number(lane), number(byte)
    return tag("path", d=f"M{x} {start}C{x} {middle} {to} {middle} {to} {end}", class_="n-rule", fill="none")


def _pieces(request: WarpRequest) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield what is asked for within one cache line: the lanes that ask for just this, its address and size."""
    unique, which = np.unique(np.stack([request.addresses, request.sizes]), axis=1, return_inverse=True)
    for n, (address, size) in enumerate(unique.T.tolist()):
        while size > 0:
            here = min(size, CACHE_LINE - address % CACHE_LINE)
            yield request.lanes[which.ravel() == n], address, here
            address, size = address + here, size - here


def _asked(request: WarpRequest, memory: Memory, who: np.ndarray, address: int, size: int) -> str:
    """Return the bytes that some lanes ask for."""
    width, name, fill = max(size * memory.byte, 2.0), lanes.name_of(who), lanes.colour_of(who)
    told = f"{plural(size, 'byte')} for {'lanes' if len(who) > 1 else 'lane'} {ranges(who)}"
    x, first = memory.x(address), address - int(request.starts[request.lanes == who[0]][0])
    box = tag(
        *("rect", tooltip(told)),
        **{"x": x, "y": STRIP, "width": width, "height": lanes.HIGH, "fill": fill},
        class_="n-cut" if width >= 8 else None,
        **{"data-lanes": ",".join(map(str, who)), "data-byte": first, "data-size": size},
    )
    if width < 7 * len(name):
        return box
    return box + text(x + width / 2, STRIP + 15, name, font_size=11, fill=ink_on(fill), text_anchor="middle")


def _cache_line(request: WarpRequest, memory: Memory, start: int, left: float, base: int) -> Iterator[str]:
    """Yield one cache line: an empty strip for what is asked of it, and its sectors."""
    yield tag("rect", x=left, y=STRIP, width=CACHE_LINE * memory.byte, height=lanes.HIGH, class_="n-empty n-hair")
    moved = set(touched(request).tolist())
    for sector in range(start // SECTOR, (start + CACHE_LINE) // SECTOR):
        yield _sector(request, memory, sector, base, sector in moved)


def _label(trace: Trace, request: WarpRequest, start: int, first: int) -> str:
    """Return where a cache line begins, and the first element asked for in it."""
    record = trace.accesses[request.accesses[first]]
    array = trace.arrays[record["array"]]
    name = element(array, array.index(record["offset"][None])[0].tolist())
    return f"byte {start - request.starts[first]} · {name} …"


def _sector(request: WarpRequest, memory: Memory, sector: int, base: int, moved: bool) -> str:
    """Return one sector, and how much of it is asked for."""
    start = sector * SECTOR
    low, high = np.maximum(request.addresses, start), np.minimum(request.addresses + request.sizes, start + SECTOR)
    inside = low < high
    used = int(distinct_bytes(np.zeros(inside.sum(), np.int64), low[inside], (high - low)[inside], 1)[0])
    told = f"sector of bytes {start - base} to {start - base + SECTOR - 1}\n"
    told += f"moved; {used} of its {SECTOR} bytes are asked for" if moved else "not moved: nobody asks for a byte of it"
    x, y, width = memory.x(start) + 0.5, STRIP + lanes.HIGH + 3, max(SECTOR * memory.byte - 1, 0.5)
    box = tag(
        *("rect", tooltip(told)),
        **{"x": x, "y": y, "width": width, "height": SECTORS, "rx": min(3, width / 4)},
        class_="n-soft n-edge" if moved else "n-empty n-hair",
        stroke_dasharray=None if moved else "3 2",
        **{"data-sector": (start - base) // SECTOR, "data-moved": int(moved), "data-used": used},
    )
    if not moved or width < 48:
        return box
    return box + text(
        x + width / 2, y + 14, f"{used} of {SECTOR} B", font_size=10, class_="n-ink", text_anchor="middle"
    )
