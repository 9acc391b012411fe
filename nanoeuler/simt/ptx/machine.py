"""The state of a running grid: registers, memories, who the lanes are, and how a fault of one of them is told.

A lane is one CUDA thread. Lanes are numbered block after block, and inside a block by their linear thread index.
Registers are arrays that are never changed in place: a write makes a new one, so several names may share an array, and
a value that is the same in every lane is kept as one element.
"""

from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from nanoeuler.simt.faults import Fault, KernelFaults, Party, Position
from nanoeuler.simt.launch import WARP_SIZE, Launch, coordinates
from nanoeuler.simt.ptx.kinds import Array, Registers
from nanoeuler.simt.ptx.memory import Memory
from nanoeuler.simt.ptx.program import Instruction, Location, Register


@dataclass
class PendingCopy:
    """One ``cp.async``: for each lane, the group it belongs to, where the bytes go, and the bytes."""

    lane: Array
    group: Array
    places: Array
    data: Array  # (lanes, bytes)


@dataclass
class Machine:
    """All that the instructions of one group of blocks work on."""

    kernel: str
    launch: Launch
    first_block: int
    blocks: int
    registers: Registers
    parameters: bytes
    spaces: dict[str, Memory]
    shared_bytes: int
    n: int = field(init=False)
    lane: Array = field(init=False)  # 0 to 31 in the warp
    thread: Array = field(init=False)  # linear index in the block
    block: Array = field(init=False)  # 0-based in this group
    warp: Array = field(init=False)  # number of the lane's warp in this group
    warps: int = field(init=False)
    slot: Array | None = field(init=False)  # the lane's place where every warp has 32; None where all are full
    turn: Array | None = field(init=False)  # lanes in the order in which they take their turns; None: as numbered
    steps: int = 0
    polls: int = 0  # atomics and volatile loads since the scheduler last looked
    copies: list[PendingCopy] = field(default_factory=list)
    commits: Array = field(init=False)  # groups of cp.async that each lane has committed

    def __post_init__(self) -> None:
        threads = self.launch.block_threads
        self.n = self.blocks * threads
        lanes = np.arange(self.n)
        self.thread, self.block = lanes % threads, lanes // threads
        self.lane = self.thread % WARP_SIZE
        warps_per_block = -(-threads // WARP_SIZE)
        self.warps = self.blocks * warps_per_block
        slot = self.block * (warps_per_block * WARP_SIZE) + self.thread
        self.slot = None if threads % WARP_SIZE == 0 else slot
        self.warp = slot // WARP_SIZE
        self.turn = self._turn()
        self.commits = np.zeros(self.n, np.int64)

    def _turn(self) -> Array | None:
        if self.launch.order == "forward":
            return None
        if self.launch.order == "reverse":
            return np.arange(self.n)[::-1]
        return np.random.default_rng((self.launch.seed, self.first_block)).permutation(self.n)

    def write(self, register: Register, value: Array, lanes: "Lanes") -> None:
        """Set ``register`` in ``lanes``. ``value``: one element, or one per lane of the machine."""
        old = self.registers[register.index]
        self.registers[register.index] = value if lanes.keep is None else np.where(lanes.keep, value, old)

    def scatter(self, register: Register, value: Array, lanes: "Lanes") -> None:
        """Set ``register`` in ``lanes``. ``value``: one element, or one per lane of ``lanes`` in their order."""
        if lanes.index is None or (value.size == 1 and self.n > 1):
            self.write(register, value, lanes)
            return
        if lanes.keep is None:
            whole = np.empty(self.n, register.dtype)
        else:
            whole = np.broadcast_to(self.registers[register.index], (self.n,)).copy()
        whole[lanes.index] = value
        self.registers[register.index] = whole

    def to_warps(self, value: Array, fill: Any = 0) -> Array:
        """Return ``value`` as (warps, 32); places of warps that are not full hold ``fill``."""
        value = np.broadcast_to(value, (self.n,))
        if self.slot is None:
            return value.reshape(self.warps, WARP_SIZE)
        whole = np.full(self.warps * WARP_SIZE, fill, value.dtype)
        whole[self.slot] = value
        return whole.reshape(self.warps, WARP_SIZE)

    def from_warps(self, value: Array) -> Array:
        """Return ``value``, (warps, 32), as one element per lane."""
        return value.reshape(-1) if self.slot is None else value.reshape(-1)[self.slot]

    def position(self, lane: int) -> tuple[Position, Position]:
        """Return the block and thread coordinates of ``lane``."""
        block = coordinates(self.first_block + int(self.block[lane]), self.launch.grid)
        return block, coordinates(int(self.thread[lane]), self.launch.block)

    def party(self, lane: int, location: Location | None, action: str) -> Party:
        """Return ``lane`` at ``location`` as a fault's party."""
        return Party(*self.position(lane), location.line if location else None, action)

    def fault(
        self,
        kind: str,
        message: str,
        instruction: Instruction,
        lane: int,
        action: str = "",
        array: str | None = None,
        index: tuple[int, ...] | None = None,
        other: Party | None = None,
    ) -> NoReturn:
        """Raise the fault that ``lane`` met at ``instruction``.

        Raises:
            KernelFaults: always.
        """
        location = instruction.location
        if location and location.caller:
            message += f" (in code inlined from line {location.caller.line})"
        parties = (self.party(lane, location, action), *((other,) if other else ()))
        file = location.file if location else None
        raise KernelFaults([Fault(kind, message, self.kernel, file, parties, array, index)])


class Lanes:
    """The lanes that run an instruction together.

    ``mask`` marks them (None: every lane of the machine), ``keep`` too, but is None also where all other lanes have
    returned, whose registers need not be kept. ``index`` numbers them in the order of their turns; None: 0 to n - 1.
    """

    def __init__(self, machine: Machine, mask: Array | None, keep: Array | None, count: int) -> None:
        self.machine = machine
        self.mask = mask
        self.keep = keep
        self.count = count
        self._index: Array | None = machine.turn if mask is None else None

    @property
    def index(self) -> Array | None:
        """The numbers of these lanes in the order of their turns."""
        if self._index is None and self.mask is not None:
            turn = self.machine.turn
            self._index = np.flatnonzero(self.mask) if turn is None else turn[self.mask[turn]]
        return self._index

    @property
    def numbers(self) -> Array:
        """The numbers of these lanes, always as an array."""
        return np.arange(self.machine.n) if self.index is None else self.index

    def chosen(self, predicate: Array) -> "Lanes | None":
        """Return those lanes for which ``predicate`` holds; None if there are none."""
        if predicate.size == 1 and self.machine.n > 1:
            return self if predicate[0] else None
        mask = predicate if self.mask is None else predicate & self.mask
        count = int(np.count_nonzero(mask))
        if count == self.count:
            return self
        return Lanes(self.machine, mask, mask, count) if count else None

    def pick(self, value: Array) -> Array:
        """Return ``value`` for these lanes, in the order of their turns; one element stays one."""
        return value if self.index is None or (value.size == 1 and self.machine.n > 1) else value[self.index]

    def each(self, value: Array) -> Array:
        """Return ``value`` for these lanes, in the order of their turns, one element per lane."""
        return np.broadcast_to(self.pick(value), (self.count,))
