"""PTX types as NumPy dtypes: what an instruction computes in, and what a register holds between instructions.

Untyped bits and integers are unsigned; ``bf16`` and the packed pairs stay raw bits, as NumPy has no such types.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from nanoeuler.simt.ptx.machine import Lanes, Machine

Array = NDArray[Any]  # one element where every lane has the same value, else one per lane
Registers = list[Array]
Fetch = Callable[[Registers], Array]
Step = Callable[["Machine", "Lanes"], None]

DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(dtype)
    for name, dtype in {
        "pred": np.bool_,
        "b8": np.uint8,
        "u8": np.uint8,
        "s8": np.int8,
        "b16": np.uint16,
        "u16": np.uint16,
        "s16": np.int16,
        "f16": np.float16,
        "bf16": np.uint16,
        "b32": np.uint32,
        "u32": np.uint32,
        "s32": np.int32,
        "f32": np.float32,
        "tf32": np.uint32,
        "f16x2": np.uint32,
        "bf16x2": np.uint32,
        "b64": np.uint64,
        "u64": np.uint64,
        "s64": np.int64,
        "f64": np.float64,
    }.items()
}
UNSIGNED: dict[int, np.dtype[Any]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
SIGNED: dict[int, np.dtype[Any]] = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}
FLOATS = ("f16", "bf16", "f32", "f64")


def storage(kind: str) -> np.dtype[Any]:
    """Return the dtype in which a register declared with ``kind`` is kept.

    >>> storage("s32"), storage("f16"), storage("f32")
    (dtype('uint32'), dtype('uint16'), dtype('float32'))
    """
    dtype = DTYPES[kind]
    return dtype if kind in ("pred", "f32", "f64") else UNSIGNED[dtype.itemsize]


def is_signed(kind: str) -> bool:
    """Whether ``kind`` is a signed integer."""
    return DTYPES[kind].kind == "i"
