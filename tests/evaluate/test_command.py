"""``python -m nanoeuler.evaluate``: what it prints and writes, and its errors."""

import json
import math
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from corpora import write_corpus
from evaluate.published import write_all
from evaluate.tiny_models import plain_strided_loss
from runs import options, start, train_here, write_text

from nanoeuler.config import ModelConfig
from nanoeuler.errors import run_command
from nanoeuler.evaluate import __main__ as command
from nanoeuler.parameters import initial_weights
from nanoeuler.tokenizer import BPETokenizer, ByteTokenizer

STORIES = Path(os.environ.get("NANOEULER_DATA", "no such folder")).parent / "models" / "stories260K" / "hf"
STORY = """Once upon a time, there was a little owl who lived in a tall tree. The owl had a red ball. Every night he
rolled the ball down the hill, and one day the ball fell into the river. "My ball!" said the owl. He was very sad.
"""
CONFIG = ModelConfig(vocab_size=300, max_seq_len=256, num_layers=1, num_heads=2, hidden_dim=8)


@pytest.fixture
def loads(monkeypatch):
    """Have a tiny model stand for any; give a way to say with which tokenizer and weights."""
    weights = initial_weights(CONFIG, 0, np.float32)

    def load(tokenizer, weights=weights):
        model = SimpleNamespace(config=CONFIG, weights=weights, tokenizer=tokenizer)
        monkeypatch.setattr(command, "load_pretrained", lambda source: model)

    load(ByteTokenizer())
    return load


@pytest.fixture
def text(tmp_path):
    return write_text(tmp_path / "text.txt", 2000)


def evaluate(*arguments):
    return run_command(command.main, ["tiny", *map(str, arguments)])


def test_a_text(loads, text, capsys):
    assert evaluate("--text", text, "--length", 32, "--stride", 16) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("tiny: ")
    assert first.endswith(" parameters, up to 32 tokens at once")
    assert second.startswith(f"{text}: loss 5.7")
    size = len(text.read_bytes()) - 1
    assert second.endswith(f" bits per byte  ({size:,} tokens, {size:,} bytes)")


def test_json_has_all_numbers(loads, text, tmp_path, capsys):
    paths = write_all(tmp_path)
    tasks = [word for name, path in paths.items() for word in ("--task", f"{name}={path}")]
    file = tmp_path / "new" / "results.json"
    assert evaluate("--text", text, "--tokens", 50, *tasks, "--shots", 2, "--limit", 2, "--json", file) == 0
    report = json.loads(file.read_text(encoding="utf-8"))
    assert (report["model"], report["length"]) == ("tiny", 256)
    (loss,) = report["texts"]
    assert (loss["text"], loss["tokens"], loss["bytes"], loss["stride"]) == (str(text), 50, 50, 128)
    assert loss["perplexity"] == pytest.approx(math.exp(loss["loss"]))
    assert loss["bits_per_byte"] == pytest.approx(loss["loss"] / math.log(2))
    assert [task["task"] for task in report["tasks"]] == list(paths)
    for task in report["tasks"]:
        each = task.pop("each")
        assert task["items"] == len(each) == (4 if task["task"] == "mmlu" else 2)
        assert all(choice < 0 for one in each for choice in one["log_likelihoods"])
        if task["task"] in ("hellaswag", "winogrande"):
            right = [np.argmax(one["log_likelihoods"]) == one["answer"] for one in each]
            assert task["acc"] == np.mean(right)

    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2 + len(paths) + 2  # a line for the model, the text, each task and each subject
    hellaswag = report["tasks"][0]
    assert out[2] == (
        f"hellaswag: acc {hellaswag['acc']:.4f} ± {hellaswag['acc_stderr']:.4f}  acc_norm {hellaswag['acc_norm']:.4f} "
        f"± {hellaswag['acc_norm_stderr']:.4f}  acc_bytes {hellaswag['acc_bytes']:.4f} "
        f"± {hellaswag['acc_bytes_stderr']:.4f}  (2 items)"
    )
    assert out[-3].startswith("  abstract algebra: acc ")
    assert out[-1].startswith("mmlu: acc ")
    assert f"  mean of 2 subjects {report['tasks'][-1]['mean_of_subjects']:.4f}" in out[-1]


def test_what_is_done_is_in_the_json_when_the_rest_fails(loads, text, tmp_path, capsys):
    file, task = tmp_path / "results.json", f"arc={write_all(tmp_path)['arc']}"
    assert evaluate("--text", text, "--task", task, "--length", 30, "--json", file) == 2
    assert "a row takes 30: give a larger --length" in capsys.readouterr().err
    assert [*json.loads(file.read_text())] == ["model", "parameters", "length", "texts"]


def test_nothing_is_computed_when_a_text_is_missing(loads, text, tmp_path, capsys):
    assert evaluate("--text", text, "--text", tmp_path / "nowhere") == 2
    assert capsys.readouterr() == ("", f"error: {tmp_path / 'nowhere'}: no such file\n")


def test_a_perplexity_beyond_floats_is_null_in_json(loads, text, tmp_path):
    loads(ByteTokenizer(), np.random.default_rng(0).normal(0, 1e3, initial_weights(CONFIG, 0, np.float32).size))
    file = tmp_path / "results.json"
    assert evaluate("--text", text, "--json", file) == 0
    (loss,) = json.loads(file.read_text())["texts"]
    assert loss["loss"] > 710
    assert loss["perplexity"] is None


def test_a_model_without_a_tokenizer_is_given_one(loads, text, tmp_path, capsys):
    loads(None)
    task = f"lambada={write_all(tmp_path)['lambada']}"
    for asked in (("--text", text), ("--task", task)):
        assert evaluate(*asked) == 2
        assert "the model's files have no tokenizer: give it with --tokenizer" in capsys.readouterr().err
        assert evaluate(*asked, "--tokenizer", "byte") == 0
        capsys.readouterr()
    write_corpus(tmp_path / "owls")
    assert evaluate("--corpus", tmp_path / "owls") == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("owls (val): loss ")


def test_both_splits_of_a_corpus(loads, tmp_path, capsys):
    write_corpus(tmp_path / "owls")
    loads(BPETokenizer([(220, 83), (71, 68)], "gpt2"))
    tokens = []
    for split in ("val", "train"):
        assert evaluate("--corpus", tmp_path / "owls", "--split", split) == 0
        out = capsys.readouterr().out.splitlines()[1]
        assert out.startswith(f"owls ({split}): loss ")
        tokens.append(int(out.partition("(")[2].partition("(")[2].partition(" tok")[0].replace(",", "")))
    assert tokens[0] < tokens[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to evaluate on: give --text FILE, --corpus FOLDER or --task NAME=PATH"),
        (["--text", "TEXT", "--length", "300"], "--length 300: the model takes at most 256 tokens"),
        (["--text", "TEXT", "--length", "8", "--stride", "9"], "--stride 9 is more than the 8 tokens of a window"),
        (["--text", "TEXT", "--stride", "0"], "argument --stride: '0' is not a whole number of at least 1"),
        (["--text", "TEXT", "--device", "tpu"], "unknown device 'tpu'"),
        (["--task", "hellaswag"], "--task hellaswag: expected is hellaswag=PATH"),
        (["--task", "arc=TEXT"], "TEXT:1: not JSON; expected is a line of ARC"),
        (["--corpus", "nowhere"], "'nowhere' is neither a known corpus nor a file that exists"),
        (["--text", "TEXT", "--tokenizer", "nothing"], "'nothing' is neither a tokenizer nor a file or folder"),
        (["--txt", "TEXT"], "unknown option '--txt' (did you mean '--text'?)"),
    ],
)
def test_errors(loads, text, capsys, arguments, message):
    assert evaluate(*(word.replace("TEXT", str(text)) for word in arguments)) == 2
    assert capsys.readouterr().err.startswith(f"error: {message.replace('TEXT', str(text))}")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of ours, and the text that it has learned from."""
    folder = tmp_path_factory.mktemp("run")
    text = write_text(folder / "text.txt")
    assert train_here(options(folder / "run", text, training__final_eval_batches=1000)) == 0
    return folder / "run", text


def test_a_run_of_ours_has_the_validation_loss_that_training_has_told(run, capsys):
    folder, text = run
    told = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][-1]
    assert run_command(command.main, [str(folder), "--corpus", str(text), "--length", "16", "--stride", "16"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert float(line.partition("loss ")[2].split()[0]) == pytest.approx(told["val_loss"], rel=0.02)


@pytest.mark.skipif(not STORIES.is_dir(), reason="the weights of stories260K are not beside NANOEULER_DATA's folder")
def test_real_weights_on_a_story_as_transformers(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(STORIES).eval()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(STORIES / "tokenizer.model"))
    losses = plain_strided_loss(theirs, [1, *processor.encode(STORY)], 1, 64, 16)
    text, file = tmp_path / "story.txt", tmp_path / "results.json"
    text.write_text(STORY)
    arguments = [str(STORIES), "--text", str(text), "--length", "64", "--stride", "16", "--json", str(file)]
    assert run_command(command.main, arguments) == 0
    (found,) = json.loads(file.read_text())["texts"]
    assert (found["tokens"], found["bytes"]) == (len(losses), len(STORY))
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert found["bits_per_byte"] == pytest.approx(sum(losses) / math.log(2) / len(STORY), rel=1e-5)
    assert found["bits_per_byte"] < 1.2  # it has learned to tell such stories


@pytest.mark.skipif(not hasattr(signal, "SIGINT"), reason="the system has no such signal")
def test_interrupted(run, tmp_path):
    folder, text = run
    long = tmp_path / "long.txt"
    long.write_bytes(text.read_bytes() * 2000)
    # no ResourceWarning, as for users: threadpoolctl may be interrupted between opening a file and its with
    quiet = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "error,ignore::ResourceWarning"}
    process = start("evaluate", [str(folder), "--text", str(long), "--stride", "1"], env=quiet)
    assert process.stdout.readline()  # the model is loaded, and the text comes next
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err.endswith(b"interrupted\n")
    assert b"Traceback" not in err
