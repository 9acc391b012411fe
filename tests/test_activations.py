"""The arena: what a forward and a backward pass keep, by name and shape."""

import math
from typing import Any

import numpy as np
import pytest
from oracle import losses_of

from nanoeuler import cpu
from nanoeuler.activations import Purpose, arena_shapes, statistic_shapes
from nanoeuler.config import ModelConfig
from nanoeuler.model import Transformer
from nanoeuler.parameters import flat_size, initial_weights, named_views

EULER: dict[str, Any] = {"num_kv_heads": 1}
GPT2: dict[str, Any] = {"preset": "gpt2"}
QK_NORM: dict[str, Any] = EULER | {"qk_norm": True, "attention_head_dim": 6}
presets = pytest.mark.parametrize("changes", [EULER, GPT2, EULER | {"num_prediction_heads": 3}, QK_NORM], ids=str)


def small(**changes: Any) -> ModelConfig:
    sizes = {"vocab_size": 7, "max_seq_len": 6, "num_layers": 2, "num_heads": 2, "hidden_dim": 4, "feed_forward_dim": 5}
    return ModelConfig(**(sizes | changes))


def test_euler_in_training_by_hand() -> None:
    B, T, N = 2, 3, 6
    assert arena_shapes(small(num_layers=1, **EULER), B, T) == {
        "embedded": (N, 4),
        "branch": (N, 4),
        "final_norm": (N, 4),
        "logits": (N, 7),
        "layers.0.attention_norm": (N, 4),
        "layers.0.qkv": (N, 8),
        "layers.0.attention": (N, 4),
        "layers.0.middle": (N, 4),
        "layers.0.mlp_norm": (N, 4),
        "layers.0.up": (N, 10),
        "layers.0.activated": (N, 5),
        "layers.0.out": (N, 4),
        "dresidual": (N, 4),
        "dbranch": (N, 4),
        "dqkv": (N, 8),
        "dattention": (N, 4),
    }
    assert statistic_shapes(small(num_layers=1, **EULER), B, T) == {
        "losses": (N,),
        "final_norm.rstd": (N,),
        "layers.0.attention_norm.rstd": (N,),
        "layers.0.mlp_norm.rstd": (N,),
        "layers.0.lse": (B, 2, T),
    }


def test_gpt2_keeps_means_and_has_no_gate() -> None:
    config = small(**GPT2)
    statistics = statistic_shapes(config, 2, 3)
    assert statistics["final_norm.mean"] == statistics["layers.1.mlp_norm.mean"] == (6,)
    means = {name.replace("rstd", "mean") for name in statistics if name.endswith(".rstd")}
    assert {name for name in statistics if name.endswith(".mean")} == means
    shapes = arena_shapes(config, 2, 3)
    assert shapes["layers.0.up"] == (6, 5)
    assert shapes["layers.0.qkv"] == (6, 12)


def test_further_heads_share_one_array_and_only_training_has_it() -> None:
    for heads in (2, 5):
        config = small(num_prediction_heads=heads)
        assert arena_shapes(config, 2, 3).keys() - arena_shapes(small(), 2, 3).keys() == {"prediction"}
        assert arena_shapes(config, 2, 3, "evaluation") == arena_shapes(small(), 2, 3, "evaluation")
        assert statistic_shapes(config, 2, 3) == statistic_shapes(small(), 2, 3)


def test_without_a_backward_all_layers_share_their_arrays() -> None:
    training = arena_shapes(small(num_layers=5), 2, 3)
    evaluation = arena_shapes(small(num_layers=5), 2, 3, "evaluation")
    assert {name.split(".")[1] for name in training if name.startswith("layers.")} == set("01234")
    assert {name.split(".")[1] for name in evaluation if name.startswith("layers.")} == {"0"}
    assert not [name for name in evaluation if name.startswith("d")]
    assert evaluation == arena_shapes(small(num_layers=1), 2, 3, "evaluation")
    five, one = statistic_shapes(small(num_layers=5), 2, 3), statistic_shapes(small(num_layers=1), 2, 3)
    assert {name for name in five if name.startswith("layers.")} == {
        name.replace("0", layer, 1) for layer in "01234" for name in one if name.startswith("layers.")
    }
    for purpose in ("evaluation", "generation"):
        assert statistic_shapes(small(num_layers=5), 2, 3, purpose) == one


@presets
@pytest.mark.parametrize("purpose", ["training", "evaluation", "generation"])
def test_statistics_are_one_number_for_a_row_and_in_no_other_place(changes: dict[str, Any], purpose: Purpose) -> None:
    config = small(**changes)
    statistics, arena = statistic_shapes(config, 2, 3, purpose), arena_shapes(config, 2, 3, purpose)
    assert not statistics.keys() & arena.keys()
    of_heads = ("lse", "q_norm.rstd", "k_norm.rstd")
    assert {math.prod(shape) for name, shape in statistics.items() if not name.endswith(of_heads)} == {6}
    assert {shape for name, shape in statistics.items() if name.endswith("lse")} == {(2, 2, 3)}
    norms = {name for name in arena if name.endswith("norm")}
    for qk in (name for name in arena if name.endswith("qk")):  # both norms write to one array, as RoPE turns both
        q, k = qk.replace("qk", "q_norm"), qk.replace("qk", "k_norm")
        assert (statistics[q + ".rstd"], statistics[k + ".rstd"]) == ((2, 3, 2), (2, 3, 1))
        norms |= {q, k}
    assert {name.removesuffix(".rstd") for name in statistics if name.endswith(".rstd")} == norms


def test_generation_has_the_last_tokens_logits_only() -> None:
    assert arena_shapes(small(), 2, 3, "generation")["logits"] == (2, 7)
    assert arena_shapes(small(), 2, 3, "evaluation")["logits"] == (6, 7)


@presets
@pytest.mark.parametrize("purpose", ["training", "evaluation", "generation"])
def test_a_transformer_allocates_just_this(
    changes: dict[str, Any], purpose: Purpose, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(**changes)
    allocated: list[int] = []
    empty = cpu.empty

    def counting(size: int, dtype: Any) -> np.ndarray:
        allocated.append(size * np.dtype(dtype).itemsize)
        return empty(size, dtype)

    monkeypatch.setattr(cpu, "empty", counting)
    weights = initial_weights(config, 0)
    model = Transformer(config, cpu, weights, 2, 6, purpose)
    planned = [flat_size(shapes(config, 2, 6, purpose)) * 4 for shapes in (arena_shapes, statistic_shapes)]
    planned += [2 * 6 * 4] * 2  # tokens and targets of the host
    if purpose == "generation":
        planned.append(flat_size({"cache": (2, 2, 2, 6, config.kv_heads, config.head_dim)}) * 4)
    if config.position == "rope":
        planned.append(2 * 6 * config.head_dim // 2 * 4)  # cosines and sines
    assert allocated == planned
    tokens = np.arange(12, dtype=np.int32).reshape(2, 6) % 7
    heads = config.num_prediction_heads
    if purpose == "training":
        losses_of(model, np.zeros_like(weights), tokens, np.stack([tokens] * heads), [1.0] * heads)
    elif purpose == "evaluation":
        model.losses(tokens, tokens)
    else:
        model.next_logits(tokens, model.cache)
    assert allocated == planned  # a pass allocates nothing


@presets
@pytest.mark.parametrize("purpose", ["training", "evaluation", "generation"])
def test_a_smaller_batch_fits_into_the_arena_of_a_larger_one(changes: dict[str, Any], purpose: Purpose) -> None:
    config = small(**changes)
    for shapes_of in (arena_shapes, statistic_shapes):
        room = flat_size(shapes_of(config, 3, 6, purpose))
        for B, T in ((3, 6), (1, 6), (3, 1), (1, 1), (2, 5)):
            shapes = shapes_of(config, B, T, purpose)
            assert flat_size(shapes) <= room
            arrays = named_views(np.zeros(room), shapes)
            for number, array in enumerate(arrays.values()):
                array[...] = number
            for number, array in enumerate(arrays.values()):  # no array lies on another
                assert array.size == math.prod(array.shape)
                assert (array == number).all()
