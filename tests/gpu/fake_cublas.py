"""A cuBLAS that is NumPy: it is given raw pointers through the same C signatures, and says when an argument is wrong.

Its functions are C functions, declared here from ``cublas_api.h`` on their own, so that a pointer passed as an int, or
arguments in the wrong order, are seen. As cuBLAS does it takes column-major matrices.
"""

import ctypes
import functools
import sys
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_void_p
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nanoeuler.gpu import cublas
from nanoeuler.gpu.bfloat16 import from_bfloat16, to_bfloat16

NAMES = {1: b"CUBLAS_STATUS_NOT_INITIALIZED", 3: b"CUBLAS_STATUS_ALLOC_FAILED", 7: b"CUBLAS_STATUS_INVALID_VALUE",
         13: b"CUBLAS_STATUS_EXECUTION_FAILED"}  # fmt: skip
INVALID_VALUE = 7
HANDLE = 0x7FFF_1234_5678  # does not fit an int
TYPES = {0: np.float32, 14: np.uint16}

#: Result and parameters.
SIGNATURES: dict[str, tuple] = {
    "cublasCreate_v2": (c_int, POINTER(c_void_p)),
    "cublasSetStream_v2": (c_int, c_void_p, c_void_p),
    "cublasSetWorkspace_v2": (c_int, c_void_p, c_void_p, c_size_t),
    "cublasSetMathMode": (c_int, c_void_p, c_int),
    "cublasGetStatusName": (c_char_p, c_int),
    "cublasGemmEx": (
        *(c_int, c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p, c_void_p, c_int, c_int),
        *(c_void_p, c_int, c_int, c_void_p, c_void_p, c_int, c_int, c_int, c_int),
    ),
}


class WithInterface(np.ndarray):
    """A host array that looks like a GPU's to who asks for its pointer."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.__array_interface__, "version": 3}


def with_interface(x: Any) -> Any:
    """Return a view of an array with ``__cuda_array_interface__``; anything else as it is."""
    return x.view(WithInterface) if isinstance(x, np.ndarray) else x


class FakeCublas:
    """The library: an attribute for each function."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.computes: list[int] = []
        self.stream: int | None = None
        self.workspace: tuple[int, int] | None = None
        self.failures: dict[str, int] = {}  # what a function is to return instead of 0
        for name, (result, *parameters) in SIGNATURES.items():
            setattr(self, name, ctypes.CFUNCTYPE(result, *parameters)(self._counted(name)))

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch) -> "FakeCublas":
        """Return one that :mod:`nanoeuler.gpu.cublas` finds and loads in this test."""
        fake = cls()
        find = SimpleNamespace(
            load_nvidia_dynamic_lib=lambda name: SimpleNamespace(abs_path=f"lib{name}.so"),
            DynamicLibNotFoundError=type("DynamicLibNotFoundError", (RuntimeError,), {}),
        )
        monkeypatch.setitem(sys.modules, "cuda.pathfinder", find)
        load = ctypes.CDLL
        monkeypatch.setattr(
            ctypes, "CDLL", lambda path, *a, **k: fake if path == "libcublas.so" else load(path, *a, **k)
        )
        forget(monkeypatch)
        return fake

    @property
    def products(self) -> int:
        """How many products were asked for."""
        return self.calls.count("cublasGemmEx")

    def _counted(self, name: str) -> Callable[..., Any]:
        function = getattr(self, "_" + name)

        def call(*arguments: Any) -> Any:
            if name == "cublasGetStatusName":
                return function(*arguments)
            self.calls.append(name)
            if name in self.failures:
                return self.failures[name]
            if name != "cublasCreate_v2" and arguments[0] != HANDLE:
                return INVALID_VALUE
            try:
                return function(*arguments)
            except Exception as error:  # ctypes would only print it
                print(f"{name}: {error!r}")
                return INVALID_VALUE

        return call

    def _cublasGetStatusName(self, status: int) -> int:  # noqa: N802
        return ctypes.cast(c_char_p(NAMES[status]), c_void_p).value or 0

    def _cublasCreate_v2(self, handle: Any) -> int:  # noqa: N802
        handle[0] = HANDLE
        return 0

    def _cublasSetStream_v2(self, handle: int, stream: int | None) -> int:  # noqa: N802
        self.stream, self.workspace = stream or 0, None  # the documentation: the workspace is reset
        return 0

    def _cublasSetWorkspace_v2(self, handle: int, memory: int, size: int) -> int:  # noqa: N802
        self.workspace = memory, size
        return 0

    def _cublasSetMathMode(self, handle: int, mode: int) -> int:  # noqa: N802
        self.math_mode = mode
        return 0

    def _cublasGemmEx(  # noqa: N802
        self, handle: int, operation_a: int, operation_b: int, m: int, n: int, k: int, alpha: int,
        a: int, a_type: int, lda: int, b: int, b_type: int, ldb: int, beta: int,
        c: int, c_type: int, ldc: int, compute: int, algorithm: int,
    ) -> int:  # fmt: skip
        assert algorithm == -1
        assert a_type == b_type
        assert compute == 68 or (compute == 77 and a_type == 0), "arithmetic that these types do not have"
        self.computes.append(compute)
        scale_a, scale_c = (ctypes.cast(p, POINTER(ctypes.c_float))[0] for p in (alpha, beta))
        left = column_major(a, a_type, lda, *((k, m) if operation_a else (m, k)))
        right = column_major(b, b_type, ldb, *((n, k) if operation_b else (k, n)))
        result = column_major(c, c_type, ldc, m, n)
        left, right = (floats(x) for x in (left, right))
        value = scale_a * ((left.T if operation_a else left) @ (right.T if operation_b else right))
        if scale_c:
            value += scale_c * floats(result)
        result[...] = to_bfloat16(value) if c_type == 14 else value
        return 0


def column_major(pointer: int, kind: int, leading: int, rows: int, columns: int) -> np.ndarray:
    """Return the matrix at an address."""
    assert leading >= max(1, rows), f"leading dimension {leading} of {rows} rows"
    dtype = np.dtype(TYPES[kind])
    size = (leading * (columns - 1) + rows) * dtype.itemsize
    memory = np.frombuffer((ctypes.c_char * size).from_address(pointer), dtype)
    return np.lib.stride_tricks.as_strided(memory, (rows, columns), (dtype.itemsize, leading * dtype.itemsize))


def floats(x: np.ndarray) -> np.ndarray:
    """Return a matrix of float32 or bfloat16 in float64."""
    return (from_bfloat16(x) if x.dtype == np.uint16 else x).astype(np.float64)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the library be looked for anew in this test, and again after it."""
    monkeypatch.setattr(cublas, "cuda", SimpleNamespace(__name__="numba.cuda"))
    for name in ("_loaded", "_handle"):
        monkeypatch.setattr(cublas, name, functools.cache(getattr(cublas, name).__wrapped__))
