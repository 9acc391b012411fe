"""What the runner knows of ``numba.cuda``: the names that a kernel may use, by what they do, and how they are found."""

import sys
from types import ModuleType
from typing import Any

from numba.core.types import Type

# Numbers that a thread reads and never changes.
INDICES = {f"{name}.{axis}" for name in ("threadIdx", "blockIdx", "blockDim", "gridDim") for axis in "xyz"} | {
    "laneid",
    "warpsize",
}
# All threads of a block wait for each other.
BARRIERS = {"syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or"}
# The lanes that a mask names wait for each other; but for syncwarp they order no memory (CUDA C++ Programming Guide,
# "Warp Shuffle Functions": "do not imply a memory barrier").
WARP_OPERATIONS = {
    "syncwarp",
    "shfl_sync",
    "shfl_up_sync",
    "shfl_down_sync",
    "shfl_xor_sync",
    "all_sync",
    "any_sync",
    "eq_sync",
    "ballot_sync",
    "match_any_sync",
    "match_all_sync",
    "activemask",
}
BLOCKING = BARRIERS | WARP_OPERATIONS
ARRAYS = {"shared.array", "local.array", "const.array_like"}
FENCES = {"threadfence", "threadfence_block", "threadfence_system"}
ATOMICS = {
    f"atomic.{name}"
    for name in (
        *("add", "sub", "max", "min", "nanmax", "nanmin"),
        *("and_", "or_", "xor", "inc", "dec", "exch", "cas", "compare_and_swap"),
    )
}
# A loop around one of these may wait for another thread: its threads take turns.
WAITING_ATOMICS = {"atomic.cas", "atomic.compare_and_swap", "atomic.exch"}
CACHE_LOADS = {"ldca", "ldcg", "ldcs", "ldlu", "ldcv"}
CACHE_STORES = {"stcg", "stcs", "stwb", "stwt"}
FUNCTIONS = {"grid", "gridsize", "lanemask_lt", "popc", "brev", "clz", "ffs", "selp", "fma", "cbrt", "nanosleep"}


def _vector_types() -> dict[str, tuple[str, int]]:
    """Return each vector type's component type and width, under both of its names: ``float32x4`` and ``float4``."""
    components = {
        **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
        **{"float32": "float32", "float64": "float64"},
    }
    aliases = {
        **{"char": "int8", "short": "int16", "int": "int32", "long": "int64", "longlong": "int64"},
        **{"uchar": "uint8", "ushort": "uint16", "uint": "uint32", "ulong": "uint64", "ulonglong": "uint64"},
        **{"float": "float32", "double": "float64"},
    }
    named = {f"{name}x{n}": (component, n) for name, component in components.items() for n in (1, 2, 3, 4)}
    return named | {f"{name}{n}": (component, n) for name, component in aliases.items() for n in (1, 2, 3, 4)}


VECTORS = _vector_types()
CALLS = BLOCKING | ARRAYS | FENCES | ATOMICS | CACHE_LOADS | CACHE_STORES | FUNCTIONS | set(VECTORS)
PREFIXES = {"threadIdx", "blockIdx", "blockDim", "gridDim", "shared", "local", "const", "atomic", "libdevice", "fp16"}

# Modules that are `cuda` to a kernel: numba-cuda (or numba's own), its successor, and the stand-in of this package.
CUDA_MODULES = ("numba.cuda", "numba_cuda.numba.cuda", "numba_cuda_mlir.cuda", "nanoeuler.simt.cuda")


def cuda_name(value: Any) -> str | None:
    """Return what ``value`` is called inside ``numba.cuda``: ``""`` for the module itself, None for anything else.

    Found by identity, so that ``from numba.cuda import grid as where`` is known too.
    """
    if isinstance(value, ModuleType):
        if value.__name__ in CUDA_MODULES:
            return ""
        if value.__name__.endswith(".libdevice") and value.__name__.removesuffix(".libdevice") in CUDA_MODULES:
            return "libdevice"
        return None
    if isinstance(value, Type | int | float | str | tuple):
        return None
    for module in filter(None, (sys.modules.get(name) for name in CUDA_MODULES)):
        for name in (*PREFIXES, *CALLS, "laneid", "warpsize"):
            if "." not in name and module.__dict__.get(name) is value:
                return name
    return _libdevice_name(value)


def _libdevice_name(value: Any) -> str | None:
    """Return ``libdevice.NAME`` for a function of numba.cuda.libdevice that was imported by itself."""
    for name in CUDA_MODULES:
        module = sys.modules.get(f"{name}.libdevice")
        function = getattr(value, "__name__", None)
        if module is not None and function is not None and module.__dict__.get(function) is value:
            return f"libdevice.{function}"
    return None
