"""The arguments of a launch, before any executor sees them: bound to the parameters, and of kinds a kernel takes."""

import enum
import functools
import inspect
from types import FunctionType
from typing import Any

import numpy as np

from nanoeuler.errors import UserError

NUMBERS = (bool, int, float, complex, np.number, np.bool_, np.datetime64, np.timedelta64, enum.Enum, np.void)


def bound(kernel: FunctionType, args: tuple) -> tuple:
    """Return the kernel's arguments in the order of its parameters, with its defaults where none was given.

    Raises:
        UserError: there are too few or too many, or one is nothing that a kernel can take.
    """
    signature = _signature(kernel)
    place = f"{kernel.__code__.co_filename}:{kernel.__code__.co_firstlineno}: kernel {kernel.__name__}"
    try:
        given = signature.bind(*args)
    except TypeError as error:
        raise UserError(f"{place}{signature} was given {len(args)} arguments: {error}") from error
    given.apply_defaults()
    for name, value in given.arguments.items():
        wrong = _refused(value)
        if wrong is not None:
            raise UserError(f"{place}: argument '{name}' is {wrong}")
    return tuple(given.arguments.values())


_signature = functools.lru_cache(maxsize=512)(inspect.signature)


def _refused(value: Any) -> str | None:
    """Return what is wrong with an argument, and what to give instead; None if it can be taken."""
    if isinstance(value, np.ma.MaskedArray):
        return "a masked array: give its .data, and its .mask as another argument"
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject or value.dtype.kind in "SU":
            return f"an array of {value.dtype}, which kernels cannot take: give numbers or records of numbers"
        if value.dtype.char in "gG":
            return f"an array of {value.dtype}, which no GPU has: give float64 or complex128"
        if not value.dtype.isnative:
            return (
                f"an array of {value.dtype}, in another byte order: give array.astype({value.dtype.newbyteorder('=')})"
            )
        return None
    if isinstance(value, tuple):
        return next((wrong for wrong in map(_refused, value) if wrong is not None), None)
    if isinstance(value, list):
        return "a list: give a NumPy array, or a tuple"
    if isinstance(value, NUMBERS) or hasattr(value, "memory"):
        return None
    return f"{type(value).__name__}, which kernels cannot take: give NumPy arrays, numbers, or tuples of them"
