"""The two op tables mirror each other: file for file, function for function, parameter for parameter.

And no op is without its parity cases, mutants, gradient check and benchmark entry.
"""

import ast
import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import nanoeuler.cpu
import nanoeuler.gpu
from nanoeuler.bench.ops import OP_BENCHES
from nanoeuler.gradcheck import OP_CHECKS

CPU, GPU = Path(nanoeuler.cpu.__file__).parent, Path(nanoeuler.gpu.__file__).parent
TESTS = Path(__file__).parent
#: What a table has besides ops: memory, and how work is shared out.
INFRASTRUCTURE = ("memory", "parallel")
#: What only kernels need.
ONLY_GPU = {"backend", "bfloat16", "column_sums", "cublas", "graph", "launch", "rehearsal", "variant", "warp"}
FILES = sorted(path.stem for path in CPU.glob("*.py") if path.stem != "__init__")
OPS = [name for name in FILES if name not in INFRASTRUCTURE]
LADDERS = sorted(path.stem for path in (GPU / "ladder").glob("*.py") if path.stem not in ("__init__", "version"))
every_file = pytest.mark.parametrize("file", FILES)
every_op = pytest.mark.parametrize("op", OPS)


def exported(table: ModuleType, file: str) -> dict[str, Any]:
    """Return what a table has from a file of its package."""
    module = importlib.import_module(f"{table.__name__}.{file}")
    names = {name for name, f in vars(nanoeuler.cpu).items() if getattr(f, "__module__", "") == f"nanoeuler.cpu.{file}"}
    names &= set(table.__all__)
    return {name: getattr(module, name) for name in names if getattr(module, name) is getattr(table, name)}


def test_the_tables_have_the_same_contents() -> None:
    assert nanoeuler.gpu.__all__ == nanoeuler.cpu.__all__
    assert nanoeuler.gpu.__all__ == sorted(nanoeuler.gpu.__all__)


def test_there_is_a_file_for_every_file() -> None:
    ours = {path.stem for path in GPU.glob("*.py") if path.stem != "__init__"}
    assert ours == set(FILES) | ONLY_GPU


@every_file
def test_functions_have_the_same_names_and_parameters(file: str) -> None:
    cpu, gpu = exported(nanoeuler.cpu, file), exported(nanoeuler.gpu, file)
    assert set(cpu) == set(gpu)
    assert cpu
    for name, function in cpu.items():
        if inspect.isclass(function):
            continue
        ours = inspect.signature(gpu[name]).parameters.values()
        theirs = inspect.signature(function).parameters.values()
        assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in theirs], name


@every_op
def test_every_op_has_cases_for_each_function_and_mutants(op: str) -> None:
    module = importlib.import_module(f"gpu.test_{op}")
    functions = set(exported(nanoeuler.gpu, op)) - {"rope_tables"}
    assert {case.op for case in module.CASES} == functions
    assert len(module.MUTANTS) >= 4
    names = {name for name in vars(module) if name.startswith("test_")}
    assert {"test_equals_the_cpu"} <= names
    if op not in ("adamw", "accumulate", "global_norm", "total"):  # float32 always
        assert any("bfloat16" in name for name in names)


@every_op
def test_every_backward_is_checked_against_differences(op: str) -> None:
    backward = f"{op}_backward" in exported(nanoeuler.gpu, op)
    assert backward == (op in {check.op for check in OP_CHECKS})


@every_op
def test_every_function_has_a_benchmark(op: str) -> None:
    benched = {bench.op for bench in OP_BENCHES}
    assert set(exported(nanoeuler.gpu, op)) - {"rope_tables"} <= benched


def required(function: Any) -> list[str]:
    """Return the parameters that a function must be given; the simpler versions of an op do without the others."""
    return [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]


@pytest.mark.parametrize("op", LADDERS)
def test_every_ladder_ends_with_the_op_in_use(op: str) -> None:
    versions = importlib.import_module(f"nanoeuler.gpu.ladder.{op}").VERSIONS
    assert len(versions) >= (6 if op == "linear" else 4)  # the simpler ones, and the one in use
    assert len({version.name for version in versions}) == len(versions)
    in_use = versions[-1].run
    assert in_use in set(exported(nanoeuler.gpu, op).values())
    for version in versions:
        assert required(version.run) == required(in_use)
        assert version.idea
    head = importlib.import_module(f"nanoeuler.gpu.ladder.{op}").__doc__ or ""
    assert all(version.name.replace("_", " ") in head.replace("_", " ") for version in versions[:-1])


def test_the_ladders_are_those_asked_for() -> None:
    assert LADDERS == ["attention", "cross_entropy", "linear", "rmsnorm"]


def test_numba_is_imported_in_one_module() -> None:
    """And inline PTX would stand in one: so far none is needed."""
    importing = set()
    for path in GPU.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] in ("numba", "llvmlite") for name in names):
                importing.add(path.name)
        assert "InlineAsm" not in path.read_text(encoding="utf-8")
    assert importing == {"backend.py"}


@every_op
def test_the_head_of_a_file_says_how_the_work_is_shared_out(op: str) -> None:
    text = importlib.import_module(f"nanoeuler.gpu.{op}").__doc__ or ""
    assert len(text) > 100
    assert "thread" in text or "warp" in text or "block" in text
