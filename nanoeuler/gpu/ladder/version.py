"""One step of a ladder."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Version:
    """A version of an op: it has the parameters that the op must be given, and does the same."""

    name: str
    idea: str  # what it does otherwise than the version before it, in a line
    run: Callable[..., None]
