"""The warp instructions that a trace infers from the source, against those of the PTX that the compiler makes of it.

The PTX executor runs the lanes that are at one instruction together, so that it sees real warp instructions with their
addresses. Neither side knows of the other. The kernels are such that the compiler leaves no access out, and unrolls no
loop whose lanes go round differently often: those that are left over from an unrolled loop go by themselves.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from simt.kernels.toolkit import need_toolkit
from simt.traced import kernels

from nanoeuler import simt
from nanoeuler.simt.ptx import access, atomic


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


LAUNCHES: dict[str, tuple[Any, Any, tuple]] = {
    "copy, part of a warp": (kernels.copy, 20, (zeros(17), numbers(17))),
    "copy, two warps and a bit": (kernels.copy, 70, (zeros(67), numbers(67))),
    "copy of bytes": (kernels.copy, 64, (np.zeros(64, np.uint8), numbers(64, dtype=np.uint8))),
    "copy of float64": (kernels.copy, 64, (np.zeros(64), numbers(64, dtype=np.float64))),
    "product of tiles": (kernels.product, (4, 4), (zeros(4, 4), numbers(4, 8), numbers(8, 4))),
    "loops that lanes leave": (kernels.leaving, 7, (zeros(7, 5), numbers(5))),
    "a reversal": (kernels.reversed_rows, 64, (zeros(64), numbers(64))),
    "every fifth": (kernels.strided, 32, (zeros(160), numbers(160))),
    "columns": (kernels.columns, 32, (zeros(32), numbers(32, 6))),
    "an atomic on few": (kernels.histogram, 64, (np.zeros(5, np.int32), numbers(64, dtype=np.int32))),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_requests_and_sectors_are_those_of_the_compiled_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_toolkit()
    kernel, block, args = LAUNCHES[name]
    expected = by_ptx(kernel, block, copies(args), monkeypatch)
    assert by_trace(simt.trace(kernel, 1, block, copies(args))) == expected
    assert expected


def copies(args: tuple) -> tuple:
    return tuple(np.array(a) for a in args)


def by_ptx(kernel: Any, block: Any, args: tuple, monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str, int, int]]:
    """Count what warps ask for: by space, action, lanes, and number of sectors (or of words in shared memory)."""
    seen: Counter[tuple[str, str, int, int]] = Counter()
    locate = access.locate

    def watched(machine: Any, space: str, address: Any, size: int, lanes: Any, *more: Any) -> Iterator[Any]:
        for memory, places, here in locate(machine, space, address, size, lanes, *more):
            at = np.broadcast_to(places, len(here.numbers))
            for warp in np.unique(here.numbers // 32):
                chosen = at[here.numbers // 32 == warp]
                unit = UNIT.get(memory.space)
                if unit:
                    units = {int(byte) // unit for a in chosen for byte in (a, a + size - 1)}
                    seen[memory.space, more[-1], len(chosen), len(units)] += 1
            yield memory, places, here

    monkeypatch.setattr(access, "locate", watched)
    monkeypatch.setattr(atomic, "locate", watched)
    simt.run(kernel, 1, block, args, executor="ptx")
    return seen


UNIT = {"global": 32, "shared": 4}
ACTIONS = ("reads", "writes", "updates")


def by_trace(found: simt.Trace) -> Counter[tuple[str, str, int, int]]:
    """Count the same from a trace."""
    assert found.faults == ()
    seen: Counter[tuple[str, str, int, int]] = Counter()
    warp = found.warp_instructions
    for n in range(len(warp)):
        records = found.accesses[warp.of_access == n]
        array = found.arrays[records["array"][0]]
        unit = UNIT.get(array.scope)
        if unit:
            size = array.dtype.itemsize
            units = {int(b + array.past) // unit for a in records["offset"] for b in (a, a + size - 1)}
            seen[array.scope, ACTIONS[records["kind"][0]], len(records), len(units)] += 1
    return seen
