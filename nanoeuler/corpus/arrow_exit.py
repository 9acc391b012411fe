"""Ending a process well after Arrow has scanned a file that is a Python object.

Arrow's own threads read ahead and let go of the file in their own time. One of them that needs the interpreter after it
has shut down ends the process with "terminate called without an active exception" and signal 6, all work done or not
(`apache/arrow#45214 <https://github.com/apache/arrow/issues/45214>`_). So at exit the scans are closed, and the
interpreter waits for those threads.
"""

import atexit
import gc
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakSet

#: How long to wait at most, and how long no foreign thread must be seen: letting go of a file takes microseconds.
PATIENCE = 30.0
QUIET = 0.2
POLL = 0.01

Stream = TypeVar("Stream", bound=Iterator[Any])
_streams: WeakSet[Any] = WeakSet()


def closed_at_exit(stream: Stream) -> Stream:
    """Have a generator that scans with Arrow closed when the interpreter ends, and return it."""
    atexit.unregister(_close)  # once is enough; and what is registered last is run first
    atexit.register(_close)
    _streams.add(stream)
    return stream


def _close() -> None:
    for stream in list(_streams):
        if isinstance(stream, Generator):
            with suppress(Exception):  # a thread is in it, or the network failed once more
                stream.close()
    gc.collect()
    deadline = time.monotonic() + PATIENCE
    quiet_since = time.monotonic()
    while (now := time.monotonic()) < deadline and now - quiet_since < QUIET:
        if _foreign_threads():
            quiet_since = now
        time.sleep(POLL)


def _foreign_threads() -> set[int]:
    """Return the threads that are in Python code without having been started by it."""
    own = {thread.ident for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}
    return set(sys._current_frames()) - own
