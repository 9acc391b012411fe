"""Every op and kernel of ours has an example that can be traced, and shapes are what the letters say."""

import ast
import importlib
import itertools
from pathlib import Path

import numpy as np
import pytest

import nanoeuler.cpu
import nanoeuler.gpu
from nanoeuler import trace_examples
from nanoeuler.errors import UserError
from nanoeuler.gpu.ladder import rmsnorm as ladder
from nanoeuler.simt.traced import part
from nanoeuler.simt.traced.part import Part
from nanoeuler.trace_examples import (
    Example,
    examples,
    kernels,
    launches,
    launches_of,
    letters_of,
    resolve,
    short_name,
    sizes,
    trace_launches,
)

FOLDER = Path(nanoeuler.gpu.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
#: What launches kernels and is no op: the launching itself.
INFRASTRUCTURE = {"nanoeuler.gpu.launch"}


@pytest.fixture(autouse=True)
def nothing_to_step_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let launches be traced once only: the second trace, with the variables, is for pages."""
    monkeypatch.setattr(part, "_stepping", lambda run, launch, part: None)


def module_of(path: Path) -> str:
    return ".".join(["nanoeuler.gpu", *path.relative_to(FOLDER).with_suffix("").parts])


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)]


def is_kernel(function: ast.FunctionDef) -> bool:
    decorators = [ast.unparse(d) for d in function.decorator_list]
    return any(d == "cuda.jit" or (d.startswith("cuda.jit(") and "device=True" not in d) for d in decorators)


def launching(path: Path) -> list[str]:
    """Return the public functions of a file that launch something, or call another of its ops that does."""
    called = {"launch", "copy", "add_column_sums"}
    names = []
    for function in functions(path):
        calls = {n.func.id for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        private = function.name.startswith("_")
        if calls & called:
            called.add(function.name)
            names += [] if private else [function.name]
    return names


def example(address: str, case: str = "") -> Example:
    return next(e for e in examples() if e.address == f"nanoeuler.gpu.{address}" and e.bench.case == case)


def test_every_kernel_has_an_example() -> None:
    defined = {f"{module_of(path)}:{f.name}" for path in FILES for f in functions(path) if is_kernel(f)}
    assert defined == set(kernels())


def test_every_function_that_launches_has_an_example() -> None:
    defined = {
        f"{module_of(path)}:{name}"
        for path in FILES
        if module_of(path) not in INFRASTRUCTURE
        for name in launching(path)
    }
    assert len(defined) > 40
    assert defined <= {e.address for e in examples()}


def test_every_op_of_the_table_that_has_kernels_has_an_example() -> None:
    infrastructure = {"Team", "empty", "from_numpy", "parallel", "repeated", "rope_tables", "to_numpy", "workers"}
    assert set(nanoeuler.gpu.__all__) - infrastructure <= {e.name for e in examples()}


def test_every_version_of_a_ladder_has_an_example() -> None:
    assert {v.run for v in ladder.VERSIONS} <= {e.run for e in examples()}
    files = [path for path in (FOLDER / "ladder").glob("*.py") if path.stem not in ("__init__", "version")]
    for path in files:
        for version in importlib.import_module(module_of(path)).VERSIONS:
            assert any(e.run is version.run for e in examples()), (path, version)


@pytest.mark.parametrize("example", examples(), ids=lambda e: e.title.replace(" ", "-"))
def test_an_example_is_traced_without_faults_and_quickly(example: Example) -> None:
    work = launches(example, sizes(example))
    assert work
    for traced in trace_launches(work, Part()):
        assert traced.trace.faults == ()
        assert 0 < len(traced.trace.accesses) < 500_000
        assert traced.part


CONVERTING = ("rmsnorm_backward", "attention_forward", "embedding_backward", "copy", "add_column_sums", "adamw")


@pytest.mark.parametrize("name", CONVERTING)
def test_examples_in_bfloat16(name: str) -> None:
    example = next(e for e in examples() if e.name == name)
    for traced in trace_launches(launches(example, sizes(example), "bf16"), Part()):
        assert traced.trace.faults == ()
        if name != "adamw":  # whose arrays are float32 whatever activations are
            continue
        assert all(a.dtype != np.uint16 for a in traced.trace.arrays)


def test_results_are_those_of_numpy() -> None:
    found = example("linear:linear_backward", "feed-forward")
    work = launches(found, sizes(found))
    dweight, dout, x = work[1].args[:3]
    traced = list(trace_launches(work, Part()))
    assert [one.trace.kernel for one in traced] == ["sum_columns", "product", "product"]
    np.testing.assert_allclose(dweight, dout.T @ x, rtol=1e-5, atol=1e-5)


def test_short_names_are_one_for_each_op_and_kernel() -> None:
    addresses = {e.address for e in examples()} | set(kernels())
    assert len({short_name(address) for address in addresses}) == len(addresses)
    assert short_name("nanoeuler.gpu.rmsnorm:rmsnorm_forward") == "rmsnorm_forward"
    assert short_name("nanoeuler.gpu.ladder.rmsnorm:thread_per_row") == "ladder.rmsnorm.thread_per_row"


def test_a_module_proposes_all_that_it_has() -> None:
    with pytest.raises(UserError, match=r"gpu\.rope has rope_forward, rope_backward, turn_pairs; --list"):
        resolve("rope")
    with pytest.raises(UserError, match=r"did you mean 'rope_forward'"):
        resolve("rope:rope_forwrd")
    with pytest.raises(UserError, match=r"gpu\.rmsnorm has .*; nanoeuler\.gpu\.ladder\.rmsnorm has run_thread"):
        resolve("rmsnorm:zzzzzzzzz")


def test_a_later_launch_reads_what_an_earlier_one_wrote() -> None:
    """Also where only a block of it was traced, and where it was not traced at all."""
    found = example("gelu:gelu_backward")
    results = []
    for chosen, kernel in ((Part(), None), (Part(block=(0,)), None), (Part(), "nanoeuler.gpu.column_sums:sum_columns")):
        work = launches(found, sizes(found))
        list(trace_launches(work, chosen, launches_of(work, kernel)))
        results.append(work[1].args[1].copy())  # a row of partial sums for each block
        assert np.count_nonzero(results[-1])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_two_traces_of_an_example_are_alike() -> None:
    found = example("rmsnorm:rmsnorm_backward")
    first, second = ([one.trace for one in trace_launches(launches(found, sizes(found)), Part())] for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a.accesses, b.accesses)
        assert [(x.name, x.past) for x in a.arrays] == [(x.name, x.past) for x in b.arrays]


# Shapes


def test_letters_become_shapes() -> None:
    found = example("rmsnorm:rmsnorm_forward")
    out, rstd, x, weight, _ = launches(found, sizes(found, "B=2,T=3,C=40"))[0].args
    assert (out.shape, rstd.shape, x.shape, weight.shape) == ((6, 40), (6,), (6, 40), (40,))
    assert launches(found, sizes(found, "N=7"))[0].args[0].shape == (7, 40)
    assert launches(found, sizes(found, " N = 8 , B=2 "))[0].args[0].shape == (8, 40)


def test_heads() -> None:
    found = example("attention:attention_forward")
    q, k = launches(found, sizes(found, "B=1,T=5,H=6,K=3,D=4"))[0].args[2:4]
    assert (q.shape, k.shape) == ((1, 5, 6, 4), (1, 5, 3, 4))
    assert launches(found, sizes(found, "C=24,D=8"))[0].args[2].shape[2:] == (3, 8)
    assert launches(found, sizes(found, "H=1,C=7"))[0].args[2].shape[2:] == (1, 7)  # K follows


@pytest.mark.parametrize(
    ("address", "shape", "message"),
    [
        ("rmsnorm:rmsnorm_forward", "V=3", "rmsnorm_forward has no 'V'; its letters are B (batch), T (sequence), C"),
        ("rmsnorm:rmsnorm_forward", "c=3", "has no 'c'"),
        ("rmsnorm:rmsnorm_forward", "C", "'C' is no size: write C=8"),
        ("rmsnorm:rmsnorm_forward", "C=0", "'C=0' is no size"),
        ("rmsnorm:rmsnorm_forward", "C=-1", "'C=-1' is no size"),
        ("rmsnorm:rmsnorm_forward", "N=7,B=2", "N is B T, and 7 is not 2 times a whole T"),
        ("rmsnorm:rmsnorm_forward", "N=8,T=3", "N is B T"),
        ("rmsnorm:rmsnorm_forward", "N=100000,C=4096", "too much for a trace"),
        ("attention:attention_forward", "C=9,H=2", "C=9 is not a multiple of H=2"),
        ("attention:attention_forward", "C=9,H=2,D=4", "C is H D, and 9 is not 2 times 4"),
        ("attention:attention_forward", "H=4,K=3", "H=4 is not a multiple of K=3"),
        ("attention:attention_forward", "H=1,D=200", "head sizes from 1 to 128"),
        ("rope:rope_forward", "H=2,D=3", "D = C / H is 3: make it even"),
    ],
)
def test_shapes_that_cannot_be(address: str, shape: str, message: str) -> None:
    found = example(address)
    with pytest.raises(UserError) as error:
        launches(found, sizes(found, shape))
    assert message in str(error.value)


def test_any_shape_that_is_taken_is_traced() -> None:
    """A few odd ones: single elements, one more than a warp, fewer rows than heads."""
    for address, shape in itertools.product(
        ("rmsnorm:rmsnorm_forward", "rope:rope_backward", "cross_entropy:cross_entropy_backward"), ("", "B=1,T=1")
    ):
        found = example(address)
        for letters in (shape, f"{shape},V=33" if "V" in letters_of(found) else f"{shape},C=4,H=1"):
            if "H" not in letters_of(found):
                letters = letters.replace(",H=1", "")
            for traced in trace_launches(launches(found, sizes(found, letters)), Part()):
                assert traced.trace.faults == ()


def test_the_op_decides_by_its_shape_which_kernel_it_launches() -> None:
    found, kernel = resolve("linear:row_products")
    assert kernel == "nanoeuler.gpu.linear:row_products"
    with pytest.raises(UserError, match="row_products is not launched at this shape"):
        launches_of(launches(found, sizes(found, "N=30")), kernel)


# Names


@pytest.mark.parametrize(
    ("target", "title", "kernel"),
    [
        ("nanoeuler.gpu.rmsnorm:rmsnorm_forward", "rmsnorm_forward", None),
        ("rmsnorm_forward", "rmsnorm_forward", None),
        ("rmsnorm:normalise_rows", "rmsnorm_forward", "nanoeuler.gpu.rmsnorm:normalise_rows"),
        ("linear_forward", "linear_forward, feed-forward", None),
        ("residual:add", "residual_forward", "nanoeuler.gpu.residual:add"),
        ("ladder.linear:run_naive", "ladder.linear.run_naive", None),
        ("sum_columns", "add_column_sums", "nanoeuler.gpu.column_sums:sum_columns"),
    ],
)
def test_names(target: str, title: str, kernel: str | None) -> None:
    found, address = resolve(target)
    assert (found.title, address) == (title, kernel)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("rmsnrom_forward", "did you mean 'rmsnorm_forward'?"),
        ("nanoeuler.gpu.rmsnorm:normalize_rows", "did you mean 'normalise_rows'?"),
        ("nanoeuler.gpu.total:xyz", "nanoeuler.gpu.total has total, add_sum"),
        ("add", "may be nanoeuler.gpu.residual:add or nanoeuler.gpu.accumulate:add"),
        ("no", "no op or kernel 'no'"),
    ],
)
def test_names_that_are_none(target: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        resolve(target)
    assert message in str(error.value)


def test_ladders_are_in_float32() -> None:
    found = example("ladder.rmsnorm:run_warp_per_row")
    with pytest.raises(UserError, match="float32 only"):
        launches(found, sizes(found), "bf16")


def test_nothing_is_compiled_or_run_to_make_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_examples.simt, "run", lambda *args, **how: pytest.fail("a kernel ran"))
    found = example("rmsnorm:rmsnorm_backward")
    dout, x, weight, rstd = launches(found, sizes(found))[0].args[2:]
    rows = x.astype(np.float64)
    np.testing.assert_allclose(rstd, 1 / np.sqrt((rows * rows).mean(1) + 1e-5), rtol=1e-6)
    assert np.ptp(dout) > 0
    assert np.ptp(weight) > 0


def test_arrays_made_in_one_statement_have_the_names_of_their_variables() -> None:
    found = example("ladder.linear:run_shared_tiles")
    trace = next(trace_launches(launches(found, sizes(found)), Part())).trace
    assert {"x_tile", "weight_tile"} <= {array.name for array in trace.arrays}
