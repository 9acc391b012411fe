"""Which threads take a branch: those that come to its basic block next.

An ``if`` and the head of a ``while`` are statements of one basic block, what they guard is another one. A thread that
comes to the second in the same round has found the condition true.
"""

import ast
import functools
from collections.abc import Iterator

import numpy as np

from nanoeuler.simt.traced.recorder import BasicBlock
from nanoeuler.simt.traced.steps import ENTER, Step, Steps
from nanoeuler.simt.traced.translate import LEAVING


class Branches:
    """What the conditions of a launch's steps were."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.trace = steps, steps.trace
        self._numbers = {execution: n for n, execution in enumerate(self.trace.executions)}
        self._last = {_place(step): step.number for step in steps.list}

    def taken(self, number: int) -> np.ndarray | None:
        """Return which of a step's threads found its condition true, sorted int64; None if it decides nothing.

        Where the condition calls a function, the step behind the call decides.
        """
        step = self.steps[number]
        if step.kind == ENTER or self._last[_place(step)] != number:
            return None
        found = self._guarded(step)
        if found is None:
            return None
        execution = self._numbers.get(found)
        came = np.empty(0, np.int64) if execution is None else self._came(execution, step.block)
        return np.intersect1d(step.threads, came)

    def _guarded(self, step: Step) -> tuple[int, int, int] | None:
        """Return the execution to which threads go from a step where its condition is true: parent, block, turn."""
        parent, block, turn = self.trace.executions[step.execution]
        here = self.trace.basic_blocks[block]
        if here.kind == "test":
            loop = self._first(here, "loop", lambda b: b.order == here.order)
            return None if loop is None else (parent, loop.number, turn + 1)
        node = self._ifs.get((step.file, step.line))
        order = next((s.order for s in here.statements if s.line == step.line), None)
        if node is None or order is None:
            return None
        inside = range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)
        found = self._first(here, "if", lambda b: b.order > order)
        if found is None or any(s.line not in inside for s in found.statements) or _alone(node, here):
            return None
        return step.execution, found.number, 0

    def _first(self, here: BasicBlock, kind: str, fits: "Callable[[BasicBlock], bool]") -> BasicBlock | None:
        """Return the first basic block of a kind in the same function that fits."""
        same = (b for b in self._blocks.get((here.file, here.function, kind), ()) if fits(b))
        return min(same, key=lambda b: b.order, default=None)
