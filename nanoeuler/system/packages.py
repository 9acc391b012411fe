"""Python packages: installed, of the version that nanoeuler's metadata asks for, and not broken."""

import importlib.util
import re
import warnings
from importlib import metadata
from pathlib import Path

from nanoeuler.system.trouble import IN_FOLDER, Trouble, first_line


def package_trouble(name: str, module: str = "", brought_by: str = "") -> Trouble | None:
    """Return what is wrong with a package that nanoeuler's metadata names: missing, of a wrong version, or broken.

    Args:
        name: as pip knows it.
        module: as it is imported; if left out, as ``name``.
        brought_by: the package that needs it, where nanoeuler itself does not.
    """
    wanted = requirements()
    specifier, extra = wanted.get(name, ("", wanted.get(brought_by, ("", ""))[1]))
    install = f"{IN_FOLDER} '.[{extra}]'" if extra else f"{IN_FOLDER} ."
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Trouble(f"{name} is not installed", install)
    if not within(version, specifier):
        return Trouble(f"{name} {version} is installed, and nanoeuler needs {specifier}", install)
    if error := import_error(module or name.replace("-", "_")):
        again = f"python -m pip install --force-reinstall '{name}{specifier}'"
        if other := impostor(name, module or name):
            again = f"rename or remove {other}, which Python takes for {name}"
        return Trouble(f"{name} {version} does not import ({error})", again)
    return None


def requirements() -> dict[str, tuple[str, str]]:
    """Return what nanoeuler's metadata asks for, by package: the versions, and the extra (``""`` for everybody)."""
    wanted: dict[str, tuple[str, str]] = {}
    try:
        lines = metadata.requires("nanoeuler") or []
    except Exception:  # run from a copy that was never installed, or the metadata cannot be read
        lines = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)", marker)
        if found := re.match(r"\s*([\w.-]+)\s*([^\[\]]*)$", requirement):
            wanted.setdefault(found[1], (found[2].strip(), extra[1] if extra else ""))
    return wanted


def within(version: str, specifier: str) -> bool:
    """Return whether a version is one of those that a specifier such as ``>=0.61,<1`` allows."""
    try:
        from packaging.specifiers import SpecifierSet
    except ImportError:  # it comes with tensorboardX and with numba-cuda, but nobody promises it
        return True
    return SpecifierSet(specifier).contains(version, prereleases=True)


def impostor(name: str, module: str) -> str:
    """Return the file that Python imports instead of what pip has installed; ``""`` where it imports that."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0].replace("-", "_"))
        installed = Path(str(metadata.distribution(name).locate_file(""))).resolve()
        if spec and spec.origin and not Path(spec.origin).resolve().is_relative_to(installed):
            return spec.origin
    except Exception:  # a package so broken that not even its place can be told
        return ""
    return ""


def import_error(module: str) -> str:
    """Import a module, whatever it may raise; return the first line of its error, or ``""``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a broken package may do anything, exit too
        return first_line(error)
    return ""
