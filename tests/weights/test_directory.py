"""A Hugging Face folder: its variants are one model, and whatever is wrong with it is one message before any weight."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from nanoeuler.config import ModelConfig
from nanoeuler.errors import UserError
from nanoeuler.parameters import flat_size, named_views, parameter_shapes
from nanoeuler.tokenizer import ByteTokenizer
from nanoeuler.weights.directory import HEADS, INDEX, WEIGHTS, open_directory, write_model_files
from nanoeuler.weights.tensors import read_flat

SMALL = {"vocab_size": 11, "max_seq_len": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 12, "feed_forward_dim": 10}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"num_kv_heads": 1},
    "llama, tied": {"tie_embeddings": True},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True, "attention_head_dim": 8},
    "gpt2": {"preset": "gpt2"},
    "gpt2, untied": {"preset": "gpt2", "tie_embeddings": False},
    "heads": {"num_prediction_heads": 3},
    "a mixture": {"norm": "layernorm", "num_prediction_heads": 2},
}
NAME = "model.layers.1.self_attn.k_proj.weight"


def weights_of(config: ModelConfig) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.5, flat_size(parameter_shapes(config))).astype(np.float32)


def write(folder: Path, changes: dict[str, Any], dtype: str = "float32", end_ids: tuple[int, ...] = ()) -> np.ndarray:
    """Write a small model into a folder; return its weights, with nothing between the tensors."""
    config = ModelConfig(**SMALL | changes)
    flat = weights_of(config)
    write_model_files(folder, config, named_views(flat, parameter_shapes(config)), dtype, None, end_ids)
    clean = np.zeros_like(flat)
    for name, view in named_views(clean, parameter_shapes(config)).items():
        view[...] = named_views(flat, parameter_shapes(config))[name]
    return clean


def read(folder: Path, dtype: Any = np.float32) -> np.ndarray:
    files = open_directory(folder)
    return read_flat(files.config, files.tensors, dtype)


def rewrite(folder: Path, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors = change(tensors) or tensors
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, folder / WEIGHTS)


def configure(folder: Path, **changes: Any) -> None:
    record = json.loads((folder / "config.json").read_text(encoding="utf-8")) | changes
    record = {key: value for key, value in record.items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(record), encoding="utf-8")


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as error:
        read(folder)
    return str(error.value)


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS.keys())
def test_round_trip(changes: dict[str, Any], tmp_path: Path) -> None:
    weights = write(tmp_path, changes, end_ids=(7,))
    files = open_directory(tmp_path)
    assert files.config == ModelConfig(**SMALL | changes)
    assert (files.format, files.path, files.end_ids, files.note) == ("Hugging Face", tmp_path, (7,), "")
    assert read(tmp_path).tobytes() == weights.tobytes()
    assert (tmp_path / HEADS).exists() == (files.config.num_prediction_heads > 1)
    index = json.loads((tmp_path / INDEX).read_text(encoding="utf-8"))
    assert index["weight_map"] == dict.fromkeys(load_file(tmp_path / WEIGHTS), WEIGHTS)
    assert not [name for name in index["weight_map"] if name.startswith("prediction")]


def shard(folder: Path, parts: int) -> None:
    """Cut a folder's one file into several with an index."""
    tensors = load_file(folder / WEIGHTS)
    names = list(tensors)
    places = {}
    for i in range(parts):
        file = f"model-{i + 1:05d}-of-{parts:05d}.safetensors"
        save_file({name: tensors[name] for name in names[i::parts]}, folder / file)
        places |= dict.fromkeys(names[i::parts], file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8")
    (folder / WEIGHTS).unlink()


@pytest.mark.parametrize("changes", [MODELS["llama"], MODELS["gpt2"], MODELS["heads"]], ids=str)
def test_many_files_with_an_index(changes: dict[str, Any], tmp_path: Path) -> None:
    weights = write(tmp_path, changes)
    shard(tmp_path, 3)
    assert read(tmp_path).tobytes() == weights.tobytes()


def test_one_file_of_another_name(tmp_path: Path) -> None:
    weights = write(tmp_path, {})
    (tmp_path / WEIGHTS).rename(tmp_path / "llama.safetensors")
    (tmp_path / INDEX).unlink()
    assert read(tmp_path).tobytes() == weights.tobytes()
    (tmp_path / "second.safetensors").write_bytes((tmp_path / "llama.safetensors").read_bytes())
    assert "2 files of tensors and no model.safetensors.index.json" in refusal(tmp_path)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_numbers_are_widened(dtype: str, tmp_path: Path) -> None:
    weights = write(tmp_path, {"preset": "gpt2"}, dtype)
    assert {tensor.dtype for tensor in open_directory(tmp_path).tensors.values()} == {dtype}
    again = read(tmp_path)
    assert again.dtype == np.float32
    assert 0 < np.abs(again - weights).max() < {"float16": 2e-3, "bfloat16": 2e-2}[dtype]


def test_names_without_the_prefix_and_buffers(tmp_path: Path) -> None:
    gpt2 = write(tmp_path, {"preset": "gpt2"})
    buffers = {"h.0.attn.bias": np.ones((1, 1, 8, 8), np.float32), "h.1.attn.masked_bias": np.float32(-1e4)}
    rewrite(tmp_path, lambda t: {name.removeprefix("transformer."): x for name, x in t.items()} | buffers)
    assert read(tmp_path).tobytes() == gpt2.tobytes()
    rewrite(tmp_path, lambda t: {f"transformer.{name}": x for name, x in t.items()})  # with the prefix, buffers too
    assert read(tmp_path).tobytes() == gpt2.tobytes()


@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": True}], ids=["untied", "tied"])
def test_llama_without_the_prefix_and_with_frequencies(changes: dict[str, Any], tmp_path: Path) -> None:
    weights = write(tmp_path, changes)
    buffer = {"layers.0.self_attn.rotary_emb.inv_freq": np.ones(3, np.float32)}
    rewrite(tmp_path, lambda t: {name.removeprefix("model."): x for name, x in t.items()} | buffer)
    assert read(tmp_path).tobytes() == weights.tobytes()


def test_an_output_matrix_saved_though_it_is_the_embedding(tmp_path: Path) -> None:
    for name, changes in (("model.embed_tokens", {"tie_embeddings": True}), ("transformer.wte", {"preset": "gpt2"})):
        weights = write(tmp_path, changes)
        rewrite(tmp_path, lambda t, name=name: t.update({"lm_head.weight": t[f"{name}.weight"].copy()}))
        assert read(tmp_path).tobytes() == weights.tobytes()
        rewrite(tmp_path, lambda t: t.update({"lm_head.weight": t["lm_head.weight"] * 2}))
        assert "tie_word_embeddings is true, and yet lm_head.weight is another matrix" in refusal(tmp_path)


def test_prediction_heads_that_others_have_dropped(tmp_path: Path) -> None:
    write(tmp_path, {"num_prediction_heads": 3})
    (tmp_path / HEADS).unlink()
    files = open_directory(tmp_path)
    assert files.config.num_prediction_heads == 1
    assert files.note == "the 2 further prediction heads are not there any more"
    assert read(tmp_path).size == flat_size(parameter_shapes(files.config))


def test_heads_in_one_file_with_the_model_as_older_checkpoints_have_them(tmp_path: Path) -> None:
    weights = write(tmp_path, {"num_prediction_heads": 3})
    heads = load_file(tmp_path / HEADS)
    rewrite(tmp_path, lambda t: t.update(heads))
    (tmp_path / HEADS).unlink()
    assert read(tmp_path).tobytes() == weights.tobytes()


def test_end_ids(tmp_path: Path) -> None:
    write(tmp_path, {})
    assert open_directory(tmp_path).end_ids == ()
    configure(tmp_path, eos_token_id=[3, 4])
    assert open_directory(tmp_path).end_ids == (3, 4)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5}', encoding="utf-8")
    assert open_directory(tmp_path).end_ids == (5,)


def test_the_tokenizer_comes_along(tmp_path: Path) -> None:
    config = ModelConfig(**SMALL | {"vocab_size": 256})
    views = named_views(weights_of(config), parameter_shapes(config))
    write_model_files(tmp_path, config, views, "float32", ByteTokenizer())
    assert (tmp_path / "nanoeuler_tokenizer.json").exists()


# --- what is refused


def test_tensors_that_are_missing_surplus_or_of_another_shape(tmp_path: Path) -> None:
    write(tmp_path, {})
    whole = load_file(tmp_path / WEIGHTS)
    for tensors, words in (
        ({name: tensor for name, tensor in whole.items() if name != NAME}, f"tensor {NAME} is missing"),
        (whole | {NAME: np.zeros((12, 11), np.float32)}, f"tensor {NAME} has the shape (12, 11)"),
        (whole | {"model.extra": np.zeros(3)}, "model.extra is not part"),
        ({}, "is missing"),
    ):
        rewrite(tmp_path, lambda t, tensors=tensors: t.clear() or t.update(tensors))
        assert words in refusal(tmp_path)
        assert refusal(tmp_path).startswith(str(tmp_path))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(value: float, tmp_path: Path) -> None:
    write(tmp_path, {})

    def spoil(tensors: dict[str, np.ndarray]) -> None:
        tensors[NAME][1, 2] = tensors[NAME][0, 0] = value

    rewrite(tmp_path, spoil)
    assert f"tensor {NAME}: 2 of its 144 numbers are infinite or NaN" in refusal(tmp_path)


def test_numbers_that_are_not_finite_in_float32(tmp_path: Path) -> None:
    write(tmp_path, {})
    rewrite(tmp_path, lambda t: t.update({NAME: np.full((12, 12), 1e300)}))
    assert "144 of its 144 numbers are infinite or NaN (in float32)" in refusal(tmp_path)
    assert np.isfinite(read(tmp_path, np.float64)).all()


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda index: index.clear(), "no weight_map"),
        (lambda index: index.update(weight_map=[1]), "no weight_map"),
        (lambda index: index["weight_map"].update({NAME: 7}), "no weight_map"),
        (lambda index: index["weight_map"].update({NAME: "model-9.safetensors"}), "there is no such file"),
        (lambda index: index["weight_map"].update({NAME: "\0.safetensors"}), "there is no such file"),
        (lambda index: index["weight_map"].update({NAME: "x" * 999 + ".safetensors"}), "there is no such file"),
        (lambda index: index["weight_map"].update({NAME: "../model.safetensors"}), "not a file of tensors in this"),
        (lambda index: index["weight_map"].update({NAME: "config.json"}), "not a file of tensors in this folder"),
        (lambda index: index["weight_map"].pop(NAME), "is not said to be in"),
        (lambda index: index["weight_map"].update({"new": index["weight_map"][NAME]}), "tensor new is said to be in"),
    ],
)  # fmt: skip
def test_an_index_that_lies(edit: Callable[[dict[str, Any]], Any], words: str, tmp_path: Path) -> None:
    write(tmp_path, {})
    shard(tmp_path, 2)
    index = json.loads((tmp_path / INDEX).read_text(encoding="utf-8"))
    edit(index)
    (tmp_path / INDEX).write_text(json.dumps(index), encoding="utf-8")
    assert words in refusal(tmp_path)
    assert refusal(tmp_path).startswith(str(tmp_path / INDEX))


def test_a_configuration_that_claims_more_than_there_is_takes_no_memory(tmp_path: Path) -> None:
    write(tmp_path, {})
    configure(tmp_path, hidden_size=2**20, head_dim=2**19, vocab_size=2**30, nanoeuler="absent")
    assert "has the shape" in refusal(tmp_path)


def test_what_the_configuration_asks_for_is_refused_before_the_weights_are_looked_at(tmp_path: Path) -> None:
    write(tmp_path, {})
    (tmp_path / WEIGHTS).unlink()
    (tmp_path / INDEX).unlink()
    configure(tmp_path, model_type="mixtral")
    assert "'mixtral'" in refusal(tmp_path)
    configure(tmp_path, model_type="llama", nanoeuler="absent")
    assert "no weights: neither model.safetensors nor" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    assert refusal(tmp_path).startswith(f"{tmp_path / 'config.json'}:1: ")
    (tmp_path / "config.json").unlink()
    assert refusal(tmp_path).startswith(f"{tmp_path / 'config.json'}: missing")


@pytest.mark.parametrize(
    "file", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "consolidated.00.pth", "a.ckpt"]
)
def test_pickles_are_refused(file: str, tmp_path: Path) -> None:
    write(tmp_path, {})
    (tmp_path / file).write_bytes(b"\x80\x02")
    assert read(tmp_path).size  # beside safetensors it is of no consequence
    (tmp_path / WEIGHTS).unlink()
    (tmp_path / INDEX).unlink()
    message = refusal(tmp_path)
    assert file in message
    assert "can run any code" in message
    assert "python -c" in message


@pytest.mark.slow
def test_the_command_that_converts_a_pickle(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="pickled weights are PyTorch's")
    pytest.importorskip("transformers", reason="the command is of transformers")
    folder = tmp_path / "old model"
    folder.mkdir()
    weights = write(folder, {})
    tensors = {name: torch.from_numpy(tensor) for name, tensor in load_file(folder / WEIGHTS).items()}
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    (folder / INDEX).unlink()
    command = refusal(folder).splitlines()[-1].strip()
    assert command.startswith("python -c ")
    converted = re.search(r"save_pretrained\('(.+?)'\)", command)
    assert converted
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(command, shell=True, check=True, cwd=tmp_path, env=environment, capture_output=True)
    assert read(tmp_path / converted[1]).tobytes() == weights.tobytes()
