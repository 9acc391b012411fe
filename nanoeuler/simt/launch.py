"""The shape of a launch: how many blocks, how many threads in each, in three dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nanoeuler.errors import UserError

WARP_SIZE = 32
MAX_BLOCK_THREADS = 1024  # on every compute capability (CUDA C++ Programming Guide, table of technical specifications)
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)

Dimensions = int | tuple[int, ...]
Order = Literal["forward", "reverse", "random"]
ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")


@dataclass(frozen=True)
class Launch:
    """Blocks and threads of one launch; ``shared_bytes`` is the dynamic shared memory of a block."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    order: Order = "forward"
    seed: int = 0

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def block_threads(self) -> int:
        """How many threads a block has."""
        return self.block[0] * self.block[1] * self.block[2]


def launch_shape(
    grid: Dimensions, block: Dimensions, shared_bytes: int = 0, order: Order = "forward", seed: int = 0
) -> Launch:
    """Return the launch of ``kernel[grid, block]``; what no GPU would start is refused.

    ``order`` is the order in which blocks, warps and lanes take their turns on the CPU: a correct kernel's results do
    not depend on it. ``seed`` counts for "random" only.

    >>> launch_shape((3, 2), 64).grid
    (3, 2, 1)

    Raises:
        UserError: a dimension is no positive integer or above CUDA's limit, a block has more than 1024 threads, shared
            memory is negative, or the order is unknown.
    """
    blocks = _three("grid", grid, MAX_GRID)
    threads = _three("block", block, MAX_BLOCK)
    count = threads[0] * threads[1] * threads[2]
    if count > MAX_BLOCK_THREADS:
        raise UserError(f"a block of {threads} has {count} threads, and a GPU takes 1024 at most: launch more blocks")
    if not isinstance(shared_bytes, (int, np.integer)) or shared_bytes < 0:
        raise UserError(
            f"dynamic shared memory of {shared_bytes!r} bytes: give the bytes that a block needs, 0 or more"
        )
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise UserError(f"seed {seed!r}: give an integer, 0 or more")
    if order not in ORDERS:
        raise UserError(f"unknown order '{order}': use {', '.join(ORDERS)}")
    return Launch(blocks, threads, int(shared_bytes), order, seed)


def _three(name: str, value: Dimensions, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return ``value`` with the dimensions that were left out as 1."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(given) <= 3 or not all(isinstance(v, (int, np.integer)) for v in given):
        raise UserError(f"{name} {value!r}: give an integer or a tuple of one to three integers")
    x, y, z = (*(int(v) for v in given), 1, 1)[:3]
    for axis, size, limit in zip("xyz", (x, y, z), limits, strict=True):
        if not 1 <= size <= limit:
            raise UserError(f"{name} {value!r}: its {axis} is {size}, and a GPU takes 1 to {limit}")
    return x, y, z


def coordinates(index: int, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the (x, y, z) of thread or block number ``index``; x runs fastest, as on the GPU.

    >>> coordinates(7, (3, 2, 2))
    (1, 0, 1)
    """
    return index % shape[0], index // shape[0] % shape[1], index // (shape[0] * shape[1])


def number_of(index: int | tuple[int, ...], shape: tuple[int, int, int], what: Literal["block", "thread"]) -> int:
    """Return the number of a block in its grid, or of a thread in its block; one given by number stays what it is.

    >>> number_of((1, 0, 1), (3, 2, 2), "thread"), number_of(7, (3, 2, 2), "thread")
    (7, 7)

    Raises:
        UserError: there is none such.
    """
    given = index if isinstance(index, tuple) else (index,)
    sizes = shape if isinstance(index, tuple) else (shape[0] * shape[1] * shape[2], 1, 1)
    whole = 1 <= len(given) <= 3 and all(isinstance(i, (int, np.integer)) for i in given)
    if not whole or not all(0 <= i < n for i, n in zip(given, sizes, strict=False)):
        around = "grid" if what == "block" else "block"
        raise UserError(f"{what} {index} is not in the {around} {shape}: its indices are counted from 0")
    x, y, z = (*map(int, given), 0, 0)[:3]
    return x + shape[0] * (y + shape[1] * z)


def turns(count: int, order: Order, generator: np.random.Generator) -> Sequence[int]:
    """Return the numbers below ``count`` in the order in which they take their turns."""
    if order == "random":
        return [int(i) for i in generator.permutation(count)]
    return range(count) if order == "forward" else range(count - 1, -1, -1)
