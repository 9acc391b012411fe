"""What is shown while a corpus is prepared: a bar on a terminal, a plain line now and then anywhere else."""

import sys
from time import monotonic
from typing import TextIO

from nanoeuler.console import WorkBar, format_count, format_duration, plural


class Progress(WorkBar):
    """Shows how far a preparation is; used as a ``with`` block around it.

    Rate and time left are reckoned from this session alone, so one that goes on is not taken to be fast. A terminal
    gets a bar; a pipe, a file or a notebook gets lines, at most one in two seconds and, in the long run, one a minute.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        super().__init__(file or sys.stdout, transient=True)
        self._task = self.bar.add_task("", total=None)
        self._started = self._printed = monotonic()
        self._share_before: float | None = None
        self._bytes_before = 0

    def begin(self, text_bytes: int) -> None:
        """Start the clock: so many bytes of text were done before."""
        self._bytes_before, self._share_before = text_bytes, None
        self._started = self._printed = monotonic()

    def update(self, documents: int, tokens: int, text_bytes: int, share: float | None) -> None:
        """Show what there is now, and the share of the work that is done, where that is known."""
        if self._share_before is None:
            self._share_before = share
        now = monotonic()
        rate = (text_bytes - self._bytes_before) / max(now - self._started, 1e-3)
        numbers = f"{plural(documents, 'document')}  {format_count(tokens)} tokens  {rate / 1e6:.1f} MB/s"
        line = "  ".join([*([] if share is None else [f"{100 * share:3.0f} %"]), numbers, self._times(now, share)])
        is_due = now - self._printed >= min(max(2.0, (now - self._started) / 50), 60.0)
        if is_due:
            self._printed = now
        self.show(self._task, line, share, is_due)

    def _times(self, now: float, share: float | None) -> str:
        elapsed = now - self._started
        if share is None or self._share_before is None or share <= self._share_before:
            return format_duration(elapsed)
        left = elapsed / (share - self._share_before) * max(1 - share, 0)
        return f"{format_duration(elapsed)}, {format_duration(left)} left"
