"""``python -m nanoeuler.parity``: silent where op tables agree, and names the first tensor where they do not."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu.test_model import MODELS, batches, training

import nanoeuler.cpu
from nanoeuler import parity
from nanoeuler.config import Config
from nanoeuler.device import op_table
from nanoeuler.errors import run_command
from nanoeuler.parity import Comparison, compare_step

OPTIONS = ["--model.max_seq_len=8", "--model.num_layers=1", "--model.hidden_dim=16", "--model.num_heads=2",
           "--training.batch_size=2", "--data.dataset=plays"]  # fmt: skip


def compared(name: str, ops: Any, **options: Any) -> Comparison:
    config = Config(model=MODELS[name], training=training(**options))
    return compare_step(config, batches(config.model, config.training.gradient_accumulation), ops)[0]


@pytest.mark.parametrize("name", MODELS)
def test_right_tables_agree_on_every_tensor(name: str) -> None:
    comparison = compared(name, op_table("sim"), gradient_accumulation=2)
    assert comparison.first is None
    directions = {row.direction for row in comparison.found.values()}
    assert directions == {"forward", "backward", "update"}
    tensors = {tensor for _, tensor in comparison.found}
    assert {"layers.1.qkv", "layers.0.middle (total)", "logits", "embedded"} <= tensors
    assert {f"gradient of {p} (dweight)" for p in ("embedding.weight", "layers.1.down.weight")} <= tensors


def test_right_tables_agree_within_documents() -> None:
    config = Config(model=MODELS["gpt2"], training=training())
    micro_batches = batches(config.model, 1)
    first = int(micro_batches[0][0][0, 3])
    comparison, result = compare_step(config, micro_batches, op_table("sim"), document_start=first)
    assert comparison.first is None
    assert result.loss != compare_step(config, micro_batches, op_table("sim"))[1].loss


def faulty(op: str, change: Any) -> SimpleNamespace:
    """Return NumPy's op table with one op that does something to its first output afterwards."""

    def wrong(*args: Any) -> None:
        getattr(nanoeuler.cpu, op)(*args)
        change(args[0])

    table = {name: getattr(nanoeuler.cpu, name) for name in nanoeuler.cpu.__all__}
    return SimpleNamespace(**table | {op: wrong, "workers": lambda asked: 0})


@pytest.mark.parametrize(
    ("op", "tensor", "direction"),
    [
        ("swiglu_forward", "layers.0.activated", "forward"),
        ("rmsnorm_forward", "layers.0.attention_norm", "forward"),
        ("attention_backward", "dqkv (dq)", "backward"),
        ("embedding_backward", "gradient of embedding.weight (dweight)", "backward"),
        ("adamw", "embedding.weight (weight)", "update"),
    ],
)
def test_the_first_tensor_that_diverges_is_named(op: str, tensor: str, direction: str) -> None:
    def change(x: np.ndarray) -> None:
        x[0] += 0.01 * np.abs(x).max()

    first = compared("euler, grouped queries, prediction heads", faulty(op, change)).first
    assert first is not None
    assert (first.op, first.tensor, first.direction) == (op, tensor, direction)


def test_a_number_that_is_none_diverges() -> None:
    def change(x: np.ndarray) -> None:
        x.flat[0] = np.nan

    first = compared("gpt2", faulty("layernorm_forward", change)).first
    assert first is not None
    assert first.op == "layernorm_forward"


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_the_command(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(parity.main, [*OPTIONS, f"--training.dtype={dtype}"]) == 0
    out = capsys.readouterr().out
    assert "tensors agree" in out
    assert "layers.0.qkv" in out


def test_the_command_fails_where_they_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(x: np.ndarray) -> None:
        x *= 1.01

    monkeypatch.setattr(parity, "op_table", lambda *_: faulty("linear_forward", change))
    assert run_command(parity.main, OPTIONS) == 1
    assert "DIVERGED: the first tensor is layers.0.qkv, written by linear_forward" in capsys.readouterr().out


def test_comparing_numpy_with_itself_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(parity.main, ["--device", "cpu"]) != 0
    assert "give gpu or sim" in capsys.readouterr().err
