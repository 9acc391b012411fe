"""A trace as a page of text: what ran, what is wrong, the source with its numbers, the sums, the roofline, advice."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from nanoeuler.console import plural
from nanoeuler.simt.launch import WARP_SIZE, coordinates
from nanoeuler.simt.traced.cards import Card, roofline
from nanoeuler.simt.traced.hints import hints
from nanoeuler.simt.traced.numbers import ArrayNumbers, LineNumbers, Numbers, Totals, Traffic
from nanoeuler.simt.traced.result import Trace

WIDTH = 120
LEGEND = (
    "times: how often a warp came to the line. lanes: active on average. sectors: of 32 bytes, for each warp "
    "instruction on global memory; 4 for float32 side by side. used: of the bytes moved. banks: how many times as long "
    "shared memory takes as without conflicts. again: of the loads from global memory, those of what the thread had "
    "loaded or stored, or another of its block had loaded. flop: floating-point operations of all threads."
)
COLUMNS = (
    ("line", 5),
    ("times", 7),
    ("lanes", 5),
    ("sectors", 7),
    ("used", 5),
    ("banks", 5),
    ("again", 5),
    ("flop", 7),
)


def report(
    trace: Trace, card: str | Card | None = None, *, note: str = "", width: int = WIDTH, legend: bool = True
) -> str:
    """Return the report of a trace; with the roofline of a card if one is named.

    Args:
        trace: what happened.
        card: the name of the card.
        note: a line to stand below the head.
        width: columns that the source may take with its numbers, 80 or more. The rest takes 120 at most.
        legend: whether it is said what the columns of numbers mean.

    Raises:
        UserError: there is no such card.
    """
    found = trace.numbers
    head = "\n".join(filter(None, (_head(trace), note)))
    listing = _listing(trace, found, width)
    parts = [head, _faults(trace), listing, "\n".join(textwrap.wrap(LEGEND, WIDTH)) if legend else ""]
    parts += [_totals(found), _array_table(found.arrays)]
    parts.append(_roofline(found, card))
    parts.append(_hints(trace, found))
    return "\n\n".join(part for part in parts if part)


def _head(trace: Trace) -> str:
    """Return what ran, and what of it was taken down."""
    launch = trace.launch
    where = f"{trace.kernel} ({Path(trace.file).name}:{trace.first_line})"
    warps = -(-launch.block_threads // WARP_SIZE)
    if len(trace.blocks) == launch.blocks:
        ran = f"all {launch.blocks} blocks" if launch.blocks > 1 else "its one block"
    else:
        shown = _few([str(coordinates(b, launch.grid)) for b in trace.blocks])
        ran = f"{plural(len(trace.blocks), 'block')} of {launch.blocks}: {shown}"
    if trace.warps is None or len(trace.warps) == warps:
        told = f"all {warps} warps of a block" if warps > 1 else "the one warp of a block"
    else:
        told = f"of the {warps} warps of a block only {_few([str(w) for w in sorted(trace.warps)])}"
    lines = [
        f"{where}, grid {launch.grid}, block {launch.block}",
        f"ran {ran}; recorded {told}: {plural(len(trace.accesses), 'access')}",
    ]
    if trace.lines is not None:
        lines.append(f"accesses and arithmetic only on {plural(len(trace.lines), 'line')}: sums are of these")
    return "\n".join(lines)


def _faults(trace: Trace) -> str:
    if not trace.faults:
        return ""
    head = f"!!! {plural(len(trace.faults), 'FAULT')}: what follows is what happened here, a GPU may do otherwise"
    return "\n".join(
        [head, *(line for fault in trace.faults for line in _wrapped(str(fault).expandtabs().splitlines()))]
    )


def _wrapped(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        yield from [line] if len(line) <= WIDTH else textwrap.wrap(line, WIDTH, subsequent_indent=indent)


# Source -------------------------------------------------------------------------------------------------------------


def _listing(trace: Trace, found: Numbers, width: int) -> str:
    """Return the kernel's lines, and those of the device functions that ran, each with its numbers."""
    lines = [" ".join(f"{name:>{size}}" for name, size in COLUMNS)]
    room = width - len(lines[0]) - 3
    for source in trace.source.everything():
        places = [(source.file, n) for n in source.lines]
        if source.function is not trace.function:
            if not any(place in found.lines for place in places):
                continue
            lines += ["", f"{source.name} ({Path(source.file).name}:{source.lines[0]})"]
        lines += _numbered(trace, found, places, room)
    return "\n".join(lines)


def _numbered(trace: Trace, found: Numbers, places: list[tuple[str, int]], room: int) -> Iterator[str]:
    """Yield lines of source, ``room`` characters of them, behind their numbers."""
    texts = [trace.source_line(line, file).expandtabs() for file, line in places]
    indent = min((len(text) - len(text.lstrip()) for text in texts if text.strip()), default=0)
    for place, text in zip(places, texts, strict=True):
        one = found.lines.get(place)
        cells = [str(place[1]), *(_cells(one) if one is not None else [""] * (len(COLUMNS) - 1))]
        row = " ".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True))
        shown = text[indent:]
        yield f"{row} | {shown if len(shown) <= room else shown[: room - 3] + '...'}".rstrip()


def _cells(one: LineNumbers) -> list[str]:
    traffic, banks, loads = one.traffic, one.banks, one.loads
    return [
        _short(one.executions) if one.executions else "",
        f"{one.lanes:.3g}" if one.executions else "",
        f"{traffic.sectors_per_request:.3g}" if traffic.requests else "",
        f"{traffic.efficiency:.0%}" if traffic.requests else "",
        f"{banks.ways:.3g}" if banks.requests else "",
        f"{loads.spared / loads.accesses:.0%}" if loads.spared else "",
        _short(one.flops) if one.flops else "",
    ]


# Sums ---------------------------------------------------------------------------------------------------------------


def _totals(found: Numbers) -> str:
    totals, banks, loads = found.totals, found.totals.banks, found.totals.loads
    rows = []
    for name, traffic in (("loads", loads), ("stores", totals.stores), ("atomics", totals.atomics)):
        if traffic.requests:
            rows.append((f"global {name}", _traffic(traffic)))
    if loads.spared:
        had = f"{loads.repeated:,} its thread had loaded, {loads.read_back:,} it had stored"
        rows.append(("loads again", f"of {loads.accesses:,}: {had}, {loads.repeated_in_block:,} its block had loaded"))
    if totals.traffic.requests:
        distinct = f"{metric_bytes(totals.bytes_distinct)} if caches were perfect"
        rows.append(
            ("moved", f"{metric_bytes(totals.bytes_moved)} in {plural(totals.traffic.sectors, 'sector')}; {distinct}")
        )
    if banks.requests:
        passes = f"{plural(banks.wavefronts, 'wavefront')}, {banks.conflicts:,} of them for bank conflicts"
        rows.append(("shared memory", f"{plural(banks.requests, 'warp instruction')}, {passes}"))
    rows.append(("arithmetic", _arithmetic(totals)))
    if totals.flops and totals.traffic.requests:
        perfect = f"{totals.intensity_distinct:.3g} if caches were perfect"
        rows.append(("intensity", f"{totals.intensity:.3g} FLOP/byte; {perfect}"))
    if totals.lanes_there:
        rows.append(("lanes active", f"{totals.lane_share:.0%} of those that there are, over all lines"))
    return "\n".join(["in total", *(f"  {name:<15} {text}" for name, text in rows)])


def _traffic(traffic: Traffic) -> str:
    each, used = f"{traffic.sectors_per_request:.3g} each", f"{traffic.efficiency:.0%} of the bytes used"
    text = f"{plural(traffic.requests, 'warp instruction')}, {plural(traffic.sectors, 'sector')} ({each}), {used}"
    return text + (f"; {traffic.collisions:,} wait for another lane" if traffic.collisions else "")


def _arithmetic(totals: Totals) -> str:
    parts = [f"{count:,} in {dtype}" for dtype, count in sorted(totals.flops_by_precision.items())]
    floating = ", ".join(parts) if parts else "none"
    return f"floating-point operations: {floating}; special functions: {totals.special:,}; integer: {totals.integer:,}"


def _array_table(arrays: list[ArrayNumbers]) -> str:
    """Return a table of the arrays that were touched."""
    rows: list[tuple[str, ...]] = [
        ("array", "scope", "shape", "dtype", "loads", "stores", "atomics", "elements", "loads/element")
    ]
    for one in arrays:
        if one.elements:
            dtype = "record" if one.dtype.names else str(one.dtype)
            counts = (one.loads, one.stores, one.atomics, one.elements)
            each = f"{one.loads_per_element:.3g}" if one.loads else ""
            rows.append((one.name, one.scope, _shape(one.shape), dtype, *(f"{c:,}" for c in counts), each))
    if len(rows) == 1:
        return ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        lines.append("  ".join(c.ljust(w) if n < 4 else c.rjust(w) for n, (c, w) in enumerate(cells)).rstrip())
    return "\n".join(lines)


def _roofline(found: Numbers, card: str | Card | None) -> str:
    if card is None:
        return ""
    if not found.totals.flops:
        return f"{roofline(found, card).card.name}: no roofline, for there are no floating-point operations"
    return str(roofline(found, card))


def _hints(trace: Trace, found: Numbers) -> str:
    lines = []
    for hint in hints(trace, found):
        where = hint.where if hint.file == trace.file else f"{hint.where} of {Path(hint.file).name}"
        lines += textwrap.wrap(f"- {where}: {hint.text}", WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(["what to look at, the costliest first", *lines]) if lines else ""


# Words --------------------------------------------------------------------------------------------------------------


def _few(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _short(number: int) -> str:
    """Return a number in at most seven characters.

    >>> _short(98765), _short(1234567)
    ('98,765', '1.23 M')
    """
    if number < 1e6:
        return f"{number:,}"
    return f"{number / 1e6:.3g} M" if number < 1e9 else f"{number / 1e9:.3g} G"


def metric_bytes(number: int) -> str:
    """Return bytes that were moved in the unit that fits: a kB is 1000, as in a card's bandwidth.

    >>> metric_bytes(20480)
    '20.5 kB'
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"
