"""Executor "compiled": native code of the CPU."""

from nanoeuler.simt.compiled.execute import run_compiled

__all__ = ["run_compiled"]
