"""The loop around the steps: what is due when, what is skipped, what is saved, and how a run is stopped."""

import math
import os
import signal
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs

import nanoeuler.trainer
from nanoeuler.console import Console
from nanoeuler.corpus import Batches
from nanoeuler.errors import UserError, run_command
from nanoeuler.metrics import MetricsLog
from nanoeuler.model import Transformer
from nanoeuler.step import StepResult, TrainingStep
from nanoeuler.train import main
from nanoeuler.trainer import MOST_SKIPPED, SMOOTHING, due, read_samples, smooth, stop_signals

GOOD = StepResult(1.0, 1.0, "")
BAD = StepResult(float("nan"), 1.0, "loss is nan")


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., int]:
    """Return a function that trains in ``tmp_path / "run"``."""
    text = runs.write_text(tmp_path / "text.txt")

    def train(*flags: str, **changes: Any) -> int:
        return runs.train_here(runs.options(tmp_path / "run", text, *flags, **changes))

    return train


def script(monkeypatch: pytest.MonkeyPatch, results: Iterator[StepResult]) -> None:
    """Let the steps of a run end as given, whatever they did."""
    monkeypatch.setattr(TrainingStep, "run", lambda self, micro_batches, rate: next(results))


def named(path: Path) -> list[int]:
    return sorted(int(file.stem.removeprefix("step-")) for file in path.iterdir())


def test_due() -> None:
    assert [step for step in range(1, 13) if due(step, 4)] == [4, 8, 12]
    assert [step for step in range(1, 4) if due(step, 1)] == [1, 2, 3]
    assert not any(due(step, 0) for step in range(10))


def test_the_smoothed_loss_is_a_mean_at_first_and_an_average_of_the_recent_later() -> None:
    assert smooth(None, 3.0, 1) == 3.0
    assert smooth(3.0, 5.0, 2) == pytest.approx(4.0)
    assert smooth(4.0, 7.0, 3) == pytest.approx(5.0)
    assert smooth(2.0, 4.0, 1000) == pytest.approx(SMOOTHING * 2 + (1 - SMOOTHING) * 4)


def test_samples_come_from_the_weights_that_the_models_compute_with(
    train: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which need not be those that are saved: they may be rounded."""
    start, steps, samplers = TrainingStep.__init__, [], []

    def starting(self: TrainingStep, *arguments: Any, **more: Any) -> None:
        start(self, *arguments, **more)
        self.model_weights = self.weights.copy()
        steps.append(self)

    def building(*arguments: Any) -> Transformer:
        samplers.append(Transformer(*arguments))
        return samplers[-1]

    monkeypatch.setattr(TrainingStep, "__init__", starting)
    monkeypatch.setattr(nanoeuler.trainer, "Transformer", building)
    assert train(training__total_steps=1) == 0
    assert np.shares_memory(samplers[0].weights["embedding.weight"], steps[0].model_weights)
    assert (steps[0].model_weights == steps[0].weights).all()  # they follow the update


def test_every_micro_batch_is_trained_on_once_and_in_order_also_when_a_run_goes_on(
    train: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[list[int]]] = []
    run_step, training_batches = TrainingStep.run, Batches.training_batches
    loaders: list[Batches] = []

    def drawing(self: Batches, dealt: int = 0) -> Any:
        loaders.append(self)
        return training_batches(self, dealt)

    def running(self: TrainingStep, micro_batches: Any, rate: float) -> StepResult:
        seen.extend(inputs.tolist() for inputs, _ in micro_batches)
        if len(seen) == 3:
            signal.raise_signal(signal.SIGINT)
        return run_step(self, micro_batches, rate)

    monkeypatch.setattr(Batches, "training_batches", drawing)
    monkeypatch.setattr(TrainingStep, "run", running)
    assert train(training__gradient_accumulation=3, training__total_steps=5) == 130
    assert len(seen) == 3
    assert train(training__gradient_accumulation=3, training__total_steps=5) == 0
    assert seen == [inputs.tolist() for inputs, _ in islice(training_batches(loaders[0]), 15)]


# --- intervals


def test_everything_happens_at_its_interval_and_at_the_end(train: Callable[..., int], tmp_path: Path) -> None:
    intervals = {"eval": 5, "sample": 4, "checkpoint": 3}
    changes = {f"training__{name}_interval": interval for name, interval in intervals.items()}
    assert train(training__total_steps=13, training__keep_checkpoints=9, **changes) == 0
    run = tmp_path / "run"
    assert [r["step"] for r in runs.metrics(run)] == list(range(1, 14))
    assert [r["step"] for r in runs.metrics(run) if "val_loss" in r] == [5, 10, 13]
    assert named(run / "samples") == [4, 8, 12, 13]
    assert runs.steps_saved(run) == [3, 6, 9, 12, 13]


def test_an_interval_of_zero_is_only_at_the_end(train: Callable[..., int], tmp_path: Path) -> None:
    changes = {f"training__{name}_interval": 0 for name in ("eval", "sample", "checkpoint")}
    assert train(**changes) == 0
    run = tmp_path / "run"
    assert [r["step"] for r in runs.metrics(run) if "val_loss" in r] == [12]
    assert named(run / "samples") == runs.steps_saved(run) == [12]


def test_the_newest_checkpoints_are_kept(train: Callable[..., int], tmp_path: Path) -> None:
    assert train(training__checkpoint_interval=2, training__keep_checkpoints=2) == 0
    assert runs.steps_saved(tmp_path / "run") == [10, 12]


# --- skipped updates


def test_ten_skipped_updates_in_a_row_end_the_run_and_the_last_good_checkpoint_is_named(
    train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Checkpoints are due in the bad stretch too, and would push out the good one, of which one is kept."""
    script(monkeypatch, iter([GOOD] * 4 + [BAD] * 20))
    assert train(training__checkpoint_interval=2, training__keep_checkpoints=1, training__total_steps=99) == 2
    out, err = capfd.readouterr()
    run = tmp_path / "run"
    assert err.startswith(f"error: {MOST_SKIPPED} updates in a row were skipped, the last because loss is nan")
    assert f"stops at step 14; the last good checkpoint is {run / 'checkpoints' / 'step-00000004'}" in err
    assert "training.learning_rate" in err
    assert out.count("loss is nan; the update is skipped") == 10
    assert "warning: step 14: loss is nan; the update is skipped (10 in this run so far)" in out
    assert runs.steps_saved(run) == [4]
    records = runs.metrics(run)
    assert [r["step"] for r in records if r.get("skipped")] == list(range(5, 15))
    assert records[-1]["train_loss"] is None
    assert records[-1]["smoothed_loss"] == 1.0
    assert (run / "metrics.jsonl").read_text(encoding="utf-8").count("\n") == 14


def test_without_a_checkpoint_that_is_said(
    train: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script(monkeypatch, iter([BAD] * 20))
    assert train() == 2
    assert "stops at step 10; no checkpoint had been written yet" in capfd.readouterr().err


def test_nine_in_a_row_do_not_end_it_and_are_counted(
    train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script(monkeypatch, iter(([BAD] * 9 + [GOOD]) * 3))
    assert train(training__total_steps=30, training__checkpoint_interval=5, training__keep_checkpoints=9) == 0
    assert "27 updates skipped" in capfd.readouterr().out
    assert runs.steps_saved(tmp_path / "run") == [10, 20, 30]  # what was due at 5 waited for a good step


def test_the_count_of_skipped_updates_goes_on_after_a_stop(
    train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def first(self: TrainingStep, micro_batches: Any, rate: float) -> StepResult:
        signal.raise_signal(signal.SIGTERM)
        return BAD

    monkeypatch.setattr(TrainingStep, "run", first)
    assert train(training__total_steps=30) == 143
    assert runs.steps_saved(tmp_path / "run") == [1]
    script(monkeypatch, iter([BAD] * 20))
    assert train(training__total_steps=30) == 2
    out, err = capfd.readouterr()
    assert "stops at step 10; the last good checkpoint is" in err
    assert "(10 in this run so far)" in out


def test_a_validation_loss_that_is_not_a_number_is_never_the_best(
    train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    losses = iter([float("nan"), float("inf"), 2.5, float("nan"), 3.0, 2.25])
    monkeypatch.setattr(TrainingStep, "evaluate", lambda self, *_: next(losses))
    assert train(training__eval_interval=2) == 0
    out = capfd.readouterr().out
    assert [line.split("  ")[0] for line in out.split("\n") if line.endswith("the best so far")] == [
        "step 6",
        "step 12",
    ]
    assert "best validation loss 2.2500 at step 12" in out
    first = next(r for r in runs.metrics(tmp_path / "run") if "val_loss" in r)
    assert (first["val_loss"], first["non_finite"]) == (None, ["val_loss", "val_bits_per_byte"])


def test_a_run_whose_losses_are_never_numbers_says_where_its_checkpoint_is(
    train: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(TrainingStep, "evaluate", lambda self, *_: float("nan"))
    assert train() == 0
    out = capfd.readouterr().out
    assert "best validation loss" not in out
    assert "step-00000012" in out


# --- signals


def test_the_first_signal_is_noted_and_the_second_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stop_signals() as stop:
        assert stop == []
        signal.raise_signal(signal.SIGTERM)
        assert stop == [signal.SIGTERM]
        assert ended == []
        assert capfd.readouterr().err == "\nfinishing this step, then saving; once more ends at once\n"
        signal.raise_signal(signal.SIGINT)
        assert ended == [130]
        signal.raise_signal(signal.SIGTERM)
        assert ended == [130, 143]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_handlers_are_put_back_after_an_error() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), stop_signals():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_a_step_lets_it_end_and_saves_it(
    number: signal.Signals,
    code: int,
    train: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run_step, calls = TrainingStep.run, iter(range(99))

    def interrupted(self: TrainingStep, *arguments: Any) -> StepResult:
        if next(calls) == 6:
            signal.raise_signal(number)
        return run_step(self, *arguments)

    monkeypatch.setattr(TrainingStep, "run", interrupted)
    assert train() == code
    run = tmp_path / "run"
    out = capfd.readouterr().out
    assert f"stopped by {number.name} after step 7: {run / 'checkpoints' / 'step-00000007'} is saved" in out
    assert "the same command goes on from there" in out
    assert runs.steps_saved(run) == [7]
    assert [r["step"] for r in runs.metrics(run)] == list(range(1, 8))
    assert (run / "report.html").exists()
    assert train() == 0
    assert [r["step"] for r in runs.metrics(run)] == list(range(1, 13))


def test_a_signal_in_the_last_step_does_not_call_a_whole_run_interrupted(
    train: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    evaluate = TrainingStep.evaluate

    def interrupted(self: TrainingStep, *arguments: Any) -> float:
        signal.raise_signal(signal.SIGINT)
        return evaluate(self, *arguments)

    monkeypatch.setattr(TrainingStep, "evaluate", interrupted)
    assert train() == 0
    assert "trained 12 steps" in capfd.readouterr().out


# --- a reader that goes away


@pytest.mark.parametrize("method", ["step", "evaluation", "sample"])
def test_when_nobody_reads_the_output_any_more_what_was_learned_is_saved(
    method: str, train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when ``| tee log`` is ended by the same Ctrl-C: the step is recorded and saved, and a resumed run is exact."""
    changes = runs.all_states(training__eval_interval=3, training__sample_interval=6, training__seed=5)
    whole = runs.options(tmp_path / "whole", tmp_path / "text.txt", **changes)
    assert runs.train_here(whole) == 0

    def broken(self: Console, step: int, *arguments: Any, **more: Any) -> None:
        if step == 6:
            raise BrokenPipeError

    with monkeypatch.context() as patch:
        patch.setattr(Console, method, broken)
        with pytest.raises(BrokenPipeError):
            main(runs.options(tmp_path / "run", tmp_path / "text.txt", **changes))
    assert runs.steps_saved(tmp_path / "run") == [6]
    assert len(runs.metrics(tmp_path / "run")) == 6
    assert train(**changes) == 0
    ours, theirs = (runs.learned(tmp_path / name, 12) for name in ("run", "whole"))
    for what in ("weights", "moments", "progress", "metrics"):
        assert ours[what] == theirs[what], what
    if method == "sample":
        assert ours["samples"] == theirs["samples"]


def test_the_exit_code_is_then_that_of_a_broken_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(self: Console, text: str) -> None:
        raise BrokenPipeError

    text = runs.write_text(tmp_path / "text.txt")
    with monkeypatch.context() as patch:
        patch.setattr(Console, "note", broken)
        patch.setattr(os, "dup2", lambda *descriptors: None)  # which would close this process's own output
        assert run_command(main, runs.options(tmp_path / "run", text)) == 141
    assert runs.steps_saved(tmp_path / "run") == [0]  # it was over before the first step
    assert run_command(main, runs.options(tmp_path / "run", text, "--resume")) == 0
    assert [record["step"] for record in runs.metrics(tmp_path / "run")] == list(range(1, 13))


def test_strange_files_among_the_samples_do_not_matter(tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    (folder / "step-00000003.txt").mkdir(parents=True)
    (folder / "step-00000002.txt").write_bytes(b"caf\xff")
    (folder / "step-00000002 (copy).txt").write_text("no")
    (folder / "step-abc.txt").write_text("no")
    (folder / "step-00000009.txt").write_text("later")
    assert read_samples(tmp_path, 5) == [(2, "caf\ufffd")]


def test_a_report_that_cannot_be_drawn_is_a_warning(
    train: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run" / "report.html").mkdir(parents=True)
    assert train() == 0
    assert "warning: no report: " in capfd.readouterr().out
    assert runs.steps_saved(tmp_path / "run")


def test_what_was_learned_is_saved_when_the_metrics_are_gone(
    train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(self: MetricsLog, step: int, **values: Any) -> None:
        if step == 7:
            raise UserError("metrics.jsonl: cannot write: No space left on device")

    monkeypatch.setattr(MetricsLog, "step", fail)
    assert train(training__checkpoint_interval=5) == 2
    assert "No space left" in capfd.readouterr().err
    assert max(runs.steps_saved(tmp_path / "run")) == 7


def test_a_run_that_ends_on_skipped_updates_keeps_its_good_checkpoint(
    train: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = TrainingStep.run

    def failing(self: TrainingStep, *arguments: Any) -> StepResult:
        result = run(self, *arguments)
        return result if self.micro_batches <= 9 else StepResult(result.loss, math.nan, "gradient norm is nan")

    monkeypatch.setattr(TrainingStep, "run", failing)
    assert train(training__checkpoint_interval=9, training__keep_checkpoints=1) == 0
    assert runs.steps_saved(tmp_path / "run") == [9]
    assert "the last 3 updates were skipped" in capfd.readouterr().out


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
@pytest.mark.parametrize(("before", "stops"), [(signal.SIG_IGN, False), (signal.SIG_DFL, True)])
def test_a_terminal_that_closes_stops_a_run_but_not_under_nohup(before, stops):
    outside = signal.signal(signal.SIGHUP, before)
    try:
        with stop_signals() as received:
            os.kill(os.getpid(), signal.SIGHUP)
            assert bool(received) == stops
        assert signal.getsignal(signal.SIGHUP) == before
    finally:
        signal.signal(signal.SIGHUP, outside)
