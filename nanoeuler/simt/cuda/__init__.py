"""A stand-in for ``numba.cuda`` where there is no GPU: the same names, and launches that go to an executor on the CPU.

    from nanoeuler.simt import cuda

    @cuda.jit
    def double(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= 2

    double[4, 32](x)

It needs no numba-cuda, so kernels can be defined on macOS too. ``python -m nanoeuler.simt check`` puts it in the place
of ``numba.cuda`` for a script. What it does not have is numba-cuda's own, where that is installed.
"""

from typing import Any

from numba.core import types

from nanoeuler.simt.cuda import cg, libdevice, random
from nanoeuler.simt.cuda.arguments import In, InOut, Out
from nanoeuler.simt.cuda.arrays import (
    as_cuda_array,
    device_array,
    device_array_like,
    is_cuda_array,
    managed_array,
    mapped,
    mapped_array,
    mapped_array_like,
    pinned,
    pinned_array,
    pinned_array_like,
    to_device,
)
from nanoeuler.simt.cuda.devices import (
    close,
    cuda_error,
    current_context,
    default_stream,
    defer_cleanup,
    detect,
    event,
    event_elapsed_time,
    external_stream,
    get_current_device,
    gpus,
    is_available,
    is_bfloat16_supported,
    is_float16_supported,
    is_fp8_supported,
    is_supported_version,
    legacy_default_stream,
    list_devices,
    per_thread_default_stream,
    profile_start,
    profile_stop,
    profiling,
    reset,
    runtime,
    select_device,
    stream,
    synchronize,
)
from nanoeuler.simt.cuda.dispatch import declare_device, jit
from nanoeuler.simt.cuda.reduction import Reduce
from nanoeuler.simt.cuda.stubs import NAMES as _NAMES
from nanoeuler.simt.cuda.vectorizers import guvectorize, vectorize

reduce = Reduce
_SCALARS = {
    name: kind for name, kind in vars(types).items() if isinstance(kind, types.Type) and not name.startswith("_")
}
globals().update(_NAMES | _SCALARS)

__all__ = [
    "In",
    "InOut",
    "Out",
    "Reduce",
    "as_cuda_array",
    "cg",
    "close",
    "cuda_error",
    "current_context",
    "declare_device",
    "default_stream",
    "defer_cleanup",
    "detect",
    "device_array",
    "device_array_like",
    "event",
    "event_elapsed_time",
    "external_stream",
    "get_current_device",
    "gpus",
    "guvectorize",
    "is_available",
    "is_bfloat16_supported",
    "is_cuda_array",
    "is_float16_supported",
    "is_fp8_supported",
    "is_supported_version",
    "jit",
    "legacy_default_stream",
    "libdevice",
    "list_devices",
    "managed_array",
    "mapped",
    "mapped_array",
    "mapped_array_like",
    "per_thread_default_stream",
    "pinned",
    "pinned_array",
    "pinned_array_like",
    "profile_start",
    "profile_stop",
    "profiling",
    "random",
    "reduce",
    "reset",
    "runtime",
    "select_device",
    "stream",
    "synchronize",
    "to_device",
    "vectorize",
]
__all__ += [*_NAMES, *_SCALARS]


def __getattr__(name: str) -> Any:
    """Return what the genuine ``numba.cuda`` has under ``name``."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nanoeuler.simt.cuda.install import genuine_attribute

    return genuine_attribute(name)
