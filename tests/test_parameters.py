"""How parameters are named and laid out, and what they start as."""

import math
from typing import Any

import numpy as np
import pytest

from nanoeuler.config import ModelConfig
from nanoeuler.parameters import (
    ALIGNMENT,
    decayed_size,
    flat_size,
    initial_weights,
    named_views,
    parameter_count,
    parameter_shapes,
)

MODELS: dict[str, dict[str, Any]] = {
    "euler": {"num_kv_heads": 1, "num_prediction_heads": 2},
    "gpt2": {"preset": "gpt2"},
    "tied, layernorm without biases": {"norm": "layernorm", "tie_embeddings": True},
    "rmsnorm with biases": {"bias": True},
    "queries and keys normed, wider heads": {"qk_norm": True, "attention_head_dim": 6, "qkv_bias": True},
}
models = pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS.keys())


def small(**changes: Any) -> ModelConfig:
    sizes = {"vocab_size": 7, "max_seq_len": 3, "num_layers": 2, "num_heads": 2, "hidden_dim": 4, "feed_forward_dim": 5}
    return ModelConfig(**(sizes | changes))


def test_euler_in_the_order_of_the_buffer() -> None:
    assert list(parameter_shapes(small(num_layers=1, num_kv_heads=1, num_prediction_heads=2)).items()) == [
        ("embedding.weight", (7, 4)),
        ("layers.0.qkv.weight", (8, 4)),  # two query heads of two channels, one key head, one value head
        ("layers.0.attention_out.weight", (4, 4)),
        ("layers.0.gate_up.weight", (10, 4)),
        ("layers.0.down.weight", (4, 5)),
        ("prediction.1.weight", (4, 4)),
        ("head.weight", (7, 4)),
        ("layers.0.attention_norm.weight", (4,)),
        ("layers.0.mlp_norm.weight", (4,)),
        ("final_norm.weight", (4,)),
        ("prediction.1.norm.weight", (4,)),
    ]


def test_norms_and_biases_of_queries_and_keys() -> None:
    """Heads of another size than C / H, too."""
    shapes = parameter_shapes(small(num_layers=1, qk_norm=True, qkv_bias=True, attention_head_dim=6))
    attention = {
        name: shape for name, shape in shapes.items() if "qkv" in name or "attention_out" in name or "k_" in name
    }
    assert attention == {
        "layers.0.qkv.weight": (36, 4),
        "layers.0.attention_out.weight": (4, 12),
        "layers.0.qkv.bias": (36,),
        "layers.0.k_norm.weight": (6,),
    }
    assert shapes["layers.0.q_norm.weight"] == (6,)
    assert not [name for name in parameter_shapes(small(bias=True, qkv_bias=False)) if name.endswith("qkv.bias")]


def test_gpt2_in_the_order_of_the_buffer() -> None:
    assert list(parameter_shapes(small(preset="gpt2", num_layers=1)).items()) == [
        ("embedding.weight", (7, 4)),
        ("position.weight", (3, 4)),
        ("layers.0.qkv.weight", (12, 4)),
        ("layers.0.attention_out.weight", (4, 4)),
        ("layers.0.up.weight", (5, 4)),
        ("layers.0.down.weight", (4, 5)),
        ("layers.0.qkv.bias", (12,)),
        ("layers.0.attention_out.bias", (4,)),
        ("layers.0.up.bias", (5,)),
        ("layers.0.down.bias", (4,)),
        ("layers.0.attention_norm.weight", (4,)),
        ("layers.0.attention_norm.bias", (4,)),
        ("layers.0.mlp_norm.weight", (4,)),
        ("layers.0.mlp_norm.bias", (4,)),
        ("final_norm.weight", (4,)),
        ("final_norm.bias", (4,)),
    ]


def test_published_sizes() -> None:
    gpt2 = {"preset": "gpt2", "vocab_size": 50257, "max_seq_len": 1024}
    small = ModelConfig(**gpt2, num_layers=12, num_heads=12, hidden_dim=768)
    medium = ModelConfig(**gpt2, num_layers=24, num_heads=16, hidden_dim=1024)
    assert parameter_count(parameter_shapes(small)) == 124_439_808  # as transformers counts "gpt2"
    assert parameter_count(parameter_shapes(medium)) == 354_823_168  # and "gpt2-medium"
    llama = {"vocab_size": 32000, "num_layers": 22, "num_heads": 32, "num_kv_heads": 4, "hidden_dim": 2048}
    assert parameter_count(parameter_shapes(ModelConfig(**llama, feed_forward_dim=5632))) == 1_100_048_384  # TinyLlama


def test_sizes_by_hand() -> None:
    shapes = {"a.weight": (3, 5), "b.weight": (4, 4), "c.bias": (1,)}
    assert ALIGNMENT == 16
    assert parameter_count(shapes) == 32
    assert flat_size(shapes) == 48
    assert decayed_size(shapes) == 32
    assert flat_size({}) == decayed_size({}) == parameter_count({}) == 0


@models
def test_matrices_come_first_and_only_they_decay(changes: dict[str, Any]) -> None:
    shapes = parameter_shapes(small(**changes))
    split, flat = decayed_size(shapes), np.arange(flat_size(shapes))
    for name, view in named_views(flat, shapes).items():
        assert (view.max() < split) == (view.ndim == 2), name


@models
def test_views_are_aligned_and_lie_side_by_side(changes: dict[str, Any]) -> None:
    shapes = parameter_shapes(small(**changes))
    flat = np.zeros(flat_size(shapes), np.float32)
    taken = np.zeros(flat.size, int)
    for name, view in named_views(flat, shapes).items():
        assert view.shape == shapes[name]
        assert np.shares_memory(view, flat)
        start = (view.ctypes.data - flat.ctypes.data) // flat.itemsize
        assert start % ALIGNMENT == 0
        taken[start : start + view.size] += 1
        view[...] = 1
    assert taken.max() == 1
    assert np.array_equal(flat, taken)  # writing to a view wrote there and nowhere else
    assert taken.sum() == parameter_count(shapes)


@models
def test_initial_weights(changes: dict[str, Any]) -> None:
    config = small(num_layers=3, vocab_size=500, hidden_dim=64, feed_forward_dim=200, **changes)
    shapes = parameter_shapes(config)
    flat = initial_weights(config, seed=1)
    assert flat.dtype == np.float32
    for name, view in named_views(flat, shapes).items():
        if view.ndim == 1:
            assert (view == (0 if name.endswith("bias") else 1)).all(), name
            continue
        residual = name.endswith(("attention_out.weight", "down.weight"))
        expected = 0.02 / math.sqrt(2 * 3) if residual else 0.02
        assert view.std() == pytest.approx(expected, rel=6 / math.sqrt(2 * view.size)), name
        assert abs(view.mean()) < 6 * expected / math.sqrt(view.size), name
    gaps = np.ones(flat.size, bool)
    for view in named_views(gaps, shapes).values():
        view[...] = False
    assert not flat[gaps].any()


def test_a_seed_gives_the_same_weights_in_every_precision_and_another_seed_others() -> None:
    config = small()
    single, double = initial_weights(config, 3), initial_weights(config, 3, np.float64)
    assert double.dtype == np.float64
    assert np.array_equal(single, double)
    assert not np.array_equal(single, initial_weights(config, 4))


def test_the_deviation_is_configured() -> None:
    narrow, wide = (initial_weights(small(init_std=std), 0) for std in (0.02, 0.04))
    matrices = decayed_size(parameter_shapes(small()))
    np.testing.assert_allclose(wide[:matrices], 2 * narrow[:matrices], rtol=1e-6)
