"""The plan of a run: counted by hand for tiny models, and held against what is really allocated."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nanoeuler.plan
from nanoeuler import cpu
from nanoeuler.config import Config, DataConfig, ModelConfig, load_config
from nanoeuler.errors import UserError, run_command
from nanoeuler.model import Transformer
from nanoeuler.plan import (
    OVERHEAD_BYTES,
    available_bytes,
    available_on,
    check_memory,
    flops_per_token,
    main,
    memory_plan,
    with_vocabulary,
)
from nanoeuler.step import TrainingStep

CONFIGS = sorted((Path(__file__).parent.parent / "configs").glob("*.json"))

EULER: dict[str, Any] = {
    "vocab_size": 7,
    "max_seq_len": 3,
    "num_layers": 1,
    "num_heads": 2,
    "num_kv_heads": 1,
    "hidden_dim": 4,
    "feed_forward_dim": 5,
}
GPT2 = EULER | {"preset": "gpt2", "num_kv_heads": 2}
TRAINING: dict[str, Any] = {"batch_size": 5, "workers": 2, "pieces": 3}


def padded(elements: int) -> int:
    return -(-elements // 16) * 16


def config(model: dict[str, Any], **training: Any) -> Config:
    return Config.model_validate({"model": model, "training": TRAINING | training})


# --- floating-point operations


@pytest.mark.parametrize(
    ("model", "multiply_adds"),
    [
        # qkv 8 x 4, out 4 x 4, gate and up 10 x 4, down 4 x 5, head 7 x 4; scores and values over (T + 1) / 2 keys
        (EULER, 32 + 16 + 40 + 20 + 28 + 2 * 4 * 2),
        (EULER | {"tie_embeddings": True}, 32 + 16 + 40 + 20 + 28 + 2 * 4 * 2),
        (EULER | {"num_layers": 3}, 3 * (32 + 16 + 40 + 20 + 2 * 4 * 2) + 28),
        (EULER | {"num_prediction_heads": 3}, 32 + 16 + 40 + 20 + 2 * 4 * 2 + 3 * 28 + 2 * 16),
        (GPT2, 48 + 16 + 20 + 20 + 28 + 2 * 4 * 2),
    ],
)
def test_operations_by_hand(model: dict[str, Any], multiply_adds: int) -> None:
    assert flops_per_token(ModelConfig(**model), 3) == 6 * multiply_adds


def test_attention_grows_with_the_length() -> None:
    model = ModelConfig(**EULER)
    assert flops_per_token(model, 13) - flops_per_token(model, 3) == 6 * 2 * 4 * 5  # five keys more on average


def test_gpt2_is_near_six_operations_a_parameter() -> None:
    model = ModelConfig(preset="gpt2", vocab_size=50257, max_seq_len=1024, num_layers=12, num_heads=12, hidden_dim=768)
    parameters_but_positions = 124_439_808 - 1024 * 768
    assert flops_per_token(model, 1) == pytest.approx(6 * parameters_but_positions, rel=2e-3)


# --- memory


def test_euler_by_hand() -> None:
    matrices = [28, 32, 16, 40, 20, 28]  # embedding, qkv, out, gate and up, down, head
    vectors = [4, 4, 4]
    weights = 4 * sum(map(padded, matrices + vectors))
    # Pieces of 1, 2 and 2 sequences: 2 x 3 rows. The arrays are in the order of arena_shapes and statistic_shapes.
    layer = [24, 48, 24, 24, 24, 60, 30, 24]
    trunk = [24, 24, 24, 42]
    backward = [24, 24, 48, 24]
    statistics = [6, 6, 6, 6, 12]
    sampler = [12, 24, 12, 12, 12, 30, 15, 12, 12, 12, 12, 7, 3, 3, 3, 3, 6]  # of one sequence, one token's logits
    cache = 2 * 3 * 1 * 2 + 4  # padded
    step = 2 * 5 * 3  # inputs and targets
    tokens, tables = 2 * 2 * 3, 2 * 3 * 1  # of one model: tokens and targets, cosines and sines
    assert memory_plan(config(EULER)) == {
        "weights": weights,
        "gradients (3 x)": 3 * weights,
        "optimizer state (m, v)": 2 * weights,
        "activations (2 x 2 sequences)": 2 * 4 * sum(map(padded, layer + trunk + backward + statistics)),
        "sampling": 4 * (sum(map(padded, sampler)) + cache),
        "batches and tables": 4 * (step + 2 * (tokens + tables) + (2 * 3 + tables)),
    }
    masked = config(EULER).model_copy(update={"data": DataConfig(doc_mask=True)})
    more = {part: size - memory_plan(config(EULER))[part] for part, size in memory_plan(masked).items()}
    assert {part: size for part, size in more.items() if size} == {"batches and tables": 4 * (5 * 3 + 2 * 2 * 3)}
    two_heads = memory_plan(config(EULER | {"num_prediction_heads": 2}, gradient_accumulation=7))  # one at a time
    assert two_heads["batches and tables"] == 4 * (3 * 5 * 3 + 2 * (tokens + tables) + (2 * 3 + tables))


def test_gpt2_by_hand() -> None:
    matrices = [28, 12, 48, 16, 20, 20]
    vectors = [12, 4, 5, 4] + [4, 4] * 3
    weights = 8 * sum(map(padded, matrices + vectors))
    layer = [60, 180, 60, 60, 60, 75, 75, 60]  # 5 x 3 rows in one piece
    trunk = [60, 60, 60, 105]
    backward = [60, 60, 180, 60]
    statistics = [15, 15, 15, 15, 15, 15, 15, 30]  # with means
    parts = memory_plan(config(GPT2, dtype="float64", pieces=1))
    assert parts["weights"] == parts["gradients (1 x)"] == weights
    assert parts["optimizer state (m, v)"] == 2 * weights
    assert parts["activations (1 x 5 sequences)"] == 8 * sum(map(padded, layer + trunk + backward + statistics))
    assert parts["batches and tables"] == 4 * (2 * 5 * 3 + 2 * 5 * 3 + 2 * 3)  # positions are weights


@pytest.mark.parametrize("device", ["gpu", "sim"])
def test_bfloat16_by_hand(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels take one piece, whatever is configured. All that the rehearsal allocates is counted."""
    monkeypatch.setattr(nanoeuler.plan, "rehearsal", lambda config: SimpleNamespace(allocated=10**6))
    parameters = sum(map(padded, [28, 32, 16, 40, 20, 28, 4, 4, 4]))
    arena = [60, 120, 60, 60, 60, 150, 75, 60, 60, 60, 60, 105, 60, 60, 120, 60]  # 5 x 3 rows
    statistics = [15, 15, 15, 15, 30]  # which stay float32
    sampler, sampler_statistics = [12, 24, 12, 12, 12, 30, 15, 12, 12, 12, 12, 7], [3, 3, 3, 3, 6]
    cache = padded(2 * 3 * 1 * 2)
    parts = memory_plan(config(EULER, dtype="bf16"), device)
    rest = parts.pop("batches, tables, scratch memory of the kernels")
    assert parts.pop("working memory of cuBLAS", None) == (32 * 2**20 if device == "gpu" else None)
    assert parts == {
        "weights": 4 * parameters,
        "weights, rounded for products": 2 * parameters,
        "gradients (1 x)": 4 * parameters,
        "optimizer state (m, v)": 8 * parameters,
        "activations (1 x 5 sequences)": 2 * sum(map(padded, arena)) + 4 * sum(map(padded, statistics)),
        "sampling": 2 * (sum(map(padded, sampler)) + cache) + 4 * sum(map(padded, sampler_statistics)),
    }
    assert rest + sum(parts.values()) == 10**6
    for dtype in ("tf32", "float32"):
        longer = memory_plan(config(EULER, dtype=dtype), device)
        assert "weights, rounded for products" not in longer
        assert longer["activations (1 x 5 sequences)"] == 4 * sum(map(padded, arena + statistics))


def test_memory_of_a_gpu_is_called_so_and_holds_no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nanoeuler.plan, "rehearsal", lambda config: SimpleNamespace(allocated=10**6))
    needed = 10**6 + (512 + 32) * 2**20  # CUDA's own, and cuBLAS's
    check_memory(config(EULER), needed, "gpu")
    with pytest.raises(UserError, match=r"this run takes 545 MiB of GPU memory") as caught:
        check_memory(config(EULER), needed - 1, "gpu")
    assert "workers" not in str(caught.value)
    with pytest.raises(UserError, match=r"this run takes 301 MiB of memory"):
        check_memory(config(EULER), 10**6, "sim")


@pytest.mark.parametrize("model", [EULER, GPT2, EULER | {"num_prediction_heads": 2, "num_layers": 3}], ids=str)
@pytest.mark.parametrize("pieces", [0, 1, 2, 5])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_training_step_takes_just_what_was_planned(
    model: dict[str, Any], pieces: int, workers: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = config(model, dtype=dtype, pieces=pieces, workers=workers)
    allocated: list[int] = []
    empty = cpu.empty

    def counting(size: int, dtype: Any) -> np.ndarray:
        allocated.append(size * np.dtype(dtype).itemsize)
        return empty(size, dtype)

    monkeypatch.setattr(cpu, "empty", counting)
    step = TrainingStep(planned.model, planned.training, cpu)
    Transformer(planned.model, cpu, step.model_weights, 1, planned.model.max_seq_len, "generation")
    heads, pieces = planned.model.num_prediction_heads, len(step.pieces)
    numbers = 8 + (heads + pieces * heads + 1) * np.dtype(dtype).itemsize  # a counter; weights of losses, losses, norm
    assert sum(allocated) == sum(memory_plan(planned).values()) + numbers
    random = np.random.default_rng(0)
    inputs = random.integers(0, 7, (5, 3), np.int32)
    targets = random.integers(0, 7, (planned.model.num_prediction_heads, 5, 3), np.int32)
    allocated.clear()
    with step:
        step.run([(inputs, targets)], 1e-3)
        step.evaluate([(inputs, targets)])
    assert allocated == []  # afterwards nothing more is taken


def test_a_run_that_fits_passes_and_one_that_does_not_is_refused_with_the_bytes_of_each_part() -> None:
    planned = config(EULER)
    parts = memory_plan(planned)
    needed = sum(parts.values()) + OVERHEAD_BYTES
    check_memory(planned, needed)
    check_memory(planned, None)
    with pytest.raises(UserError) as caught:
        check_memory(planned, needed - 1)
    message = str(caught.value)
    for part in parts:
        assert part in message
    assert "300 MiB of memory" in message
    assert "training.batch_size" in message


def test_a_long_context_is_refused_for_its_activations() -> None:
    planned = config(EULER | {"max_seq_len": 10**7})
    with pytest.raises(UserError, match=r"GiB  activations \(2 x 2 sequences\)"):
        check_memory(planned, 8 * 2**30)


def test_available_memory_is_known_here_or_said_to_be_unknown() -> None:
    available = available_bytes()
    assert available is None or 2**26 < available < 2**50


# --- the command


def arguments(model: dict[str, Any]) -> list[str]:
    return [word for key, value in model.items() for word in (f"--model.{key}", str(value))]


def test_the_command_prints_parameters_operations_and_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    line = [*arguments(EULER), "--training.batch_size=5", "--training.workers=2", "--training.pieces=3"]
    assert run_command(main, [*line, "--training.total_steps=10", "--training.gradient_accumulation=2"]) == 0
    out = capsys.readouterr().out
    rows = {
        cells[1].strip(): cells[2].strip() for cells in (row.split("│") for row in out.split("\n")) if len(cells) > 2
    }
    assert rows["embedding"] == "28"
    assert rows["layers x 1: qkv"] == "32"
    assert rows["tokens in a step"] == "30"
    assert rows["tokens in the run"] == "300"
    assert rows["floating-point operations per token"] == "912"
    assert rows["floating-point operations per step"] == "27.4 k"
    assert rows["floating-point operations in the run"] == "274 k"
    for part, size in memory_plan(config(EULER, gradient_accumulation=2)).items():
        assert part in rows
        assert f"{size:,}" in out
    assert rows["weights"] in out
    assert {"all", "optimizer state (m, v)"} <= rows.keys()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_that_ships_has_a_plan(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nanoeuler.plan, "available_bytes", lambda: 2**40)
    vocabulary = [] if load_config(path).model.vocab_size else ["--model.vocab_size=65"]
    assert run_command(main, ["--config", str(path), *vocabulary]) == 0
    assert "embedding" in capsys.readouterr().out


def test_gpt2_small_needs_no_data_and_has_the_numbers_of_its_shape(capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (path for path in CONFIGS if path.stem == "gpt2-small")
    code = run_command(main, ["--config", str(path)])
    out, err = capsys.readouterr()
    assert code == 0 or (code == 2 and "this run takes" in err)  # as the memory of this machine may be
    per_layer = 20 * 64 * 768 + 768 * 768 + 3 * 2048 * 768 + 2 * 768
    assert f"{2 * 50257 * 768 + 12 * per_layer + 768:,}" in out


def test_a_plan_that_does_not_fit_is_printed_and_then_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nanoeuler.plan, "available_bytes", lambda: 2**20)
    assert run_command(main, arguments(EULER)) == 2
    out, err = capsys.readouterr()
    assert "1 MiB" in out
    assert err.startswith("error: this run takes 300 MiB of memory and 1 MiB are available:\n")


def test_a_character_vocabulary_is_taken_from_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("abcab" * 10, encoding="utf-8")
    line = ["--model.hidden_dim=16", "--model.num_heads=2"]
    assert run_command(main, [*line, "--data.dataset", str(tmp_path / "text.txt")]) == 0
    assert "48" in capsys.readouterr().out  # 3 characters of 16 channels
    assert run_command(main, [*line, "--data.dataset", str(tmp_path / "none.txt")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_tokenizer_gives_the_vocabulary_where_none_is_configured(tmp_path: Path) -> None:
    assert with_vocabulary(config(EULER)).model.vocab_size == 7
    open_size = Config.model_validate({"data": {"tokenizer_path": "byte"}})
    assert with_vocabulary(open_size).model.vocab_size == 256
    (tmp_path / "text.txt").write_text("abcab", encoding="utf-8")
    for wanted in (None, "char"):  # the text's
        data = {"tokenizer_path": wanted, "dataset": str(tmp_path / "text.txt")}
        assert with_vocabulary(Config.model_validate({"data": data})).model.vocab_size == 3


def test_a_wrong_option_is_one_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, ["--model.hidden", "3"]) == 2
    assert capsys.readouterr().err.startswith("error: unknown option '--model.hidden'")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["--device", "gpuu"], "unknown device 'gpuu' (did you mean 'gpu'?); --device takes cpu, gpu, sim"),
        (["--training.dtype=bf16"], "--device cpu computes in float32, float64, and training.dtype is bf16"),
        (["--training.dtype=float64", "--device=gpu"], "and training.dtype is float64: that takes --device cpu"),
    ],
)
def test_a_device_that_cannot_be_planned_for_is_one_error(
    line: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(main, [*arguments(EULER), *line]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert said in err


def test_memory_of_the_cpu_is_what_counts_for_all_devices_but_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nanoeuler.plan, "available_bytes", lambda: 12345)
    assert available_on("cpu") == available_on("sim") == 12345


def test_a_containers_limit_counts(tmp_path: Path) -> None:
    assert nanoeuler.plan._container_bytes(tmp_path) is None
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert nanoeuler.plan._container_bytes(tmp_path) is None
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 900\ninactive_file 100\n")  # of what files hold, this can be freed
    assert nanoeuler.plan._container_bytes(tmp_path) == 4100
    (tmp_path / "memory.current").write_text("6200\n")
    assert nanoeuler.plan._container_bytes(tmp_path) == 0
