"""What is compiled is kept on disk, under a hash of everything that went into it: another process starts at once."""

import ast
import functools
import hashlib
import os
import sys
import time
from collections.abc import Callable, Container
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import BuiltinFunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.core import config
from numba.core.types import Type

import nanoeuler

if TYPE_CHECKING:
    from nanoeuler.simt.compiled.rewrite import Program


def kept(decorate: Callable, *arguments: Any, **options: Any) -> Callable:
    """Return Numba's decorator ``decorate`` with its cache on disk, where that can be read and written.

    Numba takes what it kept for current as long as the function's file has not changed; what else the function is made
    of counts by the name that it is kept under.
    """

    def compiled(function: Callable) -> Any:
        function.__qualname__ = f"{function.__qualname__}_{hashlib.sha256(_own_text()).hexdigest()[:12]}"
        try:
            return decorate(*arguments, cache=True, **options)(function)
        except Exception:  # no folder that Numba could write to, a disk that is full, a file that is cut off
            return decorate(*arguments, **options)(function)

    return compiled


def prune() -> None:
    """Delete what has lain in the folder for more than a month: the kernel has changed, or is compiled once more."""
    oldest = time.time() - 30 * 24 * 3600
    with suppress(OSError):
        for path in folder().rglob("launch_*"):
            if path.is_file() and path.stat().st_mtime < oldest:
                path.unlink()


def folder() -> Path:
    """Return where compiled kernels are kept: NUMBA_CACHE_DIR, else the user's cache folder. Safe to delete."""
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR) / "nanoeuler-simt"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "nanoeuler" / "simt"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nanoeuler" / "simt"


@functools.lru_cache(maxsize=1)
def _own_text() -> bytes:
    """Return the text of what machine code is made by: the front end, this package, the functions of libdevice."""
    package = Path(__file__).parents[1]
    files = [*package.glob("*.py"), *package.glob("compiled/*.py"), *package.glob("functions/*.py")]
    return b"".join(file.read_bytes() for file in sorted(files))


def fingerprint(program: "Program", text: str, helpers: Container[str]) -> str | None:
    """Return a hash of everything that the machine code depends on but the types; None where a value has no text."""
    digest = hashlib.sha256(_own_text() + text.encode() + nanoeuler.__version__.encode() + sys.version.encode())
    stack, seen = [program.kernel], set()
    while stack:
        function = stack.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        digest.update(ast.dump(function.tree).encode() + function.file.encode())
        stack += function.devices.values()
        digest.update(repr(sorted(function.devices)).encode())
        for name, value in sorted(function.namespace.items()):
            described = "" if name in helpers else _described(value, function.tree, name)
            if described is None:
                return None
            digest.update(f"{name}={described};".encode())
    return digest.hexdigest()[:32]


def _described(value: Any, tree: ast.FunctionDef, name: str) -> str | None:
    """Return a text that is the same only for values that compile to the same code; None where there is none."""
    if isinstance(value, ModuleType):
        if value.__name__ in ("math", "numpy", "operator", "cmath", "numba"):
            return value.__name__
        used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and _root(n) == name}
        return None if used else value.__name__
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.strides}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, tuple):
        parts = [_described(v, tree, name) for v in value]
        return None if None in parts else f"{type(value).__qualname__}({parts})"
    if isinstance(value, bool | int | float | complex | str | bytes | np.generic | np.dtype | Type | Enum | type(None)):
        return f"{type(value).__qualname__}:{value!r}"
    if isinstance(value, type | BuiltinFunctionType | np.ufunc):
        return f"{getattr(value, '__module__', '')}.{value.__name__}"
    return None


def _root(node: ast.expr) -> str | None:
    """Return the first name of a dotted name."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
