"""Tensors that lie in a file one after the other, known by their order alone: what llm.c's and llama2.c's share."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from nanoeuler.config import ModelConfig
from nanoeuler.errors import UserError
from nanoeuler.weights.tensors import STORED, Tensor, read_array, rounded

#: Names and shapes in a file's order. {} is the layer: of such a tensor there is one for each layer, all in a row.
Order = Sequence[tuple[str, tuple[int, ...]]]


def order_size(order: Order, layers: int) -> int:
    """Return how many numbers tensors have together; nothing of their size is made."""
    return sum(math.prod(shape) * (layers if "{}" in name else 1) for name, shape in order)


def in_order(order: Order, layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Give the name and shape of every tensor, those of all layers one by one."""
    for name, shape in order:
        for layer in range(layers) if "{}" in name else [0]:
            yield name.format(layer), shape


def tensors_in_order(path: Path, start: int, dtype: str, order: Order, layers: int) -> dict[str, Tensor]:
    """Return tensors that begin at byte ``start``, in the shapes that they have in the file; none is read."""
    tensors = {}
    for name, shape in in_order(order, layers):
        tensors[name] = Tensor(dtype, shape, partial(read_array, path, start, dtype, shape))
        start += math.prod(shape) * STORED[dtype].itemsize
    return tensors


def write_array(file: BinaryIO, name: str, array: np.ndarray, dtype: str) -> None:
    """Write an array's numbers, rounded to ``dtype``.

    Raises:
        UserError: one of them is beyond the dtype.
    """
    file.write(rounded(name, array, dtype).astype(STORED[dtype], copy=False).data)


def check_size(path: Path, expected: int, what: str) -> None:
    """Hold a file's size against what its header promises, before memory is taken.

    Raises:
        UserError: it has another.
    """
    size = path.stat().st_size
    if size != expected:
        change = "cut off" if size < expected else "more in it than that"
        raise UserError(f"{path}: {change}, or no {what}: its header promises {expected:,} bytes, and it has {size:,}")


def check_fixed(format: str, config: ModelConfig, fixed: Mapping[str, Any]) -> None:
    """Hold an architecture against what a format takes for granted, by keys of :class:`ModelConfig`.

    Raises:
        UserError: it differs; the message names every key that does.
    """
    differing = [key for key, value in fixed.items() if getattr(config, key) != value]
    if differing:
        keys = "\n".join(f"  {key} is {getattr(config, key)}, there {fixed[key]}" for key in differing)
        raise UserError(
            f"a file of {format} cannot hold this model, as there is no place in it for what differs:\n{keys}"
        )
