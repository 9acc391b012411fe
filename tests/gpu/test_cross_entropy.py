"""Cross-entropy's kernels against the CPU op, and at the edges: ignored rows, infinities, NaN."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, arguments_of, check, check_bfloat16, in_every_run, normal, unwritten

from nanoeuler.gpu import cross_entropy
from nanoeuler.gpu.launch import executing

#: N, V: one element, part of a warp, several turns of a warp, the longest row of a warp, a block's first turn.
SHAPES = [(1, 1), (10, 37), (5, 65), (1, 300), (2, 1024), (2, 1025)]
BIG = [(3, 8191), (2, 50257)]  # the last turn is part of one, GPT-2's vocabulary


def targets_of(N: int, V: int) -> np.ndarray:
    """Return targets all over the row, of which some are ignored: never the first, which is the last of the row."""
    targets = ((7 * np.arange(N) + 1) * (V - 1) % V).astype(np.int32)
    targets[1::3] = -1
    targets[2::6] = -100
    return targets


def forward(random: np.random.Generator, N: int, V: int) -> dict[str, Any]:
    return {"losses": unwritten(N), "logits": 3 * normal(random, N, V), "targets": targets_of(N, V)}


def backward(random: np.random.Generator, N: int, V: int) -> dict[str, Any]:
    return {
        "losses": unwritten(N), "dlogits": unwritten(N, V), "logits": 3 * normal(random, N, V),
        "targets": targets_of(N, V), "dloss": np.full(1, 0.3, np.float32),
    }  # fmt: skip


def cases(shape: tuple[int, int], big: bool = False) -> list[Case]:
    N, V = shape
    return [
        Case("cross_entropy_forward", f"{N} x {V}", partial(forward, N=N, V=V), ("losses",), big=big),
        Case("cross_entropy_backward", f"{N} x {V}", partial(backward, N=N, V=V), ("losses", "dlogits"), big=big),
    ]


IN_PLACE = (("dlogits", "logits"),)
CASES = [
    *(case for shape in SHAPES for case in cases(shape)),
    *cases((0, 3)),
    *(case for shape in BIG for case in cases(shape, big=True)),
    Case("cross_entropy_backward", "in place", partial(backward, N=5, V=300), ("losses", "dlogits"), IN_PLACE),
    Case("cross_entropy_backward", "in place, long", partial(backward, N=1, V=1030), ("losses", "dlogits"), IN_PLACE),
]

MUTANTS = [
    ("total *= math.exp(maximum - top)\n", "\n"),  # the sum is not rescaled
    ("if cuda.blockDim.x == WARP:", "if True:"),  # a long row is merged within each warp only
    ("top = block_max(maximum, shared)", "top = warp_max(maximum)"),
    ("last = (V - 1) // (ITEMS * THREADS) * (ITEMS * THREADS)", "last = V // (ITEMS * THREADS) * (ITEMS * THREADS)\n"
     "    last -= ITEMS * THREADS"),  # a dropped tail
    ("range(last + thread, -1, -ITEMS * THREADS)", "range(last + thread, -1, -THREADS)"),
    ("if v < V:\n", "if v <= V:\n"),
    ("if v == target:\n", "if start == target:\n"),
    ("dlogits[row, uint32(v)] = narrow(float32(0))", "pass"),
    ("-(-N // ROWS), (WARP, ROWS)", "N // ROWS, (WARP, ROWS)"),
    ("for v in range(thread, V, THREADS):", "for v in range(thread, V - 1, THREADS):"),
]  # fmt: skip


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, cross_entropy, executor, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bfloat16(case: Case) -> None:
    check_bfloat16(case, cross_entropy)


@pytest.mark.parametrize("V", [70, 1030])
def test_bits_do_not_depend_on_the_order_of_the_threads(V: int) -> None:
    results = []
    for order in ("forward", "reverse", "random"):
        arguments = arguments_of(Case("cross_entropy_backward", "", partial(backward, N=5, V=V), (), IN_PLACE))
        with executing("compiled", order, seed=3):
            cross_entropy.cross_entropy_backward(**arguments)
        results.append((arguments["losses"], arguments["dlogits"]))
    for losses, dlogits in results[1:]:
        assert (losses == results[0][0]).all()
        assert (dlogits == results[0][1]).all()


@pytest.mark.parametrize("V", [1, 70, 1030])
def test_forward_and_backward_give_the_same_losses(V: int) -> None:
    arguments = backward(np.random.default_rng(0), 5, V)
    cross_entropy.cross_entropy_backward(**arguments)
    alone = unwritten(5)
    cross_entropy.cross_entropy_forward(alone, arguments["logits"], arguments["targets"])
    assert (alone == arguments["losses"]).all()


def edges(random: np.random.Generator, V: int, values: list[float], first: int) -> dict[str, Any]:
    """Return rows whose elements from ``first`` on are special values; the targets are both special and others."""
    given = backward(random, 3, V)
    given["logits"][1:, first : first + len(values)] = values
    given["targets"][:] = [0, first, (first + V // 2) % V]
    return given


@pytest.mark.parametrize("V", [70, 1030])
@pytest.mark.parametrize(
    "values",
    [
        [np.nan],
        [np.inf],
        [np.inf, np.inf],
        [-np.inf] * 3,
        [1e4, -1e4],
        [1e30, 1e30],
        [-3.4e38, 3.4e38],
        [np.nan, np.inf],
    ],
    ids=str,
)
def test_values_at_the_edge_of_float32(values: list[float], V: int) -> None:
    for first in (0, 33, V - len(values)):
        make = partial(edges, V=V, values=values, first=first)
        with np.errstate(all="ignore"):
            check(Case("cross_entropy_backward", "edge", make, ("losses", "dlogits"), IN_PLACE), cross_entropy)


@pytest.mark.parametrize("V", [1, 70, 1030])
@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
def test_a_row_of_nothing_else(value: float, V: int) -> None:
    make = partial(edges, V=V, values=[value] * V, first=0)
    with np.errstate(all="ignore"):
        check(Case("cross_entropy_backward", "", make, ("losses", "dlogits")), cross_entropy)


@pytest.mark.parametrize("V", [70, 1030])
@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf])
def test_an_ignored_row_has_no_gradient_whatever_its_logits(value: float, V: int) -> None:
    arguments = {**backward(np.random.default_rng(0), 2, V), "targets": np.array([-1, 2], np.int32)}
    arguments["logits"][0] = value
    cross_entropy.cross_entropy_backward(**arguments)
    assert arguments["losses"][0] == 0
    assert not arguments["dlogits"][0].any()
    assert np.isfinite(arguments["dlogits"][1]).all()
    forward_losses = unwritten(2)
    cross_entropy.cross_entropy_forward(forward_losses, arguments["logits"], arguments["targets"])
    assert forward_losses[0] == 0


@pytest.mark.parametrize("executor", ["compiled", "checked"])
@pytest.mark.parametrize("V", [5, 1030])
def test_a_target_outside_the_vocabulary_makes_its_row_nan(V: int, executor: Any) -> None:
    """NumPy raises an IndexError; here nothing outside the row may be read, and training stops at a loss of NaN."""
    given = {**backward(np.random.default_rng(0), 3, V), "targets": np.array([V - 1, V, 2**31 - 1], np.int32)}
    with executing(executor):
        cross_entropy.cross_entropy_backward(**given)
        alone = unwritten(3)
        alone[:] = 0
        cross_entropy.cross_entropy_forward(alone, given["logits"], given["targets"])
    for losses in (given["losses"], alone):
        assert np.isnan(losses).tolist() == [False, True, True]
    assert np.isfinite(given["dlogits"][0]).all()
    assert np.isnan(given["dlogits"][1:]).all()


def test_logits_that_rise_rescale_the_sum_at_every_turn() -> None:
    """The largest logit comes last, and without rescaling the sum would overflow or vanish."""

    def make(random: np.random.Generator) -> dict[str, Any]:
        rise = np.linspace(-60, 60, 700, dtype=np.float32)
        return {**backward(random, 2, 700), "logits": np.stack([rise, rise[::-1]]), "targets": np.int32([650, 49])}

    check(Case("cross_entropy_backward", "rising", make, ("losses", "dlogits")), cross_entropy)
