"""Our weights under Hugging Face's names and in its layout, as views: one mapping that serves both directions.

:func:`to_huggingface` returns views of the weights it is given. To read a file, the views of an empty buffer are taken
and filled, so reading cannot disagree with writing, and nothing is copied that need not be.

- RMSNorm, RoPE, SwiGLU, no biases: ``LlamaForCausalLM``. q|k|v and gate|up are split by rows.
- LayerNorm, learned positions, GELU, biases, tied embedding, K = H: ``GPT2LMHeadModel``. Its linear weights are
  (in, out), ours (out, in), so they are transposed.
- Any other mixture of switches has no class in ``transformers``: ``model_type`` "nanoeuler", our own names.

``config.json`` also holds the whole :class:`ModelConfig` under the key "nanoeuler". Further prediction heads keep our
names; ``transformers`` leaves such tensors aside.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from nanoeuler.config import ModelConfig, config_from_dict
from nanoeuler.errors import UserError
from nanoeuler.parameters import flat_size, named_views, parameter_shapes

#: Our name to theirs, without ".weight" or ".bias"; {} is the layer. Several names: the rows are split among them.
NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "llama": {
        "embedding": ("model.embed_tokens",),
        "layers.{}.attention_norm": ("model.layers.{}.input_layernorm",),
        "layers.{}.qkv": tuple(f"model.layers.{{}}.self_attn.{letter}_proj" for letter in "qkv"),
        "layers.{}.attention_out": ("model.layers.{}.self_attn.o_proj",),
        "layers.{}.mlp_norm": ("model.layers.{}.post_attention_layernorm",),
        "layers.{}.gate_up": ("model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"),
        "layers.{}.down": ("model.layers.{}.mlp.down_proj",),
        "final_norm": ("model.norm",),
        "head": ("lm_head",),
    },
    "gpt2": {
        "embedding": ("transformer.wte",),
        "position": ("transformer.wpe",),
        "layers.{}.attention_norm": ("transformer.h.{}.ln_1",),
        "layers.{}.qkv": ("transformer.h.{}.attn.c_attn",),
        "layers.{}.attention_out": ("transformer.h.{}.attn.c_proj",),
        "layers.{}.mlp_norm": ("transformer.h.{}.ln_2",),
        "layers.{}.up": ("transformer.h.{}.mlp.c_fc",),
        "layers.{}.down": ("transformer.h.{}.mlp.c_proj",),
        "final_norm": ("transformer.ln_f",),
    },
    "nanoeuler": {},
}


def to_huggingface(
    config: ModelConfig, weights: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return ``config.json`` as a dictionary, and the tensors of ``model.safetensors``.

    The tensors are views of ``weights`` (names and shapes as :func:`parameter_shapes`): writing to one writes to the
    other, and GPT-2's are not contiguous.
    """
    dtype = str(weights["embedding.weight"].dtype)
    return _config_json(config, dtype), _views(config, weights)


def from_huggingface(
    hf_config: dict[str, Any], tensors: Mapping[str, np.ndarray]
) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    """Invert :func:`to_huggingface`; the weights are views of one new flat buffer of the tensors' dtype.

    Raises:
        UserError: as :func:`read_model_config` and :func:`fill_weights`.
    """
    config = read_model_config(hf_config)
    shapes = parameter_shapes(config)
    dtype = next((tensor.dtype for tensor in tensors.values()), np.float32)
    weights = named_views(np.zeros(flat_size(shapes), dtype), shapes)
    fill_weights(config, weights, tensors, tensors.__getitem__)
    return config, weights


def read_model_config(hf_config: dict[str, Any]) -> ModelConfig:
    """Return the :class:`ModelConfig` that ``config.json`` carries.

    Raises:
        UserError: the file is not one of ours, its section "nanoeuler" is not valid, or the two say different things.
    """
    model_type = hf_config.get("model_type")
    if "nanoeuler" not in hf_config:
        raise UserError(f"a model of type {model_type!r} that nanoeuler did not write: it has no section 'nanoeuler'")
    config = config_from_dict({"model": hf_config["nanoeuler"]}).model
    if model_type != model_family(config):
        raise UserError(f"model_type is {model_type!r}, but its section 'nanoeuler' makes it {model_family(config)!r}")
    return config


def fill_weights(
    config: ModelConfig,
    weights: Mapping[str, np.ndarray],
    names: Iterable[str],
    read: Callable[[str], np.ndarray],
) -> None:
    """Write Hugging Face's tensors into ``weights``, reading one at a time with ``read(name)``.

    Raises:
        UserError: a tensor is missing, is not part of this architecture, or has another shape or dtype.
    """
    views, names = _views(config, weights), set(names)
    for name in [*views, *names]:
        if name not in names:
            raise UserError(f"tensor {name} is missing")
        if name not in views:
            raise UserError(f"tensor {name} is not part of the architecture that config.json describes")
    for name, view in views.items():
        tensor = read(name)
        if (tensor.shape, tensor.dtype) != (view.shape, view.dtype):
            raise UserError(
                f"tensor {name} is {tensor.dtype} {tensor.shape}; the configuration makes it {view.dtype} {view.shape}"
            )
        view[...] = tensor


def model_family(config: ModelConfig) -> str:
    """Return Hugging Face's ``model_type``: "llama", "gpt2", or "nanoeuler" where neither describes the model."""
    switches = (config.norm, config.position, config.activation, config.bias)
    if switches == ("rmsnorm", "rope", "swiglu", False):
        return "llama"
    if switches == ("layernorm", "learned", "gelu", True) and config.tie_embeddings:
        return "gpt2" if config.kv_heads == config.num_heads else "nanoeuler"
    return "nanoeuler"


def _views(config: ModelConfig, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    family = model_family(config)
    queries, keys, F = config.hidden_dim, config.kv_heads * config.head_dim, config.ff_dim
    cuts = {"layers.{}.qkv": [queries, queries + keys], "layers.{}.gate_up": [F]}
    views = {}
    for name, weight in weights.items():
        place, _, kind = name.rpartition(".")  # "layers.3.qkv", "weight"
        layer = ""
        if match := re.fullmatch(r"layers\.(\d+)\.(\w+)", place):
            layer, place = match[1], f"layers.{{}}.{match[2]}"
        theirs = NAMES[family].get(place, (place,))
        parts = np.split(weight, cuts[place]) if len(theirs) > 1 else [weight]
        for their, part in zip(theirs, parts, strict=True):
            conv1d = family == "gpt2" and ".c_" in their  # GPT-2's linear layers, which are (in, out)
            views[f"{their.format(layer)}.{kind}"] = part.T if conv1d else part
    return views


def _config_json(config: ModelConfig, dtype: str) -> dict[str, Any]:
    family = model_family(config)
    specific = {"llama": _llama_keys, "gpt2": _gpt2_keys, "nanoeuler": lambda config: {}}[family](config)
    return {
        "model_type": family,
        **specific,
        "vocab_size": config.vocabulary,
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": None,  # left out they would be transformers' defaults, and generation would stop at token 2
        "eos_token_id": None,
        "dtype": dtype,  # transformers 5
        "torch_dtype": dtype,  # transformers 4
        "nanoeuler": config.model_dump(),
    }


def _llama_keys(config: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.ff_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_seq_len,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,  # transformers 4
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},  # transformers 5
        "attention_bias": False,
        "mlp_bias": False,
    }


def _gpt2_keys(config: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "n_ctx": config.max_seq_len,
        "n_positions": config.max_seq_len,
        "n_embd": config.hidden_dim,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.ff_dim,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": config.norm_eps,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": 0.0,
    }
