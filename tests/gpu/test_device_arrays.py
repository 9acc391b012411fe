"""The step on numba-cuda's own device arrays, with no GPU: memory that is only an address.

Nothing is launched. What is proven is that everything the model and the step do to an array (slices, views of another
shape or type) is something that numba-cuda's arrays can do, and that the kernels get the types there that they are
judged in.
"""

import contextlib
import ctypes
import importlib
from typing import Any

import numpy as np
import pytest
from gpu.test_model import MODELS, training

from nanoeuler.config import Config
from nanoeuler.gpu import memory, rehearsal
from nanoeuler.gpu.backend import sliceable
from nanoeuler.gpu.launch import on_gpu

devicearray = pytest.importorskip("numba.cuda.cudadrv.devicearray", reason="numba-cuda is not installed")


class Address:
    """Device memory as numba-cuda sees it: an address and a size."""

    __cuda_memory__ = True

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size, self._cuda_memsize_ = address, size, size
        self.device_ctypes_pointer = ctypes.c_void_p(address)

    def view(self, start: int, stop: int | None = None) -> "Address":
        stop = self.size if stop is None else stop
        assert 0 <= start <= stop <= self.size
        return Address(self.address + start, stop - start)


class Arena:
    """Hands out arrays of memory that is not there."""

    def __init__(self) -> None:
        self.end = 1 << 40

    def take(self, size: int, dtype: Any) -> Any:
        dtype = np.dtype(dtype)
        data = Address(self.end, size * dtype.itemsize)
        self.end += memory.rounded_up(size * dtype.itemsize)
        return sliceable(devicearray.DeviceNDArray((size,), (dtype.itemsize,), dtype, gpu_data=data))


def layout(argument: Any) -> Any:
    """Return what a kernel is compiled for."""
    if on_gpu(argument):
        return str(argument._numba_type_)
    if isinstance(argument, np.ndarray):
        from numba import typeof

        return str(typeof(argument))
    return type(argument)


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_possible_and_has_the_judged_types(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(model=MODELS[name], training=training(gradient_accumulation=2, dtype=dtype))
    judged = rehearsal.rehearse(config)
    arena, counter = Arena(), Arena().take(1, np.uint32)
    monkeypatch.setattr("numba.cuda.cudadrv.devices._runtime.ensure_context", contextlib.nullcontext)
    monkeypatch.setattr(memory, "_arena", arena)
    monkeypatch.setattr(memory, "_scratch", {})
    monkeypatch.setattr(rehearsal, "shape_only", arena.take)
    monkeypatch.setattr(importlib.import_module("nanoeuler.gpu.global_norm"), "_counter_on_gpu", lambda: counter)
    monkeypatch.setattr("nanoeuler.gpu.cublas.available", lambda: False)
    real = rehearsal.rehearse(config)
    assert len(real.launches) == len(judged.launches)
    for ours, expected in zip(real.launches, judged.launches, strict=True):
        assert ours.kernel is expected.kernel
        assert (ours.grid, ours.block) == (expected.grid, expected.block)
        assert list(map(layout, ours.args)) == list(map(layout, expected.args))
        assert any(on_gpu(a) for a in ours.args)
        assert not any(isinstance(a, np.ndarray) for a in ours.args)
    assert arena.end - (1 << 40) <= 1.01 * judged.allocated


@pytest.mark.parametrize(
    "index",
    [
        slice(1, 3),
        1,
        (slice(None), 2),
        (slice(None), slice(1, 4)),
        (slice(None), slice(None), slice(2, 4)),
        (1, slice(2, 3)),
    ],
    ids=str,
)
def test_slices_are_those_of_numba_cuda_without_its_walk(index: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own takes a third of a second for the queries of a packed q|k|v."""
    monkeypatch.setattr("numba.cuda.cudadrv.devices._runtime.ensure_context", contextlib.nullcontext)
    data = Address(1 << 40, 4 * 3 * 5 * 6 * 7)
    plain = devicearray.DeviceNDArray((3 * 5 * 6 * 7,), (4,), np.float32, gpu_data=data)
    expected = plain.reshape(3, 5, 6, 7)[index]
    ours = sliceable(plain).reshape(3, 5, 6, 7)
    parts = index if isinstance(index, tuple) else (index,)
    with monkeypatch.context() as patch:
        if all(isinstance(part, slice) for part in parts):
            patch.setattr(type(plain._dummy), "iter_contiguous_extent", None)  # the walk
        got = ours[index]
    assert type(got) is type(ours) is type(sliceable(plain))
    assert (got.shape, got.strides, got.dtype) == (expected.shape, expected.strides, expected.dtype)
    assert got.__cuda_array_interface__ == expected.__cuda_array_interface__
    assert got._numba_type_ == expected._numba_type_
