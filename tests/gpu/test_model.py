"""The whole model on the kernels' op table, run on the CPU, against NumPy's and against numerical differentiation."""

from typing import Any

import numpy as np
import pytest

import nanoeuler.cpu
from nanoeuler.config import Config, ModelConfig, TrainingConfig
from nanoeuler.device import op_table
from nanoeuler.gpu.rehearsal import rehearse
from nanoeuler.gradcheck import MODEL_CHECKS, OP_CHECKS, check_model, check_op
from nanoeuler.plan import memory_plan
from nanoeuler.step import Batch, StepResult, TrainingStep

V, T, B = 37, 9, 2
SMALL = {"vocab_size": V, "max_seq_len": T, "num_layers": 2, "num_heads": 4, "hidden_dim": 24, "init_std": 0.1}
MODELS = {
    "euler, grouped queries, prediction heads": ModelConfig(**SMALL, num_kv_heads=2, num_prediction_heads=2),
    "euler, tied, dropout": ModelConfig(**SMALL, num_kv_heads=1, tie_embeddings=True, dropout=0.2),
    "gpt2": ModelConfig(**SMALL, preset="gpt2"),
    "gpt2, no bias, prediction heads": ModelConfig(**SMALL, preset="gpt2", bias=False, num_prediction_heads=3),
}
every_model = pytest.mark.parametrize("name", MODELS)
SIM = op_table("sim")


def batches(config: ModelConfig, count: int, seed: int = 0) -> list[Batch]:
    """Return random micro-batches, some of whose targets are to be ignored."""
    random = np.random.default_rng(seed)
    heads = config.num_prediction_heads
    return [
        (random.integers(0, V, (B, T), np.int32), random.integers(-4, V, (heads, B, T), np.int32)) for _ in range(count)
    ]


def training(**options: Any) -> TrainingConfig:
    return TrainingConfig(**{"batch_size": B, "workers": 1, "pieces": 1, "grad_clip": 0.5} | options)


def steps(
    ops: Any, config: ModelConfig, options: TrainingConfig, count: int, document_start: int | None = None
) -> tuple[list[StepResult], TrainingStep]:
    with TrainingStep(config, options, ops, document_start=document_start) as step:
        accumulated = options.gradient_accumulation
        return [step.run(batches(config, accumulated, seed), 3e-3) for seed in range(count)], step


@every_model
def test_ten_steps_give_the_same_losses(name: str) -> None:
    """With accumulation and clipping; 1e-4 asked, ten times less is met."""
    options = training(gradient_accumulation=2)
    expected, cpu = steps(nanoeuler.cpu, MODELS[name], options, 10)
    got, sim = steps(SIM, MODELS[name], options, 10)
    for a, b in zip(expected, got, strict=True):
        assert b.loss == pytest.approx(a.loss, rel=1e-5)
        assert b.grad_norm == pytest.approx(a.grad_norm, rel=1e-4)
    assert min(result.grad_norm for result in expected) > 0.5  # every step was clipped
    assert np.abs(sim.m - cpu.m).max() < 1e-4 * np.abs(cpu.m).max()


@pytest.mark.parametrize("name", ["euler, grouped queries, prediction heads", "gpt2"])
def test_steps_within_documents_give_the_same_losses(name: str) -> None:
    """Each with other borders, though the launches are repeated; and so does an evaluation."""
    results, evaluated = [], []
    for ops, first in ((nanoeuler.cpu, 0), (SIM, 0), (SIM, None)):
        found, step = steps(ops, MODELS[name], training(), 4, document_start=first)
        results.append([result.loss for result in found])
        with step:
            evaluated.append(step.evaluate(batches(MODELS[name], 2, seed=9)))
    assert any((inputs[:, 1:] == 0).any() for seed in range(4) for inputs, _ in batches(MODELS[name], 1, seed))
    assert results[1] == pytest.approx(results[0], rel=1e-5)
    assert evaluated[1] == pytest.approx(evaluated[0], rel=1e-5)
    assert results[2] != pytest.approx(results[0], rel=1e-5)


@every_model
def test_a_repeated_step_has_the_same_bits(name: str) -> None:
    """Two runs agree bit for bit, and so does one whose launches are made anew instead of being repeated."""

    class Anew:
        def __getattr__(self, attribute: str) -> Any:
            return (lambda function: function) if attribute == "repeated" else getattr(SIM, attribute)

    options = training()
    runs = [steps(ops, MODELS[name], options, 3)[1] for ops in (SIM, SIM, Anew())]
    for attribute in ("weights", "m", "v"):
        assert len({getattr(step, attribute).tobytes() for step in runs}) == 1


@every_model
def test_bfloat16_follows_float32(name: str) -> None:
    expected, _ = steps(nanoeuler.cpu, MODELS[name], training(), 6)
    got, step = steps(op_table("sim", "bf16"), MODELS[name], training(dtype="bf16"), 6)
    assert step.model_weights.dtype == np.uint16
    assert step.weights.dtype == np.float32
    for a, b in zip(expected, got, strict=True):
        assert b.loss == pytest.approx(a.loss, rel=0.01)
        assert b.grad_norm == pytest.approx(a.grad_norm, rel=0.1)


@every_model
def test_losses_and_text_equal_numpys(name: str) -> None:
    config = MODELS[name]
    inputs, targets = batches(config, 1)[0]
    _, cpu = steps(nanoeuler.cpu, config, training(), 1)
    _, sim = steps(SIM, config, training(), 1)
    np.testing.assert_allclose(
        sim.models[0].losses(inputs, targets[0]), cpu.models[0].losses(inputs, targets[0]), rtol=1e-4
    )


def test_every_op_has_the_gradient_of_its_forward() -> None:
    """Against central differences of the NumPy op in float64."""
    failed = [row for check in OP_CHECKS for row in check_op(check, SIM, np.float32) if not row.passed]
    assert failed == []


@pytest.mark.parametrize("name", MODEL_CHECKS)
def test_every_parameter_has_the_gradient_of_the_loss(name: str) -> None:
    failed = [row for row in check_model(name, MODEL_CHECKS[name], SIM, np.float32) if not row.passed]
    assert failed == []


@every_model
@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_a_rehearsal_counts_what_a_run_allocates(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(model=MODELS[name], training=training(gradient_accumulation=2, dtype=dtype))
    before = rehearse(config)
    assert sum(memory_plan(config, "sim").values()) == before.allocated
    assert all(size > 0 for size in memory_plan(config, "sim").values())
    launches = sum(launch.kernel is not None for launch in before.launches)
    assert launches > 60


def test_a_rehearsal_takes_no_memory_and_no_time_for_a_large_model() -> None:
    import tracemalloc

    large = ModelConfig(vocab_size=50257, max_seq_len=1024, num_layers=2, num_heads=12, hidden_dim=768, preset="gpt2")
    tracemalloc.start()
    rehearsed = rehearse(Config(model=large, training=TrainingConfig(batch_size=16, dtype="bf16")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rehearsed.allocated > 2**31
    assert peak < 2**28
