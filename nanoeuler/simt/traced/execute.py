"""``trace``: runs a launch, or a chosen part of it, and returns what happened."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.simt.arguments import bound
from nanoeuler.simt.checked.execute import collect_faults
from nanoeuler.simt.launch import WARP_SIZE, Dimensions, Launch, Order, launch_shape
from nanoeuler.simt.source import python_function, read
from nanoeuler.simt.traced.recorder import Recorder
from nanoeuler.simt.traced.result import Trace


def trace(
    kernel: Any,
    grid: Dimensions,
    block: Dimensions,
    args: tuple,
    *,
    blocks: Dimensions | list[Dimensions] | None = None,
    warps: int | Iterable[int] | None = None,
    lines: int | Iterable[int] | None = None,
    variables: bool = False,
    limit: int = 4_000_000,
    shared_bytes: int = 0,
    order: Order = "forward",
    seed: int = 0,
) -> Trace:
    """Run ``kernel[grid, block](*args)`` on the CPU with every access watched, and return what each thread did.

    What is wrong with the kernel is told too, as by the checked executor: it stands in the trace's ``faults``, and
    nothing is raised. Arrays among ``args`` are changed in place.

    Args:
        kernel: a function in Numba's CUDA Python, plain or decorated with ``@cuda.jit``.
        grid: blocks of the launch, an integer or up to three.
        block: threads of a block, likewise.
        args: numbers and NumPy arrays of any dtype and layout.
        blocks: one block's index or a list of such: only these run, the others do not exist for this launch. None: all.
        warps: numbers of warps within a block: only these are recorded, the others run all the same.
        lines: line numbers of the kernel's file: only accesses on these are recorded. A range will do.
        variables: also keep each assignment of a local variable, as the stepper needs it.
        limit: how many records there may be at most, of about 40 bytes each.
        shared_bytes: dynamic shared memory of a block.
        order: the order in which blocks, warps and lanes take their turns.
        seed: for the order "random".

    Raises:
        UnsupportedError: the kernel uses something that cannot be followed; the message has its line and the reason.
        UserError: the launch, the choice of a part or an argument is impossible, or the trace becomes longer than
            ``limit``. Arrays are then as they were.
    """
    if not isinstance(args, (tuple, list)):
        raise UserError(f"args is {type(args).__name__}: give a tuple of the kernel's arguments, (x,) for a single one")
    if limit < 1:
        raise UserError(f"limit {limit}: give the number of records that a trace may have, 1 or more")
    launch = launch_shape(grid, block, shared_bytes, order, seed)
    given = bound(python_function(kernel), tuple(args))
    source = read(kernel)
    recorder = Recorder(_blocks(blocks, launch), _warps(warps, launch), _lines(lines), variables=variables, limit=limit)
    faults = collect_faults(kernel, launch, given, recorder=recorder)
    return Trace(source, launch, recorder, tuple(faults))


def _blocks(chosen: Any, launch: Launch) -> frozenset[int] | None:
    """Return the numbers of blocks; x runs fastest."""
    if chosen is None:
        return None
    return frozenset(_block(one, launch) for one in (chosen if isinstance(chosen, list) else [chosen]))


def _block(index: Any, launch: Launch) -> int:
    given = tuple(index) if isinstance(index, (tuple, list)) else (index,)
    x, y, z = (*given, 0, 0, 0)[:3]
    whole = all(isinstance(i, (int, np.integer)) for i in given)
    if not whole or len(given) > 3 or not all(0 <= i < n for i, n in zip((x, y, z), launch.grid, strict=True)):
        raise UserError(f"block {index} is not in the grid {launch.grid}: its indices are counted from 0")
    return x + launch.grid[0] * (y + launch.grid[1] * z)


def _warps(chosen: Any, launch: Launch) -> frozenset[int] | None:
    if chosen is None:
        return None
    numbers = frozenset([chosen] if isinstance(chosen, int) else chosen)
    count = -(-launch.block_threads // WARP_SIZE)
    for number in numbers:
        if not 0 <= number < count:
            raise UserError(
                f"warp {number} is not in a block of {launch.block_threads} threads: it has 0 to {count - 1}"
            )
    return numbers


def _lines(chosen: Any) -> frozenset[int] | None:
    return None if chosen is None else frozenset([chosen] if isinstance(chosen, int) else chosen)
