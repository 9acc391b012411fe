"""The kernels of QK-norm against the CPU op, on slices of packed q|k|v, and by their properties."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, arguments_of, check, check_bfloat16, in_every_run, normal, unwritten
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.gpu import head_rmsnorm
from nanoeuler.gpu.launch import executing

EPS = 0.1  # large, so that one channel too has a gradient that is more than rounding
#: B, T, H, D: lanes that have none, one and several channels; heads that leave warps of the last block idle.
SHAPES = [(1, 1, 1, 1), (2, 3, 1, 8), (1, 5, 3, 33), (3, 1, 2, 80), (1, 7, 2, 128), (1, 2, 2, 256)]
BIG = [(2, 40, 9, 16)]  # more heads than warps


def packed(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return heads that lie among others, as those of queries do."""
    B, T, H, D = shape
    return normal(random, B, T, H + 3, D)[:, :, 1 : H + 1]


def forward(random: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Any]:
    x = packed(random, shape)
    return {
        "out": unwritten(*shape),
        "rstd": unwritten(*shape[:3]),
        "x": x,
        "weight": normal(random, shape[3]),
        "eps": EPS,
    }


def backward(random: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Any]:
    x = packed(random, shape)
    return {
        "dx": unwritten(*shape), "dweight": normal(random, shape[3]), "dout": normal(random, *shape), "x": x,
        "weight": normal(random, shape[3]), "rstd": (1 / np.sqrt((x**2).mean(axis=3) + EPS)).astype(np.float32),
    }  # fmt: skip


def forward_case(shape: tuple[int, ...], big: bool = False) -> Case:
    name = " x ".join(map(str, shape))
    return Case("head_rmsnorm_forward", name, partial(forward, shape=shape), ("out", "rstd"), big=big)


def backward_case(shape: tuple[int, ...], big: bool = False) -> Case:
    name = " x ".join(map(str, shape))
    return Case("head_rmsnorm_backward", name, partial(backward, shape=shape), ("dx", "dweight"), big=big)


CASES = [
    *(case(shape) for shape in SHAPES for case in (forward_case, backward_case)),
    *(case(shape, big=True) for shape in BIG for case in (forward_case, backward_case)),
    *(case((0, 3, 2, 4)) for case in (forward_case, backward_case)),
    Case(
        "head_rmsnorm_backward",
        "dx is dout",
        partial(backward, shape=(1, 5, 3, 45)),
        ("dx", "dweight"),
        (("dx", "dout"),),
    ),
]

MUTANTS = [
    ("for i in range(PER_LANE):\n        d = uint32(lane + i * WARP)\n        values[i]",
     "for i in range(PER_LANE - 1):\n        d = uint32(lane + i * WARP)\n        values[i]"),
    ("float32(D) + eps)", "float32(D))"),
    ("-(-B * T * H // WARPS)", "max(1, B * T * H // WARPS)"),
    ("if lane == 0:\n        rstd[b, t, h] = r", "if h == 0:\n        rstd[b, t, lane % H] = r"),
    ("head += uint32(dweight.shape[0])", "head += heads"),
    ("r = rstd[b, t, h]", "r = rstd[b, t, 0]"),
    ("g[i] *= w[i]", "g[i] *= w[0]"),
    ("r * (g[i] - xhat[i] * mean)", "r * (g[i] - xhat[i] * mean * float32(1.001))"),
    ("dw[i] += g[i] * xhat[i]", "dw[i] = g[i] * xhat[i]"),
]  # fmt: skip


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, head_rmsnorm, executor, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16(case: Case) -> None:
    check_bfloat16(case, head_rmsnorm)


def test_bits_do_not_depend_on_the_order_of_the_threads() -> None:
    case = Case("head_rmsnorm_backward", "", partial(backward, shape=(2, 37, 3, 45)), ())
    results = []
    for order in ("forward", "reverse", "random"):
        arguments = arguments_of(case)
        with executing("compiled", order, seed=3):
            head_rmsnorm.head_rmsnorm_backward(**arguments)
        results.append((arguments["dx"], arguments["dweight"]))
    for dx, dweight in results[1:]:
        assert (dx == results[0][0]).all()
        assert (dweight == results[0][1]).all()


def test_wide_heads_stay_in_registers() -> None:
    need_toolkit()
    heads, rows, row = np.zeros((2, 2, 2, 256), np.float32), np.zeros((2, 2), np.float32), np.zeros(2, np.float32)
    rstd = np.zeros((2, 2, 2), np.float32)
    kernel = head_rmsnorm.fitted(head_rmsnorm.normalise_heads, 256)
    simt.gate(kernel, (heads, rstd, heads, row, np.float32(EPS)), "sm_75", block=(32, 8))
    kernel = head_rmsnorm.fitted(head_rmsnorm.normalise_heads_backward, 256)
    simt.gate(kernel, (heads, rows, heads, heads, row, rstd), "sm_75", block=(32, 8))
