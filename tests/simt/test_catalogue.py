"""The proof of the instrument: executors agree with NumPy on correct kernels and find each fault on its line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from simt.kernels import correct, faulty
from simt.kernels.cases import Case, CorrectKernel, FaultyKernel, assert_results
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.faults import BARRIER_DIVERGENCE, MISSING_LANES, RACE, RACE_BETWEEN_BLOCKS, KernelFaults
from nanoeuler.simt.toolchain import require_toolkit

EXECUTORS = ("compiled", "checked", "ptx")
ORDERS = ("forward", "reverse", "random")
RUNS = [*((executor, order) for executor in ("compiled", "checked") for order in ORDERS), ("ptx", "forward")]


def named(kernels: list[Any]) -> Any:
    """Parametrize a test with the kernels of a catalogue."""
    return pytest.mark.parametrize("kernel", [pytest.param(kernel, id=kernel.name) for kernel in kernels])


def run(kernel: Any, case: Case, executor: str, order: str = "forward", seed: int = 0) -> None:
    """Run a case; skip where the executor has not what it needs."""
    if executor == "ptx":
        need_toolkit()
    simt.run(
        kernel,
        case.grid,
        case.block,
        case.args,
        executor=executor,
        shared_bytes=case.shared_bytes,
        order=order,
        seed=seed,
    )


def middle(kernel: CorrectKernel, executor: str) -> int:
    """Return a size that fills no whole block and, for the slow executor, is not large."""
    low, high = kernel.sizes
    return high if executor == "compiled" else max(low, min(high, 37))


def test_catalogues_are_large_enough() -> None:
    """Require what issue 3 asks for, and names that tell kernels apart."""
    for catalogue, least in ((correct.CORRECT, 30), (faulty.FAULTY, 35)):
        names = [kernel.name for kernel in catalogue]
        assert len(set(names)) == len(names) >= least


# Correct kernels


@pytest.mark.parametrize(("executor", "order"), RUNS)
@named(correct.CORRECT)
def test_correct(kernel: CorrectKernel, executor: str, order: str) -> None:
    """A correct kernel gives what NumPy gives, in every order of its threads, and nobody finds a fault in it."""
    case = kernel.case(middle(kernel, executor))
    run(kernel.kernel, case, executor, order, seed=1)
    assert_results(case, kernel.tolerance)


@named(correct.CORRECT)
def test_executors_agree_at_any_size(kernel: CorrectKernel) -> None:
    """The executors agree with NumPy, and with each other, whatever the size, the launch and the order."""
    low, high = kernel.sizes

    @settings(max_examples=3, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
    @given(st.integers(low, min(high, low + 60)), st.sampled_from(kernel.threads), st.integers(0, 99))
    def agree(size: int, threads: int, seed: int) -> None:
        cases = {}
        for executor in EXECUTORS if toolkit_is_here() else EXECUTORS[:2]:
            case = cases[executor] = kernel.case(size, threads, seed)
            run(kernel.kernel, case, executor, "forward" if executor == "ptx" else "random", seed)
            assert_results(case, kernel.tolerance)
        first = cases.pop("compiled")
        for case in cases.values():
            changed = {position: first.args[position] for position in first.expected}
            assert_results(Case(1, 1, case.args, changed, unordered=case.unordered), kernel.tolerance)

    agree()


def toolkit_is_here() -> bool:
    """Whether the PTX executor can run."""
    try:
        require_toolkit()
    except UserError:
        return False
    return True


def small(kernel: CorrectKernel) -> Case:
    """Return a case of a few threads: the stock simulator starts a thread of the operating system for each."""
    threads = min(kernel.threads, key=lambda count: abs(count - 7))
    return kernel.case(max(kernel.sizes[0], min(kernel.sizes[1], 19)), threads)


def stock_simulator() -> None:
    """Run, in a process of its own, the kernels that Numba's simulator can run; print what it failed on."""
    failures = {}
    for kernel in correct.CORRECT:
        if not kernel.beyond_stock:
            case = small(kernel)
            try:
                kernel.kernel[case.grid, case.block, 0, case.shared_bytes](*case.args)
                assert_results(case, kernel.tolerance)
            except Exception as error:
                failures[kernel.name] = f"{type(error).__name__}: {error}"
    print(json.dumps(failures))


@pytest.fixture(scope="module")
def stock_failures() -> dict[str, str]:
    """Run the stock simulator once, in another process: it must be chosen before Numba is imported."""
    pytest.importorskip("numba_cuda", reason="the stock simulator comes with numba-cuda: pip install numba-cuda")
    folders = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parent)])
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": folders, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", "import test_catalogue; test_catalogue.stock_simulator()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    failures: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return failures


@named([kernel for kernel in correct.CORRECT if not kernel.beyond_stock])
def test_stock_simulator_agrees(kernel: CorrectKernel, stock_failures: dict[str, str]) -> None:
    """Numba's own simulator gives what NumPy gives too."""
    assert kernel.name not in stock_failures, stock_failures[kernel.name]


@pytest.mark.gpu
@named(correct.CORRECT)
def test_real_gpu_agrees(kernel: CorrectKernel) -> None:
    """A real GPU gives what NumPy gives too."""
    from numba import cuda

    if not cuda.is_available():
        pytest.skip("no GPU that CUDA can use")
    case = kernel.case()
    if any(isinstance(a, np.ndarray) and not a.flags.forc for a in case.args):
        pytest.skip("numba-cuda copies contiguous arrays only to a GPU")
    kernel.kernel[case.grid, case.block, 0, case.shared_bytes](*case.args)
    cuda.synchronize()
    assert_results(case, kernel.tolerance)


# Faulty kernels


def faults_of(kernel: FaultyKernel, executor: str, order: str = "forward") -> list[simt.Fault]:
    """Run a faulty kernel and return what was found, of the kind that was to be found."""
    with pytest.raises(KernelFaults) as caught:
        run(kernel.kernel, kernel.make(), executor, order, seed=1)
    assert {fault.kind for fault in caught.value.faults} == {kernel.kind}, str(caught.value)
    return list(caught.value.faults)


def finds(executor: str) -> Callable[[Any], Any]:
    """Parametrize a test with the kernels whose fault an executor must find."""
    return named([kernel for kernel in faulty.FAULTY if executor in kernel.executors])


def assert_right(kernel: FaultyKernel, fault: simt.Fault, line: bool = True) -> None:
    """Compare a report with the catalogue; without ``line`` where the executor does not know it."""
    assert fault.kernel == kernel.name
    first = fault.parties[0]
    if line:
        assert fault.file is not None
        assert Path(fault.file) == Path(faulty.__file__)
        assert fault.line in kernel.lines, f"{sorted(kernel.lines)} are marked\n{fault}"
        assert f":{fault.line}" in str(fault)
    assert kernel.block in (None, first.block), str(fault)
    assert kernel.thread in (None, first.thread), str(fault)


@pytest.mark.parametrize("order", ORDERS)
@finds("checked")
def test_checked_finds(kernel: FaultyKernel, order: str) -> None:
    """The checked executor finds the fault in every order, on its line, and nothing else."""
    found = faults_of(kernel, "checked", order)
    for fault in found:
        assert_right(kernel, fault)
    assert kernel.index is None or found[0].index == kernel.index


@finds("compiled")
def test_compiled_finds(kernel: FaultyKernel) -> None:
    """The compiled executor finds it too, with its line if it is a matter of barriers or lanes."""
    knows_line = kernel.kind in (BARRIER_DIVERGENCE, MISSING_LANES)
    assert_right(kernel, faults_of(kernel, "compiled")[0], knows_line)


@finds("ptx")
def test_ptx_finds(kernel: FaultyKernel) -> None:
    """So does the PTX executor."""
    need_toolkit()
    assert_right(kernel, faults_of(kernel, "ptx")[0])


@named([kernel for kernel in faulty.FAULTY if kernel.orders_differ])
def test_orders_differ(kernel: FaultyKernel) -> None:
    """Where a race shows in the results, another order of the threads gives others."""
    forward, reverse = kernel.make(), kernel.make()
    run(kernel.kernel, forward, "compiled", "forward")
    run(kernel.kernel, reverse, "compiled", "reverse")
    assert any(not np.array_equal(a, b) for a, b in zip(forward.args, reverse.args, strict=True))


@named([kernel for kernel in faulty.FAULTY if kernel.kind in (RACE, RACE_BETWEEN_BLOCKS)])
def test_race_shows_both_threads(kernel: FaultyKernel) -> None:
    """The report of a race has two different threads, each with its line of the source."""
    fault = faults_of(kernel, "checked")[0]
    first, second = fault.parties
    assert (first.block, first.thread) != (second.block, second.thread)
    assert (first.block == second.block) == (kernel.kind == RACE)
    assert first.line in kernel.lines
    assert second.line in kernel.lines
    assert {first.action, second.action} != {"reads"}
