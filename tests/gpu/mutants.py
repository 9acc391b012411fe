"""A kernel broken on purpose: a module with a piece of its source replaced, as a table of ops to be tested."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

COUNT = iter(range(10**6))


def mutated(module: str, old: str, new: str, folder: Path) -> ModuleType:
    """Return a copy of a module in whose source ``old``, which must be there once, is ``new``."""
    source = Path(importlib.import_module(module).__file__ or "").read_text(encoding="utf-8")
    assert source.count(old) == 1, f"{module} has {source.count(old)} of {old!r}, not one"
    assert old != new
    return copied(module, source.replace(old, new), folder)


def copied(module: str, source: str, folder: Path) -> ModuleType:
    """Return a module with this source, in a file of its own: the executors read the source of kernels."""
    name = f"{module.rpartition('.')[2]}_mutant_{next(COUNT)}"
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    sys.modules[name] = copy
    try:
        spec.loader.exec_module(copy)
    finally:
        del sys.modules[name]
    return copy
