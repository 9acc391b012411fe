"""Kernels on a CPU: runs any ``@cuda.jit`` kernel with no GPU, finds what is wrong with it, judges its machine code.

>>> import numpy as np
>>> from numba import cuda
>>> from nanoeuler import simt
>>> @cuda.jit
... def double(out, x):
...     i = cuda.grid(1)
...     if i < x.size:
...         out[i] = x[i] + x[i]
>>> x = np.arange(5, dtype=np.float32)
>>> out = np.zeros_like(x)
>>> simt.run(double, 1, 32, (out, x))
>>> out
array([0., 2., 4., 6., 8.], dtype=float32)

``run`` has three executors: "compiled" is native code of the CPU, the quick one; "checked" watches every access and
finds races, missed barriers and bad indices; "ptx" interprets the text that the GPU's compiler makes of the kernel.
``compile_report`` says what that compiler makes of it on each architecture. README.md here has an example of each.
"""

import importlib
from typing import TYPE_CHECKING, Any, Literal

from nanoeuler.errors import UserError, nearest
from nanoeuler.simt.arguments import bound
from nanoeuler.simt.faults import Fault, KernelFaults, Party, UnsupportedError
from nanoeuler.simt.launch import Dimensions, Order, launch_shape

if TYPE_CHECKING:
    from nanoeuler.simt.checked.memory import require_alignment
    from nanoeuler.simt.judge import CompileReport, compile_report, format_report, gate
    from nanoeuler.simt.orders import compare_orders
    from nanoeuler.simt.source import emulates
    from nanoeuler.simt.traced import CARDS, Stepper, Trace, step, trace

INSTALL_GPU = "in nanoeuler's folder, python -m pip install -e '.[gpu]'"

Executor = Literal["compiled", "checked", "ptx"]
EXECUTORS = {"compiled": "run_compiled", "checked": "run_checked", "ptx": "run_ptx"}  # package of this one: function

# What is imported when it is first asked for: Numba alone takes longer than this package may.
_PARTS = {
    **dict.fromkeys(("CompileReport", "compile_report", "format_report", "gate"), "judge"),
    **dict.fromkeys(("CARDS", "Stepper", "Trace", "step", "trace"), "traced"),
    **{"compare_orders": "orders", "emulates": "source", "require_alignment": "checked.memory"},
}

__all__ = [
    "CARDS",
    "CompileReport",
    "Fault",
    "KernelFaults",
    "Party",
    "Stepper",
    "Trace",
    "UnsupportedError",
    "compare_orders",
    "compile_report",
    "emulates",
    "format_report",
    "gate",
    "require_alignment",
    "run",
    "step",
    "trace",
]


def run(
    kernel: Any,
    grid: Dimensions,
    block: Dimensions,
    args: tuple,
    *,
    executor: Executor = "compiled",
    shared_bytes: int = 0,
    order: Order = "forward",
    seed: int = 0,
) -> None:
    """Launch ``kernel[grid, block](*args)`` on the CPU.

    ``kernel`` is a function in Numba's CUDA Python, plain or decorated with ``@cuda.jit``. ``args`` are numbers and
    NumPy arrays of any dtype and layout that CUDA takes; arrays are changed in place. ``shared_bytes`` is the dynamic
    shared memory of a block, in bytes. ``order`` ("forward", "reverse", "random" by ``seed``) is that in which blocks,
    warps and lanes take their turns where source is run; the results of a correct kernel do not depend on it.

    Raises:
        KernelFaults: the kernel did what it must not do; "checked" finds the most, and says on which line.
        UnsupportedError: it uses something that the executor does not know; the message names it and its line.
        UserError: the launch is impossible, the executor unknown, or a package that it needs is not installed.
    """
    if executor not in tuple(EXECUTORS):
        raise UserError(f"unknown executor '{executor}'{nearest(str(executor), EXECUTORS)}: use {', '.join(EXECUTORS)}")
    if not isinstance(args, (tuple, list)):
        raise UserError(f"args is {type(args).__name__}: give a tuple of the kernel's arguments, (x,) for a single one")
    launch = launch_shape(grid, block, shared_bytes, order, seed)
    given = bound(needing_numba("source").python_function(kernel), tuple(args))
    getattr(needing_numba(executor), EXECUTORS[executor])(kernel, launch, given)


def needing_numba(name: str) -> Any:
    """Import a module of this package.

    Raises:
        UserError: Numba is not installed.
    """
    try:
        return importlib.import_module(f"nanoeuler.simt.{name}")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] in ("numba", "llvmlite"):
            raise UserError(f"running kernels takes Numba: {INSTALL_GPU}") from error
        raise


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _PARTS:
        raise AttributeError(f"module 'nanoeuler.simt' has no attribute '{name}'{nearest(name, __all__)}")
    return getattr(needing_numba(_PARTS[name]), name)
