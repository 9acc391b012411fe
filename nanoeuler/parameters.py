"""The model's parameters: their names, shapes and initial values, and how named arrays lie in one flat buffer.

One flat buffer holds all weights; gradients and AdamW's two moments have buffers of the same layout. Clipping, the
update and an all-reduce are then each one call over one array, and a tensor is a view with a name.
"""

import math
from typing import Any

import numpy as np

from nanoeuler.config import ModelConfig

Shapes = dict[str, tuple[int, ...]]

#: Every tensor starts at a multiple of this many elements (64 bytes of float32), so that wide loads are aligned.
ALIGNMENT = 16


def parameter_shapes(config: ModelConfig) -> Shapes:
    """Return the shape of every parameter by name, in the order of the flat buffer.

    Matrices, which AdamW decays, come first; vectors (norms and biases), which it does not, come last: see
    :func:`decayed_size`. Linear weights are (out, in); q|k|v are packed in one, gate|up in one.
    """
    C, H, K, D, F = config.hidden_dim, config.num_heads, config.kv_heads, config.head_dim, config.ff_dim
    shapes: Shapes = {"embedding.weight": (config.vocabulary, C)}
    if config.position == "learned":
        shapes["position.weight"] = (config.max_seq_len, C)
    up = "gate_up" if config.activation == "swiglu" else "up"
    linears = {"qkv": ((H + 2 * K) * D, C), "attention_out": (C, H * D), up: (F, C), "down": (C, F)}
    if up == "gate_up":
        linears[up] = (2 * F, C)
    for layer in range(config.num_layers):
        for name, shape in linears.items():
            shapes[f"layers.{layer}.{name}.weight"] = shape
            if config.qkv_bias if name == "qkv" else config.bias:
                shapes[f"layers.{layer}.{name}.bias"] = shape[:1]
        if config.qk_norm:
            shapes |= {f"layers.{layer}.{letter}_norm.weight": (D,) for letter in "qk"}
        for norm in ("attention_norm", "mlp_norm"):
            shapes |= _norm_shapes(config, f"layers.{layer}.{norm}")
    shapes |= _norm_shapes(config, "final_norm")
    for head in range(1, config.num_prediction_heads):
        shapes[f"prediction.{head}.weight"] = (C, C)
        shapes |= _norm_shapes(config, f"prediction.{head}.norm")
    if not config.tie_embeddings:
        shapes["head.weight"] = (config.vocabulary, C)
    return dict(sorted(shapes.items(), key=lambda item: len(item[1]) == 1))  # stable: matrices, then vectors


def _norm_shapes(config: ModelConfig, name: str) -> Shapes:
    shapes: Shapes = {f"{name}.weight": (config.hidden_dim,)}
    if config.norm == "layernorm" and config.bias:
        shapes[f"{name}.bias"] = (config.hidden_dim,)
    return shapes


def _padded(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // ALIGNMENT) * ALIGNMENT


def flat_size(shapes: Shapes) -> int:
    """Return how many elements the flat buffer has: every tensor, padded to :data:`ALIGNMENT`."""
    return sum(_padded(shape) for shape in shapes.values())


def decayed_size(shapes: Shapes) -> int:
    """Return how many elements at the start of the flat buffer are weight matrices and embeddings, which decay."""
    return sum(_padded(shape) for shape in shapes.values() if len(shape) > 1)


def parameter_count(shapes: Shapes) -> int:
    """Return the number of parameters, without padding."""
    return sum(math.prod(shape) for shape in shapes.values())


def named_views(flat: Any, shapes: Shapes) -> dict[str, Any]:
    """Return a view of the flat buffer for every name: no copy, and writing to a view writes to the buffer."""
    views, start = {}, 0
    for name, shape in shapes.items():
        views[name] = flat[start : start + math.prod(shape)].reshape(shape)
        start += _padded(shape)
    return views


def initial_weights(config: ModelConfig, seed: int, dtype: Any = np.float32) -> np.ndarray:
    """Return a flat buffer of initial weights.

    They are GPT-2's (Radford et al. 2019, section 2.3): N(0, init_std²), residual projections scaled by 1/√(2L),
    norms 1, biases 0. The same seed gives the same weights in every dtype.
    """
    shapes = parameter_shapes(config)
    flat = np.zeros(flat_size(shapes), dtype)
    generator = np.random.Generator(np.random.PCG64(seed))
    for name, view in named_views(flat, shapes).items():
        if name.endswith("norm.weight"):
            view[...] = 1
        elif view.ndim > 1:
            std = config.init_std
            if name.endswith(("attention_out.weight", "down.weight")):
                std /= math.sqrt(2 * config.num_layers)
            view[...] = generator.standard_normal(view.shape, np.float32) * np.float32(std)
    return flat
