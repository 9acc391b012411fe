"""``cuda.reduce``: an array folded by a function of two values, by one block of threads."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.np.numpy_support import from_dtype

from nanoeuler.simt.cuda.arrays import DeviceNDArray, device_array, to_device
from nanoeuler.simt.cuda.dispatch import Dispatcher, jit
from nanoeuler.simt.cuda.stubs import NAMES

THREADS = 128
shared: Any = NAMES["shared"]
syncthreads: Any = NAMES["syncthreads"]
threadIdx: Any = NAMES["threadIdx"]  # noqa: N816 (CUDA's name)


def _kernel(function: Callable, dtype: np.dtype) -> Dispatcher:
    """Return the kernel that folds an array by ``function``, an associative and commutative one."""
    kind = from_dtype(dtype)

    def fold(out: Any, x: Any, initial: Any) -> None:
        partial = shared.array(THREADS, kind)
        t = threadIdx.x
        if t < x.size:
            value = x[t]
            for i in range(t + THREADS, x.size, THREADS):
                value = function(value, x[i])
            partial[t] = value
        syncthreads()
        width = THREADS // 2
        while width > 0:
            if t < width and t + width < x.size:
                partial[t] = function(partial[t], partial[t + width])
            syncthreads()
            width //= 2
        if t == 0:
            out[0] = function(partial[0], initial)

    fold.__module__ = function.__module__  # it is the script's, as far as reports go
    return jit(fold)


class Reduce:
    """A reduction by a function of two values, which is compiled as a device function."""

    def __init__(self, functor: Callable) -> None:
        self.functor = functor
        self.kernels: dict[np.dtype, Dispatcher] = {}

    def __call__(
        self, arr: Any, size: int | None = None, res: DeviceNDArray | None = None, init: Any = 0, stream: Any = 0
    ) -> Any:
        """Return all elements of ``arr`` (1-D), or its first ``size``, and ``init``, folded; in ``res[0]`` if given."""
        if arr.ndim != 1:
            raise TypeError("only support 1D array")
        values = to_device(arr if size is None else arr[:size])
        initial = values.dtype.type(init)
        if values.size == 0:
            return initial
        out = self._fold(values, initial)
        if res is None:
            return out[0]
        res[:1].copy_to_device(out)
        return None

    def _fold(self, values: DeviceNDArray, initial: Any) -> DeviceNDArray:
        """Return a device array with the result. A lambda has no source that the executors read: the host folds it."""
        dtype = values.dtype
        if getattr(self.functor, "__name__", "") == "<lambda>":
            return to_device(np.array([functools.reduce(self.functor, values.copy_to_host(), initial)], dtype))
        if dtype not in self.kernels:
            self.kernels[dtype] = _kernel(self.functor, dtype)
        out = device_array(1, dtype)
        self.kernels[dtype][1, THREADS](out, values, initial)
        return out
