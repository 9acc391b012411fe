"""From a kernel to the machine code of a GPU that is not there, along the path of a real launch.

A launch with numba-cuda takes these steps. Numba's front end makes LLVM IR of the function. NVVM makes LTO-IR of that,
or PTX where the kernel has ``lto=False`` or ``debug=True``. nvJitLink links it with the libraries, optimises the whole
once more and assembles it for the GPU at hand: from compute capability 9.0 on in the form that only this architecture
runs (sm_90a). Here the same functions of numba-cuda are called in the same order with the kernel's own options; which
GPU is at hand is all that is made up. numba-cuda has no public way to do so, so this file is the one that knows its
inner names, and ``pyproject.toml`` holds numba-cuda to the releases for which they are right.
"""

import functools
import inspect
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nanoeuler.errors import UserError, nearest

INSTALL = "pip install 'nanoeuler[gpu,compile]'"


@dataclass(frozen=True)
class Build:
    """A kernel that the front end has compiled; ``library`` is numba-cuda's, which makes code for any architecture."""

    kernel: str
    entry: str  # the kernel's name in PTX
    library: Any


@dataclass(frozen=True)
class MachineCode:
    """A kernel for one GPU: what the assembler read, what it made, and what it said about it (``ptxas -v``)."""

    target: str  # "sm_90a"
    ptx: str
    cubin: bytes
    log: str


def require_toolkit() -> None:
    """Do nothing if numba-cuda and the toolkit's compiler libraries are here.

    Raises:
        UserError: one of them is missing, or Numba runs its simulator; the message says what to do.
    """
    try:
        from numba import cuda
        from numba.cuda import config
    except ImportError as error:
        raise UserError(f"compiling for a GPU needs numba-cuda ({error}): {INSTALL}") from error
    if config.ENABLE_CUDASIM:
        raise UserError("Numba's simulator is on, which compiles nothing: unset NUMBA_ENABLE_CUDASIM")
    if not hasattr(cuda, "compile_all"):
        raise UserError(f"this is the numba.cuda inside Numba, not the package numba-cuda: {INSTALL}")
    missing = [name for name, load in _libraries().items() if not _loads(load)]
    if missing:
        raise UserError(f"compiling for a GPU needs {' and '.join(missing)} of the CUDA toolkit: {INSTALL}")


def _libraries() -> dict[str, Callable[[], Any]]:
    from numba.cuda.cudadrv import driver, libs, nvrtc, nvvm

    return {
        "NVVM": nvvm.NVVM,
        "libdevice": libs.open_libdevice,
        "NVRTC": nvrtc.get_supported_ccs,
        "nvJitLink": lambda: driver._have_nvjitlink() or 1 / 0,
    }


def _loads(load: Callable[[], Any]) -> bool:
    """Return whether a library is usable; each loader has exceptions of its own for one that is not there."""
    try:
        load()
    except Exception:
        return False
    return True


def make_dispatcher(kernel: Any) -> Any:
    """Return what ``@cuda.jit`` makes of a plain function, and what it has made already as it is.

    Raises:
        UserError: the kernel is neither, or is a device function.
    """
    from numba import cuda
    from numba.cuda.dispatcher import CUDADispatcher

    dispatcher = kernel if isinstance(kernel, CUDADispatcher) else None
    if dispatcher is None and hasattr(kernel, "__code__") and hasattr(kernel, "__globals__"):
        dispatcher = cuda.jit(kernel)
    if dispatcher is None:
        raise UserError(f"{kernel!r} is no kernel: give a function, or what @cuda.jit made of one")
    if dispatcher.targetoptions.get("device"):
        raise UserError(f"{dispatcher.py_func.__name__} is a device function: give a kernel that calls it")
    return dispatcher


def argument_types(dispatcher: Any, signature: Any) -> tuple[Any, ...]:
    """Return the types of a kernel's arguments from a signature, its text, or a tuple of types or of arguments.

    Raises:
        UserError: it is none of these, it returns something, or it has not one type for each parameter.
    """
    from numba.cuda import types
    from numba.cuda.core import sigutils

    name = dispatcher.py_func.__name__
    try:
        if isinstance(signature, (tuple, list)):
            typed = (s if isinstance(s, types.Type) else dispatcher.typeof_pyval(s) for s in signature)
            given, returned = tuple(typed), None
        else:
            given, returned = sigutils.normalize_signature(signature)
    except (TypeError, ValueError, NameError, SyntaxError, AttributeError) as error:
        raise UserError(
            f"kernel {name}: {signature!r} is no signature ({error}): write 'void(float32[::1])'"
        ) from error
    if returned not in (None, types.void):
        raise UserError(f"kernel {name}: a kernel returns nothing, and this signature returns {returned}")
    count = dispatcher.py_func.__code__.co_argcount
    if len(given) != count:
        raise UserError(f"kernel {name} has {count} parameters, and the signature {len(given)}: give a type for each")
    return given


def build(function: Any, types: tuple[Any, ...], options: Mapping[str, Any]) -> Build:
    """Compile a kernel's function as far as that does not depend on the GPU.

    ``options`` are those that ``cuda.jit`` has put into a dispatcher's ``targetoptions``.

    Raises:
        UserError: it does not compile; the message is Numba's.
    """
    from numba.core.errors import NumbaError
    from numba.cuda.cudadrv.nvvm import nvvmError
    from numba.cuda.dispatcher import _Kernel

    known = inspect.signature(_Kernel).parameters
    for option in options:
        if option not in known:
            raise UserError(f"cuda.jit has no option '{option}' for a kernel{nearest(option, known)}")
    # Numba asks for the compute capability only to tell GPUs before 7.5 from the others: any of ours will do here.
    with _device_at_hand((7, 5)):
        try:
            kernel = _Kernel(function, types, **{**options, "link": list(options.get("link") or ())})
        except (NumbaError, nvvmError) as error:
            where = f"{Path(function.__code__.co_filename).name}:{function.__code__.co_firstlineno}"
            listed = ", ".join(str(t) for t in types)
            raise UserError(f"kernel {function.__name__} ({where}) does not compile for ({listed}): {error}") from error
    return Build(function.__name__, kernel.entry_name, kernel.library)


def assemble(build: Build, architecture: str, lineinfo: bool = False) -> MachineCode:
    """Make the machine code that a launch on a GPU of ``architecture`` (such as "sm_90") would load.

    ``lineinfo`` keeps the lines of a kernel built with ``lineinfo=True`` in the code; a launch with link-time
    optimisation loses them.

    Raises:
        UserError: the toolkit does not know the architecture, or the code does not fit into it.
    """
    from cuda.bindings.nvjitlink import nvJitLinkError
    from numba.cuda.cudadrv import nvrtc

    number = int(architecture.removeprefix("sm_"))
    capability = number // 10, number % 10
    if capability not in nvrtc.get_supported_ccs():
        raise UserError(f"the CUDA toolkit found here cannot compile for {architecture}: {INSTALL}")
    library = build.library
    with _device_at_hand(capability), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Not adding .* as it is not optimizable")  # linked files, for the PTX below
        target = library._ensure_cc(None)
        try:
            ptx = library.get_lto_ptx(target) if library._lto else library.get_asm_str(target)
            cubin, log = _link(library, target, lineinfo)
        except nvJitLinkError as error:
            raise UserError(f"kernel {build.kernel} for {architecture}: {_why(str(error), build.entry)}") from error
    return MachineCode("sm_" + "".join(str(part) for part in target), ptx, cubin, log)


def _link(library: Any, target: Any, lineinfo: bool) -> tuple[bytes, str]:
    """``CUDACodeLibrary.get_cubin`` and ``_Linker.complete`` of numba-cuda, but the assembler is told to talk."""
    from numba.cuda.cudadrv import driver

    numba_linker = driver._Linker(max_registers=library._max_registers, cc=target, lto=library._lto)
    library._link_all(numba_linker, target)
    options = numba_linker._get_linker_options(ptx=False)
    options.ptxas_options = ["-v"]
    options.verbose = True
    options.lineinfo = lineinfo
    linker = driver.Linker(*numba_linker._object_codes, options=options)
    cubin = linker.link("cubin").code
    log = linker.get_info_log()
    linker.close()
    return cubin, log


def _why(log: str, entry: str) -> str:
    """Return what the assembler objects to, without the long names of PTX, and a hint where one is known."""
    errors = re.findall(r"ptxas (?:error|fatal)\s*:\s*(.*)", log) or [log.strip()]
    text = "; ".join(errors).replace(f"Entry function '{entry}'", "it")
    if "too much shared data" in text:
        text += ": static shared memory stops at 48 KB; take cuda.shared.array(0, ...), which is sized by the launch"
    return text


@contextmanager
def _device_at_hand(compute_capability: tuple[int, int]) -> Iterator[None]:
    """Let numba-cuda find a GPU of this compute capability when it asks which one it compiles for."""
    from unittest import mock

    from numba.cuda import api
    from numba.cuda.cudadrv import devices

    context = SimpleNamespace(device=SimpleNamespace(compute_capability=compute_capability))
    with (
        mock.patch.object(api, "current_context", return_value=context),
        mock.patch.object(devices, "get_context", return_value=context),
    ):
        yield


@functools.cache
def find_disassembler() -> str | None:
    """Return the path of ``nvdisasm``, None if there is none: from its wheel, a toolkit (CUDA_HOME) or the PATH."""
    from cuda import pathfinder

    return pathfinder.find_nvidia_binary_utility("nvdisasm") or shutil.which("nvdisasm")


def disassemble(code: MachineCode) -> str | None:
    """Return the SASS of machine code, with lines where it has them; None where no ``nvdisasm`` is at hand.

    Raises:
        UserError: the ``nvdisasm`` at hand is too old for the architecture.
    """
    tool = find_disassembler()
    if tool is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(code.cubin)
        result = subprocess.run([tool, "-g", "-c", str(path)], capture_output=True, text=True)
    if result.returncode:
        raise UserError(f"{tool} cannot read code for {code.target} ({result.stderr.strip()}): {INSTALL}")
    return result.stdout
