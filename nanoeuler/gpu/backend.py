"""Numba's CUDA target. It is imported here and nowhere else in this package: a successor is then one file's change.

The kernels are defined with it whether or not there is a GPU. Where numba-cuda does not exist (macOS), or its own
simulator has taken its place (``NUMBA_ENABLE_CUDASIM``), :mod:`nanoeuler.simt.cuda` stands in for it: then kernels run
on the CPU only.
"""

import os
from contextlib import suppress
from typing import Any

# Small launches are meant here: without this numba-cuda warns of each. It is read when numba.cuda is imported.
os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")

from numba import config, float32, int32, int64, uint16, uint32


def _target() -> tuple[Any, Any]:
    """Return ``cuda`` and ``libdevice``: Numba's, or what stands in for them."""
    if not config.ENABLE_CUDASIM:
        with suppress(ImportError):
            from numba import cuda
            from numba.cuda import libdevice

            return cuda, libdevice
    from nanoeuler.simt import cuda as stand_in

    return stand_in, stand_in.libdevice


cuda, libdevice = _target()

__all__ = ["cuda", "float32", "int32", "int64", "libdevice", "uint16", "uint32"]
