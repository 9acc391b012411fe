"""config.json, read and written: transformers' defaults, what is refused, and one message for whatever else it is."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nanoeuler.config import ModelConfig
from nanoeuler.errors import UserError
from nanoeuler.weights.hf_config import DEFAULTS, FAMILIES, PLAIN, config_record, read_config
from nanoeuler.weights.mapping import model_family

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 101,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 97,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 32,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
SWITCHES = {
    "llama": {},
    "llama, biases": {"bias": True},
    "llama, wide heads, tied": {"attention_head_dim": 10, "tie_embeddings": True},
    "llama 3": {"rope_factor": 8.0, "rope_original_length": 32, "rope_low_freq_factor": 2.0, "rope_theta": 5e5},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True, "attention_head_dim": 8},
    "gpt2": {"preset": "gpt2"},
    "gpt2, untied": {"preset": "gpt2", "tie_embeddings": False},
    "heads and dropout": {"num_prediction_heads": 3, "dropout": 0.1, "init_std": 0.3},
    "a mixture": {"norm": "layernorm"},
    "qwen3 with biases": {"qk_norm": True, "qkv_bias": True},
}


def refusal(**changes: Any) -> str:
    record = (GPT2 if changes.get("model_type") == "gpt2" else LLAMA) | changes
    with pytest.raises(UserError) as error:
        read_config(record)
    return str(error.value)


@pytest.mark.parametrize("changes", SWITCHES.values(), ids=SWITCHES.keys())
def test_round_trip(changes: dict[str, Any]) -> None:
    sizes = {"vocab_size": 13, "max_seq_len": 10, "num_layers": 2, "num_heads": 4, "num_kv_heads": 4, "hidden_dim": 24}
    config = ModelConfig(**sizes | changes)
    record = json.loads(json.dumps(config_record(config, "float32", 1, (2, 3))))
    assert read_config(record) == config
    assert (record["bos_token_id"], record["eos_token_id"]) == (1, [2, 3])
    if model_family(config) != "nanoeuler":  # theirs say all of the architecture that ours do
        del record["nanoeuler"]
        plain = read_config(record)
        others = {"dropout": config.dropout, "init_std": config.init_std}
        heads = {"num_prediction_heads": config.num_prediction_heads}
        assert plain.model_copy(update=others | heads) == config


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_file_leaves_out_is_what_transformers_takes(family: str) -> None:
    transformers = pytest.importorskip("transformers", reason="the oracle of this test is transformers")
    theirs = transformers.AutoConfig.for_model(family).to_dict()
    heads = theirs.get("num_attention_heads", 1)
    derived = {"num_key_value_heads": heads, "head_dim": theirs.get("hidden_size", 0) // heads, "n_inner": None}
    for key, value in DEFAULTS[family].items():
        expected = theirs["rope_parameters"][key] if key == "rope_theta" else theirs.get(key)
        if value is None:  # left open, or filled in from others
            assert expected in (None, derived[key]), key
        elif key in theirs or key not in ("mlp_bias", "attention_bias"):  # which not all of them have
            assert value == expected, key


def test_sizes_by_hand() -> None:
    config = read_config(LLAMA)
    assert (config.vocab_size, config.max_seq_len, config.num_layers, config.ff_dim) == (101, 64, 2, 40)
    assert (config.num_heads, config.kv_heads, config.head_dim, config.hidden_dim) == (4, 2, 6, 24)
    assert (config.norm, config.position, config.activation) == ("rmsnorm", "rope", "swiglu")
    assert (config.bias, config.tie_embeddings, config.norm_eps, config.dropout) == (False, False, 1e-5, 0)
    config = read_config(GPT2)
    assert (config.hidden_dim, config.ff_dim, config.max_seq_len, config.vocab_size) == (24, 96, 32, 97)
    assert (config.norm, config.position, config.activation) == ("layernorm", "learned", "gelu")
    assert (config.bias, config.tie_embeddings, config.dropout) == (True, True, 0)
    assert read_config(GPT2 | {"n_inner": 50}).ff_dim == 50
    assert read_config(LLAMA | {"num_key_value_heads": None, "head_dim": None}).kv_heads == 4


def test_families_differ_as_they_should() -> None:
    assert model_family(read_config(LLAMA | {"model_type": "mistral", "sliding_window": None})) == "llama"
    assert read_config(LLAMA | {"model_type": "mistral", "sliding_window": 64}).max_seq_len == 64
    qwen2 = read_config(LLAMA | {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 8})
    assert (qwen2.bias, qwen2.qkv_bias, qwen2.qk_norm) == (False, True, False)
    qwen3 = read_config(LLAMA | {"model_type": "qwen3", "layer_types": ["full_attention"] * 2})
    assert (qwen3.qkv_bias, qwen3.qk_norm, qwen3.head_dim) == (False, True, 128)
    biased = read_config(LLAMA | {"attention_bias": True, "mlp_bias": True})
    assert (biased.bias, biased.qkv_bias) == (True, True)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 5e5, "rope_scaling": LLAMA3},  # transformers 4
        {"rope_theta": 5e5, "rope_scaling": {"type": "llama3"} | {k: v for k, v in LLAMA3.items() if k != "rope_type"}},
        {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}},  # transformers 5
        {"rope_theta": 5e5, "rope_parameters": LLAMA3, "rope_scaling": None},
    ],
)
def test_rope_of_llama3_however_it_is_spelt(rope: dict[str, Any]) -> None:
    config = read_config(LLAMA | rope)
    assert (config.rope_theta, config.rope_factor, config.rope_original_length) == (5e5, 8.0, 32)
    assert (config.rope_low_freq_factor, config.rope_high_freq_factor) == (1.0, 4.0)


def test_rope_theta_in_either_place() -> None:
    assert read_config(LLAMA).rope_theta == 10000
    assert read_config(LLAMA | {"rope_theta": 7}).rope_theta == 7
    assert read_config(LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 9.0}}).rope_theta == 9
    assert read_config(LLAMA | {"rope_theta": 7, "rope_parameters": {"rope_theta": 9.0}}).rope_theta == 9


def test_rope_scaling_wins_where_a_file_has_both_spellings() -> None:
    transformers = pytest.importorskip("transformers", reason="the oracle of this test is transformers")
    both = LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}, "rope_theta": 5e5}
    both |= {"rope_scaling": LLAMA3}
    config, theirs = read_config(both), transformers.LlamaConfig(**both).rope_parameters
    assert theirs["rope_type"] == "llama3"
    assert (config.rope_factor, config.rope_theta) == (theirs["factor"], theirs["rope_theta"]) == (8.0, 5e5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "mixtral"}, ["'mixtral'", "did you mean 'mistral'?", "llama, mistral, qwen2, qwen3, gpt2"]),
        ({"model_type": None}, ["model_type is None"]),
        ({"model_type": "mistral", "max_position_embeddings": 8192}, ["sliding_window is 4096 of 8192 positions"]),
        ({"model_type": "mistral", "sliding_window": 63}, ["sliding_window is 63 of 64 positions"]),
        ({"model_type": "qwen2", "use_sliding_window": True}, ["use_sliding_window is True", "sliding window"]),
        ({"model_type": "qwen3", "layer_types": ["sliding_attention"]}, ["layer_types", "sliding_attention"]),
        ({"model_type": "qwen3", "attention_bias": True}, ["attention_bias"]),
        ({"num_local_experts": 8}, ["num_local_experts is 8", "experts"]),
        ({"hidden_act": "gelu"}, ["hidden_act is 'gelu'", "silu"]),
        ({"attention_bias": True}, ["attention_bias is True and mlp_bias False"]),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, ["'linear'", "'llama3'"]),
        ({"rope_scaling": {"rope_type": "llama3"}}, ["'llama3' without factor"]),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, ["partial_rotary_factor"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor is 0.5"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config", "quantized"]),
        ({"model_type": "gpt2", "activation_function": "relu"}, ["activation_function is 'relu'", "gelu_new"]),
        ({"model_type": "gpt2", "activation_function": "gelu"}, ["activation_function is 'gelu'"]),
        ({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": True}, ["scale_attn_by_inverse_layer_idx"]),
        ({"model_type": "gpt2", "scale_attn_weights": False}, ["scale_attn_weights is False"]),
        ({"model_type": "gpt2", "add_cross_attention": True}, ["cross attention"]),
        ({"model_type": "gpt2", "n_head": 5}, ["24", "5"]),
        ({"num_key_value_heads": 3}, ["num_heads 4 is not a multiple of num_kv_heads 3"]),
        ({"hidden_size": "24"}, ["hidden_size is '24'", "whole number"]),
        ({"hidden_size": -1}, ["hidden_size is -1"]),
        ({"vocab_size": True}, ["vocab_size is True"]),
        ({"vocab_size": 10**30}, ["vocab_size is 1000"]),
        ({"num_hidden_layers": 10**6}, ["num_layers"]),
        ({"rms_norm_eps": float("nan")}, ["rms_norm_eps is nan"]),
        ({"rms_norm_eps": 10**400}, ["rms_norm_eps is 1000"]),
        ({"tie_word_embeddings": 1}, ["tie_word_embeddings is 1", "true or false"]),
        ({"nanoeuler": 7}, ["the section 'nanoeuler' is not an object"]),
    ],
)
def test_a_refusal_names_the_key_and_what_we_have(changes: dict[str, Any], words: list[str]) -> None:
    message = refusal(**changes)
    for word in words:
        assert word in message


@pytest.mark.parametrize("key", PLAIN)
def test_plain_values_are_taken(key: str) -> None:
    for value in PLAIN[key][0]:
        assert read_config(LLAMA | {key: value}) == read_config(LLAMA)


def test_the_section_and_the_rest_must_agree() -> None:
    config = ModelConfig(vocab_size=13, dropout=0.2, num_prediction_heads=2)
    record = config_record(config, "float32")
    assert read_config(record | {"vocab_size": 15}) == config.model_copy(update={"vocab_size": 15})  # resized elsewhere
    for changes, words in (
        ({"hidden_size": 256}, "hidden_dim is 256, but the section 'nanoeuler' says 128"),
        ({"rms_norm_eps": 1e-6}, "norm_eps is 1e-06"),
        ({"model_type": "qwen2"}, "qkv_bias is True"),
        ({"nanoeuler": config.model_dump() | {"hiden_dim": 3}}, "did you mean 'hidden_dim'?"),
    ):
        with pytest.raises(UserError) as error:
            read_config(record | changes)
        assert words in str(error.value)
    with pytest.raises(UserError, match="without the section 'nanoeuler'"):
        read_config({"model_type": "nanoeuler"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = sorted({*PLAIN, *LLAMA, *GPT2, "rope_parameters", "rope_scaling", "layer_types", "hidden_act", "sliding_window",
               "activation_function", "n_inner", "head_dim", "nanoeuler", "attention_bias"})  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    base=st.sampled_from([LLAMA, GPT2, LLAMA | {"model_type": "mistral"}, LLAMA | {"model_type": "qwen3"}]),
    changes=st.dictionaries(st.sampled_from(KEYS), JSON, min_size=1, max_size=3),
)
def test_anything_is_a_configuration_or_one_message(base: dict[str, Any], changes: dict[str, Any]) -> None:
    with suppress(UserError):
        assert read_config(base | changes).vocabulary > 0
