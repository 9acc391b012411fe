"""What is shown while a corpus is prepared: a bar on a terminal, a plain line now and then anywhere else."""

import sys
from time import monotonic
from typing import TextIO

from rich import progress
from rich.console import Console
from rich.text import Text

from nanoeuler.console import format_count, format_duration, is_terminal, plural, visible


class Progress:
    """Shows how far a preparation is; used as a ``with`` block around it.

    Rate and time left are reckoned from this session alone, so one that goes on is not taken to be fast. A terminal
    gets a bar; a pipe, a file or a notebook gets lines, at most one in two seconds and, in the long run, one a minute.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file or sys.stdout
        self.is_terminal = is_terminal(self.file)
        console = Console(file=self.file, force_terminal=self.is_terminal, highlight=False)
        columns = progress.BarColumn(), progress.TextColumn("{task.description}", markup=False)
        self._bar = progress.Progress(*columns, console=console, transient=True, disable=not self.is_terminal)
        self._task = self._bar.add_task("", total=None)
        self._started = self._printed = monotonic()
        self._share_before: float | None = None
        self._bytes_before = 0

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

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
        self._bar.update(self._task, description=line, completed=share or 0, total=None if share is None else 1)
        if not self.is_terminal and now - self._printed >= min(max(2.0, (now - self._started) / 50), 60.0):
            self._printed = now
            print(line, file=self.file, flush=True)

    def note(self, text: str) -> None:
        """Print a line of information."""
        self._print(visible(text), "")

    def warning(self, text: str) -> None:
        """Print a line that should not be missed."""
        self._print(f"warning: {visible(text)}", "yellow")

    def _print(self, text: str, style: str) -> None:
        encoding = self.file.encoding or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
        if self.is_terminal:
            self._bar.console.print(Text(text, style=style), soft_wrap=True)
        else:
            print(text, file=self.file, flush=True)

    def _times(self, now: float, share: float | None) -> str:
        elapsed = now - self._started
        if share is None or self._share_before is None or share <= self._share_before:
            return format_duration(elapsed)
        left = elapsed / (share - self._share_before) * max(1 - share, 0)
        return f"{format_duration(elapsed)}, {format_duration(left)} left"
