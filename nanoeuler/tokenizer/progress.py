"""What is shown while a tokenizer is trained: a bar on a terminal, a plain line now and then anywhere else."""

import sys
from time import monotonic
from typing import TextIO

from rich import progress
from rich.console import Console
from rich.text import Text

from nanoeuler.console import format_duration, is_terminal, visible


class Progress:
    """Shows how far the training of a tokenizer is; used as a ``with`` block around it."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file or sys.stderr
        self.is_terminal = is_terminal(self.file)
        console = Console(file=self.file, force_terminal=self.is_terminal, highlight=False)
        columns = progress.BarColumn(), progress.TextColumn("{task.description}", markup=False)
        self._bar = progress.Progress(*columns, console=console, disable=not self.is_terminal)
        self._phase = ""
        self._complete = False  # whether the line that says so has been printed
        self._started = self._shown = monotonic()

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, phase: str) -> None:
        """Begin a phase of the work, with a bar and a clock of its own."""
        self._phase = phase
        self._complete = False
        self._started = self._shown = monotonic()
        self._task = self._bar.add_task(phase, total=None)

    def bytes(self, done: int, share: float | None) -> None:
        """Show how many bytes have been read, and which share of all that is."""
        rate = done / max(monotonic() - self._started, 1e-3)
        self._show(f"{done / 1e6:,.1f} MB  {rate / 1e6:.1f} MB/s", share)

    def merges(self, done: int, wanted: int) -> None:
        """Show how many merges have been learned."""
        if done == wanted or monotonic() - self._shown >= 0.1:
            self._show(f"{done:,} of {wanted:,} merges", done / wanted)

    def note(self, text: str) -> None:
        """Print a line of information."""
        if self.is_terminal:
            self._bar.console.print(Text(visible(text)), soft_wrap=True)
        else:
            print(visible(text), file=self.file, flush=True)

    def _show(self, numbers: str, share: float | None) -> None:
        line = f"{self._phase}  {numbers}  {self._times(share)}"
        if self.is_terminal:
            self._shown = monotonic()
            self._bar.update(self._task, description=line, completed=share or 0, total=None if share is None else 1)
        elif monotonic() - self._shown >= 2 or (share == 1 and not self._complete):
            self._complete = share == 1
            self._shown = monotonic()
            print(line, file=self.file, flush=True)

    def _times(self, share: float | None) -> str:
        elapsed = monotonic() - self._started
        if not share or share >= 1:
            return format_duration(elapsed)
        return f"{format_duration(elapsed)}, {format_duration(elapsed / share - elapsed)} left"
