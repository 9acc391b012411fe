"""One training step: the same whoever does the work, and nothing changed where an update is skipped."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from oracle import losses_of

from nanoeuler import cpu
from nanoeuler.config import ModelConfig, TrainingConfig
from nanoeuler.cpu.parallel import Team, available_cores
from nanoeuler.model import Transformer
from nanoeuler.parameters import decayed_size, flat_size, initial_weights, named_views, parameter_shapes
from nanoeuler.step import SMALL_MODEL, Batch, Outliers, StepResult, TrainingStep, cut_batch, document_starts

V, T = 13, 8
EULER: dict[str, Any] = {"num_kv_heads": 1, "num_prediction_heads": 2}
GPT2: dict[str, Any] = {"preset": "gpt2"}
presets = pytest.mark.parametrize("model", [EULER, GPT2], ids=["euler", "gpt2"])


def configs(model: dict[str, Any], **training: Any) -> tuple[ModelConfig, TrainingConfig]:
    sizes = {"vocab_size": V, "max_seq_len": T, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "init_std": 0.1}
    numbers = {"batch_size": 5, "dtype": "float64", "workers": 1, "pieces": 1}
    return ModelConfig(**(sizes | model)), TrainingConfig(**(numbers | training))


def batch(config: ModelConfig, B: int = 5, seed: int = 0, ignored: float = 0.0, length: int = T) -> Batch:
    """Return B random sequences, of whose targets a share is to be ignored."""
    generator = np.random.default_rng(seed)
    inputs = generator.integers(0, V, (B, length)).astype(np.int32)
    targets = generator.integers(0, V, (config.num_prediction_heads, B, length)).astype(np.int32)
    targets[generator.random(targets.shape) < ignored] = -1
    return inputs, targets


def after(
    model: dict[str, Any], batches: list[Batch] | None = None, steps: int = 1, ignored: float = 0.2, **training: Any
) -> tuple[list[StepResult], TrainingStep]:
    """Return what some steps did, and the weights and moments that they left."""
    config, options = configs(model, **{"gradient_accumulation": len(batches or [0])} | training)
    with TrainingStep(config, options, cpu) as step:
        results = []
        for i in range(steps):
            results.append(step.run(batches or [batch(config, options.batch_size, i, ignored)], 1e-2))
    return results, step


def error(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


def assert_same_bytes(a: TrainingStep, b: TrainingStep) -> None:
    for name in ("weights", "m", "v"):
        assert getattr(a, name).tobytes() == getattr(b, name).tobytes(), name


def plain_gradient(model: dict[str, Any], batches: list[Batch]) -> tuple[float, np.ndarray]:
    """Return mean loss and gradient of the whole batch in one pass of one thread: what any cut must give."""
    config, training = configs(model)
    inputs = np.concatenate([inputs for inputs, _ in batches])
    targets = np.concatenate([targets for _, targets in batches], axis=1)
    weights = initial_weights(config, training.seed, np.float64)
    counts = [(targets[k] >= 0).sum() for k in range(config.num_prediction_heads)]
    shares = [1.0] + [config.prediction_loss_weight / (len(counts) - 1) for _ in counts[1:]]
    gradient = np.zeros_like(weights)
    transformer = Transformer(config, cpu, weights, len(inputs), T)
    dloss = [share / count for share, count in zip(shares, counts, strict=True)]
    losses = losses_of(transformer, gradient, inputs, targets, dloss)
    return losses[0] / counts[0], gradient


# --- the gradient, whoever does the work


@presets
@pytest.mark.parametrize("pieces", [1, 2, 3, 5])
def test_the_step_follows_the_gradient_of_the_mean_over_all_targets(model: dict[str, Any], pieces: int) -> None:
    """Without clipping m is (1 - beta1) times the gradient after one step; five sequences in uneven pieces."""
    config, _ = configs(model)
    batches = [batch(config, 5, seed, ignored=0.3) for seed in range(2)]
    loss, gradient = plain_gradient(model, batches)
    (result,), step = after(model, batches, pieces=pieces, workers=2, grad_clip=0)
    assert result.loss == pytest.approx(loss, rel=1e-12)
    assert result.grad_norm == pytest.approx(np.sqrt((gradient**2).sum()), rel=1e-12)
    assert error(step.m, 0.1 * gradient) < 1e-12
    assert error(step.v, 0.01 * gradient**2) < 1e-12
    assert result.skipped == ""
    assert step.updates == 1
    assert step.micro_batches == 2


@presets
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("pieces", [2, 3, 5])
def test_the_number_of_workers_changes_no_bit(model: dict[str, Any], dtype: str, pieces: int) -> None:
    runs = [
        after(model | {"dropout": 0.1}, steps=3, workers=workers, pieces=pieces, dtype=dtype) for workers in (1, 2, 3)
    ]
    for results, step in runs[1:]:
        assert results == runs[0][0]
        assert_same_bytes(step, runs[0][1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_single_piece_is_shared_out_inside_the_ops(dtype: str) -> None:
    """Products are then cut into tiles: the same bits for any team, and within rounding those of one thread alone."""
    model = {"hidden_dim": 256, "feed_forward_dim": 512, "num_layers": 1}
    alone, two, three = (after(model, steps=2, workers=workers, dtype=dtype) for workers in (1, 2, 3))
    assert two[0] == three[0]
    assert_same_bytes(two[1], three[1])
    assert two[0][1].loss == pytest.approx(alone[0][1].loss, rel=1e-5 if dtype == "float32" else 1e-12)


@presets
def test_the_cut_changes_rounding_only(model: dict[str, Any]) -> None:
    (whole,), a = after(model, pieces=1)
    for pieces in (2, 4, 5):
        (cut,), b = after(model, pieces=pieces, workers=2)
        assert cut.loss == pytest.approx(whole.loss, rel=1e-13)
        assert error(b.m, a.m) < 1e-12


@presets
@pytest.mark.parametrize("pieces", [1, 2])
def test_two_micro_batches_are_one_of_twice_the_size(model: dict[str, Any], pieces: int) -> None:
    config, _ = configs(model)
    a, b = batch(config, 3, 1, ignored=0.5), batch(config, 3, 2)
    both = np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]], axis=1)
    (two,), accumulated = after(model, [a, b], batch_size=3, pieces=pieces, workers=2)
    (one,), at_once = after(model, [both], batch_size=6, pieces=pieces, workers=2)
    assert two.loss == pytest.approx(one.loss, rel=1e-12)
    assert two.grad_norm == pytest.approx(one.grad_norm, rel=1e-12)
    assert error(accumulated.m, at_once.m) < 1e-12
    assert error(accumulated.weights, at_once.weights) < 1e-9  # Adam divides small gradients by their own size


def test_where_documents_begin() -> None:
    tokens = np.array([[7, 3, 7, 7, 1], [3, 3, 7, 3, 3], [1, 2, 3, 4, 5]], np.int32)
    starts = document_starts(tokens, 7)
    assert starts.dtype == np.int32
    assert starts.tolist() == [[0, 0, 2, 3, 3], [0, 0, 2, 2, 2], [0, 0, 0, 0, 0]]
    assert document_starts(tokens.astype(np.uint16), 3).tolist() == [[0, 1, 1, 1, 1], [0, 1, 1, 3, 4], [0, 0, 2, 2, 2]]


@presets
@pytest.mark.parametrize("pieces", [1, 3])
def test_documents_of_a_step(model: dict[str, Any], pieces: int) -> None:
    """However the batch is cut, the gradient and the losses are those of attention within the documents."""
    config, training = configs(model, gradient_accumulation=2, pieces=pieces, workers=2, grad_clip=0)
    batches = [batch(config, 5, seed, ignored=0.3) for seed in range(2)]
    transformer = Transformer(config, cpu, initial_weights(config, training.seed, np.float64), 5, T)
    heads = range(config.num_prediction_heads)
    counts = [sum(int((targets[k] >= 0).sum()) for _, targets in batches) for k in heads]
    shares = [1.0, *[config.prediction_loss_weight / max(1, len(heads) - 1)] * (len(heads) - 1)]
    dloss = [share / count for share, count in zip(shares, counts, strict=True)]
    gradient, loss = np.zeros(transformer.weights["embedding.weight"].base.size), 0.0
    for inputs, targets in batches:
        starts = document_starts(inputs, 3)
        assert len(np.unique(starts)) > 3
        loss += losses_of(transformer, gradient, inputs, targets, dloss, starts=starts)[0] / counts[0]
    with TrainingStep(config, training, cpu, document_start=3) as step:
        assert step.evaluate(batches) == pytest.approx(loss, rel=1e-12)
        assert step.run(batches, 0.0).loss == pytest.approx(loss, rel=1e-12)
    assert error(step.m, 0.1 * gradient) < 1e-12
    with TrainingStep(config, training, cpu) as step:
        assert step.evaluate(batches) != pytest.approx(loss, rel=1e-6)


def test_a_token_that_never_comes_changes_no_bit() -> None:
    config, training = configs(EULER, pieces=2)
    steps = []
    for first in (None, V):
        with TrainingStep(config, training, cpu, document_start=first) as step:
            steps.append((step, [step.run([batch(config, 5, seed)], 1e-2) for seed in range(2)]))
    assert steps[0][1] == steps[1][1]
    assert_same_bytes(steps[0][0], steps[1][0])


def test_dropout_does_not_depend_on_the_cut() -> None:
    """Its random numbers belong to a place in the micro-batch, not to the piece that the place is in."""
    runs = [after(EULER | {"dropout": 0.4}, pieces=pieces, workers=2)[1] for pieces in (1, 2, 5)]
    assert error(runs[1].m, runs[0].m) < 1e-12
    assert error(runs[2].m, runs[0].m) < 1e-12
    assert error(after(EULER, pieces=2)[1].m, runs[0].m) > 0.01


def test_dropout_is_another_in_every_micro_batch_and_with_every_seed() -> None:
    config, _ = configs(EULER)
    same = batch(config)
    steps = [
        after(EULER | {"dropout": 0.4}, batches, **more)[0][0].loss
        for batches, more in (([same], {}), ([same, same], {}), ([same], {"seed": 2**60}))
    ]
    assert len({round(loss, 9) for loss in steps}) == 3


def test_all_targets_ignored_is_a_loss_of_zero_and_no_gradient() -> None:
    config, _ = configs(EULER)
    inputs, targets = batch(config)
    (result,), step = after(EULER, [(inputs, np.full_like(targets, -1))], pieces=2)
    assert (result.loss, result.grad_norm, result.skipped) == (0.0, 0.0, "")
    assert not step.m.any()


def test_further_heads_share_their_weight_and_the_loss_is_the_first_ones() -> None:
    """Two further heads of weight w add w / 2 times the gradient of each one's own mean loss."""
    config, _ = configs(EULER | {"num_prediction_heads": 3, "prediction_loss_weight": 0.8})
    inputs, targets = batch(config, ignored=0.5)
    (result,), step = after(config.model_dump(), [(inputs, targets)], grad_clip=0)
    transformer = Transformer(config, cpu, initial_weights(config, 1337, np.float64), 5, T)
    parts = []
    for k, share in enumerate((1.0, 0.4, 0.4)):
        gradient, dloss = np.zeros_like(step.m), [0.0] * 3
        dloss[k] = share / (targets[k] >= 0).sum()
        losses = losses_of(transformer, gradient, inputs, targets, dloss)
        parts.append(gradient)
    assert result.loss == pytest.approx(losses[0] / (targets[0] >= 0).sum(), rel=1e-12)
    assert error(step.m, 0.1 * sum(parts)) < 1e-12


# --- the update


def test_the_update_by_hand() -> None:
    """The first step of AdamW moves every weight by the learning rate, and matrices decay besides."""
    config, training = configs(EULER, weight_decay=0.5, adam_eps=1e-30, grad_clip=0)
    before = initial_weights(config, training.seed, np.float64)
    with TrainingStep(config, training, cpu) as step:
        step.run([batch(config)], 1e-3)
    split = decayed_size(step.shapes)
    decay = np.where(np.arange(before.size) < split, 1 - 1e-3 * 0.5, 1.0)
    expected = before * decay - 1e-3 * np.sign(step.m)
    np.testing.assert_allclose(step.weights, expected, atol=1e-9)


def test_clipping_bounds_the_norm_and_tells_the_one_before() -> None:
    (free,), a = after(EULER, grad_clip=0)
    (clipped,), b = after(EULER, grad_clip=0.01)
    assert clipped.grad_norm == free.grad_norm > 0.01
    assert np.linalg.norm(b.m) == pytest.approx(0.1 * 0.01, rel=1e-6)
    assert error(b.m * np.linalg.norm(a.m), a.m * np.linalg.norm(b.m)) < 1e-12


def test_training_learns() -> None:
    config, training = configs(EULER, dtype="float32", pieces=2, workers=2)
    one = batch(config)
    with TrainingStep(config, training, cpu) as step:
        losses = [step.run([one], 1e-2).loss for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]


def test_weights_may_be_given() -> None:
    config, training = configs(EULER)
    given = initial_weights(config, 99, np.float64)
    step = TrainingStep(config, training, cpu, given)
    assert step.weights.tobytes() == given.tobytes()
    assert not np.shares_memory(step.weights, given)


# --- evaluation


@presets
@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_evaluation_is_the_mean_over_all_targets(model: dict[str, Any], pieces: int) -> None:
    """Against logits and a log-softmax, batch by batch; the last batch is smaller, and dropout is off."""
    config, training = configs(model | {"dropout": 0.5}, pieces=pieces, workers=2)
    batches = [batch(config, 5, 1, ignored=0.4), batch(config, 5, 2), batch(config, 2, 3, ignored=0.1)]
    transformer = Transformer(config, cpu, initial_weights(config, training.seed, np.float64), 5, T, "evaluation")
    losses: list[float] = []
    for inputs, targets in batches:
        logits = transformer.logits(inputs)
        log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        losses += [-log_p[b, t, targets[0, b, t]] for b, t in np.argwhere(targets[0] >= 0)]
    with TrainingStep(config, training, cpu) as step:
        assert step.evaluate(batches) == pytest.approx(np.mean(losses), rel=1e-12)
        assert step.evaluate(batches) == step.evaluate(batches)
        assert step.evaluate([]) == 0


def test_evaluation_changes_nothing() -> None:
    config, training = configs(EULER | {"dropout": 0.2}, pieces=2, workers=2)
    results = []
    for evaluations in (0, 2):
        with TrainingStep(config, training, cpu) as step:
            for seed in range(2):
                for _ in range(evaluations):
                    step.evaluate([batch(config, seed=9)])
                results.append(step.run([batch(config, seed=seed)], 1e-2))
    assert results[:2] == results[2:]


# --- skipped updates


def table_with(**others: Any) -> Any:
    """Return the op table with some functions replaced."""
    return SimpleNamespace(**{name: getattr(cpu, name) for name in cpu.__all__} | others)


def faulty_ops(value: float) -> Any:
    """Return the op table with one element of one gradient set to ``value``; the loss stays finite."""

    def embedding_backward(dweight: np.ndarray, *rest: Any) -> None:
        cpu.embedding_backward(dweight, *rest)
        dweight[0, 0] = value

    return table_with(embedding_backward=embedding_backward)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_gradient_that_is_not_finite_leaves_every_byte(value: float, dtype: str) -> None:
    config, training = configs(EULER, pieces=2, workers=2, dtype=dtype)
    with TrainingStep(config, training, cpu) as step:
        step.run([batch(config)], 1e-2)
        before = step.weights.tobytes(), step.m.tobytes(), step.v.tobytes()
        for model in step.models:
            model.ops = faulty_ops(value)
        result = step.run([batch(config, seed=1)], 1e-2)
        assert np.isfinite(result.loss)
        assert result.skipped == f"gradient norm is {abs(value)}"
        assert (step.weights.tobytes(), step.m.tobytes(), step.v.tobytes()) == before
        assert (step.updates, step.micro_batches) == (1, 2)


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_loss_that_is_not_finite_leaves_every_byte(pieces: int) -> None:
    config, training = configs(EULER, pieces=pieces, workers=2, weight_decay=1.0)
    with TrainingStep(config, training, cpu) as step:
        step.run([batch(config)], 1e-2)
        good = step.weights[5]
        step.weights[5] = np.nan
        before = step.weights.tobytes(), step.m.tobytes(), step.v.tobytes()
        result = step.run([(np.zeros((5, T), np.int32), batch(config)[1])], 1e-2)  # token 0 has that weight
        assert result.skipped == "loss is nan"
        assert (step.weights.tobytes(), step.m.tobytes(), step.v.tobytes()) == before
        step.weights[5] = good
        assert step.run([batch(config)], 1e-2).skipped == ""  # nothing of it is left


def test_outliers_are_judged_by_the_last_steps() -> None:
    judge = Outliers(z=3.0, window=8)
    for loss in (1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 99.0):
        assert judge.judge(loss, 1.0) == ""  # the window is not full yet
    losses = [1.0, 1.1, 0.9, 1.0, 1.1, 0.9, 1.0, 1.0]
    mean, deviation = 1.0, float(np.std(losses))

    def judged(loss: float, norm: float) -> str:
        judge = Outliers(z=3.0, window=8)
        for usual in losses:
            judge.judge(usual, 2 * usual)
        return judge.judge(loss, norm)

    far = mean + 3.01 * deviation
    assert judged(far, 2.0) == f"loss {far:.4g} is more than 3 deviations above its recent mean 1"
    assert judged(mean + 2.99 * deviation, 2.0) == ""
    assert judged(1.0, 2 * far).startswith("gradient norm")
    assert " and gradient norm" in judged(far, 2 * far)
    assert judged(mean - 50 * deviation, 2.0) == ""  # lower is no outlier


def test_a_lasting_rise_becomes_usual() -> None:
    judge = Outliers(z=2.0, window=8)
    for _ in range(8):
        judge.judge(1.0, 1.0)
    skipped = [bool(judge.judge(5.0, 1.0)) for _ in range(8)]
    assert skipped[0]
    assert not any(skipped[4:])
    assert judge.state()["losses"] == [5.0] * 8


def test_nothing_is_an_outlier_by_default_but_what_is_not_finite() -> None:
    judge = Outliers(z=0.0, window=8)
    assert [judge.judge(loss, 1.0) for loss in (1.0,) * 20 + (1e9,)] == [""] * 21
    assert judge.state() == {"losses": [], "norms": []}
    assert judge.judge(float("nan"), 1.0) == "loss is nan"
    assert judge.judge(1.0, float("inf")) == "gradient norm is inf"


def test_a_window_is_taken_up_again() -> None:
    first = Outliers(z=2.0, window=8)
    numbers = np.random.default_rng(0).random((30, 2))
    for loss, norm in numbers[:13]:
        first.judge(loss, norm)
    second = Outliers(z=2.0, window=8)
    second.restore(first.state())
    verdicts = [[judge.judge(loss, norm) for loss, norm in numbers[13:]] for judge in (first, second)]
    assert verdicts[0] == verdicts[1]
    assert any(verdicts[0])


def test_an_outlier_is_skipped_in_a_step() -> None:
    config, training = configs(EULER, outlier_z=4.0, outlier_window=8)
    spike = batch(config)
    with TrainingStep(config, training, cpu) as step:
        for seed in range(8):
            assert step.run([batch(config, seed=seed)], 1e-3).skipped == ""
        step.weights *= 30.0
        before = step.weights.tobytes()
        assert "deviations above" in step.run([spike], 1e-3).skipped
        assert step.weights.tobytes() == before
        assert (step.updates, step.micro_batches) == (8, 9)


# --- saving and restoring


@presets
def test_a_restored_step_goes_on_to_the_same_bytes(model: dict[str, Any]) -> None:
    config, training = configs(
        model | {"dropout": 0.3},
        dtype="float32",
        pieces=3,
        workers=2,
        outlier_z=1.0,
        outlier_window=8,
        gradient_accumulation=2,
    )
    batches = [[batch(config, 5, i), batch(config, 5, 100 + i)] for i in range(24)]
    with TrainingStep(config, training, cpu) as straight:
        results = [straight.run(each, 1e-2) for each in batches]
    with TrainingStep(config, training, cpu) as first:
        for each in batches[:11]:
            first.run(each, 1e-2)
    with TrainingStep(config, training, cpu, first.weights) as second:
        second.restore(first.state(), first.m, first.v)
        again = [second.run(each, 1e-2) for each in batches[11:]]
    assert again == results[11:]
    assert any(result.skipped for result in again)
    assert_same_bytes(second, straight)
    assert second.state() == straight.state()


# --- what a step is given, and what of it may be repeated


def test_batches_of_another_number_or_shape_are_refused_before_anything_changes() -> None:
    config, training = configs(EULER, batch_size=3, gradient_accumulation=2)
    right, short = batch(config, 3), batch(config, 3, length=T - 1)
    one_head = right[0], right[1][:1]
    twisted = right[0], right[1].swapaxes(1, 2)
    with TrainingStep(config, training, cpu) as step:
        step.run([right, right], 1e-2)
        before = step.weights.tobytes(), step.m.tobytes(), step.v.tobytes(), step.state()
        wrong = [[], [right], [right] * 3, [right, batch(config, 2)], [right, batch(config, 4)], [short, short]]
        for batches in (*wrong, [one_head, right], [right, twisted], [(right[0][0], right[1]), right]):
            with pytest.raises(ValueError, match=r"takes 2 micro-batches of inputs \(3, 8\) and targets \(2, 3, 8\)"):
                step.run(batches, 1e-2)
        with pytest.raises(ValueError, match=r"given are 2 of \[\(\(3, 7\), \(2, 3, 7\)\)\]$"):
            step.run([short, short], 1e-2)
        assert (step.weights.tobytes(), step.m.tobytes(), step.v.tobytes(), step.state()) == before
        assert step.run([right, right], 1e-2).skipped == ""


@presets
@pytest.mark.parametrize("pieces", [1, 2])
def test_batches_may_be_of_another_length_that_is_told_before(model: dict[str, Any], pieces: int) -> None:
    """The step is that of a model which knows no longer sequences, dropout included."""
    results, norms = [], []
    for longest, length in ((T, 5), (5, None)):
        config, training = configs(model | {"max_seq_len": longest, "dropout": 0.2}, pieces=pieces, workers=2)
        full, _ = configs(model)
        weights = initial_weights(full, 3, np.float64)
        if longest == 5 and config.position == "learned":
            views = named_views(weights, parameter_shapes(full))
            views = views | {"position.weight": views["position.weight"][:5]}
            weights = np.zeros(flat_size(parameter_shapes(config)))
            for name, view in named_views(weights, parameter_shapes(config)).items():
                view[...] = views[name]
        with TrainingStep(config, training, cpu, weights, length) as step:
            assert step.length == 5
            results += [step.run([batch(config, seed=seed, length=5)], 1e-2).loss for seed in range(3)]
            norms.append(step.norm[0])
            assert step.evaluate([batch(config, 2, 9, length=5)]) > 0
    assert results[:3] == pytest.approx(results[3:], rel=1e-12)
    assert norms[0] == pytest.approx(norms[1], rel=1e-12)


def test_the_same_step_again_has_the_same_loss_and_norm() -> None:
    """Neither losses nor gradients are added to those of the step before."""
    config, training = configs(EULER, pieces=2, workers=2)
    with TrainingStep(config, training, cpu) as step:
        results = [step.run([batch(config)], 0.0) for _ in range(3)]
    assert results == [after(EULER, [batch(config)], pieces=2)[0][0]] * 3


def test_a_step_keeps_nothing_of_the_batches_it_was_given() -> None:
    config, training = configs(EULER)
    runs = []
    for spoiled in (False, True):
        with TrainingStep(config, training, cpu) as step:
            for seed in range(3):
                inputs, targets = batch(config, seed=seed)
                runs.append(step.run([(inputs, targets)], 1e-2))
                if spoiled:
                    inputs[...], targets[...] = V, V  # no such token
    assert runs[:3] == runs[3:]


class Recorder:
    """Repeats functions as a GPU does: the calls of ops that each made once, with the arguments of then."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.made = self.repetitions = 0
        self.recording: list[tuple[Any, tuple[Any, ...]]] | None = None
        ops = {name: getattr(cpu, name) for name in cpu.__all__}
        wrapped = {name: self.recorded(op) for name, op in ops.items() if op.__module__ != Team.__module__}
        self.table = table_with(**wrapped, repeated=self.repeated)

    def recorded(self, op: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if self.recording is not None:
                self.recording.append((op, arguments))
                self.names.add(op.__name__)
            return op(*arguments)

        return call

    def repeated(self, function: Any) -> Any:
        self.made += 1
        calls: list[tuple[Any, tuple[Any, ...]]] = []

        def again() -> None:
            if calls:
                self.repetitions += 1
                for op, arguments in calls:
                    op(*arguments)
            else:
                self.recording = calls
                function()
                self.recording = None

        return again


@presets
def test_a_step_recorded_once_may_be_repeated(model: dict[str, Any]) -> None:
    """All that differs between steps is in arrays: repeating the first step's calls gives the bytes of every other."""
    config, training = configs(model | {"dropout": 0.3}, gradient_accumulation=2, dtype="float32")
    batches = [[batch(config, seed=2 * i, ignored=0.3), batch(config, seed=2 * i + 1)] for i in range(4)]
    recorder, results, steps = Recorder(), [], []
    for table in (cpu, recorder.table):
        with TrainingStep(config, training, table) as step:
            for each in batches:
                results.append(step.run(each, 1e-2))
                step.evaluate([batch(config, 3, 50)])  # between them, on the same arrays
            steps.append(step)
    assert (recorder.made, recorder.repetitions) == (3, 3 + 7 + 3)  # begin, two micro-batches, end, in four steps
    names = recorder.names
    assert {"embedding_forward", "dropout_backward", "total", "global_norm"} <= names
    assert not {"from_numpy", "to_numpy", "adamw"} & names
    assert results[:4] == results[4:]
    assert_same_bytes(*steps)


def test_a_device_without_workers_takes_the_batch_in_one_piece() -> None:
    config, training = configs(EULER, pieces=3, workers=2)
    with TrainingStep(config, training, table_with(workers=lambda asked: 0)) as step:
        assert (step.workers, step.pieces, len(step.models)) == (0, [slice(0, 5)], 1)
        result = step.run([batch(config)], 1e-2)
    assert result == after(EULER, [batch(config)], pieces=1)[0][0]


def test_a_model_of_bfloat16_computes_with_rounded_copies_that_follow_every_update() -> None:
    """Weights, moments and gradients stay float32; the forward and backward, which no CPU does so, are left out."""

    def rounded(x: np.ndarray) -> np.ndarray:
        bits = x.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)  # to the nearest, ties to even

    def copy(out: np.ndarray, x: np.ndarray) -> None:
        out[...] = rounded(x)

    config, training = configs(EULER, dtype="bf16", pieces=2, workers=2)
    step = TrainingStep(config, training, table_with(copy=copy))
    assert {step.weights.dtype, step.m.dtype, step.v.dtype, step.norm.dtype} == {np.dtype(np.float32)}
    assert {view.dtype for view in step.gradient_views().values()} == {np.dtype(np.float32)}
    assert step.model_weights.dtype == np.uint16
    assert (step.weights == initial_weights(config, training.seed)).all()
    assert (step.model_weights == rounded(step.weights)).all()
    for model in step.models:
        arrays = model.activations(2, T)
        assert np.shares_memory(model.weights["embedding.weight"], step.model_weights)
        assert arrays["logits"].dtype == arrays["layers.0.qkv"].dtype == np.uint16
        assert arrays["losses"].dtype == arrays["layers.0.lse"].dtype == model.cos.dtype == np.float32
    step.passes = lambda: step._gradients[0].fill(1.0)  # but for the gradient, which is made up
    before = step.model_weights.copy()
    assert step.run([batch(config)], 1e-2).skipped == ""
    assert (step.model_weights == rounded(step.weights)).all()
    assert (step.model_weights != before).mean() > 0.5
    step.passes, before = lambda: step._losses.fill(np.nan), step.model_weights.copy()
    assert step.run([batch(config)], 1e-2).skipped
    assert (step.model_weights == before).all()


def test_models_and_gradients_are_as_many_as_workers_and_pieces() -> None:
    for workers, pieces, models in ((1, 3, 1), (2, 3, 2), (9, 3, 3), (2, 1, 1)):
        config, training = configs(EULER, pieces=pieces, workers=workers)
        step = TrainingStep(config, training, cpu)
        assert (len(step.models), len(step.pieces)) == (models, pieces)
        assert step.model_weights is step.weights
        for model in step.models:
            assert np.shares_memory(model.weights["embedding.weight"], step.weights)


def test_gradient_and_norm_are_those_of_the_last_step() -> None:
    config, _ = configs(EULER)
    batches = [batch(config, ignored=0.3)]
    _, gradient = plain_gradient(EULER, batches)
    (result,), step = after(EULER, batches, pieces=2)
    assert step.norm == result.grad_norm
    for name, view in named_views(gradient, step.shapes).items():
        assert error(step.gradient_views()[name], view) < 1e-12, name


# --- cutting


def cut(B: int, pieces: int = 0, workers: int = 2, T: int = 192, **model: Any) -> list[tuple[int, int]]:
    config = ModelConfig(**({"vocab_size": V, "max_seq_len": T} | model))
    slices = cut_batch(config, TrainingConfig(batch_size=B, pieces=pieces, workers=workers))
    return [(piece.start, piece.stop) for piece in slices]


def test_cuts_are_even_within_one_sequence_and_cover_the_batch() -> None:
    assert cut(5, pieces=2) == [(0, 2), (2, 5)]
    assert cut(5, pieces=3) == [(0, 1), (1, 3), (3, 5)]
    assert cut(5, pieces=5) == [(i, i + 1) for i in range(5)]
    assert cut(5, pieces=9) == cut(5, pieces=5)  # no empty piece
    assert cut(1, pieces=4) == [(0, 1)]
    for B in range(1, 20):
        for pieces in range(0, 20):
            edges = cut(B, pieces)
            assert [a for a, _ in edges] == [0, *[b for _, b in edges[:-1]]]
            assert edges[-1][1] == B
            sizes = {b - a for a, b in edges}
            assert min(sizes) >= 1
            assert max(sizes) - min(sizes) <= 1


def test_the_number_of_pieces_that_is_left_open() -> None:
    assert len(cut(12)) == 4  # 2304 tokens: two pieces a worker, so that the quicker takes the odd one
    assert len(cut(12, workers=3)) == 3  # too few for that: one a worker
    assert len(cut(16, workers=3)) == 6
    assert len(cut(3)) == 2
    assert len(cut(1)) == 1
    assert len(cut(12, workers=1)) == 1
    medium = {"vocab_size": 4096, "hidden_dim": 384, "num_layers": 6, "num_heads": 6}
    assert len(cut(64, workers=4, **medium)) == 8
    assert len(cut(64, workers=32, **medium)) == 1  # so many gradients would take gigabytes
    large = {"vocab_size": 50257, "hidden_dim": 768, "num_layers": 12, "num_heads": 12}
    assert flat_size(parameter_shapes(ModelConfig(**large))) > SMALL_MODEL
    assert len(cut(12, **large)) == 1


def test_a_device_without_workers_is_never_given_pieces() -> None:
    config = ModelConfig(vocab_size=V, max_seq_len=192)
    for pieces in (0, 3):
        training = TrainingConfig(batch_size=12, pieces=pieces, workers=2)
        assert cut_batch(config, training, workers=0) == [slice(0, 12)]
        assert len(cut_batch(config, training, workers=2)) == len(cut_batch(config, training)) == (pieces or 4)


def test_workers_are_the_cores_unless_told_and_leave_no_thread() -> None:
    import threading

    before = threading.active_count()
    config, training = configs(EULER, workers=0, pieces=2)
    with TrainingStep(config, training, cpu) as step:
        assert step.workers == available_cores() >= 1
        step.run([batch(config)], 1e-3)
    assert threading.active_count() == before
    with Team(1):  # and no team
        pass


def test_an_error_in_a_piece_is_raised_and_the_next_step_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any) -> list[float]:
        raise ZeroDivisionError

    config, training = configs(EULER, workers=2, pieces=5)
    with TrainingStep(config, training, cpu) as step:
        with monkeypatch.context() as patch:
            patch.setattr(Transformer, "loss_and_gradients", failing)
            with pytest.raises(ZeroDivisionError):
                step.run([batch(config)], 1e-3)
        assert step.run([batch(config)], 1e-3).skipped == ""
