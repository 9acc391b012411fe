"""``python -m nanoeuler.convert``: between all formats nothing changes, and nothing that was there is lost."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import GPT2, LLAMA, TOKENIZER, make_bin, make_run, weights_of

from nanoeuler import convert, cpu
from nanoeuler.config import ModelConfig
from nanoeuler.errors import UserError, run_command
from nanoeuler.model import Transformer
from nanoeuler.parameters import named_views, parameter_shapes
from nanoeuler.tokenizer import load_tokenizer
from nanoeuler.weights import load_pretrained, open_model
from nanoeuler.weights.llmc import write_llmc
from nanoeuler.weights.tensors import narrow, widen


def convert_here(*arguments: object) -> int:
    return run_command(convert.main, [str(argument) for argument in arguments])


def refusal(*arguments: object) -> str:
    with pytest.raises(UserError) as caught:
        convert.main([str(argument) for argument in arguments])
    return str(caught.value)


def tensors_of(path: Path) -> dict[str, tuple[str, bytes]]:
    """Return dtype and bytes of every tensor of a model."""
    return {name: (tensor.dtype, tensor.read().tobytes()) for name, tensor in open_model(path).tensors.items()}


def files_under(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


# --- round trips


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_llm_c_to_a_folder_and_back(dtype: str, tmp_path: Path) -> None:
    source = make_bin(tmp_path / "gpt2.bin", dtype, **GPT2)
    assert convert_here(source, tmp_path / "folder") == 0
    assert {stored for stored, _ in tensors_of(tmp_path / "folder").values()} == {dtype}
    assert tensors_of(tmp_path / "folder") == tensors_of(source)
    assert convert_here(tmp_path / "folder", tmp_path / "again.bin") == 0
    assert (tmp_path / "again.bin").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("tied", [True, False])
def test_llama2_c_to_a_folder_and_back(tied: bool, tmp_path: Path) -> None:
    source = make_bin(tmp_path / "llama.bin", **LLAMA, tie_embeddings=tied)
    assert convert_here(source, tmp_path / "folder") == 0
    assert tensors_of(tmp_path / "folder") == tensors_of(source)
    assert convert_here(tmp_path / "folder", tmp_path / "again.bin") == 0
    assert (tmp_path / "again.bin").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("model", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_a_run_through_every_format(model: dict[str, Any], dtype: str, tmp_path: Path) -> None:
    """Into a dtype once; from then on every bit stays, as every format here has the dtype or a wider one."""
    run = make_run(tmp_path / "run", **model)
    assert convert_here(run, tmp_path / "folder", "--dtype", dtype) == 0
    assert {stored for stored, _ in tensors_of(tmp_path / "folder").values()} == {dtype}
    assert convert_here(tmp_path / "folder", tmp_path / "model.bin") == 0
    assert convert_here(tmp_path / "model.bin", tmp_path / "again", "--dtype", dtype) == 0
    assert tensors_of(tmp_path / "again") == tensors_of(tmp_path / "folder")
    assert open_model(tmp_path / "again").config == open_model(tmp_path / "folder").config


def test_rounding_is_to_the_nearest(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", **LLAMA)
    for dtype in ("float16", "bfloat16"):
        assert convert_here(run, tmp_path / dtype, "--dtype", dtype) == 0
    exact = load_pretrained(run).weights
    np.testing.assert_array_equal(load_pretrained(tmp_path / "float16").weights, exact.astype(np.float16))
    np.testing.assert_array_equal(load_pretrained(tmp_path / "bfloat16").weights, widen(narrow(exact)))


def test_only_what_is_rounded_is_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_run(tmp_path / "run", **LLAMA)
    steps = {"one": "bfloat16", "two": "float32", "three": "float16", "four": "bfloat16", "five": "float16"}
    for name, dtype in steps.items():
        assert convert_here(source, tmp_path / name, "--dtype", dtype) == 0
        source = tmp_path / name
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("written")]
    assert [", rounded, " in line for line in lines] == [True, False, True, True, True]


def test_the_tokenizer_comes_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", **GPT2)
    assert convert_here(run, tmp_path / "folder") == 0
    assert load_tokenizer(tmp_path / "folder").fingerprint == TOKENIZER.fingerprint
    out = capsys.readouterr().out
    assert "char, 10 tokens: in it\n" in out
    assert f"python -m nanoeuler.generate --checkpoint {tmp_path / 'folder'}" in out
    assert convert_here(run, tmp_path / "gpt2.bin") == 0
    out = capsys.readouterr().out
    assert "llm.c takes GPT-2's vocabulary for granted, and this model has another" in out
    assert f"python -m nanoeuler.inspect {tmp_path / 'gpt2.bin'}" in out


def test_prediction_heads_are_kept_where_there_is_a_place_for_them_and_named_where_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", **LLAMA, num_prediction_heads=3)
    assert convert_here(run, tmp_path / "folder") == 0
    assert tensors_of(tmp_path / "folder") == tensors_of(run)
    assert "without" not in capsys.readouterr().out
    assert convert_here(run, tmp_path / "model.bin") == 0
    assert "without  2 further prediction heads: llama2.c has no place for them" in capsys.readouterr().out
    assert open_model(tmp_path / "model.bin").config == ModelConfig(**LLAMA)


@pytest.mark.parametrize("model", [GPT2, LLAMA, LLAMA | {"qk_norm": True}, LLAMA | {"qkv_bias": True}])
def test_transformers_loads_the_folder(model: dict[str, Any], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the oracle of this test is PyTorch")
    transformers = pytest.importorskip("transformers", reason="the oracle of this test is transformers")
    transformers.logging.set_verbosity_error()
    run = make_run(tmp_path / "run", **model)
    assert convert_here(run, tmp_path / "folder") == 0
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "folder").eval()
    tokens = np.array([[3, 1, 19, 0, 7, 7, 2]])
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens)).logits.numpy()
    loaded = load_pretrained(run)
    logits = Transformer(loaded.config, cpu, loaded.weights, 1, 7).logits(tokens)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


# --- the format that is meant


def test_dst_tells_the_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", **GPT2)
    assert convert_here(run, tmp_path / "one.bin") == 0
    assert "one.bin: llm.c, float32, " in capsys.readouterr().out
    assert convert_here(run, tmp_path / "two.bin", "--to", "huggingface") == 0
    assert (tmp_path / "two.bin" / "config.json").is_file()
    assert convert_here(run, tmp_path / "three", "--to", "llm.c", "--dtype", "bfloat16") == 0
    assert "three: llm.c, bfloat16, rounded, " in capsys.readouterr().out
    assert open_model(tmp_path / "one.bin").format == "llm.c"


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (LLAMA, ["model.bin", "--to", "llm.c"], "norm is rmsnorm, there layernorm"),
        (GPT2, ["model.bin", "--to", "llama2.c"], "norm is layernorm, there rmsnorm"),
        (LLAMA | {"qk_norm": True}, ["model.bin"], "this model is of the family qwen3: give a folder"),
        (LLAMA | {"rope_theta": 5e5}, ["model.bin"], "rope_theta is 500000.0, there 10000.0"),
        (LLAMA, ["model.bin", "--dtype", "bfloat16"], "llama2.c has no such files; it has float32"),
        (GPT2, ["model.bin", "--dtype", "float16"], "llm.c has no such files; it has float32 and bfloat16"),
    ],
)
def test_what_a_format_cannot_hold(
    model: dict[str, Any], options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", **model)
    monkeypatch.setattr(convert, "read_weights", None)  # it is known before they are read
    assert message in refusal(run, tmp_path / options[0], *options[1:])
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# --- what is there already


@pytest.mark.parametrize("destination", ["folder", "model.bin"])
def test_nothing_is_overwritten_unless_forced(destination: str, tmp_path: Path) -> None:
    one, other = (make_run(tmp_path / name, **GPT2) for name in ("one", "other"))
    target = tmp_path / destination
    assert convert_here(one, target, "--dtype", "bfloat16") == 0
    before = files_under(tmp_path)
    assert f"{target}: there already; --force replaces it" in refusal(other, target)
    assert files_under(tmp_path) == before
    assert convert_here(other, target, "--force") == 0
    assert {dtype for dtype, _ in tensors_of(target).values()} == {"float32"}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["one", "other", destination])


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", **GPT2)
    (tmp_path / "folder").mkdir()
    assert convert_here(run, tmp_path / "folder") == 0
    assert tensors_of(tmp_path / "folder") == tensors_of(run)


def test_force_replaces_nothing_but_a_model(tmp_path: Path) -> None:
    run, other = (make_run(tmp_path / name, **GPT2) for name in ("run", "other"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "config.json").write_text("{}", encoding="utf-8")
    assert convert_here(run, tmp_path / "mixed") == 0
    (tmp_path / "mixed" / "thesis").mkdir()
    before = files_under(tmp_path)
    for target in (
        tmp_path / "notes",
        tmp_path / "mixed",
        other,
        other / "checkpoints",
        other / "checkpoints" / "step-00000005",
    ):
        assert "more in it than a model" in refusal(run, target, "--force")
    assert f"{tmp_path / 'notes'}: a folder, and a model of llm.c is a file" in refusal(
        run, tmp_path / "notes", "--to", "llm.c", "--force"
    )
    file = tmp_path / "notes" / "config.json"
    assert "a file, and a model of Hugging Face's format is a folder" in refusal(run, file, "--force")
    assert files_under(tmp_path) == before


def test_the_source_is_never_the_destination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_bin(tmp_path / "gpt2.bin", **GPT2)
    assert convert_here(source, tmp_path / "deep" / "folder") == 0
    folder = tmp_path / "deep" / "folder"
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "link.bin").symlink_to(source)
    monkeypatch.chdir(folder)
    before = files_under(tmp_path)
    for arguments in [
        (source, source),
        (source, tmp_path / "link.bin"),
        (tmp_path / "link.bin", source),
        (folder, folder),
        (tmp_path / "link", folder),
        (folder, tmp_path / "link"),
        (folder, "."),
        (folder, ".."),
        (folder, tmp_path),
        (folder, folder / "model.safetensors", "--to", "llm.c"),
    ]:
        assert "this is, has or belongs to the model that is to be converted" in refusal(*arguments, "--force")
    assert files_under(tmp_path) == before


def test_a_link_is_followed(tmp_path: Path) -> None:
    source = make_bin(tmp_path / "gpt2.bin", **GPT2)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert convert_here(source, tmp_path / "link") == 0
    assert (tmp_path / "link").is_symlink()
    assert tensors_of(tmp_path / "elsewhere") == tensors_of(source)


# --- what goes wrong


@pytest.mark.parametrize("destination", ["folder", "model.bin"])
def test_a_file_that_does_not_fit_on_the_disk(destination: str, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="this system cannot limit the size of files")
    run = make_run(tmp_path / "run", **GPT2)
    before = files_under(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
    try:
        message = refusal(run, tmp_path / destination)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "File too large" in message
    assert destination in message
    assert files_under(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("destination", ["folder", "model.bin"])
def test_a_folder_that_nobody_may_write_to(destination: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", **GPT2)
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    if os.access(closed, os.W_OK):
        closed = Path("/proc")  # root may write anywhere but here
        if not closed.is_dir():
            pytest.skip("root may write to any folder of this system")
    message = refusal(run, closed / destination)
    assert message.startswith(f"{closed / destination}: cannot write it: ")


def test_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", **GPT2)
    monkeypatch.setattr(convert, "available_on", lambda device: 1 << 20)
    assert "to convert this model takes 300 MiB of memory" in refusal(run, tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    config = ModelConfig(**GPT2)
    views = named_views(weights_of(config), parameter_shapes(config))
    views["layers.1.down.weight"][3, 4] = np.inf
    write_llmc(tmp_path / "model.bin", config, views, "float32")
    assert "transformer.h.1.mlp.c_proj.weight: 1 of its" in refusal(tmp_path / "model.bin", tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_a_number_beyond_the_dtype(tmp_path: Path) -> None:
    config = ModelConfig(**GPT2)
    views = named_views(weights_of(config), parameter_shapes(config))
    views["layers.1.down.weight"][3, 4] = 7e4  # the largest float16 is 65504
    write_llmc(tmp_path / "model.bin", config, views, "float32")
    message = refusal(tmp_path / "model.bin", tmp_path / "folder", "--dtype", "float16")
    assert "transformer.h.1.mlp.c_proj.weight" in message
    assert [path.name for path in tmp_path.iterdir()] == ["model.bin"]


def test_hostile_sources(tmp_path: Path) -> None:
    """Each gives one error, and nothing is written."""
    good = make_bin(tmp_path / "good.bin", **GPT2).read_bytes()
    claim = np.frombuffer(good, "<i4").copy()
    claim[2:8] = 2**31 - 1
    for content in (b"", b"\0" * 5000, good[:-1], good + b"\0", good[:100], claim.tobytes(), b"PK\3\4" + bytes(999)):
        (tmp_path / "bad.bin").write_bytes(content)
        assert "bad.bin" in refusal(tmp_path / "bad.bin", tmp_path / "folder")
        assert not (tmp_path / "folder").exists()
    assert "nowhere" in refusal(tmp_path / "nowhere", tmp_path / "folder")


def test_the_command(tmp_path: Path) -> None:
    source = make_bin(tmp_path / "gpt2.bin", **GPT2)
    command = [sys.executable, "-m", "nanoeuler.convert", str(source), str(tmp_path / "folder")]
    assert subprocess.run(command, capture_output=True).returncode == 0
    again = subprocess.run(command, capture_output=True, text=True)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == f"error: {tmp_path / 'folder'}: there already; --force replaces it\n"


# --- llama2.c's tokenizer

MODELS = Path(os.environ.get("NANOEULER_DATA", "no such folder")).parent / "models" / "stories260K"
real = pytest.mark.skipif(
    not (MODELS / "tok512.bin").is_file(),
    reason="the weights of stories260K are not in ../models beside the folder that NANOEULER_DATA names",
)


@real
def test_stories260k_to_a_folder_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "model.bin").write_bytes((MODELS / "stories260K.bin").read_bytes())
    (source / "tokenizer.bin").write_bytes((MODELS / "tok512.bin").read_bytes())
    assert convert_here(source / "model.bin", tmp_path / "folder") == 0
    assert tensors_of(tmp_path / "folder") == tensors_of(MODELS / "hf")
    assert convert_here(tmp_path / "folder", tmp_path / "again" / "model.bin") == 0
    assert (tmp_path / "again" / "tokenizer.bin").read_bytes() == (MODELS / "tok512.bin").read_bytes()
    assert f"llama2c, 512 tokens: {tmp_path / 'again' / 'tokenizer.bin'}" in capsys.readouterr().out
    assert tensors_of(tmp_path / "again" / "model.bin") == tensors_of(MODELS / "hf")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tokenizer.bin").write_bytes(b"another")
    message = refusal(tmp_path / "folder", tmp_path / "other" / "model.bin")
    assert "tokenizer.bin: another tokenizer is there already; --force replaces it" in message
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["tokenizer.bin"]
    message = refusal(tmp_path / "folder", tmp_path / "other" / "tokenizer.bin", "--force")
    assert "llama2.c has its tokenizer under this name" in message
