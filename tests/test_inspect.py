"""``python -m nanoeuler.inspect``: what it says is what NumPy and the configuration say."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_models import GPT2, LLAMA, make_bin, make_run, weights_of

from nanoeuler import inspect
from nanoeuler.config import ModelConfig
from nanoeuler.errors import UserError, run_command
from nanoeuler.inspect import describe_architecture, parameters_by_part
from nanoeuler.parameters import named_views, parameter_count, parameter_shapes
from nanoeuler.weights.listing import draw
from nanoeuler.weights.llmc import write_llmc


def inspect_here(*arguments: object) -> int:
    return run_command(inspect.main, [str(argument) for argument in arguments])


def inspected(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert inspect_here(*arguments) == 0
    return capsys.readouterr().out


class Terminal(io.StringIO):
    """A terminal, which what is printed can be read from."""

    encoding = "utf-8"  # type: ignore[assignment]  # that of StringIO is None, and not to be set

    def isatty(self) -> bool:
        return True


def test_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", **LLAMA, num_prediction_heads=3)
    out = inspected(capsys, run)
    assert "\ntrained           5 steps; lowest validation loss 1.5000, at step 4\n" in out
    assert "\ntokenizer         char, 10 tokens\n" in out
    assert "\nattention         4 heads of 4 channels, 2 share one of 2 key/value heads\n" in out
    assert "\nprediction        3 heads: " in out
    files = (run / "checkpoints" / "step-00000005").glob("*.safetensors")
    weights = {name: x for file in files for name, x in load_file(file).items()}
    rows = [line.split() for line in out.splitlines() if line.startswith(("model.", "lm_head", "prediction."))]
    assert {row[0] for row in rows} == weights.keys()
    for name, *row in rows:
        x = weights[name].astype(np.float64)
        shape, dtype, *numbers = " ".join(row).partition(" float32 ")[0], "float32", *row[2 * x.ndim :][:4]
        assert shape == " x ".join(map(str, x.shape))
        assert dtype in row
        assert numbers == [f"{value:.3g}" for value in (x.min(), x.max(), x.mean(), x.std())]


def test_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_bin(tmp_path / "gpt2.bin", "bfloat16", **GPT2)
    out = inspected(capsys, path, "--json", tmp_path / "record.json", "--tensors", "*.h.1.mlp.*")
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert (record["source"], record["format"], record["path"]) == (str(path), "llm.c", str(path))
    assert ModelConfig(**record["config"]) == ModelConfig(**GPT2)
    assert record["bytes"] == {"bfloat16": 2 * parameter_count(parameter_shapes(ModelConfig(**GPT2)))}
    assert record["training"] is None
    assert "\nweights           bfloat16 (" in out
    views = named_views(weights_of(ModelConfig(**GPT2), "bfloat16"), parameter_shapes(ModelConfig(**GPT2)))
    names = ["c_fc.bias", "c_fc.weight", "c_proj.bias", "c_proj.weight"]
    ours = ["up.bias", "up.weight", "down.bias", "down.weight"]
    assert [tensor["name"] for tensor in record["tensors"]] == [f"transformer.h.1.mlp.{name}" for name in names]
    for tensor, name in zip(record["tensors"], ours, strict=True):
        x = views[f"layers.1.{name}"].astype(np.float64)
        assert (tensor["dtype"], tensor["shape"]) == ("bfloat16", list(x.T.shape))
        assert (tensor["minimum"], tensor["maximum"]) == (x.min(), x.max())
        assert tensor["mean"] == pytest.approx(x.mean())
        assert tensor["std"] == pytest.approx(x.std())
        assert sum(tensor["histogram"]) == tensor["size"] == x.size


@pytest.mark.parametrize(
    "model",
    [
        GPT2,
        LLAMA,
        LLAMA | {"tie_embeddings": True, "num_prediction_heads": 3, "qk_norm": True, "qkv_bias": True},
        LLAMA | {"position": "learned", "norm": "layernorm", "bias": True},
    ],
)
def test_every_parameter_is_in_one_part(model: dict[str, Any]) -> None:
    config = ModelConfig(**model)
    parts = parameters_by_part(config)
    assert sum(parts.values()) == parameter_count(parameter_shapes(config))
    assert all(parts.values())


def test_the_parts_of_a_gpt2() -> None:
    config = ModelConfig(preset="gpt2", vocab_size=50257, max_seq_len=1024, num_layers=12, num_heads=12, hidden_dim=768)
    C = 768
    assert parameters_by_part(config) == {
        "embedding": 50257 * C,
        "positions": 1024 * C,
        "norms": 25 * 2 * C,
        "attention": 12 * (4 * C * C + 4 * C),
        "feed-forward": 12 * (8 * C * C + 5 * C),
    }
    assert sum(parameters_by_part(config).values()) == 124_439_808  # as transformers counts them


def test_every_switch_in_words() -> None:
    words = describe_architecture(ModelConfig(**LLAMA))
    assert (words["norm"], words["biases"]) == ("RMSNorm, eps 1e-05", "none")
    assert (words["positions"], words["output"]) == ("RoPE of base 10000", "weights of its own")
    words = describe_architecture(ModelConfig(**GPT2))
    assert (words["norm"], words["biases"]) == ("LayerNorm, eps 1e-05", "everywhere")
    assert words["attention"] == "2 heads of 4 channels, each with its own keys and values"
    assert (words["positions"], words["feed-forward"]) == ("learned, 8 of them", "GELU (tanh), 32 channels")
    assert words["output"] == "weights of the embedding (tied)"
    modern = {"rope_theta": 5e5, "rope_factor": 32, "qk_norm": True, "qkv_bias": True}
    words = describe_architecture(ModelConfig(**LLAMA, **modern))
    assert words["positions"] == "RoPE of base 500000, long waves stretched 32 times (Llama 3), from 8,192"
    assert words["attention"].endswith(", queries and keys normed")
    assert words["biases"] == "on queries, keys and values"


def test_layer_by_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_bin(tmp_path / "gpt2.bin", **GPT2 | {"num_layers": 11})
    out = inspected(capsys, path, "--tensors", "*ln_*.weight")
    names = [line.split()[0] for line in out.splitlines() if line.startswith("transformer.")]
    layers = [f"transformer.h.{layer}.ln_{norm}.weight" for layer in range(11) for norm in (1, 2)]
    assert names == [*layers, "transformer.ln_f.weight"]


def test_what_is_not_finite_is_flagged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = ModelConfig(**GPT2)
    views = named_views(weights_of(config), parameter_shapes(config))
    views["layers.0.up.bias"][:5] = [np.nan, np.nan, np.inf, 0, 0]
    views["layers.1.attention_norm.bias"][:] = np.inf
    views["layers.1.mlp_norm.bias"][:] = 0
    write_llmc(tmp_path / "gpt2.bin", config, views, "float32")
    out = inspected(capsys, tmp_path / "gpt2.bin", "--json", tmp_path / "record.json")
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("transformer.")}
    assert rows["transformer.h.0.mlp.c_fc.bias"].endswith("  2 NaN; 1 infinity; 2 zeros")
    assert rows["transformer.h.1.ln_1.bias"].endswith("  8 infinities")
    assert rows["transformer.h.1.ln_2.bias"].endswith("  all zeros")
    assert "not all numbers are finite in transformer.h.0.mlp.c_fc.bias, transformer.h.1.ln_1.bias\n" in out
    text = (tmp_path / "record.json").read_text(encoding="utf-8")
    assert "NaN" not in text.replace("NaNs", "")  # which is no JSON
    assert "Infinity" not in text


def test_a_model_that_we_do_not_run_is_listed_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 8}
    (tmp_path / "config.json").write_text(json.dumps(record), encoding="utf-8")
    save_file({"experts.weight": np.eye(3, dtype=np.float16)}, tmp_path / "model.safetensors")
    out = inspected(capsys, tmp_path, "--json", tmp_path / "record.json")
    assert "nanoeuler does not run this model:\n" in out
    assert "mixtral" in out
    row = next(line.split() for line in out.splitlines() if line.startswith("experts.weight"))
    assert row[:9] == ["experts.weight", "3", "x", "3", "float16", "0", "1", "0.333", "0.471"]
    assert "mixtral" in json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))["refused"]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_any_width(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide terminal has a tensor in a line; on a narrow one nothing but a name is wider than it."""
    path, terminal = make_bin(tmp_path / "gpt2.bin", **GPT2), Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    inspect.main([str(path)])
    lines = terminal.getvalue().partition("\n\nThe ")[2].splitlines()
    names = [line for line in lines if line.startswith("transformer.h.1.attn.c_attn.bias")]
    assert len(names) == 1
    assert (" float32 " in names[0]) == (width == 200)
    assert max(len(line) for line in lines if not line.startswith("transformer.")) <= max(width, 28)


def test_without_unicode(tmp_path: Path) -> None:
    path = make_bin(tmp_path / "gpt2.bin", **GPT2)
    command = [sys.executable, "-m", "nanoeuler.inspect", str(path)]
    result = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"\\u" not in result.stdout
    assert b"@" in result.stdout.decode("ascii").encode()


def test_a_histogram_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert draw((0, 1, 500, 800, 1000, 0)) == " ▁▄▇█ "
    assert draw((0, 0)) == "  "


def test_errors(tmp_path: Path) -> None:
    path = make_bin(tmp_path / "gpt2.bin", **GPT2)
    with pytest.raises(UserError, match=r"no tensor has a name like '\*mpl\*'"):
        inspect.main([str(path), "--tensors", "*mpl*"])
    with pytest.raises(UserError, match="nowhere"):
        inspect.main([str(tmp_path / "nowhere")])
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(UserError, match=r"gpt2\.bin: cut off"):
        inspect.main([str(path)])


def test_one_tensor_at_a_time_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its row is there before the next one is read."""
    path, seen = make_bin(tmp_path / "gpt2.bin", **GPT2), []
    terminal, read = Terminal(), np.fromfile
    monkeypatch.setattr(sys, "stdout", terminal)

    def reading(*arguments: Any, **options: Any) -> np.ndarray:
        seen.append(terminal.getvalue().count("float32"))
        return read(*arguments, **options)

    monkeypatch.setattr(np, "fromfile", reading)
    inspect.main([str(path)])
    assert len(seen) == 4 + 12 * 2
    assert seen == list(range(seen[0], seen[0] + len(seen)))
