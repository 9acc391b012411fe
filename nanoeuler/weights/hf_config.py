"""Hugging Face's ``config.json`` to a :class:`ModelConfig` and back.

Read are the families of :data:`FAMILIES`, with the defaults that ``transformers`` has for what a file leaves out. What
a file asks for and we lack (a sliding window, experts, another activation ...) is refused by its name: such a model
would run here, and give other numbers.

Ours also hold the whole :class:`ModelConfig` under the key "nanoeuler", for what the other keys cannot say: dropout,
initial weights, further prediction heads. The dropouts of others are not taken over: what was right to train a model
from nothing is seldom right to go on with it.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from nanoeuler.config import ModelConfig, config_from_dict
from nanoeuler.errors import UserError, nearest
from nanoeuler.weights.mapping import model_family

Record = Mapping[str, Any]

#: What the keys of RoPE's scaling are called in a file, and in a :class:`ModelConfig`.
ROPE_KEYS = {
    "factor": "rope_factor",
    "low_freq_factor": "rope_low_freq_factor",
    "high_freq_factor": "rope_high_freq_factor",
    "original_max_position_embeddings": "rope_original_length",
}
#: Keys that must have one of these values, or be left out, and what another would ask for. None also stands for null.
PLAIN: dict[str, tuple[tuple[Any, ...], str]] = {
    "quantization_config": ((None,), "quantized weights"),
    "num_experts": ((None, 0, 1), "experts"),
    "num_local_experts": ((None, 0, 1), "experts"),
    "attn_logit_softcapping": ((None,), "soft-capped logits"),
    "final_logit_softcapping": ((None,), "soft-capped logits"),
    "partial_rotary_factor": ((None, 1, 1.0), "RoPE on a part of each head"),
    "embedding_multiplier": ((None, 1, 1.0), "scaled embeddings"),
    "residual_multiplier": ((None, 1, 1.0), "scaled residuals"),
    "attention_multiplier": ((None,), "attention scaled otherwise than by 1/√D"),
    "logit_scale": ((None, 1, 1.0), "scaled logits"),
    "logits_scaling": ((None, 1, 1.0), "scaled logits"),
    "add_cross_attention": ((None, False), "cross attention"),
    "is_encoder_decoder": ((None, False), "an encoder"),
    "scale_attn_weights": ((None, True), "attention that is not scaled by 1/√D"),
    "scale_attn_by_inverse_layer_idx": ((None, False), "attention scaled by the layer"),
    "use_sliding_window": ((None, False), "attention in a sliding window"),
}
#: What transformers takes where a file leaves a key out.
LLAMA_DEFAULTS: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "max_position_embeddings": 2048,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
}
QWEN_DEFAULTS = LLAMA_DEFAULTS | {
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": LLAMA_DEFAULTS,
    "mistral": LLAMA_DEFAULTS
    | {
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
    "qwen2": QWEN_DEFAULTS,
    "qwen3": QWEN_DEFAULTS | {"head_dim": 128},
    "gpt2": {
        "vocab_size": 50257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    },
}
#: Keys of a :class:`ModelConfig` that the section "nanoeuler" decides, as no other key says them.
OWN_KEYS = {"preset", "init_std", "dropout", "num_prediction_heads", "prediction_loss_weight"}


def read_config(record: Record) -> ModelConfig:
    """Return the architecture that a ``config.json`` describes.

    Raises:
        UserError: a family that we lack, or something in it; a value that is missing, of the wrong kind or not
            allowed; or a section "nanoeuler" that says something else than the rest.
    """
    family = record.get("model_type")
    if not isinstance(family, str):
        raise UserError(f"model_type is {family!r}: not the config.json of a model")
    section = record.get("nanoeuler")
    if section is not None and not isinstance(section, dict):
        raise UserError("the section 'nanoeuler' is not an object")
    if family == "nanoeuler":
        if section is None:
            raise UserError("a model of type 'nanoeuler' without the section 'nanoeuler' that describes it")
        return _with_family(_model(section), family)
    if family not in FAMILIES:
        raise UserError(
            f"a model of the type {family!r}{nearest(family, FAMILIES, 0.8)}, which nanoeuler does not have; it reads "
            f"{', '.join(FAMILIES)}"
        )
    for key, (allowed, meaning) in PLAIN.items():
        if key in record and not any(record[key] is value or _same(record[key], value) for value in allowed):
            raise UserError(f"{key} is {_short(record[key])}, which asks for {meaning}; nanoeuler has none")
    theirs = FAMILIES[family](DEFAULTS[family] | dict(record))
    if section is None:
        return _model(theirs)
    return _with_family(_merged(_model(section), theirs), model_family(_model(theirs)))


def _with_family(config: ModelConfig, family: str) -> ModelConfig:
    if model_family(config) != family:
        raise UserError(f"model_type is {family!r}, but the section 'nanoeuler' makes it {model_family(config)!r}")
    return config


def _merged(section: ModelConfig, theirs: dict[str, Any]) -> ModelConfig:
    """Return our section of the file, once the rest of it agrees; only the vocabulary may have grown elsewhere."""
    ours, plain = section.model_dump(), _model(theirs).model_dump()
    differing = [key for key in ours if ours[key] != plain[key] and key not in OWN_KEYS | {"vocab_size"}]
    if differing:
        key = differing[0]
        raise UserError(f"{key} is {plain[key]!r}, but the section 'nanoeuler' says {ours[key]!r}")
    return section.model_copy(update={"vocab_size": plain["vocab_size"]})


def _model(values: dict[str, Any]) -> ModelConfig:
    return config_from_dict({"model": values}).model


# --- what each family says, as the keys of a ModelConfig


def _read_llama(record: Record) -> dict[str, Any]:
    attention, feed_forward = _flag(record, "attention_bias"), _flag(record, "mlp_bias")
    if attention != feed_forward:
        raise UserError(
            f"attention_bias is {attention} and mlp_bias {feed_forward}: nanoeuler has biases in both or in neither"
        )
    return _like_llama(record) | {"bias": attention}


def _read_mistral(record: Record) -> dict[str, Any]:
    window, length = record["sliding_window"], _count(record, "max_position_embeddings")
    if window is not None and _count(record, "sliding_window") < length:
        raise UserError(f"sliding_window is {window} of {length} positions; nanoeuler's attention sees all of them")
    return _like_llama(record) | {"bias": False}


def _read_qwen2(record: Record) -> dict[str, Any]:
    _check_layer_types(record)
    return _like_llama(record) | {"bias": False, "qkv_bias": True}


def _read_qwen3(record: Record) -> dict[str, Any]:
    _check_layer_types(record)
    if _flag(record, "attention_bias"):
        raise UserError("attention_bias is true; nanoeuler has no such biases beside norms of queries and keys")
    return _like_llama(record) | {"bias": False, "qk_norm": True}


def _like_llama(record: Record) -> dict[str, Any]:
    """Return what the families of RMSNorm, RoPE and SwiGLU have in common."""
    if record["hidden_act"] not in ("silu", "swish"):  # two names of one function
        raise UserError(f"hidden_act is {_short(record['hidden_act'])}; nanoeuler has SwiGLU, which is 'silu'")
    heads, dim = _count(record, "num_attention_heads"), _count(record, "hidden_size")
    kv_heads, head_dim = record["num_key_value_heads"], record["head_dim"]
    return {
        "preset": "euler",
        "vocab_size": _count(record, "vocab_size"),
        "max_seq_len": _count(record, "max_position_embeddings"),
        "num_layers": _count(record, "num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": heads if kv_heads is None else _count(record, "num_key_value_heads"),
        "hidden_dim": dim,
        "attention_head_dim": max(1, dim // heads) if head_dim is None else _count(record, "head_dim"),
        "feed_forward_dim": _count(record, "intermediate_size"),
        "norm_eps": _number(record, "rms_norm_eps"),
        "tie_embeddings": _flag(record, "tie_word_embeddings"),
        **_read_rope(record),
    }


def _check_layer_types(record: Record) -> None:
    kinds = record.get("layer_types") or []
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise UserError(f"layer_types is {_short(kinds)}; nanoeuler has 'full_attention' alone")


def _read_rope(record: Record) -> dict[str, Any]:
    """Return RoPE's base and scaling: transformers 5 has both in rope_parameters, 4 the base at the top level.

    Where a file has both spellings, rope_scaling is the one that counts, as in transformers 5 itself.
    """
    parameters = record.get("rope_scaling") or record.get("rope_parameters") or {}
    if not isinstance(parameters, dict):
        raise UserError(f"rope_parameters or rope_scaling is {_short(parameters)}, and should be an object")
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise UserError(f"RoPE of the type {kind!r}; nanoeuler has 'default' and 'llama3'")
    if parameters.get("partial_rotary_factor", 1) != 1:
        raise UserError("partial_rotary_factor is not 1, which asks for RoPE on a part of each head")
    values: dict[str, Any] = {"rope_theta": _number({**record, **parameters}, "rope_theta")}
    if kind == "llama3":
        for theirs, ours in ROPE_KEYS.items():
            if theirs not in parameters:
                raise UserError(f"RoPE of the type 'llama3' without {theirs}")
            values[ours] = (_count if ours == "rope_original_length" else _number)(parameters, theirs)
    return values


def _read_gpt2(record: Record) -> dict[str, Any]:
    activation = record["activation_function"]
    if activation not in ("gelu_new", "gelu_pytorch_tanh"):  # two names of one function
        raise UserError(f"activation_function is {_short(activation)}; nanoeuler has 'gelu_new', the one with a tanh")
    dim, heads = _count(record, "n_embd"), _count(record, "n_head")
    return {
        "preset": "gpt2",
        "vocab_size": _count(record, "vocab_size"),
        "max_seq_len": _count(record, "n_positions"),
        "num_layers": _count(record, "n_layer"),
        "num_heads": heads,
        "num_kv_heads": heads,
        "hidden_dim": dim,
        "feed_forward_dim": 4 * dim if record["n_inner"] is None else _count(record, "n_inner"),
        "norm_eps": _number(record, "layer_norm_epsilon"),
        "tie_embeddings": _flag(record, "tie_word_embeddings"),
    }


FAMILIES: dict[str, Callable[[Record], dict[str, Any]]] = {
    "llama": _read_llama,
    "mistral": _read_mistral,
    "qwen2": _read_qwen2,
    "qwen3": _read_qwen3,
    "gpt2": _read_gpt2,
}


# --- values of the right kind


def _count(record: Record, key: str) -> int:
    value = record[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise UserError(f"{key} is {_short(value)}, and should be a whole number of at least 1")
    return value


def _number(record: Record, key: str) -> float:
    value = record[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise UserError(f"{key} is {_short(value)}, and should be a number above 0")
    return float(value)


def _flag(record: Record, key: str) -> bool:
    value = record[key]
    if not isinstance(value, bool):
        raise UserError(f"{key} is {_short(value)}, and should be true or false")
    return value


def _same(a: Any, b: Any) -> bool:
    return type(a) is not bool and type(b) is not bool and isinstance(a, int | float) and a == b


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# --- writing


def config_record(
    config: ModelConfig, dtype: str, bos: int | None = None, end_ids: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Return ``config.json`` as a dictionary.

    Args:
        config: the architecture, with its vocabulary size.
        dtype: of the tensors in the file.
        bos: the token that a text begins with, if there is one.
        end_ids: tokens that end a generation.
    """
    family = model_family(config)
    return {
        "model_type": family,
        **WRITERS[family](config),
        "vocab_size": config.vocabulary,
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": bos,  # null, not left out: transformers' defaults would end a generation at token 2
        "eos_token_id": end_ids[0] if len(end_ids) == 1 else list(end_ids) or None,
        "dtype": dtype,  # transformers 5
        "torch_dtype": dtype,  # transformers 4
        "nanoeuler": config.model_dump(),
    }


def _llama_keys(config: ModelConfig) -> dict[str, Any]:
    scaling: dict[str, Any] = {"rope_type": "default"}
    if config.rope_factor != 1:
        scaling = {"rope_type": "llama3", **{theirs: getattr(config, ours) for theirs, ours in ROPE_KEYS.items()}}
    return {
        "architectures": [ARCHITECTURES[model_family(config)]],
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.ff_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_seq_len,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,  # transformers 4, with rope_scaling
        "rope_scaling": scaling if config.rope_factor != 1 else None,
        "rope_parameters": {**scaling, "rope_theta": config.rope_theta},  # transformers 5
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
    }


def _gpt2_keys(config: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": [ARCHITECTURES["gpt2"]],
        "n_ctx": config.max_seq_len,  # llama.cpp's converter
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


ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
}
WRITERS: dict[str, Callable[[ModelConfig], dict[str, Any]]] = {
    "llama": _llama_keys,
    "qwen2": lambda config: {k: v for k, v in _llama_keys(config).items() if k not in ("attention_bias", "mlp_bias")},
    "qwen3": lambda config: {k: v for k, v in _llama_keys(config).items() if k != "mlp_bias"},
    "gpt2": _gpt2_keys,
    "nanoeuler": lambda config: {},
}
