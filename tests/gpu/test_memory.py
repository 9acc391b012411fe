"""Memory ops and scratch: against NumPy, in every executor, on views whose rows lie apart."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, check, every_run, in_every_run, normal, unwritten
from simt.kernels.toolkit import need_toolkit

import nanoeuler.cpu
from nanoeuler.gpu import memory
from nanoeuler.gpu.bfloat16 import BFLOAT16, from_bfloat16, to_bfloat16
from nanoeuler.gpu.launch import executing

X = np.random.default_rng(0).standard_normal(2 * 5 * 6 * 7).astype(np.float32)
VIEWS = {
    "flat": lambda x: x,
    "one element": lambda x: x[:1],
    "rows": lambda x: x.reshape(10, 42),
    "rows apart": lambda x: x.reshape(2, 5, 42)[:, 4],
    "wide rows": lambda x: x.reshape(1, 420),
    "heads apart": lambda x: x.reshape(2, 5, 6, 7)[:, :, 1:3],
    "some tokens": lambda x: x.reshape(2, 5, 6, 7)[:, 1:4],
}
TYPES = {"float32": (np.float32, np.float32), "to bf16": (BFLOAT16, np.float32), "from bf16": (np.float32, BFLOAT16),
         "bf16": (BFLOAT16, BFLOAT16)}  # fmt: skip


def copied(random: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"out": unwritten(*shape), "x": normal(random, *shape)}


def copied_slices(random: np.random.Generator) -> dict[str, Any]:
    """Return heads of each token, as of packed q|k|v."""
    return {name: normal(random, 2, 5, 6, 7)[:, :, :2] for name in ("out", "x")}


def filled(random: np.random.Generator, n: int) -> dict[str, Any]:
    return {"out": unwritten(n), "value": 0.5}


CASES = [
    *(
        Case("copy", str(shape), partial(copied, shape=shape), ("out",))
        for shape in ((1,), (0,), (1025,), (10, 42), (3, 257))
    ),
    *(Case("copy", str(shape), partial(copied, shape=shape), ("out",)) for shape in ((2, 5, 3, 7), (1, 2, 1, 257))),
    Case("copy", "slices", copied_slices, ("out",)),
    *(Case("fill", f"{n}", partial(filled, n=n), ("out",)) for n in (1, 0, 257)),
]

MUTANTS = [
    (
        "    if i < out.shape[0]:\n        out[i] = narrow(value)",
        "    if i <= out.shape[0]:\n        out[i] = narrow(value)",
    ),
    ("launch(fill_flat, -(-out.size // THREADS)", "launch(fill_flat, max(1, out.size // THREADS)"),
    ("i = first + k * THREADS", "i = first + k"),
    ("if i < out.shape[0]:\n            out[i]", "if i < out.shape[0] - 1:\n            out[i]"),
    ("-(-out.size // (THREADS * PER_THREAD))", "max(1, out.size // (THREADS * PER_THREAD))"),
    ("out.shape[1], THREADS)", "min(out.shape[1], THREADS), THREADS)"),
    ("out[row, c] = narrow(widen(x[row, c]))", "out[row, c] = narrow(widen(x[c, row]))"),
    ("out.shape[3], THREADS)", "min(out.shape[3], THREADS), THREADS)"),
    ("t, h, b = cuda.blockIdx.x, cuda.blockIdx.y,", "h, t, b = cuda.blockIdx.x, cuda.blockIdx.y,"),
]


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, memory, executor, order)


def stored(x: np.ndarray, dtype: Any) -> np.ndarray:
    return to_bfloat16(x) if dtype == BFLOAT16 else x.copy()


def read(x: np.ndarray) -> np.ndarray:
    return from_bfloat16(x) if x.dtype == BFLOAT16 else x


@every_run
@pytest.mark.parametrize("view", VIEWS)
def test_copy(view: str, executor: Any, order: Any) -> None:
    need_toolkit() if executor == "ptx" else None
    part = VIEWS[view]
    for out_type, x_type in TYPES.values():
        out, x = stored(np.full(X.size, 9, np.float32), out_type), stored(X, x_type)
        with executing(executor, order):
            memory.copy(part(out), part(x))
        expected = np.full(X.size, 9, np.float32)
        nanoeuler.cpu.copy(part(expected), part(read(x)))
        np.testing.assert_array_equal(
            read(out), from_bfloat16(to_bfloat16(expected)) if out_type == BFLOAT16 else expected
        )


@every_run
@pytest.mark.parametrize("n", [1, 255, 256, 257])
def test_fill(n: int, executor: Any, order: Any) -> None:
    need_toolkit() if executor == "ptx" else None
    x = np.arange(n + 1, dtype=np.float32)
    low = to_bfloat16(x)
    with executing(executor, order):
        memory.fill(x[:n], 0.5)
        memory.fill(low[:n], -1.5)
    assert x.tolist() == [0.5] * n + [n]
    assert from_bfloat16(low)[:n].tolist() == [-1.5] * n
    assert low[n] == to_bfloat16(np.array([n]))[0]


def test_from_numpy_rounds_to_bfloat16_and_to_numpy_widens() -> None:
    low = np.zeros((2, 3), BFLOAT16)
    memory.from_numpy(low, X[:6].reshape(2, 3))
    np.testing.assert_array_equal(memory.to_numpy(low), from_bfloat16(to_bfloat16(X[:6].reshape(2, 3))))
    tokens = np.zeros(3, np.int32)
    memory.from_numpy(tokens, np.array([4, 5, 6]))
    assert memory.to_numpy(tokens) is tokens


def test_scratch_is_kept_and_grows() -> None:
    with memory.scratch_from(np.empty):
        a = memory.scratch("a test", (2, 3), np.float32, X)
        assert a.shape == (2, 3)
        assert np.shares_memory(memory.scratch("a test", (5,), np.float32, X), a)
        assert not np.shares_memory(memory.scratch("another", (5,), np.float32, X), a)
        assert not np.shares_memory(memory.scratch("a test", (5,), np.int32, X), a)
        assert not np.shares_memory(memory.scratch("a test", (7,), np.float32, X), a)
    with memory.scratch_from(np.empty):
        assert not np.shares_memory(memory.scratch("a test", (2, 3), np.float32, X), a)
