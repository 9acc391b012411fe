"""Does a kernel's result depend on the order in which its blocks, warps and lanes run? One call that tries several."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.simt.checked.execute import run_checked
from nanoeuler.simt.launch import Dimensions, Launch, launch_shape
from nanoeuler.simt.source import read

Run = Callable[[Any, Launch, tuple], None]


def compare_orders(
    kernel: Any,
    grid: Dimensions,
    block: Dimensions,
    args: tuple,
    *,
    shared_bytes: int = 0,
    seeds: Sequence[int] = (0, 1, 2),
    tolerance: float = 0.0,
    run: Run = run_checked,
) -> None:
    """Run a kernel forward, in reverse and in a random order for each seed, and compare what is in its arrays.

    ``args`` are as for a launch, and are left as they were. ``tolerance`` is the relative difference that is allowed:
    with 0 results must be equal bit by bit; atomics of floats need some, for their sums depend on the order.

    Raises:
        UserError: an element differs; the message names it, and its value in each of the two orders.
        KernelFaults: ``run`` found something.
    """
    launches = [launch_shape(grid, block, shared_bytes, order) for order in ("forward", "reverse")]
    launches += [launch_shape(grid, block, shared_bytes, "random", seed) for seed in seeds]
    arrays = dict(_arrays(kernel, args))
    before = {name: array.copy() for name, array in arrays.items()}
    first: dict[str, np.ndarray] = {}
    try:
        for launch in launches:
            run(kernel, launch, args)
            for name, array in arrays.items():
                _compare(kernel, name, first.setdefault(name, array.copy()), array, launch, tolerance)
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


def _compare(kernel: Any, name: str, one: np.ndarray, two: np.ndarray, launch: Launch, tolerance: float) -> None:
    differs = _differences(one, two, tolerance)
    if not differs.any():
        return
    index = tuple(int(i) for i in np.argwhere(differs)[0])
    order = launch.order + (f" order, seed {launch.seed}" if launch.order == "random" else " order")
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
