"""The training command from end to end: what it leaves, how it goes on after anything, and what it refuses."""

import hashlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import runs
from corpora import TOKENIZER, write_corpus, write_llmc

import nanoeuler.plan
import nanoeuler.train
from nanoeuler.checkpoint import find_checkpoint, read_checkpoint
from nanoeuler.config import Config, load_config
from nanoeuler.console import Console
from nanoeuler.corpus import Corpus, TextCorpus, plays
from nanoeuler.corpus.manifest import read_manifest
from nanoeuler.errors import UserError
from nanoeuler.parameters import initial_weights
from nanoeuler.train import FREE_KEYS, default_run, differences, run_directory

unix = pytest.mark.skipif(sys.platform == "win32", reason="signals and limits are Unix's")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return runs.write_text(tmp_path / "text.txt")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def refusal(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """Return what a command says that must fail: exit code 2, one message on stderr, no traceback."""
    capfd.readouterr()
    assert runs.train_here(arguments) == 2
    err = capfd.readouterr().err
    assert err.startswith("error: ")
    assert err.count("error:") == 1
    assert "Traceback" not in err
    return err


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder but the lock, which is empty."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


# --- what a run shows and leaves


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the directory of a run of 60 steps and what it printed, not on a terminal."""
    folder = tmp_path_factory.mktemp("finished")
    text = runs.write_text(folder / "text.txt")
    intervals = {"training__eval_interval": 20, "training__sample_interval": 30, "training__checkpoint_interval": 20}
    changes = intervals | {"training__total_steps": 60, "training__learning_rate": 0.02}
    with runs.start("train", runs.options(folder / "run", text, **changes)) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    return folder / "run", out.decode()


def test_a_run_leaves_what_it_should(finished: tuple[Path, str]) -> None:
    run, _ = finished
    assert {path.name for path in run.iterdir()} == {
        ".lock",
        "checkpoints",
        "config.json",
        "metrics.jsonl",
        "report.html",
        "samples",
        "tensorboard",
    }
    assert runs.steps_saved(run) == [20, 40, 60]
    assert sorted(path.name for path in (run / "samples").iterdir()) == ["step-00000030.txt", "step-00000060.txt"]
    assert len(list((run / "tensorboard").glob("*tfevents*"))) == 1
    config = load_config(run / "config.json")
    assert config.training.total_steps == 60
    assert config.model.vocab_size == len(set((run.parent / "text.txt").read_text(encoding="utf-8")))
    assert read_checkpoint(find_checkpoint(run)[0]).config == config
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "learning_rate" in page


def test_metrics_have_a_record_of_every_step(finished: tuple[Path, str]) -> None:
    records = runs.metrics(finished[0])
    assert [record["step"] for record in records] == list(range(1, 61))
    usual = {
        "step",
        "train_loss",
        "smoothed_loss",
        "learning_rate",
        "grad_norm",
        "tokens_per_second",
        "elapsed_seconds",
    }
    for record in records:
        evaluated = {"val_loss", "val_bits_per_byte"} if record["step"] % 20 == 0 else set()
        assert set(record) == usual | evaluated
        assert record["grad_norm"] > 0
        assert record["tokens_per_second"] > 0
    assert records[0]["learning_rate"] == pytest.approx(0.02 / 3)
    assert records[2]["learning_rate"] == pytest.approx(0.02)
    assert records[-1]["learning_rate"] == pytest.approx(0.002)
    times = [record["elapsed_seconds"] for record in records]
    assert times == sorted(times)


def test_the_loss_falls(finished: tuple[Path, str]) -> None:
    records = runs.metrics(finished[0])
    uniform = math.log(len(set((finished[0].parent / "text.txt").read_text(encoding="utf-8"))))
    assert records[0]["train_loss"] == pytest.approx(uniform, abs=0.1)
    assert records[-1]["train_loss"] < 0.75 * records[0]["train_loss"]
    assert records[-1]["val_loss"] < 0.75 * uniform
    assert records[-1]["val_bits_per_byte"] == pytest.approx(records[-1]["val_loss"] / 0.6931472, rel=1e-6)


def test_a_pipe_gets_plain_lines(finished: tuple[Path, str]) -> None:
    run, out = finished
    lines = out.rstrip("\n").split("\n")
    assert "\x1b" not in out
    assert "\r" not in out
    assert lines[0].startswith("text: ")
    assert lines[1].startswith("model: euler, ")
    assert re.match(r"step +1/60 +1 %  loss \d\.\d{4}  smoothed \d.*  lr \S+  grad \S+  .* tok/s  .* left", lines[3])
    assert any(line.startswith("step 60/60  100 %") for line in lines)
    for step in (20, 40, 60):
        assert (
            len([x for x in lines if re.match(rf"step {step}  validation loss \d\.\d+  \d\.\d+ bits per byte", x)]) == 1
        )
    assert out.count("sample at step") == 2
    assert lines[-4].startswith("trained 60 steps in ")
    assert lines[-3].endswith(str(run / "checkpoints" / "step-00000060"))
    assert lines[-1].endswith(f"python -m nanoeuler.generate --checkpoint {run}")


def test_the_run_needs_nothing_else_to_speak(finished: tuple[Path, str], capfd: pytest.CaptureFixture[str]) -> None:
    assert runs.generate_here("--checkpoint", str(finished[0]), "--prompt", "the", "--tokens", "20") == 0
    assert capfd.readouterr().out.startswith("the")


def on_a_terminal(arguments: list[str], send: Callable[[Any], None] | None = None) -> tuple[int, str]:
    """Run the command on a pseudo-terminal of 100 columns; return its exit code and all that the terminal got."""
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    process = runs.start("train", arguments, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    if send:
        send(process)
    got = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the process has ended
            part = b""
        if not part:
            break
        got += part
    os.close(master)
    return process.wait(), got.decode()


@unix
def test_a_terminal_gets_a_bar_that_moves_and_no_plain_step_lines(run: Path, text: Path) -> None:
    code, out = on_a_terminal(runs.options(run, text, training__total_steps=900, training__eval_interval=450))
    assert code == 0
    assert "━" in out
    assert out.count("\x1b[?25l") == out.count("\x1b[?25h") == 1  # the cursor is hidden and shown again
    assert "step 900/900  100 %" in out
    assert " left" in out
    assert "tok/s" in out
    assert "validation loss" in out
    assert "sample at step 900" in out
    assert "trained 900 steps" in out
    assert not re.search(r"step +\d+/900 +\d+ %  loss", out)


@unix
def test_a_second_ctrl_c_gives_the_terminal_its_cursor_back(run: Path, text: Path) -> None:
    def twice(process: "subprocess.Popen[bytes]") -> None:
        runs.wait_for_step(process, run, 1)
        process.send_signal(signal.SIGSTOP)  # so that both arrive while it is in one step
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)

    code, out = on_a_terminal(runs.options(run, text, training__total_steps=100_000), twice)
    assert code in (130, 143)  # whichever of the two Python saw last
    assert out.count("\x1b[?25l") == 1
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l")


# --- which text, which run


def test_without_a_dataset_that_can_be_had_it_is_the_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The run is named after them, the first line says so and why, and the configuration that is kept names them."""

    def nowhere(*arguments: Any, **more: Any) -> None:
        raise UserError("no network here")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nanoeuler.corpus.tinyshakespeare.load", nowhere)
    short = plays.generate(20_000, seed=1)
    monkeypatch.setattr("nanoeuler.corpus.plays.generate", lambda: short)
    arguments = [word for key, value in runs.TINY.items() for word in (f"--{key}", str(value))]
    assert runs.train_here(arguments) == 0
    out = capfd.readouterr().out
    assert out.startswith("text: plays, built in: tinyshakespeare, the default, is not to be had; --data.dataset PATH")
    config = load_config("runs/plays/config.json")
    assert config.data.dataset == "plays"
    assert "entropy of the corpus" in Path("runs/plays/report.html").read_text(encoding="utf-8")
    named = refusal(capfd, [*arguments, "--data.dataset", "tinyshakespeare"])
    assert named.count("--data.dataset PATH") == 1
    assert "NANOEULER_DATA" in named
    assert runs.train_here([*arguments, "--data.dataset", "plays"]) == 0  # the same run, asked for by name


def test_a_run_is_named_after_its_configuration_or_its_text(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sections: dict[str, Any] = {"model": {}, "training": {}, "data": {"dataset": str(text)}}
    for key, value in runs.TINY.items():
        section, _, name = key.partition(".")
        sections[section][name] = value
    Path("my-config.json").write_text(json.dumps(sections), encoding="utf-8")
    assert runs.train_here(["--config", "my-config.json"]) == 0
    assert runs.steps_saved(Path("runs/my-config")) == [12]
    assert runs.train_here(runs.options(Path(), text)[2:]) == 0
    assert runs.steps_saved(Path("runs/text")) == [12]
    weights = [Path(f"runs/{name}/checkpoints/step-00000012/model.safetensors") for name in ("my-config", "text")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"model__preset": "gpt2"},
        {"model__num_kv_heads": 1, "model__tie_embeddings": "true", "model__num_prediction_heads": 3},
        {"data__tokenizer_path": "byte", "training__dtype": "float64"},
        {"training__batch_size": 5, "training__pieces": 0, "training__workers": 0},
        {"training__schedule": "wsd", "training__weight_decay": 0, "training__grad_clip": 0},
        {"training__total_steps": 1, "training__warmup_steps": 0},
        {"training__seed": 2**64 - 1, "model__dropout": 0.5},
        {"training__sample_prompt": "the \u20ac"},
    ],
    ids=str,
)
def test_runs_of_many_kinds(changes: dict[str, Any], run: Path, text: Path) -> None:
    assert runs.train_here(runs.options(run, text, **changes)) == 0
    last = runs.metrics(run)[-1]
    assert last["val_loss"] < 6
    before = contents(run / "checkpoints")
    assert runs.train_here(runs.options(run, text, "--resume", **changes)) == 0  # a finished run has nothing to do
    assert contents(run / "checkpoints") == before


def test_the_seed_decides_everything(tmp_path: Path, text: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        changes = runs.all_states(training__seed=seed)
        assert runs.train_here(runs.options(tmp_path / name, text, **changes)) == 0
    a, b, c = (runs.learned(tmp_path / name, 12) for name in "abc")
    assert a == b
    assert a["weights"] != c["weights"]
    config = load_config(tmp_path / "c" / "config.json")
    assert not (initial_weights(config.model, 1) == initial_weights(config.model, 2)).all()


# --- going on after a kill

STEPS = 80
LONG = runs.all_states(
    training__total_steps=STEPS,
    training__checkpoint_interval=7,
    training__eval_interval=35,
    training__sample_interval=25,
)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a text and of a run over it that nothing has interrupted."""
    folder = tmp_path_factory.mktemp("straight")
    text = runs.write_text(folder / "text.txt")
    assert runs.train_here(runs.options(folder / "run", text, **LONG)) == 0
    skipped = [record for record in runs.metrics(folder / "run") if record.get("skipped")]
    assert 0 < len(skipped) < 30  # outliers, whose window is a state too
    return folder


def assert_same_run(run: Path, straight: Path) -> None:
    ours, theirs = runs.learned(run, STEPS), runs.learned(straight / "run", STEPS)
    for what in theirs:
        assert ours[what] == theirs[what], what


@unix
def test_killed_three_times_and_resumed_it_is_the_run_that_nothing_interrupted(straight: Path, run: Path) -> None:
    """kill -9 whenever it happens to come; then a Ctrl-C; each time the same command goes on."""
    arguments = runs.options(run, straight / "text.txt", **LONG)
    for step, number in ((8, signal.SIGKILL), (26, signal.SIGKILL), (44, signal.SIGINT)):
        with runs.start_slowly(arguments) as process:
            runs.wait_for_step(process, run, step)
            process.send_signal(number)
            process.communicate()
        assert process.returncode == (-9 if number == signal.SIGKILL else 130)
    assert runs.train_here(arguments) == 0
    assert_same_run(run, straight)


#: A process that forks for every scenario: a command line, a function, which call of it, before or after, and what
#: happens there: kill -9, or a limit on the size of every file from then on. Prints exit codes and errors.
AT = """
import json, os, pkgutil, signal, sys
import nanoeuler.train, tensorboardX  # here once, not in every child
from nanoeuler.errors import run_command

def happen(limit):
    if limit is None:
        os.kill(os.getpid(), signal.SIGKILL)
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

def arrange(function, call, when, limit):
    owner, _, attribute = function.rpartition(".")
    owner, calls = pkgutil.resolve_name(owner), iter(range(10**9))
    original = getattr(owner, attribute)
    def replacement(*arguments, **more):
        now = next(calls) == call - 1
        if now and when == "before":
            happen(limit)
        result = original(*arguments, **more)
        if now and when == "after":
            happen(limit)
        return result
    setattr(owner, attribute, replacement)

ends = []
for arguments, *where in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.dup2(writing, 2)
        arrange(*where)
        os._exit(run_command(nanoeuler.train.main, arguments))
    os.close(writing)
    with open(reading) as errors:
        said = errors.read()
    ends.append([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said])
print(json.dumps(ends))
"""


def happening(scenarios: list[tuple[Any, ...]], arguments: list[list[str]]) -> list[tuple[int, str]]:
    """Run every command with what is to happen in it; return exit codes and what was written to stderr."""
    lines = [(line, *each) for line, each in zip(arguments, scenarios, strict=True)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    result = subprocess.run([sys.executable, "-c", AT, json.dumps(lines)], capture_output=True, env=environment)
    assert result.returncode == 0, result.stderr
    return [(code, said) for code, said in json.loads(result.stdout.splitlines()[-1])]


#: Each in the first forty steps.
KILLS = [
    ("nanoeuler.step.TrainingStep.run", 1, "before", None),
    ("nanoeuler.step.TrainingStep._update", 24, "after", None),
    ("nanoeuler.metrics.MetricsLog.step", 30, "after", None),
    ("nanoeuler.trainer.Trainer._sample", 1, "after", None),
    ("nanoeuler.checkpoint.write_tensors", 4, "after", None),
    ("nanoeuler.checkpoint._put_in_place", 3, "before", None),
    ("nanoeuler.checkpoint._put_in_place", 3, "after", None),
    ("nanoeuler.checkpoint._remove", 6, "before", None),
]


@unix
@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(straight: Path, tmp_path: Path) -> None:
    folders = [tmp_path / str(i) for i in range(len(KILLS))]
    arguments = [runs.options(run, straight / "text.txt", **LONG) for run in folders]
    assert [code for code, _ in happening(KILLS, arguments)] == [-signal.SIGKILL] * len(KILLS)
    for run, line in zip(folders, arguments, strict=True):
        assert len(runs.metrics(run)) < 40
        assert runs.train_here(line) == 0
        assert_same_run(run, straight)


def test_going_on_says_from_where_and_may_change_what_is_only_shown(
    straight: Path, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Workers may differ too, since the cut into pieces is given."""
    shutil.copytree(straight / "run", run)
    for step in (STEPS, STEPS - 1):
        shutil.rmtree(run / "checkpoints" / f"step-{step:08d}", ignore_errors=True)
    (from_step,) = {max(runs.steps_saved(run))}
    changes = {"training__workers": 1, "training__sample_tokens": 3, "training__keep_checkpoints": 1}
    capfd.readouterr()
    assert runs.train_here(runs.options(run, straight / "text.txt", **(LONG | changes))) == 0
    out = capfd.readouterr().out
    assert f"going on from {run / 'checkpoints' / f'step-{from_step:08d}'}" in out
    assert load_config(run / "config.json").training.workers == 1
    assert runs.steps_saved(run) == [STEPS]
    ours, theirs = runs.learned(run, STEPS), runs.learned(straight / "run", STEPS)
    for what in ("weights", "moments", "progress", "metrics"):
        assert ours[what] == theirs[what], what


def test_a_changed_configuration_is_refused_with_both_values(straight: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = straight / "run"
    before = contents(run)
    changed = LONG | {"training__learning_rate": 0.5, "model__num_layers": 2}
    for flags in ([], ["--resume"]):
        message = refusal(capfd, runs.options(run, straight / "text.txt", *flags, **changed))
        assert "training.learning_rate was 0.001, now 0.5" in message
        assert "model.num_layers was 1, now 2" in message
        assert "--run DIR" in message
        assert "--no-resume" in message
    assert contents(run) == before


def test_another_tokenizer_or_text_is_refused(
    straight: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(straight, tmp_path / "copy")
    text, run = tmp_path / "copy" / "text.txt", tmp_path / "copy" / "run"
    original = text.read_text(encoding="utf-8")
    arguments = [*runs.options(run, text, **LONG), "--data.dataset", str(straight / "text.txt")]
    before = contents(run)
    assert "data.tokenizer_path was 'char', now 'byte'" in refusal(capfd, [*arguments, "--data.tokenizer_path=byte"])
    moved = runs.options(run, text, **LONG)
    assert "data.dataset was" in refusal(capfd, moved)
    text.write_text(original.replace("w", "v"), encoding="utf-8")  # as many characters, but others
    shutil.copytree(run, tmp_path / "other")
    for file in (tmp_path / "other" / "checkpoints").glob("*/training.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        record["config"]["data"]["dataset"] = str(text)
        file.write_text(json.dumps(record), encoding="utf-8")
        sums = file.with_name("SHA256SUMS")
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        sums.write_text(re.sub("[0-9a-f]*  training.json", f"{digest}  training.json", sums.read_text()), newline="\n")
    assert "another tokenizer" in refusal(capfd, runs.options(tmp_path / "other", text, **LONG))
    assert contents(run) == before


def test_the_pieces_are_chosen_once_and_kept_with_other_workers(run: Path, text: Path) -> None:
    """So that a run which goes on where there are more cores still ends at the same bytes."""
    changes = {"training__pieces": 0, "training__batch_size": 6}
    for workers in (2, 5, 1):
        assert runs.train_here(runs.options(run, text, **changes, training__workers=workers)) == 0
        assert load_config(run / "config.json").training.pieces == 2


def test_a_text_that_was_edited_is_refused(run: Path, text: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = runs.options(run, text, **LONG)
    assert runs.train_here([*arguments, "--training.total_steps", "1"]) == 0
    original = text.read_text(encoding="utf-8")
    text.write_text(original[1:] + original[0], encoding="utf-8")  # the same characters, so the same vocabulary
    before = contents(run)
    assert "was trained on another text than this one" in refusal(capfd, [*arguments, "--training.total_steps", "1"])
    assert contents(run) == before


def test_no_resume_moves_the_old_run_aside_and_nothing_else(
    run: Path, text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert runs.train_here(runs.options(run, text)) == 0
    (run / "notes.txt").write_text("mine", encoding="utf-8")
    before = contents(run)
    del before["notes.txt"]
    for number in (1, 2):
        assert runs.train_here(runs.options(run, text, "--no-resume", training__seed=number)) == 0
        aside = run.with_name(f"run.old-{number}")
        assert f"what was in {run} is in {aside} now" in capfd.readouterr().out
        assert runs.steps_saved(aside) == runs.steps_saved(run) == [12]
    assert contents(run.with_name("run.old-1")) == before
    assert (run / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert load_config(run / "config.json").training.seed == 2


def test_no_resume_in_the_current_folder_leaves_it_where_it_is(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("thesis.tex").write_text("years of work", encoding="utf-8")
    for _ in range(2):
        assert runs.train_here(runs.options(Path(), text, "--no-resume")) == 0
    assert Path("thesis.tex").read_text(encoding="utf-8") == "years of work"
    assert runs.steps_saved(tmp_path / "here.old-1") == [12]


def test_no_resume_where_there_is_nothing_is_a_new_run(run: Path, text: Path) -> None:
    assert runs.train_here(runs.options(run, text, "--no-resume")) == 0
    assert not run.with_name("run.old-1").exists()


def test_resume_needs_a_checkpoint(run: Path, text: Path, capfd: pytest.CaptureFixture[str]) -> None:
    message = refusal(capfd, runs.options(run, text, "--resume"))
    assert f"{run} has no checkpoint to resume from" in message
    assert not (run / "metrics.jsonl").exists()


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    straight: Path, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(straight / "run", run)
    *_, before, newest = runs.steps_saved(run)
    damaged = run / "checkpoints" / f"step-{newest:08d}" / "optimizer.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    capfd.readouterr()
    assert runs.train_here(runs.options(run, straight / "text.txt", **LONG)) == 0
    out = capfd.readouterr().out
    assert f"passed over a damaged checkpoint: {damaged}" in out
    assert f"going on from {run / 'checkpoints' / f'step-{before:08d}'}" in out
    assert_same_run(run, straight)


def test_when_all_are_damaged_nothing_is_lost(straight: Path, run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(straight / "run", run)
    for weights in run.glob("checkpoints/*/model.safetensors"):
        weights.write_bytes(weights.read_bytes()[:-1])
    before = contents(run)
    message = refusal(capfd, runs.options(run, straight / "text.txt", **LONG))
    for step in runs.steps_saved(run):
        assert f"step-{step:08d}" in message
    assert "--no-resume" in message
    assert contents(run) == before


def test_a_checkpoint_without_moments_cannot_go_on(
    straight: Path, run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(straight / "run", run)
    read = nanoeuler.train.read_checkpoint
    monkeypatch.setattr(nanoeuler.train, "read_checkpoint", lambda path: read(path, moments=False))
    assert "has no optimizer state" in refusal(capfd, runs.options(run, straight / "text.txt", **LONG))


def test_differences_are_those_that_change_what_is_learned() -> None:
    old = Config.model_validate({"training": {"seed": 1, "workers": 2}})
    assert differences(old, old) == []
    for key in FREE_KEYS:
        changed = Config.model_validate({"training": {"seed": 1, key: "77"}})
        assert str(getattr(changed.training, key)) == "77"
        assert differences(old, changed) == []
    assert differences(old, Config()) == ["training.seed was 1, now 1337"]
    masked = Config.model_validate({"data": {"doc_mask": True}})
    assert differences(Config(), masked) == ["data.doc_mask was False, now True"]


def test_a_checkpoint_from_before_the_windows_were_counted_goes_on(straight: Path, run: Path) -> None:
    """So did it look before there were prepared corpora: no count of windows, no key for masks of documents."""
    shutil.copytree(straight / "run", run)
    newest, before = (run / "checkpoints" / f"step-{step:08d}" for step in (80, 77))
    shutil.rmtree(newest)
    record = json.loads((before / "training.json").read_text(encoding="utf-8"))
    assert record["progress"].pop("windows_dealt") == 77 * 2 * 4
    del record["config"]["data"]["doc_mask"]
    (before / "training.json").write_text(json.dumps(record), encoding="utf-8")
    sums = (before / "SHA256SUMS").read_text(encoding="utf-8")
    digest = hashlib.sha256((before / "training.json").read_bytes()).hexdigest()
    (before / "SHA256SUMS").write_text(re.sub(r"\w+(?=  training\.json)", digest, sums), encoding="utf-8")
    assert runs.train_here(runs.options(run, straight / "text.txt", **LONG)) == 0
    assert_same_run(run, straight)


def test_the_tokenizer_that_is_left_out_for_a_text_is_char(straight: Path, run: Path) -> None:
    shutil.copytree(straight / "run", run)
    assert load_config(run / "config.json").data.tokenizer_path == "char"
    named = runs.options(run, straight / "text.txt", data__tokenizer_path="char", **LONG)
    assert runs.train_here([*named, "--resume"]) == 0


# --- prepared corpora

SHORT = {"training__total_steps": 20, "training__checkpoint_interval": 7, "model__num_prediction_heads": 2}


@pytest.fixture
def owls(tmp_path: Path) -> Path:
    """Return the folder of a prepared corpus."""
    write_corpus(tmp_path / "owls")
    return tmp_path / "owls"


def progress(run: Path, step: int) -> dict[str, Any]:
    path = run / "checkpoints" / f"step-{step:08d}" / "training.json"
    return json.loads(path.read_text(encoding="utf-8"))["progress"]


def test_a_run_on_a_prepared_corpus(run: Path, owls: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert runs.train_here(runs.options(run, owls, training__learning_rate=0.02, training__total_steps=60)) == 0
    out = capfd.readouterr().out
    assert out.startswith(f"text: {owls}, prepared from a test: 75 documents, 3 k tokens (bpe) in 5 shards; 2.")
    config = load_config(run / "config.json")
    assert (config.data.dataset, config.data.tokenizer_path) == (str(owls), None)
    assert config.model.vocab_size == TOKENIZER.vocab_size
    manifest = read_manifest(owls)
    assert progress(run, 60)["windows_dealt"] == 60 * 4
    assert progress(run, 60)["text_sha256"] == manifest.fingerprint
    last = runs.metrics(run)[-1]
    assert last["val_loss"] < 0.6 * math.log(259)
    bytes_per_token = manifest.total("val", "text_bytes") / manifest.total("val", "tokens")
    assert last["val_bits_per_byte"] == pytest.approx(last["val_loss"] / math.log(2) / bytes_per_token)
    assert "prepared from a test" in (run / "report.html").read_text(encoding="utf-8")
    assert runs.generate_here("--checkpoint", str(run), "--prompt", "the", "--tokens", "5") == 0


@unix
@pytest.mark.parametrize("mixed", [False, True])
def test_killed_and_resumed_a_run_on_shards_is_the_one_that_nothing_interrupted(
    mixed: bool, owls: Path, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "mice", documents=30, seed=20)
    dataset = f"{owls}=0.7,{tmp_path / 'mice'}=0.3" if mixed else owls
    changes = runs.all_states(**SHORT, data__doc_mask="true")
    assert runs.train_here(runs.options(tmp_path / "whole", dataset, **changes)) == 0
    arguments = runs.options(tmp_path / "run", dataset, **changes)
    for step, number in ((8, signal.SIGKILL), (16, signal.SIGINT)):
        with runs.start_slowly(arguments) as process:
            runs.wait_for_step(process, tmp_path / "run", step)
            process.send_signal(number)
            process.communicate()
    assert runs.train_here(arguments) == 0
    ours, theirs = (runs.learned(tmp_path / name, 20) for name in ("run", "whole"))
    assert theirs["progress"]["windows_dealt"] == 20 * 2 * 4
    for what in theirs:
        assert ours[what] == theirs[what], what


def test_a_run_is_not_resumed_on_other_tokens(run: Path, owls: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert runs.train_here(runs.options(run, owls)) == 0
    shutil.rmtree(owls)
    write_corpus(owls, seed=9)
    assert "was trained on another text than this one" in refusal(capfd, runs.options(run, owls))
    shutil.rmtree(owls)
    write_corpus(owls, sizes=(500,))  # the same tokens, in other shards
    assert "was trained on another text than this one" in refusal(capfd, runs.options(run, owls))


def test_a_run_on_a_folder_of_llmcs(run: Path, tmp_path: Path) -> None:
    write_llmc(tmp_path / "llmc")
    TOKENIZER.save(tmp_path / "tokenizer")
    arguments = runs.options(run, tmp_path / "llmc", data__tokenizer_path=tmp_path / "tokenizer")
    assert runs.train_here(arguments) == 0
    assert 0 < runs.metrics(run)[-1]["val_bits_per_byte"] < 8
    assert runs.train_here([*arguments, "--resume"]) == 0


def test_masks_of_documents_change_what_is_learned(tmp_path: Path, owls: Path) -> None:
    for mask in ("false", "true"):
        assert runs.train_here(runs.options(tmp_path / mask, owls, data__doc_mask=mask)) == 0
    first = [runs.metrics(tmp_path / mask)[0] for mask in ("false", "true")]
    assert first[0]["train_loss"] != first[1]["train_loss"]
    assert runs.metrics(tmp_path / "false")[-1]["val_loss"] != runs.metrics(tmp_path / "true")[-1]["val_loss"]


def test_what_a_run_on_shards_refuses(
    run: Path, owls: Path, text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def said(dataset: Any, **changes: Any) -> str:
        message = refusal(capfd, runs.options(run, dataset, **changes))
        assert not run.exists()
        return message

    masked = {"data__doc_mask": "true"}
    assert "data.doc_mask keeps attention within documents, and a text is a single one" in said(text, **masked)
    write_llmc(tmp_path / "llmc")
    assert "and the tokenizer (byte) has no end-of-text token" in said(
        tmp_path / "llmc", data__tokenizer_path="byte", **masked
    )
    assert "than data.tokenizer_path byte" in said(owls, data__tokenizer_path="byte")
    assert "the tokenizer has 259 tokens, and the model's vocabulary is 258" in said(owls, model__vocab_size=258)
    assert f"the validation part of {owls} has" in said(owls, model__max_seq_len=1500)
    assert "prepare it again with a larger --val-fraction" in said(owls, model__max_seq_len=1500)
    write_corpus(tmp_path / "all", val_documents=0)
    assert "the validation part of" in (message := said(tmp_path / "all"))
    assert "has 0 tokens" in message
    (owls / "owls_train_000001.bin").unlink()
    assert f"{owls / 'owls_train_000001.bin'}: missing" in said(owls)
    assert f"{owls / 'owls_train_000001.bin'}: missing" in said(f"{text}=1,{owls}=1")


@unix
def test_a_shard_that_goes_away_while_a_run_is_on_ends_it_with_what_it_learned_saved(
    run: Path, owls: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanoeuler.corpus.stream.MOST_OPEN", 0)
    show = Console.step

    def step(self: Console, number: int, **numbers: float) -> None:
        if number == 3:
            (owls / "owls_train_000000.bin").unlink()
        show(self, number, **numbers)

    monkeypatch.setattr(Console, "step", step)
    assert "owls_train_000000.bin: missing" in refusal(capfd, runs.options(run, owls, training__total_steps=500))
    (saved,) = runs.steps_saved(run)
    assert 3 <= saved < 20
    assert saved == len(runs.metrics(run))
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]


# --- stopping


@unix
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_step_saves_and_exits(number: signal.Signals, code: int, run: Path, text: Path) -> None:
    with runs.start("train", runs.options(run, text, training__total_steps=100_000)) as process:
        runs.wait_for_step(process, run, 3)
        process.send_signal(number)
        out, err = (stream.decode() for stream in process.communicate())
    assert process.returncode == code
    assert err == "\nfinishing this step, then saving; once more ends at once\n"
    last = out.rstrip("\n").split("\n")[-1]
    (step,) = runs.steps_saved(run)
    assert last.startswith(f"stopped by {number.name} after step {step}: {run / 'checkpoints' / f'step-{step:08d}'}")
    assert [record["step"] for record in runs.metrics(run)] == list(range(1, step + 1))
    assert read_checkpoint(find_checkpoint(run)[0]).progress["training_step"]["updates"] == step


@unix
def test_a_second_ctrl_c_exits_at_once_from_a_long_step(run: Path, text: Path) -> None:
    """The step has sixty thousand micro-batches and would take a minute; nothing is written after the second."""
    changes = {"training__gradient_accumulation": 60_000, "training__total_steps": 1}
    with runs.start("train", runs.options(run, text, **changes)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while not process.stdout.readline().startswith(b"run: "):
            pass
        time.sleep(0.5)  # until it is in the step
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == b"\n"
        assert process.stderr.readline().startswith(b"finishing this step")
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read() == b""
    assert runs.metrics(run) == []
    assert runs.steps_saved(run) == []


def test_two_processes_do_not_share_a_run(run: Path, text: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("fcntl", reason="this system has no locks of this kind")
    with run_directory(run):
        assert f"another process is training in {run}" in refusal(capfd, runs.options(run, text))
        assert [path.name for path in run.iterdir()] == [".lock"]
    assert runs.train_here(runs.options(run, text)) == 0


@unix
def test_two_real_processes_do_not_share_a_run(run: Path, text: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with runs.start("train", runs.options(run, text, training__total_steps=100_000)) as process:
        runs.wait_for_step(process, run, 1)
        for flags in ([], ["--no-resume"]):
            assert "another process" in refusal(capfd, runs.options(run, text, *flags))
        process.kill()
        process.communicate()
    assert runs.train_here(runs.options(run, text)) == 0  # a lock does not outlive its process


# --- what goes wrong on the way


@unix
def test_a_run_that_blows_up_stops_and_names_the_last_good_checkpoint(run: Path, text: Path) -> None:
    changes = {"training__total_steps": 50, "training__learning_rate": 1e30, "training__warmup_steps": 0}
    changes |= {"training__checkpoint_interval": 1, "training__keep_checkpoints": 2}
    with runs.start("train", runs.options(run, text, **changes)) as process:
        out, err = (stream.decode() for stream in process.communicate())
    assert process.returncode == 2
    assert err.startswith("error: 10 updates in a row were skipped")
    assert err.count("\n") == 1
    assert out.count("the update is skipped") == 10
    named = re.search(r"the last good checkpoint is (\S+?)\. ", err)
    assert named
    assert Path(named[1]) == find_checkpoint(run)[0]
    assert Path(named[1]).name == "step-00000001"
    assert read_checkpoint(Path(named[1])).progress["step"] == 1


#: What does not fit any more, and what is said of it. A record has some 240 bytes: the thirtieth is cut short.
FULL = [
    (
        "nanoeuler.metrics.MetricsLog.step",
        30,
        "before",
        7000,
        "metrics.jsonl: cannot write: No space left on device; free some space",
    ),
    ("nanoeuler.trainer.write_checkpoint", 4, "before", 15_000, "cannot write the checkpoint of step"),
    ("nanoeuler.trainer.replace_file", 1, "before", 4, "samples/step-00000025.txt: cannot write: File too large"),
    (
        "nanoeuler.trainer.write_report",
        1,
        "before",
        20_000,
        "cannot write the checkpoint of step",
    ),  # a report is only warned of
]


@unix
def test_a_full_disk_costs_nothing_that_was_saved(straight: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for it."""
    pytest.importorskip("resource", reason="this system cannot limit the size of files")

    folders = [tmp_path / str(i) for i in range(len(FULL))]
    arguments = [runs.options(run, straight / "text.txt", **LONG) for run in folders]
    ends = happening([each[:4] for each in FULL], arguments)
    for run, line, (code, err), (*_, said) in zip(folders, arguments, ends, FULL, strict=True):
        assert code == 2
        assert err.startswith("error: ")
        assert said in err
        assert err.count("\n") == 1
        records = runs.metrics(run)
        assert 24 < len(records) <= 36
        path, damaged = find_checkpoint(run)
        assert damaged == []
        assert path.name == f"step-{runs.steps_saved(run)[-1]:08d}"
        assert runs.steps_saved(run)[-1] >= len(records) - 8
        if "checkpoint" in said:
            assert err.endswith(f"The last good checkpoint is {path}\n")
        assert runs.train_here(line) == 0
        assert_same_run(run, straight)


def test_a_file_where_the_run_should_be(run: Path, text: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run.write_text("mine", encoding="utf-8")
    assert f"{run}: cannot write" in refusal(capfd, runs.options(run, text))
    assert str(run / "deeper") in refusal(capfd, runs.options(run / "deeper", text))
    assert run.read_text(encoding="utf-8") == "mine"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_run_directory(run: Path, text: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run.mkdir()
    run.chmod(0o500)
    assert "Permission denied" in refusal(capfd, runs.options(run, text))


def test_a_file_where_the_samples_should_be(run: Path, text: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run.mkdir()
    (run / "samples").write_text("mine", encoding="utf-8")
    assert "cannot write" in refusal(capfd, runs.options(run, text))
    assert (run / "samples").read_text(encoding="utf-8") == "mine"


def test_a_run_that_does_not_fit_is_refused_before_it_starts(
    run: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nanoeuler.plan, "available_bytes", lambda: 100 * 2**20)
    message = refusal(capfd, runs.options(run, text))
    assert "this run takes 300 MiB of memory and 100 MiB are available" in message
    for part in ("weights", "gradients (2 x)", "optimizer state", "activations (2 x 2 sequences)", "sampling"):
        assert part in message
    assert not run.exists()
    huge = runs.options(run, text, model__hidden_dim=100_000, model__num_layers=100)
    assert "TiB  weights" in refusal(capfd, huge)


# --- bad input


BAD_TEXTS: list[tuple[bytes | None, str]] = [
    (None, "neither a known corpus nor a file that exists"),
    (b"", "an empty file"),
    (b"text\0more", "a binary file"),
    (b"text \xff more", "not UTF-8 text"),
    (b"abc" * 5, "training part of the text has 13 tokens, and one window takes 17"),
    (b"abcdefghij" * 10, "validation part of the text has 10 tokens, and one window takes 17"),
    (b"a", "training part of the text has 0 tokens"),
]


@pytest.mark.parametrize(("content", "said"), BAD_TEXTS, ids=str)
def test_texts_that_nothing_can_be_learned_from(
    content: bytes | None, said: str, tmp_path: Path, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "bad.txt"
    if content is not None:
        text.write_bytes(content)
    assert said in refusal(capfd, runs.options(run, text))
    assert not run.exists()


BAD_OPTIONS: list[tuple[list[str], str]] = [
    (["--device", "cpuu"], "unknown device 'cpuu' (did you mean 'cpu'?); --device takes"),
    (["--training.dtype", "bf16"], "--device cpu computes in float32, float64, and training.dtype is bf16"),
    (["--training.dtype", "float64", "--device", "sim"], "and training.dtype is float64: that takes --device cpu"),
    (["--data.dataset", "tinyshakespear"], "(did you mean 'tinyshakespeare'?)"),
    (["--data.dataset", "."], "--data.dataset takes the folder of a corpus, or one text file"),
    (["--data.tokenizer_path", "bite"], "(did you mean 'byte'?)"),
    (["--data.tokenizer_path", "."], "nanoeuler_tokenizer.json"),
    (["--model.vocab_size", "5"], "beyond the model's vocabulary of 5"),
    (["--model.num_kv_heads", "3"], "num_heads 2 is not a multiple of num_kv_heads 3"),
    (["--model.num_heads", "3"], "hidden_dim 16 is not a multiple of num_heads 3"),
    (["--model.hidden_dim", "6"], "RoPE turns pairs of channels"),
    (["--training.schedule", "cosinus"], "(did you mean 'cosine'?)"),
    (["--training.lerning_rate", "1"], "(did you mean '--training.learning_rate'?)"),
    (["--runs", "x"], "unknown option '--runs' (did you mean '--run'?)"),
    (["--config", "none.json"], "none.json: cannot read the configuration"),
    (["--model.max_seq_len", "1000000"], "one window takes"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD_OPTIONS)
def test_bad_options(
    arguments: list[str],
    said: str,
    run: Path,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refusal(capfd, [*runs.options(run, text), *arguments])
    assert not run.exists()


@unix
def test_whatever_is_wrong_a_process_ends_with_code_2_and_one_message(
    run: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the above once more, each in a process of its own, where Python itself might have a word to add."""
    monkeypatch.chdir(tmp_path)
    commands = [[*runs.options(run, text), *arguments] for arguments, _ in BAD_OPTIONS]
    for i, (content, _) in enumerate(BAD_TEXTS):
        if content is not None:
            (tmp_path / f"{i}.txt").write_bytes(content)
        commands.append(runs.options(run, tmp_path / f"{i}.txt"))
    nothing = ("nanoeuler.step.TrainingStep.run", 1, "before", None)
    ends = happening([nothing] * len(commands), commands)
    for (code, err), (_, said) in zip(ends, [*BAD_OPTIONS, *BAD_TEXTS], strict=True):
        assert code == 2, err
        assert err.startswith("error: ")
        assert err.count("error:") == 1
        assert said in err
        assert "Traceback" not in err
        assert "Warning" not in err
    assert not run.exists()


def test_a_vocabulary_larger_than_the_tokenizers_is_allowed(run: Path, text: Path) -> None:
    assert runs.train_here(runs.options(run, text, model__vocab_size=64, training__sample_tokens=200)) == 0
    sample = (run / "samples" / "step-00000012.txt").read_text(encoding="utf-8")
    assert set(sample) <= set(text.read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", ["train", "plan"])
def test_a_bad_option_in_a_process_of_its_own(module: str, tmp_path: Path) -> None:
    with runs.start(module, ["--model.hidden_dimm", "3"], cwd=tmp_path) as process:
        out, err = process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert err.startswith(b"error: unknown option '--model.hidden_dimm' (did you mean '--model.hidden_dim'?)")
    assert err.count(b"\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_option_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        runs.train_here(["--help"])
    assert caught.value.code == 0
    out = capfd.readouterr().out
    for option in (
        "--config FILE",
        "--run DIR",
        "--device DEVICE",
        "--resume, --no-resume",
        "--training.learning_rate",
    ):
        assert option in out
    assert list(tmp_path.iterdir()) == []


def test_a_run_on_the_plays_for_want_of_shakespeare_has_its_own_directory() -> None:
    plays, shakespeare = (Corpus([TextCorpus(name, "", "")], [Fraction(1)]) for name in ("plays", "tinyshakespeare"))
    asked = Config.model_validate({"data": {"dataset": "plays"}})
    assert default_run(None, Config(), plays) == "runs/plays"
    assert default_run("configs/small.json", Config(), shakespeare) == "runs/small"
    assert default_run("configs/small.json", Config(), plays) == "runs/small-plays"
    assert default_run("configs/small.json", asked, plays) == "runs/small"
