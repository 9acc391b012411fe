"""Every version of the ladder of attention against the CPU op."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, arguments_of, check, in_every_run, normal, unwritten
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.gpu.ladder import attention
from nanoeuler.gpu.ladder.version import Version
from nanoeuler.gpu.launch import executing
from nanoeuler.gpu.variant import variant

every_version = pytest.mark.parametrize("version", attention.VERSIONS, ids=lambda version: version.name)


def arguments(random: np.random.Generator, B: int, T: int, S: int, H: int, K: int, D: int) -> dict[str, Any]:
    """Return q as a slice, with rows of NaN between, and k and v side by side in one array."""
    q, both = normal(random, B, T, H + 1, D), normal(random, B, S, 2 * K, D)
    q[:, :, H:] = np.nan
    return {
        "out": unwritten(B, T, H, D), "lse": unwritten(B, H, T),
        "q": q[:, :, :H], "k": both[:, :, :K], "v": both[:, :, K:],
    }  # fmt: skip


def case(B: int, T: int, S: int, H: int, K: int, D: int, big: bool = False) -> Case:
    shape = {"B": B, "T": T, "S": S, "H": H, "K": K, "D": D}
    return Case("attention_forward", f"{B} {T} {S} {H} {K} {D}", partial(arguments, **shape), ("out", "lse"), (), big)


#: More queries and more keys than a block has threads, in tiles that are not full; few of all; one element.
CASES = [case(1, 135, 150, 2, 1, 3, big=True), case(2, 5, 7, 4, 2, 3), case(1, 1, 1, 1, 1, 1)]

#: Constants of the module for its mutants: few threads go through several tiles where each access is watched.
SMALL = {"THREADS": 4, "QUERIES": 4, "KEYS": 2}

MUTANTS = [
    ("if s <= t + S - T else MINUS_INFINITY", "if s < t + S - T else MINUS_INFINITY"),
    ("launch(write_scores, (-(-S // THREADS), ", "launch(write_scores, (max(1, S // THREADS), "),
    ("(-(-T * D // THREADS), H, B), THREADS", "(max(1, T * D // THREADS), H, B), THREADS"),
    ("largest + math.log(total)", "math.log(total)"),
    ("for key in range(t + S - T + 1):", "for key in range(t + 1):"),
    ("total[d] = total[d] * shrink + p * v[b, s, kv, d]", "total[d] = total[d] + p * v[b, s, kv, d]"),
    ("        cuda.syncthreads()  # the last tile is no longer needed\n", ""),
    ("        cuda.syncthreads()\n        for row", "        for row"),
    ("range(min(KEYS, t + S - T + 1 - start))", "range(min(KEYS, S - start))"),
    ("if start + row < end:", "if start + row < end - 1:"),
]


def table(version: Version) -> SimpleNamespace:
    """Return an op table with this version in the op's place."""
    return SimpleNamespace(attention_forward=version.run)


@every_version
@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any, version: Version) -> None:
    check(case, table(version), executor, order)


@every_version
def test_bits_do_not_depend_on_the_order_of_the_threads(version: Version) -> None:
    results = []
    for order in ("forward", "reverse", "random"):
        given = arguments_of(CASES[0])
        with executing("compiled", order, seed=3):
            version.run(**given)
        results.append(given)
    for other in results[1:]:
        assert (other["out"] == results[0]["out"]).all()
        assert (other["lse"] == results[0]["lse"]).all()


@every_version
def test_huge_scores(version: Version) -> None:
    given = arguments_of(CASES[0])
    given["q"] *= 100
    given["k"] *= 100
    version.run(**given)
    assert np.isfinite(given["out"]).all()
    assert np.isfinite(given["lse"]).all()
    assert np.abs(given["out"]).max() <= np.abs(given["v"]).max() * 1.001


def test_only_the_first_keeps_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []

    def scratch(name: str, shape: tuple[int, ...], dtype: Any, like: Any) -> np.ndarray:
        shapes.append(shape)
        return np.full(shape, np.nan, dtype)

    monkeypatch.setattr(attention, "scratch", scratch)
    for version in attention.VERSIONS:
        version.run(**arguments_of(CASES[1]))
    assert shapes == [(2, 4, 5, 7)]


@pytest.mark.parametrize("kernel", ["write_scores", "softmax_rows", "average_values", "online_softmax", "shared_tiles"])
def test_machine_code_is_clean(kernel: str) -> None:
    """With the largest heads: a query's output is in registers."""
    need_toolkit()
    given = arguments_of(case(1, 2, 3, 2, 1, 128))
    out, lse, q, k, v = (given[name] for name in ("out", "lse", "q", "k", "v"))
    scale = np.float32(1)
    signatures = {
        "write_scores": (out, q, k, scale), "softmax_rows": (out, lse), "average_values": (out, out, v),
        "online_softmax": (out, lse, q, k, v, scale), "shared_tiles": (out, lse, q, k, v, scale),
    }  # fmt: skip
    block = attention.QUERIES if kernel == "shared_tiles" else attention.THREADS
    simt.gate(variant(getattr(attention, kernel), HEAD=128), signatures[kernel], ["sm_75", "sm_90"], block=block)
