"""The training benchmark: the arithmetic of its report, and that both sides train the same model. No time is judged."""

import json
import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nanoeuler.bench import contender, measure, memory, train, workload
from nanoeuler.bench.__main__ import main
from nanoeuler.bench.contender import COMPILED, EAGER, OURS
from nanoeuler.bench.workload import SIZES, Workload, workload_from_dict
from nanoeuler.config import ModelConfig, TrainingConfig
from nanoeuler.errors import UserError
from nanoeuler.parameters import initial_weights, named_views, parameter_shapes

NEEDS_TORCH = "PyTorch is not installed, and this test compares with it"


def tiny(length: int = 8, batch_size: int = 4, **model: Any) -> Workload:
    """Return a workload that takes milliseconds."""
    values = {"hidden_dim": 16, "num_heads": 4, "num_kv_heads": 2, "num_layers": 2, "vocab_size": 30} | model
    config = ModelConfig.model_validate({"max_seq_len": 8} | values)
    return Workload(config, TrainingConfig(batch_size=batch_size, workers=1), length)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make size S tiny and the waiting short, and weigh nobody: a process each takes seconds."""
    monkeypatch.setitem(SIZES, "S", tiny())
    monkeypatch.setattr(measure, "PAUSE", 0)
    monkeypatch.setattr(measure, "SGEMM_SIZE", 32)
    monkeypatch.setattr(memory, "measure_peak", lambda contender: {"libraries": 2**20, "peak": 3 * 2**20})


@pytest.fixture
def _no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``import torch`` fail as where it is not installed."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "nanoeuler.bench.pytorch", raising=False)
    monkeypatch.delattr(sys.modules["nanoeuler.bench"], "pytorch", raising=False)


# The command.


def test_command_with_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason=NEEDS_TORCH)
    file = tmp_path / "bench.json"
    main(["train", "--sizes", "S", "--steps", "4", "--workers", "1", "--no-compile", "--json", str(file)])
    report = json.loads(file.read_text())
    assert report["machine"]["workers"] == 1
    (size,) = report["sizes"]
    assert size["name"] == "S"
    assert size["skipped"] == {}
    assert list(size["contenders"]) == [OURS, EAGER]
    for result in size["contenders"].values():
        rounds = result["step_seconds"]["rounds"]
        assert [len(turn) for turn in rounds] == [3, 3]  # at least 4 steps, in turns of 3
        median = float(np.median([t for turn in rounds for t in turn]))
        assert result["step_seconds"]["median"] == pytest.approx(median)
        assert result["tokens_per_second"] == pytest.approx(32 / median)
        assert result["flops_per_second"] == pytest.approx(result["flops_per_step"] / median)
        assert result["share_of_sgemm"] == pytest.approx(result["flops_per_second"] / size["sgemm_flops_per_second"])
        assert result["memory_bytes"]["peak"] == 3 * 2**20
    ours, eager = size["contenders"].values()
    expected = ours["step_seconds"]["median"] / eager["step_seconds"]["median"]
    assert eager["our_time"]["of_medians"] == pytest.approx(expected)
    assert eager["optimizer"] in ("default", "foreach", "fused")
    assert ours["model"] == eager["model"]
    output = capsys.readouterr().out
    for expected_text in ("ours / its", f"{eager['our_time']['of_medians']:.3f}", "3 MiB", "rmsnorm"):
        assert expected_text in output
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


@pytest.mark.usefixtures("_no_torch")
def test_command_without_torch_times_ours_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    main(["train", "--sizes", "S", "--steps", "1", "--workers", "2", "--json", str(file)])
    (size,) = json.loads(file.read_text())["sizes"]
    assert list(size["contenders"]) == [OURS]
    assert list(size["skipped"]) == [EAGER, COMPILED]
    assert "without PyTorch eager: PyTorch is not installed (pip install torch)" in capsys.readouterr().out


def test_compiler_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch", reason=NEEDS_TORCH)

    def compile(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("No working C++ compiler found\nand a long explanation")

    monkeypatch.setattr(torch, "compile", compile)
    main(["train", "--sizes", "S", "--steps", "1", "--workers", "1"])
    output = capsys.readouterr().out
    assert "without torch.compile: it failed here: RuntimeError: No working C++ compiler found\n" in output
    assert "long explanation" not in output


@pytest.mark.usefixtures("_no_torch")
def test_busy_machine_is_warned_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for load, warned in ((0.0, False), (1000.0, True)):
        monkeypatch.setattr(train.os, "getloadavg", lambda load=load: (load, 0.0, 0.0), raising=False)
        main(["train", "--sizes", "S", "--steps", "1", "--workers", "1"])
        assert ("warning: others are at work" in capsys.readouterr().err) == warned


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_step_agrees(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=NEEDS_TORCH)
    contenders, _, skipped = train._start(train.workloads("S", 1, compiled=True), lambda text: None)
    if skipped:
        pytest.skip(skipped[COMPILED])
    assert [c.name for c in contenders] == [OURS, EAGER, COMPILED]  # and _start has compared their first steps


def test_recipe_beside_nanogpt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason=NEEDS_TORCH)
    values = {
        "model": {"hidden_dim": 16, "num_layers": 1, "max_seq_len": 8, "num_prediction_heads": 2, "dropout": 0.1},
        "training": {"batch_size": 2, "gradient_accumulation": 3, "total_steps": 50},
        "data": {"dataset": "tinyshakespeare"},
    }
    monkeypatch.setattr(workload, "RECIPE", tmp_path / "recipe.json")
    workload.RECIPE.write_text(json.dumps(values))
    file = tmp_path / "bench.json"
    monkeypatch.setattr(train, "NANOGPT", replace(workload.NANOGPT, length=8))
    main(["train", "--sizes", "nanogpt", "--steps", "1", "--workers", "1", "--json", str(file)])
    (size,) = json.loads(file.read_text())["sizes"]
    ours, nanogpt = size["contenders"][OURS], size["contenders"][EAGER]
    assert ours["model"]["vocab_size"] == nanogpt["model"]["vocab_size"] == 65
    assert (ours["tokens_per_step"], nanogpt["tokens_per_step"]) == (2 * 3 * 8, 12 * 8)
    assert (ours["run_steps"], nanogpt["run_steps"]) == (50, 2000)
    assert nanogpt["run_seconds"] == pytest.approx(2000 * nanogpt["step_seconds"]["median"])
    # Of nanoGPT's model with 4 layers, 128 channels and no bias, by its own count, plus the positions' 64 · 128.
    assert nanogpt["parameters"] == 65 * 128 + 64 * 128 + 4 * (12 * 128**2 + 2 * 128) + 128


def test_recipe_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "RECIPE", tmp_path / "shakespeare-char.json")
    with pytest.raises(UserError, match=r"shakespeare-char\.json, which is not there"):
        main(["train", "--sizes", "nanogpt"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which benchmark"),
        (["trian"], r"unknown benchmark 'trian' \(did you mean 'train'\?\)"),
        (["train", "--sizes", "S,gtp2"], r"unknown size 'gtp2' \(did you mean 'gpt2'\?\); sizes are S, M, L, gpt2"),
        (["train", "--steps", "0"], "--steps: '0' is not a whole number of at least 1"),
        (["train", "--workers", "-1"], "--workers: '-1' is not a whole number of at least 0"),
        (["train", "--step", "3"], r"unknown option '--step' \(did you mean '--steps'\?\)"),
    ],
)
def test_wrong_options(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        main(arguments)


def test_report_that_cannot_be_written_is_found_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "measure_size", lambda *arguments: pytest.fail("it was measured all the same"))
    with pytest.raises(UserError, match="cannot write it"):
        main(["train", "--json", str(tmp_path / "no such folder" / "bench.json")])


# The arithmetic.


def test_flops_of_a_model_counted_by_hand() -> None:
    work = tiny(length=5, batch_size=3, hidden_dim=8, num_heads=2, num_kv_heads=1, num_layers=1, feed_forward_dim=6)
    # Products for one token, in multiply-adds: q, k, v; out; gate and up; down; head.
    matrices = 8 * (8 + 4 + 4) + 8 * 8 + 8 * 12 + 6 * 8 + 8 * 30
    # One sequence, two heads of 4 channels: query t meets t + 1 keys, in q·k and again in p·v.
    attention = sum(2 * 2 * 4 * (t + 1) for t in range(5))
    forward = 2 * 3 * (5 * matrices + attention)
    assert work.flops == 3 * forward  # the backward is twice the forward


def test_flops_count_a_tied_head_but_no_lookup() -> None:
    tied = tiny(preset="gpt2", num_kv_heads=4)
    untied = replace(tied, model=tied.model.model_copy(update={"tie_embeddings": False}))
    assert tied.flops == untied.flops
    assert tied.parameters == untied.parameters - 30 * 16


def test_flops_of_further_prediction_heads() -> None:
    difference = tiny(num_prediction_heads=3).flops - tiny().flops
    assert difference == 6 * 32 * 2 * (16 * 16 + 30 * 16)


def test_compare_of_made_up_times() -> None:
    ours, other = [[1.0, 1.0, 4.0], [2.0, 2.0, 2.0]], [[2.0, 2.0, 2.0], [8.0, 8.0, 8.0]]
    assert measure.summary(ours)["median"] == 2.0
    ratio = measure.compare(ours, other)
    assert ratio["of_medians"] == 2.0 / 5.0
    assert ratio["lower_quartile"] == pytest.approx(0.25 + 0.25 * 0.25)  # between 1/2 and 2/8
    assert ratio["upper_quartile"] == pytest.approx(0.25 + 0.75 * 0.25)


def test_summary_keeps_every_time() -> None:
    rounds = [[0.1, 0.3], [0.2]]
    assert measure.summary(rounds) == {
        "median": pytest.approx(0.2),
        "lower_quartile": pytest.approx(0.15),
        "upper_quartile": pytest.approx(0.25),
        "rounds": rounds,
    }


@pytest.mark.parametrize(("steps", "expected"), [(1, 1), (3, 1), (4, 2)])
def test_rounds(steps: int, expected: int) -> None:
    assert measure.rounds(steps) == expected


def test_turns_rotate_and_their_first_step_is_not_timed() -> None:
    log: list[str] = []

    def made_up(name: str) -> contender.Contender:
        return contender.Contender(name, tiny(), lambda index: (log.append(name), (0.0, 0.0))[1], nullcontext)

    times, rates = measure.time_in_turns([made_up("a"), made_up("b")], 6)
    assert log == ["a"] * 4 + ["b"] * 4 + ["b"] * 4 + ["a"] * 4
    assert [len(turn) for turn in times["a"]] == [3, 3]
    assert len(rates) == 2
    assert min(rates) > 0


def test_profile_accounts_for_the_whole_step() -> None:
    work = tiny()
    entries = measure.profile(replace(work, training=work.training.model_copy(update={"workers": 2})))
    assert sum(entry["share"] for entry in entries) == pytest.approx(1)
    times = {entry["op"]: entry for entry in entries}
    ops = {"linear", "attention", "rope", "swiglu", "rmsnorm", "residual_rmsnorm", "adamw", "cross_entropy", "total"}
    assert ops <= set(times)
    assert not {"parallel", "repeated", "workers", "Team"} & set(times)  # they hold ops, whose time would count twice
    assert times["attention"]["backward"] > 0
    assert times["adamw"]["backward"] == 0
    assert times["between the ops"]["forward"] > 0
    assert all(not math.isnan(entry["share"]) for entry in entries)


# What is run.


@pytest.mark.parametrize("preset", [{}, {"preset": "gpt2", "num_kv_heads": 4}], ids=str)
def test_sequences_may_be_shorter_than_the_model_takes(preset: dict[str, Any]) -> None:
    """As at size gpt2. The further positions are parameters all the same, and memory is that of the batch."""
    long, short = tiny(max_seq_len=64, **preset), tiny(**preset)
    assert long.flops == short.flops
    assert long.tokens == short.tokens == 32
    contender_of_long = contender.build(OURS, long)
    with contender_of_long.turn() as step:
        loss, norm = contender_of_long.step(0)
    assert math.isfinite(loss)
    assert norm > 0
    with contender.build(OURS, short).turn() as other:
        assert step.models[0]._arena.size == other.models[0]._arena.size
    entries = measure.profile(long, steps=1)
    assert sum(entry["share"] for entry in entries) == pytest.approx(1)


def test_batches_are_the_same_every_time_and_targets_follow_inputs() -> None:
    work = tiny(num_prediction_heads=3)
    first, second = work.batches(), work.batches()
    assert len(first) == workload.BATCHES
    for ((inputs, targets),), ((again, _),) in zip(first, second, strict=True):
        assert inputs.shape == (4, 8)
        assert targets.shape == (3, 4, 8)
        assert inputs.dtype == targets.dtype == np.int32
        np.testing.assert_array_equal(inputs, again)
        np.testing.assert_array_equal(targets[0, :, :-1], inputs[:, 1:])
        np.testing.assert_array_equal(targets[2, :, :-2], targets[0, :, 2:])
    assert (first[0][0][0] != first[1][0][0]).any()


def test_standard_sizes() -> None:
    assert SIZES["gpt2"].parameters == 124_439_808  # GPT-2 small, as published
    large = SIZES["L"]
    assert (large.tokens, large.model.kv_heads, large.model.tie_embeddings) == (1024, 4, False)


def test_workload_survives_the_way_to_another_process() -> None:
    assert workload_from_dict(json.loads(json.dumps(workload.NANOGPT.to_dict()))) == workload.NANOGPT


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"num_kv_heads": 1, "tie_embeddings": True},
        {"preset": "gpt2", "num_kv_heads": 4},
        {"preset": "gpt2", "num_kv_heads": 2, "bias": False, "tie_embeddings": False, "max_seq_len": 11},
        {"norm": "layernorm", "activation": "gelu", "num_kv_heads": 4},
    ],
    ids=["grouped", "multi-query, tied", "gpt2", "gpt2 without bias", "mixed"],
)
def test_pytorch_trains_the_same_model(model: dict[str, Any]) -> None:
    pytest.importorskip("torch", reason=NEEDS_TORCH)
    work = tiny(**model)
    sides = [contender.build(name, work) for name in (OURS, EAGER)]
    for index in range(4):  # later steps see what the updates did
        results = []
        for side in sides:
            with side.turn():
                results.append(side.step(index))
        np.testing.assert_allclose(results[0], results[1], rtol=1e-4)


def test_pytorch_refuses_what_it_does_not_model() -> None:
    pytest.importorskip("torch", reason=NEEDS_TORCH)
    with pytest.raises(ValueError, match="one prediction head"):
        contender.build(EAGER, tiny(num_prediction_heads=2))


def test_two_different_models_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason=NEEDS_TORCH)
    from nanoeuler.bench import pytorch

    original: Callable[..., np.ndarray] = initial_weights
    monkeypatch.setattr(pytorch, "initial_weights", lambda config, seed: original(config, seed + 1))
    with pytest.raises(UserError, match=r"the loss of step 1 is .* they do not train the same model"):
        main(["train", "--sizes", "S", "--steps", "1", "--workers", "1", "--no-compile"])


@pytest.mark.parametrize(
    ("theirs", "what"),
    [
        ([(1.0, 2.01), (0.9, 1.0)], "first gradient norm is 2 for nanoeuler and 2.01 for PyTorch eager"),
        ([(1.0, 2.0), (0.9001, 1.0)], "loss of step 2"),
        ([(math.nan, 2.0), (0.9, 1.0)], "loss of step 1"),
    ],
)
def test_check_agreement(theirs: list[tuple[float, float]], what: str) -> None:
    ours = [(1.0, 2.0), (0.9, 1.0)]
    train.check_agreement(EAGER, ours, [(1.000005, 2.0005), (0.900005, 1.1)])
    with pytest.raises(UserError, match=what):
        train.check_agreement(EAGER, ours, theirs)


def test_choosing_an_optimizer_leaves_the_weights_alone() -> None:
    torch = pytest.importorskip("torch", reason=NEEDS_TORCH)
    from nanoeuler.bench import pytorch

    work = tiny()
    model = pytorch.make_model(work)
    assert pytorch.fastest_optimizer(model, work.training) in pytorch.OPTIMIZERS
    views = named_views(initial_weights(work.model, work.training.seed), parameter_shapes(work.model))
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, torch.from_numpy(views[name]))
        assert parameter.grad is None


# Memory.


@pytest.mark.skipif(memory.peak_bytes() is None, reason="this system does not tell a process's peak memory")
def test_peak_memory_of_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real one
    ballast = np.ones(2**27, np.uint8)  # of this process, which must not count in the other's peak
    small = memory.measure_peak(contender.build(OURS, tiny()))
    large = memory.measure_peak(contender.build(OURS, tiny(vocab_size=300_000)))
    assert small is not None
    assert large is not None
    assert small["peak"] < memory.peak_bytes()
    # Weights, two moments and a gradient of embedding and head, 16 channels each.
    assert large["peak"] - small["peak"] > 4 * 2 * 16 * 4 * 290_000
    assert small["libraries"] <= small["peak"]
    assert ballast.all()


def test_process_that_fails_gives_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    nobody = contender.Contender(OURS, tiny(vocab_size=None), lambda index: (0.0, 0.0), nullcontext)
    assert memory.measure_peak(nobody) is None
