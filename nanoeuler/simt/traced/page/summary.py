"""What a page says first about a launch: its size, its numbers, and which lines are worth a look."""

from collections.abc import Sequence
from pathlib import Path

from nanoeuler.console import format_count, plural
from nanoeuler.simt.launch import WARP_SIZE
from nanoeuler.simt.traced.hints import hints
from nanoeuler.simt.traced.numbers import Numbers
from nanoeuler.simt.traced.page.html import element, share_of, words
from nanoeuler.simt.traced.page.source import linked, percent, short
from nanoeuler.simt.traced.report import metric_bytes
from nanoeuler.simt.traced.result import Trace
from nanoeuler.simt.traced.screen import OUTCOME


def tiles(trace: Trace, found: Numbers, part: str) -> str:
    """Return the key numbers of a launch as a list of tiles."""
    launch, totals = trace.launch, found.totals
    traffic, loads, banks = totals.traffic, totals.loads, totals.banks
    again = loads.spared / loads.accesses if loads.accesses else 0.0
    warps = -(-launch.block_threads // WARP_SIZE)
    blocks = dimensions(launch.grid)
    made = [
        tile("blocks", blocks, f"{launch.blocks:,} in all" if "×" in blocks else ""),
        tile("threads of a block", dimensions(launch.block), plural(warps, "warp")),
        tile("traced", part or "all", f"{len(trace.accesses):,} accesses"),
        tile("lanes active", percent(totals.lane_share), f"{short(totals.lanes)} of a warp", totals.lane_share),
    ]
    if traffic.requests:
        made += [
            tile("bytes used", percent(traffic.efficiency),
                 f"{metric_bytes(traffic.bytes_asked)} of {metric_bytes(traffic.bytes_moved)}", traffic.efficiency),
            tile("sectors per request", short(traffic.sectors_per_request), f"{traffic.sectors:,} sectors of 32 bytes"),
        ]  # fmt: skip
    if loads.accesses:
        made.append(tile("loaded again", percent(again), f"of {loads.accesses:,} loads", again))
    if banks.requests:
        made.append(
            tile("bank conflicts", f"{banks.conflicts:,}", f"{short(banks.ways)}× the least passes")
        )  # fmt: skip
    made.append(tile("arithmetic", f"{format_count(totals.flops)} FLOP", _intensity(found)))
    return element("ul", *made, class_="tiles")


def tile(name: str, value: str, detail: str, share: float | None = None) -> str:
    """Return one number; a bar below shows what share of the whole it is."""
    bar = "" if share is None else element("span", class_="bar", style=share_of(share), aria_hidden="true")  # fmt: skip
    return element("li", element("span", words(name), class_="name"), element("strong", words(value)), bar,
                   element("span", words(detail), class_="detail"))  # fmt: skip


def _intensity(found: Numbers) -> str:
    totals = found.totals
    special = f", {format_count(totals.special)} special functions" if totals.special else ""
    if not totals.bytes_moved:
        return f"no global memory{special}"
    return f"{totals.intensity:.3g} FLOP for a byte{special}"


def dimensions(sizes: Sequence[int]) -> str:
    """Return the sizes of a grid or block, those of 1 at the end left out."""
    kept = sizes[: max((n for n, size in enumerate(sizes, 1) if size > 1), default=1)]
    return " × ".join(f"{size:,}" for size in kept)


def warning(faults: int) -> str:
    """Return how many faults a kernel has, to stand beside its name; nothing if it has none."""
    return element("strong", words(f" ▲ {plural(faults, 'fault')}"), class_="warning") if faults else ""


def faults(trace: Trace) -> str:
    """Return what is wrong with a kernel, to stand before all else; nothing if nothing is."""
    if not trace.faults:
        return ""
    head = element("h3", words(f"▲ {plural(len(trace.faults), 'fault')}. {OUTCOME}"))
    return element("div", head, *(element("pre", words(fault), tabindex="0") for fault in trace.faults),
                   class_="faults", role="alert")  # fmt: skip


def advice(trace: Trace, found: Numbers, prefix: str) -> str:
    """Return what could be better, the costliest first, as a list with links to the lines."""
    items = []
    for hint in hints(trace, found):
        line = hint.lines[0]
        name = words(hint.where if hint.file == trace.file else f"{hint.where} of {Path(hint.file).name}")
        link = element("a", name, href=f"#{prefix}line-{line}") if linked(trace, found, hint.file, line) else name
        code = element("code", words(trace.source_line(line, hint.file).strip()))
        items.append(element("li", link, " ", code, element("br"), words(hint.text)))
    return element("h4", words("Worth a look")) + element("ul", *items, class_="advice") if items else ""
