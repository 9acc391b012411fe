"""What a traced launch did: the records in order, and the warp instructions that they belong to."""

import functools
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nanoeuler.errors import UserError, nearest
from nanoeuler.simt.faults import Fault, Position
from nanoeuler.simt.launch import WARP_SIZE, Launch, coordinates, number_of
from nanoeuler.simt.source import Source
from nanoeuler.simt.traced.recorder import (
    ACCESS,
    VISIT,
    BasicBlock,
    Instruction,
    Recorder,
    TracedArray,
    Variable,
    Wait,
    in_bits,
)

if TYPE_CHECKING:
    from nanoeuler.simt.traced.cards import Roofline
    from nanoeuler.simt.traced.numbers import LineNumbers, Numbers
    from nanoeuler.simt.traced.pictures.choice import Index, Line
    from nanoeuler.simt.traced.pictures.picture import Picture
    from nanoeuler.simt.traced.pictures.users import By

ACTIONS = ("reads", "writes", "atomically updates")  # by the kind of an access


@dataclass(frozen=True)
class Access:
    """One access of one thread; an atomic's ``value`` is what it left in memory."""

    block: Position
    thread: Position
    file: str
    line: int
    text: str
    action: str  # "reads", "writes", "atomically updates"
    array: str
    index: tuple[int, ...]
    value: Any

    def __str__(self) -> str:
        where = ", ".join(map(str, self.index))
        sign = "==" if self.action == "reads" else "="
        return f"line {self.line}: thread {self.thread} {self.action} {self.array}[{where}] {sign} {self.value}"


@dataclass(frozen=True)
class WarpInstructions:
    """The warp instructions of a launch, each by its block, warp, execution and instruction: arrays of one length.

    ``of_access`` (accesses,) is the one that each access is part of.
    """

    of_access: np.ndarray
    block: np.ndarray
    warp: np.ndarray
    execution: np.ndarray
    instruction: np.ndarray

    def __len__(self) -> int:
        return len(self.block)


class Trace:
    """What happened in a launch.

    Attributes:
        kernel: its name.
        file: where its source stands.
        first_line, last_line: where in the file.
        launch: grid, block and order.
        faults: what is wrong with the kernel; what the trace shows of a faulty one may not be what a GPU does.
        arrays: what the kernel was given or made: :class:`TracedArray`, by number.
        instructions: places in the source that access memory or wait: :class:`Instruction`, by number.
        basic_blocks: :class:`BasicBlock`, by number.
        executions: (parent, basic block, turn) of each execution by number, the first a placeholder. The turn of a
            loop's body is 2 n + 1 in round n, that of the test of a ``while`` before it 2 n.
        accesses: a record for each access, of dtype ``ACCESS``: numbers of block, thread (within the block), execution,
            instruction and array; kind (0 read, 1 write, 2 atomic); dtype of the value (see ``values``); offset in
            bytes within the array's memory; bits of the value. In the order in which they happened here.
        visits: a record for each thread that came to an execution, of dtype ``VISIT``.
        waits: each thread at each barrier and warp operation: :class:`Wait`. ``activemask`` waits for nobody.
        variables: each assignment, where it was asked for: :class:`Variable`.
        operations: how often threads computed, by (file, line, operator or function) and type of NumPy scalars.
        blocks: numbers of the blocks that ran.
        warps: numbers of the warps recorded, None for all.
        lines: those on which accesses are recorded, None for all.
        dtypes: types of accesses' values, by number.
    """

    def __init__(self, source: Source, launch: Launch, recorder: Recorder, faults: tuple[Fault, ...]) -> None:
        self.source, self.launch, self.faults = source, launch, faults
        self.kernel, self.file, self.function = source.name, source.file, source.function
        self.first_line, self.last_line = source.lines[0], source.lines[-1]
        self.arrays: list[TracedArray] = recorder.arrays
        self.instructions: list[Instruction] = recorder.instructions
        self.basic_blocks: list[BasicBlock] = recorder.basic_blocks
        self.executions: list[tuple[int, int, int]] = [(0, 0, 0), *recorder.executions]
        self.accesses = np.concatenate([np.empty(0, ACCESS), *recorder.chunks])
        self.visits = np.concatenate([np.empty(0, VISIT), *recorder.visit_chunks])
        self.waits: list[Wait] = recorder.waits
        self.variables: list[Variable] = recorder.assigned
        self.operations = {key: dict(tally) for key, tally in recorder.operations.items() if tally}
        self.blocks = tuple(sorted(range(launch.blocks) if recorder.blocks is None else recorder.blocks))
        self.warps = recorder.warps
        self.lines = recorder.lines
        self.dtypes: list[np.dtype] = recorder.dtypes

    # Order: that of the program, in which the lanes of a warp go together

    @functools.cached_property
    def execution_keys(self) -> list[tuple[int, ...]]:
        """For each execution what sorts it: the turns of the basic blocks around it, outermost first."""
        keys: list[tuple[int, ...]] = [()]
        for parent, block, turn in self.executions[1:]:
            keys.append((*keys[parent], self.basic_blocks[block].order, turn))
        return keys

    def key(self, execution: int, order: int) -> tuple[int, ...]:
        """Return what sorts a statement or instruction, by its ``order``, within an execution among all others."""
        return (*self.execution_keys[execution], order)

    @functools.cached_property
    def ranks(self) -> np.ndarray:
        """The place of each access in program order, int64: equal for lanes at one instruction of one execution."""
        pairs = self.accesses["execution"].astype(np.int64) << 32 | self.accesses["instruction"]
        unique, which = np.unique(pairs, return_inverse=True)
        keys = [self.key(int(p >> 32), self.instructions[int(p & 0xFFFFFFFF)].order) for p in unique]
        rank = np.empty(len(unique), np.int64)
        rank[sorted(range(len(unique)), key=keys.__getitem__)] = np.arange(len(unique))
        return rank[which]

    @functools.cached_property
    def repetitions(self) -> np.ndarray:
        """How often the thread has done the same instruction before in the same execution: slices, vectors. int64."""
        a = self.accesses
        order = np.lexsort((a["instruction"], a["execution"], a["thread"], a["block"]))
        same = np.ones(len(a), np.bool_)
        same[:1] = False
        for name in ("instruction", "execution", "thread", "block"):
            values = a[name][order]
            same[1:] &= values[1:] == values[:-1]
        starts = np.where(~same, np.arange(len(a)), 0)
        found = np.empty(len(a), np.int64)
        found[order] = np.arange(len(a)) - np.maximum.accumulate(starts)
        return found

    @functools.cached_property
    def warp_instructions(self) -> WarpInstructions:
        """The accesses gathered: lanes of a warp at one instruction of one execution. By block, warp, program."""
        a = self.accesses
        columns = (self.repetitions, self.ranks, a["thread"] // WARP_SIZE, a["block"])
        order = np.lexsort(columns)
        new = np.zeros(len(a), np.bool_)
        new[:1] = True
        for column in columns:
            new[1:] |= column[order][1:] != column[order][:-1]
        of_access = np.empty(len(a), np.int64)
        of_access[order] = np.cumsum(new) - 1
        first = a[order[new]]
        parts = first["block"], first["thread"] // WARP_SIZE, first["execution"], first["instruction"]
        return WarpInstructions(of_access, *parts)

    # Single records

    def values(self, records: np.ndarray) -> list[Any]:
        """Return the values of some of ``accesses``, as NumPy scalars."""
        found: list[Any] = [None] * len(records)
        for code in np.unique(records["dtype"]):
            at = np.flatnonzero(records["dtype"] == code)
            dtype = in_bits(self.dtypes[code])
            bits = records["bits"][at].astype(f"u{dtype.itemsize}")
            for place, value in zip(at, bits.view(dtype), strict=True):
                found[place] = value
        return found

    def select(
        self,
        *,
        array: str | int | None = None,
        line: int | None = None,
        file: str | None = None,
        thread: int | tuple[int, ...] | None = None,
        block: int | tuple[int, ...] | None = None,
        warp: int | None = None,
        kind: int | None = None,
    ) -> np.ndarray:
        """Return which accesses fit, (accesses,) bool. Threads and blocks by number or index, arrays by name or number.

        ``line`` is one of the kernel's file, unless another ``file`` is named.

        Raises:
            UserError: there is no such array, thread or block.
        """
        a = self.accesses
        fits = np.ones(len(a), np.bool_)
        if array is not None:
            fits &= np.isin(a["array"], [found.number for found in self.named(array)])
        if line is not None:
            there = (file or self.file), line
            fits &= np.isin(a["instruction"], [i.number for i in self.instructions if (i.file, i.line) == there])
        if thread is not None:
            fits &= a["thread"] == number_of(thread, self.launch.block, "thread")
        if block is not None:
            fits &= a["block"] == number_of(block, self.launch.grid, "block")
        if warp is not None:
            fits &= a["thread"] // WARP_SIZE == warp
        if kind is not None:
            fits &= a["kind"] == kind
        return fits

    def named(self, array: str | int) -> list[TracedArray]:
        """Return the arrays of a name; several places in the source may make one of the same name.

        Raises:
            UserError: there is none.
        """
        found = [a for a in self.arrays if array in (a.name, a.number)]
        if not found:
            names = list(dict.fromkeys(a.name for a in self.arrays))
            raise UserError(f"no array '{array}'{nearest(str(array), names)}; {self.kernel} has {', '.join(names)}")
        return found

    def events(self, **which: Any) -> Iterator[Access]:
        """Yield accesses that ``select`` finds, in program order."""
        fits = np.flatnonzero(self.select(**which))
        a = self.accesses
        order = fits[np.lexsort((self.repetitions[fits], a["thread"][fits], self.ranks[fits], a["block"][fits]))]
        records = a[order]
        for record, value in zip(records, self.values(records), strict=True):
            array, instruction = self.arrays[record["array"]], self.instructions[record["instruction"]]
            yield Access(
                coordinates(int(record["block"]), self.launch.grid),
                coordinates(int(record["thread"]), self.launch.block),
                *(instruction.file, instruction.line, instruction.text, ACTIONS[record["kind"]], array.name),
                tuple(map(int, array.index(record["offset"][None])[0])),
                value,
            )

    # Numbers and pictures

    @functools.cached_property
    def numbers(self) -> "Numbers":
        """What can be counted, by line, by array and in all: :class:`~nanoeuler.simt.traced.numbers.Numbers`."""
        from nanoeuler.simt.traced.numbers import numbers

        return numbers(self)

    def line(self, number: int, file: str | None = None) -> "LineNumbers":
        """Return what can be counted on a line of the kernel's file, or of another.

        Raises:
            UserError: no thread came to that line.
        """
        found = self.numbers.lines.get((file or self.file, number))
        if found is None:
            lines = sorted(n for f, n in self.numbers.lines if f == (file or self.file))
            raise UserError(f"nothing was done on line {number}; lines on which something was: {lines}")
        return found

    def report(self, card: str | None = None) -> str:
        """Return the numbers beside the source, in words; ``print(trace)`` shows the same.

        With the name of a card in :data:`nanoeuler.simt.CARDS` it tells what that card would make of the kernel.

        Raises:
            UserError: there is no such card.
        """
        from nanoeuler.simt.traced.report import report

        return report(self, card)

    def __str__(self) -> str:
        return self.report()

    def _repr_html_(self) -> str:
        from nanoeuler.simt.traced.page import notebook

        return notebook(self)

    def __repr__(self) -> str:
        return f"<Trace of {self.kernel}: {len(self.accesses):,} accesses, {len(self.faults)} faults>"

    def roofline(self, card: str) -> "Roofline":
        """Return where the kernel lies under the roof of a card.

        Raises:
            UserError: there is no such card.
        """
        from nanoeuler.simt.traced.cards import roofline

        return roofline(self, card)

    def grid(
        self,
        array: str | int,
        *,
        by: "By" = "thread",
        kind: str | None = None,
        line: "Line | None" = None,
        block: "Index | None" = None,
        part: Any = None,
        tooltips: bool | None = None,
    ) -> "Picture":
        """Draw an array, coloured by who touches each element; by who writes and by who reads, where they are others.

        ``by`` "thread", "lane", "warp", "block" or "count"; ``kind`` "reads", "writes", "atomics" or, in one grid,
        "all"; ``part`` an index, ``np.s_[:8, :8]``; ``tooltips`` for each element even where there are many. More:
        ``help(nanoeuler.simt.traced.pictures.grid)``.

        Raises:
            UserError: there is no such array, line or block, or the array is too large to be drawn whole.
        """
        from nanoeuler.simt.traced.pictures.grid import grid

        return grid(self, array, by=by, kind=kind, line=line, block=block, part=part, tooltips=tooltips)

    def animation(
        self,
        array: str | int,
        *,
        by: "By" = "thread",
        kind: str | None = None,
        line: "Line | None" = None,
        block: "Index | None" = None,
        part: Any = None,
    ) -> "Picture":
        """Draw an array over the steps of the launch. Parameters and errors are those of ``grid``."""
        from nanoeuler.simt.traced.pictures.animation import animation

        return animation(self, array, by=by, kind=kind, line=line, block=block, part=part)

    def sectors(
        self,
        line: "Line",
        *,
        warp: int | None = None,
        block: "Index | None" = None,
        nth: int = 0,
        array: str | int | None = None,
    ) -> "Picture":
        """Draw which bytes of global memory a warp asks for on a line, and which sectors of 32 bytes that takes.

        It is the first warp that comes there, of the first block, the ``nth`` time, unless others are named; of an
        ``array`` only, where the line has several accesses.

        Raises:
            UserError: the line has no access to global memory, or not by this warp, or not so often.
        """
        from nanoeuler.simt.traced.pictures.sectors import sectors

        return sectors(self, line, warp=warp, block=block, nth=nth, array=array)

    def banks(
        self,
        line: "Line",
        *,
        warp: int | None = None,
        block: "Index | None" = None,
        nth: int = 0,
        array: str | int | None = None,
    ) -> "Picture":
        """Draw which words of shared memory a warp wants on a line, bank by bank. Parameters are those of ``sectors``.

        Raises:
            UserError: the line has no access to shared memory, or not by this warp, or not so often.
        """
        from nanoeuler.simt.traced.pictures.banks import banks

        return banks(self, line, warp=warp, block=block, nth=nth, array=array)

    def timeline(self, block: "Index | None" = None) -> "Picture":
        """Draw who runs and who waits at barriers, in a block: the first unless another is named.

        Raises:
            UserError: there is no such block, or it was not traced.
        """
        from nanoeuler.simt.traced.pictures.timeline import timeline

        return timeline(self, block)

    def save(self, path: str | Path, *, card: str | None = None) -> None:
        """Write one page to open in a browser: numbers by the source, pictures, and the launch to step through.

        The launch can be stepped through where it was traced with ``variables=True``. With the name of a card the page
        has its roofline. The file is written whole or not at all.

        Raises:
            UserError: there is no such card, or the file cannot be written.
        """
        from nanoeuler.simt.traced.page import save_page

        save_page(Path(path), self, title=self.kernel, card=card)

    def source_line(self, line: int, file: str | None = None) -> str:
        """Return a line of source, without its end."""
        return linecache.getline(file or self.file, line).rstrip()
