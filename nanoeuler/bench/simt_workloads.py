"""What the executors are timed on: a tiled product, flash attention, one training step of a tiny transformer.

``python -m nanoeuler.bench.simt_workloads WORKLOAD EXECUTOR RUNS`` is a process that runs one of them and prints the
seconds of each run: a first launch needs a process of its own, and so does Numba's simulator, "stock" here, which is
chosen by ``NUMBA_ENABLE_CUDASIM=1`` before Numba is imported.
"""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nanoeuler import simt
from nanoeuler.bench import simt_kernels as kernels
from nanoeuler.bench.measure import seconds_of
from nanoeuler.bench.simt_kernels import ROWS, THREADS, TILE
from nanoeuler.parameters import flat_size, named_views
from nanoeuler.simt.launch import Dimensions

STOCK = "stock"

Launch = Callable[[Any, Dimensions, Dimensions, tuple], None]  # kernel, grid, block, arguments
Run = Callable[[Launch], np.ndarray]  # one run of a workload; returns what must be equal in all executors


def launcher(executor: Any) -> Launch:
    """Return how one executor launches a kernel."""

    def launch(kernel: Any, grid: Dimensions, block: Dimensions, args: tuple) -> None:
        simt.run(kernel, grid, block, args, executor=executor)

    return _launch_stock if executor == STOCK else launch


def _launch_stock(kernel: Any, grid: Dimensions, block: Dimensions, args: tuple) -> None:
    """Launch as Numba does; it refuses arrays with gaps between their elements, so those are copied there and back."""
    given = tuple(a.copy() if isinstance(a, np.ndarray) and not a.flags.forc else a for a in args)
    kernel[grid, block](*given)
    for a, copy in zip(args, given, strict=True):
        if copy is not a:
            a[...] = copy


def product(size: int = 64) -> Run:
    """Prepare the product of two square matrices."""
    a, b = np.random.default_rng(0).standard_normal((2, size, size), np.float32)
    out = np.zeros_like(a)

    def run(launch: Launch) -> np.ndarray:
        _product(launch, out, a, b)
        return out

    return run


def attention(B: int = 1, T: int = 32, H: int = 8, D: int = 8) -> Run:
    """Prepare the forward of causal attention."""
    q, k, v = np.random.default_rng(0).standard_normal((3, B, T, H, D), np.float32)
    out, lse = np.zeros_like(q), np.zeros((B, H, T), np.float32)
    scale = np.float32(1 / math.sqrt(D))

    def run(launch: Launch) -> np.ndarray:
        launch(kernels.attention_forward, (_blocks(T, ROWS), H, B), ROWS, (out, lse, q, k, v, scale))
        return out

    return run


@dataclass(frozen=True)
class Shape:
    """Sizes of a tiny transformer."""

    B: int = 2  # batch
    T: int = 16  # sequence
    C: int = 32  # channels
    H: int = 4  # heads
    F: int = 64  # feed-forward size
    V: int = 65  # vocabulary


def training_step(shape: Shape | None = None) -> Run:
    """Prepare a transformer that takes a further training step on the same batch in each run."""
    model = TinyTransformer(shape or Shape())

    def run(launch: Launch) -> np.ndarray:
        model.forward(launch)
        model.backward(launch)
        model.update(launch)
        return model.losses

    return run


WORKLOADS: dict[str, Callable[[], Run]] = {"product": product, "attention": attention, "step": training_step}


class TinyTransformer:
    """One Llama-like layer without RoPE between an embedding and the logits: weights, gradients, activations, a batch.

    Letters as in :mod:`~nanoeuler.bench.simt_kernels`; all float32. Weights, their gradients and AdamW's moments are
    flat, with views by name.
    """

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        B, T, C, H, F, V = (getattr(shape, letter) for letter in "BTCHFV")
        N, D = B * T, C // H
        shapes = {
            **{"embedding": (V, C), "qkv": (3 * C, C), "attention_out": (C, C)},
            **{"gate_up": (2 * F, C), "down": (C, F), "output": (V, C), "norm1": (C,), "norm2": (C,)},
        }
        self.shape, self.steps = shape, 0
        self.flat_weight, self.flat_gradient, self.m, self.v = np.zeros((4, flat_size(shapes)), np.float32)
        self.weight, self.gradient = named_views(self.flat_weight, shapes), named_views(self.flat_gradient, shapes)
        generator = np.random.default_rng(seed)
        for weight in self.weight.values():
            weight[...] = 1 if weight.ndim == 1 else generator.normal(0, 1 / math.sqrt(C), weight.shape)
        self.tokens, self.targets = generator.integers(V, size=(2, N), dtype=np.int32)
        self.scale = np.float32(1 / math.sqrt(D))

        def rows(columns: int) -> np.ndarray:
            return np.zeros((N, columns), np.float32)

        self.x, self.norm1, self.qkv, self.mixed, self.projected = rows(C), rows(C), rows(3 * C), rows(C), rows(C)
        self.middle, self.norm2, self.gate_up, self.hidden, self.fed = rows(C), rows(C), rows(2 * F), rows(F), rows(C)
        self.last, self.logits, self.losses = rows(C), rows(V), np.zeros(N, np.float32)
        self.rstd1, self.rstd2 = np.zeros((2, N), np.float32)
        self.lse, self.delta = np.zeros((2, B, H, T), np.float32)
        self.dx, self.dnorm, self.dqkv, self.dmixed = rows(C), rows(C), rows(3 * C), rows(C)
        self.dgate_up, self.dhidden = rows(2 * F), rows(F)

    def forward(self, launch: Launch) -> None:
        """Write the activations, each token's loss and, over the logits, the gradient of the mean loss."""
        w, s, N = self.weight, self.shape, len(self.tokens)

        def rows(kernel: Any, *args: Any) -> None:
            launch(kernel, N, THREADS, args)

        rows(kernels.embedding_forward, self.x, self.tokens, w["embedding"])

        rows(kernels.rmsnorm_forward, self.norm1, self.rstd1, self.x, w["norm1"], np.float32(1e-5))
        _product(launch, self.qkv, self.norm1, w["qkv"].T)
        grid = _blocks(s.T, ROWS), s.H, s.B
        heads = (self._heads(self.mixed)[0], self.lse, *self._heads(self.qkv))
        launch(kernels.attention_forward, grid, ROWS, (*heads, self.scale))
        _product(launch, self.projected, self.mixed, w["attention_out"].T)
        rows(kernels.add, self.middle, self.x, self.projected)

        rows(kernels.rmsnorm_forward, self.norm2, self.rstd2, self.middle, w["norm2"], np.float32(1e-5))
        _product(launch, self.gate_up, self.norm2, w["gate_up"].T)
        rows(kernels.swiglu_forward, self.hidden, self.gate_up)
        _product(launch, self.fed, self.hidden, w["down"].T)
        rows(kernels.add, self.last, self.middle, self.fed)

        _product(launch, self.logits, self.last, w["output"].T)
        rows(kernels.cross_entropy, self.losses, self.logits, self.targets, np.float32(1 / N))

    def backward(self, launch: Launch) -> None:
        """Write the gradients of matrices, add to those of norms and embedding, which the update leaves at zero."""
        w, dw, s, N = self.weight, self.gradient, self.shape, len(self.tokens)

        def rows(kernel: Any, *args: Any) -> None:
            launch(kernel, N, THREADS, args)

        def linear(dx: np.ndarray, dout: np.ndarray, x: np.ndarray, name: str) -> None:
            _product(launch, dw[name], dout.T, x)
            _product(launch, dx, dout, w[name])

        linear(self.dx, self.logits, self.last, "output")

        linear(self.dhidden, self.dx, self.hidden, "down")
        rows(kernels.swiglu_backward, self.dgate_up, self.dhidden, self.gate_up)
        linear(self.dnorm, self.dgate_up, self.norm2, "gate_up")
        rows(kernels.rmsnorm_backward, self.dx, dw["norm2"], self.dnorm, self.middle, w["norm2"], self.rstd2)

        linear(self.dmixed, self.dx, self.mixed, "attention_out")
        grid, qkv = (_blocks(s.T, ROWS), s.H, s.B), (*self._heads(self.qkv), self.scale)
        (dq, dk, dv), (dout,), (out,) = self._heads(self.dqkv), self._heads(self.dmixed), self._heads(self.mixed)
        launch(kernels.attention_backward_queries, grid, ROWS, (dq, self.delta, dout, out, self.lse, *qkv))
        launch(kernels.attention_backward_keys, grid, ROWS, (dk, dv, dout, self.delta, self.lse, *qkv))
        linear(self.dnorm, self.dqkv, self.norm1, "qkv")
        rows(kernels.rmsnorm_backward, self.dx, dw["norm1"], self.dnorm, self.x, w["norm1"], self.rstd1)

        rows(kernels.embedding_backward, dw["embedding"], self.dx, self.tokens)

    def update(self, launch: Launch) -> None:
        """Take AdamW's step and zero the gradients."""
        self.steps += 1
        settings = (0.01, 0.9, 0.99, 1e-8, 0.01, self.steps)  # rate, two betas, eps, decay, number of the step
        arrays = self.flat_weight, self.m, self.v, self.flat_gradient
        scalars = (np.float32(value) for value in settings)
        launch(kernels.adamw, _blocks(len(self.m), THREADS), THREADS, (*arrays, *scalars))

    def _heads(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return (B, T, H, D) views of each C columns of ``x``."""
        s = self.shape
        return tuple(x.reshape(s.B, s.T, -1, s.H, s.C // s.H).transpose(2, 0, 1, 3, 4))


def _product(launch: Launch, out: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    N, M = out.shape
    launch(kernels.product, (_blocks(M, TILE), _blocks(N, TILE)), (TILE, TILE), (out, a, b))


def _blocks(size: int, threads: int) -> int:
    return -(-size // threads)


def main(arguments: list[str]) -> None:
    """Run a workload some times and print the seconds of each run as JSON."""
    workload, executor, runs = arguments
    run, launch = WORKLOADS[workload](), launcher(executor)
    print(json.dumps([seconds_of(run, launch) for _ in range(int(runs))]))


if __name__ == "__main__":
    main(sys.argv[1:])
