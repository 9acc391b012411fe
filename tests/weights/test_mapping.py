"""The mapping to Hugging Face's names and layout: whose model it is, and views in which nothing is lost."""

from typing import Any

import numpy as np
import pytest
from oracle import normal

from nanoeuler.config import ModelConfig
from nanoeuler.parameters import flat_size, named_views, parameter_count, parameter_shapes
from nanoeuler.weights.mapping import huggingface_shapes, huggingface_views, model_family

SMALL = {"vocab_size": 13, "max_seq_len": 10, "num_layers": 2, "num_heads": 6, "hidden_dim": 24, "feed_forward_dim": 20}
#: By Hugging Face's model_type.
FAMILIES: dict[str, dict[str, dict[str, Any]]] = {
    "llama": {
        "plain": {},
        "grouped queries, prediction heads": {"num_kv_heads": 2, "num_prediction_heads": 3},
        "one key/value head, tied": {"num_kv_heads": 1, "tie_embeddings": True},
        "biases": {"bias": True},
        "larger heads": {"attention_head_dim": 6, "num_kv_heads": 3},
        "stretched RoPE": {"rope_factor": 8.0},
    },
    "qwen2": {"plain": {"qkv_bias": True}, "tied": {"qkv_bias": True, "num_kv_heads": 2, "tie_embeddings": True}},
    "qwen3": {"plain": {"qk_norm": True}, "larger heads": {"qk_norm": True, "attention_head_dim": 8}},
    "gpt2": {
        "plain": {"preset": "gpt2"},
        "untied": {"preset": "gpt2", "tie_embeddings": False},
        "prediction heads, one layer": {"preset": "gpt2", "num_prediction_heads": 2, "num_layers": 1},
    },
    "nanoeuler": {
        "gpt2, grouped queries": {"preset": "gpt2", "num_kv_heads": 3},
        "gpt2, larger heads": {"preset": "gpt2", "attention_head_dim": 6},
        "gpt2, no biases": {"preset": "gpt2", "bias": False},
        "gpt2, no biases of queries": {"preset": "gpt2", "qkv_bias": False},
        "gpt2, norms of queries and keys": {"preset": "gpt2", "qk_norm": True},
        "gpt2, swiglu": {"preset": "gpt2", "activation": "swiglu"},
        "biases but for those of queries": {"bias": True, "qkv_bias": False},
        "biases and norms of queries and keys": {"qkv_bias": True, "qk_norm": True},
        "layernorm": {"norm": "layernorm", "num_prediction_heads": 2},
        "learned positions": {"position": "learned"},
        "gelu": {"activation": "gelu", "tie_embeddings": True},
    },
}
MODELS = [(family, name) for family, models in FAMILIES.items() for name in models]
every_model = pytest.mark.parametrize(("family", "name"), MODELS)


def model(family: str, name: str, **changes: Any) -> ModelConfig:
    return ModelConfig(**(SMALL | FAMILIES[family][name] | changes))


def flat_and_weights(config: ModelConfig) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return weights all different from each other, and 0 between the tensors."""
    shapes = parameter_shapes(config)
    flat = np.zeros(flat_size(shapes))
    weights = named_views(flat, shapes)
    for i, weight in enumerate(weights.values()):
        weight[...] = normal(weight.shape, seed=i)
    return flat, weights


@every_model
def test_whose_model_it_is(family: str, name: str) -> None:
    assert model_family(model(family, name)) == family


@every_model
def test_views_are_the_weights(family: str, name: str) -> None:
    """Each number has one place, and writing it there writes the weights."""
    config = model(family, name)
    flat, weights = flat_and_weights(config)
    views = huggingface_views(config, weights)
    assert all(np.shares_memory(view, flat) for view in views.values())
    assert sum(view.size for view in views.values()) == parameter_count(parameter_shapes(config))
    copies = {their: view.copy() for their, view in views.items()}
    before = flat.copy()
    flat[...] = 0
    for their, view in views.items():
        assert not view.any()  # no number of it was written by way of another view
        view[...] = copies[their]
    np.testing.assert_array_equal(flat, before)


@every_model
def test_shapes_are_those_of_the_views(family: str, name: str) -> None:
    config = model(family, name)
    views = huggingface_views(config, flat_and_weights(config)[1])
    assert huggingface_shapes(config) == {their: view.shape for their, view in views.items()}


def test_shapes_take_no_memory() -> None:
    """Of a model of a trillion parameters."""
    config = ModelConfig(vocab_size=2**20, num_layers=1000, hidden_dim=2**14, num_heads=128)
    shapes = huggingface_shapes(config)
    assert shapes["model.layers.999.mlp.down_proj.weight"] == (2**14, config.ff_dim)
    assert parameter_count(shapes) > 10**12


def test_rows_of_packed_weights() -> None:
    """Queries, then keys, then values; gate, then up."""
    config = model("qwen2", "plain", num_kv_heads=2, attention_head_dim=6)  # H D = 36, K D = 12
    _, weights = flat_and_weights(config)
    views = huggingface_views(config, weights)
    for kind in ("weight", "bias"):
        packed = weights[f"layers.1.qkv.{kind}"]
        for letter, start, end in (("q", 0, 36), ("k", 36, 48), ("v", 48, 60)):
            np.testing.assert_array_equal(views[f"model.layers.1.self_attn.{letter}_proj.{kind}"], packed[start:end])
    gate_up = weights["layers.0.gate_up.weight"]
    np.testing.assert_array_equal(views["model.layers.0.mlp.gate_proj.weight"], gate_up[:20])
    np.testing.assert_array_equal(views["model.layers.0.mlp.up_proj.weight"], gate_up[20:])


@pytest.mark.parametrize(
    ("family", "ours", "theirs"),
    [
        ("llama", "embedding", "model.embed_tokens"),
        ("llama", "layers.1.attention_norm", "model.layers.1.input_layernorm"),
        ("llama", "layers.1.attention_out", "model.layers.1.self_attn.o_proj"),
        ("llama", "layers.1.mlp_norm", "model.layers.1.post_attention_layernorm"),
        ("llama", "layers.1.down", "model.layers.1.mlp.down_proj"),
        ("llama", "final_norm", "model.norm"),
        ("llama", "head", "lm_head"),
        ("qwen3", "layers.1.q_norm", "model.layers.1.self_attn.q_norm"),
        ("qwen3", "layers.1.k_norm", "model.layers.1.self_attn.k_norm"),
        ("gpt2", "embedding", "transformer.wte"),
        ("gpt2", "position", "transformer.wpe"),
        ("gpt2", "layers.1.attention_norm", "transformer.h.1.ln_1"),
        ("gpt2", "layers.1.mlp_norm", "transformer.h.1.ln_2"),
        ("gpt2", "final_norm", "transformer.ln_f"),
    ],
)
def test_names_of_what_is_not_packed(family: str, ours: str, theirs: str) -> None:
    """Those of one shape could be exchanged, and every view would still fit."""
    config = model(family, "plain")
    _, weights = flat_and_weights(config)
    np.testing.assert_array_equal(huggingface_views(config, weights)[f"{theirs}.weight"], weights[f"{ours}.weight"])


def test_gpt2_linear_layers_are_in_by_out() -> None:
    config = model("gpt2", "untied")
    _, weights = flat_and_weights(config)
    views = huggingface_views(config, weights)
    for ours, theirs in (
        ("qkv", "attn.c_attn"),
        ("attention_out", "attn.c_proj"),
        ("up", "mlp.c_fc"),
        ("down", "mlp.c_proj"),
    ):
        np.testing.assert_array_equal(views[f"transformer.h.1.{theirs}.weight"], weights[f"layers.1.{ours}.weight"].T)
        np.testing.assert_array_equal(views[f"transformer.h.1.{theirs}.bias"], weights[f"layers.1.{ours}.bias"])
    assert views["transformer.wpe.weight"].shape == (10, 24)  # embeddings and head are not such layers
    assert views["lm_head.weight"].shape == views["transformer.wte.weight"].shape == (13, 24)


@pytest.mark.parametrize("name", FAMILIES["nanoeuler"])
def test_what_is_nobodys_keeps_our_names(name: str) -> None:
    config = model("nanoeuler", name)
    assert list(huggingface_shapes(config)) == list(parameter_shapes(config))


@pytest.mark.parametrize(
    ("family", "name"), [("llama", "grouped queries, prediction heads"), ("gpt2", "prediction heads, one layer")]
)
def test_prediction_heads_keep_our_names(family: str, name: str) -> None:
    config = model(family, name)
    ours, theirs = parameter_shapes(config), huggingface_shapes(config)
    extra = {key: shape for key, shape in ours.items() if key.startswith("prediction.")}
    assert extra
    assert {key: shape for key, shape in theirs.items() if key.startswith("prediction.")} == extra


def test_a_large_model_has_layers_of_two_digits() -> None:
    shapes = huggingface_shapes(model("llama", "plain", num_layers=12))
    assert "model.layers.11.mlp.up_proj.weight" in shapes
    assert len(shapes) == 3 + 12 * 9
