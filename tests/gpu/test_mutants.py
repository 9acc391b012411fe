"""The tests of the kernels can fail: each kernel is broken on purpose, and some case must see it.

Every test file of an op, and of a ladder, names its mutants: a missing barrier, a wrong stride, a dropped tail, a mask
off by one. What is tried on one is tried with the checked executor first, which has nothing to compile and knows a race
when it meets one, and the first failure is enough.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu.mutants import mutated
from gpu.parity import attempts

from nanoeuler.simt import KernelFaults

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
FILES = sorted(path.relative_to(HERE).with_suffix("") for path in HERE.rglob("test_*.py") if path != Path(__file__))


def every_mutant() -> Iterator[Any]:
    for file in FILES:
        tests = importlib.import_module(".".join(("gpu", *file.parts)))
        module = ".".join(("nanoeuler.gpu", *file.parts)).replace("test_", "")
        for number, (old, new) in enumerate(getattr(tests, "MUTANTS", ())):
            yield pytest.param(tests, module, old, new, id=f"{module.removeprefix('nanoeuler.gpu.')}-{number}")


@pytest.mark.parametrize(("tests", "module", "old", "new"), list(every_mutant()))
def test_every_mutant_is_caught(tests: Any, module: str, old: str, new: str, tmp_path: Path) -> None:
    mutant = mutated(module, old, new, tmp_path)
    for name, value in getattr(tests, "SMALL", {}).items():
        assert hasattr(mutant, name)
        setattr(mutant, name, value)  # its kernels read their constants when they are first launched
    for executor in ("checked", "compiled"):
        for attempt in attempts(tests, executor):
            try:
                attempt(mutant, executor)
            except (AssertionError, KernelFaults):
                return
    pytest.fail(f"no test of {module} notices that {old!r} became {new!r}")
