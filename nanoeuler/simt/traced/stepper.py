"""``step``: runs a launch, and goes through it statement by statement, forward and back.

All threads of a block go side by side, in lockstep (``steps``); the arrays show what was in memory (``contents``). The
kernel has run to its end before the first step is shown: going back costs nothing.
"""

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from nanoeuler.errors import UserError, nearest
from nanoeuler.simt.launch import WARP_SIZE, Dimensions, number_of
from nanoeuler.simt.traced.contents import Contents, leaves
from nanoeuler.simt.traced.execute import trace
from nanoeuler.simt.traced.recorder import TracedArray
from nanoeuler.simt.traced.result import Trace
from nanoeuler.simt.traced.steps import Step, Steps


def step(
    kernel: Any,
    grid: Dimensions,
    block: Dimensions,
    args: tuple,
    *,
    blocks: Dimensions | list[Dimensions] | None = None,
    warps: int | Iterable[int] | None = None,
    shared_bytes: int = 0,
    limit: int = 4_000_000,
) -> "Stepper":
    """Run ``kernel[grid, block](*args)`` on the CPU, and return a stepper at its start.

    In a notebook the stepper shows itself, with buttons. In a terminal its prompt opens at once: ``help`` there says
    how to go on, ``quit`` leaves it. In a script, and where input or output is a pipe, nothing opens by itself.

    Args:
        kernel: a function in Numba's CUDA Python, plain or decorated with ``@cuda.jit``.
        grid: blocks of the launch, an integer or up to three.
        block: threads of a block, likewise.
        args: numbers and NumPy arrays of any dtype and layout. Arrays are changed in place.
        blocks: one block's index or a list of such. Only these run; None is the first block alone.
        warps: numbers of warps within a block: only these are followed, the others run unseen.
        shared_bytes: dynamic shared memory of a block.
        limit: how many records of what happens there may be at most.

    Raises:
        UnsupportedError: the kernel uses something that cannot be followed; the message has its line and the reason.
        UserError: the launch or the choice of a part is impossible, or there is more to record than ``limit``.
    """
    chosen: Any = (0, 0, 0) if blocks is None else blocks
    how: dict[str, Any] = {"warps": warps, "shared_bytes": shared_bytes, "limit": limit}
    stepper = Stepper(trace(kernel, grid, block, args, blocks=chosen, variables=True, **how))
    if at_a_terminal():
        stepper.interact()
    return stepper


def at_a_terminal() -> bool:
    """Whether a person types what this program reads, and sees what it prints; in a notebook that is not so."""
    return (
        all(file is not None and file.isatty() for file in (sys.stdin, sys.stdout)) and "ipykernel" not in sys.modules
    )


class Stepper:
    """A place in a launch, that can be moved: ``position`` is the number of a step, ``thread`` the one to look at.

    What it shows is what there is when the step has been done. What threads got from atomics is in the order in which
    they ran here, one after the other; the module ``contents`` says what that means for arrays.

    Raises:
        UserError: the trace was made without ``variables=True``, or nothing was recorded.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace, self.steps = trace, Steps(trace)
        self.contents = Contents(self.steps)
        self.position = 0
        self.thread = int(self.steps[0].threads[0])

    def __repr__(self) -> str:
        at = self.step
        return f"<Stepper of {self.trace.kernel}: step {at.number} of {len(self.steps) - 1}, line {at.line}>"

    def _repr_html_(self) -> str:
        from nanoeuler.simt.traced.widget import notebook_html

        return notebook_html(self)

    def interact(self) -> None:
        """Open the prompt in the terminal; with input from a pipe it reads commands from there."""
        from nanoeuler.simt.traced.terminal import Terminal

        Terminal(self).run()

    # Moves: each returns the step at which it arrives

    @property
    def step(self) -> Step:
        """The step that is shown."""
        return self.steps[self.position]

    def to(self, number: int) -> Step:
        """Go to a step by its number; before the first and beyond the last there is none.

        Raises:
            UserError: there is no such step.
        """
        if not 0 <= number < len(self.steps):
            raise UserError(f"there is no step {number}: give 0 to {len(self.steps) - 1}")
        self.position = int(number)
        return self.step

    def next(self, count: int = 1) -> Step:
        """Go forward by some steps, or to the last."""
        return self.to(max(0, min(self.position + count, len(self.steps) - 1)))

    def back(self, count: int = 1) -> Step:
        """Go back by some steps, or to the first."""
        return self.next(-count)

    def next_barrier(self) -> Step:
        """Go to the next step at which the whole block waits; to the last step if there is none."""
        found = (s.number for s in self.steps.list[self.position + 1 :] if s.barrier)
        return self.to(next(found, len(self.steps) - 1))

    def previous_barrier(self) -> Step:
        """Go back to the step at which the whole block waited last; to the first step if there is none."""
        found = (s.number for s in self.steps.list[: self.position][::-1] if s.barrier)
        return self.to(next(found, 0))

    def next_of(self, *, warp: int | None = None) -> Step:
        """Go to the next step in which the chosen thread, or a ``warp``, takes part; to the last if there is none."""
        found = self.steps.next(self.position, self._followed(warp))
        return self.to(len(self.steps) - 1 if found is None else found)

    def previous_of(self, *, warp: int | None = None) -> Step:
        """Go back to the step in which the chosen thread, or a ``warp``, took part last; to the first if none."""
        found = self.steps.previous(self.position, self._followed(warp))
        return self.to(0 if found is None else found)

    def choose(self, thread: int | tuple[int, ...]) -> None:
        """Look at another thread of the block, by its number or (x, y, z).

        Raises:
            UserError: there is no such thread, or its warp is not followed.
        """
        number = number_of(thread, self.trace.launch.block, "thread")
        followed = self.trace.warps
        if followed is not None and number // WARP_SIZE not in followed:
            raise UserError(
                f"thread {thread} is in warp {number // WARP_SIZE}, which is not followed: this is a trace of "
                f"warp {', '.join(map(str, sorted(followed)))}"
            )
        self.thread = number

    def _followed(self, warp: int | None) -> Iterable[int]:
        return [self.thread] if warp is None else range(warp * WARP_SIZE, (warp + 1) * WARP_SIZE)

    # What there is to see

    @property
    def variables(self) -> dict[str, Any]:
        """The chosen thread's local variables, in the function that it is in."""
        return self.steps.variables(self.position, self.thread)

    def array(self, name: str) -> np.ma.MaskedArray:
        """Return an array as it is now; masked where nothing has been written yet. A field of records is ``"p.mass"``.

        Of a shared array it is that of the block that is shown, of a local one that of the chosen thread. Where the
        source makes several arrays of one name, it is the first that has been used.

        Raises:
            UserError: there is no such array.
        """
        found = [(array, leaf) for array in self.trace.arrays for leaf in leaves(array) if leaf.name == name]
        if not found:
            names = [leaf.name for array in self.trace.arrays for leaf in leaves(array)]
            raise UserError(f"no array '{name}'{nearest(name, names)}; there is {', '.join(dict.fromkeys(names))}")
        made: list[np.ma.MaskedArray] = []
        for array, leaf in found:
            values, known = self.contents.history(array, leaf).at(self.position, self.owner(array))
            made.append(np.ma.MaskedArray(values, ~known))
        return next((m for m in made if not np.all(m.mask)), made[0])

    def owner(self, array: TracedArray) -> tuple[int, ...]:
        """Return which of the arrays made at one place is meant here: block, or block, thread and call."""
        if array.scope == "shared":
            return (self.step.block,)
        if array.scope == "local":
            last = self.steps.last(self.position, self.thread)
            frame = 0 if last is None else self.contents.frame(array, self.steps[last].execution)
            return self.step.block, self.thread, frame
        return ()

    @property
    def warp_threads(self) -> range:
        """The threads of the chosen thread's warp."""
        first = self.thread // WARP_SIZE * WARP_SIZE
        return range(first, min(first + WARP_SIZE, self.trace.launch.block_threads))
