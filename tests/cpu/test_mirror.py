"""The house rules of the op table: every op has its test, its gradient check, its export, and says its shapes."""

import ast
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import nanoeuler.cpu
from nanoeuler.gradcheck import OP_CHECKS

PACKAGE = Path(nanoeuler.cpu.__file__).parent
FILES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
#: What the op table holds besides the ops: the device's memory, and how its work is shared out and repeated.
INFRASTRUCTURE = {
    "memory": {"copy", "empty", "fill", "from_numpy", "to_numpy"},
    "parallel": {"Team", "parallel", "repeated", "workers"},
}
OPS = [name for name in FILES if name not in INFRASTRUCTURE]
every_op = pytest.mark.parametrize("op", OPS)


def module(op: str) -> ModuleType:
    return importlib.import_module(f"nanoeuler.cpu.{op}")


def functions(op: str) -> dict[str, object]:
    """Return the functions that an op's file gives to the op table."""
    return {name: f for name, f in vars(nanoeuler.cpu).items() if getattr(f, "__module__", "") == f"nanoeuler.cpu.{op}"}


def incoming(op: str) -> set[str]:
    """Return the gradients that an op's backward is given: of what its forward writes, and the weight of a loss."""
    forward = described(vars(nanoeuler.cpu)[f"{op}_forward"].__doc__)
    return {f"d{name}" for name, text in forward.items() if "written" in text} | {"dloss"}


def described(docstring: str) -> dict[str, str]:
    """Return what a docstring's section ``Args`` says of each parameter."""
    section = re.search(r"Args:\n(.*?)(?:\n\n|\Z)", docstring, re.DOTALL)
    return dict(re.findall(r"^ *(\w+): (.*)$", section[1], re.MULTILINE)) if section else {}


def test_there_are_ops() -> None:
    assert {"embedding", "attention", "adamw", "residual_rmsnorm", "total"} <= set(OPS)


@pytest.mark.parametrize("name", INFRASTRUCTURE)
def test_the_table_holds_no_more_of_the_infrastructure_than_is_told_here(name: str) -> None:
    assert set(functions(name)) == INFRASTRUCTURE[name]


@pytest.mark.parametrize("name", FILES)
def test_every_file_has_a_test(name: str) -> None:
    source = (Path(__file__).parent / f"test_{name}.py").read_text(encoding="utf-8")
    tests = [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    assert sum(test.startswith("test_") for test in tests) >= 3


@every_op
def test_names_follow_the_file(op: str) -> None:
    names = set(functions(op)) - {"rope_tables"}
    assert names in ({op}, {f"{op}_forward", f"{op}_backward"})
    assert names <= set(nanoeuler.cpu.__all__)


def test_table_of_contents_is_complete_and_sorted() -> None:
    exported = nanoeuler.cpu.__all__
    assert exported == sorted(exported)
    defined = {name for file in FILES for name in functions(file)}
    assert set(exported) == defined


@every_op
def test_every_backward_has_a_gradient_check(op: str) -> None:
    checked = {check.op for check in OP_CHECKS}
    assert (f"{op}_backward" in functions(op)) == (op in checked)


def test_checks_try_every_aliasing_that_a_docstring_allows() -> None:
    for op in OPS:
        allowed = {
            (written, read)
            for function in functions(op).values()
            for written, text in described(function.__doc__ or "").items()
            if "may be" in text
            for read in re.findall(r"``(\w+)``", text.partition("may be")[2])
        }
        tried = {alias for check in OP_CHECKS if check.op == op for alias in check.aliases}
        assert allowed == tried, op


@every_op
def test_docstrings_give_every_shape(op: str) -> None:
    for name, function in functions(op).items():
        if name == "rope_tables":
            continue
        told = described(function.__doc__ or "")
        parameters = inspect.signature(function).parameters
        assert list(told) == list(parameters), name
        for parameter, text in told.items():
            if "ndarray" in str(parameters[parameter].annotation):
                assert re.search(r"\(\w.*\)|any shape|as ``\w+``", text), f"{name}: no shape of {parameter}"
        first = next(iter(told.values()))
        assert re.search("written|added to|updated", first), f"{name}: outputs come first, and say how they are set"


@every_op
def test_gradients_say_whether_they_are_written_or_added_to(op: str) -> None:
    """Those that the backward gives; those that it is given come after them, and it leaves them alone."""
    for name, function in functions(op).items():
        if not name.endswith("_backward"):
            continue
        told = described(function.__doc__ or "")
        gradients = [parameter for parameter in told if parameter[0] == "d"]
        outputs = [parameter for parameter in gradients if parameter not in incoming(op)]
        assert outputs, name
        assert gradients == [*outputs, *(p for p in gradients if p in incoming(op))], f"{name}: outputs come first"
        for parameter in gradients:
            text = told[parameter]
            said = ("written" in text) + ("added to" in text)
            assert said == (parameter in outputs), f"{name}: {parameter}"


def test_gradients_that_a_backward_is_given() -> None:
    assert incoming("linear") == {"dout", "dloss"}
    assert {"dout", "dtotal"} <= incoming("residual_rmsnorm") & incoming("residual_layernorm")
    assert not {"dx", "dweight", "dbias", "dlogits"} & {
        name for op in OPS if f"{op}_forward" in functions(op) for name in incoming(op)
    }


@every_op
def test_gradients_are_named_after_what_they_are_of(op: str) -> None:
    """An activation's is written and a parameter's added to; each parameter's has a gradient."""
    for name, function in functions(op).items():
        if name.endswith("_backward"):
            told = described(function.__doc__ or "")
            forward = described(vars(nanoeuler.cpu)[f"{op}_forward"].__doc__)
            checks = [check for check in OP_CHECKS if check.op == op]
            parameters = {f"d{p}" for check in checks for p in check.parameters}
            for parameter, text in told.items():
                if parameter[0] == "d" and parameter not in incoming(op):
                    assert parameter[1:] in forward, f"{name}: {parameter} is of nothing that the forward is given"
                    assert ("added to" in text) == (parameter in parameters), f"{name}: {parameter}"
            assert parameters <= set(told), name


@every_op
def test_file_gives_formula_and_source(op: str) -> None:
    text = module(op).__doc__ or ""
    assert "=" in text
    if f"{op}_backward" in functions(op) and op != "dropout":
        assert "Backward" in text
