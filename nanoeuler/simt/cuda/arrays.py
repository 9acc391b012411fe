"""Arrays on a device that is not there: host memory behind the interface of ``numba.cuda``'s device arrays.

What a GPU would refuse is refused here: arithmetic on a device array, a copy between different shapes or dtypes. Memory
that ``device_array`` gives counts as never written, and the checked executor reports a kernel that reads it.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from nanoeuler.simt.checked.memory import mark_written, never_written
from nanoeuler.simt.faults import UnsupportedError

Shape = int | tuple[int, ...]
GARBAGE = 0xFF  # in every byte of memory that nothing has written: NaN as a float, -1 as an integer


class DeviceNDArray:
    """An array of a device. ``memory`` is the NumPy array that stands for it."""

    __cuda_memory__ = True
    __cuda_ndarray__ = True
    __array_priority__ = 1000

    def __init__(self, memory: np.ndarray, stream: Any = 0) -> None:
        self.memory = memory
        self.stream = stream

    def __repr__(self) -> str:
        return f"<device array of shape {self.shape}, {self.dtype}: copy_to_host() gives its values>"

    # What it is

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self.memory.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes from one element to the next, along each axis."""
        return self.memory.strides

    @property
    def dtype(self) -> np.dtype:
        """The elements' NumPy dtype."""
        return self.memory.dtype

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.memory.size

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.memory.ndim

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.memory.nbytes

    alloc_size = nbytes

    @property
    def flags(self) -> dict[str, bool]:
        """The flags of a NumPy array like it."""
        flags = self.memory.flags
        return {"C_CONTIGUOUS": flags.c_contiguous, "F_CONTIGUOUS": flags.f_contiguous}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        described = self.memory.__array_interface__
        return {**{name: described[name] for name in ("shape", "strides", "data", "typestr")}, "version": 3}

    def is_c_contiguous(self) -> bool:
        """Return whether rows lie one after the other, without gaps."""
        return self.memory.flags.c_contiguous

    def is_f_contiguous(self) -> bool:
        """Return whether columns lie one after the other, without gaps."""
        return self.memory.flags.f_contiguous

    def __len__(self) -> int:
        return len(self.memory)

    # To and from the host

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        """Return the values: in ``ary``, which must have this shape, dtype and layout, or in a new array."""
        if ary is None:
            return np.array(self.memory, subok=False)
        _require_same(self.memory, ary)
        ary[...] = self.memory
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Copy an array of the host or the device, of this shape and dtype, to this one."""
        source = ary.memory if isinstance(ary, DeviceNDArray) else np.asarray(ary)
        _require_contiguous(self.memory)
        if source.size:
            _require_same(self.memory, source, strides=False)
            self.memory[...] = source.reshape(self.shape)
            mark_written(self.memory)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a device array comes to the host as a copy: copy=False cannot be had")
        return self.copy_to_host() if dtype is None else self.copy_to_host().astype(dtype)

    def __getitem__(self, item: Any) -> Any:
        part = self._part(item)
        if part.ndim or part.dtype.names is not None:
            return DeviceNDArray(part, self.stream)
        return part[()]

    def __setitem__(self, item: Any, value: Any) -> None:
        part = self._part(item)
        part[...] = value.memory if isinstance(value, DeviceNDArray) else value
        mark_written(part)

    def getitem(self, item: Any, stream: Any = 0) -> Any:
        """Return ``self[item]``."""
        return self[item]

    def setitem(self, key: Any, value: Any, stream: Any = 0) -> None:
        """Do ``self[key] = value``."""
        self[key] = value

    def _part(self, item: Any) -> np.ndarray:
        """Return the view that an index names: an element is an array without axes."""
        parts = item if isinstance(item, tuple) else (item,)
        if isinstance(item, str):
            return self.memory[item]
        for part in parts:
            if part is not Ellipsis and not isinstance(part, (int, np.integer, slice)):
                raise TypeError(f"a device array is indexed by integers and slices, not by {type(part).__name__}")
        return self.memory[parts if Ellipsis in parts else (*parts, ...)]

    # Other views of the same memory

    def bind(self, stream: Any = 0) -> "DeviceNDArray":
        """Return this array with a stream of its own."""
        return DeviceNDArray(self.memory, stream)

    def reshape(self, *newshape: Any, order: Literal["C", "F"] = "C") -> "DeviceNDArray":
        """Return the same memory in another shape."""
        shape = newshape[0] if len(newshape) == 1 else newshape
        return self._same_memory(self.memory.reshape(shape, order=order))

    def ravel(self, order: Literal["C", "F"] = "C", stream: Any = 0) -> "DeviceNDArray":
        """Return the same memory with one axis."""
        return self._same_memory(self.memory.ravel(order=order))

    def _same_memory(self, changed: np.ndarray) -> "DeviceNDArray":
        if changed.size and not np.may_share_memory(changed, self.memory):
            raise NotImplementedError("operation requires copying: make the array contiguous first")
        return DeviceNDArray(changed, self.stream)

    def squeeze(self, axis: Any = None, stream: Any = 0) -> "DeviceNDArray":
        """Return the same memory without axes of length 1."""
        return DeviceNDArray(self.memory.squeeze(axis), self.stream)

    def view(self, dtype: Any) -> "DeviceNDArray":
        """Return the same memory as elements of another dtype."""
        return DeviceNDArray(self.memory.view(np.dtype(dtype)), self.stream)

    def transpose(self, axes: Any = None) -> "DeviceNDArray":
        """Return a copy with the two axes exchanged, as numba-cuda's own kernel makes it."""
        if axes and tuple(axes) == tuple(range(self.ndim)):
            return self
        if self.ndim != 2:
            raise NotImplementedError("transposing a non-2D DeviceNDArray isn't supported")
        return to_device(np.ascontiguousarray(np.transpose(self.memory, axes)))

    @property
    def T(self) -> "DeviceNDArray":  # noqa: N802 (NumPy's name)
        """The transpose, a copy."""
        return self.transpose()

    def split(self, section: int, stream: Any = 0) -> Iterator["DeviceNDArray"]:
        """Yield views of ``section`` elements each; the last may be smaller."""
        if self.ndim != 1:
            raise ValueError("only support 1d array")
        for start in range(0, self.size, section):
            yield DeviceNDArray(self.memory[start : start + section], stream)


class MappedNDArray(np.ndarray):
    """Memory that host and device both see: no copies are made of it."""

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        """Return the values as a plain array."""
        return DeviceNDArray(self).copy_to_host(ary)

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Copy an array of this shape and dtype to this one."""
        DeviceNDArray(self).copy_to_device(ary)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return DeviceNDArray(self).__cuda_array_interface__


def _require_same(one: np.ndarray, other: np.ndarray, strides: bool = True) -> None:
    """Do nothing if two arrays can be copied as they lie in memory.

    Raises:
        TypeError: their dtypes differ.
        ValueError: their shapes, or the layouts of their memory, differ.
    """
    if one.dtype != other.dtype:
        raise TypeError(f"incompatible dtype: {one.dtype} vs. {other.dtype}: convert with .astype first")
    if one.squeeze().shape != other.squeeze().shape:
        raise ValueError(f"incompatible shape: {one.shape} vs. {other.shape}")
    if strides and one.size and one.squeeze().strides != other.squeeze().strides:
        raise ValueError(f"incompatible strides: {one.strides} vs. {other.strides}: the two must have the same layout")


def _require_contiguous(array: np.ndarray) -> None:
    """Do nothing if an array, but for axes of stride 0, is one piece of memory.

    Raises:
        ValueError: it has gaps.
    """
    core = array[tuple(0 if stride == 0 else slice(None) for stride in array.strides)] if array.size else array
    if not (core.flags.c_contiguous or core.flags.f_contiguous):
        raise ValueError(
            "the array has gaps in memory, and cannot be copied to or from a device in one piece: "
            "give np.ascontiguousarray(array)"
        )


# Making them --------------------------------------------------------------------------------------------------------


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else shape
    if isinstance(sizes, (float, np.floating)) or not all(isinstance(n, (int, np.integer)) for n in sizes):
        raise TypeError(f"shape must be an integer or tuple of integers, and is {shape!r}")
    return tuple(int(n) for n in sizes)


def _strides(shape: tuple[int, ...], itemsize: int, order: str) -> tuple[int, ...]:
    if order not in ("C", "F"):
        raise ValueError("must be either C/F order")
    axes = range(len(shape))
    return tuple(itemsize * math.prod(shape[a + 1 :] if order == "C" else shape[:a]) for a in axes)


def device_array(
    shape: Shape, dtype: Any = np.float64, strides: Any = None, order: str = "C", stream: Any = 0
) -> DeviceNDArray:
    """Return a device array in which nothing has been written yet."""
    sizes, kind = _shape(shape), np.dtype(dtype)
    steps = (strides,) if isinstance(strides, int) else tuple(strides or _strides(sizes, kind.itemsize, order))
    extent = sum((n - 1) * abs(s) for n, s in zip(sizes, steps, strict=True)) + kind.itemsize
    raw = never_written(extent if math.prod(sizes) else 0, np.uint8)
    raw[...] = 1 if kind == np.bool_ else GARBAGE
    return DeviceNDArray(np.ndarray(sizes, kind, raw, strides=steps), stream)


def _order(array: Any) -> str:
    return "F" if array.flags["F_CONTIGUOUS"] and not array.flags["C_CONTIGUOUS"] else "C"


def device_array_like(ary: Any, stream: Any = 0) -> DeviceNDArray:
    """Return a device array of the shape, dtype and layout of ``ary``, in which nothing has been written yet."""
    return device_array(ary.shape, ary.dtype, order=_order(ary), stream=stream)


def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: DeviceNDArray | None = None) -> DeviceNDArray:
    """Return a device array with the values of ``obj``, or copy them to the device array ``to``.

    With ``copy=False`` the memory is made and nothing written to it. A device array comes back as it is.
    """
    if to is None:
        if isinstance(obj, DeviceNDArray):
            return obj
        array = np.asarray(obj)
        _require_contiguous(array)
        to = device_array(array.shape, array.dtype, order=_order(array), stream=stream)
    if copy:
        to.copy_to_device(obj, stream)
    return to


def pinned_array(shape: Shape, dtype: Any = np.float64, strides: Any = None, order: str = "C") -> np.ndarray:
    """Return an uninitialised array of the host."""
    return device_array(shape, dtype, strides, order).copy_to_host()


def pinned_array_like(ary: Any) -> np.ndarray:
    """Return an uninitialised array of the host with the shape, dtype and layout of ``ary``."""
    return pinned_array(ary.shape, ary.dtype, order=_order(ary))


def mapped_array(
    shape: Shape,
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
    portable: bool = False,
    wc: bool = False,
) -> MappedNDArray:
    """Return an uninitialised array that host and device share."""
    return pinned_array(shape, dtype, strides, order).view(MappedNDArray)


def mapped_array_like(ary: Any, stream: Any = 0, portable: bool = False, wc: bool = False) -> MappedNDArray:
    """Return an uninitialised array that host and device share, with the shape, dtype and layout of ``ary``."""
    return mapped_array(ary.shape, ary.dtype, order=_order(ary))


def managed_array(
    shape: Shape,
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
    attach_global: bool = True,
) -> MappedNDArray:
    """Return an uninitialised array that moves between host and device as it is used."""
    return mapped_array(shape, dtype, strides, order)


@contextmanager
def pinned(*arylist: np.ndarray) -> Iterator[None]:
    """Hold host arrays in memory while the context lasts: nothing to do here."""
    yield


@contextmanager
def mapped(*arylist: np.ndarray, stream: Any = 0) -> Iterator[Any]:
    """Give device arrays on the memory of host arrays while the context lasts."""
    made = [DeviceNDArray(array, stream) for array in arylist]
    yield made[0] if len(made) == 1 else made


def is_cuda_array(obj: Any) -> bool:
    """Return whether ``obj`` says that it is memory of a device."""
    return hasattr(obj, "__cuda_array_interface__")


def as_cuda_array(obj: Any, sync: bool = True) -> DeviceNDArray:
    """Return the device array that ``obj`` is.

    Raises:
        TypeError: it is none.
        UnsupportedError: it is another library's, on a GPU.
    """
    if isinstance(obj, DeviceNDArray):
        return obj
    if isinstance(obj, MappedNDArray):
        return DeviceNDArray(obj)
    if is_cuda_array(obj):
        raise UnsupportedError(
            f"a {type(obj).__module__}.{type(obj).__name__} is memory of a GPU, and kernels run on the CPU here: "
            "give a NumPy array"
        )
    raise TypeError("*obj* doesn't implement the cuda array interface.")
