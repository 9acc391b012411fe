"""Whether the packages here are those that the lessons are tested with, and what to do where they are not."""

import re
import sys
from importlib import metadata
from typing import Any

EXTRA = "lessons-kernel"
INSTALL = "python -m pip install -e '.[lessons]'"
#: What a lesson cannot do without; another version of the rest is worth a word, no more.
NEEDED = ("numpy", "numba")


def pins() -> dict[str, str]:
    """Return the exact versions that the lessons compute with on this Python, by package.

    Empty where nanoeuler was never installed, or where packaging, which comes with the extra, is not.
    """
    try:
        from packaging.requirements import Requirement

        wanted = [Requirement(line) for line in metadata.requires("nanoeuler") or []]
    except (ImportError, metadata.PackageNotFoundError):
        return {}
    found = {}
    for each in wanted:
        exact = re.fullmatch(r"==([\w.]+)", str(each.specifier))
        if exact and each.marker and each.marker.evaluate({"extra": EXTRA}) and not each.marker.evaluate():
            found[each.name] = exact[1]
    return found


def differing() -> dict[str, tuple[str | None, str]]:
    """Return the packages of another version than the lessons ask for: what is installed (or None), and what should."""
    found: dict[str, tuple[str | None, str]] = {}
    for name, wanted in pins().items():
        try:
            version: str | None = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = None
        if version != wanted:
            found[name] = (version, wanted)
    return found


def advice(differing: dict[str, tuple[str | None, str]]) -> str:
    """Return what is to be said about versions: nothing where all is as it should be."""
    if not differing:
        return _restart()
    told = [f"{name} {has or 'is not installed'}, tested with {wanted}" for name, (has, wanted) in differing.items()]
    lines = ["some packages are not of the versions that this lesson is tested with:"]
    lines += [f"  {each}" for each in told[:8]]
    lines += [f"  and {len(told) - 8} more"] if len(told) > 8 else []
    lines.append(f"to mend it, in nanoeuler's folder: {INSTALL}, then restart the kernel")
    return "\n".join(lines)


def _restart() -> str:
    """Return a word about packages that were imported before they were replaced, as in Colab."""
    stale = []
    for name in NEEDED:
        module: Any = sys.modules.get(name)
        if module is not None and getattr(module, "__version__", None) != metadata.version(name):
            stale.append(name)
    return f"{' and '.join(stale)} was replaced while it was in use: restart the kernel (the session)" if stale else ""
