"""A CUDA graph: many launches, captured once and then started by one call.

A launch from Python costs some microseconds, and a step of a small model is hundreds of launches that the GPU does in
less. Captured into a graph they are handed to the driver together (CUDA C++ Programming Guide, "CUDA Graphs").
numba-cuda takes a graph builder of ``cuda.core`` in the place of a stream; where that is not to be had, launches go one
by one.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nanoeuler.gpu.backend import cuda


class Graph:
    """What was captured."""

    def __init__(self, graph: Any, stream: Any) -> None:
        self._graph, self._stream = graph, stream

    @staticmethod
    def capture(work: Callable[[Any], None]) -> "tuple[Graph | None, str]":
        """Return the graph of what ``work(stream)`` launches on the stream, or None and why there is none.

        Nothing of it runs yet. The arrays must stay where they are as long as the graph is launched.
        """
        try:
            from cuda.core import Device, Stream

            device = Device()
            device.set_current()
            builder = device.create_stream().create_graph_builder()
        except Exception as error:  # an older cuda.core, or none, or numba-cuda's own stand-in: all right without
            return None, f"graphs cannot be built here: {error!r}"
        try:
            with cuda.defer_cleanup():  # memory given back in the middle would end the capture
                builder.begin_building("relaxed")
                try:
                    work(builder)
                except Exception:
                    with suppress(Exception):
                        builder.end_building()
                    raise
                builder.end_building()
            return Graph(builder.complete(), Stream.from_handle(0)), ""
        except Exception as error:  # launches that this numba-cuda, or this driver, cannot capture
            return None, f"the launches cannot be captured: {error!r}"

    def launch(self) -> None:
        """Start all of it on the default stream, after what was started there before."""
        self._graph.launch(self._stream)
