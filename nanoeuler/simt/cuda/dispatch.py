"""``cuda.jit`` and what it makes: a kernel whose launches go to an executor on the CPU."""

import functools
import numbers
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import MethodType
from typing import Any

from numba.core import sigutils, types

from nanoeuler.errors import nearest
from nanoeuler.simt.cuda.arguments import bind, fit, on_device, written
from nanoeuler.simt.faults import UnsupportedError
from nanoeuler.simt.launch import Launch, launch_shape

BLOCK = 128  # threads of a block that forall takes where it is free to choose
NO_CONFIGURATION = """
Kernel launch configuration was not specified. Use the syntax:

kernel_function[blockspergrid, threadsperblock](arg0, arg1, ..., argn)
"""
MACHINE_CODE = ("inspect_", "get_regs", "get_const", "get_shared", "get_local", "get_max_threads")


@dataclass
class Runner:
    """Where launches go. ``execute(kernel, launch, args)`` gets NumPy arrays; ``made`` is told of each new kernel."""

    execute: Callable[["Dispatcher", Launch, tuple], None]
    made: Callable[["Dispatcher"], None] = lambda kernel: None


def run_compiled(kernel: "Dispatcher", launch: Launch, args: tuple) -> None:
    """Run a launch with the compiled executor, for which all memory counts as written."""
    from nanoeuler.simt.compiled.execute import run_compiled

    try:
        run_compiled(kernel, launch, args)
    finally:
        written(list(args))


_runner = Runner(run_compiled)


@contextmanager
def launches_go_to(runner: Runner) -> Iterator[None]:
    """Give all launches to ``runner`` while the context lasts; at other times they go to the compiled executor."""
    global _runner
    before, _runner = _runner, runner
    try:
        yield
    finally:
        _runner = before


class Dispatcher:
    """A kernel or device function. ``py_func`` is the plain function; the executors read its source."""

    def __init__(self, py_func: Callable, signatures: list[tuple], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, py_func)
        self.py_func = py_func
        self.signatures = signatures
        self.targetoptions = options
        self.specialized = False
        self.extensions = options.get("extensions", [])
        _runner.made(self)

    def __repr__(self) -> str:
        return f"<{'device function' if self.is_device else 'kernel'} {self.py_func.__qualname__} on the CPU>"

    @property
    def is_device(self) -> bool:
        """Whether it was declared with ``device=True``."""
        return bool(self.targetoptions.get("device"))

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError(NO_CONFIGURATION)

    def __get__(self, obj: Any, objtype: Any = None) -> Any:
        return self if obj is None else MethodType(self, obj)

    def __getitem__(self, configuration: Any) -> "Configured":
        if len(configuration) not in (2, 3, 4):
            raise ValueError("must specify at least the griddim and blockdim")
        return self.configure(*configuration)

    def __getattr__(self, name: str) -> Any:
        hint = "simt.compile_report tells of machine code" if name.startswith(MACHINE_CODE) else "the stand-in has none"
        raise AttributeError(f"kernel {self.__dict__.get('__name__', '?')} has no '{name}' here: {hint}")

    def configure(self, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0) -> "Configured":
        """Return the kernel with a grid, a block, a stream and bytes of dynamic shared memory: call it to launch."""
        if griddim is None or blockdim is None:
            raise ValueError(NO_CONFIGURATION)
        return Configured(self, _dimensions("griddim", griddim), _dimensions("blockdim", blockdim), stream, sharedmem)

    def forall(self, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Callable:
        """Return the kernel configured for ``ntasks`` threads along one axis, and a few more."""
        if ntasks < 0:
            raise ValueError(f"Can't create ForAll with negative task count: {ntasks}")
        block = tpb or BLOCK
        if ntasks == 0:
            return lambda *args: None
        return self.configure(-(-ntasks // block), block, stream, sharedmem)

    def specialize(self, *args: Any) -> "Dispatcher":
        """Return this kernel: here it is compiled for the types of each launch anyway."""
        if self.specialized:
            raise RuntimeError("Dispatcher already specialized")
        twin = Dispatcher(self.py_func, self.signatures, self.targetoptions)
        twin.specialized = True
        return twin

    def compile(self, sig: Any) -> None:
        """Do nothing: the kernel is compiled when it is launched."""

    def launch(self, shape: Launch, args: tuple) -> None:
        """Run the kernel: arguments to the device, threads, and arrays back to the host."""
        name = self.py_func.__name__
        if self.is_device:
            raise ValueError(f"{name} is a device function, which only kernels call: launch a kernel")
        named = bind(self.py_func, args)
        if self.signatures:
            named = fit(named, self.signatures, name)
        values, after = on_device(named, name)
        _runner.execute(self, shape, tuple(values))
        for copy_back in after:
            copy_back()


class Configured:
    """A kernel with its launch configuration."""

    def __init__(self, kernel: Dispatcher, griddim: tuple, blockdim: tuple, stream: Any, sharedmem: int) -> None:
        self.dispatcher, self.stream, self.sharedmem = kernel, stream, sharedmem
        self.griddim, self.blockdim = griddim, blockdim

    def __call__(self, *args: Any) -> None:
        self.dispatcher.launch(launch_shape(self.griddim, self.blockdim, self.sharedmem), args)


def _dimensions(name: str, given: Any) -> tuple[int, ...]:
    """Return one to three integers.

    Raises:
        ValueError: there are more.
        TypeError: they are no integers.
    """
    sizes = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if len(sizes) > 3:
        raise ValueError(f"{name} must be a sequence of 1, 2 or 3 integers, got {list(sizes)!r}")
    if not all(isinstance(n, numbers.Integral) for n in sizes):
        raise TypeError(f"{name} must be a sequence of integers, got {list(sizes)!r}")
    return tuple(int(n) for n in sizes) + (1,) * (3 - len(sizes))


OPTIONS = {
    *("device", "inline", "forceinline", "link", "debug", "opt", "lineinfo", "cache", "launch_bounds", "lto"),
    *("shared_memory_carveout", "fastmath", "max_registers", "extensions", "nopython", "boundscheck", "fast_math"),
    *("no_cpython_wrapper", "no_cfunc_wrapper", "error_model", "abi", "abi_info", "cc", "nrt", "cooperative"),
}


def jit(func_or_sig: Any = None, **options: Any) -> Any:
    """Make a kernel of a function, or a decorator that does: for the types of each launch, or for given signatures.

    Raises:
        TypeError: a signature returns something, or an option is unknown.
        NotImplementedError: ``boundscheck`` is asked for, which numba-cuda does not have.
    """
    for name in options:
        if name not in OPTIONS:
            raise TypeError(f"cuda.jit has no option '{name}'{nearest(name, OPTIONS)}")
    if options.get("boundscheck"):
        raise NotImplementedError("bounds checking is not supported for CUDA; the checked executor does it always")
    if func_or_sig is None:
        return lambda function: jit(function, **options)
    if isinstance(func_or_sig, list) or sigutils.is_signature(func_or_sig):
        given = func_or_sig if isinstance(func_or_sig, list) else [func_or_sig]
        signatures = [_arguments(signature, bool(options.get("device"))) for signature in given]
        return lambda function: Dispatcher(function, signatures, options)
    if isinstance(func_or_sig, Dispatcher):
        return Dispatcher(func_or_sig.py_func, func_or_sig.signatures, options)
    if not callable(func_or_sig):
        raise TypeError(f"cuda.jit takes a function or signatures, and was given a {type(func_or_sig).__name__}")
    return Dispatcher(func_or_sig, [], options)


def _arguments(signature: Any, device: bool) -> tuple:
    """Return the argument types of a signature."""
    arguments, returned = sigutils.normalize_signature(signature)
    if returned not in (None, types.void) and not device:
        raise TypeError("CUDA kernel must have void return type.")
    return tuple(arguments)


def declare_device(name: str, *args: Any, **kwargs: Any) -> Any:
    """Refuse to declare a foreign function: it has no Python source to be run.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError(
        f"the foreign function '{name}' (declare_device) cannot be run here: write it in Python with "
        "@cuda.jit(device=True) for this run"
    )
