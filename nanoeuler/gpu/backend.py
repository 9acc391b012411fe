"""Numba's CUDA target. It is imported here and nowhere else in this package: a successor is then one file's change.

The kernels are defined with it whether or not there is a GPU. Where numba-cuda does not exist (macOS), or its own
simulator has taken its place (``NUMBA_ENABLE_CUDASIM``), :mod:`nanoeuler.simt.cuda` stands in for it: then kernels run
on the CPU only.
"""

from contextlib import suppress
from typing import Any

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


def _device_array_class() -> Any:
    """Return the class of arrays in the GPU's memory; None for the stand-in's, which needs none of its own.

    numba-cuda's walks in Python over every contiguous piece of a slice, a third of a second for the queries of a
    packed q|k|v of a small GPT-2. What it wants to know, an address and strides, takes no walk.
    """
    with suppress(ImportError, AttributeError):
        base: Any = cuda.devicearray.DeviceNDArray

        class DeviceArray(base):
            def _do_getitem(self, item: Any, stream: Any = 0) -> Any:
                part = self._dummy[item]
                if not part.is_array:
                    return super()._do_getitem(item, stream)
                data = self.gpu_data.view(*part.extent)
                return type(self)(part.shape, part.strides, self.dtype, self._default_stream(stream), data)

        return DeviceArray
    return None


cuda, libdevice = _target()
_device_array = _device_array_class()


def device_array(size: int, dtype: Any) -> Any:
    """Return an uninitialised flat array in the GPU's memory."""
    return sliceable(cuda.device_array(size, dtype))


def sliceable(array: Any) -> Any:
    """Return a flat array in the GPU's memory as one of which slices are quickly taken."""
    if _device_array is None or isinstance(array, _device_array):
        return array
    return _device_array(array.shape, array.strides, array.dtype, array.stream, array.gpu_data)


def without_warnings() -> None:
    """Let small launches, which are meant here, pass without a word from Numba."""
    with suppress(ImportError):
        from numba.cuda.core import config as numba_cuda

        numba_cuda.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0


without_warnings()

__all__ = ["cuda", "device_array", "float32", "int32", "int64", "libdevice", "sliceable", "uint16", "uint32"]
