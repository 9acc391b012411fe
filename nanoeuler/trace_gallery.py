"""A page for every kernel of ours, and an index of them.

Each kernel is shown in the first launch that comes to it, in each of its variants (a matrix product with its operands
turned is another kernel to the compiler). Pages that are newer than all of our sources are kept, so a gallery that was
interrupted goes on where it was.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import nanoeuler
from nanoeuler.files import written_whole
from nanoeuler.simt.traced.numbers import numbers
from nanoeuler.simt.traced.page import page, summary_of
from nanoeuler.simt.traced.page.document import document
from nanoeuler.simt.traced.page.html import element, share_of, words
from nanoeuler.simt.traced.page.source import LOW, percent, short
from nanoeuler.simt.traced.page.summary import dimensions, warning
from nanoeuler.simt.traced.page.thumbnail import thumbnail
from nanoeuler.simt.traced.part import Part, Traced
from nanoeuler.trace_examples import Example, examples, launches, resolve, sizes, trace_launches


@dataclass
class Entry:
    """One page: a launch of an example, by its number among what the example launches."""

    file: str
    kernel: str
    example: Example
    launch: int
    also: list[Example] = field(default_factory=list)  # others that launch the same kernel

    @property
    def launched_by(self) -> str:
        """The ops that launch the kernel, each with its cases: "linear_forward (feed-forward; head)"."""
        cases: dict[str, list[str]] = {}
        for example in (self.example, *self.also):
            cases.setdefault(example.label, []).extend([example.bench.case] if example.bench.case else [])
        return ", ".join(f"{op} ({'; '.join(of_op)})" if of_op else op for op, of_op in cases.items())


def entries(dtype: str = "float32") -> list[Entry]:
    """Return the pages of a gallery, in the order of the examples."""
    found: dict[int, Entry] = {}
    files: set[str] = set()
    for example in examples():
        if example.about and dtype != "float32":
            continue  # the ladders are float32
        for number, each in enumerate(launches(example, sizes(example), dtype)):
            known = found.get(id(each.kernel))
            if known is not None:
                if example not in (known.example, *known.also):
                    known.also.append(example)
                continue
            kernel = each.kernel.py_func.__name__
            file = _unused(f"{_slug(example.title)}-{kernel}", files)
            files.add(file)
            found[id(each.kernel)] = Entry(file, kernel, example, number)
    return list(found.values())


def _slug(title: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in title).replace("--", "-")


def _unused(name: str, files: set[str]) -> str:
    tries = (f"{name}{'' if n == 1 else f'-{n}'}.html" for n in range(1, len(files) + 2))
    return next(file for file in tries if file not in files)


def write_gallery(folder: Path, dtype: str, card: str, again: bool, only: str | None = None) -> int:
    """Write the pages that are missing or older than the sources, and the index; return the command's exit code.

    ``only``: an op or a kernel; of the other pages none is written, and the index has those that are there.

    Raises:
        UserError: a file cannot be written, or there is no such op or kernel.
    """
    planned = entries(dtype)
    chosen = None if only is None else resolve(only)[0].address
    how = {"dtype": dtype, "card": card}
    wanted = [e for e in planned if chosen in (None, e.example.address)]
    kept = {e.file: s for e in planned if (s := _up_to_date(folder / e.file, how)) is not None}
    missing = [e for e in wanted if again or e.file not in kept]
    rows, new, interrupted = dict(kept), 0, False
    try:
        with _progress() as progress:
            task = progress.add_task("", total=len(wanted), completed=len(wanted) - len(missing))
            for entry, summary in _written(folder, missing, how):
                rows[entry.file] = summary
                new += 1
                progress.update(task, advance=1, description=entry.kernel)
    except KeyboardInterrupt:
        interrupted = True
    with written_whole(folder / "index.html") as file:
        file.write(index([(e, rows[e.file]) for e in planned if e.file in rows], len(planned), dtype).encode())
    print(f"{len(rows)} of {len(planned)} pages, {new} of them new: {folder / 'index.html'}")
    if interrupted:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130
    faulty = [e.kernel for e in wanted if rows[e.file]["faults"]]
    if faulty:
        print(f"kernels with faults: {', '.join(faulty)}")
    return int(bool(faulty))


def _progress() -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _up_to_date(path: Path, how: dict[str, Any]) -> dict[str, Any] | None:
    """Return what an index shows of a page that is newer than the sources and was made in the same way, else None."""
    if not path.is_file() or path.stat().st_mtime < newest_source():
        return None
    found = summary_of(path.read_text("utf-8", errors="replace"))
    return found if isinstance(found, dict) and how.items() <= found.items() else None


def newest_source() -> float:
    """Return when one of our sources changed last."""
    folder = Path(nanoeuler.__file__).parent
    return max(p.stat().st_mtime for p in folder.rglob("*") if p.suffix in (".py", ".css", ".js"))


def _written(folder: Path, missing: list[Entry], how: dict[str, Any]) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """Trace and write pages; yield each when it is there."""
    for example in dict.fromkeys(entry.example for entry in missing):
        wanted = {entry.launch: entry for entry in missing if entry.example is example}
        work = launches(example, sizes(example), how["dtype"])
        for number, traced in zip(sorted(wanted), trace_launches(work, Part(), sorted(wanted)), strict=True):
            entry = wanted[number]
            summary = summarised(traced, how)
            text = page([traced], title=f"{entry.kernel} · {example.title}", card=how["card"],
                        about=example.run.__doc__, summary=summary)  # fmt: skip
            with written_whole(folder / entry.file) as file:
                file.write(text.encode())
            yield entry, summary


def summarised(traced: Traced, how: dict[str, Any]) -> dict[str, Any]:
    """Return what the index shows of a launch, as JSON knows it."""
    trace = traced.trace
    totals = numbers(trace).totals
    loads = totals.loads
    image, shown = thumbnail(trace)
    return how | {
        "grid": list(trace.launch.grid),
        "block": list(trace.launch.block),
        "faults": len(trace.faults),
        "lanes": totals.lane_share,
        "used": totals.traffic.efficiency if totals.traffic.requests else None,
        "conflicts": totals.banks.conflicts if totals.banks.requests else None,
        "ways": totals.banks.ways,
        "again": loads.spared / loads.accesses if loads.accesses else None,
        "intensity": totals.intensity if totals.bytes_moved else None,
        "image": image,
        "shown": shown,
    }


# The index ------------------------------------------------------------------------------------------------------------

HEADS = (
    *("who touches what", "kernel", "launched by", "grid", "block"),
    *("lanes active", "bytes used", "bank conflicts", "loaded again", "FLOP/byte"),
)


def index(rows: list[tuple[Entry, dict[str, Any]]], planned: int, dtype: str) -> str:
    """Return the page that lists the others."""
    groups = {"Ops": [r for r in rows if not r[0].example.about], "Ladders": [r for r in rows if r[0].example.about]}
    body = [
        element("header", element("h1", words("Kernels of nanoeuler, thread by thread")), _about(rows, planned, dtype))
    ]
    for name, group in groups.items():
        if group:
            body.append(element("section", element("h2", words(name)), _table(name, group)))
    return document("Kernels of nanoeuler, thread by thread", [body[0], element("main", *body[1:])])


def _about(rows: list[tuple[Entry, dict[str, Any]]], planned: int, dtype: str) -> str:
    text = (
        "Each kernel of the op table in one small launch, run on a CPU with every access watched. Its page has the "
        "source with what was counted beside each line, pictures of what threads touch, and the launch step by step. "
        f"Activations are {'bfloat16' if dtype == 'bf16' else dtype}."
    )
    missing = f"{planned - len(rows)} of {planned} pages are still to be written." if len(rows) < planned else ""
    return element("p", words(text)) + (element("p", words(missing), class_="note") if missing else "")


def _table(name: str, rows: list[tuple[Entry, dict[str, Any]]]) -> str:
    head = element("tr", *(element("th", words(h), scope="col") for h in HEADS))
    made = element("table", element("thead", head), element("tbody", *(_row(e, s) for e, s in rows)), class_="gallery")
    return element("div", made, class_="scroll", role="region", aria_label=name, tabindex="0")


def _row(entry: Entry, s: dict[str, Any]) -> str:
    image = element("img", src=s["image"], alt=s["shown"], title=s["shown"]) if s["image"] else ""
    link = element("a", element("code", words(entry.kernel)), href=entry.file)
    about = element("small", words(entry.example.about)) if entry.example.about else ""
    cells = [
        _number("grid", dimensions(s["grid"])),
        _number("block", dimensions(s["block"])),
        *(_number(name, *_share(s[name]), mark=s[name] is not None and s[name] < LOW) for name in ("lanes", "used")),
        _number("conflicts", "" if s["conflicts"] is None else f"{s['conflicts']:,}", mark=s["ways"] >= 2),
        _number("again", *_share(s["again"])),
        _number("FLOP/byte", "" if s["intensity"] is None else short(s["intensity"])),
    ]
    return element(
        "tr", element("td", image, class_="image"), element("th", link, warning(s["faults"]), scope="row"),
        element("td", words(entry.launched_by), about, class_="by"), *cells,
    )  # fmt: skip


def _share(share: float | None) -> tuple[str, float | None]:
    return ("", None) if share is None else (percent(share), share)


def _number(name: str, text: str, share: float | None = None, mark: bool = False) -> str:
    """Return a cell; ``name`` stands before it where there is no room for columns."""
    abbr = element("abbr", "▲", title="worth a look") if mark else ""
    return element("td", words(text), abbr, class_="n", data_label=name if text else None, style=share_of(share))
