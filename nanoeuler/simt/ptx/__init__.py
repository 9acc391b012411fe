"""The PTX executor: a kernel as numba-cuda compiles it, its text interpreted with one NumPy lane per CUDA thread."""

from nanoeuler.simt.ptx.execute import run_ptx, run_text

__all__ = ["run_ptx", "run_text"]
