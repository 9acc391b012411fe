"""``numba.cuda.vectorizers``: what ``numba.vectorize(target="cuda")`` asks for, which no executor runs."""

from typing import Any, NoReturn

from nanoeuler.simt.faults import UnsupportedError


def vectorize(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse to make a ufunc.

    Raises:
        UnsupportedError: always; it says what to write instead.
    """
    raise UnsupportedError(
        "vectorize and guvectorize for target 'cuda' cannot be run here: write the loop as a kernel with @cuda.jit, "
        "or use target='cpu' for this run"
    )


guvectorize = CUDAVectorize = CUDAGUFuncVectorize = vectorize
