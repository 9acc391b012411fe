"""Why no kernel can be launched on a GPU here, and what mends it.

A launch needs a GPU and NVIDIA's driver; numba and numba-cuda, with nothing that switches them off; the libraries of
the CUDA toolkit that compile (NVVM, libdevice, NVRTC, nvJitLink); and a driver of the same major release or a newer
one. :func:`why_no_gpu` goes through them in this order, from what is hardest to mend to what a command mends.

Nothing but the standard library is imported before it is needed, and ``numba`` not at all where there is no GPU.
"""

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator

from nanoeuler.system.driver import ask_driver, gpu_trouble
from nanoeuler.system.packages import package_trouble, requirements
from nanoeuler.system.toolkit import find_toolkit, release_trouble, toolkit_trouble
from nanoeuler.system.trouble import WITHOUT, Trouble, first_line, unset

#: Settings of Numba's that forbid to launch, each also an environment variable that starts with NUMBA_.
SETTINGS = {
    "ENABLE_CUDASIM": "puts Numba's simulator in the GPU's place",
    "DISABLE_CUDA": "switches the GPU off",
    "DISABLE_JIT": "switches Numba's compiler off",
}
SHOW_MORE = "python -c 'from numba import cuda; cuda.detect()' shows more"


def why_no_gpu() -> str | None:
    """Return why kernels cannot be launched on a GPU here, and what to do, for people; None where they can.

    It imports numba.cuda and starts CUDA where there is a GPU, and never raises.
    """
    trouble = first_trouble()
    return None if trouble is None else str(trouble)


def first_trouble() -> Trouble | None:
    """Return what must be mended first so that kernels can be launched on a GPU; None where they can. Never raises."""
    try:
        return next(_troubles(), None)
    except (Exception, SystemExit) as error:
        return Trouble(
            f"looking for a GPU failed ({first_line(error)})", "python -m nanoeuler.doctor lists what there is"
        )


def _troubles() -> Iterator[Trouble]:
    """Yield what stands in the way, one after the other, looking no further than is asked for."""
    if sys.platform == "darwin":
        yield Trouble("CUDA does not exist on macOS", WITHOUT)
        return
    driver = ask_driver(contexts=1)
    if len(driver.gpus) > 1 and gpu_trouble(driver.gpus):
        driver = ask_driver()  # perhaps another one is free
    checks: list[Callable[[], Trouble | None]] = [
        lambda: driver.trouble,
        lambda: gpu_trouble(driver.gpus),
        lambda: package_trouble("numba"),
        lambda: package_trouble("numba-cuda", "numba.cuda"),
        *(functools.partial(setting_trouble, name) for name in SETTINGS),
        redirection_trouble,
    ]
    for check in checks:
        if trouble := check():
            yield trouble
    parts = find_toolkit()
    for trouble in (toolkit_trouble(parts, driver.release), release_trouble(parts, driver)):
        if trouble:
            yield trouble
    if trouble := last_trouble():
        yield trouble


def setting_trouble(name: str) -> Trouble | None:
    """Return a trouble where one of :data:`SETTINGS` is on."""
    variable, effect = f"NUMBA_{name}", SETTINGS[name]
    if not is_set(name):
        return None
    if variable in os.environ:
        return Trouble(f"{variable}={os.environ[variable]} {effect}", unset(variable))
    return Trouble(f"{name.lower()} in .numba_config.yaml {effect}", "delete that line of the file")


def is_set(name: str) -> bool:
    """Return whether a setting of Numba's is on, by its environment variable or by its file."""
    config = getattr(sys.modules.get("numba"), "config", None)
    if config is not None:
        return bool(getattr(config, name, 0))
    try:
        return bool(int(os.environ.get(f"NUMBA_{name}", "0")))
    except ValueError:
        return False


def redirection_trouble() -> Trouble | None:
    """Return a trouble where ``numba.cuda`` is the old one inside Numba, although numba-cuda is installed."""
    cuda = importlib.import_module("numba.cuda")
    if hasattr(cuda, "compile_all"):
        return None
    return Trouble(
        "numba.cuda is the old one inside Numba: the file _numba_cuda_redirector.pth of numba-cuda is not at work",
        f"python -m pip install --force-reinstall 'numba-cuda{requirements().get('numba-cuda', ('', ''))[0]}'",
    )


def last_trouble() -> Trouble | None:
    """Return a trouble where numba-cuda itself finds no GPU, though nothing else stands in the way."""
    cuda = importlib.import_module("numba.cuda")
    if cuda.is_available():
        return None
    error = first_line(str(cuda.cuda_error() or "it does not say why"), kind=False)
    return Trouble(f"numba-cuda finds no GPU that it can use ({error})", SHOW_MORE)
