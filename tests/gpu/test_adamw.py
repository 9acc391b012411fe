"""AdamW on the GPU: against the CPU op, with and without clipping, over many steps, and by hand."""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, assert_close, check, in_every_run, normal

import nanoeuler.cpu

adamw = import_module("nanoeuler.gpu.adamw")  # in the package the name is the function's

SETTINGS: dict[str, Any] = {
    "max_norm": 1.0, "learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "step": 3,
}  # fmt: skip


def arguments(random: np.random.Generator, n: int, norm: float, **settings: Any) -> dict[str, Any]:
    return {
        "weight": normal(random, n), "m": normal(random, n), "v": normal(random, n) ** 2, "gradient": normal(random, n),
        "norm": np.full(1, norm, np.float32), **SETTINGS, **settings,
    }  # fmt: skip


def case(name: str, n: int, norm: float, big: bool = False, **settings: Any) -> Case:
    make = partial(arguments, n=n, norm=norm, **settings)
    return Case("adamw", f"{name}, {n}", make, ("weight", "m", "v"), big=big)


CASES = [
    case("clipped", 1, 2.5),
    case("clipped", 37, 2.5),
    case("clipped, two blocks", 259, 2.5),
    case("short enough", 65, 0.5),
    case("as long as it may be", 66, 1.0),
    case("not clipped", 67, 2.5, max_norm=0),
    case("no decay", 68, 2.5, weight_decay=0.0),
    case("first step, large eps", 69, 2.5, step=1, eps=0.5, learning_rate=1.0),
    case("late step", 70, 2.5, step=10_000, beta2=0.999),
    case("many", 100_003, 2.5, big=True),
]

MUTANTS = [
    ("if i >= weight.shape[0]:", "if i > weight.shape[0]:"),
    ("-(-weight.size // THREADS)", "weight.size // THREADS"),
    ("cuda.grid(1)", "cuda.threadIdx.x"),
    ("max_norm > float32(0) and ", ""),
    ("clip = max_norm / norm[0]", "clip = max_norm"),
    ("g = gradient[i] * clip", "g = gradient[i]"),
    ("rest2 * (g * g)", "rest2 * g"),
    ("keep * weight[i] -", "weight[i] -"),
    ("math.sqrt(second) + eps", "math.sqrt(second + eps)"),
    ("1 - beta1**step", "1 - beta1"),
    ("eps * root)", "eps)"),
]


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, adamw, executor, order)


def test_a_hundred_steps_equal_the_cpu() -> None:
    random = np.random.default_rng(0)
    states = []
    gradients = [normal(random, 37) * np.float32(1 + step % 7) for step in range(100)]
    for table in (nanoeuler.cpu, adamw):
        weight, m, v = np.ones(37, np.float32), np.zeros(37, np.float32), np.zeros(37, np.float32)
        for step, gradient in enumerate(gradients, 1):
            norm = np.linalg.norm(gradient).astype(np.float32).reshape(1)
            table.adamw(weight, m, v, gradient, norm, **{**SETTINGS, "step": step})
        states.append({"weight": weight, "m": m, "v": v})
    for name, expected in states[0].items():
        assert_close(states[1][name], expected, name, 2e-6)


def test_by_hand() -> None:
    weight, m, v = np.zeros(1, np.float32), np.array([1], np.float32), np.array([4], np.float32)
    settings = {"learning_rate": 1.0, "beta1": 0.5, "beta2": 0.75, "eps": 0.5, "weight_decay": 0.0, "step": 2}
    adamw.adamw(weight, m, v, np.array([3], np.float32), np.array([3], np.float32), max_norm=0, **settings)
    assert m[0] == 2
    assert v[0] == 5.25
    assert weight[0] == pytest.approx(-(2 / 0.75) / (np.sqrt(5.25 / (1 - 0.75**2)) + 0.5))


def test_decay_is_decoupled_from_the_moments() -> None:
    weight, m, v, zero = np.array([8], np.float32), *np.zeros((3, 1), np.float32)
    adamw.adamw(weight, m, v, zero, zero.copy(), **{**SETTINGS, "learning_rate": 0.5, "weight_decay": 0.5, "step": 1})
    assert (weight[0], m[0], v[0]) == (6, 0, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("norm", [np.nan, np.inf, 0.5])
def test_what_is_not_finite_is_where_it_is_on_the_cpu(norm: float, bad: float) -> None:
    def make(random: np.random.Generator) -> dict[str, Any]:
        given = arguments(random, 37, norm)
        given["gradient"][7] = bad
        return given

    with np.errstate(all="ignore"):
        check(Case("adamw", "not finite", make, ("weight", "m", "v")), adamw)


def test_two_ranges_are_as_good_as_one() -> None:
    whole = arguments(np.random.default_rng(0), 1000, 2.5)
    parts = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in whole.items()}
    adamw.adamw(**whole)
    arrays = ("weight", "m", "v", "gradient")
    for span in (slice(0, 301), slice(301, None)):
        adamw.adamw(**{**parts, **{name: parts[name][span] for name in arrays}})
    for name in arrays:
        assert (parts[name] == whole[name]).all()
