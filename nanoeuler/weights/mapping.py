"""Our weights under Hugging Face's names and in its layout, as views: one mapping that serves both directions.

To write a file its tensors are taken from the views; to read one they are written into them. So reading cannot disagree
with writing, and nothing is copied that need not be.

- RMSNorm, RoPE, SwiGLU: Llama, and with biases of q|k|v alone Qwen2, with norms of queries and keys Qwen3. q|k|v and
  gate|up are split by rows.
- LayerNorm, learned positions, GELU, biases, K = H: GPT-2. Its linear weights are (in, out), ours (out, in), so they
  are transposed.
- Any other mixture of switches has no class in ``transformers``: ``model_type`` "nanoeuler", our own names.

Further prediction heads keep our names; they lie in a file of their own, which others leave aside.
"""

import re
from collections.abc import Mapping

import numpy as np

from nanoeuler.config import ModelConfig
from nanoeuler.parameters import Shapes, parameter_shapes

#: Our name to theirs, without ".weight" or ".bias"; {} is the layer. Several names: the rows are split among them.
LLAMA: dict[str, tuple[str, ...]] = {
    "embedding": ("model.embed_tokens",),
    "layers.{}.attention_norm": ("model.layers.{}.input_layernorm",),
    "layers.{}.qkv": tuple(f"model.layers.{{}}.self_attn.{letter}_proj" for letter in "qkv"),
    "layers.{}.q_norm": ("model.layers.{}.self_attn.q_norm",),
    "layers.{}.k_norm": ("model.layers.{}.self_attn.k_norm",),
    "layers.{}.attention_out": ("model.layers.{}.self_attn.o_proj",),
    "layers.{}.mlp_norm": ("model.layers.{}.post_attention_layernorm",),
    "layers.{}.gate_up": ("model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"),
    "layers.{}.down": ("model.layers.{}.mlp.down_proj",),
    "final_norm": ("model.norm",),
    "head": ("lm_head",),
}
GPT2: dict[str, tuple[str, ...]] = {
    "embedding": ("transformer.wte",),
    "position": ("transformer.wpe",),
    "layers.{}.attention_norm": ("transformer.h.{}.ln_1",),
    "layers.{}.qkv": ("transformer.h.{}.attn.c_attn",),
    "layers.{}.attention_out": ("transformer.h.{}.attn.c_proj",),
    "layers.{}.mlp_norm": ("transformer.h.{}.ln_2",),
    "layers.{}.up": ("transformer.h.{}.mlp.c_fc",),
    "layers.{}.down": ("transformer.h.{}.mlp.c_proj",),
    "final_norm": ("transformer.ln_f",),
    "head": ("lm_head",),
}
#: The families of RMSNorm, RoPE and SwiGLU by (bias, qkv_bias, qk_norm).
LIKE_LLAMA = {
    (False, False, False): "llama",
    (True, True, False): "llama",
    (False, True, False): "qwen2",
    (False, False, True): "qwen3",
}
NAMES = {"llama": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA, "gpt2": GPT2, "nanoeuler": {}}


def model_family(config: ModelConfig) -> str:
    """Return Hugging Face's ``model_type``: llama, qwen2, qwen3, gpt2, or nanoeuler where none describes the model."""
    switches = (config.norm, config.position, config.activation)
    extras = (bool(config.bias), bool(config.qkv_bias), config.qk_norm)
    if switches == ("rmsnorm", "rope", "swiglu"):
        return LIKE_LLAMA.get(extras, "nanoeuler")
    plain_heads = config.kv_heads == config.num_heads and config.num_heads * config.head_dim == config.hidden_dim
    if switches == ("layernorm", "learned", "gelu") and extras == (True, True, False) and plain_heads:
        return "gpt2"
    return "nanoeuler"


def huggingface_views(config: ModelConfig, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return views of the weights (names and shapes as :func:`parameter_shapes`) under Hugging Face's names.

    Writing to a view writes to the weights; GPT-2's linear weights are not contiguous.
    """
    family = model_family(config)
    queries, keys, F = config.num_heads * config.head_dim, config.kv_heads * config.head_dim, config.ff_dim
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


def huggingface_shapes(config: ModelConfig) -> Shapes:
    """Return the shape of every tensor under Hugging Face's names; no memory is taken."""
    nothing = {name: np.broadcast_to(np.float32(0), shape) for name, shape in parameter_shapes(config).items()}
    return {name: view.shape for name, view in huggingface_views(config, nothing).items()}
