"""A kernel to PTX, by numba-cuda and NVVM; the text is kept for the next launch with the same types."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from nanoeuler.simt.toolchain import compile_ptx, launch_types


def compile_kernel(dispatcher: Any, args: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the PTX of a kernel for a launch with ``args``, and that of what it is linked with.

    Of the dispatcher's options ``fastmath``, ``opt`` and ``link`` change it.

    Raises:
        UserError: an argument is of a type that no kernel takes, or C++ that is linked does not compile.
        UnsupportedError: numba-cuda cannot compile the kernel; its message says where and why.
    """
    options = dispatcher.targetoptions
    fastmath, optimise, link = bool(options["fastmath"]), bool(options["opt"]), tuple(options["link"] or ())
    return _compiled(dispatcher.py_func, launch_types(dispatcher, args), fastmath, optimise, link)


@lru_cache(maxsize=256)
def _compiled(
    function: Callable[..., Any], types: tuple[Any, ...], fastmath: bool, optimise: bool, link: tuple[Any, ...]
) -> tuple[str, ...]:
    return compile_ptx(function, types, {"fastmath": fastmath, "opt": optimise, "link": link})
