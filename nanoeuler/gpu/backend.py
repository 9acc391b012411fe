"""Numba's CUDA target. It is imported here and nowhere else in this package: a successor is then one file's change.

The kernels are defined with it whether or not there is a GPU. Where numba-cuda does not exist (macOS), or its own
simulator has taken its place (``NUMBA_ENABLE_CUDASIM``), :mod:`nanoeuler.simt.cuda` stands in for it: then kernels run
on the CPU only.
"""

from typing import Any

from numba import config, float32, int32, int64, uint16, uint32

cuda: Any
libdevice: Any

if config.ENABLE_CUDASIM:
    from nanoeuler.simt import cuda
    from nanoeuler.simt.cuda import libdevice
else:
    try:
        from numba import cuda
        from numba.cuda import libdevice
    except ImportError:
        from nanoeuler.simt import cuda
        from nanoeuler.simt.cuda import libdevice

__all__ = ["cuda", "float32", "int32", "int64", "libdevice", "uint16", "uint32"]
