"""Variants of a kernel: the same source with other values for some names of its module.

Numba takes global names as constants when it compiles, so a tile size, a head size or a conversion can be a plain name
in a kernel's source, readable as it stands, and be exchanged for another here.
"""

import functools
from types import FunctionType
from typing import Any

from nanoeuler.gpu.backend import cuda


def variant(kernel: Any, **names: Any) -> Any:
    """Return the kernel compiled with these values of its global names; the same object for the same values.

    Device functions that the kernel calls keep their own: what is to be exchanged must stand in the kernel itself. The
    options that the kernel was decorated with hold for the variant too.

    Raises:
        KeyError: the kernel's module has no such name.
    """
    return _variant(kernel, tuple(sorted(names.items())))


@functools.cache
def _variant(kernel: Any, names: tuple[tuple[str, Any], ...]) -> Any:
    function = kernel.py_func
    for name, _ in names:
        function.__globals__[name]  # KeyError: there is no such name
    changed = {name: value for name, value in names if name in function.__code__.co_names}
    if not changed:
        return kernel
    copy = FunctionType(function.__code__, {**function.__globals__, **changed}, function.__name__)
    copy.__doc__, copy.__module__, copy.__qualname__ = function.__doc__, function.__module__, function.__qualname__
    copy.__kwdefaults__, copy.__defaults__ = function.__kwdefaults__, function.__defaults__
    return cuda.jit(copy, **kernel.targetoptions)
