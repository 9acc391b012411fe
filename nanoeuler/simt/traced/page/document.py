"""One HTML page for a trace, complete in itself: it can be mailed, read without a net, printed."""

import ast
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.simt.launch import coordinates
from nanoeuler.simt.traced.cards import roofline
from nanoeuler.simt.traced.numbers import Numbers, numbers
from nanoeuler.simt.traced.page.figures import Figure, drawn, figures, folded, unique
from nanoeuler.simt.traced.page.html import element, words
from nanoeuler.simt.traced.page.prose import prose
from nanoeuler.simt.traced.page.source import listings, shown_path
from nanoeuler.simt.traced.page.summary import advice, faults, tiles, warning
from nanoeuler.simt.traced.part import Traced
from nanoeuler.simt.traced.result import Trace
from nanoeuler.simt.traced.stepper import Stepper
from nanoeuler.simt.traced.widget import html_fragment

ROOM = 2_200_000  # characters of a page's pictures, and
STEPS = 2_200_000  # of what goes through a launch: with all else a page stays below 5 MB
#: Nothing may come from elsewhere: the browser is told so.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
SUMMARY = "nanoeuler-summary"  # where a page keeps what an index of pages shows of it


def page(
    launches: Trace | Traced | Sequence[Trace | Traced],
    *,
    title: str,
    card: str | None = None,
    about: str | None = None,
    summary: Any = None,
) -> str:
    """Return an HTML page that shows what launches did.

    The same traces give the same text. Nothing in it refers to anything outside of it.

    Args:
        launches: one, or several in their order.
        title: the page's.
        card: the graphics card of the roofline, by name; None: no roofline.
        about: a docstring, of what makes the launches.
        summary: what an index of pages keeps of it, of what JSON knows; :func:`summary_of` reads it again.

    Raises:
        UserError: there is no such card.
    """
    given = [launches] if isinstance(launches, (Trace, Traced)) else list(launches)
    traced = [Traced(t, steps=t if t.variables else None) if isinstance(t, Trace) else t for t in given]
    steps, room = [], STEPS
    for one in traced:
        steps.append(_stepper(one.steps, room))
        room -= len(steps[-1])
    articles, place = [], ROOM + room // 2  # what the steps have not taken is for pictures too
    for number, one in enumerate(traced, 1):
        pictures = drawn(figures(one.trace, numbers(one.trace)), place // (len(traced) - number + 1), f"-{number}")
        place -= sum(len(picture) for group in pictures[0].values() for picture in group)
        articles.append(_article(number, one, steps[number - 1], pictures, card, len(traced)))
    files = dict.fromkeys(one.trace.file for one in traced)
    head = element("header", element("h1", words(title)), prose(about), *map(_file, files), _contents(traced))
    body = [head, element("main", *articles), element("footer", element("p", words(FOOT)))]
    return document(title, body, summary)


FOOT = (
    "Made by nanoeuler from a run on a CPU with every access watched: counts are exact, and no time is measured. "
    "Threads went one after the other; steps are shown as if the lanes of a warp, and the warps of a block, went side "
    "by side."
)


def save_page(path: str | os.PathLike[str], launches: Trace | Traced | Sequence[Trace | Traced], **how: Any) -> None:
    """Write :func:`page` to a file: all of it, or nothing is changed.

    Raises:
        UserError: the file cannot be written, or there is no such card.
    """
    text = page(launches, **how)
    with written_whole(Path(path)) as file:
        file.write(text.encode())


def summary_of(text: str) -> Any:
    """Return the ``summary`` that a page was made with; None if there is none."""
    _, found, rest = text.partition(f'<script type="application/json" id="{SUMMARY}">')
    return json.loads(rest.partition("</script>")[0]) if found else None


def document(title: str, body: Iterable[str], summary: Any = None) -> str:
    """Return a whole document."""
    kept = "" if summary is None else element("script", _safe(summary), type="application/json", id=SUMMARY)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", words(title)),
        element("style", (Path(__file__).parent / "page.css").read_text("utf-8")),
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', *body, kept), lang='en')}\n"


def _safe(value: Any) -> str:
    """Return JSON that can stand in a script element."""
    return json.dumps(value, sort_keys=True).replace("<", "\\u003c").replace("&", "\\u0026")


def _contents(launches: Sequence[Traced]) -> str:
    """Return links to the launches, where there are several."""
    names = [
        (f"launch-{n}", element("code", words(one.trace.kernel)) + warning(len(one.trace.faults)))
        for n, one in enumerate(launches, 1)
    ]
    return _links(names, "launches") if len(launches) > 1 else ""


def _links(targets: Sequence[tuple[str, str]], label: str) -> str:
    """Return links to places of the page: the id of each, and its name as HTML."""
    items = (element("li", element("a", name, href=f"#{target}")) for target, name in targets)
    return element("nav", element("ul", *items), aria_label=label)


Pictures = tuple[dict[str, list[str]], list[tuple[Figure, str]]]  # as figures.drawn returns them


def _article(number: int, traced: Traced, steps: str, pictures: Pictures, card: str | None, of: int) -> str:
    """Return what there is to say about one launch, the how manieth ``of`` how many; ``steps`` goes through it."""
    prefix, trace = f"launch-{number}", traced.trace
    found = numbers(trace)
    shown, left_out = pictures
    sections = {
        "Source, line by line": listings(trace, found, f"{prefix}-"),
        "Step by step": steps or element("p", words(NO_STEPS), class_="note"),
        "Arrays": _arrays(found) + "".join(shown.get("arrays", [])),
        "A warp in memory": "".join(shown.get("lines", [])),
        "In time": "".join(shown.get("time", [])),
        "Roofline": _roofline(found, card, f"-{number}"),
    }
    kept = [(f"{prefix}-part-{n}", title, content) for n, (title, content) in enumerate(sections.items(), 1) if content]
    made = [
        element("h2", words(f"{number}. " if of > 1 else ""), element("code", words(trace.kernel))),
        element("p", words(f"{shown_path(trace.file)}, line {trace.first_line}"), class_="where"),
        faults(trace),
        prose(trace.function.__doc__),
        tiles(trace, found, traced.part),
        _links([(name, words(title)) for name, title, _ in kept], f"parts of {trace.kernel}"),
        advice(trace, found, f"{prefix}-"),
        *(element("section", element("h3", words(title)), content, id=name) for name, title, content in kept),
    ]
    if left_out:
        made.append(_left_out(trace, left_out, of))
    return element("article", *made, id=prefix)


def _left_out(trace: Trace, figures_: Sequence[tuple[Figure, str]], of: int) -> str:
    """Return which pictures a page has no room for, and how to see them."""
    items = [
        element("li", words(f"{one.name}: "), element("code", words(one.call)), words(f" – {why}" if why else ""))
        for one, why in figures_
    ]
    more = "A notebook shows them, by what stands behind each."
    if of > 1:
        more += f" A page of one kernel alone has room for more: --kernel {trace.kernel}, where a script is traced."
    head = element("p", words("These pictures are too large for this page:"))
    return element("div", head, element("ul", *items), element("p", words(more)), class_="note")


NO_STEPS = (
    "Not here: the launch is too long for a page, or was traced without its variables. simt.step goes through it in a "
    "notebook or a terminal."
)


def _stepper(trace: Trace | None, room: int) -> str:
    """Return what goes through a launch step by step; nothing where that would be longer than ``room``."""
    try:
        made = html_fragment(Stepper(trace)) if trace is not None else ""
    except UserError:  # far too long, or nothing was recorded
        return ""
    if trace is None or len(made) > room:
        return ""
    launch, said = trace.launch, []
    if launch.blocks > 1:
        said.append(f"block {coordinates(trace.blocks[0], launch.grid)}")
    if trace.warps is not None:
        said.append(f"warp {', '.join(map(str, sorted(trace.warps)))} alone")
    return (element("p", words(f"What is shown is {', '.join(said)}."), class_="note") if said else "") + made


def _arrays(found: Numbers) -> str:
    """Return the table of arrays."""
    heads = ("array", "memory", "type", "shape", "loads", "stores", "atomics", "touched", "loads of each")
    rows = []
    for a in found.arrays:
        counts = [f"{n:,}" if n else "" for n in (a.loads, a.stores, a.atomics, a.elements)]
        shape = " × ".join(map(str, a.shape)) or "a single one"
        dtype = "record" if a.dtype.names else str(a.dtype)
        each = f"{a.loads_per_element:.3g}" if a.loads else ""
        cells = [element("td", words(t)) for t in (a.scope, dtype, shape)]
        cells += [element("td", words(t), class_="n") for t in (*counts, each)]
        rows.append(element("tr", element("th", element("code", words(a.name)), scope="row"), *cells))
    head = element("tr", *(element("th", words(h), scope="col") for h in heads))
    table = element("table", element("thead", head), element("tbody", *rows), class_="arrays")
    return element("div", table, class_="scroll", role="region", aria_label="arrays", tabindex="0") if rows else ""


def _roofline(found: Numbers, card: str | None, suffix: str) -> str:
    """Return the place under the roof of a card, in a picture and in words; why there is none, where nothing counts."""
    if card is None:
        return ""
    one = roofline(found, card)
    if not found.totals.flops:
        told = f"{one.card.name}: no roofline, for there are no floating-point operations."
        return element("p", words(told), class_="note")
    return folded(f"under the roof of {one.card.name}", unique(one.picture().svg, suffix), True)


def _file(file: str) -> str:
    """Return what a kernel's file says about itself, folded away."""
    try:
        text = ast.get_docstring(ast.parse(Path(file).read_text("utf-8")))
    except (OSError, SyntaxError, ValueError):  # a notebook's cell, for one
        return ""
    return folded(f"What {shown_path(file)} says about itself", prose(text), False) if text else ""
