"""What the tests of all GPU ops share: one case is run on both op tables, and the outputs are compared.

A test file of an op has ``CASES``, a list of :class:`Case`, and ``MUTANTS``, pairs of text in the op's file and what it
is replaced by to break the kernel: some case must then fail (tests/gpu/test_mutants.py sees to it). Where cases do not
reach a kernel, or only large ones do, there are ``ATTEMPTS`` too, functions of a module and an executor that raise an
AssertionError; ``SMALL`` has values for constants of the module with which a few elements already take several blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from simt.kernels.toolkit import need_toolkit

import nanoeuler.cpu
from nanoeuler.gpu.bfloat16 import from_bfloat16, to_bfloat16
from nanoeuler.gpu.ladder.version import Version
from nanoeuler.gpu.launch import executing

#: Largest difference from the CPU op, relative to the largest element of the tensor.
TOLERANCE = 1e-4
#: The executors and orders that every case is run in.
RUNS = [
    ("compiled", "forward"),
    ("checked", "forward"),
    ("checked", "reverse"),
    ("checked", "random"),
    ("ptx", "forward"),
]
every_run = pytest.mark.parametrize(("executor", "order"), RUNS, ids=[f"{e}-{o}" for e, o in RUNS])
#: Arrays that are float32 whatever the activations are: statistics, losses, tables, gradients of parameters.
ALWAYS_FLOAT32 = {
    *("mean", "rstd", "lse", "losses", "dloss", "cos", "sin", "norm", "gradient"),
    *("dweight", "dbias", "dposition", "dembedding"),
}


def in_every_run(cases: Sequence["Case"]) -> Any:
    """Run a test on every case in every executor and order, but for those that the case leaves out."""
    left_out = [({"checked"} if case.big else set()) | (set() if case.ptx else {"ptx"}) for case in cases]
    runs = [(case, *run) for case, out in zip(cases, left_out, strict=True) for run in RUNS if run[0] not in out]
    return pytest.mark.parametrize(("case", "executor", "order"), runs, ids=lambda value: str(value))


@dataclass(frozen=True)
class Case:
    """One call of an op.

    ``arguments`` makes the arguments by parameter name: float32 arrays with awkward shapes and values all different;
    what is written starts as NaN (:func:`unwritten`), what is added to as random numbers.
    """

    op: str  # name in the op table
    name: str
    arguments: Callable[[np.random.Generator], dict[str, Any]]
    outputs: tuple[str, ...]  # what is compared
    aliases: tuple[tuple[str, str], ...] = ()  # (written, read) that are one array in this case
    big: bool = False  # too many threads for the checked executor: compiled and ptx only
    ptx: bool = True  # False where another case's PTX, which takes seconds to compile, shows the same

    def __str__(self) -> str:
        return f"{self.op}, {self.name}"


def unwritten(*shape: int) -> np.ndarray:
    """Return a float32 array of NaN, for an output that must be written everywhere."""
    return np.full(shape, np.nan, np.float32)


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Return standard normal float32 numbers."""
    return random.standard_normal(shape).astype(np.float32)


def arguments_of(case: Case, dtype: Any = np.float32) -> dict[str, Any]:
    """Return fresh arguments; every float32 array as ``dtype``, aliases made one array."""
    given = case.arguments(np.random.default_rng(len(case.name)))
    given = {k: v.astype(dtype, copy=False) if getattr(v, "dtype", None) == np.float32 else v for k, v in given.items()}
    for written, read in case.aliases:
        given[written] = given[read]
    return given


def assert_close(got: np.ndarray, expected: np.ndarray, what: str, tolerance: float = TOLERANCE) -> None:
    """Compare with an error relative to the largest element; NaN and infinities must be in the same places."""
    finite = np.isfinite(expected)
    assert np.array_equal(np.isfinite(got), finite), f"{what}: not finite in other places than expected"
    scale = max(float(np.abs(expected[finite]).max(initial=0)), 1e-30)
    error = float(np.abs(got[finite].astype(np.float64) - expected[finite]).max(initial=0)) / scale
    assert error < tolerance, f"{what}: differs by {error:.1e} of its largest value"


def check(case: Case, table: ModuleType | SimpleNamespace, executor: Any = "compiled", order: Any = "forward") -> None:
    """Run a case on the CPU op and on an op table of kernels, in float32, and compare every output.

    Arrays that an op may only read must be unchanged.
    """
    if executor == "ptx":
        need_toolkit()
    expected, got = arguments_of(case), arguments_of(case)
    before = {k: v.copy() for k, v in got.items() if isinstance(v, np.ndarray)}
    getattr(nanoeuler.cpu, case.op)(**expected)
    with executing(executor, order, seed=1):
        getattr(table, case.op)(**got)
    for name in case.outputs:
        assert_close(got[name], expected[name], f"{case}: {name}")
    written = {id(got[name]) for name in case.outputs}
    for name, value in before.items():
        if id(got[name]) not in written:
            np.testing.assert_array_equal(got[name], value, err_msg=f"{case}: {name} is an input, and was changed")


def table_of(version: Version, op: str) -> SimpleNamespace:
    """Return an op table with a version of a ladder in the op's place."""
    return SimpleNamespace(**{op: version.run})


def check_module(case: Case, module: ModuleType, executor: Any) -> None:
    """Run a case on an op's module; on a ladder's, with each version that is defined there."""
    own = [version for version in getattr(module, "VERSIONS", ()) if version.run.__module__ == module.__name__]
    for table in [table_of(version, case.op) for version in own] or [module]:
        check(case, table, executor)


def attempts(tests: ModuleType, executor: Any) -> list[Callable[[ModuleType, Any], None]]:
    """Return what a file of tests tries on a broken module: its cases, small arrays first, and its attempts."""
    cases = sorted(
        (case for case in getattr(tests, "CASES", ()) if executor != "checked" or not case.big), key=elements
    )
    return [*(partial(check_module, case) for case in cases), *getattr(tests, "ATTEMPTS", ())]


def elements(case: Case) -> int:
    """Return how many elements the arrays of a case have."""
    return sum(getattr(value, "size", 0) for value in arguments_of(case).values())


def check_bfloat16(case: Case, table: ModuleType | SimpleNamespace, executor: Any = "compiled") -> None:
    """Run a case with bfloat16 activations and weights: at most twice the error of rounding NumPy's result.

    The reference is the CPU op in float64 on the rounded inputs; NumPy's plain computation is the CPU op in float32 on
    the same, its outputs rounded to bfloat16.
    """
    rounded = {
        k: from_bfloat16(to_bfloat16(v)) if _is_low(case, k, v) else v for k, v in arguments_of(case).items()
    }  # aliases are made again below

    def fresh(change: Callable[[str, Any], Any]) -> dict[str, Any]:
        given = {k: change(k, v.copy() if isinstance(v, np.ndarray) else v) for k, v in rounded.items()}
        for written, read in case.aliases:
            given[written] = given[read]
        return given

    exact = fresh(lambda k, v: v.astype(np.float64) if getattr(v, "dtype", None) == np.float32 else v)
    plain = fresh(lambda k, v: v)
    low = fresh(lambda k, v: to_bfloat16(v) if _is_low(case, k, v) else v)
    getattr(nanoeuler.cpu, case.op)(**exact)
    getattr(nanoeuler.cpu, case.op)(**plain)
    with executing(executor):
        getattr(table, case.op)(**low)
    for name in case.outputs:
        got, numpy = low[name], plain[name]
        if low[name].dtype == np.uint16:
            got, numpy = from_bfloat16(got), from_bfloat16(to_bfloat16(numpy))
        scale = max(float(np.abs(exact[name]).max(initial=0)), 1e-30)
        allowed = 2 * float(np.abs(numpy - exact[name]).max(initial=0)) + 1e-5 * scale
        error = float(np.abs(got - exact[name]).max(initial=0))
        assert error <= allowed, (
            f"{case}: {name} is off by {error / scale:.1e} of its largest, allowed {allowed / scale:.1e}"
        )


def _is_low(case: Case, name: str, value: Any) -> bool:
    always = name in ALWAYS_FLOAT32 or (case.op == "adamw")
    return getattr(value, "dtype", None) == np.float32 and not always
