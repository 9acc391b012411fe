"""A tensor of a file, known by dtype and shape before it is read, and how many of them become one flat buffer."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nanoeuler.config import ModelConfig
from nanoeuler.errors import UserError, nearest
from nanoeuler.parameters import Shapes, flat_size, named_views, parameter_shapes
from nanoeuler.weights.mapping import huggingface_shapes, huggingface_views

#: The dtypes that weights have in files, and how their bits lie there. NumPy has no bfloat16; it is the upper half of a
#: float32, so reading it loses nothing.
STORED: dict[str, np.dtype[Any]] = {
    "float64": np.dtype("<f8"),
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
}
DTYPES = tuple(STORED)


@dataclass(frozen=True)
class Tensor:
    """A tensor that lies in a file. ``read`` gives it in its own dtype, but for bfloat16 as float32."""

    dtype: str  # one of DTYPES
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


def widen(bits: np.ndarray) -> np.ndarray:
    """Return bfloat16 numbers, given as uint16, as float32.

    >>> widen(np.array([0x3F80, 0xC000], np.uint16)).tolist()
    [1.0, -2.0]
    """
    return np.left_shift(bits, np.uint32(16), dtype=np.uint32).view(np.float32)


def narrow(x: np.ndarray) -> np.ndarray:
    """Return float32 numbers as bfloat16 in uint16, rounded to nearest, ties to even, as every framework does.

    >>> [hex(i) for i in narrow(np.array([1.0, 1.00390625, 1.01171875], np.float32))]
    ['0x3f80', '0x3f80', '0x3f82']
    """
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = bits >> 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += bits
    rounded >>= 16
    narrowed = rounded.astype(np.uint16)
    narrowed[np.isnan(x)] = 0x7FC0
    return narrowed


def read_array(path: Path, start: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array that begins at byte ``start`` of a file; bfloat16 as float32.

    Raises:
        UserError: the file cannot be read, or has become shorter since it was opened.
    """
    try:
        numbers = np.fromfile(path, STORED[dtype], math.prod(shape), offset=start)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    if numbers.size < math.prod(shape):
        raise UserError(f"{path}: cut off since it was opened")
    return (widen(numbers) if dtype == "bfloat16" else numbers).reshape(shape)


def rounded(name: str, x: np.ndarray, dtype: str) -> np.ndarray:
    """Return a tensor in C order in a dtype of weights; bfloat16 as uint16.

    Raises:
        UserError: a finite number would become infinite.
    """
    plain = np.dtype(np.float32 if dtype == "bfloat16" else dtype)
    with np.errstate(over="ignore"):
        out = np.ascontiguousarray(x, plain)
    bits = narrow(out) if dtype == "bfloat16" else out
    infinite = (bits & 0x7FFF) == 0x7F80 if dtype == "bfloat16" else np.isinf(bits)
    if bits is not x and infinite.any() and (infinite & np.isfinite(x)).any():
        raise UserError(f"tensor {name} has numbers that are beyond {dtype}: take float32")
    return bits


def check_tensors(config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
    """Check names and shapes against those of the architecture, before anything is read.

    Raises:
        UserError: a tensor is missing, is not part of this architecture, or has another shape.
    """
    shapes = huggingface_shapes(config)
    for name in shapes:
        if name not in tensors:
            raise UserError(f"tensor {name} is missing{_nearest_surplus(name, tensors, shapes)}")
    for name, tensor in tensors.items():
        if name not in shapes:
            raise UserError(f"tensor {name} is not part of the architecture that the configuration describes")
        if tensor.shape != shapes[name]:
            raise UserError(f"tensor {name} has the shape {tensor.shape}; the configuration makes it {shapes[name]}")


def read_flat(
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    dtype: np.dtype | type = np.float32,
    finite: bool = True,
    progress: Callable[[int], None] = lambda size: None,
) -> np.ndarray:
    """Return all weights as one flat buffer of ``dtype``; besides it only one tensor is in memory at a time.

    Args:
        config: the architecture.
        tensors: under Hugging Face's names, as :func:`check_tensors` wants them.
        dtype: of the buffer; numbers are rounded to it.
        finite: refuse infinities and NaN.
        progress: told the number of parameters of each tensor once it is read.

    Raises:
        UserError: as :func:`check_tensors`; a number is not finite, in the file or once it is of ``dtype``.
    """
    check_tensors(config, tensors)
    shapes = parameter_shapes(config)
    flat = np.zeros(flat_size(shapes), dtype)
    for name, view in huggingface_views(config, named_views(flat, shapes)).items():
        with np.errstate(over="ignore"):  # beyond float32 becomes infinite, and is then found
            view[...] = tensors[name].read()
        if finite and (bad := view.size - int(np.count_nonzero(np.isfinite(view)))):
            raise UserError(
                f"tensor {name}: {bad} of its {view.size} numbers are infinite or NaN (in {np.dtype(dtype)}): "
                "such a model computes nothing but NaN"
            )
        progress(view.size)
    return flat


def _nearest_surplus(name: str, tensors: Mapping[str, Tensor], shapes: Shapes) -> str:
    return nearest(name, tensors.keys() - shapes.keys(), 0.9)
