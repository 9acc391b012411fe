"""Executor "checked": the source in Python, with every access watched."""

from nanoeuler.simt.checked.execute import collect_faults, run_checked

__all__ = ["collect_faults", "run_checked"]
