"""The binding of cuBLAS: every argument of a call, as a cuBLAS that is NumPy sees it; what is said if there is none."""

import ctypes
import itertools
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu.fake_cublas import FakeCublas, forget, with_interface

from nanoeuler.errors import UserError
from nanoeuler.gpu import cublas
from nanoeuler.gpu.bfloat16 import from_bfloat16, to_bfloat16

SHAPES = [(1, 1, 1), (5, 3, 7), (2, 9, 1), (1, 4, 6), (3, 1, 4)]  # M, N, K
TRANSPOSES = list(itertools.product([False, True], repeat=2))
#: Of the operands and of the result.
DTYPES = [(np.float32, np.float32), (np.uint16, np.uint16), (np.uint16, np.float32)]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeCublas:
    return FakeCublas.install(monkeypatch)


def gemm(*arguments: Any, stream: Any = 0, **options: Any) -> None:
    """Do a product once: :func:`nanoeuler.gpu.cublas.bind`, and a call of what it returns."""
    cublas.bind(*arguments, **options)(stream)


def made(shape: tuple[int, ...], dtype: Any, seed: int, apart: int = 0) -> Any:
    """Return an array of random numbers; ``apart`` elements lie between its rows."""
    values = np.random.default_rng(seed).standard_normal((shape[0], shape[1] + apart)).astype(np.float32)
    return with_interface(to_bfloat16(values) if dtype == np.uint16 else values)[:, apart:]


def exact(x: np.ndarray) -> np.ndarray:
    return (from_bfloat16(np.asarray(x)) if x.dtype == np.uint16 else np.asarray(x)).astype(np.float64)


def assert_product(out: Any, expected: np.ndarray) -> None:
    tolerance = 2**-8 if out.dtype == np.uint16 else 1e-6
    np.testing.assert_allclose(exact(out), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
@pytest.mark.parametrize(("M", "N", "K"), SHAPES)
@pytest.mark.parametrize("beta", [0.0, 1.0, 0.25])
@pytest.mark.parametrize("apart", [0, 3])
def test_products(
    M: int, N: int, K: int, transpose_a: bool, transpose_b: bool, beta: float, dtypes: tuple, apart: int,
    library: FakeCublas,
) -> None:  # fmt: skip
    a = made((K, M) if transpose_a else (M, K), dtypes[0], 1, apart)
    b = made((N, K) if transpose_b else (K, N), dtypes[0], 2, apart)
    out = made((M, N), dtypes[1], 3, apart)
    product = (exact(a).T if transpose_a else exact(a)) @ (exact(b).T if transpose_b else exact(b))
    expected = product + beta * exact(out)
    if beta == 0:
        out[...] = to_bfloat16(np.full(1, np.nan)) if dtypes[1] == np.uint16 else np.nan  # must not be read
    whole = out if out.base is None or not apart else out.base
    between = np.array(whole[:, :apart])
    gemm(out, a, b, transpose_a, transpose_b, beta)
    assert_product(out, expected)
    assert np.array_equal(whole[:, :apart], between) or not apart


def test_a_bound_product_is_done_each_time_it_is_called(library: FakeCublas) -> None:
    a, b, out = made((2, 3), np.float32, 1), made((3, 4), np.float32, 2), with_interface(np.zeros((2, 4), np.float32))
    product = cublas.bind(out, a, b, beta=1.0)
    assert library.products == 0
    product(0)
    product(0)
    assert_product(out, 2 * exact(a) @ exact(b))


def test_arrays_live_as_long_as_what_is_bound(library: FakeCublas) -> None:
    out = with_interface(np.zeros((2, 2), np.float32))
    one = np.eye(2, dtype=np.float32)
    product = cublas.bind(out, with_interface(one.copy()), with_interface(one.copy()))
    garbage = [np.full((2, 2), np.nan, np.float32) for _ in range(50)]  # would take the memory of what was freed
    product(0)
    assert out.tolist() == one.tolist()
    assert garbage


@pytest.mark.parametrize(("dtype", "tf32", "compute"), [
    (np.float32, False, 68), (np.float32, True, 77), (np.uint16, False, 68), (np.uint16, True, 68),
])  # fmt: skip
def test_arithmetic(dtype: Any, tf32: bool, compute: int, library: FakeCublas) -> None:
    gemm(*(made((2, 2), dtype, i) for i in range(3)), tf32=tf32)
    assert library.computes == [compute]
    assert library.math_mode == 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION


def test_stream_and_workspace_are_set_once_for_many_products(library: FakeCublas) -> None:
    arrays = [made((2, 2), np.float32, i) for i in range(3)]
    workspace = with_interface(np.empty(64, np.float32))
    pointer = workspace.ctypes.data
    stream = SimpleNamespace(__cuda_stream__=lambda: (0, 0x7ABC_DEF0_1230))
    gemm(*arrays, workspace=workspace)
    gemm(*arrays, workspace=workspace)
    assert library.calls.count("cublasSetStream_v2") == 1
    assert (library.stream, library.workspace) == (0, (pointer, 256))
    gemm(*arrays, stream=stream, workspace=workspace)
    assert (library.stream, library.workspace) == (0x7ABC_DEF0_1230, (pointer, 256))
    gemm(*arrays, stream=7)
    assert (library.stream, library.workspace) == (7, None)
    assert library.calls.count("cublasCreate_v2") == 1


@pytest.mark.parametrize("function", [
    "cublasCreate_v2", "cublasSetMathMode", "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasGemmEx",
])  # fmt: skip
def test_a_failure_is_told_by_its_name(function: str, library: FakeCublas) -> None:
    arrays = [made((2, 2), np.float32, i) for i in range(3)]
    workspace = with_interface(np.empty(64, np.float32))
    library.failures[function] = 13
    with pytest.raises(UserError, match=f"{function} failed with CUBLAS_STATUS_EXECUTION_FAILED"):
        gemm(*arrays, workspace=workspace)
    library.failures.clear()
    gemm(*arrays, workspace=workspace)
    assert library.workspace is not None


@pytest.mark.parametrize(("status", "advice"), [(1, "driver"), (3, "smaller batch")])
def test_what_can_be_mended_is_told(status: int, advice: str, library: FakeCublas) -> None:
    library.failures["cublasCreate_v2"] = status
    with pytest.raises(UserError, match=advice):
        gemm(*(made((2, 2), np.float32, i) for i in range(3)))


@pytest.mark.parametrize(("out", "a", "b"), [
    ((2, 3), (2, 4), (3, 4)), ((2, 3), (4, 2), (4, 3)), ((3, 2), (2, 4), (4, 3)), ((2, 3), (2, 4), (5, 3)),
])  # fmt: skip
def test_shapes_that_do_not_fit_are_refused(out: tuple, a: tuple, b: tuple, library: FakeCublas) -> None:
    with pytest.raises(ValueError, match="do not give"):
        gemm(made(out, np.float32, 1), made(a, np.float32, 2), made(b, np.float32, 3))
    assert not library.products


@pytest.mark.parametrize("dtypes", [
    (np.uint16, np.float32, np.float32), (np.float32, np.uint16, np.float32), (np.float32, np.float32, np.uint16),
    (np.float64, np.float64, np.float64),
])  # fmt: skip
def test_types_that_do_not_fit_are_refused(dtypes: tuple, library: FakeCublas) -> None:
    with pytest.raises(ValueError, match="cuBLAS"):
        gemm(*(with_interface(np.zeros((2, 2), dtype)) for dtype in dtypes))
    assert not library.products


@pytest.mark.parametrize("view", [lambda x: x.T, lambda x: x[:, ::2], lambda x: x[::-1]])
def test_layouts_that_are_not_row_major_are_refused(view: Any, library: FakeCublas) -> None:
    x = view(made((4, 6), np.float32, 1))
    b = made((x.shape[1], 2), np.float32, 2)
    with pytest.raises(ValueError, match="row-major"):
        gemm(made((x.shape[0], 2), np.float32, 3), x, b)
    assert not library.products


def test_available(library: FakeCublas) -> None:
    assert cublas.available()
    assert cublas.why_not() == ""
    assert not library.calls


def assert_not_available(*words: str) -> None:
    assert not cublas.available()
    reason = cublas.why_not()
    for word in words:
        assert word in reason
    with pytest.raises(UserError) as caught:
        gemm(*(made((2, 2), np.float32, i) for i in range(3)))
    assert str(caught.value) == reason


def test_without_the_library(library: FakeCublas, monkeypatch: pytest.MonkeyPatch) -> None:
    find = sys.modules["cuda.pathfinder"]

    def missing(name: str) -> None:
        raise find.DynamicLibNotFoundError("not found\nin many places")

    monkeypatch.setattr(find, "load_nvidia_dynamic_lib", missing)
    assert_not_available("not installed", "[gpu,cublas]")


def test_without_the_finder_of_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)  # an ImportError, as on macOS
    assert_not_available("cuda-pathfinder")


def test_a_broken_library(library: FakeCublas, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str) -> None:
        raise OSError(f"{path}: file too short")

    monkeypatch.setattr(ctypes, "CDLL", broken)
    assert_not_available("libcublas.so: file too short", "[gpu,cublas]")


def test_a_library_that_lacks_a_function(library: FakeCublas) -> None:
    del library.cublasSetWorkspace_v2
    assert_not_available("cublasSetWorkspace_v2")


def test_where_kernels_run_on_the_cpu(library: FakeCublas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas, "cuda", SimpleNamespace(__name__="nanoeuler.simt.cuda"))
    assert_not_available("nanoeuler.simt")


def test_the_real_library_can_be_spoken_to() -> None:
    """Where it is installed but no GPU is, its own refusal comes back by name."""
    if not cublas.available():
        pytest.skip(cublas.why_not())  # a wheel of half a gigabyte: all else here speaks to a stand-in
    reason = ""
    try:
        cublas._handle()
    except UserError as error:
        reason = str(error)
    assert reason == "" or "CUBLAS_STATUS_NOT_INITIALIZED" in reason
