"""The traced executor: runs a kernel as the checked one does, and keeps what each thread did, line by line."""

from nanoeuler.simt.traced.execute import trace
from nanoeuler.simt.traced.result import Trace

__all__ = ["Trace", "trace"]
