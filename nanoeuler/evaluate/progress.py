"""What is shown while a model is evaluated: a bar on a terminal, a plain line now and then anywhere else."""

import sys
from time import monotonic
from typing import TextIO

from nanoeuler.console import WorkBar, format_count, format_duration


class Progress(WorkBar):
    """Shows how far an evaluation is, on stderr: the results alone go to stdout. Used as a ``with`` block around it."""

    def __init__(self, what: str, file: TextIO | None = None) -> None:
        super().__init__(file or sys.stderr, transient=True)
        self._task, self._what = self.bar.add_task("", total=None), what
        self.begin(0)

    def begin(self, tokens: int) -> None:
        """Start the clock: so many tokens go through the model."""
        self._tokens, self._done = tokens, 0
        self._started = self._printed = monotonic()

    def advance(self, tokens: int) -> None:
        """Show that so many more tokens are done."""
        self._done += tokens
        now = monotonic()
        elapsed, share = now - self._started, self._done / max(self._tokens, 1)
        left = elapsed / share - elapsed if share else float("inf")
        speed = format_count(self._done / max(elapsed, 1e-3))
        times = f"{format_duration(elapsed)}, {format_duration(left)} left"
        is_due = now - self._printed >= min(max(2.0, elapsed / 50), 60.0)
        if is_due:
            self._printed = now
        self.show(self._task, f"{self._what}  {100 * share:3.0f} %  {speed} tok/s  {times}", share, is_due)
