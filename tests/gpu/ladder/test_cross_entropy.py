"""Every version of the ladder of cross-entropy against the CPU op."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.parity import Case, arguments_of, check, check_module, in_every_run, normal, table_of, unwritten
from simt.kernels.toolkit import need_toolkit

from nanoeuler import simt
from nanoeuler.gpu.ladder import cross_entropy
from nanoeuler.gpu.ladder.version import Version
from nanoeuler.gpu.launch import executing

every_version = pytest.mark.parametrize("version", cross_entropy.VERSIONS, ids=lambda version: version.name)


def arguments(random: np.random.Generator, N: int, V: int) -> dict[str, Any]:
    """Return large logits; the first row's target is its last logit, every third row's is ignored."""
    targets = ((7 * np.arange(N) + 1) * (V - 1) % V).astype(np.int32)
    targets[1::3] = -1
    return {
        "losses": unwritten(N), "dlogits": unwritten(N, V), "logits": 100 + 3 * normal(random, N, V),
        "targets": targets, "dloss": np.full(1, 0.3, np.float32),
    }  # fmt: skip


def case(N: int, V: int, aliases: tuple = (), big: bool = False) -> Case:
    name = f"{N} x {V}" + (", in place" if aliases else "")
    return Case("cross_entropy_backward", name, partial(arguments, N=N, V=V), ("losses", "dlogits"), aliases, big)


#: One element, part of a warp, a second turn of the block; more rows than a block has threads.
CASES = [case(1, 1), case(5, 37, (("dlogits", "logits"),)), case(2, 300), case(259, 5, big=True)]

SMALL = {"THREADS": 32}
ATTEMPTS = [partial(check_module, case(37, 2))]  # more rows than threads

MUTANTS = [
    ("blocks = -(-logits.shape[0] // THREADS)", "blocks = max(1, logits.shape[0] // THREADS)"),
    ("if row >= logits.shape[0]:", "if row > logits.shape[0]:"),
    ("    dlogits[row, target] -= dloss[0]", "    dlogits[row, 0] -= dloss[0]"),
    ("tree[thread] += tree[thread + half]\n        cuda.syncthreads()", "tree[thread] += tree[thread + half]"),
    ("    largest = tree[0]\n    cuda.syncthreads()", "    largest = tree[0]"),
    ("if thread < half:\n            tree[thread] += ", "if thread <= half:\n            tree[thread] += "),
    ("if target < 0 and thread == 0:", "if thread == 0:"),
    ("gradient if target >= 0 else float32(0)", "gradient"),
    ("if v == target:", "if thread == target:"),
    ("maximum = block_max(maximum, shared)", "maximum = block_max(float32(0), shared)"),
    ("total * math.exp(maximum - top) + math.exp(x - top)", "total + math.exp(x - top)"),
    ("block_sum(total * math.exp(maximum - top), shared)", "block_sum(total, shared)"),
]


@every_version
@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any, version: Version) -> None:
    check(case, table_of(version, case.op), executor, order)


@every_version
@pytest.mark.parametrize("values", [[np.nan], [np.inf], [-np.inf] * 3, [1e4, -1e4], [-np.inf] * 300])
def test_values_at_the_edge_of_float32(values: list[float], version: Version) -> None:
    def make(random: np.random.Generator) -> dict[str, Any]:
        given = arguments(random, 5, 300)
        given["logits"][2:4, : len(values)] = values
        given["logits"][1] = np.nan  # its target is ignored
        return given

    with np.errstate(all="ignore"):
        check(
            Case("cross_entropy_backward", "edge", make, ("losses", "dlogits")),
            table_of(version, "cross_entropy_backward"),
        )


@every_version
def test_bits_do_not_depend_on_the_order_of_the_threads(version: Version) -> None:
    results = []
    for order in ("forward", "reverse", "random"):
        given = arguments_of(case(2, 300))
        with executing("compiled", order, seed=3):
            version.run(**given)
        results.append(given)
    for other in results[1:]:
        assert (other["losses"] == results[0]["losses"]).all()
        assert (other["dlogits"] == results[0]["dlogits"]).all()


@pytest.mark.parametrize("kernel", ["thread_per_row", "trees", "shuffles", "online"])
def test_machine_code_is_clean(kernel: str) -> None:
    need_toolkit()
    row, rows = np.zeros(2, np.float32), np.zeros((2, 3), np.float32)
    signature = (row, rows, rows, np.zeros(2, np.int32), row)
    simt.gate(getattr(cross_entropy, kernel), signature, ["sm_75", "sm_90"], block=cross_entropy.THREADS)


def test_there_are_at_least_three_before_the_one_in_use() -> None:
    assert len(cross_entropy.VERSIONS) >= 4
    assert len({version.name for version in cross_entropy.VERSIONS}) == len(cross_entropy.VERSIONS)
    assert cross_entropy.VERSIONS[-1].run is cross_entropy.cross_entropy.cross_entropy_backward
