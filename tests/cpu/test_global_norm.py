"""The global norm: the length of a vector, however it is cut."""

from importlib import import_module

import numpy as np
import pytest
from oracle import assert_same_with_threads, dtypes, more_than_a_block, needs_torch, normal, torch

from nanoeuler import cpu as ops

N = 3 * more_than_a_block(1)


def norm_of(x: np.ndarray) -> float:
    out = np.full(1, np.nan, x.dtype)
    ops.global_norm(out, x)
    return float(out[0])


@dtypes
@pytest.mark.parametrize("n", [1, 2, 7, N])
def test_equals_numpy(n: int, dtype: type) -> None:
    x = normal((n,), dtype)
    assert norm_of(x) == pytest.approx(np.linalg.norm(x.astype(np.float64)), rel=1e-12 if dtype == np.float64 else 1e-6)


@needs_torch
def test_equals_torch_over_many_tensors() -> None:
    x = normal((N,), np.float32)
    tensors = [torch.nn.Parameter(torch.tensor(part)) for part in np.split(x, [5, 1000, 70001])]
    for tensor in tensors:
        tensor.grad = tensor.detach().clone()
    assert norm_of(x) == pytest.approx(float(torch.nn.utils.clip_grad_norm_(tensors, 1.0)), rel=1e-5)


def test_by_hand() -> None:
    assert norm_of(np.array([3.0, -4.0])) == 5
    assert norm_of(np.zeros(9)) == 0


@dtypes
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", [0, 12345, N - 1])
def test_is_not_finite_if_an_element_is_not(where: int, bad: float, dtype: type) -> None:
    x = normal((N,), dtype)
    x[where] = bad
    assert not np.isfinite(norm_of(x))


@pytest.mark.parametrize("elements", [1, 1000, N, 10 * N])
def test_does_not_depend_on_the_blocks(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal((N // 64,))
    expected = norm_of(x)
    monkeypatch.setattr(import_module("nanoeuler.cpu.parallel"), "BLOCK_ELEMENTS", elements)
    assert norm_of(x) == pytest.approx(expected, rel=1e-14)


@dtypes
def test_threads_give_the_same_bits(dtype: type) -> None:
    x = normal((N,), dtype)
    assert_same_with_threads(lambda: [np.array([norm_of(x)])])
