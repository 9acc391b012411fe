"""Does a kernel's result depend on the order in which its blocks, warps and lanes run? One call that tries several."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.launch import Dimensions, Order
from nanoeuler.simt.source import read


def compare_orders(
    kernel: Any,
    grid: Dimensions,
    block: Dimensions,
    args: tuple,
    *,
    executor: simt.Executor = "checked",
    shared_bytes: int = 0,
    seeds: Sequence[int] = (0, 1, 2),
    tolerance: float = 0.0,
) -> None:
    """Run a kernel forward, in reverse and in a random order for each seed, and compare what is in its arrays.

    ``args`` and ``executor`` are as for ``simt.run``; arrays are left as they were. ``tolerance`` is the relative
    difference that is allowed: with 0 results must be equal bit by bit; atomics of floats need some, for their sums
    depend on the order.

    Raises:
        UserError: an element differs; the message names it, and its value in each of the two orders.
        KernelFaults: the executor found something.
    """
    orders: list[tuple[Order, int]] = [("forward", 0), ("reverse", 0), *(("random", seed) for seed in seeds)]
    arrays = dict(_arrays(kernel, args))
    before = {name: array.copy() for name, array in arrays.items()}
    first: dict[str, np.ndarray] = {}
    try:
        for order, seed in orders:
            simt.run(kernel, grid, block, args, executor=executor, shared_bytes=shared_bytes, order=order, seed=seed)
            told = f"{order} order" + (f", seed {seed}" if order == "random" else "")
            for name, array in arrays.items():
                _compare(kernel, name, first.setdefault(name, array.copy()), array, told, tolerance)
                array[...] = before[name]
    finally:
        for name, array in arrays.items():
            array[...] = before[name]


def _arrays(kernel: Any, args: tuple) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays that a kernel may change, by the names of its parameters."""
    given = read(kernel).tree.args
    parameters = [a.arg for a in (*given.posonlyargs, *given.args)]
    for name, value in zip(parameters, args, strict=False):
        if isinstance(value, np.ndarray) and value.flags.writeable:
            yield name, value


def _compare(kernel: Any, name: str, one: np.ndarray, two: np.ndarray, order: str, tolerance: float) -> None:
    differs = _differences(one, two, tolerance)
    if not differs.any():
        return
    index = tuple(int(i) for i in np.argwhere(differs)[0])
    count = int(differs.sum())
    raise UserError(
        f"the result of kernel {read(kernel).name} depends on the order of its threads: "
        f"{name}[{', '.join(map(str, index))}] is {one[index]} in forward order and {two[index]} in {order} "
        f"({count} of {differs.size} elements of '{name}' differ). Look for a race, or for atomics of floats, whose "
        "sums need a tolerance"
    )


def _differences(one: np.ndarray, two: np.ndarray, tolerance: float) -> np.ndarray:
    """Return where two arrays differ: in any bit, or by more than the relative tolerance."""
    if tolerance and one.dtype.kind in "fc":
        close = np.isclose(one, two, rtol=tolerance, atol=0, equal_nan=True)
        return ~close
    raw = [np.ascontiguousarray(a).reshape(*a.shape, 1).view(np.uint8) for a in (one, two)]
    return (raw[0] != raw[1]).any(axis=-1)
