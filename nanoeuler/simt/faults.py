"""What can be wrong with a kernel: the record of a fault, the exception that carries faults, the words, a picture."""

import linecache
import re
from dataclasses import dataclass
from pathlib import Path

from nanoeuler.errors import UserError

Position = tuple[int, int, int]

OUT_OF_BOUNDS = "out of bounds"
NEGATIVE_INDEX = "negative index"
UNINITIALISED = "uninitialised read"
RACE = "race"
RACE_BETWEEN_BLOCKS = "race between blocks"
BARRIER_DIVERGENCE = "barrier divergence"
MISSING_LANES = "missing lanes"
MISALIGNED = "misaligned access"
FLOAT64 = "float64"
DEADLOCK = "deadlock"
RAISED = "raised"

IN_A_WARP = " (cuda.syncwarp() inside a warp)"
ADVICE = {
    OUT_OF_BOUNDS: "guard the access with the array's size; a shared array must be as large as the block needs",
    NEGATIVE_INDEX: "guard the access: Numba would wrap a negative index round to the array's end",
    UNINITIALISED: "write the element before it is read; shared and local arrays start with whatever was there",
    RACE: "put cuda.syncthreads() between the two accesses" + IN_A_WARP,
    RACE_BETWEEN_BLOCKS: "let each block have elements of its own, or split the kernel in two launches",
    BARRIER_DIVERGENCE: "move the barrier to where every thread of the block reaches it, and return only after it",
    MISSING_LANES: "let every lane that the mask names reach this line, or name only those that do",
    MISALIGNED: "make the address a multiple of the access's size, or give the array alignment=16",
    FLOAT64: "write float32(0.1) for a number, float32(i) for an integer: float64 is slow on a GPU",
    DEADLOCK: "something must end the loop; blocks run one after the other here, and cannot wait for one to come",
    RAISED: "on a GPU the thread would stop without a word unless the kernel is compiled with debug=True",
}


def advice(fault: "Fault") -> str | None:
    """Return what to do about a fault; where several threads add to one element, to do it by an atomic."""
    if fault.kind not in (RACE, RACE_BETWEEN_BLOCKS):
        return ADVICE.get(fault.kind)
    if fault.file and len({party.line for party in fault.parties}) == 1:
        added = re.match(r"(\w+)\[.*?\] \+= (.*)", linecache.getline(fault.file, fault.line or 0).strip())
        if added and not re.search(rf"\b{added[1]}\b", added[2]):
            return f"let the threads add one after the other: cuda.atomic.add({added[1]}, index, value)"
        if fault.kind == RACE and all(party.action == "writes" for party in fault.parties):
            return "let each thread write an element of its own, or one thread alone write this one"
    what = ADVICE[fault.kind]
    if _in_two_warps(fault):
        what = what.removesuffix(IN_A_WARP)
    return what + ", or use an atomic"


def _in_two_warps(fault: "Fault") -> bool:
    """Whether the threads are of two warps, as far as their coordinates tell: where all have y and z of 0."""
    threads = [party.thread for party in fault.parties]
    return all(t[1:] == (0, 0) for t in threads) and len({t[0] // 32 for t in threads}) > 1


@dataclass(frozen=True)
class Party:
    """One thread at one place: block and thread coordinates, and the line of the source that it was at."""

    block: Position
    thread: Position
    line: int | None
    action: str = ""  # "reads", "writes", "waits": what it was doing there
    file: str | None = None  # where this is not the fault's


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a kernel. ``parties`` are the thread that met it and, for a race, the other."""

    kind: str  # one of the constants above
    message: str  # one sentence: which array and index, or which barrier
    kernel: str
    file: str | None
    parties: tuple[Party, ...] = ()
    array: str | None = None
    index: tuple[int, ...] | None = None

    @property
    def line(self) -> int | None:
        """The line of the source that was being run."""
        return self.parties[0].line if self.parties else None

    def __str__(self) -> str:
        place = _place(self.file, self.line)
        lines = [f"{self.kind} in kernel {self.kernel}, {place}: {self.message}"]
        lines += picture(self)
        if (what := advice(self)) is not None:
            lines.append(f"  what to do: {what}")
        return "\n".join(lines)


def _place(file: str | None, line: int | None) -> str:
    """Return where a line is; a notebook's cell is a file whose name nobody knows."""
    if not file or not line:
        return "unknown line"
    return f"line {line} of its cell" if of_a_cell(file) else f"{Path(file).name}:{line}"


def of_a_cell(file: str) -> bool:
    """Whether a file is a notebook's cell, whose name nobody knows.

    >>> of_a_cell("/tmp/ipykernel_12/3564356898.py"), of_a_cell("/home/ipykernel_users/add.py")
    (True, False)
    """
    return re.search(r"ipykernel_\d+[/\\]", file) is not None


class KernelFaults(UserError):  # noqa: N818  (it carries any number of them)
    """A kernel did what it must not do. ``faults`` has each distinct one; the message shows them all."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = tuple(faults)
        head = "" if len(faults) == 1 else f"{len(faults)} faults\n"
        super().__init__(head + "\n\n".join(str(fault) for fault in faults))


class UnsupportedError(UserError):
    """A kernel uses something that the runner does not know. The message names it and its line."""


AROUND = 2  # lines of source shown above and below those that matter


def picture(fault: Fault) -> list[str]:
    """Return the threads that met, one above the other and the one that came first on top, and their lines of source.

    Two threads have the numbers 1 and 2, which also mark their lines; a single one marks its line with ``>``.
    """
    parties = list(reversed(fault.parties))
    marks = [">"] if len(parties) == 1 else [str(n + 1) for n in range(len(parties))]
    lines = [
        f"  {mark} block {party.block}, thread {party.thread} {party.action}".rstrip()
        for mark, party in zip(marks, parties, strict=True)
    ]
    marked: dict[str, dict[int, str]] = {}
    for mark, party in zip(marks, parties, strict=True):
        file = party.file or fault.file
        if file and party.line and linecache.getline(file, party.line):
            at = marked.setdefault(file, {})
            at[party.line] = f"{at.get(party.line, '')} {mark}".strip()
    for file, at in marked.items():
        if len(marked) > 1:
            lines.append(f"  {Path(file).name}")
        lines += listing(file, at)
    return lines


def listing(file: str, marks: dict[int, str]) -> list[str]:
    """Return the lines of ``file`` around those in ``marks``, numbered and marked; ``...`` where some are left out."""
    near = {n for line in marks for n in range(line - AROUND, line + AROUND + 1)}
    shown = [(n, text.rstrip()) for n in sorted(near) if (text := linecache.getline(file, n))]
    while shown and not shown[0][1]:
        shown.pop(0)
    while shown and not shown[-1][1]:
        shown.pop()
    indent = min((len(text) - len(text.lstrip()) for _, text in shown if text), default=0)
    lines, before = [], None
    for number, text in shown:
        if before is not None and number > before + 1:
            lines.append("            ...")
        lines.append(f"  {marks.get(number, ''):<3} {number:>5} | {text[indent:]}".rstrip())
        before = number
    return lines
