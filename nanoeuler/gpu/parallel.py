"""How a GPU shares out its work: inside every launch. To the code around the ops it is a single worker."""

from collections.abc import Callable, Iterable
from typing import Any

from nanoeuler.gpu.launch import repeated

__all__ = ["Team", "parallel", "repeated", "workers"]


class Team:
    """Nobody: launches are made one after the other. A context manager, as :class:`nanoeuler.cpu.parallel.Team`."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *error: Any) -> None:
        """Leave."""


def parallel(function: Callable[[Any], None], items: Iterable[Any]) -> None:
    """Call ``function(item)`` for every item, one after the other: each launches kernels that fill the GPU."""
    for item in items:
        function(item)


def workers(asked: int) -> int:
    """Return 0: no threads share the pieces of a batch, whatever is asked for, as each launch is shared out."""
    return 0
