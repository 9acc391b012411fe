"""The mapping to Hugging Face's names and layout: nothing is lost, and transformers computes what our names mean."""

import json
import logging
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from nanoeuler.config import ModelConfig
from nanoeuler.errors import UserError
from nanoeuler.huggingface import from_huggingface, model_family, to_huggingface
from nanoeuler.parameters import flat_size, named_views, parameter_shapes

SMALL = {"vocab_size": 13, "max_seq_len": 10, "num_layers": 2, "num_heads": 6, "hidden_dim": 24, "feed_forward_dim": 20}
GQA_MTP = {"num_kv_heads": 2, "num_prediction_heads": 3, "rope_theta": 500.0, "norm_eps": 1e-3, "dropout": 0.1}
MODELS = {
    "euler": {},
    "euler, grouped queries, prediction heads": GQA_MTP,
    "euler, one key/value head, tied": {"num_kv_heads": 1, "tie_embeddings": True},
    "gpt2": {"preset": "gpt2", "norm_eps": 1e-3},
    "gpt2, prediction heads": {"preset": "gpt2", "num_prediction_heads": 2},
    "gpt2, one layer": {"preset": "gpt2", "num_layers": 1},
}
MIXTURES = {
    "gpt2, grouped queries": {"preset": "gpt2", "num_kv_heads": 3},
    "gpt2, untied": {"preset": "gpt2", "tie_embeddings": False},
    "gpt2, no biases": {"preset": "gpt2", "bias": False},
    "euler, biases": {"bias": True},
    "euler, layernorm": {"norm": "layernorm", "num_prediction_heads": 2},
    "euler, learned positions": {"position": "learned"},
    "euler, gelu": {"activation": "gelu", "tie_embeddings": True},
}


def model(changes: dict[str, Any]) -> ModelConfig:
    return ModelConfig(**(SMALL | changes))


def weights_of(config: ModelConfig, dtype: Any = np.float64) -> dict[str, np.ndarray]:
    """Return weights all different from each other, large enough for a misplaced one to change the logits."""
    shapes = parameter_shapes(config)
    return named_views(np.random.default_rng(0).normal(0, 0.4, flat_size(shapes)).astype(dtype), shapes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("changes", (MODELS | MIXTURES).values(), ids=(MODELS | MIXTURES).keys())
def test_round_trip_keeps_every_bit(changes: dict[str, Any], dtype: Any) -> None:
    config = model(changes)
    shapes = parameter_shapes(config)
    bits = np.random.default_rng(1).integers(0, 256, flat_size(shapes) * np.dtype(dtype).itemsize, np.uint8)
    weights = named_views(bits.view(dtype), shapes)  # any bits: NaN with payloads, denormals, both zeros
    hf_config, tensors = to_huggingface(config, weights)
    config_again, weights_again = from_huggingface(json.loads(json.dumps(hf_config)), tensors)
    assert config_again == config
    assert list(weights_again) == list(weights)
    for name, weight in weights.items():
        assert weights_again[name].dtype == dtype
        assert weights_again[name].shape == weight.shape
        assert weights_again[name].tobytes() == weight.tobytes(), name


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS.keys())
def test_tensors_are_views(changes: dict[str, Any]) -> None:
    config = model(changes)
    weights = weights_of(config)
    flat = weights["embedding.weight"].base
    _, tensors = to_huggingface(config, weights)
    assert all(np.shares_memory(tensor, flat) for tensor in tensors.values())
    assert sum(tensor.size for tensor in tensors.values()) == sum(weight.size for weight in weights.values())


def test_rows_of_packed_weights() -> None:
    config = model({"num_kv_heads": 2})  # C = 24, H D = 24, K D = 8
    weights = weights_of(config)
    _, tensors = to_huggingface(config, weights)
    for kind, start, end in (("q", 0, 24), ("k", 24, 32), ("v", 32, 40)):
        packed = weights["layers.1.qkv.weight"][start:end]
        np.testing.assert_array_equal(tensors[f"model.layers.1.self_attn.{kind}_proj.weight"], packed)
    np.testing.assert_array_equal(
        tensors["model.layers.0.mlp.gate_proj.weight"], weights["layers.0.gate_up.weight"][:20]
    )
    np.testing.assert_array_equal(tensors["model.layers.0.mlp.up_proj.weight"], weights["layers.0.gate_up.weight"][20:])


def test_gpt2_linear_layers_are_in_by_out() -> None:
    config = model({"preset": "gpt2"})
    weights = weights_of(config)
    _, tensors = to_huggingface(config, weights)
    np.testing.assert_array_equal(tensors["transformer.h.1.mlp.c_fc.weight"], weights["layers.1.up.weight"].T)
    assert tensors["transformer.h.0.attn.c_attn.weight"].shape == (24, 72)
    assert tensors["transformer.wpe.weight"].shape == (10, 24)  # an embedding is not a linear layer


def test_family() -> None:
    assert model_family(model({})) == "llama"
    assert model_family(model({"preset": "gpt2"})) == "gpt2"
    assert model_family(model({"preset": "gpt2"} | {"activation": "swiglu"})) == "nanoeuler"
    for changes in MIXTURES.values():
        config = model(changes)
        hf_config, tensors = to_huggingface(config, weights_of(config))
        assert hf_config["model_type"] == "nanoeuler"
        assert "architectures" not in hf_config
        assert list(tensors) == list(parameter_shapes(config))


def test_a_large_model_has_layers_of_two_digits() -> None:
    config = model({"num_layers": 12})
    _, tensors = to_huggingface(config, weights_of(config))
    assert "model.layers.11.mlp.up_proj.weight" in tensors
    assert len(tensors) == 3 + 12 * 9


# --- what is refused


def damaged(change: Any, changes: dict[str, Any] | None = None) -> str:
    """Return the message with which a model is refused after ``change(hf_config, tensors)``."""
    config = model(changes or {})
    hf_config, tensors = to_huggingface(config, weights_of(config, np.float32))
    change(hf_config, tensors)
    with pytest.raises(UserError) as error:
        from_huggingface(hf_config, tensors)
    return str(error.value)


def test_a_missing_tensor() -> None:
    name = "model.layers.1.self_attn.k_proj.weight"
    assert damaged(lambda hf_config, tensors: tensors.pop(name)) == f"tensor {name} is missing"
    assert "is missing" in damaged(lambda hf_config, tensors: tensors.clear())


def test_a_tensor_too_many() -> None:
    message = damaged(lambda hf_config, tensors: tensors.update({"model.layers.2.bias": np.zeros(1)}))
    assert message.startswith("tensor model.layers.2.bias is not part")


def test_another_shape_or_dtype() -> None:
    name = "model.norm.weight"
    message = damaged(lambda hf_config, tensors: tensors.update({name: np.zeros(23, np.float32)}))
    assert message == f"tensor {name} is float32 (23,); the configuration makes it float32 (24,)"
    message = damaged(lambda hf_config, tensors: tensors.update({name: np.zeros(24, np.float16)}))
    assert message == f"tensor {name} is float16 (24,); the configuration makes it float32 (24,)"
    name = "transformer.h.0.mlp.c_fc.weight"
    message = damaged(lambda hf_config, tensors: tensors.update({name: tensors[name].T}), {"preset": "gpt2"})
    assert message == f"tensor {name} is float32 (20, 24); the configuration makes it float32 (24, 20)"


def test_a_configuration_that_is_not_ours() -> None:
    message = damaged(lambda hf_config, tensors: hf_config.pop("nanoeuler"))
    assert message == "a model of type 'llama' that nanoeuler did not write: it has no section 'nanoeuler'"
    message = damaged(lambda hf_config, tensors: hf_config.update(model_type="mistral"))
    assert message == "model_type is 'mistral', but its section 'nanoeuler' makes it 'llama'"
    message = damaged(lambda hf_config, tensors: hf_config["nanoeuler"].update(hiden_dim=3))
    assert "did you mean 'hidden_dim'?" in message
    assert "model" in damaged(lambda hf_config, tensors: hf_config.update(nanoeuler=7))
    assert "vocab_size is not known" in damaged(lambda hf_config, tensors: hf_config["nanoeuler"].pop("vocab_size"))


# --- what transformers makes of it


def reference_logits(config: ModelConfig, w: dict[str, np.ndarray], tokens: np.ndarray) -> np.ndarray:
    """What our names mean, in the plainest NumPy: tokens (T,) to logits (T, V). Half-split RoPE (Su et al. 2021)."""
    H, K, D, T = config.num_heads, config.kv_heads, config.head_dim, len(tokens)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        if config.norm == "layernorm":
            x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_eps) * w[f"{name}.weight"] + bias(name)

    def bias(name: str) -> Any:
        return w.get(f"{name}.bias", 0)

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + bias(name)

    def rotate(x: np.ndarray) -> np.ndarray:  # (heads, T, D)
        angles = np.arange(T)[:, None] * config.rope_theta ** (-np.arange(0, D, 2) / D)
        a, b = x[..., : D // 2], x[..., D // 2 :]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    x = w["embedding.weight"][tokens]
    if config.position == "learned":
        x = x + w["position.weight"][:T]
    for layer in (f"layers.{i}" for i in range(config.num_layers)):
        heads = linear(norm(x, f"{layer}.attention_norm"), f"{layer}.qkv").reshape(T, H + 2 * K, D).transpose(1, 0, 2)
        q, k, v = heads[:H], heads[H : H + K], heads[H + K :]
        if config.position == "rope":
            q, k = rotate(q), rotate(k)
        k, v = np.repeat(k, H // K, 0), np.repeat(v, H // K, 0)
        scores = np.where(np.tri(T, dtype=bool), q @ k.transpose(0, 2, 1) / np.sqrt(D), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out = (weights / weights.sum(-1, keepdims=True)) @ v
        x = x + linear(out.transpose(1, 0, 2).reshape(T, H * D), f"{layer}.attention_out")
        x_norm = norm(x, f"{layer}.mlp_norm")
        if config.activation == "swiglu":
            gate, up = np.split(linear(x_norm, f"{layer}.gate_up"), 2, -1)
            hidden = gate / (1 + np.exp(-gate)) * up
        else:
            up = linear(x_norm, f"{layer}.up")
            hidden = up / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
        x = x + linear(hidden, f"{layer}.down")
    return norm(x, "final_norm") @ w["embedding.weight" if config.tie_embeddings else "head.weight"].T


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS.keys())
def test_transformers_computes_the_same_logits(changes: dict[str, Any], tmp_path: Any) -> None:
    torch = pytest.importorskip("torch", reason="the oracle of this test is PyTorch")
    transformers = pytest.importorskip("transformers", reason="the oracle of this test is transformers")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    config = model(changes)
    weights = weights_of(config)
    hf_config, tensors = to_huggingface(config, weights)
    (tmp_path / "config.json").write_text(json.dumps(hf_config), encoding="utf-8")
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    save_file(contiguous, tmp_path / "model.safetensors", metadata={"format": "pt"})

    theirs, loading = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, torch_dtype=torch.float64, output_loading_info=True
    )
    assert type(theirs).__name__ == ("GPT2LMHeadModel" if model_family(config) == "gpt2" else "LlamaForCausalLM")
    assert not loading["missing_keys"]
    assert not loading["mismatched_keys"]
    assert set(loading["unexpected_keys"]) == {name for name in weights if name.startswith("prediction.")}
    assert theirs.config.eos_token_id is None
    assert theirs.config.tie_word_embeddings == config.tie_embeddings
    tokens = np.random.default_rng(2).integers(0, config.vocabulary, config.max_seq_len)
    with torch.no_grad():
        logits = theirs.eval()(torch.from_numpy(tokens)[None]).logits[0].numpy()
    expected = reference_logits(config, weights, tokens)
    assert expected.std() > 0.5
    # transformers' RMSNorm and RoPE are float32 whatever the weights are.
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-12 if model_family(config) == "gpt2" else 1e-5)
