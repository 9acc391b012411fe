"""The CUDA toolkit: which of its parts are here, of which releases, and whether they and the driver go together.

The parts are looked for as numba-cuda does it, by cuda-pathfinder, and each library is asked for its own release: NVVM,
which has no such function, by the PTX that it makes of an empty kernel.

numba-cuda hands the driver machine code that nvJitLink has made, never PTX. So a driver runs what any toolkit of its
own major release compiles (NVIDIA's *minor version compatibility*), although it would refuse the newer one's PTX.
"""

import ctypes
import os
import re
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanoeuler.system.driver import Driver
from nanoeuler.system.packages import requirements
from nanoeuler.system.trouble import DRIVERS, IN_FOLDER, Release, Trouble, dotted, first_line, unset

#: What every launch needs; a kernel that links CUDA C++ needs the headers too.
COMPILER = ("NVVM", "libdevice", "NVRTC", "nvJitLink")
#: How memory is laid out on a GPU, as NVVM wants to read it (NVVM IR specification, *Data layout*).
LAYOUT = (
    "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-"
    "v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
)
WHEELS = ("nvidia-nvvm", "nvidia-cuda-nvrtc", "nvidia-nvjitlink", "nvidia-cuda-runtime")


@dataclass(frozen=True)
class Part:
    """A part of the CUDA toolkit, or the error of looking for it.

    Attributes:
        source: which search found it, in cuda-pathfinder's words: ``site-packages``, ``conda``, ``CUDA_PATH`` ...
        ptx: of NVVM, the version of PTX that it writes.
        capabilities: of NVRTC, the compute capabilities that the toolkit compiles for.
    """

    path: str = ""
    source: str = ""
    release: Release | None = None
    error: str = ""
    ptx: Release | None = None
    capabilities: tuple[tuple[int, int], ...] = ()


def find_toolkit() -> dict[str, Part]:
    """Return the parts of the toolkit by name: those of :data:`COMPILER`, the runtime, its headers, cuBLAS."""
    return {
        "NVVM": _library("nvvm", _ask_nvvm),
        "libdevice": _guarded(_libdevice),
        "NVRTC": _library("nvrtc", _ask_nvrtc),
        "nvJitLink": _library("nvJitLink", _ask_nvjitlink),
        "CUDA runtime": _library("cudart", _ask_cudart),
        "CUDA headers": _guarded(_headers),
        "cuBLAS": _library("cublas", _ask_cublas),
    }


def _guarded(find: Callable[[], Part]) -> Part:
    try:
        return find()
    except ModuleNotFoundError:
        return Part(error="not looked for, which takes numba-cuda")
    except Exception as error:  # each library has errors of its own
        return Part(error=first_line(error))


def _library(name: str, ask: Callable[[Any], dict[str, Any]]) -> Part:
    def find() -> Part:
        from cuda import pathfinder

        try:
            found = pathfinder.load_nvidia_dynamic_lib(name)
        except pathfinder.DynamicLibNotFoundError:
            return Part(error="not found")  # its own message lists folders by the screenful
        if not found.abs_path:
            return Part(error="loaded from a place that the system does not name")
        return Part(found.abs_path, found.found_via, **ask(ctypes.CDLL(found.abs_path)))

    return _guarded(find)


def _ask_nvvm(library: Any) -> dict[str, Any]:
    text = _empty_kernel_ptx(library)
    release = re.search(r"release (\d+)\.(\d+)", text)
    ptx = re.search(r"^\.version (\d+)\.(\d+)", text, re.MULTILINE)
    return {"release": release and _pair(release), "ptx": ptx and _pair(ptx)}


def _pair(found: re.Match[str]) -> Release:
    return int(found[1]), int(found[2])


def _empty_kernel_ptx(nvvm: Any) -> str:
    """Return the PTX of a kernel that does nothing.

    Raises:
        RuntimeError: the library does not compile it.
    """
    versions, program, size = [c_int() for _ in range(4)], c_void_p(), c_size_t()
    _succeed(nvvm.nvvmIRVersion(*map(byref, versions)))
    text = (
        'target triple = "nvptx64-nvidia-cuda"\n'
        f'target datalayout = "{LAYOUT}"\n'
        "define void @empty() { ret void }\n"
        '!nvvm.annotations = !{!0}\n!0 = !{void ()* @empty, !"kernel", i32 1}\n'
        f"!nvvmir.version = !{{!1}}\n!1 = !{{{', '.join(f'i32 {v.value}' for v in versions)}}}\n"
    ).encode()
    _succeed(nvvm.nvvmCreateProgram(byref(program)))
    try:
        _succeed(nvvm.nvvmAddModuleToProgram(program, text, c_size_t(len(text)), b"empty"))
        _succeed(nvvm.nvvmCompileProgram(program, 1, (c_char_p * 1)(b"-arch=compute_75")))
        _succeed(nvvm.nvvmGetCompiledResultSize(program, byref(size)))
        ptx = create_string_buffer(size.value)
        _succeed(nvvm.nvvmGetCompiledResult(program, ptx))
    finally:
        nvvm.nvvmDestroyProgram(byref(program))
    return ptx.value.decode(errors="replace")


def _succeed(code: int) -> None:
    if code:
        raise RuntimeError(f"the library is there and fails with code {code}")


def _ask_nvrtc(library: Any) -> dict[str, Any]:
    count = c_int()
    release = _two(library.nvrtcVersion)
    _succeed(library.nvrtcGetNumSupportedArchs(byref(count)))
    numbers = (c_int * count.value)()
    _succeed(library.nvrtcGetSupportedArchs(numbers))
    return {"release": release, "capabilities": tuple(divmod(number, 10) for number in numbers)}


def _ask_nvjitlink(library: Any) -> dict[str, Any]:
    return {"release": _two(library.nvJitLinkVersion)}


def _two(function: Any) -> Release:
    major, minor = c_int(), c_int()
    _succeed(function(byref(major), byref(minor)))
    return major.value, minor.value


def _ask_cudart(library: Any) -> dict[str, Any]:
    version = c_int()
    _succeed(library.cudaRuntimeGetVersion(byref(version)))
    return {"release": (version.value // 1000, version.value % 1000 // 10)}


def _ask_cublas(library: Any) -> dict[str, Any]:
    """Ask cuBLAS for its release, which counts by itself: it is not that of the toolkit."""
    numbers = [c_int(), c_int()]
    for which, number in enumerate(numbers):
        _succeed(library.cublasGetProperty(which, byref(number)))
    return {"release": tuple(number.value for number in numbers)}


def _libdevice() -> Part:
    """Find libdevice where numba-cuda takes it from, which does not ask cuda-pathfinder for it."""
    from numba.cuda.cuda_paths import get_cuda_paths

    found = get_cuda_paths()["libdevice"]
    if not found.info or not Path(found.info).is_file():
        return Part(error="not found" if not found.info else f"{found.by} leads to {found.info}, which is no file")
    return Part(str(found.info), str(found.by))


def _headers() -> Part:
    from cuda import pathfinder

    found = pathfinder.locate_nvidia_header_directory("cudart")
    return Part(str(found.abs_path), found.found_via) if found else Part(error="not found")


def toolkit_trouble(parts: dict[str, Part], driver: Release | None) -> Trouble | None:
    """Return which parts of the toolkit's compiler are missing, and how to get those that this driver takes."""
    missing = {name: parts[name].error for name in COMPILER if parts[name].error}
    if not missing:
        return None
    reasons = {error for error in missing.values() if error != "not found"}
    why = f" ({'; '.join(sorted(reasons))})" if reasons else ""
    if home := home_trouble():
        why += f"; {home.what}"
    verb = "is" if len(missing) == 1 else "are"
    return Trouble(f"{' and '.join(missing)} of the CUDA toolkit {verb} missing{why}", wheels(driver))


def home_trouble(*names: str) -> Trouble | None:
    """Return what is wrong with CUDA_PATH or CUDA_HOME; None if they name a toolkit, or are not set."""
    for name in names or ("CUDA_PATH", "CUDA_HOME"):
        value = os.environ.get(name)
        if value and not Path(value).is_dir():
            return Trouble(f"{name}={value} is no folder", unset(name))
        if value and not (Path(value) / "nvvm").is_dir():
            return Trouble(f"{name}={value} is no CUDA toolkit: it has no folder nvvm", unset(name))
    return None


def wheels(driver: Release | None) -> str:
    """Return the command that installs a toolkit which a driver takes: one of its major release."""
    if driver is None or driver >= (13, 0):
        return f"{IN_FOLDER} '.[gpu,compile]'"
    newer = f"update NVIDIA's driver to 580 or newer ({DRIVERS})"
    if driver < (12, 0):
        return newer
    specifier = requirements().get("numba-cuda", ("", ""))[0]
    return (
        f"{newer}, or take the toolkit of CUDA 12: python -m pip uninstall -y {' '.join(WHEELS)}, and then "
        f"python -m pip install 'numba-cuda[cu12]{specifier}'"
    )


def release_trouble(parts: dict[str, Part], driver: Driver) -> Trouble | None:
    """Return why what the toolkit compiles does not run: by another part, by the driver, or by the GPU."""
    releases = {name: release for name in ("NVVM", "NVRTC", "nvJitLink") if (release := parts[name].release)}
    if not releases:
        return None
    newest = max(releases, key=lambda name: releases[name])
    if driver.release and driver.release[0] < releases[newest][0]:
        return Trouble(
            f"NVIDIA's driver knows CUDA {dotted(driver.release)} and refuses what {newest} of CUDA "
            f"{dotted(releases[newest])} compiles",
            wheels(driver.release),
        )
    linker = releases.get("nvJitLink", releases[newest])
    if linker < releases[newest]:
        return Trouble(
            f"nvJitLink of CUDA {dotted(linker)} cannot read what {newest} of CUDA {dotted(releases[newest])} writes",
            wheels(driver.release),
        )
    known = parts["NVRTC"].capabilities
    if driver.gpus and known and not compiles_for(driver.gpus[0].capability, known):
        return Trouble(
            f"GPU 0 has compute capability {dotted(driver.gpus[0].capability)}, and the toolkit compiles for "
            f"{', '.join(map(dotted, known))}",
            newer_wheels(releases["NVRTC"], driver.release),
        )
    return None


def compiles_for(capability: tuple[int, int], known: tuple[tuple[int, int], ...]) -> bool:
    """Return whether numba-cuda compiles for a GPU.

    It compiles for an older GPU of the same major capability where the toolkit does not know this one; from 9.0 on, for
    just the GPU at hand (sm_90a).
    """
    older = any(k[0] == capability[0] and k <= capability for k in known)
    return capability in known or (older and capability < (9, 0))


def newer_wheels(toolkit: Release, driver: Release | None) -> str:
    """Return the command that installs the newest toolkit which a driver takes, newer than the one that there is."""
    if driver is not None and driver >= (13, 0) and driver > toolkit:
        return "python -m pip install " + " ".join(f"'{wheel}=={dotted(driver)}.*'" for wheel in WHEELS)
    return f"update NVIDIA's driver ({DRIVERS}), and then python -m pip install --upgrade {' '.join(WHEELS)}"


def newest_ptx(release: Release) -> Release | None:
    """Return the newest PTX that a CUDA release reads and writes; None for one that nobody knew yet.

    From the table of releases in NVIDIA's *PTX ISA*.
    """
    major, minor = release
    if major == 12 and minor < 10:
        return 8, (0, 1, 2, 3, 4, 5, 5, 6, 7, 8)[minor]
    return {11: (7, minor), 13: (9, minor)}.get(major)
