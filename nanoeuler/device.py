"""From the word after ``--device`` to the op table behind it."""

from types import SimpleNamespace
from typing import Any

import nanoeuler.cpu
from nanoeuler.errors import UserError, nearest
from nanoeuler.precision import CPU_DTYPES, GPU_DTYPES

DEVICES = ("cpu", "gpu", "sim")
#: What ``--device`` takes, for the help of the commands.
HELP = "cpu, gpu, or sim: the GPU's kernels on the CPU, for small models [cpu]"


def op_table(device: str, dtype: str = "float32") -> Any:
    """Return a device's op table: a namespace of functions.

    Args:
        device: ``cpu``, ``gpu`` or ``sim``.
        dtype: as ``training.dtype``.

    Raises:
        UserError: there is no such device, it cannot be used here, or it does not know the dtype.
    """
    if device not in DEVICES:
        raise UserError(f"unknown device '{device}'{nearest(device, DEVICES)}; --device takes {', '.join(DEVICES)}")
    dtypes = CPU_DTYPES if device == "cpu" else GPU_DTYPES
    if dtype not in dtypes:
        others = "--device gpu or sim" if device == "cpu" else "--device cpu"
        raise UserError(
            f"--device {device} computes in {', '.join(dtypes)}, and training.dtype is {dtype}: that takes {others}"
        )
    if device == "cpu":
        return nanoeuler.cpu
    if device == "gpu" and (reason := why_no_gpu()) is not None:
        raise UserError(reason)
    return _kernels(on_host=device == "sim", tf32=dtype == "tf32")


def why_no_gpu() -> str | None:
    """Return why kernels cannot be launched on a GPU here, and what to do; None where they can."""
    from nanoeuler.system.availability import why_no_gpu

    return why_no_gpu()


def _kernels(on_host: bool, tf32: bool) -> Any:
    """Return the op table of the kernels, for arrays in the GPU's memory or in the host's.

    Raises:
        UserError: Numba is not installed.
    """
    from nanoeuler.simt import needing_numba

    needing_numba("source")
    import nanoeuler.gpu
    from nanoeuler.gpu.linear import products

    if on_host:
        table = {name: getattr(nanoeuler.gpu, name) for name in nanoeuler.gpu.__all__}
        return SimpleNamespace(**table | {"empty": nanoeuler.cpu.empty})
    products.tf32 = tf32  # of cuBLAS: on the host our own product computes, in float32
    return nanoeuler.gpu
