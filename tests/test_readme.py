"""Every command of README and of the documents is run here, shortened, in the order in which it stands there."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from corpus.hub_server import Hub, write_fineweb_edu
from evaluate.published import write_jsonl

from nanoeuler.config import ModelConfig
from nanoeuler.corpus import plays
from nanoeuler.device import why_no_gpu
from nanoeuler.parameters import initial_weights, named_views, parameter_shapes
from nanoeuler.tokenizer import BPETokenizer
from nanoeuler.weights.directory import write_model_files

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / name / "README.md" for name in ("", "benchmarks", "nanoeuler/gpu", "lessons")]

#: What is added to a command, by its module and first word or its module, so that a test can afford it. Later options
#: win over earlier ones.
SHORTER = {
    "nanoeuler.train": [
        *("--training.total_steps", "2", "--training.eval_batches", "1", "--training.final_eval_batches", "1"),
        *("--training.sample_tokens", "5", "--data.dataset", "play.txt"),
    ],
    "nanoeuler.bench train": ["--sizes", "S", "--steps", "1", "--no-compile"],
    "nanoeuler.bench ops": ["--size", "tiny", "--ops", "cross_entropy", "--steps", "1"],
    "nanoeuler.bench simt": ["--workloads", "attention", "--steps", "1", "--no-stock"],
    "nanoeuler.generate": ["--tokens", "5"],
    "nanoeuler.evaluate": ["--tokens", "50", "--length", "12", "--stride", "6"],
    "nanoeuler.gradcheck": ["--op", "residual"],
    "nanoeuler.judge": ["--op", "rope"],
    "nanoeuler.trace --gallery": ["accumulate"],
    "nanoeuler.tokenizer train": ["--vocab-size", "300"],
    "nanoeuler.corpus prepare": ["--tokenizer", "data/bpe", "--val-fraction", "0.2", "--limit", "60"],
    "nanoeuler.bench tokenizer": ["--megabytes", "1", "--steps", "1"],
    "nanoeuler.bench corpus": ["--megabytes", "1", "--rounds", "1"],
    "nanoeuler.bench loader": ["--steps", "2"],
    "nanoeuler.bench trace": ["--steps", "1"],
    "nanoeuler.lessons open": ["--no-browser"],
    "nanoeuler.lessons site": ["1"],
}
#: What is added to a training on prepared corpora, which the commands before have prepared: a model in no time.
ON_CORPORA = [
    *("--training.total_steps", "2", "--training.eval_batches", "1", "--training.final_eval_batches", "1"),
    *("--training.sample_tokens", "5", "--training.batch_size", "2", "--data.tokenizer_path", "none"),
    *("--model.vocab_size", "none", "--model.hidden_dim", "16", "--model.num_layers", "1", "--model.max_seq_len", "16"),
    *("--model.num_heads", "2", "--model.num_kv_heads", "2", "--model.feed_forward_dim", "32"),
]
CORPORA = re.compile(r"nanoeuler\.train .*(--data\.dataset (data/|\S+=)|configs/gpt2-small\.json)")
#: Commands that .ci/run carries out, or their like, before it comes to the tests.
SETUP = ("python3 -m venv", ". .venv/bin/activate", "python -m pip install", "tensorboard ")


def commands(document: Path) -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [line.partition(" #")[0].strip() for line in joined.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with what a reader's commands need after cloning, and a small text in place of TinyShakespeare."""
    path = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "configs", path / "configs")
    shutil.copy(ROOT / "tests" / "simt" / "scripts" / "vector_add.py", path / "kernels.py")
    (path / "play.txt").write_text(plays.generate(30_000), encoding="utf-8")
    (path / "texts").mkdir()
    for i, scene in enumerate(plays.generate(30_000, seed=1).split("Enter ")[1:]):
        (path / "texts" / f"{i:02d}.txt").write_text(f"Enter {scene}", encoding="utf-8")
    shutil.copy(ROOT / "README.md", path)
    item = {"activity_label": "A", "ctx_a": "b", "ctx_b": "c", "endings": ["d.", "e."], "label": 1}
    write_jsonl(path / "hellaswag_val.jsonl", [item])
    return path


def write_smollm(folder: Path) -> None:
    """Put a model with the switches and the tokenizer of SmolLM2 into a folder, small enough to train."""
    folder.mkdir(parents=True)
    special = {"<|endoftext|>": 256, "<|im_start|>": 257, "<|im_end|>": 258}
    tokenizer = BPETokenizer([], "smollm", special)
    sizes = {"vocab_size": 259, "max_seq_len": 512, "hidden_dim": 16, "num_layers": 1, "num_heads": 2}
    config = ModelConfig(**sizes, num_kv_heads=1, tie_embeddings=True)
    views = named_views(initial_weights(config, 0), parameter_shapes(config))
    write_model_files(folder, config, views, "bfloat16", tokenizer, (258,))
    (folder / "nanoeuler_tokenizer.json").unlink()
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A stand-in for the hub, with the data sets and models that the documents name."""
    hub = Hub(tmp_path_factory.mktemp("hub"), tmp_path_factory.mktemp("hub_home"))
    write_fineweb_edu(hub.folder)
    stories = hub.folder / "roneneldan" / "TinyStories"
    stories.mkdir(parents=True)
    rows = [
        {"text": f"Once there was a red ball number {i}. It rolled and rolled until night came."} for i in range(60)
    ]
    (stories / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for name in ("SmolLM2-135M", "SmolLM2-135M-Instruct"):
        write_smollm(hub.folder / "HuggingFaceTB" / name)
    yield hub
    hub.close()


def run(command: list[str], folder: Path, hub: Hub) -> subprocess.CompletedProcess:
    environment = os.environ | hub.environment | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_runs(document, folder, hub):
    ran = 0
    for line in commands(document):
        if line.startswith(SETUP):
            continue
        words = shlex.split(line)
        assert words[:2] == ["python", "-m"], f"the test does not know how to run: {line}"
        if words[2] == "pytest":
            continue  # this is it
        shorter = SHORTER.get(" ".join(words[2:4]), SHORTER.get(words[2], []))
        if CORPORA.search(line):
            shorter = ON_CORPORA
        done = run([sys.executable, *words[1:], *shorter], folder, hub)
        if "--device gpu" in line and why_no_gpu() is not None:
            assert (done.returncode, done.stdout) == (2, ""), line
            assert done.stderr.startswith("error: "), done.stderr
            continue
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        ran += 1
    assert ran > 0


def test_setup_commands_are_what_ci_does():
    setup = [line for line in commands(ROOT / "README.md") if line.startswith("python3 -m venv")]
    ci = (ROOT / ".ci" / "run").read_text()
    assert len(setup) == 2
    for line in setup:
        assert "python3 -m venv .venv" in line
        assert "pip install -e" in line
    assert "python3 -m venv .venv" in ci
    assert ".venv/bin/python -m pytest" in ci
    assert ".venv/bin/python -m pytest" in setup[1]


def test_links_of_the_documents_exist():
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#\s]+)\)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name} links to {target}"
