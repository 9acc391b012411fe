"""What :mod:`nanoeuler.doctor` looks at: each probe returns the lines of its items.

A probe may raise what it likes, hang or crash: doctor runs it in a process of its own and makes a line of that too.
"""

import functools
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import nanoeuler
from nanoeuler.system.availability import SETTINGS, SHOW_MORE, first_trouble, setting_trouble
from nanoeuler.system.driver import Driver, ask_driver, driver_release, gpu_trouble, trouble_of
from nanoeuler.system.packages import package_trouble, requirements
from nanoeuler.system.toolkit import (
    COMPILER,
    Part,
    find_toolkit,
    home_trouble,
    newest_ptx,
    release_trouble,
    wheels,
)
from nanoeuler.system.trouble import IN_FOLDER, WITHOUT, Trouble, dotted, first_line, set_to, unset

#: From best to worst: as it should be; worth knowing; not there; there and not as it should be.
VERDICTS = ("ok", "note", "missing", "wrong")

FRESH = f"{IN_FOLDER} ."
AGAIN = "in nanoeuler's folder, python -m pip install --force-reinstall -e"
GPU_EXTRA = f"{IN_FOLDER} '.[gpu]'"
COMPILE_EXTRA = f"{IN_FOLDER} '.[gpu,compile]'"
MAC = "does not exist on macOS"
#: What is shown of the environment, besides every NUMBA_...
VARIABLES = (
    *("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"),
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "XDG_CACHE_HOME", "NANOEULER_DATA"),
)


@dataclass(frozen=True)
class Line:
    """One item: what was found, the verdict on it, and for all but ``ok`` why, and what mends it."""

    item: str
    found: str = ""
    verdict: str = "ok"
    why: str = ""
    mend: str = ""


Probe = Callable[[], list[Line]]


def probes() -> dict[str, dict[str, Probe]]:
    """Return the probes by the name of their item, in three groups: what training on the CPU needs, kernels, a GPU."""
    needed = [name for name, (_, extra) in requirements().items() if not extra] or ["numpy"]
    cpu: dict[str, Probe] = {"Python": python, "nanoeuler": project}
    cpu |= {name: functools.partial(package, name) for name in needed}
    cpu["tensorboardX"] = tensorboardx
    cpu |= {"BLAS": blas, "cores and memory": machine, "PyTorch": pytorch, "--device cpu": device_cpu}
    kernels: dict[str, Probe] = {
        "numba": functools.partial(package, "numba"),
        "llvmlite": functools.partial(package, "llvmlite", brought_by="numba"),
        "numba-cuda": numba_cuda,
        "CUDA toolkit": toolkit,
        "environment": environment,
        "kernel cache": cache,
        "--device sim": device_sim,
    }
    gpu: dict[str, Probe] = {"driver": driver, "PTX": ptx, "--device gpu": device_gpu}
    return {"cpu": cpu, "kernels": kernels, "gpu": gpu}


def run_probe(name: str) -> list[Line]:
    """Return the lines of a probe; what it raises becomes one."""
    probe = {key: probe for group in probes().values() for key, probe in group.items()}[name]
    try:
        return probe()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # what is broken may raise anything, SystemExit too
        return [failed(name, first_line(error))]


def failed(name: str, why: str) -> Line:
    """Return the line of a probe that did not come to its end."""
    driver = "nvidia-smi shows whether the driver answers; if it does not, reboot"
    mends = {
        "driver": driver,
        "PTX": driver,
        "environment": "python -m nanoeuler.doctor --json, with fewer variables set",
        "kernel cache": set_to("NUMBA_CACHE_DIR", "FOLDER"),
        "PyTorch": "python -m pip install --force-reinstall torch",
        "--device gpu": WITHOUT,
    }
    if name in ("numba-cuda", "CUDA toolkit", "--device sim"):
        mend = f"{AGAIN} '.[gpu,compile]'"
    elif name in requirements() or name == "llvmlite":
        mend = f"python -m pip install --force-reinstall '{name}{requirements().get(name, ('', ''))[0]}'"
    else:
        mend = mends.get(name, f"{AGAIN} .")
    return Line(name, "", "wrong", why, mend)


# The CPU.


def python() -> list[Line]:
    """Which interpreter this is; that it is new enough, pip has seen to."""
    system = f"{platform.system()} {platform.machine()}"
    return [Line("Python", f"{platform.python_version()} on {system}: {sys.executable}")]


def project() -> list[Line]:
    """Which nanoeuler this is, and whether pip knows the same one."""
    folder = Path(nanoeuler.__file__).parent
    found = f"{nanoeuler.__version__} in {folder}"
    try:
        version = metadata.version("nanoeuler")
    except metadata.PackageNotFoundError:
        return [Line("nanoeuler", found, "note", "pip does not know it: nothing says which packages it needs", FRESH)]
    if version != nanoeuler.__version__:
        return [Line("nanoeuler", found, "note", f"pip knows version {version} of it", FRESH)]
    return [Line("nanoeuler", found)]


def package(name: str, module: str = "", brought_by: str = "") -> list[Line]:
    """A package that nanoeuler names, or one that comes with those: its version, and whether it imports."""
    trouble = package_trouble(name, module, brought_by)
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        found = ""
    if trouble is None:
        return [Line(name, found)]
    return [Line(name, found, "wrong" if found else "missing", *trouble)]


def tensorboardx() -> list[Line]:
    """tensorboardX, which imports PyTorch where it is installed, and so would take seconds: not here."""
    modules: dict[str, Any] = sys.modules
    hidden = "torch" not in modules
    if hidden:
        modules["torch"] = None  # which makes importing it fail
    try:
        return package("tensorboardX")
    finally:
        if hidden:
            del modules["torch"]


def blas() -> list[Line]:
    """The library behind NumPy's products, and its threads."""
    import numpy  # noqa: F401 (loads it)
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    found = "; ".join(
        f"{pool['internal_api']} {pool['version']} ({pool.get('architecture', 'unknown')}), "
        f"{pool['num_threads']} thread{'s' * (pool['num_threads'] != 1)}"
        for pool in pools
    )
    if found:
        return [Line("BLAS", found)]
    if sys.platform == "darwin":
        return [Line("BLAS", "Accelerate, whose threads nobody can count")]
    why = "none whose threads can be set: products may be slow, or workers may get into each other's way"
    return [Line("BLAS", "", "note", why, "python -m pip install --force-reinstall numpy")]


def machine() -> list[Line]:
    """The cores and the memory that this process may use."""
    from nanoeuler.console import format_bytes
    from nanoeuler.cpu.parallel import available_cores
    from nanoeuler.plan import available_bytes

    available, cores = available_bytes(), available_cores()
    memory = (
        "memory that the system does not tell" if available is None else f"{format_bytes(available)} of memory free"
    )
    return [Line("cores and memory", f"{cores} core{'s' * (cores != 1)}, {memory}")]


def pytorch() -> list[Line]:
    """Whether PyTorch is there, to compare with; it is not imported."""
    try:
        return [Line("PyTorch", metadata.version("torch"))]
    except metadata.PackageNotFoundError:
        return [Line("PyTorch", "", "note", "not installed; only comparisons need it", f"{IN_FOLDER} '.[oracles]'")]


def device_cpu() -> list[Line]:
    """Whether training on the CPU has all that it imports, and a product of two matrices is right."""
    import numpy as np

    import nanoeuler.train  # noqa: F401

    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    if (a @ a.T).tolist() != [[5, 14], [14, 50]]:
        return [failed("numpy", "a product of two matrices is wrong")]
    return [Line("--device cpu")]


# Kernels.


def numba_cuda() -> list[Line]:
    """numba-cuda, which nothing on macOS has."""
    if sys.platform == "darwin":
        return [Line("numba-cuda", "", "note", MAC, WITHOUT)]
    return package("numba-cuda", "numba.cuda")


@functools.cache
def _driver() -> Driver:
    return ask_driver()


@functools.cache
def _toolkit() -> dict[str, Part]:
    return find_toolkit()


def toolkit() -> list[Line]:
    """Each part of the CUDA toolkit, its release, and where it was found."""
    if sys.platform == "darwin":
        return [Line("CUDA toolkit", "", "note", MAC, WITHOUT)]
    parts = _toolkit()
    if all(parts[name].error.startswith("not looked for") for name in COMPILER if name != "libdevice"):
        return [Line("CUDA toolkit", "", "missing", parts["NVVM"].error, COMPILE_EXTRA)]
    return [_part(name, part) for name, part in parts.items()] + [_nvdisasm()]


def _part(name: str, part: Part) -> Line:
    if not part.error:
        release = f"{dotted(part.release)}, " if part.release else ""
        return Line(name, f"{release}{part.source}: {part.path}")
    if name in COMPILER:
        home = home_trouble()
        return Line(name, "", "missing", f"{part.error}{f'; {home.what}' if home else ''}", wheels(driver_release()))
    if name == "cuBLAS":
        why = f"{part.error}; a GPU then takes nanoeuler's own kernels for matrix products, which are slower"
        return Line(name, "", "note", why, f"{IN_FOLDER} '.[gpu,cublas]'")
    return Line(name, "", "note", f"{part.error}; only kernels that link CUDA C++ need it", wheels(driver_release()))


def _nvdisasm() -> Line:
    try:
        from cuda import pathfinder

        path = pathfinder.find_nvidia_binary_utility("nvdisasm")
        if path:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
            release = re.search(r"release ([\d.]+)", said)
            return Line("nvdisasm", f"{release[1] if release else 'unknown release'}, {path}")
        why = "not found"
    except Exception as error:
        why = first_line(error)
    return Line("nvdisasm", "", "note", f"{why}; only listings of machine code need it", COMPILE_EXTRA)


def driver() -> list[Line]:
    """NVIDIA's driver, and each GPU that it shows."""
    if sys.platform == "darwin":
        return [Line("driver", "", "note", MAC, WITHOUT)]
    said = _driver()
    found = f"CUDA {dotted(said.release)}" if said.release else ""
    if said.trouble:
        return [Line("driver", found, "wrong" if found else "missing", *said.trouble)]
    lines = [Line("driver", found)]
    for i, gpu in enumerate(said.gpus):
        free = "unknown" if gpu.free is None else f"{gpu.free / 2**30:.1f}"
        found = f"{gpu.name}, compute capability {dotted(gpu.capability)}, {free} of {gpu.total / 2**30:.1f} GiB free"
        trouble = trouble_of(gpu, i) if i else gpu_trouble(said.gpus)
        verdict = "note" if i else "wrong"  # the first one is the one that is used
        lines.append(Line(f"GPU {i}", found, verdict, *trouble) if trouble else Line(f"GPU {i}", found))
    return lines


def ptx() -> list[Line]:
    """The PTX that the toolkit writes beside the one that the driver reads, and whether the parts go together."""
    if sys.platform == "darwin":
        return [Line("PTX", "", "note", MAC, WITHOUT)]
    parts, said = _toolkit(), _driver()
    written, read = parts["NVVM"].ptx, newest_ptx(said.release) if said.release else None
    found = f"the toolkit writes {dotted(written) if written else 'none'}, the driver reads "
    found += f"up to {dotted(read)}" if read else "none" if said.release is None else "an unknown one"
    if trouble := release_trouble(parts, said):
        return [Line("PTX", found, "wrong", *trouble)]
    if not written or not said.release:
        lacking = "no toolkit" if not written else "no driver"
        mend = said.trouble.mend if written and said.trouble else COMPILE_EXTRA
        return [Line("PTX", found, "note", f"{lacking}, so nothing to compare", mend)]
    if read and written > read:
        why = "kernels run all the same, as nvJitLink makes machine code of them; the driver would refuse their PTX"
        return [Line("PTX", found, "note", why, wheels(said.release))]
    return [Line("PTX", found)]


def environment() -> list[Line]:
    """The variables that change what the rest does, each by itself."""
    names = [name for name in VARIABLES if name in os.environ]
    names += sorted(name for name in os.environ if name.startswith("NUMBA_"))
    lines = [_variable(name, os.environ[name]) for name in names]
    return lines or [Line("environment", "no variable that matters is set")]


def _variable(name: str, value: str) -> Line:
    found = f"{value!r}"
    setting = name.removeprefix("NUMBA_")
    if setting in SETTINGS and (trouble := setting_trouble(setting)):
        return Line(name, found, "wrong", *trouble)
    if name in ("CUDA_PATH", "CUDA_HOME") and (home := home_trouble(name)):
        harmless = not any(_toolkit()[part].error for part in COMPILER)
        effect = "; the toolkit is found elsewhere, so it does no harm now" if harmless else ""
        return Line(name, found, "note" if harmless else "wrong", home.what + effect, home.mend)
    if name == "CUDA_VISIBLE_DEVICES" and value.strip() in ("", "-1"):
        return Line(name, found, "note", "it hides every GPU", unset(name))
    if name == "NUMBA_FORCE_CUDA_CC":
        return Line(name, found, "note", "kernels are compiled for this GPU, whichever is here", unset(name))
    return Line(name, found)


def cache() -> list[Line]:
    """The folder in which compiled kernels are kept, by writing to the nearest folder above it that exists."""
    if package_trouble("numba"):
        return [Line("kernel cache", "", "note", "nothing is compiled without numba", GPU_EXTRA)]
    mend = f"{set_to('NUMBA_CACHE_DIR', 'FOLDER')}, with one that can be written"
    try:
        from nanoeuler.simt.compiled.cache import folder

        place = folder()
        existing = next(path for path in (place, *place.parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        why = f"cannot be written ({first_line(error)}): every run compiles its kernels anew"
        return [Line("kernel cache", "", "note", why, mend)]
    return [Line("kernel cache", str(place))]


def device_sim() -> list[Line]:
    """Whether a kernel runs on the CPU."""
    trouble = package_trouble("numba")
    trouble = trouble or setting_trouble("DISABLE_JIT")
    if not trouble:
        import numpy as np

        try:
            trouble = _kernel_trouble(np.empty)
        except Exception as error:
            kept = cache()[0]  # the one thing outside Python that a kernel on the CPU needs
            mend = f"{AGAIN} '.[gpu]'" if kept.verdict == "ok" else kept.mend
            trouble = Trouble(f"a kernel does not run ({first_line(error)})", mend)
    return [Line("--device sim", "", "wrong", *trouble) if trouble else Line("--device sim")]


def device_gpu() -> list[Line]:
    """Whether a kernel runs on the GPU; it is launched where nothing speaks against it."""
    trouble = first_trouble()
    if trouble is None:
        try:
            from nanoeuler.gpu.memory import empty

            trouble = _kernel_trouble(empty)
        except Exception as error:
            trouble = Trouble(f"a kernel does not run ({first_line(error)})", f"{SHOW_MORE}; until then {WITHOUT}")
    return [Line("--device gpu", "", "wrong", *trouble) if trouble else Line("--device gpu")]


def _kernel_trouble(empty: Callable[[int, Any], Any]) -> Trouble | None:
    """Fill a few numbers by a kernel, in the memory that ``empty`` gives."""
    import numpy as np

    from nanoeuler.gpu.memory import fill, to_numpy

    x = empty(5, np.float32)
    fill(x, 2.0)
    if to_numpy(x).tolist() == [2.0] * 5:
        return None
    return Trouble("a kernel that fills an array leaves other numbers in it", f"{AGAIN} '.[gpu]'")
