"""Runs made ready to be timed on a GPU: what they launch is recorded once, and afterwards only repeated.

An op's Python computes shapes, looks its scratch memory up and lets Numba take its arguments apart, for tens of
microseconds; a training step pays that once (:class:`nanoeuler.gpu.launch.Repeated`). Ops are timed in the same way: as
a CUDA graph where the launches can be captured, else launch by launch with everything bound.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Run = Callable[[], Any]

#: Why PyTorch and the driver's own copy are no graph.
NOT_OURS = "nothing in it is launched by nanoeuler: it is called as it is"


@dataclass(frozen=True)
class Timed:
    """A run that is ready to be timed."""

    run: Run  # as its users call it
    repeat: Run  # does the same, with as little of the host's time as can be
    graph: bool | None = None  # whether ``repeat`` is one graph; None where there is no GPU
    without_graph: str = ""  # why it is none


def recorded(run: Run) -> Timed:
    """Return a run with what repeats its launches; for that it is done twice.

    Its launches must be the same every time, with the same arguments, and all that it does.
    """
    from nanoeuler.gpu.launch import Repeated, recording  # which need Numba, as nothing else here

    with recording() as work:
        run()
    if not work:
        return Timed(run, run, False, NOT_OURS)
    repeat = Repeated(run)
    repeat()
    return Timed(run, repeat, repeat.graph is not None, repeat.without_graph)
