"""Which threads find the condition of an ``if`` or ``while`` true: those that come to its basic block next.

The head of an ``if`` is a statement of one basic block, what it guards is another one. A thread that comes to the
second has found the condition true; so has one that comes from the test of a ``while`` to the body in the same round.
"""

import ast
from collections.abc import Iterator

import numpy as np

from nanoeuler.simt.traced.recorder import BasicBlock
from nanoeuler.simt.traced.steps import ENTER, Step, Steps, grouped


class Branches:
    """What the conditions in the steps of a launch were."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.trace = steps, steps.trace
        visits = self.trace.visits
        self._visits = grouped(visits["execution"], len(self.trace.executions), np.arange(len(visits)))
        self._executions = {execution: n for n, execution in enumerate(self.trace.executions)}
        self._last = {_place(step): step.number for step in steps.list}
        functions = [source.tree for source in self.trace.source.everything()]
        files = [source.file for source in self.trace.source.everything()]
        self._ifs = {
            (file, node.lineno): node
            for file, tree in zip(files, functions, strict=True)
            for node in ast.walk(tree)
            if isinstance(node, ast.If)
        }

    def taken(self, number: int) -> np.ndarray | None:
        """Return which threads of a step found its condition true, sorted int64; None if it decides nothing.

        Where the condition calls a function, it is the step behind the call that decides.
        """
        step = self.steps[number]
        if step.kind == ENTER or self._last[_place(step)] != number:
            return None
        guarded = self._guarded(step)
        if guarded is None:
            return None
        execution = self._executions.get(guarded)
        came = self.trace.visits[self._visits.of(execution) if execution else []]
        return np.intersect1d(step.threads, came["thread"][came["block"] == step.block].astype(np.int64))

    def _guarded(self, step: Step) -> tuple[int, int, int] | None:
        """Return the execution to which threads go if the condition is true: its parent, basic block and turn."""
        parent, number, turn = self.trace.executions[step.execution]
        here = self.trace.basic_blocks[number]
        if here.kind == "test":
            loops = [b for b in self._like(here, "loop") if b.order == here.order]
            return (parent, _nearest(loops, here).number, turn + 1) if loops else None
        node = self._ifs.get((step.file, step.line))
        orders = [s.order for s in here.statements if s.line == step.line]
        behind = [b for b in self._like(here, "if") if orders and b.order > orders[0]]
        if node is None or not behind:
            return None
        first = min(b.order for b in behind)
        found = _nearest([b for b in behind if b.order == first], here)
        return (step.execution, found.number, 0) if _is_body(found, node) else None

    def _like(self, here: BasicBlock, kind: str) -> Iterator[BasicBlock]:
        """Yield the basic blocks of a kind in the same function."""
        wanted = here.file, here.function, kind
        return (b for b in self.trace.basic_blocks if (b.file, b.function, b.kind) == wanted)


def _place(step: Step) -> tuple[int, int, int]:
    return step.block, step.execution, step.line


def _nearest(found: list[BasicBlock], here: BasicBlock) -> BasicBlock:
    """Return the one that was made next to ``here``: functions made by one closure have the same names and orders."""
    return min(found, key=lambda b: abs(b.number - here.number))


def _is_body(block: BasicBlock, node: ast.If) -> bool:
    """Whether a basic block is what an ``if`` guards; what begins with a loop may have no statement of its own."""
    if not block.statements:
        return isinstance(node.body[0], (ast.Pass, ast.While, ast.Expr))
    return node.body[0].lineno <= block.statements[0].line <= (node.body[-1].end_lineno or 0)
