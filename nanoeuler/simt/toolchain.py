"""From a kernel to the machine code of a GPU that is not there, along the path of a real launch.

A launch with numba-cuda takes these steps. Numba's front end makes LLVM IR of the function. NVVM makes LTO-IR of that,
or PTX where the kernel has ``lto=False`` or ``debug=True``. nvJitLink links it with the libraries, optimises the whole
once more and assembles it for the GPU at hand: from compute capability 9.0 on in the form that only this architecture
runs (sm_90a). Here the same functions of numba-cuda are called in the same order with the kernel's own options; which
GPU is at hand is all that is made up. The PTX executor gets the text of one step before: PTX with a line for every
instruction. numba-cuda has no public way to do so, so this file is the one that knows its inner names, and
``pyproject.toml`` holds numba-cuda to the releases for which they are right.
"""

import ast
import functools
import inspect
import linecache
import re
import shutil
import subprocess
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from nanoeuler.errors import UserError, nearest
from nanoeuler.simt.faults import UnsupportedError

INSTALL = "in nanoeuler's folder, python -m pip install -e '.[gpu,compile]'"
PTX_CAPABILITY = (9, 0)  # whose PTX the PTX executor interprets


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

    def find_nvjitlink() -> None:
        if not driver._have_nvjitlink():
            raise OSError("nvJitLink is not there, or too old")

    return {
        "NVVM": nvvm.NVVM,
        "libdevice": libs.open_libdevice,
        "NVRTC": nvrtc.get_supported_ccs,
        "nvJitLink": find_nvjitlink,
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
    returned = None
    if isinstance(signature, (tuple, list)):
        given = tuple(signature)
    else:
        try:
            given, returned = sigutils.normalize_signature(signature)
        except (TypeError, ValueError, NameError, SyntaxError, AttributeError) as error:
            raise UserError(
                f"kernel {name}: {signature!r} is no signature ({error}): write 'void(float32[::1])'"
            ) from error
    if returned not in (None, types.void):
        raise UserError(f"kernel {name}: a kernel returns nothing, and this signature returns {returned}")
    parameters = inspect.signature(dispatcher.py_func).parameters
    if len(given) != len(parameters):
        raise UserError(
            f"kernel {name} has {len(parameters)} parameters, and the signature {len(given)}: give a type for each"
        )
    return tuple(
        one if isinstance(one, types.Type) else _type_of(dispatcher, parameter, one)
        for parameter, one in zip(parameters, given, strict=True)
    )


def launch_types(dispatcher: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the types that a launch with ``args``, one for each parameter, gives them.

    A kernel that was decorated with one signature has its types, whatever it is given.

    Raises:
        UserError: an argument is of a type that no kernel takes.
    """
    if not dispatcher._can_compile and len(dispatcher.signatures) == 1:
        return tuple(dispatcher.signatures[0])
    return argument_types(dispatcher, args)


def _type_of(dispatcher: Any, parameter: str, value: Any) -> Any:
    from numba.core.errors import NumbaError

    try:
        return dispatcher.typeof_pyval(value)
    except (NumbaError, ValueError) as error:
        raise UserError(
            f"kernel {dispatcher.py_func.__name__}: argument '{parameter}' is of type {type(value).__name__}, which "
            f"no kernel takes ({error}): give a number, a NumPy array of numbers, or a tuple of these"
        ) from error


def build(
    function: Any, types: tuple[Any, ...], options: Mapping[str, Any], capability: tuple[int, int] = (7, 5)
) -> Build:
    """Compile a kernel's function as far as that does not depend on the GPU.

    ``options`` are those that ``cuda.jit`` has put into a dispatcher's ``targetoptions``. Numba asks for the compute
    capability here only to tell GPUs before 7.5 from the others: any of ours will do, but makes some PTX at once.

    Raises:
        UserError: an option is none of ``cuda.jit``'s for a kernel.
        UnsupportedError: it does not compile; the message is Numba's.
    """
    from numba.cuda.descriptor import cuda_target
    from numba.cuda.dispatcher import _Kernel

    known = inspect.signature(_Kernel).parameters
    for option in options:
        if option not in known:
            raise UserError(f"cuda.jit has no option '{option}' for a kernel{nearest(option, known)}")
    # Numba keeps what it has compiled of its own functions: with lines, it would not link with a kernel without lines.
    context = cuda_target.target_context
    lined = options.get("lineinfo") or options.get("debug")
    kept = {} if lined else context.cached_internal_func
    with device_at_hand(capability), mock.patch.object(context, "cached_internal_func", kept):
        try:
            kernel = _Kernel(function, types, **{**options, "link": list(options.get("link") or ())})
        except Exception as error:  # Numba has no one exception for what it cannot compile
            raise UnsupportedError(_uncompiled(function, types, error)) from error
    return Build(function.__name__, kernel.entry_name, kernel.library)


def _uncompiled(function: Any, types: tuple[Any, ...], error: Exception) -> str:
    """Return what is told of a kernel that does not compile."""
    where = f"{Path(function.__code__.co_filename).name}:{function.__code__.co_firstlineno}"
    calls = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    if call := next((frame for frame in calls if frame.f_code.co_name == "_lower_call_RecursiveCall"), None):
        place = call.f_locals["self"].loc
        why = f"recursion at {Path(place.filename).name}:{place.line}, which numba-cuda does not know: write a loop"
    else:
        why = str(error) or type(error).__name__
    listed = ", ".join(str(one) for one in types)
    return f"kernel {function.__name__} ({where}) does not compile for ({listed}): {why}"


def compile_ptx(function: Any, types: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a kernel's PTX before linking, a line for every instruction, and that of the files it is linked with.

    It is for compute capability 9.0. ``options`` are as in ``build``.

    Raises:
        UserError: C++ that it is linked with does not compile.
        UnsupportedError: the kernel does not.
    """
    from numba.cuda.cudadrv import nvrtc
    from numba.cuda.cudadrv.linkable_code import LinkableCode

    with device_at_hand(PTX_CAPABILITY), _lines_everywhere(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lined = {**options, "lineinfo": True, "debug": False, "lto": False}
        built = build(function, types, lined, PTX_CAPABILITY)
        texts = list(built.library.get_asm_strs())
        for file in map(LinkableCode.from_path_or_obj, built.library._linking_files):
            if file.kind == "cu":
                texts.append(nvrtc.compile(file.data, file.name, PTX_CAPABILITY)[0].code.decode())
            elif file.kind == "ptx":
                texts.append(file.data if isinstance(file.data, str) else file.data.decode())
    return tuple(texts)


def assemble(built: Build, architecture: str, lineinfo: bool = False) -> MachineCode:
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
    library = built.library
    with device_at_hand(capability), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Not adding .* as it is not optimizable")  # linked files, for the PTX below
        target = library._ensure_cc(None)
        try:
            ptx = library.get_lto_ptx(target) if library._lto else library.get_asm_str(target)
            cubin, log = _link(library, target, lineinfo)
        except nvJitLinkError as error:
            raise UserError(f"kernel {built.kernel} for {architecture}: {_why(str(error), built.entry)}") from error
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
def device_at_hand(compute_capability: tuple[int, int]) -> Iterator[None]:
    """Let numba-cuda find a GPU of this compute capability when it asks which one it compiles for.

    numba-cuda compiles C++ to PTX only where the GPU's driver is there to be asked for its version; here it need not.
    """
    from numba.cuda import api
    from numba.cuda.core.compiler_lock import global_compiler_lock
    from numba.cuda.cudadrv import devices, nvrtc

    context = SimpleNamespace(device=SimpleNamespace(compute_capability=compute_capability))
    with (
        global_compiler_lock,
        mock.patch.object(api, "current_context", return_value=context),
        mock.patch.object(devices, "get_context", return_value=context),
        mock.patch.object(nvrtc, "compile", functools.partial(_compile_cpp, nvrtc.compile)),
    ):
        yield


def _compile_cpp(theirs: Callable[..., Any], source: Any, name: str, cc: tuple, ltoir: bool = False, **how: Any) -> Any:
    """``nvrtc.compile`` of numba-cuda without its question to the driver; ``theirs`` asks none for LTO-IR.

    Raises:
        UserError: the headers are missing, or the source does not compile.
    """
    from cuda.core import ObjectCode

    text = source if isinstance(source, str) else source.decode()
    folders = _include_folders()
    try:
        if ltoir:
            return theirs(source, name, cc, ltoir=ltoir, **how)
        return ObjectCode.from_ptx(_cpp_to_ptx(text, "".join(str(part) for part in cc), folders), name=name), ""
    except Exception as error:  # NVRTC's errors are of several kinds, and ours
        raise UserError(f"C++ that the kernel is linked with ({name}) does not compile: {error}") from error


@functools.lru_cache(maxsize=64)
def _cpp_to_ptx(source: str, architecture: str, include_folders: tuple[str, ...]) -> bytes:
    """Return the PTX of C++ ``source``, by NVRTC.

    Raises:
        RuntimeError: it does not compile; the message is NVRTC's.
    """
    from cuda.bindings import nvrtc

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        code, *results = function(*arguments)
        if int(code):
            raise RuntimeError(code.name)
        return results[0] if results else None

    options = [f"--gpu-architecture=compute_{architecture}", "--relocatable-device-code=true"]
    options += [f"--include-path={folder}" for folder in include_folders]
    program = call(nvrtc.nvrtcCreateProgram, source.encode(), b"linked.cu", 0, [], [])
    try:
        call(nvrtc.nvrtcCompileProgram, program, len(options), [option.encode() for option in options])
    except RuntimeError as error:
        log = bytearray(call(nvrtc.nvrtcGetProgramLogSize, program))
        call(nvrtc.nvrtcGetProgramLog, program, log)
        raise RuntimeError(f"{error}\n{log.decode()}") from error
    text = bytearray(call(nvrtc.nvrtcGetPTXSize, program))
    call(nvrtc.nvrtcGetPTX, program, text)
    return bytes(text).rstrip(b"\0")


def _include_folders() -> tuple[str, ...]:
    """Return the folders of the headers that numba-cuda compiles C++ with.

    Raises:
        UserError: those of the CUDA runtime are not here.
    """
    from cuda import pathfinder
    from numba import cuda
    from numba.cuda.cuda_paths import get_cuda_paths
    from numba.cuda.cudadrv import nvrtc

    runtime = get_cuda_paths()["include_dir"]
    if runtime is None or not runtime.info:
        raise UserError(f"a kernel linked with C++, as float16's operators are, needs the CUDA headers: {INSTALL}")
    package = Path(cuda.__file__).parent
    cccl = pathfinder.locate_nvidia_header_directory("cccl")
    folders = [package / "include" / str(nvrtc._get_nvrtc_version()[0]), package / "memory_management", runtime.info]
    return tuple(str(folder) for folder in (*folders, *([cccl.abs_path] if cccl is not None else [])))


@contextmanager
def _lines_everywhere() -> Iterator[None]:
    """Let device functions too be compiled with line numbers, anew, and shared arrays be named as in the source.

    numba-cuda takes line numbers only where the decorator asked for them. The compiled versions that a dispatcher
    already has, and its options, are put back at the end.
    """
    from numba.cuda import cudaimpl
    from numba.cuda.dispatcher import CUDADispatcher

    compile_device = CUDADispatcher.compile_device
    unique_name = cudaimpl._get_unique_smem_id
    with ExitStack() as patches:
        lined: set[int] = set()

        def with_lines(self: Any, args: tuple[Any, ...], return_type: Any = None) -> Any:
            if id(self) not in lined:
                lined.add(id(self))
                options = {**self.targetoptions, "lineinfo": not self.targetoptions.get("debug")}
                patches.enter_context(mock.patch.object(self, "overloads", type(self.overloads)()))
                patches.enter_context(mock.patch.object(self, "targetoptions", options))
            return compile_device(self, args, return_type)

        def with_variable(name: str) -> str:
            return "_".join([unique_name(name), *_variable_in_hand()])

        patches.enter_context(mock.patch.object(CUDADispatcher, "compile_device", with_lines))
        patches.enter_context(mock.patch.object(cudaimpl, "_get_unique_smem_id", with_variable))
        yield


def _variable_in_hand() -> list[str]:
    """Return the variable that the line of source which Numba is lowering assigns to, if it is plain which."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "lower_inst":
        frame = frame.f_back
    if frame is None:
        return []
    place = frame.f_locals["inst"].loc
    try:
        (statement,) = ast.parse(linecache.getline(place.filename, place.line).strip()).body
    except (SyntaxError, ValueError):  # a part of a statement, or several
        return []
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(attr="array"))):
            return [name] if name.isascii() else []
    return []


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
