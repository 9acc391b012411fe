"""Gradient check: every hand-written backward, held against a derivative taken with the forward alone.

``python -m nanoeuler.gradcheck`` checks, in float64, each op and then the whole model of both presets. What is
checked is a table of data, :data:`OP_CHECKS` and :data:`MODEL_CHECKS`, so that any op table can be held against it:
``--device sim`` and ``--device gpu`` check the kernels' float32 gradients against the same derivatives.

**The derivative** of a scalar L along a direction u is taken with the central difference of fourth order
(Abramowitz & Stegun 1964, 25.3.6, page 883)::

    dL/du = (8 (L(x + hu) - L(x - hu)) - (L(x + 2hu) - L(x - 2hu))) / 12h  +  O(h⁴)

Rounding adds about 1e-16 |L| / h to it. With h = 3e-4 both errors are near 1e-12, where the usual two points leave
1e-10 at best: the limit of 1e-6 then tells a wrong formula from rounding with room to spare.

**The scalar** is a random linear functional of an op's output, ``L = Σ dout out``, so that every element of the output
counts with its own weight; for the model it is the weighted sum of all heads' losses.

**The error** of an element is relative, ``|analytic - numeric| / max(|analytic|, |numeric|, floor)``, where the floor,
a thousandth of the tensor's largest element, keeps an element that should be 0 from being judged by its rounding. A
tensor's error is its largest. (An error relative to the largest element alone would overlook faults in small ones.)
Ops are checked at every element. The model's parameters are too many for that, so each tensor is checked along a few
random directions, every one of which moves all of its elements, and at a few single elements, the largest among them.

**The contract** is checked on the way: what an op writes starts as NaN, what it adds to starts as random numbers, and
each aliasing that its docstring allows is tried.
"""

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import nanoeuler.cpu
from nanoeuler.config import ModelConfig, Parser
from nanoeuler.cpu.rope import rope_tables
from nanoeuler.device import op_table
from nanoeuler.errors import UserError, nearest, run_command
from nanoeuler.model import Dropout, Transformer
from nanoeuler.parameters import Shapes, initial_weights, named_views, parameter_shapes

#: Largest relative error of a right gradient; of one computed in float32, relative to its tensor's largest element.
LIMIT, LIMIT_FLOAT32 = 1e-6, 1e-4
LIMITS = {np.dtype(np.float64): LIMIT, np.dtype(np.float32): LIMIT_FLOAT32}
#: Step of the differences.
STEP = 3e-4
#: An element is judged relative to at least this share of its tensor's largest, and to at least this much; in float32
#: to the whole of it, and to so much that what should cancel to zero may leave its rounding.
FLOOR_SHARE, FLOOR, FLOOR_FLOAT32 = 1e-3, 1e-5, 1e-2
#: Random directions and single elements at which each parameter of the model is checked.
DIRECTIONS, ELEMENTS = 2, 3


@dataclass(frozen=True)
class OpCheck:
    """One op at one set of shapes. The arrays' names are the names of the op's parameters."""

    op: str
    case: str
    outputs: Shapes  # what the forward writes; the first is what the scalar is taken of
    inputs: Shapes  # activations: their gradient d<name> is written
    parameters: Shapes = field(default_factory=dict)  # their gradient d<name> is added to
    constants: dict[str, Any] = field(default_factory=dict)  # everything else that the op is given
    aliases: tuple[tuple[str, str], ...] = ()  # (written, read) that may be one array
    shared: tuple[tuple[str, str], ...] = ()  # (gradient, which the backward writes once for both)


@dataclass(frozen=True)
class Row:
    """The verdict on one tensor."""

    where: str
    tensor: str
    shape: tuple[int, ...]
    error: float
    limit: float = LIMIT

    @property
    def passed(self) -> bool:
        """Whether the error is below the limit, which NaN is not."""
        return self.error < self.limit


def _rope(T: int, D: int) -> dict[str, np.ndarray]:
    cos, sin = rope_tables(T + 3, D, 100.0, np.float64)
    return {"cos": cos[3:], "sin": sin[3:]}


def _attention(case: str, B: int, T: int, S: int, H: int, K: int, D: int, starts: Any = None) -> OpCheck:
    query, key = (B, T, H, D), (B, S, K, D)
    given = {"starts": None if starts is None else np.array(starts, np.int32)}
    return OpCheck("attention", case, {"out": query, "lse": (B, H, T)}, {"q": query, "k": key, "v": key}, {}, given)


_TOKENS = np.array([[3, 0, 3, 6], [6, 3, 1, 3]], np.int32)
_TARGETS = np.array([2, -1, 0, 6, -1, 2], np.int32)
_X = np.random.default_rng(1).standard_normal((5, 7))
_DLOSS = np.array([0.3])
_NO_BIAS = {"bias": None, "dbias": None}
_BORDERS = np.repeat([[0, 3, 60, 65]], [3, 57, 5, 2], axis=1)  # where the document of each of 67 tokens begins
_DX_IN_PLACE = (("dx", "dout"),)
_IN_PLACE = (("out", "x"), ("dx", "dout"))
_TOTAL_IN_PLACE = (("total", "x"), ("total", "branch"), ("dx", "dtotal"), ("dx", "dout"))
_ONE_DX = (("dbranch", "dx"),)
_DLOGITS_IN_PLACE = (("dlogits", "logits"),)

OP_CHECKS = (
    OpCheck("embedding", "", {"out": (2, 4, 3)}, {}, {"weight": (7, 3)},
            {"tokens": _TOKENS, "start": 0, "position": None, "dposition": None}),
    OpCheck("embedding", "positions", {"out": (2, 4, 3)}, {}, {"weight": (7, 3), "position": (6, 3)},
            {"tokens": _TOKENS, "start": 2}),
    OpCheck("linear", "", {"out": (5, 3)}, {"x": (5, 7)}, {"weight": (3, 7)}, _NO_BIAS, (("dx", "x"),)),
    OpCheck("linear", "bias", {"out": (3, 5)}, {"x": (3, 4)}, {"weight": (5, 4), "bias": (5,)}),
    OpCheck("linear", "one row", {"out": (1, 5)}, {"x": (1, 1)}, {"weight": (5, 1), "bias": (5,)}),
    OpCheck("linear", "dx not needed", {"out": (5, 3)}, {}, {"weight": (3, 7)}, {"x": _X, "dx": None, **_NO_BIAS}),
    OpCheck("rmsnorm", "", {"out": (5, 7), "rstd": (5,)}, {"x": (5, 7)}, {"weight": (7,)}, {"eps": 0.1}, _DX_IN_PLACE),
    OpCheck("rmsnorm", "one channel", {"out": (3, 1), "rstd": (3,)}, {"x": (3, 1)}, {"weight": (1,)}, {"eps": 0.1}),
    OpCheck("head_rmsnorm", "", {"out": (2, 3, 2, 5), "rstd": (2, 3, 2)}, {"x": (2, 3, 2, 5)}, {"weight": (5,)},
            {"eps": 0.1}, _DX_IN_PLACE),
    OpCheck("head_rmsnorm", "one channel", {"out": (1, 3, 1, 1), "rstd": (1, 3, 1)}, {"x": (1, 3, 1, 1)},
            {"weight": (1,)}, {"eps": 0.1}),
    OpCheck("layernorm", "bias", {"out": (5, 7), "mean": (5,), "rstd": (5,)}, {"x": (5, 7)},
            {"weight": (7,), "bias": (7,)}, {"eps": 0.1}, _DX_IN_PLACE),
    OpCheck("layernorm", "no bias, one row", {"out": (1, 6), "mean": (1,), "rstd": (1,)}, {"x": (1, 6)},
            {"weight": (6,)}, {"eps": 0.1, **_NO_BIAS}),
    OpCheck("residual", "", {"out": (5, 3)}, {"x": (5, 3), "branch": (5, 3)},
            aliases=(*_IN_PLACE, ("out", "branch"), ("dbranch", "dout"))),
    OpCheck("residual_rmsnorm", "", {"out": (5, 7), "total": (5, 7), "rstd": (5,)}, {"x": (5, 7), "branch": (5, 7)},
            {"weight": (7,)}, {"eps": 0.1}, _TOTAL_IN_PLACE, _ONE_DX),
    OpCheck("residual_layernorm", "bias", {"out": (5, 7), "total": (5, 7), "mean": (5,), "rstd": (5,)},
            {"x": (5, 7), "branch": (5, 7)}, {"weight": (7,), "bias": (7,)}, {"eps": 0.1}, _TOTAL_IN_PLACE, _ONE_DX),
    OpCheck("residual_layernorm", "no bias, one row", {"out": (1, 6), "total": (1, 6), "mean": (1,), "rstd": (1,)},
            {"x": (1, 6), "branch": (1, 6)}, {"weight": (6,)}, {"eps": 0.1, **_NO_BIAS}, shared=_ONE_DX),
    OpCheck("rope", "", {"out": (2, 5, 3, 6)}, {"x": (2, 5, 3, 6)}, {}, _rope(5, 6), _IN_PLACE),
    OpCheck("rope", "one pair", {"out": (1, 1, 1, 2)}, {"x": (1, 1, 1, 2)}, {}, _rope(1, 2)),
    _attention("grouped queries", B=2, T=5, S=5, H=6, K=2, D=3),
    _attention("multi-head", B=1, T=4, S=4, H=3, K=3, D=5),
    _attention("multi-query, cached keys", B=2, T=3, S=7, H=2, K=1, D=4),
    _attention("one token", B=3, T=1, S=1, H=2, K=1, D=3),
    _attention("two blocks of queries", B=1, T=67, S=67, H=1, K=1, D=1),
    _attention("documents", B=2, T=5, S=5, H=4, K=2, D=3, starts=[[0, 1, 1, 1, 4], [0, 0, 0, 3, 3]]),
    _attention("documents, two blocks of queries", B=1, T=67, S=67, H=1, K=1, D=1, starts=_BORDERS),
    OpCheck("swiglu", "", {"out": (5, 3)}, {"gate_up": (5, 6)}, aliases=(("dgate_up", "gate_up"),)),
    OpCheck("gelu", "", {"out": (5, 7)}, {"x": (5, 7)}, {}, _NO_BIAS, (*_DX_IN_PLACE, ("dx", "x"))),
    OpCheck("gelu", "bias", {"out": (5, 7)}, {"x": (5, 7)}, {"bias": (7,)}, aliases=(*_DX_IN_PLACE, ("dx", "x"))),
    OpCheck("cross_entropy", "some ignored", {"losses": (6,)}, {"logits": (6, 7)}, {},
            {"targets": _TARGETS, "dloss": _DLOSS}, _DLOGITS_IN_PLACE),
    OpCheck("cross_entropy", "all ignored", {"losses": (6,)}, {"logits": (6, 7)}, {},
            {"targets": np.full(6, -1, np.int32), "dloss": _DLOSS}, _DLOGITS_IN_PLACE),
    OpCheck("dropout", "", {"out": (7, 5)}, {"x": (7, 5)}, {},
            {"rate": 0.3, "seed": 2**40 + 5, "site": 7, "micro_batch": np.array([2**33]), "start": 3}, _IN_PLACE),
)  # fmt: skip

_SMALL = {"vocab_size": 11, "max_seq_len": 6, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "hidden_dim": 16,
          "feed_forward_dim": 6, "num_prediction_heads": 3, "norm_eps": 0.01}  # fmt: skip
MODEL_CHECKS = {
    "euler": ModelConfig(**_SMALL),
    "euler, tied, dropout": ModelConfig(**_SMALL, tie_embeddings=True, dropout=0.2),
    "euler, norms and biases of queries and keys, stretched rope": ModelConfig(
        **_SMALL, qk_norm=True, qkv_bias=True, attention_head_dim=6, rope_factor=8.0, rope_original_length=30
    ),
    "gpt2": ModelConfig(**_SMALL | {"preset": "gpt2", "hidden_dim": 12}),  # D = 3
    "gpt2, untied, dropout": ModelConfig(**_SMALL, preset="gpt2", tie_embeddings=False, dropout=0.2),
}


def derivative(function: Callable[[float], Any]) -> Any:
    """Return the derivative at 0 of a function of one number, by the central difference of fourth order."""
    h = STEP
    return (8 * (function(h) - function(-h)) - (function(2 * h) - function(-2 * h))) / (12 * h)


def relative_error(analytic: np.ndarray, numeric: np.ndarray, floor: float) -> float:
    """Return the largest relative error of all elements, NaN if any is NaN.

    Args:
        analytic: any shape.
        numeric: the same.
        floor: what an element is at least taken to be when its error is divided by it.
    """
    scale = np.maximum(np.maximum(np.abs(analytic), np.abs(numeric)), max(floor, FLOOR))
    return float((np.abs(analytic - numeric) / scale).max())


def check_op(check: OpCheck, ops: Any, dtype: Any = np.float64) -> list[Row]:
    """Check the gradient of every input and parameter of an op, and its aliases.

    The differences are taken with the NumPy op in float64.

    Args:
        check: the op and its shapes.
        ops: the op table whose gradients are checked.
        dtype: in which it computes.
    """
    random = np.random.default_rng(0)
    shapes = check.inputs | check.parameters
    values = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    output, shape = next(iter(check.outputs.items()))
    incoming = {output: check.constants.get("dloss", random.standard_normal(shape))}  # the loss weighs all rows alike
    backward = getattr(ops, check.op + "_backward")
    for name in list(check.outputs)[1:]:
        if "d" + name in _parameter_names(backward):  # what is also passed on has a gradient of its own
            incoming[name] = random.standard_normal(check.outputs[name])
    start = {"d" + name: random.standard_normal(shape) for name, shape in check.parameters.items()}

    def run(table: Any, dtype: Any, backward: bool, alias: tuple[str, str] | None = None) -> dict[str, np.ndarray]:
        written = {"d" + name: np.full(shape, np.nan) for name, shape in check.inputs.items()}
        written |= {name: np.full(shape, np.nan) for name, shape in check.outputs.items()}
        gradients = {("dout" if name == output else "d" + name): value for name, value in incoming.items()}
        host = {**written, **start, **gradients, **values, **check.constants}
        a = {name: _upload(table, value, dtype) for name, value in host.items()}
        if alias:
            a[alias[0]] = a[alias[1]]
        _call(getattr(table, check.op + "_forward"), a)
        if backward:
            _call(getattr(table, check.op + "_backward"), a)
        for gradient, source in check.shared:
            a[gradient] = a[source]
        return {name: table.to_numpy(a[name]) for name in (*written, *start)}

    def slope(x: np.ndarray, i: tuple[int, ...]) -> float:
        def moved(step: float) -> np.ndarray:
            old, x[i] = x[i], x[i] + step
            out = run(nanoeuler.cpu, np.float64, backward=False)
            x[i] = old
            return np.concatenate([(out[name] * weight).reshape(-1) for name, weight in incoming.items()])

        return float(derivative(moved).sum())  # of the outputs first: their sum would round more

    gradients = ["d" + name for name in values]
    expected = {
        "d" + name: np.reshape([slope(x, i) for i in np.ndindex(x.shape)], x.shape) for name, x in values.items()
    }
    expected |= {name: run(nanoeuler.cpu, np.float64, backward=False)[name] for name in check.outputs}
    rows = []
    for alias in (None, *check.aliases):
        got = run(ops, dtype, backward=True, alias=alias)
        note = f" ({alias[0]} is {alias[1]})" if alias else ""
        for name in [alias[0]] if alias and alias[0] in check.outputs else gradients:
            error = relative_error(got[name] - start.get(name, 0), expected[name], _floor(expected[name], dtype))
            where = ", ".join(filter(None, (check.op, check.case)))
            rows.append(Row(where, name + note, expected[name].shape, error, LIMITS[np.dtype(dtype)]))
    return rows


def check_model(name: str, config: ModelConfig, ops: Any, dtype: Any = np.float64) -> list[Row]:
    """Check the gradient of every parameter of a model, with some targets ignored, and documents in one sequence.

    The differences are taken with the NumPy ops in float64.

    Args:
        name: what the rows call the model.
        config: a small model.
        ops: the op table whose gradients are checked.
        dtype: in which it computes.
    """
    random = np.random.default_rng(0)
    B, T, heads = 2, config.max_seq_len - 1, config.num_prediction_heads
    inputs = random.integers(0, config.vocabulary, (B, T), np.int32)
    targets = random.integers(-2, config.vocabulary, (heads, B, T), np.int32)  # about a sixth ignored
    dloss = random.uniform(0.5, 1.5, heads)
    starts = np.zeros((B, T), np.int32)
    starts[1] = np.arange(T) // 2 * 2  # two tokens each
    shapes = parameter_shapes(config)
    host = initial_weights(config, 0, np.float64)
    host += 0.3 * random.standard_normal(host.size)  # norms and biases too: at 1 and 0 they hide faults
    start = random.standard_normal(host.size)

    def run(table: Any, dtype: Any) -> tuple[Callable[[], np.ndarray], Any, Any]:
        """Return what gives the heads' losses of the weights as they are now, the weights and the gradients."""
        weights, gradients = _upload(table, host, dtype), _upload(table, start, dtype)
        model = Transformer(config, _with_nan(table), weights, B, T)
        given = [_upload(table, x, dtype) for x in (inputs, targets, dloss)]
        given += [Dropout(3, _upload(table, np.array([7]), dtype)), _upload(table, starts, dtype)]
        views, losses = named_views(gradients, shapes), table.empty(heads, dtype)

        def heads_losses() -> np.ndarray:
            table.fill(losses, 0)
            model.loss_and_gradients(views, losses, *given)
            return table.to_numpy(losses)

        return heads_losses, weights, gradients

    losses, weights, _ = run(nanoeuler.cpu, np.float64)

    def slope(at: slice, direction: np.ndarray) -> float:
        def moved(step: float) -> float:
            weights[at] = host[at] + step * direction
            value = float(losses() @ dloss)
            weights[at] = host[at]
            return value

        return float(derivative(moved))

    checked, _, gradients = run(ops, dtype)
    checked()
    analytic = named_views(ops.to_numpy(gradients).astype(np.float64) - start, shapes)
    places = named_views(np.arange(host.size), shapes)
    rows = []
    for tensor, gradient in analytic.items():
        g, first = gradient.reshape(-1), int(places[tensor].flat[0])
        elements = [int(np.abs(g).argmax()), *random.integers(0, g.size, ELEMENTS - 1)]
        single = [slope(slice(first + i, first + i + 1), np.ones(1)) for i in elements]
        directions = random.standard_normal((DIRECTIONS, g.size)) / math.sqrt(g.size)
        along = [slope(slice(first, first + g.size), u) for u in directions]
        deviation = float(np.linalg.norm(g)) / math.sqrt(g.size)  # of g · u over all directions u
        errors = (
            relative_error(g[elements], np.array(single), _floor(g, dtype)),
            relative_error(directions @ g, np.array(along), deviation),
        )
        rows.append(Row(name, tensor, gradient.shape, float(np.max(errors)), LIMITS[np.dtype(dtype)]))
    return rows


def _floor(gradient: np.ndarray, dtype: Any) -> float:
    """Return what an element's error is at least taken relative to, where a gradient is computed in ``dtype``."""
    largest = float(np.abs(gradient).max())
    return FLOOR_SHARE * largest if dtype == np.float64 else max(largest, FLOOR_FLOAT32)


def _call(op: Callable[..., None], arrays: dict[str, Any]) -> None:
    """Call an op with arrays and scalars chosen by the names of its parameters."""
    op(*(arrays[name] for name in _parameter_names(op)))


@cache
def _parameter_names(op: Callable[..., None]) -> tuple[str, ...]:
    return tuple(signature(op).parameters)


def _upload(ops: Any, value: Any, dtype: Any) -> Any:
    """Return a copy of an array in the op table's memory, floats as ``dtype``; a scalar or None as it is."""
    if not isinstance(value, np.ndarray):
        return value
    kind = dtype if value.dtype.kind == "f" else value.dtype
    copy = ops.empty(value.size, kind).reshape(value.shape)
    ops.from_numpy(copy, value.astype(kind))
    return copy


def _with_nan(ops: Any) -> SimpleNamespace:
    """Return the op table with fresh memory full of NaN, so that reading what was never written shows."""

    def empty(size: int, dtype: Any) -> Any:
        array = ops.empty(size, dtype)
        if np.dtype(dtype).kind == "f":
            ops.fill(array, math.nan)
        return array

    return SimpleNamespace(**{**vars(ops), "empty": empty})


def print_table(rows: Iterable[Row], console: Console) -> None:
    """Print every row: where, tensor, shape, largest relative error, verdict."""
    table = Table()
    for heading in ("op or model", "tensor", "shape"):
        table.add_column(heading, no_wrap=True)
    table.add_column("relative error", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    last = ""
    for row in rows:
        if last and row.where != last:
            table.add_section()
        verdict = "ok" if row.passed else "[bold red]FAILED[/]"
        shape = " x ".join(str(n) for n in row.shape)
        table.add_row(row.where if row.where != last else "", row.tensor, shape, f"{row.error:.1e}", verdict)
        last = row.where
    console.print(table)


def main(arguments: list[str]) -> int:
    """Check what the command line asks for; return 0 if every gradient is right, else 1."""
    names = [*dict.fromkeys(check.op for check in OP_CHECKS), "model"]
    parser = Parser(prog="python -m nanoeuler.gradcheck", description="Check every hand-written gradient.")
    parser.add_argument("--op", metavar="NAME", help=f"check only one of {', '.join(names)}")
    parser.add_argument("--device", default="cpu", help="whose gradients: cpu, gpu or sim [cpu]")
    options = parser.parse_args(arguments)
    chosen = options.op
    if chosen is not None and chosen not in names:
        raise UserError(f"--op: there is no op '{chosen}'{nearest(chosen, names)}; choose one of {', '.join(names)}")

    dtype = np.float64 if options.device == "cpu" else np.float32
    ops = op_table(options.device)
    began = perf_counter()
    rows: list[Row] = []
    for check in OP_CHECKS:
        if chosen in (None, check.op):
            rows += check_op(check, ops, dtype)
    for name, config in MODEL_CHECKS.items():
        if chosen in (None, "model"):
            rows += check_model(name, config, ops, dtype)
    print_table(rows, Console(highlight=False, width=None if sys.stdout.isatty() else 120))

    failed = [f"{row.where}: {row.tensor}" for row in rows if not row.passed]
    if failed:
        print(f"FAILED, {len(failed)} of {len(rows)} gradients: {'; '.join(failed)}")
        return 1
    largest = max(row.error for row in rows)
    print(
        f"all {len(rows)} gradients right: largest relative error {largest:.1e}, limit {LIMITS[np.dtype(dtype)]:.0e}",
        end="",
    )
    print(f" ({perf_counter() - began:.1f} s)")
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
