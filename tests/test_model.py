"""The whole model against a plain PyTorch one, and against itself: cached, in pieces, in either precision."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from oracle import assert_close, dtypes, error, leaf, losses_of, needs_torch, reference_logits, reference_losses, torch

from nanoeuler import cpu as ops
from nanoeuler.activations import arena_shapes, statistic_shapes
from nanoeuler.config import ModelConfig
from nanoeuler.model import Dropout, KeyValueCache, Transformer
from nanoeuler.parameters import flat_size, initial_weights, named_views, parameter_shapes

SMALL = {"vocab_size": 19, "max_seq_len": 9, "num_layers": 2, "num_heads": 6, "hidden_dim": 24, "feed_forward_dim": 10}
CONFIGS = {
    "euler": ModelConfig(**SMALL),
    "euler, grouped queries, prediction heads": ModelConfig(
        **SMALL, num_kv_heads=2, num_prediction_heads=3, rope_theta=50.0, norm_eps=1e-2
    ),
    "euler, multi-query, tied": ModelConfig(**SMALL, num_kv_heads=1, tie_embeddings=True),
    "euler, tied, prediction heads": ModelConfig(**SMALL, tie_embeddings=True, num_prediction_heads=2),
    "norms and biases of queries and keys, wide heads, stretched rope": ModelConfig(
        **SMALL,
        num_kv_heads=2,
        qk_norm=True,
        qkv_bias=True,
        attention_head_dim=6,
        norm_eps=1e-2,
        rope_theta=50.0,
        rope_factor=8.0,
        rope_original_length=40,
    ),
    "gpt2": ModelConfig(**SMALL, preset="gpt2"),
    "gpt2, grouped queries, odd head size, prediction heads": ModelConfig(
        **SMALL | {"preset": "gpt2", "hidden_dim": 30, "num_kv_heads": 3, "num_prediction_heads": 3, "norm_eps": 1e-2}
    ),
    "gpt2, untied, no biases": ModelConfig(**SMALL, preset="gpt2", tie_embeddings=False, bias=False),
    "one layer, one head, one token of vocabulary": ModelConfig(
        vocab_size=1, max_seq_len=9, num_layers=1, num_heads=1, hidden_dim=2, feed_forward_dim=1
    ),
    "layernorm, gelu, biases and learned positions in euler": ModelConfig(
        **SMALL, norm="layernorm", activation="gelu", bias=True, position="learned"
    ),
}
EULER, GPT2 = CONFIGS["euler, grouped queries, prediction heads"], CONFIGS["gpt2"]
every_config = pytest.mark.parametrize("name", CONFIGS)
both_presets = pytest.mark.parametrize("config", [EULER, GPT2], ids=["euler", "gpt2"])


def weights_of(config: ModelConfig, dtype: Any = np.float64) -> np.ndarray:
    """Return weights that no symmetry hides a fault behind: norms are not 1, biases not 0, and attention not flat."""
    flat = initial_weights(config, 0, dtype)
    return flat + np.random.default_rng(1).normal(0, 0.2, flat.size).astype(dtype)


def batch_of(config: ModelConfig, B: int = 3, T: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (B, T) and targets (heads, B, T), some of which are ignored."""
    random = np.random.default_rng(2)
    inputs = random.integers(0, config.vocabulary, (B, T), np.int32)
    targets = random.integers(0, config.vocabulary, (config.num_prediction_heads, B, T), np.int32)
    targets[random.random(targets.shape) < 0.2] = -1
    return inputs, targets


def weights_of_losses(config: ModelConfig) -> list[float]:
    return [0.1, 0.07, 0.02][: config.num_prediction_heads]


def gradients_of(
    config: ModelConfig,
    weights: np.ndarray,
    inputs: np.ndarray,
    targets: np.ndarray,
    dropout: Dropout | None = None,
    starts: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the flat gradient, from zero, and each head's loss."""
    flat = np.zeros_like(weights)
    model = Transformer(config, ops, weights, *inputs.shape)
    return flat, losses_of(model, flat, inputs, targets, weights_of_losses(config), dropout, starts)


def reference_weights(config: ModelConfig, weights: np.ndarray) -> dict[str, Any]:
    return {name: leaf(view) for name, view in named_views(weights, parameter_shapes(config)).items()}


@needs_torch
@dtypes
@every_config
def test_logits_and_losses_equal_torch(name: str, dtype: type) -> None:
    config = CONFIGS[name]
    weights, (inputs, targets) = weights_of(config, dtype), batch_of(config)
    model = Transformer(config, ops, weights, 3, 9)
    logits = model.logits(inputs).copy()
    assert logits.dtype == dtype
    W = reference_weights(config, weights)
    expected = reference_logits(W, config, inputs)
    assert_close(logits, expected, 1e-11 if dtype == np.float64 else 1e-5)

    losses = model.losses(inputs, targets[0])
    assert losses.shape == (3, 9)
    assert (losses[targets[0] < 0] == 0).all()
    summed = float(reference_losses(W, config, inputs, targets)[0].detach())
    assert losses.sum() == pytest.approx(summed, rel=1e-11 if dtype == np.float64 else 1e-5)


@needs_torch
@dtypes
@every_config
def test_gradients_equal_torch(name: str, dtype: type) -> None:
    config = CONFIGS[name]
    weights, (inputs, targets) = weights_of(config, dtype), batch_of(config)
    flat, losses = gradients_of(config, weights, inputs, targets)
    W = reference_weights(config, weights)
    expected = reference_losses(W, config, inputs, targets)
    sum(d * loss for d, loss in zip(weights_of_losses(config), expected, strict=True)).backward()
    tolerance = 1e-9 if dtype == np.float64 else 1e-4
    assert losses == pytest.approx([float(loss.detach()) for loss in expected], rel=tolerance)
    for tensor, gradient in named_views(flat, parameter_shapes(config)).items():
        if config.vocabulary == 1:  # nothing to learn
            assert (gradient == 0).all()
        else:
            assert error(gradient, W[tensor].grad) < tolerance, tensor


#: Where the documents begin in each of the three sequences of a batch.
LENGTHS = ((4, 3, 2), (9,), (1, 1, 7))
STARTS = np.array([np.repeat(np.cumsum([0, *lengths[:-1]]), lengths) for lengths in LENGTHS], np.int32)


@needs_torch
@both_presets
def test_documents_equal_torch_with_a_mask(config: ModelConfig) -> None:
    weights, (inputs, targets) = weights_of(config), batch_of(config)
    flat, losses = gradients_of(config, weights, inputs, targets, starts=STARTS)
    W = reference_weights(config, weights)
    expected = reference_losses(W, config, inputs, targets, starts=STARTS)
    sum(d * loss for d, loss in zip(weights_of_losses(config), expected, strict=True)).backward()
    assert losses == pytest.approx([float(loss.detach()) for loss in expected], rel=1e-9)
    for tensor, gradient in named_views(flat, parameter_shapes(config)).items():
        assert error(gradient, W[tensor].grad) < 1e-9, tensor
    summed = Transformer(config, ops, weights, 3, 9, "evaluation").losses(inputs, targets[0], STARTS).sum()
    assert summed == pytest.approx(losses[0], rel=1e-12)


def test_documents_together_are_documents_alone() -> None:
    """Losses and gradients: rotary positions are relative, so a document does not know where it stands."""
    weights, (inputs, targets) = weights_of(EULER), batch_of(EULER)
    model = Transformer(EULER, ops, weights, 3, 9)
    losses = model.losses(inputs, targets[0], STARTS).copy()
    gradient, _ = gradients_of(EULER, weights, inputs, targets, starts=STARTS)
    total = np.zeros_like(gradient)
    for b, lengths in enumerate(LENGTHS):
        for begin, length in zip(np.unique(STARTS[b]), lengths, strict=True):
            here = slice(b, b + 1), slice(begin, begin + length)
            alone = model.losses(inputs[here], targets[0][here])
            np.testing.assert_allclose(losses[here], alone, rtol=1e-12)
            total += gradients_of(EULER, weights, inputs[here], targets[:, here[0], here[1]])[0]
    assert error(gradient, total) < 1e-12
    assert np.abs(model.losses(inputs, targets[0]) - losses).max() > 0.01  # they do see each other otherwise


@both_presets
def test_no_document_learns_of_another(config: ModelConfig) -> None:
    weights, (inputs, targets) = weights_of(config), batch_of(config)
    model = Transformer(config, ops, weights, 3, 9, "evaluation")
    before = model.losses(inputs, targets[0], STARTS).copy()
    changed = inputs.copy()
    changed[0, 4:7] = (changed[0, 4:7] + 1) % config.vocabulary  # the second of three documents
    after = model.losses(changed, targets[0], STARTS)
    same = np.ones((3, 9), bool)
    same[0, 4:7] = False
    assert (after[same] == before[same]).all()
    assert (after[~same] != before[~same]).any()


@needs_torch
@both_presets
def test_dropout_equals_torch_with_the_same_masks(config: ModelConfig) -> None:
    """Each place has a mask of its own, and it is the one that the op gives for the place's stream."""
    config = config.model_copy(update={"dropout": 0.3})
    weights, (inputs, targets) = weights_of(config), batch_of(config)
    dropout = Dropout(seed=11, micro_batch=np.array([5]))
    flat, losses = gradients_of(config, weights, inputs, targets, dropout)

    sites = []

    def drop(x: Any, site: int) -> Any:
        sites.append(site)
        mask = np.ones(tuple(x.shape))
        ops.dropout_forward(mask, mask, 0.3, 11, site, np.array([5]))
        return x * torch.tensor(mask)

    W = reference_weights(config, weights)
    expected = reference_losses(W, config, inputs, targets, drop)
    sum(d * loss for d, loss in zip(weights_of_losses(config), expected, strict=True)).backward()
    assert sorted(sites) == [0, 1, 2, 3, 4]
    assert losses == pytest.approx([float(loss.detach()) for loss in expected], rel=1e-9)
    for tensor, gradient in named_views(flat, parameter_shapes(config)).items():
        assert error(gradient, W[tensor].grad) < 1e-9, tensor


@every_config
def test_float32_agrees_with_float64(name: str) -> None:
    config = CONFIGS[name]
    weights, (inputs, targets) = weights_of(config, np.float32), batch_of(config)
    exact = weights.astype(np.float64)
    logits = Transformer(config, ops, weights, 3, 9).logits(inputs)
    assert error(logits, Transformer(config, ops, exact, 3, 9).logits(inputs)) < 1e-5
    shapes = parameter_shapes(config)
    gradients, expected = (named_views(gradients_of(config, w, inputs, targets)[0], shapes) for w in (weights, exact))
    for tensor, gradient in gradients.items():
        assert gradient.dtype == np.float32
        assert error(gradient, expected[tensor]) < 1e-4, tensor


@dtypes
@every_config
@pytest.mark.parametrize("steps", [[1] * 9, [4, 1, 1, 3], [9]])
def test_cached_logits_are_those_of_the_whole(name: str, steps: list[int], dtype: type) -> None:
    config = CONFIGS[name]
    weights, inputs = weights_of(config, dtype), batch_of(config)[0]
    model = Transformer(config, ops, weights, 3, 9, "evaluation")
    whole = model.logits(inputs).copy()
    tolerance = 1e-12 if dtype == np.float64 else 1e-5

    cache, at = KeyValueCache(config, ops, 3, 9, dtype), 0
    for T in steps:
        part = model.logits(inputs[:, at : at + T], cache)
        assert error(part, whole[:, at : at + T]) < tolerance
        at += T
        assert cache.length == at
    assert cache.length == cache.capacity == 9

    model = Transformer(config, ops, weights, 3, max(steps), "generation")
    cache, at = KeyValueCache(config, ops, 3, 9, dtype), 0
    for T in steps:
        at += T
        assert error(model.next_logits(inputs[:, at - T : at], cache), whole[:, at - 1]) < tolerance
        assert cache.length == at


def test_a_cache_may_hold_fewer_sequences_than_it_was_made_for() -> None:
    weights, inputs = weights_of(EULER), batch_of(EULER)[0]
    whole, cache = Transformer(EULER, ops, weights, 3, 9).logits(inputs), KeyValueCache(EULER, ops, 3, 9, np.float64)
    model = Transformer(EULER, ops, weights, 2, 5, "generation")
    model.next_logits(inputs[:2, :5], cache)
    assert_close(model.next_logits(inputs[:2, 5:], cache), whole[:2, -1])


def test_only_a_model_for_generation_has_a_cache_and_it_is_as_large_as_was_planned() -> None:
    weights, inputs = weights_of(EULER), batch_of(EULER)[0]
    for purpose in ("training", "evaluation"):
        assert not hasattr(Transformer(EULER, ops, weights, 2, 5, purpose), "cache")
    model = Transformer(EULER, ops, weights, 3, 9, "generation")
    assert model.cache.arrays.shape == (2, 2, 3, 9, 2, 4)  # layers, keys and values, sequences, tokens, K, D
    assert model.cache.arrays.dtype == model.dtype == np.float64
    assert (model.cache.length, model.cache.capacity) == (0, 9)
    whole = Transformer(EULER, ops, weights, 3, 9).logits(inputs)
    for _ in range(2):  # what it held is of no consequence once its length is 0
        model.cache.length = 0
        model.next_logits(inputs[:, :5], model.cache)
        assert_close(model.next_logits(inputs[:, 5:], model.cache), whole[:, -1])
        assert model.cache.length == 9
        model.cache.arrays[...] = np.nan


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.uint32])
def test_tokens_of_the_host_may_be_of_any_integers_and_strides(dtype: type) -> None:
    weights, (inputs, targets) = weights_of(EULER), batch_of(EULER)
    model, one = Transformer(EULER, ops, weights, 3, 9), np.abs(targets[0])
    generation = Transformer(EULER, ops, weights, 3, 9, "generation")
    logits, losses = model.logits(inputs).copy(), model.losses(inputs, one).copy()
    last = generation.next_logits(inputs, generation.cache).copy()
    generation.cache.length = 0
    strange = np.asfortranarray(inputs.astype(dtype)[:, ::-1])[:, ::-1]
    assert not strange.flags.c_contiguous
    assert (model.logits(strange) == logits).all()
    assert (model.losses(strange, np.asfortranarray(one.astype(dtype))) == losses).all()
    assert (generation.next_logits(strange, generation.cache) == last).all()


@dtypes
def test_the_arrays_of_a_batch_are_given_by_name(dtype: type) -> None:
    """They lie in the model's one arena; statistics in one of their own, of the losses' precision."""
    weights, (inputs, targets) = weights_of(EULER, dtype), batch_of(EULER)
    model = Transformer(EULER, ops, weights, 3, 9)
    for B, T in ((3, 9), (2, 4)):
        arrays = model.activations(B, T)
        shapes = arena_shapes(EULER, B, T) | statistic_shapes(EULER, B, T)
        assert {name: array.shape for name, array in arrays.items()} == shapes
        assert {array.dtype for array in arrays.values()} == {np.dtype(dtype)}
        assert model.activations(B, T) is arrays  # made once
    assert model.activations(3, 9)["losses"].ctypes.data == model.activations(2, 4)["losses"].ctypes.data
    logits = model.logits(inputs)
    assert np.shares_memory(logits, model.activations(3, 9)["logits"])
    assert np.shares_memory(model.losses(inputs, targets[0]), model.activations(3, 9)["losses"])


@dtypes
def test_losses_are_added_to_and_each_heads_weight_is_its_own(dtype: type) -> None:
    weights, (inputs, targets) = weights_of(EULER, dtype), batch_of(EULER)
    model = Transformer(EULER, ops, weights, 3, 9)
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    views = named_views(np.zeros_like(weights), model.shapes)
    losses, dloss = np.array([1, 2, 3], dtype), np.array(weights_of_losses(EULER), dtype)
    model.loss_and_gradients(views, losses, inputs, targets, dloss)
    once = losses - np.array([1, 2, 3], dtype)
    model.loss_and_gradients(views, losses, inputs, targets, dloss)
    assert losses == pytest.approx(2 * once + [1, 2, 3], rel=tolerance)
    assert once[0] == pytest.approx(model.losses(inputs, targets[0]).sum(), rel=tolerance)
    assert dloss.tolist() == np.array(weights_of_losses(EULER), dtype).tolist()
    for k in range(3):  # a head's share of the gradient is linear in its weight
        gradients = [np.zeros_like(weights) for _ in range(2)]
        for flat, size in zip(gradients, (1, 2), strict=True):
            losses_of(model, flat, inputs, targets, size * np.eye(3)[k])
        assert error(gradients[1], 2 * gradients[0]) < tolerance
        assert np.abs(gradients[0]).max() > 0


@every_config
def test_every_purpose_gives_the_same_in_no_more_memory_than_it_needs(name: str) -> None:
    config = CONFIGS[name]
    weights, (inputs, targets) = weights_of(config), batch_of(config)
    training, evaluation, generation = (
        Transformer(config, ops, weights, 3, 9, purpose) for purpose in ("training", "evaluation", "generation")
    )
    logits = training.logits(inputs).copy()
    assert (evaluation.logits(inputs) == logits).all()
    assert (evaluation.losses(inputs, targets[0]) == training.losses(inputs, targets[0])).all()
    last = generation.next_logits(inputs, KeyValueCache(config, ops, 3, 9, np.float64))
    assert np.abs(last - logits[:, -1]).max() < 1e-12
    sizes = [flat_size(arena_shapes(config, 3, 9, purpose)) for purpose in ("training", "evaluation", "generation")]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[1]


@every_config
def test_a_smaller_batch_than_planned(name: str) -> None:
    """Also after a larger one: what it left in the arena does not matter."""
    config = CONFIGS[name]
    weights, (inputs, targets) = weights_of(config), batch_of(config)
    model = Transformer(config, ops, weights, 3, 9)
    losses_of(model, np.zeros_like(weights), inputs, targets, weights_of_losses(config))
    for B, T in ((3, 9), (2, 9), (3, 4), (1, 1)):
        flat = np.zeros_like(weights)
        part = np.ascontiguousarray(inputs[:B, :T]), np.ascontiguousarray(targets[:, :B, :T])
        losses = losses_of(model, flat, *part, weights_of_losses(config))
        alone = gradients_of(config, weights, *part)
        assert (losses == alone[1]).all()
        assert (flat == alone[0]).all()
        whole = Transformer(config, ops, weights, 3, 9).logits(inputs)
        assert np.abs(model.logits(part[0]) - whole[:B, :T]).max() < 1e-12


@both_presets
def test_gradients_are_added_to_and_weights_left_alone(config: ModelConfig) -> None:
    weights, (inputs, targets) = weights_of(config), batch_of(config)
    once = gradients_of(config, weights, inputs, targets)[0]
    start = np.random.default_rng(3).standard_normal(weights.size)
    flat, before = start.copy(), weights.copy()
    model = Transformer(config, ops, weights, 3, 9)
    for _ in range(2):
        losses_of(model, flat, inputs, targets, weights_of_losses(config))
    assert_close(flat, start + 2 * once)
    assert (weights == before).all()


@both_presets
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_a_batch_in_pieces_sums_to_the_whole(config: ModelConfig, rate: float) -> None:
    """With dropout too: each piece knows which rows of the batch are its own."""
    config = config.model_copy(update={"dropout": rate})
    weights, (inputs, targets) = weights_of(config), batch_of(config)
    whole, losses = gradients_of(config, weights, inputs, targets, Dropout(4, np.array([7])))
    total, summed = np.zeros_like(whole), np.zeros(len(losses))
    for piece in (slice(0, 2), slice(2, 3)):
        dropout = Dropout(4, np.array([7]), first_row=piece.start * inputs.shape[1])
        flat, part = gradients_of(config, weights, inputs[piece], targets[:, piece], dropout)
        total += flat
        summed += part
    assert summed == pytest.approx(losses, rel=1e-12)
    assert_close(total, whole)


def test_dropout_needs_both_a_rate_and_a_place_in_the_stream() -> None:
    dropping = EULER.model_copy(update={"dropout": 0.3})
    weights, batch = weights_of(EULER), batch_of(EULER)
    plain = gradients_of(EULER, weights, *batch)[0]
    assert (gradients_of(dropping, weights, *batch)[0] == plain).all()
    assert (gradients_of(EULER, weights, *batch, Dropout(1, np.array([0])))[0] == plain).all()
    places = [Dropout(seed, np.array([micro_batch])) for seed, micro_batch in ((1, 0), (1, 1), (2, 0), (1, 0))]
    masks = [gradients_of(dropping, weights, *batch, place)[0] for place in places]
    assert not any((masks[i] == masks[j]).all() for i in range(3) for j in range(i))
    assert (masks[3] == masks[0]).all()


def test_every_place_in_the_model_draws_numbers_of_its_own() -> None:
    """And the backward of a place those of its forward: the sites go to the op as they are, whatever the layers."""
    config = EULER.model_copy(update={"dropout": 0.3, "num_layers": 3})
    drawn: dict[str, list[tuple[Any, ...]]] = {"forward": [], "backward": []}

    def recording(direction: str) -> Any:
        def op(out: np.ndarray, x: np.ndarray, rate: float, *place: Any) -> None:
            drawn[direction].append((*place[:2], int(place[2][0]), place[3]))
            getattr(ops, f"dropout_{direction}")(out, x, rate, *place)

        return op

    table = SimpleNamespace(**{name: getattr(ops, name) for name in ops.__all__})
    table.dropout_forward, table.dropout_backward = recording("forward"), recording("backward")
    weights, (inputs, targets) = weights_of(config), batch_of(config)
    model = Transformer(config, table, weights, 3, 9)
    dropout = Dropout(11, np.array([10**9]), first_row=18)
    losses_of(model, np.zeros_like(weights), inputs, targets, weights_of_losses(config), dropout)
    assert drawn["forward"] == [(11, site, 10**9, 18 * 24) for site in range(7)]
    assert drawn["backward"] == drawn["forward"][::-1]


@every_config
def test_all_targets_ignored(name: str) -> None:
    config = CONFIGS[name]
    inputs, targets = batch_of(config)
    flat, losses = gradients_of(config, weights_of(config), inputs, np.full_like(targets, -1))
    assert (losses == 0).all()
    assert (flat == 0).all()


def test_an_ignored_head_leaves_the_language_model_alone() -> None:
    """Head k's loss weight of 0 gives the gradient of a model without it."""
    weights, (inputs, targets) = weights_of(EULER), batch_of(EULER)
    shapes, one = parameter_shapes(EULER), EULER.model_copy(update={"num_prediction_heads": 1})
    flat = np.zeros_like(weights)
    model = Transformer(EULER, ops, weights, 3, 9)
    losses_of(model, flat, inputs, targets, [0.1, 0, 0])
    alone = np.zeros(flat_size(parameter_shapes(one)))
    own = named_views(weights, shapes)
    for tensor, view in named_views(alone, parameter_shapes(one)).items():
        view[...] = own[tensor]
    expected = named_views(gradients_of(one, alone, inputs, targets)[0], parameter_shapes(one))
    for tensor, gradient in named_views(flat, shapes).items():
        if tensor.startswith("prediction"):
            assert (gradient == 0).all()
        else:
            assert_close(gradient, expected[tensor])


def test_a_token_does_not_see_the_future() -> None:
    for config in (EULER, GPT2):
        model, inputs = Transformer(config, ops, weights_of(config), 3, 9), batch_of(config)[0]
        before = model.logits(inputs).copy()
        inputs[:, 5] = (inputs[:, 5] + 1) % config.vocabulary
        after = model.logits(inputs)
        assert np.abs(after[:, :5] - before[:, :5]).max() < 1e-13
        assert np.abs(after[:, 5:] - before[:, 5:]).max(axis=(0, 2)).min() > 1e-3


@both_presets
def test_initial_weights(config: ModelConfig) -> None:
    config = config.model_copy(update={"hidden_dim": 96, "feed_forward_dim": 200, "vocab_size": 300, "num_layers": 8})
    shapes = parameter_shapes(config)
    flat = initial_weights(config, 5)
    for tensor, view in named_views(flat, shapes).items():
        if tensor.endswith("norm.weight"):
            assert (view == 1).all()
        elif tensor.endswith("bias"):
            assert (view == 0).all()
        else:
            std = 0.02 / 4 if tensor.endswith(("attention_out.weight", "down.weight")) else 0.02
            assert view.std() == pytest.approx(std, rel=4 / np.sqrt(2 * view.size)), tensor
            assert abs(view.mean()) < 5 * std / np.sqrt(view.size), tensor
    assert (flat == initial_weights(config, 5)).all()
    assert (flat == initial_weights(config, 5, np.float64).astype(np.float32)).all()
    assert (flat != initial_weights(config, 6)).mean() > 0.9
    tokens = batch_of(config)[0]
    losses = Transformer(config, ops, flat, 3, 9).losses(tokens, np.roll(tokens, -1, axis=1))
    assert losses.mean() == pytest.approx(np.log(300), rel=0.02)  # knows nothing yet
