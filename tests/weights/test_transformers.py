"""Models that ``transformers`` saved: loaded here they give its logits, its loss, every gradient, and its text."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weights.variants import (
    VARIANTS,
    assert_same_numbers,
    batch,
    doubled,
    every_variant,
    huggingface_named,
    our_numbers,
    our_text,
    save,
    their_exact_model,
    their_model,
    their_numbers,
    their_text,
    torch,
)

from nanoeuler.config import ModelConfig
from nanoeuler.device import op_table
from nanoeuler.weights import Pretrained, load_pretrained

Load = Callable[..., Pretrained]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Give ``load(name, dtype)``, which loads a variant that is saved once."""
    saved = cache(lambda name: save(name, tmp_path_factory.mktemp("saved")))
    return lambda name, dtype=np.float32: load_pretrained(saved(name), dtype)


# --- what a model is


def architecture(config: ModelConfig) -> dict[str, Any]:
    """Return what decides the numbers of a forward pass."""
    beside = {"preset", "init_std", "dropout", "num_prediction_heads", "prediction_loss_weight"}
    numbers = {key: value for key, value in config.model_dump().items() if key not in beside}
    if config.position == "learned":
        numbers = {key: value for key, value in numbers.items() if not key.startswith("rope_")}
    return numbers


@every_variant
def test_the_configuration(name: str, load: Load) -> None:
    assert architecture(load(name).config) == architecture(ModelConfig(**VARIANTS[name].ours))


@pytest.mark.parametrize("name", ["Llama, another base", "Llama 3", "Mistral", "GPT-2", "Qwen3"])
def test_the_keys_of_transformers_4(name: str, tmp_path: Path, load: Load) -> None:
    """torch_dtype, and the rotary base and scaling under names of their own."""
    save(name, tmp_path, old_spelling=True)
    record = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert "torch_dtype" in record
    assert "rope_parameters" not in record
    assert ("rope_theta" in record) == (name != "GPT-2")
    old = load_pretrained(tmp_path)
    assert architecture(old.config) == architecture(load(name).config)
    assert old.weights.tobytes() == load(name).weights.tobytes()


# --- what it computes


@every_variant
def test_logits_loss_and_every_gradient_in_float64(name: str, load: Load) -> None:
    """1e-9 is asked for; a thousand times less is met."""
    ours, tokens, targets = load(name, np.float64), *batch(VARIANTS[name].ours["vocab_size"])
    with doubled():
        theirs = their_numbers(their_exact_model(name), tokens, targets)
    assert theirs.logits.dtype == np.float64
    assert {gradient.dtype for gradient in theirs.gradients.values()} == {np.dtype(np.float64)}
    assert_same_numbers(our_numbers(ours.config, ours.weights, tokens, targets), theirs, 1e-12, 1e-12)


@every_variant
def test_logits_loss_and_every_gradient_in_float32(name: str, load: Load) -> None:
    """Of ``transformers`` as it is."""
    ours, tokens, targets = load(name), *batch(VARIANTS[name].ours["vocab_size"])
    theirs = their_numbers(their_model(name), tokens, targets)
    assert_same_numbers(our_numbers(ours.config, ours.weights, tokens, targets), theirs, 1e-5, 1e-4)


@every_variant
def test_the_likeliest_text(name: str, load: Load) -> None:
    """Ours by way of the cache of keys and values, theirs too: longer than the original length of Llama 3's model."""
    ours, said = load(name), set()
    for prompt in ([1, 2, 3], [5, 5, 9, 33, 7]):
        text = their_text(their_model(name), prompt, 30)
        assert our_text(ours.config, ours.weights, prompt, 30) == text
        said.update(text)
    assert len(said) > 4  # a text that says one thing only would prove little


def test_the_scaling_of_llama_3_matters(load: Load) -> None:
    """In each of its three regimes: the tests above would notice if it were left out."""
    ours, (tokens, targets) = load("Llama 3", np.float64), batch(37)
    right = our_numbers(ours.config, ours.weights, tokens, targets).logits
    for changes in ({"rope_factor": 1.0}, {"rope_low_freq_factor": 1.5}, {"rope_high_freq_factor": 4.0}):
        config = ours.config.model_copy(update=changes)
        assert np.abs(our_numbers(config, ours.weights, tokens, targets).logits - right).max() > 0.01, changes


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Llama 3", "Qwen3"])
def test_the_kernels_compute_the_same(name: str, load: Load) -> None:
    pytest.importorskip("numba", reason="the kernels are compiled by Numba (it comes with the extra 'gpu')")
    ours, (tokens, targets) = load(name), batch(37)
    theirs = their_numbers(their_model(name), tokens, targets)
    kernels = op_table("sim")
    assert_same_numbers(our_numbers(ours.config, ours.weights, tokens, targets, kernels), theirs, 1e-5, 1e-4)
    prompt = [5, 5, 9, 33, 7]
    text = their_text(their_model(name), prompt, 20)
    assert our_text(ours.config, ours.weights, prompt, 20, kernels) == text


# --- the files that it may lie in


@every_variant
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_short_numbers_lose_nothing(name: str, dtype: str, tmp_path: Path) -> None:
    """What is in the file is what torch makes of it, bit by bit; and the file is sharded here."""
    save(name, tmp_path, dtype, max_shard_size="6KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    ours = load_pretrained(tmp_path)
    assert ours.weights.dtype == np.float32
    assert_same_bits(ours, {
        key: weight.detach().to(getattr(torch, dtype)).float() for key, weight in their_model(name).named_parameters()
    })  # fmt: skip


@every_variant
def test_many_files_are_one(name: str, tmp_path: Path, load: Load) -> None:
    save(name, tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    ours = load_pretrained(tmp_path)
    assert_same_bits(ours, dict(their_model(name).named_parameters()))
    assert ours.weights.tobytes() == load(name).weights.tobytes()


def assert_same_bits(ours: Pretrained, theirs: dict[str, Any]) -> None:
    """Assert that every tensor under Hugging Face's names is that of torch."""
    views = huggingface_named(ours.config, ours.weights)
    assert views.keys() == theirs.keys()
    for name, view in views.items():
        assert view.tobytes() == theirs[name].detach().numpy().tobytes(), name


def test_gpt2_without_prefix_and_with_buffers(tmp_path: Path, load: Load) -> None:
    """As OpenAI's own files on the hub are: names without ``transformer.``, and the causal mask among the tensors."""
    from safetensors.torch import save_file

    save("GPT-2", tmp_path)
    state = {name: weight.detach().clone() for name, weight in their_model("GPT-2").transformer.named_parameters()}
    for layer in range(2):
        state[f"h.{layer}.attn.bias"] = torch.ones(48, 48).tril()[None, None]
        state[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert load_pretrained(tmp_path).weights.tobytes() == load("GPT-2").weights.tobytes()


@pytest.mark.parametrize("name", ["Llama, grouped queries, tied", "GPT-2"])
def test_a_tied_head_may_be_in_the_file(name: str, tmp_path: Path, load: Load) -> None:
    """Some files hold it twice."""
    from safetensors.torch import load_file, save_file

    save(name, tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    embedding = "transformer.wte.weight" if name == "GPT-2" else "model.embed_tokens.weight"
    save_file(state | {"lm_head.weight": state[embedding].clone()}, tmp_path / "model.safetensors", {"format": "pt"})
    assert load_pretrained(tmp_path).weights.tobytes() == load(name).weights.tobytes()
