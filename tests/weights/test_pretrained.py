"""A model by its path or id: which kind of file it is, its tokenizer, its ends, and what is said of all else."""

import json
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus.hub_server import Hub

import nanoeuler.plan
from nanoeuler.checkpoint import Checkpoint, write_checkpoint
from nanoeuler.config import Config
from nanoeuler.errors import UserError
from nanoeuler.parameters import flat_size, initial_weights, named_views, parameter_shapes
from nanoeuler.tokenizer import CharTokenizer
from nanoeuler.weights import load_pretrained, open_model
from nanoeuler.weights.llama2c import write_llama2c
from nanoeuler.weights.llmc import write_llmc
from nanoeuler.weights.pretrained import needed_tokenizer, outline_model, read_tokenizer

TOKENIZER = CharTokenizer("abcdefg\n")
SIZES: dict[str, Any] = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "max_seq_len": 12, "vocab_size": 8}
CONFIG = Config.model_validate({"model": SIZES})
WEIGHTS = initial_weights(CONFIG.model, 3)


def write_run(run: Path, step: int = 1, weights: np.ndarray = WEIGHTS) -> Path:
    """Write a checkpoint into a run's folder; return the folder."""
    run.mkdir(exist_ok=True)
    write_checkpoint(run, step, Checkpoint(CONFIG, weights, None, {}, TOKENIZER), keep=9)
    return run


def refusal(source: str | Path) -> str:
    with pytest.raises(UserError) as caught:
        load_pretrained(source)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give what others would call a model's folder: a configuration and weights, nothing else."""
    checkpoint = next((write_run(tmp_path / "run") / "checkpoints").iterdir())
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(checkpoint / name, folder)
    return folder


# --- what is a model


def test_a_run_its_checkpoints_and_a_checkpoint(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for source in (run, run / "checkpoints", run / "checkpoints" / "step-00000001", str(run)):
        loaded = load_pretrained(source)
        assert loaded.config == CONFIG.model
        assert np.array_equal(loaded.weights, WEIGHTS)
        assert loaded.tokenizer is not None
        assert loaded.tokenizer.fingerprint == TOKENIZER.fingerprint
        assert loaded.source == str(source)
        assert loaded.end_ids == ()
        assert outline_model(source).config == CONFIG.model


def test_of_a_run_the_newest_checkpoint_that_is_whole(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_run(run, 2, WEIGHTS + 1)
    assert np.array_equal(load_pretrained(run).weights, WEIGHTS + 1)
    damaged = run / "checkpoints" / "step-00000002" / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    assert np.array_equal(load_pretrained(run).weights, WEIGHTS)
    assert "step-00000002/model.safetensors: damaged" in open_model(run).note
    assert "model.safetensors: damaged: its SHA-256 is not the one" in refusal(damaged.parent)


def test_a_folder_and_a_file_in_it(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "another.safetensors")
    for source in (folder, folder / "model.safetensors", folder / "another.safetensors"):
        loaded = load_pretrained(source)
        assert loaded.config == CONFIG.model
        assert np.array_equal(loaded.weights, WEIGHTS)
        assert loaded.tokenizer is None
        assert outline_model(source).config == CONFIG.model
        assert read_tokenizer(outline_model(source)) is None
    with pytest.raises(UserError, match="there is no tokenizer beside the weights, and text takes one"):
        needed_tokenizer(open_model(folder))


def test_a_file_of_llama2c_and_the_one_tokenizer_of_its_size(tmp_path: Path) -> None:
    views = named_views(WEIGHTS, parameter_shapes(CONFIG.model))
    write_llama2c(tmp_path / "model.bin", CONFIG.model, views)
    loaded = load_pretrained(tmp_path / "model.bin")
    assert np.array_equal(loaded.weights, WEIGHTS)
    assert loaded.config.vocab_size == 8
    assert loaded.tokenizer is None
    assert loaded.end_ids == (1, 2)


def test_a_file_of_llmc(tmp_path: Path) -> None:
    config = Config.model_validate({"model": SIZES | {"preset": "gpt2"}}).model
    weights = initial_weights(config, 3)
    write_llmc(tmp_path / "model.bin", config, named_views(weights, parameter_shapes(config)), "float32")
    loaded = load_pretrained(tmp_path / "model.bin")
    assert np.array_equal(loaded.weights, weights)
    assert loaded.config == config
    assert loaded.tokenizer is None  # its vocabulary is not GPT-2's


def test_weights_are_rounded_to_the_dtype_that_is_wanted(folder: Path) -> None:
    assert load_pretrained(folder, np.float64).weights.dtype == np.float64
    assert np.array_equal(load_pretrained(folder, np.float16).weights, WEIGHTS.astype(np.float16))


def test_a_tokenizer_that_cannot_be_read_stops_nobody_who_needs_none(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"model": {"type": "Unheard"}}', encoding="utf-8")
    loaded = load_pretrained(folder)
    assert np.array_equal(loaded.weights, WEIGHTS)
    for _ in range(2):
        with pytest.raises(UserError, match=r"tokenizer\.json"):
            _ = loaded.tokenizer


@pytest.mark.parametrize(
    ("config", "generation", "ends"),
    [
        ({}, None, ()),
        ({"eos_token_id": 3}, None, (3,)),
        ({"eos_token_id": [3, 5]}, None, (3, 5)),
        ({"eos_token_id": 3}, {"eos_token_id": [4, 6]}, (4, 6)),
        ({"eos_token_id": 3}, {"temperature": 1}, (3,)),
    ],
    ids=str,
)
def test_what_ends_a_generation(
    config: dict[str, Any], generation: dict[str, Any] | None, ends: tuple[int, ...], folder: Path
) -> None:
    path = folder / "config.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record.pop("eos_token_id", None)
    path.write_text(json.dumps(record | config), encoding="utf-8")
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    assert load_pretrained(folder).end_ids == ends


def test_the_real_model_in_both_its_forms() -> None:
    models = Path(os.environ.get("NANOEULER_DATA", "nowhere")).parent / "models" / "stories260K"
    if not models.is_dir():
        pytest.skip("the folder 'models' beside NANOEULER_DATA, with stories260K, is not here")
    folder, file = load_pretrained(models / "hf"), load_pretrained(models / "stories260K.bin")
    assert folder.config.model_dump() == file.config.model_dump()
    assert np.array_equal(folder.weights, file.weights)
    assert folder.tokenizer is not None
    assert file.tokenizer is not None
    assert folder.tokenizer.prefix == file.tokenizer.prefix == (1,)
    text = "Once upon a time, there was a café."
    assert folder.tokenizer.encode(text).tolist() == file.tokenizer.encode(text).tolist()
    assert (folder.end_ids, file.end_ids) == ((2,), (1, 2))


# --- what is none


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (struct.pack("<3i", 20240520, 1, 9) + bytes(1012), "tokens, a shard of a corpus: give its folder to --data."),
        (struct.pack("<i", 20240522) + bytes(1020), "an evaluation set of llm.c"),
        (struct.pack("<i", 20240527) + bytes(1020), "the optimizer's state of llm.c"),
        (struct.pack("<i", 20240326) + bytes(1020), "version 0 of llm.c's checkpoints"),
        (b"PK\x03\x04" + bytes(99), "a pickle, which can run any code when it is read"),
        (b"\x80\x02}q\x00.", "a pickle, which can run any code when it is read"),
        (b"GGUF" + bytes(99), "a model in llama.cpp's GGUF, which is not read here"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "only a pointer of Git LFS to the file: run"),
        (b"24ka" + struct.pack("<i", 2) + bytes(300), "quantised to eight bits"),
        (struct.pack("<7i", 16, 32, 1, 2, 2, 8, 4) + bytes(10), "cut off"),
        (b"", "not a model of a kind that we know"),
        (b"To be, or not to be, that is the question", "not a model of a kind that we know: that is a folder"),
        (bytes(4000), "not a model of a kind that we know"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_files_that_are_no_model(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(content)
    message = refusal(path)
    assert message.startswith(str(tmp_path))
    assert "file.bin" in message
    assert said in message


def test_a_file_in_a_models_folder(folder: Path) -> None:
    assert refusal(folder / "config.json") == f"{folder / 'config.json'}: not a model: give the folder that it is in"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == f"{tmp_path / 'pipe'}: neither a file nor a folder"


def test_paths_that_do_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "stories")
    Path("runs").mkdir()
    write_run(Path("runs/mine"))
    assert refusal("storys").startswith("storys: there is no such file or folder (did you mean 'stories'?); a model is")
    said = refusal("runs/mime")  # no id, since there is a folder of the first name
    assert said.startswith("runs/mime: there is no such file or folder (did you mean 'mine'?); for the hub's model of")
    assert said.endswith("give runs/mime@main")
    assert "no such file or folder" in refusal(Path("owner/name"))  # a path, whatever it looks like
    assert "no such file or folder" in refusal("a\0b")
    assert "no such file or folder" in refusal("x" * 5000)


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = 4 * flat_size(parameter_shapes(CONFIG.model))
    monkeypatch.setattr(nanoeuler.plan, "available_bytes", lambda: needed - 1)
    monkeypatch.setattr(np, "zeros", lambda *_: pytest.fail("memory was taken"))
    assert "weights take" in (said := refusal(folder))
    assert f"{folder}: its " in said
    monkeypatch.undo()
    monkeypatch.setattr(nanoeuler.plan, "available_bytes", lambda: needed)
    load_pretrained(folder)


def test_what_is_wrong_with_a_tensor_names_the_model(folder: Path) -> None:
    run = write_run(folder.with_name("run2"), weights=np.where(np.arange(WEIGHTS.size) == 5, np.nan, WEIGHTS))
    assert "numbers are infinite or NaN" in (said := refusal(run))
    assert said.startswith(str(run))


# --- a hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    server = Hub(tmp_path / "hub", tmp_path / "hub_home")
    yield server
    server.close()


def test_a_model_of_the_hub(folder: Path, hub: Hub) -> None:
    pytest.importorskip("huggingface_hub", reason="needs the extra 'hub'")
    TOKENIZER.save(folder)
    shutil.copytree(folder, hub.folder / "owner/name")
    done = hub.run(
        """
import json
from nanoeuler.weights.pretrained import load_pretrained, outline_model, read_tokenizer
outline = outline_model("owner/name")
kind = read_tokenizer(outline).kind
loaded = load_pretrained("owner/name")
print(json.dumps([outline.config == loaded.config, kind, loaded.weights.tolist(), loaded.source]))
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [True, "char", WEIGHTS.tolist(), "owner/name"]
    first = next(i for i, request in enumerate(hub.requests) if "model.safetensors" in request)
    assert all("nanoeuler_tokenizer.json" not in request for request in hub.requests[first:])
