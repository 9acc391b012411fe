"""Skips a test that compiles for a GPU where the compiler is not installed."""

import pytest

from nanoeuler.errors import UserError


def need_toolkit() -> None:
    """Skip, with what to install, unless numba-cuda and the CUDA compiler's libraries are here."""
    pytest.importorskip("numba_cuda", reason="needs numba-cuda: python -m pip install -e '.[gpu,compile]'")
    from nanoeuler.simt.toolchain import require_toolkit

    try:
        require_toolkit()
    except UserError as error:
        pytest.skip(str(error))
