"""The source of a kernel and of the device functions that it calls, with what was counted beside each line."""

import io
import keyword
import linecache
import math
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nanoeuler
from nanoeuler.console import format_count
from nanoeuler.simt.faults import of_a_cell
from nanoeuler.simt.source import Source
from nanoeuler.simt.traced.numbers import LineNumbers, Numbers
from nanoeuler.simt.traced.page.html import element, share_of, words
from nanoeuler.simt.traced.result import Trace

#: Heading, what it is in full, and what it means, of each column before the source.
COLUMNS = (
    ("times", "times run", "How often a warp came to the line with at least one of its lanes."),
    (
        "lanes",
        "lanes active",
        "How many of a warp's 32 lanes took part, on average. The others wait: after a branch that they did not take, "
        "or because the block does not fill its last warp.",
    ),
    (
        "sectors",
        "sectors per request",
        "Global memory comes in sectors of 32 bytes. This is how many of them a warp asks for at once, on average: 4 "
        "where 32 lanes read 4 bytes each, side by side; 32 where each lane reads from a place of its own.",
    ),
    (
        "used",
        "bytes used",
        "What share of the bytes in those sectors was asked for: the efficiency of coalescing. 100 % where neighbours "
        "read neighbours, 12.5 % where lanes with 4 bytes each are far apart.",
    ),
    (
        "banks",
        "passes through the banks",
        "Shared memory has 32 banks of 4 bytes. Lanes that want different words of one bank are served one after the "
        "other; this is how many times as long it takes as without such conflicts. 1 is best, 32 worst. Lanes that "
        "read the same word are served together.",
    ),
    (
        "again",
        "loads again",
        "What share of the loads from global memory brought what the thread had loaded or stored before, or another "
        "thread of its block had loaded. Registers or shared memory could have kept it.",
    ),
    (
        "flops",
        "floating-point operations",
        "Additions, subtractions, multiplications and divisions of floats; a fused multiply-add counts two. The "
        "compiler may fuse or drop some.",
    ),
)
LOW = 0.5  # what is below is marked


def shown_path(file: str) -> str:
    """Return a file's name as a page shows it: a path inside the package, else the name alone; a cell has none."""
    if of_a_cell(file):
        return "a cell"
    root = Path(nanoeuler.__file__).parents[1]
    path = Path(file)
    return path.relative_to(root).as_posix() if path.is_relative_to(root / "nanoeuler") else path.name


def listings(trace: Trace, found: Numbers, prefix: str) -> str:
    """Return the kernel's source, and folded that of each device function that ran, with numbers."""
    made = [listing(trace.kernel, trace.file, trace.source.lines, found, prefix), explanations()]
    for source in called(trace, found):
        place = f"{shown_path(source.file)}, line {source.tree.lineno}"
        summary = element("summary", element("code", words(source.name)), words(f" called, {place}"))
        table = listing(source.name, source.file, source.lines, found, prefix if source.file == trace.file else None)
        made.append(element("details", summary, table, class_="figure"))
    return "".join(made)


def explanations() -> str:
    """Return what each column of the listing means, folded away."""
    made = []
    for short_name, full, meaning in COLUMNS:
        made += [element("dt", element("b", words(short_name)), words(f" {full}")), element("dd", words(meaning))]
    mark = element("dt", words("▲")) + element("dd", words("Half of what could be, or worse: worth a look."))
    summary = element("summary", words("What the numbers mean"))
    return element("details", summary, element("dl", *made, mark), class_="figure")


def linked(trace: Trace, found: Numbers, file: str, line: int) -> bool:
    """Whether a line is in the listings and has a name for links: those of the kernel's file have."""
    sources = [trace.source, *called(trace, found)]
    return file == trace.file and any(line in s.lines for s in sources if s.file == file)


def called(trace: Trace, found: Numbers) -> list[Source]:
    """Return the device functions of which a line was counted, in the order of files and lines."""
    sources = [s for s in trace.source.everything() if s.function is not trace.function]
    ran = [s for s in sources if any((s.file, line) in found.lines for line in s.lines)]
    unique = {(s.file, s.tree.lineno): s for s in ran}
    return [unique[place] for place in sorted(unique, key=lambda p: (p[0] != trace.file, p))]


def listing(name: str, file: str, lines: range, found: Numbers, prefix: str | None = None) -> str:
    """Return a function as a table, a row for each line; ``prefix`` makes names for links to its lines."""
    counted = {line: cells_of(found.lines[file, line]) for line in lines if (file, line) in found.lines}
    used = [n for n in range(len(COLUMNS)) if any(cells[n].text for cells in counted.values())]
    heads = [element("th", words(COLUMNS[n][0]), scope="col", title=COLUMNS[n][1], class_="n") for n in used]
    head = [element("th", words("line"), scope="col", class_="at"), *heads,
            element("th", words("source"), scope="col", class_="code")]  # fmt: skip
    rows = [
        _row(line, [counted.get(line, EMPTY)[n] for n in used], [COLUMNS[n][0] for n in used], code, prefix)
        for line, code in zip(lines, coloured(file, lines), strict=True)
    ]
    indent = min((len(t) - len(t.lstrip()) for t in _texts(file, lines) if t.strip()), default=0)
    table = element(
        "table", element("thead", element("tr", *head)), element("tbody", *rows), class_="source",
        style=f"--indent:{indent}ch" if indent else None,
    )  # fmt: skip
    return element("div", table, class_="scroll", role="region", aria_label=f"source of {name}", tabindex="0")


def _row(line: int, cells: list["Cell"], labels: list[str], code: str, prefix: str | None) -> str:
    made = [element("th", words(line), scope="row", class_="at", id=None if prefix is None else f"{prefix}line-{line}")]
    for cell, label in zip(cells, labels, strict=True):
        mark = element("abbr", "▲", title="worth a look") if cell.low else ""
        look = "n low" if cell.low else "n"
        shown = label if cell.text else None
        made.append(element("td", words(cell.text), mark, class_=look, style=share_of(cell.share), data_label=shown))
    return element("tr", *made, element("td", element("code", code or " "), class_="code"))


@dataclass(frozen=True)
class Cell:
    """One number of a line: its text, what share of the cell a bar fills, and whether it is worth a look."""

    text: str = ""
    share: float | None = None
    low: bool = False


EMPTY = [Cell()] * len(COLUMNS)


def cells_of(one: LineNumbers) -> list[Cell]:
    """Return what a line has in each column."""
    traffic, banks, loads = one.traffic, one.banks, one.loads
    ratio = traffic.sectors / max(1, traffic.ideal_sectors)
    again = loads.spared / max(1, loads.accesses)
    none = Cell()
    return [
        Cell(format_count(one.executions)) if one.executions else none,
        Cell(short(one.lanes), one.lane_share, one.lane_share < LOW) if one.executions else none,
        Cell(short(traffic.sectors_per_request), traffic.sectors_per_request / 32, ratio >= 2)
        if traffic.requests else none,
        Cell(percent(traffic.efficiency), traffic.efficiency, traffic.efficiency < LOW) if traffic.requests else none,
        Cell(f"{short(banks.ways)}×", (banks.ways - 1) / 31, banks.ways >= 2) if banks.requests else none,
        Cell(percent(again), again, again > LOW) if loads.accesses else none,
        Cell(format_count(one.flops)) if one.flops else none,
    ]  # fmt: skip


def short(value: float) -> str:
    """Return a number with one digit behind the point, if it is not 0.

    >>> short(4.0), short(3.26)
    ('4', '3.3')
    """
    return f"{value:.1f}".removesuffix(".0") if math.isfinite(value) else "–"


def percent(share: float) -> str:
    """Return a share in three digits or less; only what is all is written as such.

    >>> percent(0.00412), percent(0.125), percent(0.9999), percent(1)
    ('0.412 %', '12.5 %', '99.9 %', '100 %')
    """
    return f"{100 * share if share >= 1 else min(100 * share, 99.9):.3g} %"


# Colours of the language ----------------------------------------------------------------------------------------------


def _texts(file: str, lines: range) -> list[str]:
    return [linecache.getline(file, line).rstrip("\n\r").expandtabs() for line in lines]


def coloured(file: str, lines: range) -> list[str]:
    """Return lines of source as HTML, with comments, texts, keywords and numbers marked; plain if it is no Python."""
    texts = _texts(file, lines)
    marks: list[list[tuple[int, int, str]]] = [[] for _ in texts]
    try:
        for kind, start, end in _tokens("\n".join(texts) + "\n"):
            for row in range(start[0], min(end[0], len(texts)) + 1):
                left = start[1] if row == start[0] else 0
                right = end[1] if row == end[0] else len(texts[row - 1])
                marks[row - 1].append((left, right, kind))
    except (tokenize.TokenError, SyntaxError):
        marks = [[] for _ in texts]
    return [_marked(text, row) for text, row in zip(texts, marks, strict=True)]


def _tokens(text: str) -> Iterator[tuple[str, Any, Any]]:
    kinds = {tokenize.COMMENT: "c", tokenize.STRING: "s", tokenize.NUMBER: "m"}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            yield kinds[token.type], token.start, token.end
        elif token.type == tokenize.NAME and keyword.iskeyword(token.string):
            yield "k", token.start, token.end


def _marked(text: str, marks: list[tuple[int, int, str]]) -> str:
    made, end = "", 0
    for left, right, kind in marks:
        made += words(text[end:left]) + element("span", words(text[left:right]), class_=kind)
        end = right
    return made + words(text[end:])
