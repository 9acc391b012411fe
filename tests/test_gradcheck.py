"""The gradient check: right ops pass it, and every mutant is found and named by its tensor."""

import functools
import inspect
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
from nanoeuler.gradcheck import (
    LIMIT,
    LIMIT_FLOAT32,
    MODEL_CHECKS,
    OP_CHECKS,
    Row,
    check_model,
    check_op,
    derivative,
    relative_error,
)
from nanoeuler.model import Transformer
from nanoeuler.parameters import parameter_shapes

Array = np.ndarray


def table_with(name: str, faulty: Callable[..., None]) -> SimpleNamespace:
    """Return the op table with one function replaced; it keeps the signature by which the check calls it."""
    return SimpleNamespace(**{**vars(ops), name: functools.wraps(getattr(ops, name))(faulty)})


def failures(rows: list[Row]) -> set[str]:
    return {row.tensor for row in rows if not row.passed}


def check_ops(op: str, table: Any, dtype: type = np.float64) -> list[Row]:
    return [row for check in OP_CHECKS if check.op == op for row in check_op(check, table, dtype)]


@pytest.mark.parametrize("op", sorted({check.op for check in OP_CHECKS}))
def test_right_ops_pass(op: str) -> None:
    rows = check_ops(op, ops)
    assert failures(rows) == set()
    assert max(row.error for row in rows) < 1e-8  # far from the limit
    assert rows


@pytest.mark.parametrize("op", sorted({check.op for check in OP_CHECKS}))
def test_right_ops_pass_in_float32(op: str) -> None:
    rows = check_ops(op, ops, np.float32)
    assert failures(rows) == set()
    assert max(row.error for row in rows) < 1e-5  # far from the limit
    assert {row.limit for row in rows} == {LIMIT_FLOAT32} != {LIMIT}


def test_right_models_pass_in_float32() -> None:
    for config in (SMALL, SMALL.model_copy(update={"norm": "layernorm", "activation": "gelu", "bias": True})):
        rows = check_model("small", config, ops, np.float32)
        assert failures(rows) == set()
        assert {row.limit for row in rows} == {LIMIT_FLOAT32}
        assert all(np.isfinite(row.error) for row in rows)


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
    dq: Array, dk: Array, dv: Array, dout: Array, q: Array, k: Array, v: Array, starts: Array | None, fault: str = ""
) -> None:
    """Write the gradients plainly, from the definition, with a fault of choice."""
    (_, T, H, D), (S, K) = q.shape, k.shape[1:3]
    dk[...], dv[...] = 0, 0
    for h in range(H):
        kv = h % K if fault == "wrong group" else h // (H // K)
        scores = q[:, :, h] @ k[:, :, kv].swapaxes(1, 2) / math.sqrt(D)
        if not (fault == "no mask on one head" and h == 1):
            scores += np.triu(np.full((T, S), -np.inf), k=1 + S - T)
        if starts is not None and fault != "documents see each other":
            scores[np.arange(S) < starts[:, :, None]] = -np.inf
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
        dq: Array, dk: Array, dv: Array, dout: Array, out: Array, lse: Array, q: Array, k: Array, v: Array, starts: Any
    ) -> None:
        attention_backward(dq, dk, dv, dout, q, k, v, starts, fault)

    return faulty


def swiglu_takes_silu_for_sigmoid(dgate_up: Array, dout: Array, gate_up: Array) -> None:
    ops.swiglu_backward(dgate_up, dout, gate_up)
    gate, up = np.split(gate_up, 2, axis=1)
    dgate_up[:, : gate.shape[1]] = dout * up / (1 + np.exp(-gate))


def swiglu_swaps_gate_and_up(dgate_up: Array, dout: Array, gate_up: Array) -> None:
    ops.swiglu_backward(dgate_up, dout, gate_up)
    dgate_up[...] = np.roll(dgate_up, dout.shape[1], axis=1)


def residual_rmsnorm_forgets_what_is_handed_back(
    dx: Array, dweight: Array, dout: Array, dtotal: Array, total: Array, weight: Array, rstd: Array
) -> None:
    ops.residual_rmsnorm_backward(dx, dweight, dout, np.zeros_like(dtotal), total, weight, rstd)


def residual_rmsnorm_sends_both_through_the_norm(
    dx: Array, dweight: Array, dout: Array, dtotal: Array, total: Array, weight: Array, rstd: Array
) -> None:
    ops.residual_rmsnorm_backward(dx, dweight, dout + dtotal, dtotal.copy(), total, weight, rstd)


def residual_rmsnorm_misses_a_term(
    dx: Array, dweight: Array, dout: Array, dtotal: Array, total: Array, weight: Array, rstd: Array
) -> None:
    xhat = total * rstd[:, None]
    term = rstd[:, None] * xhat * (dout * weight * xhat).mean(axis=1, keepdims=True)
    ops.residual_rmsnorm_backward(dx, dweight, dout, dtotal, total, weight, rstd)
    dx += term


def residual_rmsnorm_overwrites_instead_of_adding(
    dx: Array, dweight: Array, dout: Array, dtotal: Array, total: Array, weight: Array, rstd: Array
) -> None:
    dweight[...] = 0
    ops.residual_rmsnorm_backward(dx, dweight, dout, dtotal, total, weight, rstd)


def residual_rmsnorm_forgets_the_last_row_of_the_weight(
    dx: Array, dweight: Array, dout: Array, dtotal: Array, total: Array, weight: Array, rstd: Array
) -> None:
    last = dout[-1] * total[-1] * rstd[-1]
    ops.residual_rmsnorm_backward(dx, dweight, dout, dtotal, total, weight, rstd)
    dweight -= last


def residual_rmsnorm_writes_dx_before_it_reads_dtotal(
    dx: Array, dweight: Array, dout: Array, dtotal: Array, total: Array, weight: Array, rstd: Array
) -> None:
    ops.rmsnorm_backward(dx, dweight, dout, total, weight, rstd)
    dx += dtotal


def residual_rmsnorm_writes_dx_before_it_reads_dout(
    dx: Array, dweight: Array, dout: Array, dtotal: Array, total: Array, weight: Array, rstd: Array
) -> None:
    ops.residual_rmsnorm_backward(dx, np.zeros_like(dweight), dout, dtotal, total, weight, rstd)
    dweight += (dout * total * rstd[:, None]).sum(axis=0)


def residual_layernorm_forgets_what_is_handed_back(
    dx: Array, dweight: Array, dbias: Array | None, dout: Array, dtotal: Array, *norms: Array
) -> None:
    ops.residual_layernorm_backward(dx, dweight, dbias, dout, np.zeros_like(dtotal), *norms)


def residual_layernorm_hands_it_back_twice(
    dx: Array, dweight: Array, dbias: Array | None, dout: Array, dtotal: Array, *norms: Array
) -> None:
    ops.residual_layernorm_backward(dx, dweight, dbias, dout, 2 * dtotal, *norms)


def residual_layernorm_forgets_the_mean(
    dx: Array, dweight: Array, dbias: Array | None, dout: Array, dtotal: Array, *norms: Array
) -> None:
    _, weight, _, rstd = norms
    term = (dout * weight).mean(axis=1, keepdims=True) * rstd[:, None]
    ops.residual_layernorm_backward(dx, dweight, dbias, dout, dtotal, *norms)
    dx += term


def residual_layernorm_takes_the_bias_for_the_weight(
    dx: Array, dweight: Array, dbias: Array | None, dout: Array, dtotal: Array, *norms: Array
) -> None:
    if dbias is not None:
        dweight, dbias = dbias, dweight
    ops.residual_layernorm_backward(dx, dweight, dbias, dout, dtotal, *norms)


def residual_layernorm_sums_what_is_handed_back_into_the_bias(
    dx: Array, dweight: Array, dbias: Array | None, dout: Array, dtotal: Array, *norms: Array
) -> None:
    if dbias is not None:
        dbias += dtotal.sum(axis=0)
    ops.residual_layernorm_backward(dx, dweight, dbias, dout, dtotal, *norms)


def residual_layernorm_writes_dx_before_it_reads_dtotal(
    dx: Array, dweight: Array, dbias: Array | None, dout: Array, dtotal: Array, *norms: Array
) -> None:
    ops.layernorm_backward(dx, dweight, dbias, dout, *norms)
    dx += dtotal


def gelu_slope(z: Array, three: float = 3) -> Array:
    root = math.sqrt(2 / math.pi)
    t = np.tanh(root * (z + 0.044715 * z**3))
    return 0.5 * (1 + t + z * (1 - t**2) * root * (1 + three * 0.044715 * z**2))


def gelu_forgets_the_three(dx: Array, dbias: Array | None, dout: Array, x: Array, bias: Array | None) -> None:
    dx[...] = dout * gelu_slope(x + (0 if bias is None else bias), three=1)
    if dbias is not None:
        dbias += dx.sum(axis=0)


def gelu_forgets_the_bias(dx: Array, dbias: Array | None, dout: Array, x: Array, bias: Array | None) -> None:
    ops.gelu_backward(dx, dbias, dout, x, None)


def gelu_sums_dout_into_the_bias(dx: Array, dbias: Array | None, dout: Array, x: Array, bias: Array | None) -> None:
    if dbias is not None:
        dbias += dout.sum(axis=0)
    ops.gelu_backward(dx, None, dout, x, bias)


def gelu_overwrites_the_bias(dx: Array, dbias: Array | None, dout: Array, x: Array, bias: Array | None) -> None:
    if dbias is not None:
        dbias[...] = 0
    ops.gelu_backward(dx, dbias, dout, x, bias)


def gelu_sums_the_bias_over_channels(dx: Array, dbias: Array | None, dout: Array, x: Array, bias: Array | None) -> None:
    ops.gelu_backward(dx, None, dout, x, bias)
    if dbias is not None:
        dbias += dx.sum()


def gelu_reads_x_after_writing_dx(dx: Array, dbias: Array | None, dout: Array, x: Array, bias: Array | None) -> None:
    incoming = dout.copy()
    ops.gelu_backward(dx, None, dout, x, bias)
    if dbias is not None:
        dbias += (incoming * gelu_slope(x + bias)).sum(axis=0)


def cross_entropy_is_off_by_one(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: Array) -> None:
    wrong = np.where(targets < 0, targets, (targets + 1) % logits.shape[1]).astype(np.int32)
    ops.cross_entropy_backward(losses, dlogits, logits, wrong, dloss)


def cross_entropy_minds_ignored_targets(
    losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: Array
) -> None:
    ops.cross_entropy_backward(losses, dlogits, logits, np.maximum(targets, 0), dloss)


def cross_entropy_forgets_dloss(losses: Array, dlogits: Array, logits: Array, targets: Array, dloss: Array) -> None:
    ops.cross_entropy_backward(losses, dlogits, logits, targets, np.ones_like(dloss))


def dropout_draws_again(
    dx: Array, dout: Array, rate: float, seed: int, site: int, micro_batch: Array, start: int
) -> None:
    ops.dropout_backward(dx, dout, rate, seed, site + 1, micro_batch, start)


def dropout_is_a_micro_batch_late(
    dx: Array, dout: Array, rate: float, seed: int, site: int, micro_batch: Array, start: int
) -> None:
    ops.dropout_backward(dx, dout, rate, seed, site, micro_batch + 1, start)


def dropout_forgets_the_scale(
    dx: Array, dout: Array, rate: float, seed: int, site: int, micro_batch: Array, start: int
) -> None:
    ops.dropout_backward(dx, dout, rate, seed, site, micro_batch, start)
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
    ("attention", attention_with("documents see each other"), {"dq", "dk", "dv"}),
    ("swiglu", swiglu_takes_silu_for_sigmoid, {"dgate_up"}),
    ("swiglu", swiglu_swaps_gate_and_up, {"dgate_up"}),
    ("residual_rmsnorm", residual_rmsnorm_forgets_what_is_handed_back, {"dx", "dbranch"}),
    ("residual_rmsnorm", residual_rmsnorm_sends_both_through_the_norm, {"dx", "dbranch", "dweight"}),
    ("residual_rmsnorm", residual_rmsnorm_misses_a_term, {"dx", "dbranch"}),
    ("residual_rmsnorm", residual_rmsnorm_overwrites_instead_of_adding, {"dweight"}),
    ("residual_rmsnorm", residual_rmsnorm_forgets_the_last_row_of_the_weight, {"dweight"}),
    (
        "residual_rmsnorm",
        residual_rmsnorm_writes_dx_before_it_reads_dtotal,
        {"dx (dx is dtotal)", "dbranch (dx is dtotal)"},
    ),
    ("residual_rmsnorm", residual_rmsnorm_writes_dx_before_it_reads_dout, {"dweight (dx is dout)"}),
    ("residual_layernorm", residual_layernorm_forgets_what_is_handed_back, {"dx", "dbranch"}),
    ("residual_layernorm", residual_layernorm_hands_it_back_twice, {"dx", "dbranch"}),
    ("residual_layernorm", residual_layernorm_forgets_the_mean, {"dx", "dbranch"}),
    ("residual_layernorm", residual_layernorm_takes_the_bias_for_the_weight, {"dweight", "dbias"}),
    ("residual_layernorm", residual_layernorm_sums_what_is_handed_back_into_the_bias, {"dbias"}),
    (
        "residual_layernorm",
        residual_layernorm_writes_dx_before_it_reads_dtotal,
        {"dx (dx is dtotal)", "dbranch (dx is dtotal)"},
    ),
    ("gelu", gelu_forgets_the_three, {"dx", "dbias"}),
    ("gelu", gelu_forgets_the_bias, {"dx", "dbias"}),
    ("gelu", gelu_sums_dout_into_the_bias, {"dbias"}),
    ("gelu", gelu_overwrites_the_bias, {"dbias"}),
    ("gelu", gelu_sums_the_bias_over_channels, {"dbias"}),
    ("gelu", gelu_reads_x_after_writing_dx, {"dbias (dx is x)"}),
    ("cross_entropy", cross_entropy_is_off_by_one, {"dlogits"}),
    ("cross_entropy", cross_entropy_minds_ignored_targets, {"dlogits"}),
    ("cross_entropy", cross_entropy_forgets_dloss, {"dlogits"}),
    ("dropout", dropout_draws_again, {"dx"}),
    ("dropout", dropout_is_a_micro_batch_late, {"dx"}),
    ("dropout", dropout_forgets_the_scale, {"dx"}),
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("op", "faulty", "tensors"), MUTANTS)
def test_every_mutant_of_an_op_is_found(op: str, faulty: Callable[..., None], tensors: set[str], dtype: type) -> None:
    """The tensors that are wrong fail, in place too where that is allowed, and no other does."""
    failed = failures(check_ops(op, table_with(f"{op}_backward", faulty), dtype))
    in_place = {name for name in failed if "(" in name and name.partition(" (")[0] in tensors}
    assert failed - in_place == tensors


@pytest.mark.parametrize("op", ["residual_rmsnorm", "residual_layernorm"])
@pytest.mark.parametrize(("first", "second"), [("x", "branch"), ("branch", "x")])
def test_a_sum_that_is_written_before_all_is_read_is_found(op: str, first: str, second: str) -> None:
    """Right where the total is an array of its own, or the term that is read first."""

    def faulty(*arguments: Any) -> None:
        a = dict(zip(inspect.signature(getattr(ops, f"{op}_forward")).parameters, arguments, strict=True))
        a["total"][...] = a[first]
        a["total"] += a[second]
        getattr(ops, f"{op}_forward")(**a | {"x": a["total"], "branch": np.zeros_like(a["total"])})

    failed = failures(check_ops(op, table_with(f"{op}_forward", faulty)))
    assert failed == {f"total (total is {second})"}


def test_the_plain_attention_of_the_mutants_is_right_without_a_fault() -> None:
    assert failures(check_ops("attention", table_with("attention_backward", attention_with("")))) == set()


def test_a_small_error_in_one_small_element_is_found() -> None:
    """An error of a hundred-thousandth in an element a thousand times smaller than the largest."""

    def faulty(dx: Array, dbias: Array | None, dout: Array, x: Array, bias: Array | None) -> None:
        ops.gelu_backward(dx, dbias, dout, x, bias)
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


BEFORE_THE_FEED_FORWARD = {
    "embedding.weight", "layers.0.attention_norm.weight", "layers.0.qkv.weight", "layers.0.attention_out.weight",
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_mutant_norm_of_a_residual_in_the_model_is_found(dtype: type) -> None:
    """Only what lies before the first norm that comes after a sum."""
    table = table_with("residual_rmsnorm_backward", residual_rmsnorm_misses_a_term)
    assert failures(check_model("euler", SMALL, table, dtype)) == BEFORE_THE_FEED_FORWARD


def test_borders_of_documents_lost_in_the_backward_are_found() -> None:
    def faulty(*arguments: Array) -> None:
        ops.attention_backward(*arguments[:-1])

    failed = failures(check_model("euler", SMALL, table_with("attention_backward", faulty)))
    assert failed == BEFORE_THE_FEED_FORWARD - {"layers.0.attention_out.weight"}


def test_a_lost_bias_before_the_activation_is_found() -> None:
    config = SMALL.model_copy(update={"activation": "gelu", "bias": True})
    failed = failures(check_model("gpt2", config, table_with("gelu_backward", gelu_sums_dout_into_the_bias)))
    assert failed == {"layers.0.up.bias"}


def test_memory_that_nobody_wrote_is_found() -> None:
    def faulty(out: Array, x: Array, weight: Array, bias: Array | None) -> None:
        ops.linear_forward(out[:-1], x[:-1], weight, bias)

    assert failures(check_model("euler", SMALL, table_with("linear_forward", faulty))) == ALL


def test_a_forgotten_loss_weight_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Transformer._head_forward_backward

    def faulty(self: Transformer, k: int, *rest: Any) -> None:
        *others, dloss = rest
        right(self, k, *others, dloss if k == 0 else np.ones_like(dloss))

    monkeypatch.setattr(Transformer, "_head_forward_backward", faulty)
    assert failures(check_model("euler", SMALL, ops)) == ALL - {"final_norm.weight"}  # which only head 0 goes through


def test_a_dropped_residual_gradient_is_found() -> None:
    """x + attention(x), with only one of the two paths back."""
    table = table_with("residual_rmsnorm_backward", residual_rmsnorm_forgets_what_is_handed_back)
    assert failures(check_model("euler", SMALL, table)) == BEFORE_THE_FEED_FORWARD


def test_a_further_head_whose_gradient_is_lost_is_found() -> None:
    """The heads meet in the residual stream, where the backward adds up in place."""

    def faulty(out: Array, x: Array, branch: Array) -> None:
        ops.residual_forward(out, x, branch)
        if out is x:
            out[...] = branch

    failed = failures(check_model("euler", SMALL, table_with("residual_forward", faulty)))
    assert {"embedding.weight", "layers.0.qkv.weight", "layers.0.down.weight"} <= failed
    assert not {name for name in ALL if name.startswith(("final_norm", "head", "prediction"))} & failed


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


def test_command_checks_another_device_in_float32(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def table(device: str) -> Any:
        asked.append(device)
        return table_with("gelu_backward", gelu_sums_dout_into_the_bias)

    monkeypatch.setattr(gradcheck, "op_table", table)
    assert run_command(gradcheck.main, ["--op", "rope", "--device", "sim"]) == 0
    assert "all 4 gradients right" in (text := capsys.readouterr().out)
    assert "limit 1e-04" in text
    assert run_command(gradcheck.main, ["--op", "gelu", "--device", "gpu"]) == 1
    assert "FAILED, 3 of 9 gradients: gelu, bias: dbias; gelu, bias: dbias (dx is dout)" in capsys.readouterr().out
    assert asked == ["sim", "gpu"]


@pytest.mark.parametrize(
    "arguments", [["--op", "layernrm"], ["--op"], ["--opp", "rope"], ["rope"], ["--device", "gpuu"], ["--device"]]
)
def test_command_explains_a_wrong_option(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(gradcheck.main, arguments) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ")
    if arguments == ["--op", "layernrm"]:
        assert "did you mean 'layernorm'?" in text
    if "gpuu" in arguments:
        assert "did you mean 'gpu'?" in text
