"""What a traced launch writes down while it runs: accesses, waits, arithmetic, and which lanes came where.

A thread's way through a kernel is told by *executions* of basic blocks: the body of a loop in its third round, inside
the second call of a function, is one execution, whichever thread comes there. Lanes of a warp that are in the same
execution are those that a GPU runs together, if lanes that part at a branch meet again behind it. So the lanes of one
*warp instruction* are those with the same execution and the same place in the source, though here they came there one
after the other.

Accesses and visits are kept in NumPy arrays, 34 and 12 bytes each; the number of all records is limited.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.simt.checked.accesses import load
from nanoeuler.simt.checked.block import Block, Body, Thread, shuffle_source
from nanoeuler.simt.checked.memory import View
from nanoeuler.simt.checked.races import READS, UPDATES, WRITES, Place

READ, WRITE, ATOMIC = 0, 1, 2  # what an access does
KINDS = {READS: READ, WRITES: WRITE, UPDATES: ATOMIC}
_FIELDS = {
    **{"block": "u4", "thread": "u4", "execution": "u4", "instruction": "u4", "array": "u2"},
    **{"kind": "u1", "dtype": "u1", "offset": "i8", "bits": "u8"},
}
ACCESS = np.dtype(list(_FIELDS.items()))
VISIT = np.dtype([("block", "u4"), ("thread", "u4"), ("execution", "u4")])
DYNAMIC = -1 << 32  # stands for a block's dynamic shared memory among the memories of a launch
CHUNK = 1 << 15  # records that are kept as Python objects before they become an array
ALIGNMENT = 256  # where cudaMalloc's memory starts (CUDA C++ Programming Guide, "Device Memory Accesses")


CHOOSE = "choose less of the launch (blocks=0 is its first block; warps=, lines=), give smaller arrays, or raise limit="


class TooLongError(UserError):
    """A trace has become longer than was allowed."""


@dataclass(frozen=True)
class Instruction:
    """A place in the source where memory is accessed or a thread waits; ``order`` is its turn in its function."""

    number: int
    file: str
    line: int
    column: int
    text: str  # as it stands in the source: ``tile[row, k]``
    order: int
    block: int  # the basic block that it is part of


@dataclass(frozen=True)
class Statement:
    """A statement of a basic block; of a compound one only its head counts."""

    line: int
    order: int


@dataclass
class BasicBlock:
    """Statements that run one after the other: nothing branches between them, but for conditional expressions."""

    number: int
    file: str
    function: str
    kind: str  # "function", "call" (around it, at its place), "if", "else", "loop", "test" (of a while), "after"
    order: int  # its turn among what is in the block around it
    statements: list[Statement] = field(default_factory=list)


@dataclass(frozen=True)
class TracedArray:
    """An array that a kernel was given, or made.

    ``lead`` is the offset in bytes of its first element in its memory, that of (i, j) lies at ``lead + i * strides[0] +
    j * strides[1]``. Arrays with the same ``memory`` may overlap. The memory itself starts ``past`` bytes behind a
    multiple of 256: behind 0 but where a launch is given a slice, ``x[1:]``.
    """

    number: int
    name: str
    scope: str  # "global", "shared", "local", "constant"
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    lead: int
    memory: int
    past: int
    initial: np.ndarray | None = field(repr=False)  # a global array's contents before the launch

    def index(self, offsets: np.ndarray) -> np.ndarray:
        """Return the index of the elements at ``offsets`` (n,) int64, as (n, axes) int64."""
        rest = np.asarray(offsets, np.int64) - self.lead
        rest -= sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True) if step < 0)
        found = np.zeros((len(rest), len(self.shape)), np.int64)
        for axis in sorted(range(len(self.shape)), key=lambda a: -abs(self.strides[a])):
            size, step = self.shape[axis], self.strides[axis]
            if step == 0 or size <= 1:
                continue
            steps, rest = np.divmod(rest, abs(step))
            found[:, axis] = steps if step > 0 else size - 1 - steps  # its far end comes first in memory
        return found


@dataclass(frozen=True, slots=True)
class Wait:
    """One thread at a barrier or a warp operation. ``phase`` counts the block's barriers before it."""

    block: int
    thread: int
    execution: int
    instruction: int
    operation: str
    phase: int
    passed: bool  # False where it waited in vain
    given: Any = None  # what it put into a shuffle or vote
    got: Any = None
    source: int | None = None  # the lane that a shuffle read from


@dataclass(frozen=True, slots=True)
class Variable:
    """What a thread assigned to a local variable."""

    block: int
    thread: int
    execution: int
    order: int
    name: str
    value: Any


class InstructionPlace(tuple):
    """File and line of an instruction, equal to those of any other, with its number; -1 where it is not recorded."""

    number: int


class TracedThread(Thread):
    """A thread that knows in which execution it is."""

    def __init__(self, block: "TracedBlock", number: int) -> None:
        super().__init__(block, number)
        self.recorder = block.recorder
        self.chosen = block.recorder.chosen(number)
        self.execution = 0
        self.callers: list[int] = []

    def enter(self, block: int, parent: int, turn: int) -> int:
        """Begin a basic block, at its ``turn`` in a loop; return the execution, which is never 0."""
        recorder = self.recorder
        key = parent, block, turn
        self.execution = number = recorder.executions.get(key) or recorder.execution(key)
        recorder.visits.append((self.number, number))
        return number

    def elements(self, values: Any, place: Place, block: int, parent: int) -> Any:
        """Return what a loop with the body ``block`` runs over; elements of an array are loaded in their rounds."""
        return self.loaded(values, place, block, parent) if isinstance(values, View) else values

    def loaded(self, values: View, place: Place, block: int, parent: int) -> Iterator[Any]:
        """Yield the elements of an array, each loaded in the execution of the round that it is for."""
        executions = self.recorder.executions
        for n in range(len(values)):
            key = parent, block, 2 * n + 1
            self.execution = executions.get(key) or self.recorder.execution(key)
            yield load(values, np.int64(n), place)

    def into(self, block: int) -> dict[str, Any]:
        """Begin a call; return the further arguments, none, that stand behind its own and so come after them."""
        self.callers.append(self.execution)
        self.enter(block, self.execution, 0)
        return {}

    def left(self, value: Any) -> Any:
        """End a call; return its result."""
        self.execution = self.callers.pop()
        return value

    def assigned(self, order: int, name: str, value: Any) -> None:
        """Take down what a variable is now."""
        shown = value if not isinstance(value, View) else f"{value.name}: {value.dtype}{list(value.sizes)}"
        self.recorder.variable(Variable(self.block.number, self.number, self.execution, order, name, shown))


class TracedBlock(Block):
    """A block whose chosen threads are recorded."""

    recorder: "Recorder"

    def __init__(self, launch: Any, number: int, phase: int, monitor: Any, *more: Any) -> None:
        self.recorder = monitor.recorder
        self.start = phase
        super().__init__(launch, number, phase, monitor, *more)

    def thread(self, number: int) -> Thread:
        """Return one of the block's threads, before its start."""
        return TracedThread(self, number)

    def run(self, body: Body, arguments: tuple, blocks: bool) -> int:
        """Run all threads to their end, and keep what was recorded even where the launch ends in a fault."""
        self.recorder.begin(self.number)
        try:
            phase = super().run(body, arguments, blocks)
        finally:
            for thread in self.alive:
                if thread.waits is not None:
                    self.note(thread, passed=False)
            self.recorder.flush()
        self.recorder.foresee(self.launch.blocks)
        return phase

    def step(self, thread: Thread, go: Callable[[Thread], Any]) -> Any:
        """Let one thread run until it waits or ends."""
        assert isinstance(thread, TracedThread)
        self.recorder.current = thread if thread.chosen else None
        try:
            waits = super().step(thread, go)
        finally:
            self.recorder.current = None
        self.recorder.relieve()
        return waits

    def pass_barrier(self) -> None:
        """Let all threads pass the barrier at which they stand."""
        waiting = [(thread, thread.waits) for thread in self.alive]
        super().pass_barrier()
        for thread, wait in waiting:
            self.note(thread, wait=wait, phase=self.phase - 1, got=thread.reply)

    def exchange(self, group: list[Thread]) -> None:
        """Do one warp operation."""
        waiting = [(thread, thread.waits) for thread in group]
        super().exchange(group)
        for thread, wait in waiting:
            self.note(thread, wait=wait, got=thread.reply)

    def note(
        self, thread: Any, *, wait: Any = None, passed: bool = True, phase: int | None = None, got: Any = None
    ) -> None:
        """Take down a wait of one thread: the one that it is at, or ``wait``."""
        operation, place, _, operands = wait or thread.waits
        if not thread.chosen or getattr(place, "number", -1) < 0 or operation == "pause":
            return
        given = operands[-2] if operation.startswith("shfl") else operands[-1] if operands else None
        source = shuffle_source(operation, thread.lane, operands[-1]) if operation.startswith("shfl") else None
        phase = (self.phase if phase is None else phase) - self.start
        self.recorder.wait(
            Wait(
                self.number, thread.number, thread.execution, place.number, operation, phase, passed, given, got, source
            )
        )


class Recorder:
    """Takes down one launch. ``blocks`` and ``warps`` are numbers, ``lines`` of the kernel's file; None: all."""

    block = TracedBlock

    def __init__(
        self,
        blocks: frozenset[int] | None = None,
        warps: frozenset[int] | None = None,
        lines: frozenset[int] | None = None,
        *,
        variables: bool = False,
        limit: int = 4_000_000,
    ) -> None:
        self.blocks, self.warps, self.lines, self.variables, self.limit = blocks, warps, lines, variables, limit
        self.instructions: list[Instruction] = []
        self.basic_blocks: list[BasicBlock] = []
        self.executions: dict[tuple[int, int, int], int] = {}
        self.arrays: list[TracedArray] = []
        self.operations: dict[tuple[str, int, str], dict[type, int]] = defaultdict(
            lambda: defaultdict(int)
        )  # file, line, name
        self.waits: list[Wait] = []
        self.assigned: list[Variable] = []
        self.file = ""
        self.visits: list[tuple[int, int]] = []
        self.current: TracedThread | None = None
        self.dtypes: list[np.dtype] = []
        self.chunks: list[np.ndarray] = []
        self.visit_chunks: list[np.ndarray] = []
        self.count = self.running = self.blocks_done = 0
        self._known: dict[tuple, int] = {}
        self._memories: dict[int, int] = {}
        self._buffer: list[tuple] = []  # thread, execution, instruction, array, action, offset, value

    # What is recorded

    def chosen(self, thread: int) -> bool:
        """Whether a thread of a block is recorded."""
        return self.warps is None or thread // 32 in self.warps

    def watching(self, source: Any, casts: Any, plain: Body) -> Body:
        """Return the body of a kernel: recorded for chosen threads, and ``plain`` for the others."""
        from nanoeuler.simt.checked.translate import made
        from nanoeuler.simt.traced.translate import TracedWriter

        self.file = source.file
        traced = made(source, casts, {}, lambda source, casts: TracedWriter(source, casts, self))

        def body(thread: Any, *arguments: Any) -> Any:
            return (traced if thread.chosen else plain)(thread, *arguments)

        return body

    # Records

    def begin(self, block: int) -> None:
        """Begin a block of the launch."""
        self.running = block

    def execution(self, key: tuple[int, int, int]) -> int:
        """Return the number of an execution (parent, basic block, round) that no thread has come to before."""
        self.executions[key] = number = len(self.executions) + 1
        self.relieve()
        return number

    def relieve(self) -> None:
        """Make arrays of what was taken down if that is much: a thread may go on and on without an access."""
        if len(self.visits) > CHUNK:
            self.flush()

    def access(self, view: View, offset: int, place: Place, action: str, value: Any) -> None:
        """Take down an access of the running thread."""
        thread = self.current
        if thread is None:
            return
        number = getattr(place, "number", -1)
        if number >= 0:
            self._buffer.append((thread.number, thread.execution, number, view.traced, action, offset, value))
            if len(self._buffer) >= CHUNK:
                self.flush()

    def wait(self, wait: Wait) -> None:
        """Take down a wait."""
        self.waits.append(wait)
        self._counted(1)

    def variable(self, variable: Variable) -> None:
        """Take down an assignment."""
        self.assigned.append(variable)
        self._counted(1)

    def _counted(self, more: int) -> None:
        self.count += more
        if self.count > self.limit:
            raise TooLongError(f"the trace has more than {self.limit:,} records: {CHOOSE}")

    def foresee(self, blocks: int) -> None:
        """Give up after the first block, not after minutes, where all of them would make far more than is allowed."""
        self.blocks_done += 1
        expected = self.count * (blocks if self.blocks is None else len(self.blocks))
        if self.blocks_done == 1 and expected > 2 * self.limit:
            raise TooLongError(
                f"the first block makes {self.count:,} records, so all would make about {expected:,}; the limit is "
                f"{self.limit:,}: {CHOOSE}"
            )

    def flush(self) -> None:
        """Make arrays of what was taken down last."""
        self._counted(len(self._buffer) + len(self.visits))
        if self._buffer:
            thread, execution, instruction, array, action, offset, values = zip(*self._buffer, strict=True)
            self._buffer.clear()
            chunk = np.empty(len(thread), ACCESS)
            chunk["block"] = self.running
            chunk["thread"], chunk["execution"], chunk["instruction"] = thread, execution, instruction
            chunk["array"], chunk["kind"], chunk["offset"] = array, [KINDS[a] for a in action], offset
            chunk["dtype"], chunk["bits"] = self._encoded(values)
            self.chunks.append(chunk)
        if self.visits:
            chunk = np.empty(len(self.visits), VISIT)
            chunk["block"] = self.running
            chunk["thread"], chunk["execution"] = zip(*self.visits, strict=True)
            self.visits.clear()
            self.visit_chunks.append(chunk)

    def _encoded(self, values: tuple) -> tuple[np.ndarray, np.ndarray]:
        """Return the types of values, as numbers, and their bits."""
        kinds = list(map(type, values))
        codes, bits = np.empty(len(values), np.uint8), np.zeros(len(values), np.uint64)
        for kind in dict.fromkeys(kinds):
            at = [n for n, other in enumerate(kinds) if other is kind]
            found = np.array([values[n] for n in at])  # of dates, in the unit of the finest
            if found.dtype not in self.dtypes:
                self.dtypes.append(found.dtype)
            codes[at] = self.dtypes.index(found.dtype)
            kept = in_bits(found.dtype)
            bits[at] = found.astype(kept).view(f"u{kept.itemsize}")
        return codes, bits

    # What is known before the run

    def array(self, view: View, site: tuple, dynamic: bool) -> int:
        """Return the number of an array; those that threads or blocks make at one place have one.

        Arrays over a block's ``dynamic`` shared memory lie in the same memory.
        """
        root = view.root
        scope = "constant" if view.constant else "local" if root.private else root.scope
        given = scope == "global"
        shape = view.sizes, view.steps, view.array.dtype
        key = view.name, scope, *shape, view.offset, id(root) if scope in ("global", "constant") else site
        if key not in self._known:
            number = self._known[key] = len(self.arrays)
            place = id(root) if given else DYNAMIC if dynamic else -1 - number
            memory = self._memories.setdefault(place, len(self._memories))
            past = _past_alignment(view.array, root.address) if given else 0
            initial = view.array.copy() if scope in ("global", "constant") else None
            self.arrays.append(TracedArray(number, view.name, scope, *shape, view.offset, memory, past, initial))
        return self._known[key]

    def instruction(self, file: str, line: int, column: int, text: str, order: int, block: int) -> InstructionPlace:
        """Return the place of a new instruction, as the translated kernel hands it on."""
        place = InstructionPlace((file, line))
        place.number = -1
        if self.lines is None or (line in self.lines and file == self.file):
            place.number = len(self.instructions)
            self.instructions.append(Instruction(place.number, file, line, column, text, order, block))
        return place

    def basic_block(self, file: str, function: str, kind: str, order: int) -> BasicBlock:
        """Return a new basic block."""
        made = BasicBlock(len(self.basic_blocks), file, function, kind, order)
        self.basic_blocks.append(made)
        return made


def in_bits(dtype: np.dtype) -> np.dtype:
    """Return the type in whose 64 bits or less a value is kept: a complex128 becomes a complex64."""
    return np.dtype(np.complex64) if dtype == np.complex128 else dtype


def _past_alignment(array: np.ndarray, address: int) -> int:
    """Return how far an ``address`` in an array is behind a multiple of 256 bytes, where its owner starts at one."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return (address - owner.__array_interface__["data"][0]) % ALIGNMENT
