"""Special registers (PTX ISA chapter 10): who and where a lane is. They are set once, when a group of blocks starts."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nanoeuler.simt.launch import WARP_SIZE
from nanoeuler.simt.ptx.kinds import Array
from nanoeuler.simt.ptx.machine import Machine

Value = Callable[[Machine], Array | int]
_U32, _U64 = np.dtype(np.uint32), np.dtype(np.uint64)


def _axis(which: str, axis: int) -> Value:
    """Return the value of an axis of ``tid``, ``ntid``, ``ctaid`` or ``nctaid``."""

    def value(machine: Machine) -> Array | int:
        shape = machine.launch.block if which in ("tid", "ntid") else machine.launch.grid
        if which in ("ntid", "nctaid"):
            return shape[axis]
        index = machine.thread if which == "tid" else machine.block + machine.first_block
        stride = (1, shape[0], shape[0] * shape[1])[axis]
        return index // stride % shape[axis]

    return value


def _lane_mask(compare: Callable[[Array, Array], Array]) -> Value:
    """Return the bits of those lanes i of the warp for which ``compare(i, lane)`` holds."""

    def value(machine: Machine) -> Array:
        flags = compare(np.arange(WARP_SIZE)[None, :], machine.lane[:, None])
        return np.packbits(flags, axis=1, bitorder="little").view(np.uint32).reshape(-1)

    return value


SPECIALS: dict[str, tuple[np.dtype[Any], Value]] = {
    **{
        f"%{which}.{'xyz'[axis]}": (_U32, _axis(which, axis))
        for which in ("tid", "ntid", "ctaid", "nctaid")
        for axis in range(3)
    },
    "%laneid": (_U32, lambda machine: machine.lane),
    "%warpid": (_U32, lambda machine: machine.thread // WARP_SIZE),
    "%nwarpid": (_U32, lambda machine: machine.warps // machine.blocks),
    "%lanemask_eq": (_U32, _lane_mask(np.equal)),
    "%lanemask_lt": (_U32, _lane_mask(np.less)),
    "%lanemask_le": (_U32, _lane_mask(np.less_equal)),
    "%lanemask_gt": (_U32, _lane_mask(np.greater)),
    "%lanemask_ge": (_U32, _lane_mask(np.greater_equal)),
    "%smid": (_U32, lambda machine: 0),
    "%nsmid": (_U32, lambda machine: 1),
    "%gridid": (_U64, lambda machine: 0),
    "%dynamic_smem_size": (_U32, lambda machine: machine.launch.shared_bytes),
    "%total_smem_size": (_U32, lambda machine: machine.shared_bytes),
}
CLOCKS = ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")  # these move on


def special_value(machine: Machine, name: str) -> Array:
    """Return the special register ``name`` for every lane of ``machine``: one element if it is the same for all."""
    dtype, value = SPECIALS[name]
    return np.atleast_1d(np.asarray(value(machine))).astype(dtype)
