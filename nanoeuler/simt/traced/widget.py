"""The stepper as a page: plain JavaScript over the whole launch, which travels with it as columns of numbers.

Nothing is fetched from anywhere, and no program has to run behind the page. Numbers are in columns, each as wide as its
largest one, in base64; values are texts, each kept once.
"""

import base64
import html
import json
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nanoeuler.console import format_bytes, visible
from nanoeuler.errors import UserError
from nanoeuler.simt.faults import of_a_cell
from nanoeuler.simt.launch import WARP_SIZE, coordinates
from nanoeuler.simt.traced.branches import Branches
from nanoeuler.simt.traced.contents import Leaf, leaves
from nanoeuler.simt.traced.recorder import TracedArray
from nanoeuler.simt.traced.screen import extent, waited
from nanoeuler.simt.traced.steps import shown

if TYPE_CHECKING:
    from nanoeuler.simt.traced.stepper import Stepper

LIMIT = 10_000_000  # characters of a page
BYTES_PER_RECORD = 10  # at the least: a record that takes less is rare
WHOLE = 1 << 14  # elements of an array that is kept whole; of a larger one those that the launch touches
HEIGHT = 780  # pixels of the frame in a notebook, until it has measured itself


def notebook_html(stepper: "Stepper") -> str:
    """Return the stepper in a frame of its own, where its styles meet no others; what is wrong as text."""
    try:
        fragment = html_fragment(stepper)
    except UserError as error:
        return f"<pre>{html.escape(str(error))}</pre>"
    title = html.escape(f"Steps of {stepper.trace.kernel}", quote=True)
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f'<body style="margin:0">{fragment}</body></html>'
    )
    return (
        f'<iframe class="nanoeuler-frame" title="{title}" style="width:100%;height:{HEIGHT}px;border:0" '
        f'srcdoc="{html.escape(page, quote=True)}"></iframe>'
    )


def html_fragment(stepper: "Stepper") -> str:
    """Return what shows a stepper inside a page, which may have several: styles, data and script.

    Raises:
        UserError: it would be longer than a page should be.
    """
    trace = stepper.trace
    least = BYTES_PER_RECORD * (len(trace.accesses) + len(trace.variables) + len(trace.waits))
    data = encoded(payload(stepper)) if least <= LIMIT else ""
    if max(least, len(data)) > LIMIT:
        raise UserError(
            f"the steps of this launch are {format_bytes(max(least, len(data)))}, and a page should have no more than "
            f"{format_bytes(LIMIT)}: follow less of it (blocks=, warps=), give smaller arrays, or use .interact() in a "
            "terminal"
        )
    files = resources.files("nanoeuler.simt.traced")
    style, script = ((files / f"widget.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return (
        f'<div class="nanoeuler-stepper" role="group" aria-label="Steps of {html.escape(trace.kernel, quote=True)}">'
        f"<style>{style}</style><noscript>The steps of a kernel are shown by a script.</noscript>"
        f'<script type="application/json">{data}</script><script>{script}</script></div>'
    )


def encoded(data: dict[str, Any]) -> str:
    """Return JSON that can stand inside a script element: no text in it can end that, or begin a comment."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def column(numbers: Any) -> str:
    """Return whole numbers from 0 on as text: the bytes that each takes, and all of them in base64.

    >>> column([1, 2, 255])
    '1AQL/'
    """
    numbers = np.asarray(numbers, np.int64)
    most = int(numbers.max()) if len(numbers) else 0
    size = next(n for n in (1, 2, 3, 4) if most < 1 << 8 * n)
    parts = numbers.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :size]
    return f"{size}{base64.b64encode(parts.tobytes()).decode()}"


class Texts:
    """Texts, each kept once, by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Return the number of a text."""
        return self.numbers.setdefault(text, len(self.numbers))

    def joined(self) -> str:
        """Return all texts, one a line, with nothing invisible in them."""
        plain = (text.isascii() and text.isprintable() for text in self.numbers)  # nearly all, and quickly seen
        return "\n".join(t if p else visible(t).replace("\n", " ") for t, p in zip(self.numbers, plain, strict=True))

    def of_values(self, values: Iterable[Any]) -> np.ndarray:
        """Return the numbers of the texts of values."""
        return np.array([self.number(shown(value)) for value in values], np.int64)

    def of_array(self, values: np.ndarray) -> np.ndarray:
        """Return the numbers of the texts of an array's values; each different one is written out once."""
        if not len(values):
            return np.zeros(0, np.int64)
        raw = np.ascontiguousarray(values).view(f"V{values.itemsize}")
        _, first, which = np.unique(raw, return_index=True, return_inverse=True)
        return self.of_values(values[first])[which.reshape(-1)]


def payload(stepper: "Stepper") -> dict[str, Any]:
    """Return all that the script needs."""
    trace, texts = stepper.trace, Texts()
    functions = _functions(stepper)
    grids = [(array, leaf) for array in trace.arrays if 0 not in array.shape for leaf in leaves(array)]
    whole = [_cells(stepper, array) for array, _ in grids]
    return {
        "kernel": trace.kernel,
        "block": trace.launch.block,
        "grid": trace.launch.grid,
        "blocks": {b: coordinates(b, trace.launch.grid) for b in stepper.steps.blocks},
        "warps": sorted({int(w) for step in stepper.steps.list for w in np.unique(step.threads // WARP_SIZE)}),
        "position": stepper.position,
        "thread": stepper.thread,
        "faults": [f"{fault.kind} in line {fault.line}: {visible(fault.message)}" for fault in trace.faults],
        "functions": [{name: f[name] for name in ("name", "file", "first", "lines")} for f in functions],  # no paths
        "steps": _steps(stepper, functions),
        "assignments": _assignments(stepper, texts),
        "waits": _waits(stepper, texts),
        "grids": [_grid(stepper, *g, cells, texts) for g, cells in zip(grids, whole, strict=True)],
        "accesses": _accesses(stepper, grids, whole, texts),
        "texts": texts.joined(),
    }


def _functions(stepper: "Stepper") -> list[dict[str, Any]]:
    """Return the functions that have steps, the kernel first, with their source."""
    found: dict[tuple[str, int, int], str] = {}
    for step in stepper.steps.list:
        found.setdefault((step.file, *extent(stepper, step)), step.function)
    return [
        {
            **{"name": name, "file": "a cell" if of_a_cell(file) else Path(file).name, "path": file, "first": first},
            "lines": [visible(stepper.trace.source_line(n, file).expandtabs(4)) for n in range(first, last + 1)],
        }
        for (file, first, last), name in found.items()
    ]


def _function(functions: list[dict[str, Any]], file: str, line: int) -> int:
    """Return the number of the function that a line is in."""
    fits = (n for n, f in enumerate(functions) if f["path"] == file and 0 <= line - f["first"] < len(f["lines"]))
    return next(fits)


def _steps(stepper: "Stepper", functions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the steps: where each is, in which call, and which threads run it, as a number of a set of them.

    ``taken`` is the set of those for which the condition of a step is true, plus 1; 0 where there is no condition.
    """
    steps, words = stepper.steps, -(-stepper.trace.launch.block_threads // WARP_SIZE)
    sets: dict[bytes, int] = {}
    frames = {frame: n for n, frame in enumerate(_frames(stepper))}
    kinds = {"enter": 0, "statement": 1, "return": 2}
    of_step = [sets.setdefault(s.threads.tobytes(), len(sets)) for s in steps.list]
    branches = Branches(steps)
    taken = [branches.taken(s.number) for s in steps.list]
    of_taken = [0 if t is None else 1 + sets.setdefault(t.tobytes(), len(sets)) for t in taken]
    masks = np.zeros((len(sets), words), np.int64)
    for which, threads in enumerate(np.frombuffer(bytearray(t), np.int64) for t in sets):
        np.bitwise_or.at(masks[which], threads // WARP_SIZE, 1 << threads % WARP_SIZE)
    return {
        "count": len(steps),
        "block": column([steps.blocks.index(s.block) for s in steps.list]),
        "function": column([_function(functions, s.file, s.line) for s in steps.list]),
        "line": column([s.line for s in steps.list]),
        "kind": column([kinds[s.kind] for s in steps.list]),
        "barrier": column([s.barrier for s in steps.list]),
        "threads": column(of_step),
        "taken": column(of_taken),
        "frame": column([frames[steps.frame_of[s.execution]] for s in steps.list]),
        "frames": [_frame(stepper, frame, frames, functions) for frame in frames],
        "masks": column(masks.reshape(-1)),
    }


def _frame(stepper: "Stepper", frame: int, frames: dict[int, int], functions: list[dict[str, Any]]) -> list[int]:
    """Return of a call: the call that made it, and where that stands, as a function and a line; -1 for the kernel."""
    trace = stepper.trace
    call = trace.executions[frame][0]
    around = trace.executions[call][0]
    if not around:
        return [-1, 0, 0]
    block = trace.basic_blocks[trace.executions[around][1]]
    line = stepper.steps.cut(around, trace.basic_blocks[trace.executions[call][1]].order).line
    return [frames[stepper.steps.frame_of[around]], _function(functions, block.file, line), line]


def _assignments(stepper: "Stepper", texts: Texts) -> dict[str, Any]:
    groups, variables = stepper.steps.of_variables, stepper.trace.variables
    ordered = [variables[n] for n in groups.members]
    names = {name: n for n, name in enumerate(dict.fromkeys(v.name for v in ordered))}
    arrays = {
        texts.number(shown(value)) for value in dict.fromkeys(v.value for v in ordered if isinstance(v.value, str))
    }
    return {
        "counts": column(np.diff(groups.starts)),
        "names": list(names),
        "thread": column([v.thread for v in ordered]),
        "name": column([names[v.name] for v in ordered]),
        "text": column(texts.of_values(v.value for v in ordered)),
        "arrays": sorted(arrays),
    }


def _waits(stepper: "Stepper", texts: Texts) -> dict[str, Any]:
    groups = stepper.steps.of_waits
    ordered = [stepper.trace.waits[n] for n in groups.members]
    return {
        "counts": column(np.diff(groups.starts)),
        "thread": column([w.thread for w in ordered]),
        "text": column([texts.number(waited(w)) for w in ordered]),
    }


def _cells(stepper: "Stepper", array: TracedArray) -> np.ndarray | None:
    """Return the elements of a large array that the launch touches, sorted; None for one that is kept whole."""
    if int(np.prod(array.shape)) <= WHOLE:
        return None
    accesses = stepper.trace.accesses
    same = [a.number for a in stepper.trace.arrays if a.memory == array.memory]
    found = stepper.contents.touched(array, np.flatnonzero(np.isin(accesses["array"], same))).element
    return np.unique(found[found >= 0])


def _grid(stepper: "Stepper", array: TracedArray, leaf: Leaf, cells: np.ndarray | None, texts: Texts) -> dict[str, Any]:
    """Return one array, or one field of an array of records, with its contents before the launch and all changes."""
    history = stepper.contents.history(array, leaf)
    initial = history.initial if cells is None else history.initial[cells]
    place = history.elements if cells is None else np.searchsorted(cells, history.elements)
    frames = {frame: n for n, frame in enumerate(_frames(stepper))}
    owners = [[stepper.steps.blocks.index(o[0]), *o[1:2], *(frames[f] for f in o[2:])] for o in history.owners if o]
    return {
        **{"name": leaf.name, "array": array.name, "scope": array.scope, "dtype": str(leaf.dtype)},
        "shape": array.shape or (1,),
        "cells": None if cells is None else column(cells),
        "initial": column(texts.of_array(initial)) if array.initial is not None else None,
        "owners": owners,
        "step": column(history.steps),
        "owner": column(history.owner),
        "cell": column(place),
        "text": column(texts.of_array(history.values)),
    }


def _frames(stepper: "Stepper") -> list[int]:
    """Return the calls that have steps, as ``_steps`` numbers them."""
    return list(dict.fromkeys(stepper.steps.frame_of[s.execution] for s in stepper.steps.list))


def _accesses(stepper: "Stepper", grids: list, cells: list[np.ndarray | None], texts: Texts) -> dict[str, Any]:
    """Return the accesses of each step: which thread, which grid and element, what it does, and the value."""
    groups, trace = stepper.steps.of_accesses, stepper.trace
    a = trace.accesses[groups.members]
    grid, cell = np.zeros(len(a), np.int64), np.zeros(len(a), np.int64)
    for n, (array, leaf) in enumerate(grids):
        mine = np.flatnonzero(a["array"] == array.number)
        found = stepper.contents.touched(array, groups.members[mine])
        here = (found.leaf == leaves(array).index(leaf)) & (found.element >= 0)
        grid[mine[here]] = n
        kept = cells[n]
        cell[mine[here]] = found.element[here] if kept is None else np.searchsorted(kept, found.element[here])
    bits = np.stack([a["dtype"].astype(np.uint64), a["bits"]])
    _, first, which = np.unique(bits, axis=1, return_index=True, return_inverse=True)
    return {
        "counts": column(np.diff(groups.starts)),
        "thread": column(a["thread"]),
        "grid": column(grid),
        "cell": column(cell),
        "kind": column(a["kind"]),
        "text": column(texts.of_values(trace.values(a[first]))[which.reshape(-1)]),
    }
