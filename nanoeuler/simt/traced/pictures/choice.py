"""What of a trace a picture shows: an array, a block, a line of source, one warp's instructions on it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.simt.launch import WARP_SIZE, number_of
from nanoeuler.simt.traced.pictures.wording import line_name, position, ranges
from nanoeuler.simt.traced.recorder import ALIGNMENT, ATOMIC, READ, WRITE, Instruction, TracedArray
from nanoeuler.simt.traced.requests import Requests, requests
from nanoeuler.simt.traced.result import Trace

Line = int | tuple[str, int]  # of the kernel's file, or of the file that is named
Index = int | tuple[int, ...]
KINDS = {"read": READ, "write": WRITE, "atomic": ATOMIC}


def one_array(trace: Trace, array: str | int) -> TracedArray:
    """Return the array of a name or number.

    Raises:
        UserError: there is none, or there are several of the name.
    """
    if not trace.arrays:
        raise UserError(f"{trace.kernel} has no arrays: there is nothing to draw")
    found = trace.named(array)
    if len(found) > 1:
        several = ", ".join(f"{a.number} ({a.scope}, {a.dtype}{list(a.shape)})" for a in found)
        raise UserError(f"{len(found)} arrays are called '{array}': give the number of one: {several}")
    return found[0]


def block_number(trace: Trace, block: Index | None) -> int | None:
    """Return the number of a block that was traced, by its number or index; None for None.

    Raises:
        UserError: it is not in the grid, or was not traced.
    """
    if block is None:
        return None
    grid = trace.launch.grid
    number = number_of(block, grid, "block")
    if number not in trace.blocks:
        traced = ", ".join(position(n, grid) for n in trace.blocks[:8])
        raise UserError(f"block {block} was not traced; these were: {traced}{', …' * (len(trace.blocks) > 8)}")
    return number


def kind_number(kind: str | None) -> int | None:
    """Return the number of a kind of access, "read" or "reads"; None for None, and for "all".

    Raises:
        UserError: there is no such kind.
    """
    if kind is None or kind == "all":
        return None
    found = KINDS.get(str(kind).removesuffix("s"))
    if found is None:
        raise UserError(f"unknown kind {kind!r}: use {', '.join(KINDS)}, or all")
    return found


def on_line(trace: Trace, line: Line) -> list[Instruction]:
    """Return the instructions on a line that access memory.

    A plain number is a line of the kernel's file, or of another if it has none such.

    Raises:
        UserError: the line has none.
    """
    accessing = _accessing(trace, trace.accesses["instruction"])
    found = _on_line(trace, accessing, line)
    if not found:
        raise UserError(f"line {_shown(line)} accesses no memory in this trace{those_that_do(trace, accessing)}")
    return found


def _accessing(trace: Trace, numbers: np.ndarray) -> list[Instruction]:
    return [trace.instructions[n] for n in np.unique(numbers)]


def _on_line(trace: Trace, instructions: list[Instruction], line: Line) -> list[Instruction]:
    file, number = line if isinstance(line, tuple) else (None, line)
    found = [i for i in instructions if i.line == number and file in (None, i.file, Path(i.file).name)]
    return found if file is not None else [i for i in found if i.file == trace.file] or found


def those_that_do(trace: Trace, instructions: Iterable[Instruction]) -> str:
    """Return the lines of instructions, as the end of a message."""
    ordered = sorted(instructions, key=lambda i: (i.file != trace.file, i.file, i.line))
    names = dict.fromkeys(line_name(trace, i).removeprefix("line ") for i in ordered)
    return f"; lines that do: {', '.join(names)}" if names else "; no line does"


@dataclass(frozen=True)
class WarpRequest:
    """What the lanes of one warp ask of memory together, at one place in the source (:mod:`..requests`).

    ``accesses`` (numbers in the trace), ``lanes``, ``addresses`` and ``sizes`` (bytes) are arrays of one length, an
    entry for each lane that takes part, by rising lane. ``turn`` counts how often the warp had been here before, out
    of ``turns``. ``exist`` is how many lanes the warp has: 32, but in the last one of a block. ``part`` says which part
    of its elements it is, "" for all. ``starts`` has the address at which the memory of each array begins, a multiple
    of 256.
    """

    instruction: Instruction
    kind: int
    block: int
    warp: int
    turn: int
    turns: int
    exist: int
    part: str
    accesses: np.ndarray
    lanes: np.ndarray
    addresses: np.ndarray
    sizes: np.ndarray
    starts: np.ndarray


def warp_requests(
    trace: Trace,
    line: Line,
    scope: str,
    *,
    warp: int | None,
    block: Index | None,
    nth: int,
    array: str | int | None,
) -> list[WarpRequest]:
    """Return what one warp asks of memory on a line, the ``nth`` time that it comes there: an entry for each request.

    ``scope`` is the memory, "global" or "shared". Without ``warp`` and ``block`` it is the first warp that does.

    Raises:
        UserError: the line, the warp or the time has no such request; the message says which have.
    """
    wanted = [a.number for a in (trace.arrays if array is None else trace.named(array)) if a.scope == scope]
    a, all_requests = trace.accesses, requests(trace, scope)
    entries = np.isin(a["array"][all_requests.access], wanted)
    right = all_requests.access[entries]
    accessing = _accessing(trace, a["instruction"][right])
    fits = right[np.isin(a["instruction"][right], [i.number for i in _on_line(trace, accessing, line)])]
    if not len(fits):
        what = f"{scope} memory" if array is None else f"'{array}' in {scope} memory"
        raise UserError(f"line {_shown(line)} does not access {what}{those_that_do(trace, accessing)}")
    chosen = _one_warp(trace, fits, warp, block_number(trace, block), line)
    group = trace.warp_instructions.of_access
    found, most = [], 0
    for place, kind in np.unique(np.stack([a["instruction"][chosen], a["kind"][chosen]]), axis=1).T.tolist():
        here = chosen[(a["instruction"][chosen] == place) & (a["kind"][chosen] == kind)]
        times = np.unique(group[here])
        most = max(most, len(times))
        if 0 <= nth < len(times):
            entries_now = entries & (group[all_requests.access] == times[nth])
            found += _gathered(trace, all_requests, np.flatnonzero(entries_now), nth, len(times))
    if not found:
        raise UserError(f"the warp comes to line {_shown(line)} {most} times: nth is 0 to {most - 1}, not {nth}")
    return found


def _shown(line: Line) -> str:
    return str(line) if not isinstance(line, tuple) else f"{line[1]} of {Path(line[0]).name}"


def _one_warp(trace: Trace, fits: np.ndarray, warp: int | None, block: int | None, line: Line) -> np.ndarray:
    """Return those of some accesses that are of one warp: the first one of those that may be meant."""
    records = trace.accesses[fits]
    warps = records["thread"] // WARP_SIZE
    of_block = np.ones(len(fits), np.bool_) if block is None else records["block"] == block
    meant = of_block if warp is None else of_block & (warps == warp)
    if not meant.any():
        where = "" if block is None else f" of block {position(block, trace.launch.grid)}"
        did = f"warps that do: {ranges(warps[of_block])}" if of_block.any() else "no warp of it does"
        which = "no warp" if warp is None else f"warp {warp}"
        raise UserError(f"{which}{where} accesses this memory on line {_shown(line)}; {did}")
    of_warp = records["block"].astype(np.int64) << 32 | warps
    return fits[meant & (of_warp == of_warp[meant].min())]


def _gathered(trace: Trace, all_requests: Requests, entries: np.ndarray, turn: int, turns: int) -> list[WarpRequest]:
    """Return the requests that one warp instruction makes: one, or one for each part of its elements."""
    numbers = np.unique(all_requests.request[entries]).tolist()
    names = [""] if len(numbers) == 1 else [f"byte 1 of {len(numbers)}, each of which is a request of its own"]
    if len(numbers) == 2:
        names = ["real part", "imaginary part"]
    made = []
    for number, part in zip(numbers, names, strict=False):  # single bytes of records are all alike: the first will do
        own = entries[all_requests.request[entries] == number]
        own = own[np.argsort(all_requests.lane[own], kind="stable")]
        records, addresses = trace.accesses[all_requests.access[own]], all_requests.address[own]
        past = np.array([trace.arrays[n].past for n in records["array"]], np.int64)
        instruction, kind = trace.instructions[records["instruction"][0]], int(records["kind"][0])
        block, warp = int(records["block"][0]), int(records["thread"][0]) // WARP_SIZE
        made.append(
            WarpRequest(
                *(instruction, kind, block, warp, turn, turns),
                min(WARP_SIZE, trace.launch.block_threads - warp * WARP_SIZE),
                *(part, all_requests.access[own], all_requests.lane[own].astype(np.int64)),
                *(addresses, all_requests.size[own]),
                (addresses - past - records["offset"]) // ALIGNMENT * ALIGNMENT,
            )
        )
    return made
