"""Text from a checkpoint: the same for the same seed, streamed in whole characters, and clear about what is wrong."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs

import nanoeuler.generate
import nanoeuler.plan
from nanoeuler import cpu
from nanoeuler.checkpoint import Checkpoint, find_checkpoint, write_checkpoint
from nanoeuler.config import Config
from nanoeuler.generate import print_stream
from nanoeuler.model import Transformer
from nanoeuler.parameters import initial_weights
from nanoeuler.tokenizer import ByteTokenizer, CharTokenizer, Tokenizer

CHARACTERS = "abcdefg éß\n"


def write_run(
    run: Path, tokenizer: Tokenizer, step: int = 3, seed: int = 0, dtype: str = "float32", **model: Any
) -> Path:
    """Write a checkpoint of an untrained model whose logits differ enough for a text of its own."""
    sizes = {"max_seq_len": 16, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "init_std": 0.4}
    sections = {"model": {"vocab_size": tokenizer.vocab_size} | sizes | model, "training": {"dtype": dtype}}
    config = Config.model_validate(sections)
    run.mkdir(exist_ok=True)
    weights = initial_weights(config.model, seed, dtype)
    write_checkpoint(run, step, Checkpoint(config, weights, None, {}, tokenizer), keep=9)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("generate") / "run", CharTokenizer(CHARACTERS))


def text(capfd: pytest.CaptureFixture[str], run: Path, *arguments: str, tokens: int = 60) -> str:
    """Return what is printed; every call must succeed without a word on stderr."""
    assert runs.generate_here("--checkpoint", str(run), "--tokens", str(tokens), *arguments) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out


def refusal(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one message of a command that must fail."""
    assert runs.generate_here(*arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("error:") == 1
    assert "Traceback" not in err
    return err


# --- text


def test_a_prompt_and_then_as_many_characters_as_asked_for(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = text(capfd, run, "--prompt", "abc", tokens=100)  # six times the context
    assert out.startswith("abc")
    assert len(out) == 3 + 100 + 1
    assert set(out) <= set(CHARACTERS)
    assert len(set(out)) > 3


def test_the_same_seed_gives_the_same_text(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert text(capfd, run) == text(capfd, run) == text(capfd, run, "--seed", "0")
    assert len({text(capfd, run, "--seed", seed) for seed in ("0", "1", "12345678901234567890")}) == 3


def test_samples_differ_and_the_first_is_that_of_one(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    three = text(capfd, run, "--samples", "3", "--prompt", "a").removesuffix("\n").split("\n" + "-" * 40)
    assert len(three) == len(set(three)) == 3
    assert three[0] + "\n" == text(capfd, run, "--prompt", "a")


def test_greedy_is_the_same_for_every_seed(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    greedy = text(capfd, run, "--temperature", "0", "--prompt", "g")
    assert greedy == text(capfd, run, "--temperature", "0", "--prompt", "g", "--seed", "7")
    assert greedy == text(capfd, run, "--top-k", "1", "--prompt", "g", "--seed", "8")
    assert greedy == text(capfd, run, "--top-p", "0", "--prompt", "g")
    assert greedy == text(capfd, run, "--min-p", "1", "--prompt", "g")


def test_every_option_reaches_the_sampling(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    usual = text(capfd, run, tokens=200)
    for option in ("--temperature=2", "--top-k=3", "--top-p=0.5", "--min-p=0.5", "--repetition-penalty=5"):
        assert text(capfd, run, option, tokens=200) != usual, option


def test_the_prompt_may_be_longer_than_the_context(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    long = "abcdefg" * 9
    assert text(capfd, run, "--prompt", long, tokens=5).startswith(long)


def test_one_checkpoint_can_be_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, CharTokenizer(CHARACTERS), step=1, seed=1)
    write_run(tmp_path, CharTokenizer(CHARACTERS), step=2, seed=2)
    one, two = (tmp_path / "checkpoints" / f"step-0000000{step}" for step in (1, 2))
    assert text(capfd, tmp_path) == text(capfd, two) != text(capfd, one)


@pytest.mark.parametrize("model", [{"preset": "gpt2"}, {"num_kv_heads": 1, "num_prediction_heads": 2}], ids=str)
def test_every_kind_of_model(model: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, ByteTokenizer(), **model)
    assert runs.generate_here("--checkpoint", str(tmp_path), "--tokens", "40") == 0
    assert len(capfd.readouterr().out) > 10


@pytest.mark.parametrize(("device", "dtype"), [("cpu", np.float64), ("sim", np.float32), ("gpu", np.float32)])
def test_weights_of_float64_are_float32_to_kernels(
    device: str, dtype: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    models: list[Transformer] = []

    def building(*arguments: Any) -> Transformer:
        models.append(Transformer(*arguments))
        return models[0]

    write_run(tmp_path, CharTokenizer(CHARACTERS), dtype="float64")
    monkeypatch.setattr(nanoeuler.generate, "op_table", lambda device: cpu)
    monkeypatch.setattr(nanoeuler.generate, "available_on", lambda device: None)
    monkeypatch.setattr(nanoeuler.generate, "Transformer", building)
    assert len(text(capfd, tmp_path, "--device", device)) > 60
    assert models[0].dtype == dtype


def test_without_a_prompt_a_text_without_newlines_begins_anyhow(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, CharTokenizer("abc"))
    assert len(text(capfd, tmp_path)) == 1 + 60 + 1


# --- models of others


def of_others(run: Path, folder: Path, **config: Any) -> Path:
    """Make of a run's checkpoint what others would have made: no checksums, a configuration that says more."""
    folder.mkdir()
    for path in find_checkpoint(run)[0].iterdir():
        if path.name in ("config.json", "model.safetensors", "nanoeuler_tokenizer.json"):
            (folder / path.name).write_bytes(path.read_bytes())
    record = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(record | config), encoding="utf-8")
    return folder


def test_a_text_ends_at_a_token_that_ends_texts(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = text(capfd, run, "--prompt", "ab").removesuffix("\n")
    assert whole == text(capfd, of_others(run, tmp_path / "endless"), "--prompt", "ab").removesuffix("\n")
    last = whole[20]
    before = whole[: 2 + whole[2:].index(last)]
    folder = of_others(run, tmp_path / "ending", eos_token_id=[int(CharTokenizer(CHARACTERS).encode(last)[0]), 999])
    assert text(capfd, folder, "--prompt", "ab") == before + "\n"
    assert text(capfd, folder, "--prompt", "ab", "--ignore-end") == whole + "\n"


def test_each_sample_ends_for_itself(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = of_others(run, tmp_path / "ending", eos_token_id=int(CharTokenizer(CHARACTERS).encode("a")[0]))
    samples = text(capfd, folder, "--prompt", "b", "--samples", "4").removesuffix("\n").split("\n" + "-" * 40 + "\n")
    assert len(samples) == 4
    assert len({len(sample) for sample in samples}) > 1
    assert not any("a" in sample for sample in samples)


@pytest.mark.parametrize(("tokens", "length"), [(4, 7), (13, 16), (10**9, 16)])
def test_no_more_is_planned_than_the_text_will_have(
    tokens: int, length: int, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PlannedError(Exception):
        pass

    def planning(config: Any, ops: Any, weights: Any, batch: int, length: int, purpose: str) -> Any:
        raise PlannedError(length)

    monkeypatch.setattr(nanoeuler.generate, "Transformer", planning)
    with pytest.raises(PlannedError, match=f"^{length}$"):
        runs.generate_here("--checkpoint", str(run), "--prompt", "abc", "--tokens", str(tokens))


def test_a_text_that_does_not_fit_is_refused_before_a_weight_is_read(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nanoeuler.plan, "available_bytes", lambda: 100 * 2**20)
    monkeypatch.setattr(nanoeuler.generate, "read_weights", lambda *_: pytest.fail("the weights were read"))
    message = refusal(capfd, "--checkpoint", str(run))
    assert "takes 300 MiB of memory and 100 MiB are available" in message
    assert "keys and values" in message


def test_what_the_model_expects_before_a_text_is_there_and_not_shown(
    run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    usual, after = text(capfd, run, "--prompt", "ab"), text(capfd, run, "--prompt", "gab")
    monkeypatch.setattr(CharTokenizer, "prefix", tuple(CharTokenizer(CHARACTERS).encode("g").tolist()))
    assert text(capfd, run, "--prompt", "ab") == after.removeprefix("g") != usual
    alone = text(capfd, run)  # a text of the model's own begins with the prefix alone
    assert len(alone) == 60 + 1
    assert alone == text(capfd, run, "--prompt", "")


def stories() -> Path:
    """Return the folder of a small real model, in two forms."""
    folder = Path(os.environ.get("NANOEULER_DATA", "nowhere")).parent / "models" / "stories260K"
    if not folder.is_dir():
        pytest.skip("the folder 'models' beside NANOEULER_DATA, with stories260K, is not here")
    return folder


def test_greedy_text_of_a_real_model_is_that_of_transformers(capfd: pytest.CaptureFixture[str]) -> None:
    """The prompt's own spaces, those between words and the missing one at the beginning are all part of it."""
    torch = pytest.importorskip("torch", reason="the oracle is transformers (extra 'oracles')")
    transformers = pytest.importorskip("transformers", reason="the oracle is transformers (extra 'oracles')")
    folder, prompt = stories(), "Once upon a time"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "hf")
    ids = tokenizer(prompt, return_tensors="pt")
    with torch.no_grad():
        out = theirs.generate(**ids, max_new_tokens=200, do_sample=False, pad_token_id=0)
    expected = tokenizer.decode(out[0], skip_special_tokens=True)
    capfd.readouterr()  # what transformers says
    greedy = ["--prompt", prompt, "--temperature", "0"]
    assert text(capfd, folder / "hf", *greedy, tokens=200) == expected + "\n"
    assert text(capfd, folder / "stories260K.bin", *greedy, tokens=200) == expected + "\n"
    assert expected.startswith("Once upon a time, there was a little girl")


# --- streaming


class Recorder(io.StringIO):
    """A stream that remembers what it was given piece by piece, and whether each piece was flushed."""

    encoding = "utf-8"

    def __init__(self, terminal: bool = False) -> None:
        super().__init__()
        self.terminal = terminal
        self.pieces: list[str] = []
        self.waiting = 0

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.pieces.append(text)
        self.waiting += 1
        return len(text)

    def flush(self) -> None:
        self.waiting = 0


def streamed(monkeypatch: pytest.MonkeyPatch, data: bytes, terminal: bool = False, **stream: Any) -> list[str]:
    """Return the pieces in which the bytes of a text are printed, the first two of them as the prompt."""
    recorder = Recorder(terminal)
    for name, value in stream.items():
        monkeypatch.setattr(Recorder, name, value)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", recorder)
        print_stream(ByteTokenizer(), list(data[:2]), list(data[2:]))
    assert recorder.waiting == 0
    return recorder.pieces


def test_a_character_of_several_bytes_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = streamed(monkeypatch, "aé\N{EURO SIGN}\N{OWL}z".encode())
    assert [piece for piece in pieces if piece] == ["a", "é", "\N{EURO SIGN}", "\N{OWL}", "z"]


def test_each_token_is_shown_as_soon_as_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert streamed(monkeypatch, b"abcd") == ["ab", "c", "d", ""]


@pytest.mark.parametrize("data", [b"ab\xff", b"ab\xc3", b"ab\xe2\x82", b"\xa9bc", b"ab\xc3d"])
def test_bytes_that_are_no_characters_are_replaced(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "".join(streamed(monkeypatch, data)) == data.decode("utf-8", "replace")


def test_ids_that_are_no_tokens_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a model may give where a vocabulary has holes."""
    recorder = Recorder()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", recorder)
        print_stream(ByteTokenizer(), [97, 300], [*"é".encode(), 256, 98])
    assert "".join(recorder.pieces) == "a\ufffdé\ufffdb"


def test_a_terminal_is_not_commanded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "".join(streamed(monkeypatch, b"ab\x1b[31m\nc", terminal=True)) == "ab\\x1b[31m\nc"
    assert "".join(streamed(monkeypatch, b"ab\x1b[31m\nc")) == "ab\x1b[31m\nc"  # a file gets the text as it is


def test_a_stream_of_another_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "".join(streamed(monkeypatch, "abé\N{OWL}".encode(), encoding="latin-1")) == "abé?"


def test_a_closed_pipe_is_not_worth_a_word(run: Path) -> None:
    arguments = ["--checkpoint", str(run), "--tokens", "1000000", "--prompt", "ab"]
    with runs.start("generate", arguments) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(2) == b"ab"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_as_a_command_of_its_own(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--checkpoint", str(run), "--tokens", "60"]
    with runs.start("generate", arguments) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert out.decode().replace(os.linesep, "\n") == text(capfd, run)
    with runs.start("generate", [*arguments, "--prompt", "x"]) as process:
        out, err = process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert err.startswith(b"error: character 'x' (U+0078) at position 0 is not in the tokenizer's vocabulary")
    assert err.count(b"\n") == 1


# --- what is refused


def test_a_prompt_that_the_vocabulary_lacks_is_named(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    message = refusal(capfd, "--checkpoint", str(run), "--prompt", "abZc")
    assert "character 'Z' (U+005A) at position 2" in message
    assert "abcdefg" in message


def test_an_empty_prompt(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "the prompt is empty" in refusal(capfd, "--checkpoint", str(run), "--prompt", "")


def test_a_prompt_that_is_no_unicode(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "U+DCFF" in refusal(capfd, "--checkpoint", str(run), "--prompt", "a\udcff")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--top-k", "x"], "argument --top-k: 'x' is not a whole number of at least 0"),
        (["--top-k", "-1"], "argument --top-k: '-1' is not a whole number of at least 0"),
        (["--top-p", "1.5"], "argument --top-p: '1.5' is not a number from 0 to 1"),
        (["--min-p", "-0.1"], "argument --min-p: '-0.1' is not a number from 0 to 1"),
        (["--temperature", "nan"], "argument --temperature: 'nan' is not a number of at least 0"),
        (["--temperature", "inf"], "argument --temperature: 'inf' is not a number of at least 0"),
        (["--repetition-penalty", "0"], "argument --repetition-penalty: '0' is not a number of at least 0.01"),
        (["--tokens", "0"], "argument --tokens: '0' is not a whole number of at least 1"),
        (["--samples", "2.5"], "argument --samples: '2.5' is not a whole number of at least 1"),
        (["--seed", "-3"], "argument --seed: '-3' is not a whole number of at least 0"),
        (["--temprature", "1"], "unknown option '--temprature' (did you mean '--temperature'?)"),
        (["--device", "cpuu"], "unknown device 'cpuu' (did you mean 'cpu'?)"),
    ],
)
def test_options_out_of_their_limits(
    arguments: list[str], said: str, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert said in refusal(capfd, "--checkpoint", str(run), *arguments)


def test_a_checkpoint_is_needed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "--checkpoint" in refusal(capfd, "--prompt", "a")
    missing = tmp_path / "none"
    assert f"{missing}: there is no such file or folder" in refusal(capfd, "--checkpoint", str(missing))
    assert str(tmp_path) in refusal(capfd, "--checkpoint", str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    assert f"no checkpoint in {tmp_path}: give a run's directory" in refusal(capfd, "--checkpoint", str(tmp_path))
    (tmp_path / "file").write_text("x", encoding="utf-8")
    refusal(capfd, "--checkpoint", str(tmp_path / "file"))


def damage(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-5] ^= 0x10
    weights.write_bytes(data)


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for step in (1, 2):
        write_run(tmp_path, CharTokenizer(CHARACTERS), step=step, seed=step)
    expected = text(capfd, tmp_path / "checkpoints" / "step-00000001")
    damage(tmp_path / "checkpoints" / "step-00000002")
    assert runs.generate_here("--checkpoint", str(tmp_path), "--tokens", "60") == 0
    out, err = capfd.readouterr()
    assert out == expected
    assert err.startswith("warning: passed over ")
    assert "step-00000002" in err
    assert "model.safetensors: damaged" in err
    assert find_checkpoint(tmp_path)[0].name == "step-00000001"


def test_when_all_are_damaged_each_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for step in (1, 2):
        write_run(tmp_path, CharTokenizer(CHARACTERS), step=step)
        damage(tmp_path / "checkpoints" / f"step-0000000{step}")
    message = refusal(capfd, "--checkpoint", str(tmp_path))
    assert "step-00000001" in message
    assert "step-00000002" in message
    assert "step-00000002" in refusal(capfd, "--checkpoint", str(tmp_path / "checkpoints" / "step-00000002"))


def test_another_tokenizer_beside_the_weights(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, CharTokenizer(CHARACTERS))
    CharTokenizer(CHARACTERS + "x").save(tmp_path / "checkpoints" / "step-00000003")
    assert "nanoeuler_tokenizer.json: damaged" in refusal(capfd, "--checkpoint", str(tmp_path))


def test_a_prompt_beyond_the_models_vocabulary(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", ByteTokenizer(), vocab_size=128)  # enough for ASCII alone
    assert "beyond the model's vocabulary of 128" in refusal(capfd, "--checkpoint", str(run), "--prompt", "é")
