"""The stand-in in the place of ``numba.cuda``, so that a script that imports it there gets it, and the way back."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import CellType, FunctionType, ModuleType
from typing import Any

from nanoeuler.errors import UserError
from nanoeuler.simt.cuda.devices import Device
from nanoeuler.simt.names import cuda_name

NAME = "numba.cuda"
OURS = ("libdevice", "random", "cg", "vectorizers")


@contextmanager
def installed() -> Iterator[None]:
    """Let ``numba.cuda`` be the stand-in while the context lasts."""
    import numba

    import nanoeuler.simt.cuda as stand_in

    modules = {NAME: stand_in}
    modules |= {f"{NAME}.{name}": importlib.import_module(f"{stand_in.__name__}.{name}") for name in OURS}
    finder = _Submodules()
    sys.meta_path.insert(0, finder)
    try:
        with _in_place(numba, modules):
            yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def _in_place(numba: ModuleType, modules: dict[str, ModuleType]) -> Iterator[None]:
    """Let ``modules`` be all that is imported under the name ``numba.cuda`` while the context lasts."""
    before = _taken_out()
    _put_back(numba, modules)
    _elsewhere.append(before)
    try:
        yield
    finally:
        _elsewhere.pop()
        modules.clear()
        modules.update(_taken_out())  # with what was imported meanwhile
        _put_back(numba, before)


_elsewhere: list[dict[str, ModuleType]] = []  # what each context that is open has taken out, the innermost last


def _taken_out() -> dict[str, ModuleType]:
    """Remove ``numba.cuda`` and its submodules from the modules that are imported, and return them."""
    names = [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]
    return {name: sys.modules.pop(name) for name in names}


def _put_back(numba: ModuleType, modules: dict[str, ModuleType]) -> None:
    """Let ``modules`` count as imported; ``numba.cuda`` is also an attribute of its parent."""
    sys.modules.update(modules)
    vars(numba).pop("cuda", None)
    if modules.get(NAME) is not None:
        vars(numba)["cuda"] = modules[NAME]


@contextmanager
def genuine() -> Iterator[ModuleType]:
    """Let ``numba.cuda`` be the package numba-cuda, or numba's own, while the context lasts.

    Raises:
        ImportError: there is none.
    """
    import numba

    if getattr(sys.modules.get(NAME), "__name__", NAME) == NAME:  # the stand-in is not installed
        yield importlib.import_module(NAME)
        return
    taken = _elsewhere[-1]
    finders = [finder for finder in sys.meta_path if isinstance(finder, _Submodules)]
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in finders]
    try:
        with _in_place(numba, taken):
            yield importlib.import_module(NAME)
    finally:
        sys.meta_path[:0] = finders


class _Submodules(Loader):
    """Finds the submodules of ``numba.cuda`` that the stand-in lacks, in the genuine one: ``numba.cuda.types`` ..."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return a spec for a name below ``numba.cuda``."""
        return ModuleSpec(name, self) if name.startswith(f"{NAME}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the genuine module.

        Raises:
            ModuleNotFoundError: there is none.
        """
        try:
            with genuine():
                module = importlib.import_module(spec.name)
        except ImportError as error:
            raise ModuleNotFoundError(f"{spec.name} is no part of the stand-in for numba.cuda ({error})") from error
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing but undo what importing has changed: the module is there already."""
        module.__spec__ = self._spec


# What is left to numba-cuda itself ------------------------------------------------------------------------------------

COMPILERS = {name: name for name in ("compile", "compile_ptx", "compile_all")} | {
    f"{name}_for_current_device": name for name in ("compile", "compile_ptx")
}


def genuine_attribute(name: str) -> Any:
    """Return what the genuine ``numba.cuda`` has under ``name``; its compilers take kernels made with the stand-in.

    Raises:
        AttributeError: it has none, or is not installed.
    """
    try:
        with genuine() as cuda:
            value = getattr(cuda, COMPILERS.get(name, name))
    except ImportError as error:
        raise AttributeError(
            f"the stand-in for numba.cuda has no '{name}', and numba-cuda is not installed ({error})"
        ) from error
    except AttributeError:
        raise AttributeError(f"numba.cuda has no '{name}'") from None
    return _compiler(name, value) if name in COMPILERS else value


def _compiler(name: str, function: Callable) -> Callable:
    """Return one of numba-cuda's compilers that takes kernels made with the stand-in, and needs no GPU at hand."""

    def compile_kernel(pyfunc: Any, *args: Any, **options: Any) -> Any:
        from nanoeuler.simt.toolchain import device_at_hand, require_toolkit

        with genuine():
            require_toolkit()
        options["cc"] = options.get("cc") or Device.compute_capability
        with genuine(), device_at_hand(options["cc"]):
            return function(genuine_function(getattr(pyfunc, "py_func", pyfunc)), *args, **options)

    compile_kernel.__name__ = name
    return compile_kernel


@lru_cache(maxsize=256)
def genuine_function(function: FunctionType) -> FunctionType:
    """Return ``function`` with the genuine names of CUDA in place of the stand-in's: what numba-cuda compiles.

    Raises:
        UserError: it uses a name that numba-cuda does not have.
    """
    with genuine() as cuda:
        names = {
            name: _genuine(function.__globals__[name], cuda)
            for name in _names(function.__code__)
            if name in function.__globals__
        }
        cells = tuple(CellType(_genuine(cell.cell_contents, cuda)) for cell in function.__closure__ or ())
    made = FunctionType(
        function.__code__, {**function.__globals__, **names}, function.__name__, function.__defaults__, cells
    )
    made.__kwdefaults__, made.__module__ = function.__kwdefaults__, function.__module__
    made.__qualname__ = function.__qualname__
    return made


def _names(code: Any) -> set[str]:
    return set(code.co_names)


def _genuine(value: Any, cuda: ModuleType) -> Any:
    """Return what numba-cuda has in the place of a value of the stand-in; any other value as it is."""
    from nanoeuler.simt.cuda.dispatch import Dispatcher

    if isinstance(value, Dispatcher):
        options = {name: value.targetoptions[name] for name in ("fastmath", "opt") if name in value.targetoptions}
        return cuda.jit(device=True, **options)(genuine_function(value.py_func))
    name = cuda_name(value)
    if name is None:
        return value
    found: Any = cuda
    for part in name.split(".") if name else ():
        if isinstance(found, ModuleType) and part == "libdevice":
            importlib.import_module(f"{NAME}.libdevice")
        if not hasattr(found, part):
            raise UserError(f"this version of numba-cuda has no cuda.{name}")
        found = getattr(found, part)
    return found
