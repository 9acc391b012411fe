"""The arguments of an op that is timed: in the memory of its device, with values like those that a model gives it."""

import inspect
from typing import Any

import numpy as np

import nanoeuler.cpu
from nanoeuler.bench.ops_entries import SEED, OpBench, Size, starts_of_documents, zipf

Array = Any

#: Random numbers that are drawn; longer arrays repeat them. The odd number keeps the rows of a matrix from being alike.
DRAWN = 1_000_003
ONES = {"norm", "dloss"}


def make_arguments(bench: OpBench, ops: Any, size: Size, dtype: str) -> dict[str, Any]:
    """Return the op's arguments by name: arrays in the memory of ``ops``, and constants."""
    together = {name: group for group in bench.packed for name in group}
    given: dict[str, Any] = dict(bench.constants)
    for name, words in bench.shapes.items():
        if name not in together:
            shape, element = size.shape(words), bench.element(name, dtype)
            given[name] = array = _array(ops, shape, element)
            if name not in bench.written:
                ops.from_numpy(array, _values(bench, name, shape, element, size))
    for group in bench.packed:
        given |= _packed(bench, group, ops, size, dtype)
    if "parts" in given:
        given["parts"] = [given["parts"][i] for i in range(2)]
    if bench.prepare is not None:
        bench.prepare(ops, given)
    return given


def in_order(op: str, given: dict[str, Any]) -> list[Any]:
    """Return arguments in the order of the op's parameters."""
    return [given[name] for name in inspect.signature(getattr(nanoeuler.cpu, op)).parameters]


def _array(ops: Any, shape: tuple[int, ...], element: np.dtype) -> Array:
    return ops.empty(int(np.prod(shape)), element).reshape(shape)


def _values(bench: OpBench, name: str, shape: tuple[int, ...], element: np.dtype, size: Size) -> np.ndarray:
    """Return the values that an array starts with."""
    if name in ("tokens", "targets"):
        return zipf(int(np.prod(shape)), size.V).reshape(shape)
    if name == "starts":
        return starts_of_documents(*shape)
    if name in ("cos", "sin"):
        tables = nanoeuler.cpu.rope_tables(shape[0], 2 * shape[1], 10000.0, np.float32)
        return tables[("cos", "sin").index(name)]
    if name in ONES:
        return np.ones(shape, element)
    if name == "micro_batch" or (name in bench.added and name != "weight"):  # sums and moments
        return np.zeros(shape, element)
    return normal(name, shape, element)


def normal(name: str, shape: tuple[int, ...], element: np.dtype) -> np.ndarray:
    """Return standard normal numbers, others for every name, as the device stores them."""
    count = int(np.prod(shape))
    numbers = np.random.default_rng([SEED, *name.encode()]).standard_normal(min(count, DRAWN), np.float32)
    if element == np.uint16:
        from nanoeuler.gpu.bfloat16 import to_bfloat16  # which needs Numba, as nothing else here

        numbers = to_bfloat16(numbers)
    return np.resize(numbers, shape)


def _packed(bench: OpBench, names: tuple[str, ...], ops: Any, size: Size, dtype: str) -> dict[str, Array]:
    """Return (B, T, heads, D) arrays that lie side by side in one, as the product before attention leaves them."""
    shapes = [size.shape(bench.shapes[name]) for name in names]
    B, T, _, D = shapes[0]
    ends = np.cumsum([shape[2] for shape in shapes])
    element = bench.element(names[0], dtype)
    whole = _array(ops, (B, T, int(ends[-1]), D), element)
    if names[0] not in bench.written:
        ops.from_numpy(whole, normal("".join(names), whole.shape, element))
    return {
        name: whole[:, :, int(end) - shape[2] : int(end)] for name, shape, end in zip(names, shapes, ends, strict=True)
    }
