"""Atomics of a compiled kernel. Threads run one at a time here, so each is a plain read, change and write.

What happens at NaN and at the bounds of inc and dec is numba-cuda's (its cudadrv/nvvm.py), which is CUDA's
(CUDA C++ Programming Guide, "Atomic Functions").
"""

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core.errors import TypingError
from numba.extending import overload, register_jitable

NUMBERS = (types.int32, types.uint32, types.int64, types.uint64, types.float32, types.float64)
INTEGERS = NUMBERS[:4]
CHECKED = {"boundscheck": True}  # as the kernel itself: nothing outside an array is ever touched
UNSIGNED = (types.uint32, types.uint64)


def _atomic(name: str, kinds: tuple, change: Callable) -> Callable:
    """Return the atomic ``name``: ``change(old, value, one)`` is the new element; the old one is returned.

    ``one`` has the element's type: a literal 1 is int64, and uint64 + int64 is float64 in Numba.
    """
    changed = register_jitable(change)

    def atomic(array: Any, index: Any, value: Any) -> Any:
        """Stands for the atomic in Python."""

    @overload(atomic, strict=False, jit_options=CHECKED)
    def _typed(array: Any, index: Any, value: Any) -> Any:
        kind = _element(name, array, kinds)

        def run(array: Any, index: Any, value: Any) -> Any:
            old = array[index]
            array[index] = kind(changed(old, kind(value), kind(1)))
            return old

        return run

    return atomic


def _element(name: str, array: Any, kinds: tuple) -> Any:
    """Return the array's element type, if CUDA has the atomic for it."""
    if not isinstance(array, types.Array) or array.dtype not in kinds:
        raise TypingError(f"cuda.atomic.{name} takes arrays of {', '.join(map(str, kinds))}, not {array}")
    return array.dtype


def _keep_larger(old: Any, value: Any, one: Any) -> Any:
    return value if old < value else old


def _keep_smaller(old: Any, value: Any, one: Any) -> Any:
    return value if old > value else old


def _nanmax(old: Any, value: Any, one: Any) -> Any:
    return value if old < value or (old != old and value == value) else old


def _nanmin(old: Any, value: Any, one: Any) -> Any:
    return value if old > value or (old != old and value == value) else old


def _inc(old: Any, value: Any, one: Any) -> Any:
    return old + one if old < value else one - one


def _dec(old: Any, value: Any, one: Any) -> Any:
    return value if old < one or old > value else old - one


FUNCTIONS = {
    "add": _atomic("add", NUMBERS, lambda old, value, one: old + value),
    "sub": _atomic("sub", NUMBERS, lambda old, value, one: old - value),
    "max": _atomic("max", NUMBERS, _keep_larger),
    "min": _atomic("min", NUMBERS, _keep_smaller),
    "nanmax": _atomic("nanmax", NUMBERS, _nanmax),
    "nanmin": _atomic("nanmin", NUMBERS, _nanmin),
    "and_": _atomic("and_", INTEGERS, lambda old, value, one: old & value),
    "or_": _atomic("or_", INTEGERS, lambda old, value, one: old | value),
    "xor": _atomic("xor", INTEGERS, lambda old, value, one: old ^ value),
    "inc": _atomic("inc", UNSIGNED, _inc),
    "dec": _atomic("dec", UNSIGNED, _dec),
    "exch": _atomic("exch", INTEGERS, lambda old, value, one: value),
}


def cas(array: Any, index: Any, old: Any, value: Any) -> Any:
    """cuda.atomic.cas: write ``value`` where the element equals ``old``; return what was there."""


@overload(cas, strict=False, jit_options=CHECKED)
def _cas(array: Any, index: Any, old: Any, value: Any) -> Any:
    kind = _element("cas", array, INTEGERS)

    def run(array: Any, index: Any, old: Any, value: Any) -> Any:
        there = array[index]
        if there == kind(old):
            array[index] = kind(value)
        return there

    return run


def compare_and_swap(array: Any, old: Any, value: Any) -> Any:
    """cuda.atomic.compare_and_swap: ``cas`` on the first element."""


@overload(compare_and_swap, strict=False, jit_options=CHECKED)
def _compare_and_swap(array: Any, old: Any, value: Any) -> Any:
    _element("compare_and_swap", array, INTEGERS)
    return lambda array, old, value: cas(array, 0, old, value)
