"""Runs that start from weights which are there already: what is taken over, what may be chosen, what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs
from corpora import OTHER_TOKENIZER, TOKENIZER, write_corpus
from corpus.hub_server import Hub

import nanoeuler.init_from
import nanoeuler.plan
from nanoeuler.checkpoint import Checkpoint, find_checkpoint, read_checkpoint, write_checkpoint
from nanoeuler.config import Config, ModelConfig, load_config
from nanoeuler.errors import UserError, run_command
from nanoeuler.init_from import DEFAULT_LENGTH, starting_weights, take_over
from nanoeuler.parameters import initial_weights, named_views, parameter_count, parameter_shapes
from nanoeuler.tokenizer import CharTokenizer, Tokenizer
from nanoeuler.weights import open_model

#: Sizes that no default has.
SIZES: dict[str, Any] = {"num_layers": 2, "num_heads": 2, "hidden_dim": 24, "max_seq_len": 20, "feed_forward_dim": 40}
THEIRS = ModelConfig(vocab_size=11, **SIZES)
WORDS = CharTokenizer(" .\nadehlmnorstwxyz")
#: Options of a run that take nothing of the model's.
TRAINING = {key: value for key, value in runs.TINY.items() if key.startswith("training.")}


def write_source(folder: Path, tokenizer: Tokenizer = WORDS, seed: int = 5, **model: Any) -> Path:
    """Write a checkpoint of an untrained model as another run would have left it; return its path."""
    config = Config.model_validate({"model": {"vocab_size": tokenizer.vocab_size, **SIZES, **model}})
    folder.mkdir(parents=True)
    weights = initial_weights(config.model, seed)
    return write_checkpoint(folder, 1, Checkpoint(config, weights, None, {}, tokenizer), keep=1)


def options(run: Path, source: Path | str, data: Path, *flags: str, **changes: Any) -> list[str]:
    keys = TRAINING | {"data.dataset": data} | {key.replace("__", "."): value for key, value in changes.items()}
    words = [word for key, value in keys.items() for word in (f"--{key}", str(value))]
    return ["--run", str(run), "--init-from", str(source), *flags, *words]


def refusal(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    capfd.readouterr()
    assert runs.train_here(arguments) == 2
    err = capfd.readouterr().err
    assert err.startswith("error: ")
    assert err.count("error:") == 1
    return err


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return runs.write_text(tmp_path / "text.txt")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


# --- the architecture


def test_the_architecture_is_that_of_the_weights() -> None:
    assert take_over(ModelConfig(), THEIRS, "there") == (THEIRS, [])


def test_defaults_and_presets_that_nobody_wrote_contradict_nothing() -> None:
    gpt2 = ModelConfig(preset="gpt2", vocab_size=11, **SIZES)
    assert take_over(ModelConfig(), gpt2, "there")[0] == gpt2
    assert take_over(ModelConfig(preset="gpt2"), gpt2, "there")[0] == gpt2
    assert take_over(ModelConfig(feed_forward_dim=None, num_kv_heads=None), gpt2, "there")[0] == gpt2


def test_a_whole_section_that_agrees_is_fine() -> None:
    written = ModelConfig.model_validate(THEIRS.model_dump())
    assert written.written() == THEIRS.model_dump()
    assert take_over(written, THEIRS, "there") == (THEIRS, [])


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"num_layers": 3}, "model.num_layers is 2 there, and 3 is asked for. Leave this key out"),
        ({"preset": "gpt2"}, "model.preset is 'euler' there, and 'gpt2' is asked for"),
        ({"norm": "layernorm"}, "model.norm is 'rmsnorm' there, and 'layernorm' is asked for"),
        ({"tie_embeddings": True}, "model.tie_embeddings is False there, and True is asked for"),
        ({"vocab_size": 12}, "model.vocab_size is 11 there, and 12 is asked for"),
        ({"rope_theta": 500.0}, "model.rope_theta is 10000.0 there, and 500.0 is asked for"),
        ({"norm_eps": 1e-6, "qk_norm": True}, "model.qk_norm is False there, and True is asked for; model.norm_eps is"),
    ],
    ids=str,
)
def test_what_contradicts_is_named_with_both_values(written: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        take_over(ModelConfig(**written), THEIRS, "there")
    assert str(caught.value).startswith("the architecture comes from the weights of there, and the configuration says")
    assert said in str(caught.value)


def test_what_may_be_chosen() -> None:
    chosen = {"max_seq_len": 8, "dropout": 0.1, "init_std": 0.1, "num_prediction_heads": 3, "prediction_loss_weight": 1}
    model, notes = take_over(ModelConfig(**chosen), THEIRS, "there")
    assert model.model_dump() == THEIRS.model_dump() | chosen
    assert notes == []


def test_a_long_context_is_not_taken_over_unasked() -> None:
    theirs = ModelConfig(vocab_size=11, max_seq_len=131_072)
    model, notes = take_over(ModelConfig(), theirs, "there")
    assert model.max_seq_len == DEFAULT_LENGTH
    assert notes == ["sequences of 1024 tokens; these weights were made for up to 131,072: --model.max_seq_len"]
    assert take_over(ModelConfig(max_seq_len=131_072), theirs, "there") == (theirs, [])


def test_longer_sequences_than_the_weights_were_made_for() -> None:
    model, notes = take_over(ModelConfig(max_seq_len=21), THEIRS, "there")
    assert model.max_seq_len == 21
    assert notes == ["sequences of 21 tokens are longer than the 20 that these weights were made for"]
    learned = ModelConfig(preset="gpt2", vocab_size=11, **SIZES)
    with pytest.raises(UserError, match=r"model.max_seq_len 21 is more than the 20 learned positions .* of there"):
        take_over(ModelConfig(max_seq_len=21), learned, "there")


# --- the weights


@pytest.mark.parametrize("preset", ["euler", "gpt2"])
@pytest.mark.parametrize(("old", "new"), [(1, 1), (1, 3), (3, 2), (2, 2)])
def test_what_both_models_have_is_taken_over_and_the_rest_is_new(preset: str, old: int, new: int) -> None:
    theirs = ModelConfig.model_validate({"preset": preset, "vocab_size": 11, **SIZES, "num_prediction_heads": old})
    model = theirs.model_copy(update={"max_seq_len": 8, "num_prediction_heads": new})
    weights = initial_weights(theirs, 3)
    flat, notes = starting_weights(theirs, weights, model, seed=4)
    before, after = (named_views(flat, parameter_shapes(c)) for flat, c in ((weights, theirs), (flat, model)))
    fresh = named_views(initial_weights(model, 4), parameter_shapes(model))
    for name, view in after.items():
        expected = before[name][: len(view)] if name in before else fresh[name]
        assert np.array_equal(view, expected), name
    heads = {
        (1, 3): ["prediction heads: 1 from the weights, 2 new"],
        (3, 2): ["prediction heads: 2 of the 3 in the weights"],
    }
    assert notes == heads.get((old, new), [])


# --- runs


@pytest.mark.parametrize("model", [{}, {"preset": "gpt2"}, {"num_prediction_heads": 2, "num_kv_heads": 1}], ids=str)
def test_a_run_begins_with_the_weights_and_their_tokenizer(
    model: dict[str, Any], run: Path, text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tmp_path / "source", **model)
    still = {"training__learning_rate": 1e-30, "training__total_steps": 1, "training__warmup_steps": 0}
    assert runs.train_here(options(run, source, text, **still)) == 0
    assert f"starting from {source} (Hugging Face, " in capfd.readouterr().out
    before, after = read_checkpoint(source), read_checkpoint(find_checkpoint(run)[0])
    assert np.abs(after.weights - before.weights).max() <= 1e-29  # where there was a zero
    assert after.config.model == before.config.model
    assert after.tokenizer.fingerprint == WORDS.fingerprint
    config = load_config(run / "config.json")
    assert (config.training.init_from, config.data.tokenizer_path) == (str(source), None)
    assert runs.generate_here("--checkpoint", str(run), "--tokens", "3", "--prompt", "the") == 0


@pytest.mark.slow  # compiles kernels
def test_a_run_on_the_simulated_kernels_begins_as_one_on_the_cpu(run: Path, text: Path, tmp_path: Path) -> None:
    pytest.importorskip("numba", reason="needs the extra 'gpu'")
    source = write_source(tmp_path / "source", num_layers=1, max_seq_len=8)
    one_step = {"training__total_steps": 1, "training__batch_size": 1, "training__sample_tokens": 1}
    losses = []
    for device in ("cpu", "sim"):
        folder = run.with_name(device)
        assert runs.train_here(options(folder, source, text, "--device", device, **one_step)) == 0
        losses.append(runs.metrics(folder)[0]["train_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_a_run_goes_on_to_the_same_bytes_without_the_weights_that_it_began_with(
    run: Path, text: Path, tmp_path: Path
) -> None:
    source = write_source(tmp_path / "source")
    arguments = options(run, source, text, training__checkpoint_interval=5, model__dropout=0.1, model__max_seq_len=12)
    assert runs.train_here(arguments) == 0
    whole = runs.learned(run, 12)
    shutil.rmtree(run / "checkpoints" / "step-00000012")
    shutil.rmtree(tmp_path / "source")
    assert runs.train_here(arguments) == 0
    assert runs.learned(run, 12) == whole


def test_a_run_that_began_otherwise_is_another_run(
    run: Path, text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tmp_path / "source")
    assert runs.train_here(options(run, source, text)) == 0
    other = refusal(capfd, options(run, "elsewhere", text))
    assert f"training.init_from was {str(source)!r}, now 'elsewhere'" in other
    assert "model.num_layers was 2, now 3" in refusal(capfd, options(run, source, text, model__num_layers=3))
    assert runs.train_here(options(run, source, text, "--no-resume", model__max_seq_len=10)) == 0
    assert read_checkpoint(find_checkpoint(run)[0]).config.model.max_seq_len == 10


def test_another_tokenizer_may_be_named(run: Path, text: Path, tmp_path: Path) -> None:
    source = write_source(tmp_path / "source", vocab_size=300)
    for _ in range(2):
        assert runs.train_here(options(run, source, text, data__tokenizer_path="byte")) == 0
    assert read_checkpoint(find_checkpoint(run)[0]).tokenizer.kind == "byte"


def test_a_tokenizer_of_more_tokens_than_the_model(
    run: Path, text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tmp_path / "source")
    said = refusal(capfd, options(run, source, text, data__tokenizer_path="byte"))
    assert f"beyond the model's vocabulary of {WORDS.vocab_size}" in said
    assert not run.exists()


def test_a_prepared_corpus_must_be_made_with_the_tokenizer_of_the_weights(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tmp_path / "source", TOKENIZER)
    write_corpus(tmp_path / "same")
    write_corpus(tmp_path / "other", tokenizer=OTHER_TOKENIZER)
    assert runs.train_here(options(run, source, tmp_path / "same")) == 0
    said = refusal(capfd, options(tmp_path / "run2", source, tmp_path / "other"))
    assert said.startswith(
        f"error: {tmp_path / 'other'} was prepared with another tokenizer (bpe, 259 tokens) than that"
    )
    assert not (tmp_path / "run2").exists()


def without_tokenizer(source: Path) -> Path:
    """Leave of a checkpoint what transformers would have saved without a tokenizer; return the folder."""
    for path in source.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            path.unlink()
    return source.rename(source.parent.parent.with_name("bare"))


def test_weights_without_a_tokenizer(run: Path, text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = without_tokenizer(write_source(tmp_path / "source", TOKENIZER))
    said = refusal(capfd, options(run, source, text))
    assert f"{source}: there is no tokenizer beside the weights" in said
    assert "--data.tokenizer_path" in said
    write_corpus(tmp_path / "corpus")  # whose own tokenizer is taken for theirs
    assert runs.train_here(options(run, source, tmp_path / "corpus")) == 0
    assert read_checkpoint(find_checkpoint(run)[0]).tokenizer.fingerprint == TOKENIZER.fingerprint


def test_a_run_that_does_not_fit_is_refused_before_a_weight_is_read(
    run: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source = write_source(tmp_path / "source")
    monkeypatch.setattr(nanoeuler.plan, "available_bytes", lambda: 100 * 2**20)
    monkeypatch.setattr(nanoeuler.init_from, "load_pretrained", lambda *_: pytest.fail("the weights were read"))
    assert "100 MiB are available" in refusal(capfd, options(run, source, text))
    assert not run.exists()


def test_what_is_not_there(run: Path, text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_source(tmp_path / "source")
    said = refusal(capfd, options(run, tmp_path / "sorce", text))
    assert f"{tmp_path / 'sorce'}: there is no such file or folder (did you mean 'source'?)" in said
    assert not run.exists()


@pytest.mark.parametrize("named", [False, True])
def test_what_ended_a_text_ends_it_still(named: bool, run: Path, text: Path, tmp_path: Path) -> None:
    source = without_tokenizer(write_source(tmp_path / "source"))
    WORDS.save(source)
    record = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (source / "config.json").write_text(json.dumps(record | {"eos_token_id": [3, 5]}), encoding="utf-8")
    other = {"data__tokenizer_path": "char"} if named else {}
    arguments = options(run, source, text, training__checkpoint_interval=5, **other)
    assert runs.train_here(arguments) == 0
    assert open_model(run).end_ids == (() if named else (3, 5))
    shutil.rmtree(run / "checkpoints" / "step-00000012")
    assert runs.train_here(arguments) == 0
    assert open_model(run).end_ids == (() if named else (3, 5))


@pytest.mark.slow  # two processes
def test_from_the_hub_and_then_without_it(run: Path, text: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="needs the extra 'hub'")
    source = write_source(tmp_path / "source")
    hub = Hub(tmp_path / "hub", tmp_path / "hub_home")
    shutil.copytree(source, hub.folder / "owner/name")
    arguments = options(run, "owner/name", text, training__checkpoint_interval=5)
    start = "import sys\nfrom nanoeuler import plan, train\nfrom nanoeuler.errors import run_command\n"
    end = f"sys.exit(run_command(train.main, {arguments}))"
    done = hub.run(start + "plan.available_bytes = lambda: 100 * 2**20\n" + end)
    assert done.returncode == 2
    assert "100 MiB are available" in done.stderr
    assert not [request for request in hub.requests if "safetensors" in request]
    done = hub.run(start + end)
    assert (done.returncode, done.stderr) == (0, "")
    whole = runs.learned(run, 12)
    hub.close()
    shutil.rmtree(hub.home)
    shutil.rmtree(run / "checkpoints" / "step-00000012")
    done = hub.run(start + end)
    assert (done.returncode, done.stderr) == (0, "")
    assert runs.learned(run, 12) == whole


# --- the plan


def test_the_plan_of_such_a_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = write_source(tmp_path / "source")
    command = ["--init-from", str(source), "--training.batch_size", "2"]
    assert run_command(nanoeuler.plan.main, command) == 0
    count = parameter_count(parameter_shapes(read_checkpoint(source).config.model))
    assert f" {count:,} " in capfd.readouterr().out
    assert run_command(nanoeuler.plan.main, [*command, "--model.num_heads", "4"]) == 2
    assert "model.num_heads is 2 there, and 4 is asked for" in capfd.readouterr().err
