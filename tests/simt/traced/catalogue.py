"""The kernels of both catalogues, traced once with their variables for the tests of the stepper."""

import functools
from typing import Any

from simt.kernels import correct, faulty
from simt.kernels.cases import Case

from nanoeuler import simt
from nanoeuler.simt.traced.contents import Contents
from nanoeuler.simt.traced.steps import Steps

CORRECT: dict[str, Any] = {kernel.name: kernel for kernel in correct.CORRECT}
FAULTY: dict[str, Any] = {kernel.name: kernel for kernel in faulty.FAULTY}


@functools.cache
def traced(name: str) -> tuple[Case, Steps]:
    """Return a launch of a kernel, done, and its steps."""
    kernel = {**CORRECT, **FAULTY}[name]
    case = kernel.make() if name in FAULTY else kernel.case(max(kernel.sizes[0], min(11, kernel.sizes[1])))
    trace = simt.trace(kernel.kernel, case.grid, case.block, case.args, variables=True, shared_bytes=case.shared_bytes)
    return case, Steps(trace)


@functools.cache
def contents(name: str) -> Contents:
    """Return what is in the arrays of that launch."""
    return Contents(traced(name)[1])
