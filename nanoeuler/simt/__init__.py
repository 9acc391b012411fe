"""Runs and judges ``@cuda.jit`` kernels with no GPU."""

from typing import TYPE_CHECKING, Any

from nanoeuler.simt.faults import Fault, KernelFaults, UnsupportedError
from nanoeuler.simt.launch import Dimensions, Order, launch_shape


def run(
    kernel: Any,
    grid: Dimensions,
    block: Dimensions,
    args: tuple,
    *,
    executor: str = "compiled",
    shared_bytes: int = 0,
    order: Order = "forward",
    seed: int = 0,
) -> None:
    launch = launch_shape(grid, block, shared_bytes, order, seed)
    if executor == "compiled":
        from nanoeuler.simt.compiled import run_compiled

        run_compiled(kernel, launch, args)
    elif executor == "checked":
        from nanoeuler.simt.checked import run_checked

        run_checked(kernel, launch, args)
    elif executor == "ptx":
        from nanoeuler.simt.ptx import run_ptx

        run_ptx(kernel, launch, args)
