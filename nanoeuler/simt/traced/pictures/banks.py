"""The words of shared memory that a warp's lanes want, in the 32 banks that hold them.

A bank gives one word at a time, to all lanes that want it. The rule, and where it stands, is in :mod:`..transactions`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nanoeuler.console import plural
from nanoeuler.simt.traced.pictures import lanes
from nanoeuler.simt.traced.pictures.choice import Index, Line, WarpRequest, warp_requests
from nanoeuler.simt.traced.pictures.colours import SEVERAL, ink_on
from nanoeuler.simt.traced.pictures.drawing import head, number, shortened, tag, text, tooltip
from nanoeuler.simt.traced.pictures.legend import legend
from nanoeuler.simt.traced.pictures.picture import Picture, picture
from nanoeuler.simt.traced.pictures.wording import element, line_name, ranges, source
from nanoeuler.simt.traced.recorder import ATOMIC, WRITE
from nanoeuler.simt.traced.result import Trace
from nanoeuler.simt.traced.transactions import BANKS, WORD, collisions, wavefronts

LEFT, ROW, SKIP = 110.0, 20.0, 7.0  # pixels: for the names of rows, the height of a row, and of what is left out
MEANINGS = (
    (lanes.FILLS[20], "", "word that a lane wants"),
    (SEVERAL, "", "×n: that n lanes want"),
    ("n-soft n-fault", "", "bank with several words to give, one after the other"),
)
ATOMICS = (
    (lanes.FILLS[20], "", "word that a lane updates"),
    (SEVERAL, "", "×n: that n lanes update, one after the other"),
    ("n-soft n-fault", "", "bank with several turns"),
)


def banks(
    trace: Trace,
    line: Line,
    *,
    warp: int | None = None,
    block: Index | None = None,
    nth: int = 0,
    array: str | int | None = None,
) -> Picture:
    """Draw which words of shared memory the lanes of one warp want on a line, bank by bank, and what that costs.

    Each access on the line has a part of its own; each half or quarter of the warp too, where they go one after the
    other. An array is taken to begin in bank 0; were it another one, all would be shifted alike.

    Args:
        trace: what happened.
        line: number of a line of the kernel's file; (file, line) in another.
        warp: number of the warp in its block; None: the first that comes there.
        block: index or number of its block; None: the first from which a warp comes there.
        nth: the how manieth time that the warp comes there, from 0.
        array: only accesses to this array.

    Raises:
        UserError: the line has no access to shared memory, or not by this warp, or not so often.
    """
    requests = warp_requests(trace, line, "shared", warp=warp, block=block, nth=nth, array=array)
    instruction = requests[0].instruction
    title = f"The banks of shared memory on {line_name(trace, instruction)}"
    width = LEFT + lanes.WIDTH
    top, y = head(title, [lanes.subject(trace, requests[0])], width, source(trace, instruction))
    body = [top]
    for request in requests:
        drawn, end = _request(trace, request)
        body.append(f'<g transform="translate({number(LEFT)} {number(y)})">{drawn}</g>')
        y += end + 20
    atomics = [request.kind == ATOMIC for request in requests]
    entries = dict.fromkeys((*(() if all(atomics) else MEANINGS), *(ATOMICS if any(atomics) else ())))
    key, end = legend(y, width, list(entries))
    said = " ".join(f"The warp {lanes.heading(request)}: {cost(request)}." for request in requests)
    return picture(title, said, width, end, [*body, key])


def cost(request: WarpRequest) -> str:
    """Return what a request costs, in words."""
    one, atomic = np.zeros_like(request.lanes), np.full(len(request.lanes), request.kind == ATOMIC)
    turns, least = (int(n[0]) for n in wavefronts(one, request.lanes, request.addresses, request.sizes, atomic, 1))
    passes = list(_passes(request))
    several = any(len(who) > 1 for p in passes for who in p.lanes)
    if turns == least:
        told = f"{plural(turns, 'wavefront')}, no bank conflict"
    else:
        told = f"{plural(turns, 'wavefront')} where {least} would do: "
        worst = max(int(p.words_of_bank.max()) for p in passes)
        conflict = f"a bank conflict, {worst} words in the worst bank"
        told += f"atomics take turns{_waiting(request)}" if request.kind == ATOMIC else conflict
    if several and request.kind != ATOMIC:
        written = request.kind == WRITE
        told += "; of lanes that write one word one wins" if written else "; a word goes to all who read it (broadcast)"
    return told


def _waiting(request: WarpRequest) -> str:
    """Return how many lanes of an atomic wait for another one that has the same address."""
    count = int(collisions(np.zeros_like(request.lanes), request.addresses, 1)[0])
    return f", {plural(count, 'lane')} wait{'s' * (count == 1)} for another at the same address" if count else ""


@dataclass(frozen=True)
class Pass:
    """What lanes want that go together: all of a warp, a half or a quarter.

    Attributes:
        words: (words,) the numbers of the words that they want, each once, rising; word n is in bank n % 32.
        lanes: for each word who wants it.
        words_of_bank: (32,) how many words each bank has to give; an atomic's once for each lane.
    """

    words: list[int]
    lanes: list[np.ndarray]
    words_of_bank: np.ndarray


def _passes(request: WarpRequest) -> Iterator[Pass]:
    """Yield which lanes go together, in turn: 32 with 4 bytes or less each, 16 with 8, 8 with 16."""
    turns = request.lanes // np.where(request.sizes <= WORD, 32, np.where(request.sizes <= 2 * WORD, 16, 8))
    for turn in np.unique(turns):
        inside = turns == turn
        columns = (request.lanes, request.addresses // WORD, (request.addresses + request.sizes - 1) // WORD)
        wanted: dict[int, list[int]] = {}
        for lane, first, last in zip(*(column[inside].tolist() for column in columns), strict=True):
            for word in range(first, last + 1):
                wanted.setdefault(word, []).append(lane)
        words = sorted(wanted)
        times = [len(wanted[word]) if request.kind == ATOMIC else 1 for word in words]
        given = np.bincount(np.array(words) % BANKS, times, BANKS).astype(np.int64)
        yield Pass(words, [np.unique(wanted[word]) for word in words], given)


def _request(trace: Trace, request: WarpRequest) -> tuple[str, float]:
    """Return the drawing of one request, and its height."""
    made = [
        text(-LEFT, 12, lanes.heading(request), class_="n-code n-bold"),
        text(-LEFT, 29, cost(request), class_="n-dim"),
    ]
    made += [_name("lane", 53), *lanes.lane_row(trace, request, 38)]
    y = 38 + lanes.HIGH + 12
    passes = list(_passes(request))
    for one in passes:
        together = "" if len(passes) == 1 else f"lanes {ranges(np.concatenate(one.lanes))}: "
        given = "turns" if request.kind == ATOMIC else "words"
        made += [_name(f"{together}bank", y + 11), _name(given, y + 27), *_bank_heads(request, one, y)]
        y += 34
        rows = sorted({word // BANKS for word in one.words})
        for row, before in zip(rows, [rows[0], *rows], strict=False):
            y += SKIP if row > before + 1 else 0.0
            made += _words(trace, request, one, row, y)
            y += ROW
        y += 10
    return "".join(made), y - 10


def _name(name: str, y: float) -> str:
    """Return what stands at the left of a row."""
    return text(-8, y, name, class_="n-dim", font_size=11, text_anchor="end")


def _bank_heads(request: WarpRequest, one: Pass, y: float) -> Iterator[str]:
    """Yield the banks' numbers, and how many words each has to give, or of an atomic how many turns it takes."""
    different = np.bincount(np.array(one.words) % BANKS, minlength=BANKS)
    for bank, count in enumerate(one.words_of_bank.tolist()):
        x = bank * lanes.SIDE
        yield text(x + lanes.SIDE / 2, y + 11, bank, class_="n-dim", font_size=10, text_anchor="middle")
        look = "n-soft n-fault" if count > 1 else "n-empty n-hair"
        told = f"bank {bank} has {plural(count, 'word')} to give" + ", one after the other" * (count > 1)
        if request.kind == ATOMIC:
            told = f"bank {bank}: {plural(count, 'turn')}, to update {plural(int(different[bank]), 'word')}"
        yield tag(
            *("rect", tooltip(told)),
            **{"x": x + 1, "y": y + 15, "width": lanes.SIDE - 2, "height": 15, "rx": 3, "class": look},
            **{"stroke-width": 2 if count > 1 else 1, "data-bank": bank, "data-words": count},
        )
        if count:
            weight = "n-warn n-bold" if count > 1 else "n-dim"
            yield text(x + lanes.SIDE / 2, y + 26.5, count, class_=weight, font_size=10, text_anchor="middle")


def _words(trace: Trace, request: WarpRequest, one: Pass, row: int, y: float) -> Iterator[str]:
    """Yield the 32 words of a row, those that lanes want in colour, behind the name of the first element wanted."""
    wanted = dict(zip(one.words, one.lanes, strict=True))
    first = _first_element(trace, request, one, row)
    name = shortened(first, LEFT - 10, 11)
    yield tag("g", tooltip(first), text(-8, y + 14, name, class_="n-ink", font_size=11, text_anchor="end"))
    for bank in range(BANKS):
        x, who = bank * lanes.SIDE, wanted.get(row * BANKS + bank)
        fill = None if who is None else lanes.colour_of(who)
        box = {"x": x + 0.5, "y": y + 0.5, "width": lanes.SIDE - 1, "height": ROW - 1, "fill": fill}
        if who is None:
            yield tag("rect", **box, class_="n-empty n-hair")
            continue
        told = f"a word of bank {bank}, for lane{'s' * (len(who) > 1)} {ranges(who)}"
        if request.kind == ATOMIC and len(who) > 1:
            told += f"\none after the other: {plural(len(who) - 1, 'lane')} wait{'s' * (len(who) == 2)}"
        yield tag("rect", tooltip(told), **box, **{"data-word-bank": bank, "data-lanes": ",".join(map(str, who))})
        look = {"font_size": 11, "fill": ink_on(fill or ""), "text_anchor": "middle"}
        yield text(x + lanes.SIDE / 2, y + 14, lanes.name_of(who), **look)


def _first_element(trace: Trace, request: WarpRequest, one: Pass, row: int) -> str:
    """Return the name of the first element that lanes of a pass want in a row of words."""
    low, high = row * BANKS * WORD, (row + 1) * BANKS * WORD
    taking_part = np.isin(request.lanes, np.concatenate(one.lanes))
    inside = np.flatnonzero((request.addresses + request.sizes > low) & (request.addresses < high) & taking_part)
    record = trace.accesses[request.accesses[inside[request.addresses[inside].argmin()]]]
    array = trace.arrays[record["array"]]
    return element(array, array.index(record["offset"][None])[0].tolist())
