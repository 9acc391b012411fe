"""The gradient check: right ops pass it, and every mutant is found and named by its tensor."""

import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nanoeuler.cpu
from nanoeuler import cpu as ops
from nanoeuler import gradcheck
from nanoeuler.config import ModelConfig
from nanoeuler.errors import run_command
from nanoeuler.gradcheck import MODEL_CHECKS, OP_CHECKS, Row, check_model, check_op, derivative, relative_error
from nanoeuler.model import Transformer
from nanoeuler.parameters import parameter_shapes

Array = np.ndarray


def table_with(name: str, faulty: Callable[..., None]) -> SimpleNamespace:
    """Return the op table with one function replaced; it keeps the signature by which the check calls it."""
    return SimpleNamespace(**{**vars(ops), name: functools.wraps(getattr(ops, name))(faulty)})


def failures(rows: list[Row]) -> set[str]:
    return {row.tensor for row in rows if not row.passed}


def check_ops(op: str, table: Any) -> list[Row]:
    return [row for check in OP_CHECKS if check.op == op for row in check_op(check, table)]


@pytest.mark.parametrize("op", sorted({check.op for check in OP_CHECKS}))
def test_right_ops_pass(op: str) -> None:
    rows = check_ops(op, ops)
    assert failures(rows) == set()
    assert max(row.error for row in rows) < 1e-8  # far from the limit
    assert rows


@pytest.mark.parametrize("name", MODEL_CHECKS)
def test_right_models_pass(name: str) -> None:
    rows = check_model(name, MODEL_CHECKS[name], ops)
    assert failures(rows) == set()
    assert {row.tensor for row in rows} == set(parameter_shapes(MODEL_CHECKS[name]))


# Mutants of ops. Each does what the right op does, but for one fault.


def residual_wrong_sign(dx: Array, dbranch: Array, dout: Array) -> None:
    ops.residual_backward(dx, dbranch, dout)
    dbranch *= -1


def linear_overwrites_instead_of_adding(
    dx: Array | None, dweight: Array, dbias: Array | None, dout: Array, x: Array, weight: Array
) -> None:
    dweight[...] = 0
    ops.linear_backward(dx, dweight, dbias, dout, x, weight)


def linear_adds_to_an_activation(
    dx: Array | None, dweight: Array, dbias: Array | None, dout: Array, x: Array, weight: Array
) -> None:
    ops.linear_backward(None, dweight, dbias, dout, x, weight)
    if dx is not None:
        dx += dout @ weight


def linear_transposes(
    dx: Array | None, dweight: Array, dbias: Array | None, dout: Array, x: Array, weight: Array
) -> None:
    ops.linear_backward(dx, np.zeros_like(dweight), dbias, dout, x, weight)
    dweight += (x.T @ dout).reshape(dweight.shape)


def linear_forgets_last_row(
    dx: Array | None, dweight: Array, dbias: Array | None, dout: Array, x: Array, weight: Array
) -> None:
    ops.linear_backward(dx, dweight, None, dout, x, weight)
    if dbias is not None:
        dbias += dout[:-1].sum(axis=0)


def embedding_counts_repeated_tokens_once(
    dweight: Array, dposition: Array | None, dout: Array, tokens: Array, start: int
) -> None:
    ops.embedding_backward(np.zeros_like(dweight), dposition, dout, tokens, start)
    dweight[tokens] += dout


def embedding_ignores_start(dweight: Array, dposition: Array | None, dout: Array, tokens: Array, start: int) -> None:
    ops.embedding_backward(dweight, dposition, dout, tokens, 0)


def rmsnorm_misses_a_term(dx: Array, dweight: Array, dout: Array, x: Array, weight: Array, rstd: Array) -> None:
    ops.rmsnorm_backward(dx, dweight, dout, x, weight, rstd)
    dx += rstd[:, None] * (x * rstd[:, None]) * (dout * weight * x * rstd[:, None]).mean(axis=1, keepdims=True)


def rmsnorm_sums_instead_of_averaging(
    dx: Array, dweight: Array, dout: Array, x: Array, weight: Array, rstd: Array
) -> None:
    xhat, g = x * rstd[:, None], dout * weight
    ops.rmsnorm_backward(np.empty_like(dx), dweight, dout, x, weight, rstd)
    dx[...] = rstd[:, None] * (g - xhat * (g * xhat).sum(axis=1, keepdims=True))


def rmsnorm_uses_a_stale_rstd(dx: Array, dweight: Array, dout: Array, x: Array, weight: Array, rstd: Array) -> None:
    ops.rmsnorm_backward(dx, dweight, dout, x, weight, np.roll(rstd, 1))


def rmsnorm_reads_dout_after_writing_dx(
    dx: Array, dweight: Array, dout: Array, x: Array, weight: Array, rstd: Array
) -> None:
    ops.rmsnorm_backward(dx, np.zeros_like(dweight), dout, x, weight, rstd)
    dweight += (dout * x * rstd[:, None]).sum(axis=0)


def layernorm_forgets_the_mean(
    dx: Array, dweight: Array, dbias: Array | None, dout: Array, x: Array, weight: Array, mean: Array, rstd: Array
) -> None:
    g = (dout * weight).mean(axis=1, keepdims=True)
    ops.layernorm_backward(dx, dweight, dbias, dout, x, weight, mean, rstd)
    dx += g * rstd[:, None]


def layernorm_does_not_centre(
    dx: Array, dweight: Array, dbias: Array | None, dout: Array, x: Array, weight: Array, mean: Array, rstd: Array
) -> None:
    ops.layernorm_backward(dx, np.zeros_like(dweight), dbias, dout.copy(), x, weight, mean, rstd)
    dweight += (dout * x * rstd[:, None]).sum(axis=0)


def rope_turns_on(dx: Array, dout: Array, cos: Array, sin: Array) -> None:
    ops.rope_forward(dx, dout, cos, sin)


def attention_backward(
    dq: Array, dk: Array, dv: Array, dout: Array, q: Array, k: Array, v: Array, fault: str = ""
) -> None:
    """Write the gradients plainly, from the definition, with a fault of choice."""
    (_, T, H, D), (S, K) = q.shape, k.shape[1:3]
    dk[...], dv[...] = 0, 0
    for h in range(H):
        kv = h % K if fault == "wrong group" else h // (H // K)
        scores = q[:, :, h] @ k[:, :, kv].swapaxes(1, 2) / math.sqrt(D)
        if not (fault == "no mask on one head" and h == 1):
            scores += np.triu(np.full((T, S), -np.inf), k=1 + S - T)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        d = dout[:, :, h]
        dp = d @ v[:, :, kv].swapaxes(1, 2)
        delta = 0 if fault == "no delta" else (p * dp).sum(axis=-1, keepdims=True)
        dscores = p * (dp - delta)
        dq[:, :, h] = dscores @ k[:, :, kv] / math.sqrt(D)
        dkeys = dscores.swapaxes(1, 2) @ q[:, :, h] / (1 if fault == "no scale in dk" else math.sqrt(D))
        dvalues = p.swapaxes(1, 2) @ d
        if fault == "last head of the group only":
            dk[:, :, kv], dv[:, :, kv] = dkeys, dvalues
        else:
            dk[:, :, kv] += dkeys
            dv[:, :, kv] += dvalues


def attention_with(fault: str) -> Callable[..., None]:
    def faulty(
        dq: Array, dk: Array, dv: Array, dout: Array, out: Array, lse: Array, q: Array, k: Array, v: Array
    ) -> None:
        attention_backward(dq, dk, dv, dout, q, k, v, fault)

    return faulty


def swiglu_takes_silu_for_sigmoid(dgate_up: Array, dout: Array, gate_up: Array) -> None:
    ops.swiglu_backward(dgate_up, dout, gate_up)
    gate, up = np.split(gate_up, 2, axis=1)
    dgate_up[:, : gate.shape[1]] = dout * up / (1 + np.exp(-gate))


def swiglu_swaps_gate_and_up(dgate_up: Array, dout: Array, gate_up: Array) -> None:
    ops.swiglu_backward(dgate_up, dout, gate_up)
    dgate_up[...] = np.roll(dgate_up, dout.shape[1], axis=1)


def gelu_forgets_the_three(dx: Array, dout: Array, x: Array) -> None:
    root = math.sqrt(2 / math.pi)
    t = np.tanh(root * (x + 0.044715 * x**3))
    dx[...] = dout * 0.5 * (1 + t + x * (1 - t**2) * root * (1 + 0.044715 * x**2))


def cross_entropy_is_off_by_one(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: float) -> None:
    wrong = np.where(targets < 0, targets, (targets + 1) % logits.shape[1]).astype(np.int32)
    ops.cross_entropy_backward(losses, dlogits, logits, wrong, dloss)


def cross_entropy_minds_ignored_targets(
    losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: float
) -> None:
    ops.cross_entropy_backward(losses, dlogits, logits, np.maximum(targets, 0), dloss)


def cross_entropy_forgets_dloss(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: float) -> None:
    ops.cross_entropy_backward(losses, dlogits, logits, targets, 1.0)


def dropout_draws_again(dx: Array, dout: Array, rate: float, seed: int, stream: int, start: int) -> None:
    ops.dropout_backward(dx, dout, rate, seed, stream + 1, start)


def dropout_forgets_the_scale(dx: Array, dout: Array, rate: float, seed: int, stream: int, start: int) -> None:
    ops.dropout_backward(dx, dout, rate, seed, stream, start)
    dx *= 1 - rate


MUTANTS: list[tuple[str, Callable[..., None], set[str]]] = [
    ("residual", residual_wrong_sign, {"dbranch"}),
    ("linear", linear_overwrites_instead_of_adding, {"dweight"}),
    ("linear", linear_adds_to_an_activation, {"dx"}),
    ("linear", linear_transposes, {"dweight"}),
    ("linear", linear_forgets_last_row, {"dbias"}),
    ("embedding", embedding_counts_repeated_tokens_once, {"dweight"}),
    ("embedding", embedding_ignores_start, {"dposition"}),
    ("rmsnorm", rmsnorm_misses_a_term, {"dx"}),
    ("rmsnorm", rmsnorm_sums_instead_of_averaging, {"dx"}),
    ("rmsnorm", rmsnorm_uses_a_stale_rstd, {"dx", "dweight"}),
    ("rmsnorm", rmsnorm_reads_dout_after_writing_dx, {"dweight (dx is dout)"}),
    ("layernorm", layernorm_forgets_the_mean, {"dx"}),
    ("layernorm", layernorm_does_not_centre, {"dweight"}),
    ("rope", rope_turns_on, {"dx"}),
    ("attention", attention_with("no scale in dk"), {"dk"}),
    ("attention", attention_with("no delta"), {"dq", "dk"}),
    ("attention", attention_with("no mask on one head"), {"dq", "dk", "dv"}),
    ("attention", attention_with("wrong group"), {"dq", "dk", "dv"}),
    ("attention", attention_with("last head of the group only"), {"dk", "dv"}),
    ("swiglu", swiglu_takes_silu_for_sigmoid, {"dgate_up"}),
    ("swiglu", swiglu_swaps_gate_and_up, {"dgate_up"}),
    ("gelu", gelu_forgets_the_three, {"dx"}),
    ("cross_entropy", cross_entropy_is_off_by_one, {"dlogits"}),
    ("cross_entropy", cross_entropy_minds_ignored_targets, {"dlogits"}),
    ("cross_entropy", cross_entropy_forgets_dloss, {"dlogits"}),
    ("dropout", dropout_draws_again, {"dx"}),
    ("dropout", dropout_forgets_the_scale, {"dx"}),
]


@pytest.mark.parametrize(("op", "faulty", "tensors"), MUTANTS)
def test_every_mutant_of_an_op_is_found(op: str, faulty: Callable[..., None], tensors: set[str]) -> None:
    """The tensors that are wrong fail, in place too where that is allowed, and no other does."""
    failed = failures(check_ops(op, table_with(f"{op}_backward", faulty)))
    in_place = {name for name in failed if "(" in name and name.partition(" (")[0] in tensors}
    assert failed - in_place == tensors


def test_the_plain_attention_of_the_mutants_is_right_without_a_fault() -> None:
    assert failures(check_ops("attention", table_with("attention_backward", attention_with("")))) == set()


def test_a_small_error_in_one_small_element_is_found() -> None:
    """An error of a hundred-thousandth in an element a thousand times smaller than the largest."""

    def faulty(dx: Array, dout: Array, x: Array) -> None:
        ops.gelu_backward(dx, dout, x)
        i = np.abs(np.abs(dx) - 1e-3 * np.abs(dx).max()).argmin()
        dx.flat[i] *= 1 + 1e-3

    assert "dx" in failures(check_ops("gelu", table_with("gelu_backward", faulty)))


# Mutants of the model: faults between ops.


SMALL = ModelConfig(
    vocab_size=7, max_seq_len=4, num_layers=1, num_heads=2, num_kv_heads=1, hidden_dim=8, feed_forward_dim=4,
    num_prediction_heads=2,
)  # fmt: skip
ALL = set(parameter_shapes(SMALL))


def test_a_mutant_op_in_the_model_is_found() -> None:
    table = table_with("rmsnorm_backward", rmsnorm_misses_a_term)
    failed = failures(check_model("euler", SMALL, table))
    heads = {name for name in ALL if name.startswith(("head", "final_norm", "prediction.1.norm"))}
    assert failed == ALL - heads


def test_memory_that_nobody_wrote_is_found() -> None:
    def faulty(out: Array, x: Array, weight: Array, bias: Array | None) -> None:
        ops.linear_forward(out[:-1], x[:-1], weight, bias)

    assert failures(check_model("euler", SMALL, table_with("linear_forward", faulty))) == ALL


def test_a_forgotten_loss_weight_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Transformer._head_forward_backward

    def faulty(self: Transformer, k: int, a: Any, gradients: Any, x: Any, targets: Any, dloss: float) -> float:
        return right(self, k, a, gradients, x, targets, dloss if k == 0 else 1.0)

    monkeypatch.setattr(Transformer, "_head_forward_backward", faulty)
    assert failures(check_model("euler", SMALL, ops)) == ALL - {"final_norm.weight"}  # which only head 0 goes through


def test_a_dropped_residual_gradient_is_found() -> None:
    """x + attention(x), with only one of the two paths back."""

    def faulty(out: Array, x: Array, branch: Array) -> None:
        ops.residual_forward(out, x, branch)
        if out is x:  # the backward adds up in place, the forward does not
            out[...] = branch

    failed = failures(check_model("euler", SMALL, table_with("residual_forward", faulty)))
    assert {"embedding.weight", "layers.0.qkv.weight", "layers.0.attention_norm.weight"} <= failed
    assert not {"final_norm.weight", "head.weight"} & failed


def test_a_missing_mask_in_the_backward_of_one_site_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Transformer._dropout_backward

    def faulty(self: Transformer, dx: Any, dout: Any, dropout: Any, site: int) -> Any:
        return dout if site == 0 else right(self, dx, dout, dropout, site)

    monkeypatch.setattr(Transformer, "_dropout_backward", faulty)
    config = SMALL.model_copy(update={"dropout": 0.3})
    assert failures(check_model("euler", config, ops)) == {"embedding.weight"}


def test_a_lost_gradient_of_a_tied_head_is_found() -> None:
    config = SMALL.model_copy(update={"tie_embeddings": True})

    def faulty(dx: Array, dweight: Array, dbias: Array | None, dout: Array, x: Array, weight: Array) -> None:
        lost = dout.shape[1] == config.vocab_size
        ops.linear_backward(dx, np.empty_like(dweight) if lost else dweight, dbias, dout, x, weight)

    assert failures(check_model("euler", config, table_with("linear_backward", faulty))) == {"embedding.weight"}


# The measure.


def test_derivative_is_exact_for_a_quartic_and_close_for_the_rest() -> None:
    assert derivative(lambda t: 5 + 3 * t - 7 * t**2 + 2 * t**3 + 11 * t**4) == pytest.approx(3, rel=1e-11)
    assert derivative(lambda t: math.exp(2 + t)) == pytest.approx(math.exp(2), rel=1e-11)
    assert derivative(lambda t: np.array([t, -t])).tolist() == pytest.approx([1, -1])


def test_relative_error() -> None:
    right = np.array([1.0, -2, 0])
    assert relative_error(right, right, 0) == 0
    assert relative_error(np.array([1.0, -2.2, 0]), right, 0) == pytest.approx(0.2 / 2.2)
    assert relative_error(-right, right, 0) == 2
    assert relative_error(np.array([1.0, -2, 1e-6]), right, 0.01) == pytest.approx(1e-4)
    assert relative_error(np.zeros(3), np.zeros(3), 0) == 0
    unknown = relative_error(np.array([1.0, np.nan, 0]), right, 0)
    assert math.isnan(unknown)
    assert not Row("op", "dx", (3,), unknown).passed


# The command.


def test_command_prints_a_table_and_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(gradcheck.main, ["--op", "layernorm"]) == 0
    text = capsys.readouterr().out
    for word in ("tensor", "shape", "relative error", "verdict", "layernorm, bias", "dweight", "dbias", "5 x 7", "ok"):
        assert word in text
    assert "rmsnorm" not in text
    assert "all 8 gradients right" in text
    assert "limit 1e-06" in text


def test_command_names_what_failed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nanoeuler.cpu, "rope_backward", table_with("rope_backward", rope_turns_on).rope_backward)
    assert run_command(gradcheck.main, ["--op", "rope"]) == 1
    text = capsys.readouterr().out
    assert "FAILED, 3 of 4 gradients: rope: dx; rope: dx (dx is dout); rope, one pair: dx" in text


def test_command_checks_the_models(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradcheck, "MODEL_CHECKS", {"small": SMALL})
    assert run_command(gradcheck.main, ["--op", "model"]) == 0
    text = capsys.readouterr().out
    assert all(tensor in text for tensor in ALL)
    assert "attention," not in text


@pytest.mark.parametrize("arguments", [["--op", "layernrm"], ["--op"], ["--opp", "rope"], ["rope"]])
def test_command_explains_a_wrong_option(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(gradcheck.main, arguments) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ")
    if arguments == ["--op", "layernrm"]:
        assert "did you mean 'layernorm'?" in text
