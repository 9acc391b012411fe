"""``trace``: runs a launch, or a chosen part of it, and returns what happened."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.simt.arguments import bound
from nanoeuler.simt.checked.execute import collect_faults
from nanoeuler.simt.launch import WARP_SIZE, Dimensions, Launch, Order, launch_shape, number_of
from nanoeuler.simt.source import python_function, read
from nanoeuler.simt.traced.recorder import Recorder
from nanoeuler.simt.traced.result import Trace

INTEGER = (int, np.integer)
MOST_BLOCKS = 2**32 - 1  # their numbers are kept as uint32


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
        limit: how many records there may be at most: about 40 bytes for an access, a few hundred for a variable, a
            wait or a new round of a loop.
        shared_bytes: dynamic shared memory of a block.
        order: the order in which blocks, warps and lanes take their turns.
        seed: for the order "random".

    Raises:
        UnsupportedError: the kernel uses something that cannot be followed; the message has its line and the reason.
        UserError: the launch, the choice of a part or an argument is impossible, or the trace becomes longer than
            ``limit``. Arrays are then as they were, and so they are after Ctrl-C.
    """
    if not isinstance(args, (tuple, list)):
        raise UserError(f"args is {type(args).__name__}: give a tuple of the kernel's arguments, (x,) for a single one")
    if not isinstance(limit, INTEGER) or limit < 1:
        raise UserError(f"limit {limit!r}: give the number of records that a trace may have, 1 or more")
    launch = launch_shape(grid, block, shared_bytes, order, seed)
    given = bound(python_function(kernel), tuple(args))
    source = read(kernel)
    recorder = Recorder(
        _blocks(blocks, launch), _warps(warps, launch), _numbers("lines", lines), variables=variables, limit=limit
    )
    faults = collect_faults(kernel, launch, given, recorder=recorder)
    return Trace(source, launch, recorder, tuple(faults))


def _blocks(chosen: Any, launch: Launch) -> frozenset[int] | None:
    """Return the numbers of blocks; x runs fastest."""
    if chosen is None:
        return None
    several = chosen if isinstance(chosen, list) else [chosen]
    return _some("blocks", frozenset(_block(one, launch) for one in several))


def _block(index: Any, launch: Launch) -> int:
    number = number_of(index, launch.grid, "block")
    if number > MOST_BLOCKS:
        raise UserError(f"block {index} is number {number:,} of its grid, and a trace counts to {MOST_BLOCKS:,}")
    return number


def _warps(chosen: Any, launch: Launch) -> frozenset[int] | None:
    numbers = _numbers("warps", chosen)
    count = -(-launch.block_threads // WARP_SIZE)
    for number in numbers or ():
        if not 0 <= number < count:
            raise UserError(
                f"warp {number} is not in a block of {launch.block_threads} threads: it has 0 to {count - 1}"
            )
    return numbers


def _numbers(what: str, chosen: Any) -> frozenset[int] | None:
    """Return a number, or several, as a set."""
    if chosen is None:
        return None
    several = [chosen] if isinstance(chosen, INTEGER) else list(chosen) if isinstance(chosen, Iterable) else [None]
    if not all(isinstance(number, INTEGER) for number in several):
        raise UserError(f"{what}={chosen!r}: give an integer or several, or None for all")
    return _some(what, frozenset(map(int, several)))


def _some(what: str, chosen: frozenset[int]) -> frozenset[int]:
    if not chosen:
        raise UserError(f"{what}: none are chosen; give some, or None for all")
    return chosen
