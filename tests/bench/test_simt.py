"""The benchmark of the executors: that its transformer trains, in each of them, and its report. No time is judged."""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba", reason="kernels are written with numba: python -m pip install -e '.[gpu]'")

from rich.console import Console
from simt.kernels.toolkit import need_toolkit

from nanoeuler import cpu
from nanoeuler.bench import simt as bench
from nanoeuler.bench import simt_kernels as kernels
from nanoeuler.bench import simt_workloads as workloads
from nanoeuler.bench.__main__ import main
from nanoeuler.bench.simt_workloads import Shape, TinyTransformer, launcher
from nanoeuler.cpu.attention import attention_definition
from nanoeuler.errors import UserError

SMALL = Shape(B=2, T=5, C=12, H=3, F=10, V=7)  # fills no tile and no block
LONG = Shape(B=1, T=18, C=8, H=2, F=9, V=6)  # two blocks of queries
compiled = launcher("compiled")


# The workloads.


def test_product_and_attention() -> None:
    """The two single kernels give what NumPy gives."""
    a, b = np.random.default_rng(0).standard_normal((2, 21, 21), np.float32)
    np.testing.assert_allclose(workloads.product(21)(compiled), a @ b, rtol=1e-4, atol=1e-5)
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 37, 3, 5), np.float32)
    out = workloads.attention(B=2, T=37, H=3, D=5)(compiled)
    np.testing.assert_allclose(out, attention_definition(q, k, v), rtol=1e-4, atol=1e-5)


def loss(model: TinyTransformer, flat: np.ndarray) -> float:
    """Return the mean loss with other weights, in float64, from the formulas."""
    s, w = model.shape, workloads.named_views(flat, {name: view.shape for name, view in model.weight.items()})

    def normalised(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * weight

    x = w["embedding"][model.tokens]
    qkv = (normalised(x, w["norm1"]) @ w["qkv"].T).reshape(s.B, s.T, 3, s.H, -1)
    x = x + attention_definition(*(qkv[:, :, i] for i in range(3))).reshape(x.shape) @ w["attention_out"].T
    gate, up = np.split(normalised(x, w["norm2"]) @ w["gate_up"].T, 2, axis=1)
    x = x + (gate / (1 + np.exp(-gate)) * up) @ w["down"].T
    logits = x @ w["output"].T
    return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(x)), model.targets]))


@pytest.mark.parametrize("shape", [SMALL, LONG], ids=["small", "long"])
def test_gradients_are_those_of_central_differences(shape: Shape) -> None:
    """Every element of every gradient, against differences of an independent forward in float64."""
    model = TinyTransformer(shape, seed=1)
    model.flat_weight += np.random.default_rng(2).normal(0, 0.1, model.flat_weight.shape)  # norms other than 1
    model.forward(compiled)
    flat = model.flat_weight.astype(np.float64)
    assert model.losses.mean() == pytest.approx(loss(model, flat), rel=1e-5)

    model.backward(compiled)
    expected = np.zeros_like(flat)
    for i in range(flat.size):
        kept = flat[i]
        flat[i] = kept + 1e-5
        higher = loss(model, flat)
        flat[i] = kept - 1e-5
        expected[i] = (higher - loss(model, flat)) / 2e-5
        flat[i] = kept
    views = workloads.named_views(expected, {name: view.shape for name, view in model.weight.items()})
    for name, gradient in model.gradient.items():
        assert np.abs(views[name]).max() > 1e-3, name
        np.testing.assert_allclose(
            gradient, views[name], rtol=1e-4, atol=1e-5 * np.abs(views[name]).max(), err_msg=name
        )


def test_update_is_adamw_and_zeroes_the_gradient() -> None:
    """Two updates, against the project's own."""
    model = TinyTransformer(SMALL)
    weight, m, v = model.flat_weight.copy(), np.zeros_like(model.m), np.zeros_like(model.v)
    for step in (1, 2):
        gradient = np.random.default_rng(step).standard_normal(weight.shape, np.float32)
        model.flat_gradient[:] = gradient
        model.update(compiled)
        cpu.adamw(weight, m, v, gradient, np.ones(1), 0, 0.01, 0.9, 0.99, 1e-8, 0.01, step)
        np.testing.assert_allclose(model.flat_weight, weight, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(model.m, m, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(model.v, v, rtol=1e-4, atol=1e-6)
        assert not model.flat_gradient.any()


def test_loss_falls() -> None:
    """Thirty steps at the size that is timed learn the batch."""
    run = workloads.training_step()
    losses = [float(run(compiled).mean()) for _ in range(30)]
    assert losses[0] == pytest.approx(math.log(65), rel=0.2)
    assert losses[-1] < 0.1 < losses[3] < losses[0]


@pytest.mark.parametrize("executor", ["checked", "ptx"])
@pytest.mark.parametrize("shape", [SMALL, LONG], ids=["small", "long"])
def test_executors_agree(executor: str, shape: Shape) -> None:
    """Losses and gradients are the same in all; the checked executor finds nothing to complain of."""
    if executor == "ptx":
        need_toolkit()
    ours, other = TinyTransformer(shape), TinyTransformer(shape)
    for model, launch in ((ours, compiled), (other, launcher(executor))):
        model.forward(launch)
        model.backward(launch)
    np.testing.assert_allclose(other.losses, ours.losses, rtol=1e-5)
    largest = np.abs(ours.flat_gradient).max()
    np.testing.assert_allclose(other.flat_gradient, ours.flat_gradient, rtol=1e-4, atol=1e-6 * largest)
    gradient = ours.flat_gradient.copy()
    for model, launch in ((ours, compiled), (other, launcher(executor))):
        model.flat_gradient[:] = gradient  # the first update divides by its size: rounding would decide signs
        model.update(launch)
    np.testing.assert_allclose(other.flat_weight, ours.flat_weight, rtol=1e-5, atol=1e-7)


def test_largest_head_is_what_the_documentation_says() -> None:
    """A larger one would not fit the kernel's arrays."""
    workloads.attention(B=1, T=3, H=1, D=kernels.HEAD)(launcher("checked"))
    with pytest.raises(UserError):
        workloads.attention(B=1, T=3, H=1, D=kernels.HEAD + 1)(launcher("checked"))


# The command.


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller product, and no other process."""
    monkeypatch.setitem(workloads.WORKLOADS, "product", partial(workloads.product, 9))
    times = {"stock": [8.0, 10.0]}
    monkeypatch.setattr(bench, "run_process", lambda name, executor, *_: times.get(executor, [1.5]))


@pytest.mark.usefixtures("_quick")
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report has every executor's times, and the table shows them."""
    need_toolkit()
    file = tmp_path / "simt.json"
    main(["simt", "--workloads", "product", "--steps", "4", "--json", str(file)])
    report = json.loads(file.read_text())
    assert report["machine"]["numba"]
    (result,) = report["workloads"]
    assert result["name"] == "product"
    assert result["skipped"] == {}
    assert list(result["executors"]) == ["compiled", "checked", "ptx", "stock"]
    median = result["executors"]["compiled"]["run_seconds"]["median"]
    for executor, numbers in result["executors"].items():
        assert numbers["times_compiled"] == pytest.approx(numbers["run_seconds"]["median"] / median)
        if executor != "stock":
            assert [len(turn) for turn in numbers["run_seconds"]["rounds"]] == [3, 3]
            assert numbers["first_seconds"] == numbers["first_again_seconds"] == 1.5
    assert result["executors"]["stock"]["run_seconds"]["median"] == 9
    output = capsys.readouterr().out
    for text in ("tiled product", "9.00 s", "8.50 s, 9.50 s", "1.5 s", f"{9 / median:.0f}"):
        assert text in output


@pytest.mark.usefixtures("_quick")
def test_what_cannot_run_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """No toolkit, no PTX; a simulator that fails is left out."""

    def no_toolkit() -> None:
        raise UserError("install the toolkit")

    def run(name: str, executor: str, *_: Any) -> list[float]:
        if executor == "stock":
            raise UserError("it has no warps")
        return [1.0]

    monkeypatch.setattr("nanoeuler.simt.toolchain.require_toolkit", no_toolkit)
    monkeypatch.setattr(bench, "run_process", run)
    main(["simt", "--workloads", "product", "--steps", "1"])
    output = capsys.readouterr().out
    assert "without ptx: install the toolkit" in output
    assert "without stock: it has no warps" in output


def test_stock_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process of it is started."""
    asked: list[str] = []
    monkeypatch.setitem(workloads.WORKLOADS, "product", partial(workloads.product, 9))
    monkeypatch.setattr(bench, "run_process", lambda name, executor, *_: asked.append(executor) or [1.0])
    result = bench.measure_workload("product", 1, False, Console(quiet=True))
    assert set(asked) == set(result["executors"]) != set()
    assert "stock" not in asked


def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command says what to install."""
    monkeypatch.setattr(bench, "version_of", lambda package: None)
    with pytest.raises(UserError, match=r"pip install"):
        main(["simt"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--workloads", "product,atention"],
            r"unknown workload 'atention' \(did you mean 'attention'\?\); workloads are",
        ),
        (["--steps", "0"], "--steps: '0' is not a whole number of at least 1"),
        (["--no-stok"], r"unknown option '--no-stok' \(did you mean '--no-stock'\?\)"),
        (["--json", "nowhere/simt.json"], "--json nowhere/simt.json: cannot write it"),
    ],
)
def test_wrong_options(arguments: list[str], message: str) -> None:
    """What is wrong, and what was meant."""
    with pytest.raises(UserError, match=message):
        main(["simt", *arguments])


def test_workloads_are_the_same_in_the_table_and_in_the_processes() -> None:
    """The command imports no Numba to know its own workloads."""
    assert list(bench.WORKLOADS) == list(workloads.WORKLOADS)


def test_executors_that_differ_are_not_timed() -> None:
    """Nor is one that gives no number."""
    expected = np.array([1, -100], np.float32)
    bench.check_agreement("product", "ptx", expected * np.float32(1 + 5e-6), expected)
    for wrong in ([1.1, -100], [np.nan, -100]):
        with pytest.raises(UserError, match="the results of ptx and compiled differ by"):
            bench.check_agreement("product", "ptx", np.array(wrong, np.float32), expected)


def test_turns_rotate_and_their_first_run_is_not_timed() -> None:
    """Three executors, two rounds."""
    log: list[str] = []
    times = bench.time_in_turns({name: partial(log.append, name) for name in "abc"}, 2)
    assert "".join(log) == "aaaabbbbccccbbbbccccaaaa"
    assert [len(turn) for turn in times["a"]] == [3, 3]


def test_simulator_runs_in_a_process_of_its_own() -> None:
    """As many times as asked for; what goes wrong there is passed on."""
    seconds = bench.run_process("attention", "stock", 1, {"NUMBA_ENABLE_CUDASIM": "1"})
    assert len(seconds) == 1
    assert seconds[0] > 0
    with pytest.raises(UserError, match=r"product failed in executor chekced: .*unknown executor 'chekced'"):
        bench.run_process("product", "chekced", 1, {})
