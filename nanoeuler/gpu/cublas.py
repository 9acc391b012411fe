"""cuBLAS, NVIDIA's library of matrix products, through ctypes: the one product of it that is needed, and nothing more.

It comes with the CUDA toolkit, with PyTorch's wheels, or by itself (the extra ``cublas``); cuda-pathfinder, which
numba-cuda brings along, finds it. Nothing is looked for before it is asked for. Signatures and numbers are those of
``cublas_api.h`` and ``library_types.h`` (cuBLAS 12 and 13).

cuBLAS is column-major: it sees the memory of a row-major matrix as the transposed one. So that nothing is copied, the
transposed product is asked for, ``out.T = b.T @ a.T``, of which every operand is what cuBLAS sees anyway.
"""

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from nanoeuler.errors import UserError
from nanoeuler.gpu.backend import cuda
from nanoeuler.gpu.bfloat16 import BFLOAT16

Array = Any
INSTALL = "in nanoeuler's folder, python -m pip install -e '.[gpu,cublas]'"
#: Bytes of workspace that NVIDIA recommends for Hopper and newer (cuBLAS documentation, cublasSetWorkspace).
WORKSPACE_BYTES = 32 << 20

SUCCESS = 0
NOT_TRANSPOSED, TRANSPOSED = 0, 1  # CUBLAS_OP_N, CUBLAS_OP_T
FLOAT32, BFLOAT16_BITS = 0, 14  # CUDA_R_32F, CUDA_R_16BF
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77
DEFAULT_ALGORITHM = -1
#: Sums are rounded to bfloat16 once, when they are written (CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION).
SUM_IN_FLOAT32 = 16

_int, _pointer, _size = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
_operand = [_pointer, _int, _int]  # memory, type, elements from row to row
_SIGNATURES: dict[str, list[Any]] = {
    "cublasCreate_v2": [ctypes.POINTER(_pointer)],
    "cublasSetStream_v2": [_pointer, _pointer],
    "cublasSetWorkspace_v2": [_pointer, _pointer, _size],
    "cublasSetMathMode": [_pointer, _int],
    "cublasGemmEx": [
        *(_pointer, _int, _int, _int, _int, _int, _pointer),  # handle, two operations, three sizes, alpha
        *(*_operand, *_operand, _pointer, *_operand, _int, _int),  # two operands, beta, result, arithmetic, algorithm
    ],
    "cublasGetStatusName": [_int],
}
_WHAT_TO_DO = {
    1: ": is there a GPU, and is its driver as new as this cuBLAS needs?",  # CUBLAS_STATUS_NOT_INITIALIZED
    3: ": the GPU's memory is full; take a smaller batch, or end what else runs there",  # CUBLAS_STATUS_ALLOC_FAILED
    8: ": this cuBLAS knows no such GPU; install a newer one",  # CUBLAS_STATUS_ARCH_MISMATCH
}


def available() -> bool:
    """Return whether the library can be loaded."""
    return not why_not()


def why_not() -> str:
    """Return a sentence for people on why the library cannot be loaded and what to do; ``""`` if it can."""
    return _loaded()[1]


def bind(
    out: Array,
    a: Array,
    b: Array,
    transpose_a: bool = False,
    transpose_b: bool = False,
    beta: float = 0.0,
    tf32: bool = False,
    workspace: Array | None = None,
) -> "Product":
    """Return a function of a stream that writes ``op(a) @ op(b) + beta * out``, as often as it is called.

    Arrays are row-major, with ``__cuda_array_interface__``; rows may lie apart. Sums are in float32.

    Args:
        out: (M, N) float32 or as the operands, written; read only where ``beta`` is not 0.
        a: (M, K), or (K, M) with ``transpose_a``; float32, or uint16 that holds bfloat16.
        b: (K, N), or (N, K) with ``transpose_b``; as ``a``.
        transpose_a: whether ``op(a)`` is ``a.T``.
        transpose_b: whether ``op(b)`` is ``b.T``.
        beta: factor of what ``out`` holds before.
        tf32: of float32 operands, multiply the upper 19 bits only, in tensor cores.
        workspace: memory for cuBLAS to work in, best :data:`WORKSPACE_BYTES`; None lets cuBLAS allocate its own, which
            cannot be done while a graph is captured.

    Raises:
        UserError: the library cannot be loaded or started.
        ValueError: shapes, types or layouts do not fit.
    """
    (M, N), K = out.shape, a.shape[0 if transpose_a else 1]
    if a.shape != ((K, M) if transpose_a else (M, K)) or b.shape != ((N, K) if transpose_b else (K, N)):
        raise ValueError(f"shapes {a.shape} and {b.shape} do not give {out.shape}")
    if a.dtype != b.dtype or out.dtype not in (a.dtype, np.float32):
        raise ValueError(f"cuBLAS has no product of {a.dtype} and {b.dtype} into {out.dtype}")
    compute = COMPUTE_32F_FAST_TF32 if tf32 and a.dtype == np.float32 else COMPUTE_32F
    arguments = (
        *(TRANSPOSED if transpose_b else NOT_TRANSPOSED, TRANSPOSED if transpose_a else NOT_TRANSPOSED, N, M, K),
        *(ctypes.byref(ctypes.c_float(1)), *_memory(b), *_memory(a)),
        *(ctypes.byref(ctypes.c_float(beta)), *_memory(out), compute, DEFAULT_ALGORITHM),
    )
    return Product(_handle(), arguments, workspace, (out, a, b))


@dataclass(frozen=True)
class Product:
    """A product with everything that it needs; called with a stream, it is done there."""

    handle: "Handle"
    arguments: tuple  # of cublasGemmEx, without the handle
    workspace: Array | None
    arrays: tuple  # kept alive: ``arguments`` has but their addresses

    def __call__(self, stream: Any) -> None:
        """Do it."""
        self.handle.use(stream, self.workspace)
        self.handle.do("cublasGemmEx", *self.arguments)


class Handle:
    """cuBLAS' state: made once, in the context of the GPU in use, since it allocates."""

    def __init__(self, library: Any) -> None:
        self._library, self._handle = library, ctypes.c_void_p()
        self._used: tuple | None = None  # the stream, and the workspace
        self._check(library.cublasCreate_v2(ctypes.byref(self._handle)), "cublasCreate_v2")
        self.do("cublasSetMathMode", SUM_IN_FLOAT32)

    def use(self, stream: Any, workspace: Array | None) -> None:
        """Let what follows run on a stream and in this workspace."""
        pointer = _stream_pointer(stream)
        memory = (0, 0) if workspace is None else (_address(workspace), workspace.size * workspace.dtype.itemsize)
        if self._used != (pointer, memory):
            self._used = None  # should one of these fail
            self.do("cublasSetStream_v2", pointer)  # takes the workspace away too, so this goes first
            if workspace is not None:
                self.do("cublasSetWorkspace_v2", *memory)
            self._used = (pointer, memory)

    def do(self, function: str, *arguments: Any) -> None:
        """Call a function of the library that takes the handle first.

        Raises:
            UserError: it reports a failure.
        """
        self._check(getattr(self._library, function)(self._handle, *arguments), function)

    def _check(self, status: int, function: str) -> None:
        if status != SUCCESS:
            name = self._library.cublasGetStatusName(status).decode()
            raise UserError(f"cuBLAS: {function} failed with {name}{_WHAT_TO_DO.get(status, '')}")


@functools.cache
def _handle() -> Handle:
    library, reason = _loaded()
    if library is None:
        raise UserError(reason)
    return Handle(library)


@functools.cache
def _loaded() -> tuple[Any, str]:
    """Return the library and ``""``, or None and why there is none."""
    if cuda.__name__ == "nanoeuler.simt.cuda":
        return None, "cuBLAS runs on a GPU, and kernels run on the CPU here: nanoeuler.simt stands in for numba.cuda"
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError:  # macOS, for one
        return None, f"cuBLAS is looked for by cuda-pathfinder, which comes with numba-cuda; neither is here: {INSTALL}"
    try:
        library = ctypes.CDLL(str(load_nvidia_dynamic_lib("cublas").abs_path))
        for name, signature in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = signature, _int
        library.cublasGetStatusName.restype = ctypes.c_char_p
    except DynamicLibNotFoundError:
        return None, f"cuBLAS is not installed: {INSTALL}"
    except (RuntimeError, OSError, AttributeError) as error:  # what was found is broken, or too old
        return None, f"cuBLAS cannot be loaded ({error}): {INSTALL}"
    return library, ""


def _memory(x: Array) -> tuple[int, int, int]:
    """Return where an array lies, the number of its type, and the elements from one row to the next.

    Raises:
        ValueError: it is not row-major, or of a type that is not known here.
    """
    kinds = {np.dtype(np.float32): FLOAT32, BFLOAT16: BFLOAT16_BITS}
    if x.dtype not in kinds:
        raise ValueError(f"cuBLAS is given float32 or bfloat16 in uint16, not {x.dtype}")
    rows, columns = x.shape
    row, column = (stride // x.dtype.itemsize for stride in x.strides)
    if rows <= 1:
        row = max(columns, 1)  # there is no next one
    if (columns > 1 and column != 1) or row < max(columns, 1):
        raise ValueError(f"an array of shape {x.shape} with strides {x.strides} is not row-major")
    return _address(x), kinds[x.dtype], row


def _address(x: Array) -> int:
    return int(x.__cuda_array_interface__["data"][0])


def _stream_pointer(stream: Any) -> int:
    """Return the driver's pointer of a stream: 0, the default one, or any object with ``__cuda_stream__``."""
    return int(stream.__cuda_stream__()[1]) if hasattr(stream, "__cuda_stream__") else int(stream)
