"""All the instructions that are known: importing this file registers their handlers."""

from nanoeuler.simt.ptx import (
    access,
    async_copy,
    atomic,
    compare,
    control,
    convert,
    floating,
    integer,
    printing,
    tensor,
    warp,
)

__all__ = [
    "access",
    "async_copy",
    "atomic",
    "compare",
    "control",
    "convert",
    "floating",
    "integer",
    "printing",
    "tensor",
    "warp",
]
