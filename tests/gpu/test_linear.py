"""The products' kernels against the CPU op, and by their properties; and the calls of cuBLAS that stand in for them."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from gpu.fake_cublas import FakeCublas, with_interface
from gpu.parity import (
    Case,
    arguments_of,
    assert_close,
    check,
    check_bfloat16,
    in_every_run,
    normal,
    unwritten,
)
from simt.kernels.toolkit import need_toolkit

import nanoeuler.cpu
from nanoeuler import simt
from nanoeuler.gpu import cublas, linear
from nanoeuler.gpu.bfloat16 import from_bfloat16, in_bfloat16, to_bfloat16
from nanoeuler.gpu.launch import executing, launch, recording
from nanoeuler.gpu.variant import variant

Arguments = dict[str, Any]


def forward(random: np.random.Generator, N: int, I: int, O: int, bias: bool = True) -> Arguments:
    return {
        "out": unwritten(N, O), "x": normal(random, N, I), "weight": normal(random, O, I),
        "bias": normal(random, O) if bias else None,
    }  # fmt: skip


def backward(random: np.random.Generator, N: int, I: int, O: int, bias: bool = True, dx: bool = True) -> Arguments:
    return {
        "dx": unwritten(N, I) if dx else None, "dweight": normal(random, O, I),
        "dbias": normal(random, O) if bias else None, "dout": normal(random, N, O), "x": normal(random, N, I),
        "weight": normal(random, O, I),
    }  # fmt: skip


def rows_apart(random: np.random.Generator, N: int, I: int, O: int) -> Arguments:
    """Return a forward's arguments with arrays that are columns of wider ones."""
    given = forward(random, N, I, O)
    return {**given, "out": unwritten(N, O + 3)[:, 1:-2], "x": normal(random, N, I + 2)[:, 2:]}


def forward_case(N: int, I: int, O: int, bias: bool = True, big: bool = False) -> Case:
    name = f"{N} x {I} to {O}" + ("" if bias else ", no bias")
    return Case("linear_forward", name, partial(forward, N=N, I=I, O=O, bias=bias), ("out",), big=big)


def backward_case(N: int, I: int, O: int, bias: bool = True, aliases: tuple = (), big: bool = False) -> Case:
    outputs = ("dx", "dweight", "dbias") if bias else ("dx", "dweight")
    name = f"{N} x {I} to {O}" + ("" if bias else ", no bias") + (", in place" if aliases else "")
    return Case("linear_backward", name, partial(backward, N=N, I=I, O=O, bias=bias), outputs, aliases, big)


CASES = [
    # A warp for each element: one element, more columns than a block has warps, more terms than a warp has lanes.
    forward_case(1, 1, 1),
    forward_case(2, 33, 9),
    forward_case(1, 1025, 3, bias=False),
    # Tiles of 32: part of one, one row and one column more than one, steps that end with a part.
    forward_case(9, 5, 7),
    forward_case(9, 10, 33, bias=False),
    forward_case(33, 7, 2),
    backward_case(1, 1, 1),
    backward_case(5, 33, 3),
    backward_case(10, 3, 5, bias=False, aliases=(("dx", "x"),)),
    Case("linear_backward", "no dx", partial(backward, N=3, I=2, O=1, dx=False), ("dweight", "dbias")),
    forward_case(0, 3, 2),
    backward_case(0, 3, 2),
    Case("linear_forward", "rows apart", partial(rows_apart, N=11, I=3, O=5), ("out",), big=True),
    forward_case(67, 70, 65, big=True),
    backward_case(67, 70, 65, big=True),
    # Enough rows for slices, their number no multiple of anything.
    backward_case(1100, 5, 3, big=True),
    # Enough elements for tiles of 64, and of 128.
    forward_case(2049, 9, 200, big=True),
    forward_case(8129, 11, 130, big=True),
]

MUTANTS = [
    ("b_next[load]\n        cuda.syncthreads()", "b_next[load]"),
    ("(end - start + uint32(DEPTH - 1)) // uint32(DEPTH)", "(end - start) // uint32(DEPTH)"),
    ("if row < M and k < end:", "if k < end:"),
    ("uint32(side * side // tile)", "uint32(side * side // tile + 1)"),
    ("+ uint32(4) * t", "+ uint32(3) * t"),
    ("a_own[i] * b_own[j]", "a_own[j] * b_own[i]"),
    ("if row < M and column < N:", "if row < M and column <= N:"),
    ("value += widen(bias[column])", "value += widen(bias[row])"),
    ("    total = warp_sum(total)\n", ""),
    ("if column >= weight.shape[0]:\n        return", "if column > weight.shape[0]:\n        return"),
    ("out[part * M + row, column] = value", "out[part + row, column] = value"),
    ("out[cuda.blockIdx.x, column] = row[column]", "out[cuda.blockIdx.x, column] = row[cuda.threadIdx.x]"),
    ("    if column < out.shape[1]:\n", "    if True:\n"),
]


def attempt_slices(linear: Any, executor: Any, tile: int = 32, M: int = 5, N: int = 3) -> None:
    """Write sums in two slices, the first of 11 terms, the second of 10: a weight's gradient where there are many rows.

    Called with larger tiles where a gradient that takes them has more elements than a test can afford.
    """
    random = np.random.default_rng(0)
    shape = next(s for s in linear.SHAPES if s["TILE"] == tile)
    K, each = 21, 11
    a, b, partial = normal(random, K, M), normal(random, K, N), unwritten(2 * M, N)
    kernel = variant(linear.product, A_TRANSPOSED=True, PARTIAL=True, **shape)
    with executing(executor):
        linear._tiled(kernel, shape, partial, a, b, b[0], (M, N, each), 2)
    assert_close(partial[:M], a[:each].T @ b[:each], "first slice")
    assert_close(partial[M:], a[each:].T @ b[each:], "second slice")


def attempt_repeat_row(linear: Any, executor: Any, columns: int = 259) -> None:
    """Write a bias to every row, which cuBLAS then adds to."""
    out, row = unwritten(3, columns), normal(np.random.default_rng(0), columns)
    with executing(executor):
        launch(linear.repeat_row, (3, -(-columns // linear.FLAT)), linear.FLAT, out, row)
    assert np.array_equal(out, np.stack([row] * 3))


ATTEMPTS = [attempt_slices, attempt_repeat_row]


@in_every_run(CASES)
def test_equals_the_cpu(case: Case, executor: Any, order: Any) -> None:
    check(case, linear, executor, order)


@pytest.mark.parametrize("case", [case for case in CASES if case.arguments.func is not rows_apart], ids=str)
def test_bfloat16(case: Case) -> None:
    check_bfloat16(case, linear)


@pytest.mark.parametrize("executor", ["compiled", "ptx"])
@pytest.mark.parametrize("tile", [64, 128])
def test_large_tiles_write_slices_of_long_sums(tile: int, executor: Any) -> None:
    if executor == "ptx":
        need_toolkit()
    attempt_slices(linear, executor, tile, tile + 1, tile + 2)


@pytest.mark.parametrize("executor", ["compiled", "checked", "ptx"])
@pytest.mark.parametrize("columns", [1, 256, 259])
def test_a_row_is_repeated(columns: int, executor: Any) -> None:
    if executor == "ptx":
        need_toolkit()
    attempt_repeat_row(linear, executor, columns)


def test_bits_do_not_depend_on_the_order_of_the_threads() -> None:
    results = []
    for order in ("forward", "reverse", "random"):
        arguments = arguments_of(backward_case(1100, 5, 3))
        with executing("compiled", order, seed=3):
            linear.linear_backward(**arguments)
        results.append([arguments[name] for name in ("dx", "dweight", "dbias")])
    for result in results[1:]:
        for got, expected in zip(result, results[0], strict=True):
            assert np.array_equal(got, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("N", [3, 10])  # by warps, by tiles
def test_what_is_not_finite_stays_in_its_row(N: int, value: float) -> None:
    def arguments(random: np.random.Generator) -> Arguments:
        given = forward(random, N, 33, 5)
        given["x"][1, 7] = value
        return given

    with np.errstate(all="ignore"):
        check(Case("linear_forward", "not finite", arguments, ("out",)), linear)


def test_no_rows_launch_nothing() -> None:
    with recording() as work:
        linear.linear_forward(**forward(np.random.default_rng(0), 0, 3, 5))
        linear.linear_backward(**backward(np.random.default_rng(0), 0, 3, 5))
    assert work == []


@pytest.mark.parametrize(
    ("rows", "columns", "terms", "tile", "slices"),
    [
        (16384, 768, 768, 128, 1),  # a forward of GPT-2 small, and what becomes of it for fewer tokens
        (1024, 768, 768, 64, 1),
        (256, 768, 768, 32, 1),
        (768, 768, 16384, 128, 4),  # gradients of its weights
        (50257, 768, 16384, 128, 1),
        (192, 64, 256, 32, 1),  # and of a tiny model's
    ],
)
def test_tiles_are_as_large_as_leaves_a_gpu_busy(rows: int, columns: int, terms: int, tile: int, slices: int) -> None:
    gradient = terms > columns
    shape = linear._tile_shape(rows, columns, max(1, terms // linear.SLICE) if gradient else 1)
    assert shape["TILE"] == tile
    if gradient:
        assert linear.sliced(linear._tiles(rows, columns, tile), terms)[0] == slices


@pytest.mark.parametrize("low", [False, True], ids=["float32", "bfloat16"])
def test_the_largest_tile_stays_in_registers(low: bool) -> None:
    need_toolkit()
    shape = linear.SHAPES[0]
    kernel = variant(linear.product, B_TRANSPOSED=True, BIAS=True, **shape)
    x = np.zeros((2, 3), np.uint16 if low else np.float32)
    block = (shape["SIDE"], shape["SIDE"])
    simt.gate(in_bfloat16(kernel) if low else kernel, (x, x, x, x[0], 3), ["sm_75", "sm_90"], block=block)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeCublas:
    """Arrays are taken for a GPU's, and products are done by a cuBLAS that counts its calls."""
    fake = FakeCublas.install(monkeypatch)
    monkeypatch.setattr(linear, "on_gpu", lambda x: True)
    monkeypatch.setattr(linear, "scratch", lambda name, shape, dtype, like: with_interface(np.empty(shape, dtype)))
    monkeypatch.setattr(linear, "products", linear.Products())
    return fake


def by_cublas(case: Case, low: bool) -> tuple[Arguments, Arguments]:
    """Return the results of the CPU op and of the one here, for arguments that bfloat16 holds exactly if ``low``."""
    expected, got = arguments_of(case), arguments_of(case)
    for name, value in got.items():
        if isinstance(value, np.ndarray):
            if low and not name.startswith(("dweight", "dbias")):
                value = to_bfloat16(value)
                expected[name] = from_bfloat16(value)
            got[name] = with_interface(value)
    for written, read in case.aliases:
        expected[written], got[written] = expected[read], got[read]
    getattr(nanoeuler.cpu, case.op)(**expected)
    getattr(linear, case.op)(**got)
    return expected, got


@pytest.mark.parametrize("low", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("case", [case for case in CASES if not case.big], ids=str)
def test_cublas_is_asked_for_the_same(case: Case, low: bool, library: FakeCublas) -> None:
    expected, got = by_cublas(case, low)
    products = 1 if case.op == "linear_forward" or "no dx" in case.name else 2
    assert library.products == (products if got["x"].size else 0)
    for name in case.outputs:
        array, tolerance = got[name], 1e-4
        if array.dtype == np.uint16:
            array, tolerance = from_bfloat16(array), 2**-8
        assert_close(np.asarray(array), expected[name], f"{case}: {name}", tolerance)


def test_bias_is_rounded_with_the_product_and_not_after_it(library: FakeCublas) -> None:
    """1 and 2^-9 + 2^-9: rounded to bfloat16 one by one both halves are lost."""
    small = to_bfloat16(np.full((1, 1), 2**-8 * 1.5, np.float32))
    one = to_bfloat16(np.ones((1, 1), np.float32))
    out = with_interface(to_bfloat16(np.zeros((1, 1), np.float32)))
    linear.linear_forward(out, with_interface(small), with_interface(one), one[0])
    assert from_bfloat16(np.asarray(out))[0, 0] == 1 + 2**-7


def test_tf32_is_asked_for(library: FakeCublas) -> None:
    linear.products.tf32 = True
    by_cublas(forward_case(9, 5, 7), low=False)
    assert library.computes == [cublas.COMPUTE_32F_FAST_TF32]


def test_cublas_can_be_left_alone(library: FakeCublas) -> None:
    linear.products.use_cublas = False
    by_cublas(backward_case(5, 33, 3), low=False)
    assert library.products == 0


def test_products_are_recorded_among_the_launches(library: FakeCublas) -> None:
    arguments = {k: with_interface(v) for k, v in arguments_of(forward_case(9, 5, 7)).items()}
    with recording() as work:
        linear.linear_forward(**arguments)
    assert len(work) == 2
    first = np.array(arguments["out"])
    arguments["out"][:] = np.nan
    for each in work:
        each.bind()()
    assert np.array_equal(arguments["out"], first)
    assert library.products == 2


def test_without_a_gpu_cublas_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas, "_loaded", lambda: pytest.fail("cuBLAS was looked for"))
    check(forward_case(9, 5, 7), linear)


def test_launch_is_the_one_of_all_ops() -> None:
    assert linear.launch is launch
