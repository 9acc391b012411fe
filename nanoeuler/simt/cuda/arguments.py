"""The arguments of a launch: checked against the kernel's signature, copied to the device, and back after it."""

import enum
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types
from numba.core.types.containers import BaseTuple
from numba.np.numpy_support import as_dtype

from nanoeuler.simt.checked.memory import mark_written
from nanoeuler.simt.cuda.arrays import (
    DeviceNDArray,
    MappedNDArray,
    as_cuda_array,
    device_array_like,
    is_cuda_array,
    to_device,
)

NUMBERS = (bool, int, float, complex, np.number, np.bool_, np.datetime64, np.timedelta64, enum.Enum, np.void)


class In:
    """An array of the host that a launch copies to the device, and not back."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def on_device(self) -> tuple[np.ndarray, Callable[[], None] | None]:
        """Return the device's memory, and what copies it back."""
        return to_device(self.value).memory, None


class Out(In):
    """An array of the host that a launch copies back from the device, where it starts with nothing in it."""

    def on_device(self) -> tuple[np.ndarray, Callable[[], None] | None]:
        """Return the device's memory, and what copies it back."""
        return self._back(device_array_like(self.value).memory)

    def _back(self, memory: np.ndarray) -> tuple[np.ndarray, Callable[[], None] | None]:
        return memory, lambda: np.copyto(self.value, memory)


class InOut(Out):
    """An array of the host that a launch copies to the device and back: what a plain array is too."""

    def on_device(self) -> tuple[np.ndarray, Callable[[], None] | None]:
        """Return the device's memory, and what copies it back."""
        memory = to_device(self.value).memory
        if not self.value.flags.writeable:
            memory.flags.writeable = False
            return memory, None
        return self._back(memory)


Values = tuple[list[Any], list[Callable[[], None]]]


def bind(function: Callable, args: tuple) -> list[tuple[str, Any]]:
    """Return the arguments with their parameters' names, defaults filled in.

    Raises:
        TypeError: too few or too many are given.
    """
    parameters = list(inspect.signature(function).parameters.values())
    defaults = [p.default for p in parameters[len(args) :]]
    if len(args) > len(parameters) or inspect.Parameter.empty in defaults:
        few = "too many" if len(args) > len(parameters) else "not enough"
        raise TypeError(f"{few} arguments for kernel {function.__name__}: expected {len(parameters)}, got {len(args)}")
    return list(zip((p.name for p in parameters), (*args, *defaults), strict=True))


def on_device(named: list[tuple[str, Any]], kernel: str) -> Values:
    """Return the values that the kernel gets, and what to do after the launch to bring arrays back.

    A plain array of the host is copied, once for each parameter: a kernel that is given one array twice has two, and
    the last one wins, as on a GPU.
    """
    values, after = [], []
    for name, given in named:
        value, back = _on_device(given, f"argument '{name}' of kernel {kernel}")
        values.append(value)
        after += back
    return values, after


def _on_device(given: Any, what: str) -> tuple[Any, list[Callable[[], None]]]:
    if isinstance(given, DeviceNDArray):
        return given.memory, []
    if isinstance(given, MappedNDArray):
        return given.view(np.ndarray), []
    if isinstance(given, (In, np.ndarray)):
        value, back = (given if isinstance(given, In) else InOut(given)).on_device()
        return value, [] if back is None else [back]
    if isinstance(given, tuple):
        parts = [_on_device(g, what) for g in given]
        items = [value for value, _ in parts]
        made = type(given)(*items) if hasattr(given, "_fields") else tuple(items)
        return made, [back for _, backs in parts for back in backs]
    if isinstance(given, NUMBERS):
        return given, []
    if is_cuda_array(given):
        return as_cuda_array(given).memory, []
    hint = ": give np.array(...)" if isinstance(given, (list, range)) else ""
    raise TypeError(f"{what} is a {type(given).__name__}: a kernel takes arrays, numbers and tuples of them{hint}")


def written(values: list[Any]) -> None:
    """Let all arrays count as written: an executor that does not watch has run."""
    for value in values:
        if isinstance(value, np.ndarray):
            mark_written(value)
        elif isinstance(value, tuple):
            written(list(value))


# Signatures ---------------------------------------------------------------------------------------------------------


def fit(named: list[tuple[str, Any]], signatures: list[tuple], kernel: str) -> list[tuple[str, Any]]:
    """Return the arguments as one of a kernel's declared signatures has them.

    Of several signatures the first counts that the arguments have exactly, else the first that they can be brought to.

    Raises:
        TypeError: they fit none. (numba-cuda does not look at the arrays of a kernel with one signature, and reads
            their memory as what the signature says.)
    """
    failures = []
    for exact in (True, False):
        for signature in signatures:
            try:
                return _fitted(named, signature, exact, kernel)
            except TypeError as error:
                failures.append(error)
    if len(signatures) == 1:
        raise failures[-1]
    given = ", ".join(_spelled(value) for _, value in named)
    known = "; ".join(", ".join(map(str, s)) for s in signatures)
    raise TypeError(
        f"No matching definition for argument type(s) {given} of kernel {kernel}; it is compiled for {known}"
    )


def _fitted(named: list[tuple[str, Any]], signature: tuple, exact: bool, kernel: str) -> list[tuple[str, Any]]:
    if len(signature) != len(named):
        raise TypeError(f"kernel {kernel} has a signature of {len(signature)} arguments, and was given {len(named)}")
    fitted = []
    for (name, value), kind in zip(named, signature, strict=True):
        changed = converted(value, kind, f"argument '{name}' of kernel {kernel}")
        if exact and isinstance(kind, types.Number | types.Boolean) and _spelled(value) != str(kind):
            raise TypeError(f"argument '{name}' of kernel {kernel} is not exactly {kind}")
        fitted.append((name, changed))
    return fitted


def converted(value: Any, kind: types.Type, what: str) -> Any:
    """Return an argument as a value of a numba type; integers wrap, as in numba-cuda's launch.

    Raises:
        TypeError: it cannot be one.
    """
    if isinstance(kind, types.Array):
        _require_array(value, kind, what)
        return value
    if isinstance(kind, BaseTuple) and isinstance(value, tuple) and len(value) == len(kind):
        return tuple(converted(v, k, what) for v, k in zip(value, kind, strict=True))
    try:
        if isinstance(kind, types.Boolean):
            return bool(value)
        if isinstance(kind, types.Integer):
            wrapped = np.uint64(operator.index(value) & (2**64 - 1))
            return wrapped.astype(as_dtype(kind))
        if isinstance(kind, types.Float):
            return as_dtype(kind).type(float(value))
        if isinstance(kind, types.Complex):
            return as_dtype(kind).type(complex(value))
    except TypeError as error:
        raise TypeError(f"{what} is {_spelled(value)}, and its signature has {kind}") from error
    return value


def _require_array(given: Any, kind: types.Array, what: str) -> None:
    value = given.value if isinstance(given, In) else given
    if not isinstance(value, (np.ndarray, DeviceNDArray)):
        raise TypeError(f"{what} is {_spelled(value)}, and its signature has {kind}")
    same = value.dtype == as_dtype(kind.dtype) and value.ndim == kind.ndim
    laid = {"C": value.flags["C_CONTIGUOUS"], "F": value.flags["F_CONTIGUOUS"]}
    if not same or not laid.get(kind.layout, True):
        raise TypeError(
            f"{what} is {_spelled(value)}, and its signature has {kind}: numba-cuda would read its memory as that"
        )


def _spelled(value: Any) -> str:
    """Return an argument's type as Numba spells it."""
    if isinstance(value, In):
        value = value.value
    if isinstance(value, (np.ndarray, DeviceNDArray)):
        layout = "C" if value.flags["C_CONTIGUOUS"] else "F" if value.flags["F_CONTIGUOUS"] else "A"
        return f"array({value.dtype}, {value.ndim}d, {layout})"
    return {bool: "bool", int: "int64", float: "float64"}.get(type(value), type(value).__name__)
