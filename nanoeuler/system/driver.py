"""NVIDIA's driver, asked directly: what it knows, which GPUs it has, and why it does not start.

It is asked through ctypes, so that it is heard even where numba-cuda is broken or absent.
"""

import ctypes
import os
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanoeuler.system.trouble import DRIVERS, WITHOUT, Release, Trouble, dotted, first_line, set_to, unset

#: The oldest GPU that CUDA 13 compiles for.
LEAST_CAPABILITY = (7, 5)
#: Bytes that must be free for a run of any size to start.
LEAST_FREE = 128 * 2**20
#: Where the system's files are looked for; tests have one of their own.
ROOT = Path("/")


@dataclass(frozen=True)
class Gpu:
    """A GPU as the driver describes it; ``free`` is None where nobody asked, or where ``error`` says why not."""

    name: str
    capability: tuple[int, int]
    total: int
    free: int | None = None
    error: str = ""


@dataclass(frozen=True)
class Driver:
    """What NVIDIA's driver says; ``release`` is the newest CUDA release that it knows."""

    release: Release | None = None
    gpus: tuple[Gpu, ...] = ()
    trouble: Trouble | None = None


class DriverError(Exception):
    """A function of the driver failed; the message is the error's name in CUDA."""


def open_driver() -> Any:
    """Load the driver's library.

    Raises:
        OSError: it is not there, or does not load.
    """
    if sys.platform == "win32":
        return ctypes.WinDLL("nvcuda.dll")
    return ctypes.CDLL("libcuda.so.1")


def driver_release() -> Release | None:
    """Return the newest CUDA release that the driver knows, without starting it; None where there is no driver."""
    version = c_int()
    try:
        _call(open_driver(), "cuDriverGetVersion", byref(version))
    except (OSError, AttributeError, DriverError):
        return None
    return version.value // 1000, version.value % 1000 // 10


def ask_driver(contexts: int | None = None) -> Driver:
    """Return what the driver says of itself and its GPUs.

    Args:
        contexts: how many GPUs are asked for their free memory, which takes a context and so a moment; None for all.
    """
    try:
        library = open_driver()
    except OSError as error:
        return Driver(trouble=no_driver(first_line(error, kind=False)))
    release, count = driver_release(), c_int()
    try:
        _call(library, "cuInit", 0)
        _call(library, "cuDeviceGetCount", byref(count))
        gpus = [_ask_gpu(library, i, contexts is None or i < contexts) for i in range(count.value)]
    except DriverError as error:
        return Driver(release, trouble=no_start(str(error)))
    except AttributeError as error:
        what = f"the library that should be NVIDIA's driver is another one ({first_line(error, kind=False)})"
        return Driver(release, trouble=Trouble(what, f"install the driver again: {DRIVERS}"))
    return Driver(release, tuple(gpus), None if gpus else no_start("CUDA_ERROR_NO_DEVICE"))


def _call(library: Any, function: str, *arguments: Any) -> None:
    code = getattr(library, function)(*arguments)
    if code:
        name = c_char_p()
        library.cuGetErrorName(code, byref(name))
        raise DriverError(name.value.decode() if name.value else f"error {code}")


def _ask_gpu(library: Any, index: int, with_context: bool) -> Gpu:
    device, major, minor, total = c_int(), c_int(), c_int(), c_size_t()
    name = create_string_buffer(256)
    _call(library, "cuDeviceGet", byref(device), index)
    _call(library, "cuDeviceGetName", name, 256, device)
    _call(library, "cuDeviceTotalMem_v2", byref(total), device)
    _call(library, "cuDeviceGetAttribute", byref(major), 75, device)  # COMPUTE_CAPABILITY_MAJOR
    _call(library, "cuDeviceGetAttribute", byref(minor), 76, device)  # and _MINOR
    known = name.value.decode(errors="replace"), (major.value, minor.value), total.value
    try:
        return Gpu(*known, _free_bytes(library, device) if with_context else None)
    except DriverError as error:
        return Gpu(*known, error=str(error))


def _free_bytes(library: Any, device: c_int) -> int:
    """Return the bytes free; what is told of them is told of a context only, so the one that Numba takes is held."""
    context, popped, free, total = c_void_p(), c_void_p(), c_size_t(), c_size_t()
    _call(library, "cuDevicePrimaryCtxRetain", byref(context), device)
    try:
        _call(library, "cuCtxPushCurrent_v2", context)
        try:
            _call(library, "cuMemGetInfo_v2", byref(free), byref(total))
        finally:
            library.cuCtxPopCurrent_v2(byref(popped))
    finally:
        library.cuDevicePrimaryCtxRelease_v2(device)
    return free.value


def no_driver(error: str) -> Trouble:
    """Return why the driver's library cannot be loaded, from the loader's own words and what the system shows."""
    if sys.platform == "win32":
        return Trouble(f"NVIDIA's driver is not installed ({error})", f"install it from {DRIVERS}, or {WITHOUT}")
    if "libcuda.so.1" not in error or "No such file" not in error:
        return Trouble(f"NVIDIA's driver is there and does not load ({error})", f"install it again: {DRIVERS}")
    if in_wsl():
        return Trouble(
            "this is Windows's Linux (WSL), and Windows's NVIDIA driver does not show in it (no libcuda.so.1)",
            f"in Windows, install the driver from {DRIVERS}, then wsl --update and wsl --shutdown, and start again",
        )
    kernel = (ROOT / "proc/driver/nvidia/version").exists()
    on_bus = nvidia_on_bus()
    if in_container() and (kernel or on_bus is not False):
        return Trouble("NVIDIA's driver is not in this container (no libcuda.so.1)", _container(kernel))
    if kernel:
        return Trouble(
            "NVIDIA's driver is in the kernel, and its library libcuda.so.1 is not installed",
            "install the rest of the same driver (on Ubuntu and Debian the package libnvidia-compute-..., whose number "
            "cat /proc/driver/nvidia/version shows)",
        )
    if on_bus:
        return Trouble(
            "there is an NVIDIA GPU, and no driver for it (no libcuda.so.1)",
            f"install NVIDIA's driver, 580 or newer (Ubuntu: sudo ubuntu-drivers install; else {DRIVERS}), and reboot",
        )
    shown = "no NVIDIA GPU shows in this machine" if on_bus is False else "no NVIDIA driver is installed"
    return Trouble(f"{shown} (no libcuda.so.1)", WITHOUT)


def no_start(error: str) -> Trouble:
    """Return why the driver does not start, from the name of its error."""
    if error == "CUDA_ERROR_NO_DEVICE":
        return _no_device()
    known = {
        "CUDA_ERROR_STUB_LIBRARY": (
            "the libcuda.so.1 found is the toolkit's stub, which only stands in for a driver when programs are linked",
            "take the folder that ends in stubs out of LD_LIBRARY_PATH",
        ),
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": (
            "NVIDIA's driver in the kernel and its library libcuda.so.1 are of two releases",
            "reboot, if the driver was updated; in a container, remove the image's own libcuda.so.1",
        ),
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": (
            "CUDA's compatibility package has taken the driver's place, and this GPU is none that it serves",
            "take its folder (cuda/compat) out of LD_LIBRARY_PATH, or uninstall the package cuda-compat",
        ),
        "CUDA_ERROR_SYSTEM_NOT_READY": (
            "the GPUs of this machine are not ready: those that NVSwitch connects need NVIDIA's fabric manager",
            "sudo systemctl start nvidia-fabricmanager",
        ),
        "CUDA_ERROR_MPS_CONNECTION_FAILED": (
            "NVIDIA's multi-process service (MPS) is asked for, and does not answer",
            "nvidia-cuda-mps-control -d starts it; unset CUDA_MPS_PIPE_DIRECTORY goes without",
        ),
        "CUDA_ERROR_OUT_OF_MEMORY": ("the memory of the GPU is all taken", "end what else runs there: nvidia-smi"),
    }
    what, mend = known.get(
        error, (f"NVIDIA's driver does not start ({error})", "sudo modprobe nvidia_uvm; if that does not help, reboot")
    )
    return Trouble(what, mend)


def _no_device() -> Trouble:
    """Return why a driver that is there sees no GPU."""
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        value = os.environ.get(name)
        if value is not None and (name.startswith("CUDA") or value in ("", "none", "void")):
            mend = unset(name) if name.startswith("CUDA") else _container(kernel=False)
            return Trouble(f"{name}={value!r} leaves no GPU to be seen", mend)
    if sys.platform == "win32" or in_wsl():
        return Trouble("NVIDIA's driver sees no GPU", f"look for it in the device manager, or {WITHOUT}")
    nodes = sorted((ROOT / "dev").glob("nvidia[0-9]*"))
    closed = [str(node) for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        return Trouble(f"this user may not use {closed[0]}", "sudo usermod -aG video,render $USER, and log in again")
    if not nodes and in_container():
        return Trouble("no GPU is in this container (no /dev/nvidia0)", _container(kernel=False))
    if not nodes:
        return Trouble(
            "NVIDIA's driver is installed and sees no GPU (no /dev/nvidia0)",
            f"sudo modprobe nvidia nvidia_uvm, or look into sudo dmesg; if there is no GPU, {WITHOUT}",
        )
    return Trouble("NVIDIA's driver sees no GPU", "nvidia-smi and sudo dmesg say what ails it; a reboot may help")


def _container(kernel: bool) -> str:
    """Return how a container gets the GPU; with ``kernel``, it has got the driver, but not what computes."""
    given = " -e NVIDIA_DRIVER_CAPABILITIES=compute,utility" if kernel else ""
    return f"start it with docker run --gpus all{given} (the host needs nvidia-container-toolkit), or {WITHOUT}"


def in_container() -> bool:
    """Return whether this is the inside of a container."""
    marks = (".dockerenv", "run/.containerenv")
    return any((ROOT / mark).exists() for mark in marks) or "KUBERNETES_SERVICE_HOST" in os.environ


def in_wsl() -> bool:
    """Return whether this is Linux inside Windows."""
    try:
        return "microsoft" in (ROOT / "proc/sys/kernel/osrelease").read_text(encoding="ascii", errors="replace").lower()
    except OSError:
        return False


def nvidia_on_bus() -> bool | None:
    """Return whether a display adapter of NVIDIA's is on the PCI bus; None where the system does not say."""
    devices = ROOT / "sys/bus/pci/devices"
    try:
        found = [(path / "vendor", path / "class") for path in devices.iterdir()]
        return any(v.read_text().strip() == "0x10de" and c.read_text().startswith("0x03") for v, c in found)
    except OSError:
        return None


def gpu_trouble(gpus: tuple[Gpu, ...]) -> Trouble | None:
    """Return why the first GPU, the one that is used, cannot be; None if it can, or where there is none."""
    trouble = trouble_of(gpus[0], 0) if gpus else None
    if trouble is None:
        return None
    other = next((i for i, gpu in enumerate(gpus) if gpu.free is not None and trouble_of(gpu, i) is None), None)
    if other is None:
        return trouble
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    number = visible.split(",")[other].strip() if visible else str(other)
    return Trouble(trouble.what, f"{set_to('CUDA_VISIBLE_DEVICES', number)} takes GPU {other}, {gpus[other].name}")


def trouble_of(gpu: Gpu, index: int) -> Trouble | None:
    """Return why a GPU cannot be used; None if it can."""
    called = f"GPU {index} ({gpu.name})"
    if gpu.capability < LEAST_CAPABILITY:
        needed = dotted(LEAST_CAPABILITY)
        return Trouble(f"{called} has compute capability {dotted(gpu.capability)}, below {needed}", WITHOUT)
    if gpu.error == "CUDA_ERROR_OUT_OF_MEMORY" or (gpu.free is not None and gpu.free < LEAST_FREE):
        left = "" if gpu.free is None else f", {gpu.free >> 20} of {gpu.total >> 20} MiB are free"
        return Trouble(f"the memory of {called} is taken{left}", "end what else runs there; nvidia-smi lists it")
    if gpu.error == "CUDA_ERROR_DEVICE_UNAVAILABLE":
        return Trouble(
            f"{called} lets in one process or none, and does not let in this one",
            "end what else runs there (nvidia-smi lists it), or sudo nvidia-smi --compute-mode=DEFAULT",
        )
    if gpu.error:
        return Trouble(f"{called} cannot be used ({gpu.error})", "nvidia-smi shows its state; reboot")
    return None
