"""AdamW against PyTorch's, with clipping, and by hand."""

from typing import Any

import numpy as np
import pytest
from oracle import assert_close, assert_same_with_threads, dtypes, more_than_a_block, needs_torch, normal, torch

from nanoeuler import cpu as ops

SETTINGS: dict[str, Any] = {"learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
N = 2 * more_than_a_block(4)  # the update streams four arrays through the cache


def update(
    weight: np.ndarray, m: np.ndarray, v: np.ndarray, gradient: np.ndarray, step: int, max_norm: float, **settings: Any
) -> None:
    norm = np.zeros(1, weight.dtype)
    ops.global_norm(norm, gradient)
    settings = {"weight_decay": 0.0} | SETTINGS | settings
    ops.adamw(weight, m, v, gradient, norm, max_norm, step=step, **settings)


@needs_torch
@dtypes
@pytest.mark.parametrize("max_norm", [0, 1, 1e6])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("n", [1, 7, N])
def test_ten_steps_equal_torch(n: int, weight_decay: float, max_norm: float, dtype: type) -> None:
    """In the same precision as ours: PyTorch's rounds like ours, and differs from us by rounding alone."""
    weight, m, v = normal((n,), dtype), np.zeros(n, dtype), np.zeros(n, dtype)
    parameter = torch.tensor(weight, requires_grad=True)
    optimizer = torch.optim.AdamW(
        [parameter], lr=SETTINGS["learning_rate"], betas=(0.9, 0.95), eps=1e-8, weight_decay=weight_decay
    )
    for step in range(1, 11):
        gradient = normal((n,), dtype, step) * dtype(step)
        parameter.grad = torch.tensor(gradient)
        if max_norm and dtype == np.float32:
            torch.nn.utils.clip_grad_norm_([parameter], max_norm)
        elif max_norm:  # as in the paper; PyTorch's adds 1e-6 to the norm
            parameter.grad *= min(1, max_norm / float(parameter.grad.norm()))
        optimizer.step()
        before = gradient.copy()
        update(weight, m, v, gradient, step, max_norm, weight_decay=weight_decay)
        assert (gradient == before).all()
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    assert_close(weight, parameter, tolerance)
    assert_close(m, optimizer.state[parameter]["exp_avg"], tolerance)
    assert_close(v, optimizer.state[parameter]["exp_avg_sq"], tolerance)


def test_first_step_moves_by_the_learning_rate_against_the_sign() -> None:
    """Bias correction makes the first moments' ratio the gradient's sign, however large the gradient is."""
    weight, gradient = np.array([1.0, 1, 1, 1]), np.array([1e-3, -1e-3, 500, 0])
    update(weight, np.zeros(4), np.zeros(4), gradient, step=1, max_norm=0, learning_rate=0.25, eps=1e-30)
    assert_close(weight, [0.75, 1.25, 0.75, 1])


def test_decay_is_decoupled_from_the_moments() -> None:
    weight, m, v = np.array([8.0]), np.zeros(1), np.zeros(1)
    update(weight, m, v, np.zeros(1), step=1, max_norm=0, learning_rate=0.5, weight_decay=0.5)
    assert (weight[0], m[0], v[0]) == (6, 0, 0)


def test_moments_by_hand() -> None:
    weight, m, v = np.zeros(1), np.array([1.0]), np.array([4.0])
    update(weight, m, v, np.array([3.0]), step=2, max_norm=0, learning_rate=1.0, beta1=0.5, beta2=0.75, eps=0.5)
    assert m[0] == 2
    assert v[0] == 5.25
    assert weight[0] == pytest.approx(-(2 / 0.75) / (np.sqrt(5.25 / (1 - 0.75**2)) + 0.5))


def test_clipping_only_ever_shortens() -> None:
    for scale, clipped in ((0.5, False), (1, False), (2, True)):
        gradient = scale * np.array([0.6, 0.8])
        results = [(np.zeros(2), np.zeros(2), np.zeros(2)) for _ in range(2)]
        update(*results[0], gradient, step=1, max_norm=1)
        update(*results[1], np.array([0.6, 0.8]) if clipped else gradient, step=1, max_norm=0)
        assert_close(np.stack(results[0]), np.stack(results[1]))


def test_two_ranges_are_as_good_as_one() -> None:
    gradient, whole, parts = normal((N,)), [np.ones(N) for _ in range(3)], [np.ones(N) for _ in range(3)]
    norm = np.array([3.0])
    ops.adamw(*whole, gradient, norm, 1, weight_decay=0.1, step=3, **SETTINGS)
    for span in (slice(0, 1001), slice(1001, None)):
        ops.adamw(*(x[span] for x in parts), gradient[span], norm, 1, weight_decay=0.1, step=3, **SETTINGS)
    assert all((a == b).all() for a, b in zip(whole, parts, strict=True))


def test_threads_give_the_same_bits() -> None:
    def run() -> list[np.ndarray]:
        state = [normal((N,)), np.zeros(N), np.ones(N)]
        update(*state, normal((N,), seed=1), step=3, max_norm=1, weight_decay=0.1)
        return state

    assert_same_with_threads(run)
