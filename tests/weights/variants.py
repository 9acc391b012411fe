"""Tiny random models of every kind that can be loaded: transformers' own, and what our configuration must make of them.

Both sides compute the same three things, :class:`Numbers`: logits, losses, and the gradient of the mean loss with
respect to every tensor, under Hugging Face's names. The oracle is ``transformers``, in float32 as it is, and in float64
through :func:`doubled`.
"""

import functools
import importlib
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from oracle import error, normal

import nanoeuler.cpu
from nanoeuler.config import ModelConfig
from nanoeuler.model import Transformer
from nanoeuler.parameters import flat_size, named_views, parameter_shapes
from nanoeuler.sampling import Sampling, generate
from nanoeuler.weights.mapping import huggingface_views

torch = pytest.importorskip("torch", reason="the oracle of these tests is PyTorch (it comes with the extra 'oracles')")
transformers = pytest.importorskip(
    "transformers", "5.0", reason="the oracle of these tests is transformers 5 (it comes with the extra 'oracles')"
)
transformers.logging.set_verbosity_error()
# Here, and not when they are first used: what is imported under :func:`doubled` would keep float64 for float32.
importlib.import_module("safetensors.torch")
LOADED = [getattr(transformers, name) for name in ("GPT2LMHeadModel", "LlamaForCausalLM", "MistralForCausalLM",
                                                   "Qwen2ForCausalLM", "Qwen3ForCausalLM")]  # fmt: skip

POSITIONS = 48  # the longest sequence that these models take


@dataclass(frozen=True)
class Variant:
    """A kind of model: what ``transformers`` is told, and what :class:`ModelConfig` must then say."""

    model_type: str
    theirs: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)


LIKE_LLAMA = {
    "vocab_size": 37,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": POSITIONS,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}
LIKE_GPT2 = {
    "vocab_size": 37,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": POSITIONS,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "bos_token_id": None,
    "eos_token_id": None,
}
OURS = {
    "vocab_size": 37,
    "hidden_dim": 24,
    "num_layers": 2,
    "num_heads": 4,
    "max_seq_len": POSITIONS,
}


def like_llama(model_type: str, theirs: dict[str, Any], ours: dict[str, Any]) -> Variant:
    """Return a variant of the Llama family, from what differs from the plainest."""
    plain = {"feed_forward_dim": 20, "norm_eps": 1e-5}
    return Variant(model_type, LIKE_LLAMA | theirs, OURS | plain | ours)


def like_gpt2(theirs: dict[str, Any], ours: dict[str, Any]) -> Variant:
    """Return a variant of GPT-2, from what differs from the plainest."""
    plain = {"preset": "gpt2", "feed_forward_dim": 96, "norm_eps": 1e-5}
    return Variant("gpt2", LIKE_GPT2 | theirs, OURS | plain | ours)


#: Of four pairs of channels the first turns as before, the second a little slower, the others eight times slower.
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 0.5,
    "high_freq_factor": 2.0,
    "original_max_position_embeddings": 16,
}
OUR_LLAMA3_ROPE = {
    "rope_theta": 100.0,
    "rope_factor": 8.0,
    "rope_low_freq_factor": 0.5,
    "rope_high_freq_factor": 2.0,
    "rope_original_length": 16,
}
LONG_WAVES = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
GROUPED, OUR_GROUPED = {"num_key_value_heads": 2}, {"num_kv_heads": 2}
TIED, OUR_TIED = {"tie_word_embeddings": True}, {"tie_embeddings": True}

VARIANTS = {
    "GPT-2": like_gpt2({}, {"tie_embeddings": True}),
    "GPT-2, untied, square layers": like_gpt2(
        {"tie_word_embeddings": False, "n_inner": 24, "layer_norm_epsilon": 1e-3, "vocab_size": 41},
        {"tie_embeddings": False, "feed_forward_dim": 24, "norm_eps": 1e-3, "vocab_size": 41},
    ),
    "Llama 2": like_llama("llama", {}, {"rope_theta": 10000.0, "tie_embeddings": False}),
    "Llama, grouped queries": like_llama("llama", GROUPED, OUR_GROUPED),
    "Llama, grouped queries, tied": like_llama("llama", GROUPED | TIED, OUR_GROUPED | OUR_TIED),
    "Llama, biases": like_llama(
        "llama", GROUPED | {"attention_bias": True, "mlp_bias": True}, OUR_GROUPED | {"bias": True}
    ),
    "Llama, larger heads": like_llama("llama", GROUPED | {"head_dim": 10}, OUR_GROUPED | {"attention_head_dim": 10}),
    "Llama, another base": like_llama(
        "llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, {"rope_theta": 500.0}
    ),
    "Llama 3": like_llama(
        "llama",
        GROUPED | {"hidden_size": 32, "rope_parameters": LLAMA3_ROPE},
        OUR_GROUPED | {"hidden_dim": 32} | OUR_LLAMA3_ROPE,
    ),
    "TinyLlama": like_llama(
        "llama",
        {"hidden_size": 48, "num_attention_heads": 8, "num_key_value_heads": 1, "intermediate_size": 44},
        {"hidden_dim": 48, "num_heads": 8, "num_kv_heads": 1, "feed_forward_dim": 44},
    ),
    "SmolLM": like_llama(
        "llama",
        TIED | {"hidden_size": 36, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 53},
        OUR_TIED | {"hidden_dim": 36, "num_heads": 9, "num_kv_heads": 3, "vocab_size": 53},
    ),
    "Mistral": like_llama(
        "mistral", GROUPED | LONG_WAVES | {"sliding_window": None}, OUR_GROUPED | {"rope_theta": 1e6}
    ),
    "Mistral, a window of all positions": like_llama(
        "mistral", GROUPED | TIED | {"sliding_window": POSITIONS}, OUR_GROUPED | OUR_TIED
    ),
    "Qwen2": like_llama(
        "qwen2",
        GROUPED | LONG_WAVES | {"rms_norm_eps": 1e-6},
        OUR_GROUPED | {"qkv_bias": True, "rope_theta": 1e6, "norm_eps": 1e-6},
    ),
    "Qwen2, tied": like_llama(
        "qwen2",
        GROUPED | TIED | {"rms_norm_eps": 1e-3},
        OUR_GROUPED | OUR_TIED | {"qkv_bias": True, "norm_eps": 1e-3},
    ),
    "Qwen3": like_llama(
        "qwen3",
        GROUPED | {"head_dim": 8, "rms_norm_eps": 1e-6},
        OUR_GROUPED | {"attention_head_dim": 8, "qk_norm": True, "norm_eps": 1e-6},
    ),
    "Qwen3, tied": like_llama(
        "qwen3",
        TIED | LONG_WAVES | {"head_dim": 6, "rms_norm_eps": 1e-3},
        OUR_TIED | {"attention_head_dim": 6, "qk_norm": True, "norm_eps": 1e-3, "rope_theta": 1e6},
    ),
}
#: One of each family, for what is slow.
FAMILIES = ["GPT-2", "Llama 3", "Mistral", "Qwen2, tied", "Qwen3"]
every_variant = pytest.mark.parametrize("name", VARIANTS)
every_family = pytest.mark.parametrize("name", FAMILIES)


# Their side.


@functools.cache
def their_model(name: str) -> Any:
    """Return a variant of ``transformers`` in float32, whose every number is drawn: no norm is 1, no bias is 0."""
    variant = VARIANTS[name]
    model = blank(transformers.AutoConfig.for_model(variant.model_type, **variant.theirs))
    randomise(model)
    return model


def randomise(model: Any) -> None:
    """Draw every weight, large enough for a misplaced one to change the logits."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.3, generator=generator)
            if "norm" in name or ".ln_" in name:
                parameter.add_(1 if name.endswith("weight") else 0)


@contextmanager
def doubled() -> Iterator[None]:
    """Let the names by which ``transformers`` asks for float32 mean float64.

    Its RMSNorm, rotary angles, softmax and loss are float32 whatever the weights are: only so is the whole of it
    computed in float64, and by its own formulas.
    """
    with (
        mock.patch.object(torch, "float", torch.float64),
        mock.patch.object(torch, "float32", torch.float64),
        mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
    ):
        yield


@functools.cache
def their_exact_model(name: str) -> Any:
    """Return :func:`their_model` with the same weights in float64; to be used under :func:`doubled`."""
    return exact(their_model(name))


def exact(model: Any) -> Any:
    """Return a copy of a model in float64; its rotary frequencies are computed anew."""
    with doubled():
        return copied(model, torch.float64)


def copied(model: Any, dtype: Any = torch.float32) -> Any:
    """Return a copy of a model in another dtype."""
    copy = blank(model.config).to(dtype)
    copy.load_state_dict(model.state_dict())
    return copy


def blank(config: Any) -> Any:
    """Return a model whose weights are still to be set."""
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def save(
    name: str, folder: Path, dtype: str = "float32", max_shard_size: str = "5GB", old_spelling: bool = False
) -> Path:
    """Have ``transformers`` itself save a variant; with the keys of its version 4 on request."""
    model = copied(their_model(name), getattr(torch, dtype))
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    if old_spelling:
        path = folder / "config.json"
        record = in_old_spelling(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(record), encoding="utf-8")
    return folder


def in_old_spelling(record: dict[str, Any]) -> dict[str, Any]:
    """Return a ``config.json`` with the keys of transformers 4: torch_dtype, rope_theta and rope_scaling."""
    record = record | {"torch_dtype": record["dtype"]}
    del record["dtype"]
    if rope := record.pop("rope_parameters", None):
        record["rope_theta"] = rope.pop("rope_theta")
        record["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    return record


# Our side.


def huggingface_named(config: ModelConfig, flat: np.ndarray) -> dict[str, np.ndarray]:
    """Return views of a flat buffer of ours under Hugging Face's names."""
    return huggingface_views(config, named_views(flat, parameter_shapes(config)))


def our_model(name: str, dtype: Any = np.float32) -> tuple[ModelConfig, np.ndarray]:
    """Return a variant's configuration and a flat buffer of :func:`their_model`'s weights, by way of no file."""
    config = ModelConfig(**VARIANTS[name].ours)
    flat = np.zeros(flat_size(parameter_shapes(config)), dtype)
    views, theirs = huggingface_named(config, flat), dict(their_model(name).named_parameters())
    assert views.keys() == theirs.keys()
    for key, view in views.items():
        view[...] = theirs[key].detach().numpy()
    return config, flat


def random_weights(config: ModelConfig, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Return a flat buffer drawn as :func:`randomise` draws."""
    shapes = parameter_shapes(config)
    flat = np.zeros(flat_size(shapes), dtype)
    for i, (name, view) in enumerate(named_views(flat, shapes).items()):
        view[...] = normal(view.shape, seed=1000 * seed + i) * 0.3 + name.endswith("norm.weight")
    return flat


# What both compute.


@dataclass(frozen=True)
class Numbers:
    """What a model makes of a batch. Gradients are those of the mean loss, under Hugging Face's names."""

    logits: np.ndarray  # (B, T, V)
    loss: float
    gradients: dict[str, np.ndarray]


def batch(vocabulary: int, B: int = 2, T: int = 24, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return (B, T) tokens, and for each the one to predict; -1 to ignore some, and those past the end."""
    tokens = np.random.default_rng(seed).integers(0, vocabulary, (B, T + 1), np.int32)
    targets = tokens[:, 1:].copy()
    targets[:, -1] = targets[0, 3:6] = -1
    return tokens[:, :-1], targets


def their_numbers(model: Any, tokens: np.ndarray, targets: np.ndarray) -> Numbers:
    """Return what ``transformers`` computes; it shifts the labels itself."""
    labels = torch.from_numpy(tokens.astype(np.int64))
    labels[:, 1:][torch.from_numpy(targets[:, :-1] < 0)] = -100
    model.zero_grad()
    out = model(input_ids=torch.from_numpy(tokens.astype(np.int64)), labels=labels)
    out.loss.backward()
    gradients = {name: weight.grad.numpy() for name, weight in model.named_parameters()}
    return Numbers(out.logits.detach().numpy(), out.loss.item(), gradients)


def our_numbers(
    config: ModelConfig, weights: np.ndarray, tokens: np.ndarray, targets: np.ndarray, ops: Any = nanoeuler.cpu
) -> Numbers:
    """Return what our model computes from a flat buffer of weights, in its dtype."""
    model = Transformer(config, ops, weights, *tokens.shape)
    logits = model.logits(tokens).copy()
    gradient, loss = np.zeros_like(weights), np.zeros(1, weights.dtype)
    views = named_views(gradient, model.shapes)
    dloss = np.array([1 / np.count_nonzero(targets >= 0)], weights.dtype)
    model.loss_and_gradients(views, loss, tokens, targets[None], dloss)
    return Numbers(logits, float(loss[0] * dloss[0]), huggingface_views(config, views))


def assert_same_numbers(ours: Numbers, theirs: Numbers, tolerance: float, gradient_tolerance: float) -> None:
    """Assert that both are equal, each tensor's errors relative to its largest element."""
    assert theirs.logits.std() > 0.5
    assert error(ours.logits, theirs.logits) < tolerance
    assert ours.loss == pytest.approx(theirs.loss, rel=tolerance)
    assert_same_tensors(ours.gradients, theirs.gradients, gradient_tolerance)
    for name, gradient in theirs.gradients.items():
        assert np.abs(gradient).max() > 1e-4, name  # one that vanishes would prove nothing


def assert_same_tensors(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], tolerance: float) -> None:
    """Assert that the same tensors are there under the same names, with the same numbers."""
    assert ours.keys() == theirs.keys()
    errors = {name: error(tensor, theirs[name]) for name, tensor in ours.items()}
    assert {name: value for name, value in errors.items() if not value < tolerance} == {}


def their_text(model: Any, prompt: list[int], count: int) -> list[int]:
    """Return the tokens that ``transformers`` finds likeliest, one after the other."""
    ids = torch.tensor([prompt])
    settings = {"do_sample": False, "max_new_tokens": count, "min_new_tokens": count, "pad_token_id": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of generation settings that it finds missing
        text = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    return text[0, len(prompt) :].tolist()


def our_text(
    config: ModelConfig, weights: np.ndarray, prompt: list[int], count: int, ops: Any = nanoeuler.cpu
) -> list[int]:
    """Return the tokens that our model finds likeliest, by way of the cache of keys and values."""
    model = Transformer(config, ops, weights, 1, config.max_seq_len, "generation")
    tokens = generate(model, np.array(prompt, np.int32), config.vocabulary, Sampling(temperature=0), 0)
    return list(islice(tokens, count))
