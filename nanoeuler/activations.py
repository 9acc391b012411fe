"""What a forward and a backward pass keep: every activation's shape, laid out in one arena before the run.

Letters: B batch, T sequence, N = B·T rows, C channels, H query heads, K key/value heads, D head size, F feed-forward
size, L layers, V vocabulary.
"""

from typing import Literal

from nanoeuler.config import ModelConfig
from nanoeuler.parameters import Shapes

#: What a model is planned for: forward and backward, losses and logits of every token, or the next token's logits.
Purpose = Literal["training", "evaluation", "generation"]


def layer_shapes(config: ModelConfig, B: int, T: int) -> Shapes:
    """Return what one layer computes, all of which its backward reads, but for the statistics."""
    C, H, K, D, F = config.hidden_dim, config.num_heads, config.kv_heads, config.head_dim, config.ff_dim
    N = B * T
    shapes: Shapes = {
        "attention_norm": (N, C),
        "qkv": (N, (H + 2 * K) * D),
        "attention": (N, H * D),
        "middle": (N, C),  # the residual stream between attention and feed-forward
        "mlp_norm": (N, C),
        "up": (N, 2 * F if config.activation == "swiglu" else F),
        "activated": (N, F),
        "out": (N, C),  # the residual stream after the layer
    }
    if config.qk_norm:
        shapes["qk"] = (N, (H + K) * D)  # queries and keys once normed: the backward reads the raw ones too
    return shapes


def norm_statistics(config: ModelConfig, name: str, N: int) -> Shapes:
    """Return what a norm's backward needs besides its input: rstd, and the mean for layernorm."""
    shapes: Shapes = {f"{name}.rstd": (N,)}
    if config.norm == "layernorm":
        shapes[f"{name}.mean"] = (N,)
    return shapes


def statistic_shapes(config: ModelConfig, B: int, T: int, purpose: Purpose = "training") -> Shapes:
    """Return every array of one number for a row: losses, statistics of the norms, log-sum-exps of the attention.

    They stay float32 where activations are shorter. Layers as in :func:`arena_shapes`.
    """
    N, layers = B * T, config.num_layers if purpose == "training" else 1
    shapes: Shapes = {"losses": (N,), **norm_statistics(config, "final_norm", N)}
    for name in (f"layers.{layer}." for layer in range(layers)):
        shapes |= norm_statistics(config, name + "attention_norm", N)
        shapes |= norm_statistics(config, name + "mlp_norm", N)
        shapes[name + "lse"] = (B, config.num_heads, T)
        if config.qk_norm:
            shapes |= {name + "q_norm.rstd": (B, T, config.num_heads), name + "k_norm.rstd": (B, T, config.kv_heads)}
    return shapes


def trunk_shapes(config: ModelConfig, B: int, T: int, purpose: Purpose) -> Shapes:
    """Return what lies before and after the layers. One head's arrays serve all prediction heads in turn."""
    N, C = B * T, config.hidden_dim
    shapes: Shapes = {
        "embedded": (N, C),
        "branch": (N, C),  # what attention or feed-forward adds to the residual stream
        "final_norm": (N, C),
        "logits": (B if purpose == "generation" else N, config.vocabulary),
    }
    if purpose == "training" and config.num_prediction_heads > 1:
        shapes["prediction"] = (N, C)
    return shapes


def gradient_shapes(config: ModelConfig, B: int, T: int) -> Shapes:
    """Return the backward's own arrays, which all layers share.

    Its other gradients are written over what the forward kept, once that has been read for the last time.
    """
    N, C, H, K, D = B * T, config.hidden_dim, config.num_heads, config.kv_heads, config.head_dim
    return {"dresidual": (N, C), "dbranch": (N, C), "dqkv": (N, (H + 2 * K) * D), "dattention": (N, H * D)}


def arena_shapes(config: ModelConfig, B: int, T: int, purpose: Purpose = "training") -> Shapes:
    """Return every array of the arena by name, but for the statistics.

    In training each layer has its own arrays, since the backward comes back to them; otherwise all layers write to
    the same ones, whose names start with ``layers.0.``. Generation has logits of each sequence's last token only.
    """
    layers = config.num_layers if purpose == "training" else 1
    shapes = trunk_shapes(config, B, T, purpose)
    for layer in range(layers):
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in layer_shapes(config, B, T).items()}
    return shapes | gradient_shapes(config, B, T) if purpose == "training" else shapes
