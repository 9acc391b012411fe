"""The tests of the kernels can fail: each kernel is broken on purpose, and some case must see it.

Every test file of an op, and of a ladder, names its mutants: a missing barrier, a wrong stride, a dropped tail, a mask
off by one. What is tried on one is tried with the checked executor first, which has nothing to compile and knows a race
when it meets one, and the first failure is enough.
"""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gpu.mutants import copied, mutated
from gpu.parity import attempts

from nanoeuler.simt import KernelFaults

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
PATHS = sorted(path.relative_to(HERE).with_suffix("") for path in HERE.rglob("test_*.py") if path != Path(__file__))
NAMES = [".".join(path.parts) for path in PATHS]
TESTS = {name.replace("test_", ""): importlib.import_module(f"gpu.{name}") for name in NAMES}
#: The tests of each module of kernels.
MUTATED = {module: tests for module, tests in TESTS.items() if hasattr(tests, "MUTANTS")}
MUTANTS = [
    pytest.param(tests, module, old, new, id=f"{module}-{number}")
    for module, tests in MUTATED.items()
    for number, (old, new) in enumerate(tests.MUTANTS)
]
OWN = [
    pytest.param(tests, module, id=module)
    for module, tests in MUTATED.items()
    if hasattr(tests, "SMALL") or hasattr(tests, "ATTEMPTS")
]


def made_small(module: ModuleType, tests: Any) -> ModuleType:
    """Return a copy of a module with the constants that its tests ask for: none of its kernels has read them yet."""
    for name, value in getattr(tests, "SMALL", {}).items():
        assert hasattr(module, name)
        setattr(module, name, value)
    return module


@pytest.mark.parametrize(("tests", "module", "old", "new"), MUTANTS)
def test_every_mutant_is_caught(tests: Any, module: str, old: str, new: str, tmp_path: Path) -> None:
    mutant = made_small(mutated(f"nanoeuler.gpu.{module}", old, new, tmp_path), tests)
    for executor in ("checked", "compiled"):
        for attempt in attempts(tests, executor):
            try:
                attempt(mutant, executor)
            except (AssertionError, KernelFaults):
                return
    pytest.fail(f"no test of {module} notices that {old!r} became {new!r}")


@pytest.mark.parametrize(("tests", "module"), OWN)
def test_what_is_tried_on_mutants_holds_for_what_is_not_broken(tests: Any, module: str, tmp_path: Path) -> None:
    source = Path(importlib.import_module(f"nanoeuler.gpu.{module}").__file__ or "").read_text(encoding="utf-8")
    whole = made_small(copied(module, source, tmp_path), tests)
    for attempt in attempts(tests, "checked"):
        attempt(whole, "checked")
