"""One memory space as bytes: its variables, where they lie, and which bytes have been written.

Every array argument of a launch is an allocation of its own in global memory, at addresses far from all others, so that
an index out of bounds never meets a neighbour. Shared memory is one such space per block and local memory one per lane:
all with the same layout, side by side in one buffer.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nanoeuler.simt.ptx.kinds import UNSIGNED, Array

POISON = 0xFF  # what memory holds before it is written: NaN as a float, -1 as an integer
MODULE_BASE = 1 << 39  # global address of the module's own variables
GLOBAL_BASE = 1 << 40  # of the first allocation; each further one starts a whole number of these later
SHARED_WINDOW = 0x7F00_0000_0000_0000  # generic addresses of shared and of local memory
LOCAL_WINDOW = 0x7F80_0000_0000_0000

WRITTEN, UNWRITTEN, IN_FLIGHT = 1, 0, 2  # what is known of a byte; in flight: a cp.async that was not waited for


@dataclass(frozen=True)
class Allocation:
    """Addresses ``start`` to ``end``, kept in the buffer from ``place`` on. ``owned``: its bytes, if it has holes."""

    start: int
    end: int
    place: int
    name: str
    owned: Array | None = None
    dtype: np.dtype[Any] | None = None


@dataclass
class Memory:
    """The bytes of one space. ``base`` is each lane's offset in the buffer, None for global memory."""

    space: str
    allocations: list[Allocation]
    data: Array
    written: Array | None = None
    base: Array | None = None
    starts: list[int] = field(init=False)
    ends: list[int] = field(init=False)
    shifts: Array = field(init=False)
    views: dict[np.dtype[Any], Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.starts = [allocation.start for allocation in self.allocations]
        self.ends = [allocation.end for allocation in self.allocations]
        self.shifts = np.array([allocation.place - allocation.start for allocation in self.allocations], np.int64)

    def view(self, dtype: np.dtype[Any]) -> Array:
        """Return the buffer as an array of ``dtype``."""
        view = self.views.get(dtype)
        if view is None:
            view = self.views[dtype] = self.data.view(dtype)
        return view

    def outside(self, address: Array, size: int) -> Array | None:
        """Return which of the accesses of ``size`` bytes touch memory of no variable; None if none does."""
        low = int(address.min())
        one = bisect_right(self.starts, low) - 1
        if one >= 0 and int(address.max()) + size <= self.ends[one] and self.allocations[one].owned is None:
            return None
        bad = np.ones(address.shape, np.bool_)
        for allocation in self.allocations:
            inside = (address >= allocation.start) & (address + size <= allocation.end)
            if allocation.owned is not None and inside.any():
                at = np.where(inside, address - allocation.start, 0)
                inside &= allocation.owned[at] & allocation.owned[at + (size - 1)]
            bad &= ~inside
        return bad if bad.any() else None

    def places(self, address: Array) -> Array:
        """Return where in the buffer ``address`` is, before a lane's base is added."""
        if len(self.starts) == 1:
            return address + self.shifts[0]
        one = bisect_right(self.starts, int(address.min())) - 1
        if int(address.max()) < self.ends[one]:
            return address + self.shifts[one]
        return address + self.shifts[np.searchsorted(self.starts, address, side="right") - 1]

    def nearest(self, address: int) -> Allocation | None:
        """Return the variable nearest to ``address``: the one that an index ran out of, most likely."""
        if not self.allocations:
            return None
        return min(self.allocations, key=lambda a: max(a.start - address, address - a.end + 1, 0))

    def state(self, places: Array, size: int) -> Array | None:
        """Return which reads of ``size`` bytes at ``places`` meet a byte that nothing wrote; None if none does."""
        if self.written is None:
            return None
        words = self.written.view(UNSIGNED[size])[places >> (size.bit_length() - 1)]
        every = UNSIGNED[size].type(int.from_bytes(bytes([WRITTEN]) * size, "little"))
        bad = words != every
        return bad if bad.any() else None

    def mark(self, places: Array, size: int, state: int = WRITTEN) -> None:
        """Note that ``size`` bytes at each of ``places`` are now in ``state``."""
        if self.written is not None:
            word = UNSIGNED[size].type(int.from_bytes(bytes([state]) * size, "little"))
            self.written.view(UNSIGNED[size])[places >> (size.bit_length() - 1)] = word
