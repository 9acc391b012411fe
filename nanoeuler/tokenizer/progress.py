"""What is shown while a tokenizer is trained: a bar on a terminal, a plain line now and then anywhere else."""

import sys
from time import monotonic
from typing import TextIO

from nanoeuler.console import WorkBar, format_duration


class Progress(WorkBar):
    """Shows how far the training of a tokenizer is; used as a ``with`` block around it."""

    def __init__(self, file: TextIO | None = None) -> None:
        super().__init__(file or sys.stderr, transient=False)
        self._phase = ""
        self._complete = False  # whether the line that says so has been printed
        self._started = self._shown = monotonic()

    def begin(self, phase: str) -> None:
        """Begin a phase of the work, with a bar and a clock of its own."""
        self._phase = phase
        self._complete = False
        self._started = self._shown = monotonic()
        self._task = self.bar.add_task(phase, total=None)

    def bytes(self, done: int, share: float | None) -> None:
        """Show how many bytes have been read, and which share of all that is."""
        rate = done / max(monotonic() - self._started, 1e-3)
        self._show(f"{done / 1e6:,.1f} MB  {rate / 1e6:.1f} MB/s", share)

    def merges(self, done: int, wanted: int) -> None:
        """Show how many merges have been learned."""
        if done == wanted or monotonic() - self._shown >= 0.1:
            self._show(f"{done:,} of {wanted:,} merges", done / wanted)

    def _show(self, numbers: str, share: float | None) -> None:
        line = f"{self._phase}  {numbers}  {self._times(share)}"
        is_due = monotonic() - self._shown >= 2 or (share == 1 and not self._complete)
        if is_due or self.is_terminal:
            self._complete = share == 1
            self._shown = monotonic()
        self.show(self._task, line, share, is_due)

    def _times(self, share: float | None) -> str:
        elapsed = monotonic() - self._started
        if not share or share >= 1:
            return format_duration(elapsed)
        return f"{format_duration(elapsed)}, {format_duration(elapsed / share - elapsed)} left"
