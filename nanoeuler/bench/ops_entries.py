"""What the benchmark of the ops runs: every op at the shapes that it has in a model, and the work that it cannot avoid.

An entry names the shapes of an op's arrays by their letters. The bytes that must be moved follow from them: each array
that is read, once; each that is written, once; each that is added to, twice. What an op reads again, or keeps between
two launches, is its own affair and lowers its rate.

The floating-point operations are counted where they are what takes the time: in products, and in attention.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from nanoeuler.precision import storage

Shapes = dict[str, str]

EPS = 1e-5
SEED = 1


@dataclass(frozen=True)
class Size:
    """Sizes of one model, by their letters."""

    about: str
    B: int  # batch
    T: int  # sequence
    C: int  # channels
    H: int  # query heads
    K: int  # key/value heads
    F: int  # feed-forward
    V: int  # vocabulary
    P: int  # parameters

    @cached_property
    def extents(self) -> dict[str, int]:
        """Every word that a shape may be made of."""
        letters = {letter: getattr(self, letter) for letter in "BTCHKFVP"}
        D = self.C // self.H
        used = len(np.unique(zipf(self.B * self.T, self.V)))
        return letters | {"N": self.B * self.T, "D": D, "D/2": D // 2, "2F": 2 * self.F, "U": used, "1": 1, "2": 2}

    def shape(self, words: str) -> tuple[int, ...]:
        """Return the shape that some words name.

        >>> SIZES["tiny"].shape("N 2F")
        (48, 96)
        """
        return tuple(self.extents[word] for word in words.split())


SIZES = {
    "tiny": Size("for the simulator and for tests", B=2, T=24, C=32, H=4, K=2, F=48, V=65, P=10_000),
    "small": Size("for a laptop's CPU", B=4, T=256, C=384, H=6, K=2, F=1024, V=4096, P=10_000_000),
    "124m": Size("GPT-2 124M, for a GPU", B=8, T=1024, C=768, H=12, K=12, F=3072, V=50257, P=124_439_808),
}
#: What is taken where nobody says.
DEFAULT_SIZE = {"cpu": "small", "gpu": "124m", "sim": "tiny"}


def zipf(n: int, V: int) -> np.ndarray:
    """Return n tokens below V, as often as words are in text: the r-th most frequent one about 1 / r as often."""
    return (V ** np.random.default_rng(SEED).random(n)).astype(np.int32) - 1


def starts_of_documents(B: int, T: int) -> np.ndarray:
    """Return where in its sequence the document of each token begins, (B, T) int32: four documents in a sequence."""
    random, starts = np.random.default_rng(SEED), np.zeros((B, T), np.int32)
    for sequence in starts:
        borders = random.permutation(np.arange(1, T, dtype=np.int32))[:3]
        sequence[borders] = borders
    return np.maximum.accumulate(starts, axis=1)


@dataclass(frozen=True)
class OpBench:
    """One op with its arguments; the arrays' names are the names of the op's parameters."""

    op: str
    written: Shapes
    read: Shapes
    added: Shapes = field(default_factory=dict)  # read and written: added to, or updated
    constants: dict[str, Any] = field(default_factory=dict)
    case: str = ""
    flops: Callable[[dict[str, int]], int] | None = None  # of the extents; None where memory is what it waits for
    packed: tuple[tuple[str, ...], ...] = ()  # heads that lie side by side in one array, as in the model
    touched: Shapes = field(default_factory=dict)  # what is used of an array, if not all
    prepare: Callable[[Any, dict[str, Any]], None] | None = None  # makes of (ops, arguments) what a forward leaves

    @property
    def name(self) -> str:
        """The op and its case."""
        return f"{self.op}, {self.case}" if self.case else self.op

    @property
    def family(self) -> str:
        """The op without its direction."""
        return self.op.removesuffix("_forward").removesuffix("_backward")

    @property
    def shapes(self) -> Shapes:
        """The shapes of all arrays."""
        return self.written | self.read | self.added

    def moved_bytes(self, size: Size, dtype: str) -> int:
        """Return the bytes that the op cannot avoid to read or write, with ``training.dtype``."""
        total = 0
        for name, words in self.shapes.items():
            count = math.prod(size.shape(self.touched.get(name, words)))
            total += count * self.element(name, dtype).itemsize * (2 if name in self.added else 1)
        return total

    def element(self, name: str, dtype: str) -> np.dtype:
        """Return the type of an array's elements, with ``training.dtype``."""
        if name in INTEGERS:
            return np.dtype(INTEGERS[name])
        stored = storage(dtype)
        return stored.master if self.op in MASTER_OPS or name in ALWAYS_FLOAT32 else stored.activations


INTEGERS = {"tokens": np.int32, "targets": np.int32, "starts": np.int32, "micro_batch": np.int64}
#: Ops on master weights, their gradients and losses, which are float32 whatever the activations are.
MASTER_OPS = {"accumulate", "adamw", "global_norm", "total"}
#: Arrays of the other ops that are float32 as well: statistics, losses, tables, gradients of parameters.
ALWAYS_FLOAT32 = {
    *("mean", "rstd", "lse", "losses", "dloss", "cos", "sin"),
    *("dweight", "dbias", "dposition"),
}


def _linear(case: str, inputs: str, outputs: str) -> list[OpBench]:
    """Return forward and backward of a linear layer: one product, and two."""
    x, out, weight = f"N {inputs}", f"N {outputs}", f"{outputs} {inputs}"
    biased = case != "head"  # which has none

    def flops(e: dict[str, int]) -> int:
        return 2 * e["N"] * e[inputs] * e[outputs]

    return [
        OpBench("linear_forward", {"out": out}, {"x": x, "weight": weight} | ({"bias": outputs} if biased else {}),
                constants={} if biased else {"bias": None}, case=case, flops=flops),
        OpBench("linear_backward", {"dx": x}, {"dout": out, "x": x, "weight": weight},
                {"dweight": weight} | ({"dbias": outputs} if biased else {}),
                constants={} if biased else {"dbias": None}, case=case, flops=lambda e: 2 * flops(e)),
    ]  # fmt: skip


def _attention(case: str = "") -> list[OpBench]:
    """Return forward and backward of attention, over whole sequences or within documents."""
    starts: Shapes = {"starts": "B T"} if case else {}
    constants = {} if case else {"starts": None}

    def flops(e: dict[str, int], products: int) -> int:
        """Count so many products with D channels of pairs of a query and a key that it sees."""
        seen = e["B"] * e["T"] * (e["T"] + 1) // 2
        if case:
            seen -= int(starts_of_documents(e["B"], e["T"]).sum())
        return products * 2 * e["H"] * e["D"] * seen

    def forward(ops: Any, a: dict[str, Any]) -> None:
        ops.attention_forward(a["out"], a["lse"], a["q"], a["k"], a["v"], a["starts"])

    return [
        OpBench("attention_forward", {"out": _HEADS, "lse": "B H T"}, _QKV | starts, constants=constants, case=case,
                flops=lambda e: flops(e, 2), packed=(("q", "k", "v"),)),
        OpBench("attention_backward", {"dq": _HEADS, "dk": _KV, "dv": _KV},
                {"dout": _HEADS, "out": _HEADS, "lse": "B H T", **_QKV, **starts}, constants=constants, case=case,
                flops=lambda e: flops(e, 5),  # q k again, dv, dp, dq, dk
                packed=(("q", "k", "v"), ("dq", "dk", "dv")), prepare=forward),
    ]  # fmt: skip


def _norm_statistics(ops: Any, a: dict[str, Any]) -> None:
    """Write rstd, and LayerNorm's mean, of what is normalised; dx serves as the output that nobody needs."""
    x = a.get("total", a.get("x"))
    if "mean" in a:
        ops.layernorm_forward(a["dx"], a["mean"], a["rstd"], x, a["weight"], None, EPS)
    else:
        ops.rmsnorm_forward(a["dx"], a["rstd"], x, a["weight"], EPS)


def _head_norm_statistics(ops: Any, a: dict[str, Any]) -> None:
    """Fill ``rstd`` of each head by the forward; its output goes where dx will."""
    ops.head_rmsnorm_forward(a["dx"], a["rstd"], a["x"], a["weight"], EPS)


_NC = "N C"
_HEADS, _KV = "B T H D", "B T K D"
_QKV: Shapes = {"q": _HEADS, "k": _KV, "v": _KV}
_ANGLES: Shapes = {"cos": "T D/2", "sin": "T D/2"}
_DROPOUT = {"rate": 0.1, "seed": 1, "site": 0, "start": 0}
_ADAMW = {
    "max_norm": 1.0, "learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "step": 1,
}  # fmt: skip

#: Every op of the table, in the order in which a step meets them.
OP_BENCHES = (
    OpBench("embedding_forward", {"out": "B T C"}, {"tokens": "B T", "weight": "V C", "position": "T C"},
            constants={"start": 0}, touched={"weight": "U C"}),
    OpBench("embedding_backward", {}, {"dout": "B T C", "tokens": "B T"}, {"dweight": "V C", "dposition": "T C"},
            constants={"start": 0}, touched={"dweight": "U C"}),
    OpBench("dropout_forward", {"out": _NC}, {"x": _NC, "micro_batch": "1"}, constants=_DROPOUT),
    OpBench("dropout_backward", {"dx": _NC}, {"dout": _NC, "micro_batch": "1"}, constants=_DROPOUT),
    OpBench("rmsnorm_forward", {"out": _NC, "rstd": "N"}, {"x": _NC, "weight": "C"}, constants={"eps": EPS}),
    OpBench("rmsnorm_backward", {"dx": _NC}, {"dout": _NC, "x": _NC, "weight": "C", "rstd": "N"}, {"dweight": "C"},
            prepare=_norm_statistics),
    OpBench("layernorm_forward", {"out": _NC, "mean": "N", "rstd": "N"}, {"x": _NC, "weight": "C", "bias": "C"},
            constants={"eps": EPS}),
    OpBench("layernorm_backward", {"dx": _NC}, {"dout": _NC, "x": _NC, "weight": "C", "mean": "N", "rstd": "N"},
            {"dweight": "C", "dbias": "C"}, prepare=_norm_statistics),
    OpBench("residual_forward", {"out": _NC}, {"x": _NC, "branch": _NC}),
    OpBench("residual_backward", {"dx": _NC, "dbranch": _NC}, {"dout": _NC}),
    OpBench("residual_rmsnorm_forward", {"out": _NC, "total": _NC, "rstd": "N"},
            {"x": _NC, "branch": _NC, "weight": "C"}, constants={"eps": EPS}),
    OpBench("residual_rmsnorm_backward", {"dx": _NC},
            {"dout": _NC, "dtotal": _NC, "total": _NC, "weight": "C", "rstd": "N"}, {"dweight": "C"},
            prepare=_norm_statistics),
    OpBench("residual_layernorm_forward", {"out": _NC, "total": _NC, "mean": "N", "rstd": "N"},
            {"x": _NC, "branch": _NC, "weight": "C", "bias": "C"}, constants={"eps": EPS}),
    OpBench("residual_layernorm_backward", {"dx": _NC},
            {"dout": _NC, "dtotal": _NC, "total": _NC, "weight": "C", "mean": "N", "rstd": "N"},
            {"dweight": "C", "dbias": "C"}, prepare=_norm_statistics),
    OpBench("head_rmsnorm_forward", {"out": _HEADS, "rstd": "B T H"}, {"x": _HEADS, "weight": "D"},
            constants={"eps": EPS}),
    OpBench("head_rmsnorm_backward", {"dx": _HEADS}, {"dout": _HEADS, "x": _HEADS, "weight": "D", "rstd": "B T H"},
            {"dweight": "D"}, prepare=_head_norm_statistics),
    OpBench("rope_forward", {"out": _HEADS}, {"x": _HEADS, **_ANGLES}),
    OpBench("rope_backward", {"dx": _HEADS}, {"dout": _HEADS, **_ANGLES}),
    *_attention(),
    *_attention("documents"),
    *_linear("feed-forward", "C", "F"),
    OpBench("gelu_forward", {"out": "N F"}, {"x": "N F", "bias": "F"}),
    OpBench("gelu_backward", {"dx": "N F"}, {"dout": "N F", "x": "N F", "bias": "F"}, {"dbias": "F"}),
    OpBench("swiglu_forward", {"out": "N F"}, {"gate_up": "N 2F"}),
    OpBench("swiglu_backward", {"dgate_up": "N 2F"}, {"dout": "N F", "gate_up": "N 2F"}),
    *_linear("head", "C", "V"),
    OpBench("cross_entropy_forward", {"losses": "N"}, {"logits": "N V", "targets": "N"}),
    OpBench("cross_entropy_backward", {"losses": "N", "dlogits": "N V"},
            {"logits": "N V", "targets": "N", "dloss": "1"}),
    OpBench("total", {}, {"x": "N"}, {"out": "1"}),
    OpBench("accumulate", {}, {"parts": "2 P"}, {"out": "P"}),
    OpBench("global_norm", {"out": "1"}, {"x": "P"}),
    OpBench("adamw", {}, {"gradient": "P", "norm": "1"}, {"weight": "P", "m": "P", "v": "P"}, constants=_ADAMW),
    OpBench("copy", {"out": _NC}, {"x": _NC}),
    OpBench("fill", {"out": "P"}, {}, constants={"value": 0.0}),
)  # fmt: skip
