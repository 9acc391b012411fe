"""A kernel to PTX, by numba-cuda and NVVM, with a line number for every instruction. No GPU is needed."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from nanoeuler.errors import UserError
from nanoeuler.simt.faults import UnsupportedError

COMPUTE_CAPABILITY = (9, 0)
INSTALL = "pip install 'nanoeuler[gpu,compile]'"
_DEVICE_OPTIONS = ("fastmath", "opt")  # of those that @cuda.jit takes, the ones that change a kernel's PTX


def numba_cuda() -> ModuleType:
    """Return the module ``numba.cuda`` of numba-cuda.

    Raises:
        UserError: it is not installed, or the stock simulator takes its place.
    """
    try:
        config = import_module("numba").config
        cuda = import_module("numba.cuda")
        import_module("numba_cuda")
    except ImportError as error:
        raise UserError(f"the PTX executor compiles with numba-cuda, which is not here ({error}): {INSTALL}") from None
    if getattr(config, "ENABLE_CUDASIM", 0):
        raise UserError("the PTX executor needs the real numba.cuda: unset NUMBA_ENABLE_CUDASIM")
    return cuda


def plain_function(kernel: Any) -> Callable[..., Any]:
    """Return the Python function of a kernel that may be decorated with ``@cuda.jit``."""
    return getattr(kernel, "py_func", kernel)


def signature_of(kernel: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the Numba types that a launch with ``arguments`` gives them.

    A kernel that was decorated with one explicit signature keeps it.

    Raises:
        UserError: an argument is of a type that no kernel takes.
    """
    numba_cuda()
    typing = import_module("numba.cuda.typing.typeof")
    given = getattr(kernel, "signatures", None) if not getattr(kernel, "_can_compile", True) else None
    if given and len(given) == 1 and len(given[0]) == len(arguments):
        return tuple(given[0])
    types = []
    for number, argument in enumerate(arguments):
        try:
            types.append(typing.typeof(argument, typing.Purpose.argument))
        except ValueError as error:
            raise UserError(f"argument {number} of kernel {plain_function(kernel).__name__}: {error}") from None
    return tuple(types)


@lru_cache(maxsize=256)
def compile_kernel(
    function: Callable[..., Any], signature: tuple[Any, ...], fastmath: bool, optimise: bool
) -> tuple[str, ...]:
    """Return the PTX of ``function``, with line numbers, for capability 9.0, and that of what it is linked with.

    Raises:
        UserError: numba-cuda or the compiler library is missing.
        UnsupportedError: Numba cannot compile the kernel; its message says where and why.
    """
    cuda = numba_cuda()
    errors = import_module("numba.core.errors")
    lock = import_module("numba.cuda.core.compiler_lock").global_compiler_lock
    try:
        with lock, warnings.catch_warnings(), device_functions_for(COMPUTE_CAPABILITY):
            warnings.simplefilter("ignore")
            codes, _ = cuda.compile_all(
                function,
                signature,
                device=False,
                abi="numba",
                output="ptx",
                lineinfo=True,
                fastmath=fastmath,
                opt=optimise,
                cc=COMPUTE_CAPABILITY,
            )
    except (errors.NumbaError, NotImplementedError, AttributeError, TypeError, ValueError) as error:
        raise UnsupportedError(f"numba-cuda cannot compile kernel {function.__name__}: {error}") from error
    except (ImportError, OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "nvvm" not in str(error).lower():
            raise
        raise UserError(f"the CUDA compiler libraries (NVVM) are not here ({error}): {INSTALL}") from error
    linked = [_text(code.data) for code in codes if getattr(code, "kind", None) == "ptx"]
    return (*(code for code in codes if isinstance(code, str)), *linked)


@contextmanager
def device_functions_for(capability: tuple[int, int]) -> Iterator[None]:
    """Compile device functions for ``capability``, with line numbers, while the context lasts.

    numba-cuda asks the current GPU for its capability there, takes line numbers only where the decorator asked for
    them, and asks the driver for its version where C++ is to be linked (float16 and bfloat16). The compiled versions
    that a dispatcher already has, and its options, are put back at the end.
    """
    dispatcher = import_module("numba.cuda.dispatcher")
    original = dispatcher.CUDADispatcher.compile_device
    nvrtc = import_module("numba.cuda.cudadrv.nvrtc")
    with ExitStack() as restore:
        seen: set[int] = set()

        def replace(owner: Any, name: str, value: Any) -> None:
            restore.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)

        def compile_device(self: Any, args: tuple[Any, ...], return_type: Any = None) -> Any:
            if id(self) not in seen:
                seen.add(id(self))
                options = self.targetoptions
                replace(self, "overloads", type(self.overloads)())
                replace(self, "targetoptions", {**options, "lineinfo": not options.get("debug")})
            return original(self, args, return_type)

        replace(nvrtc, "compile", lambda source, *_, **__: (compile_source(_text(source)), ""))
        replace(dispatcher.CUDADispatcher, "compile_device", compile_device)
        replace(dispatcher, "get_current_device", lambda: SimpleNamespace(compute_capability=capability))
        yield


def _text(source: str | bytes) -> str:
    return source if isinstance(source, str) else source.decode()


@lru_cache(maxsize=64)
def compile_source(source: str) -> str:
    """Return the PTX of C++ ``source``, by NVRTC, with the headers that numba-cuda links with.

    Raises:
        UserError: the headers are missing or the source does not compile.
    """
    nvrtc = import_module("cuda.bindings.nvrtc")

    def call(name: str, *arguments: Any) -> Any:
        code, *results = getattr(nvrtc, name)(*arguments)
        if int(code):
            raise RuntimeError(f"{name}: {code.name}")
        return results[0] if results else None

    major, minor = COMPUTE_CAPABILITY
    options = [f"--gpu-architecture=compute_{major}{minor}", "--relocatable-device-code=true"]
    options += [f"--include-path={path}" for path in include_paths()]
    program = call("nvrtcCreateProgram", source.encode(), b"linked.cu", 0, [], [])
    try:
        call("nvrtcCompileProgram", program, len(options), [option.encode() for option in options])
    except RuntimeError as error:
        log = bytearray(call("nvrtcGetProgramLogSize", program))
        call("nvrtcGetProgramLog", program, log)
        raise UserError(
            f"C++ that the kernel is linked with does not compile ({error}): {INSTALL}\n{log.decode()}"
        ) from None
    text = bytearray(call("nvrtcGetPTXSize", program))
    call("nvrtcGetPTX", program, text)
    return text.decode().rstrip("\0")


def include_paths() -> list[str]:
    """Return the folders of the headers that numba-cuda compiles C++ with."""
    package = Path(str(import_module("numba_cuda").__file__)).parent / "numba" / "cuda"
    major = import_module("cuda.bindings.nvrtc").nvrtcVersion()[1]
    paths = [str(package / "include" / str(major)), str(package / "memory_management")]
    paths.append(str(import_module("numba.cuda.cuda_paths").get_cuda_paths()["include_dir"].info))
    cccl = import_module("cuda.pathfinder").locate_nvidia_header_directory("cccl")
    return [*paths, *([str(cccl.abs_path)] if cccl is not None else [])]
