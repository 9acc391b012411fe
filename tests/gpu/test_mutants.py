"""The tests of the kernels can fail: each kernel is broken on purpose, and some case must see it.

Every test file of an op names its mutants: a missing barrier, a wrong stride, a dropped tail, a mask off by one. The
cases are run as the tests run them, the quick executor first.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu.mutants import mutated
from gpu.parity import check

from nanoeuler.simt import KernelFaults

TESTS = sorted(path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py"))


def every_mutant() -> Iterator[tuple[str, str, str]]:
    for op in TESTS:
        module = importlib.import_module(f"gpu.test_{op}") if op != "mutants" else None
        for old, new in getattr(module, "MUTANTS", ()):
            yield op, old, new


@pytest.mark.parametrize(("op", "old", "new"), every_mutant())
def test_every_mutant_is_caught(op: str, old: str, new: str, tmp_path: Path) -> None:
    table = mutated(f"nanoeuler.gpu.{op}", old, new, tmp_path)
    cases = importlib.import_module(f"gpu.test_{op}").CASES
    for executor in ("compiled", "checked"):
        for case in cases:
            if case.big and executor == "checked":
                continue
            try:
                check(case, table, executor)
            except (AssertionError, KernelFaults):
                return
    pytest.fail(f"no case of {op} notices that {old!r} became {new!r}")
