"""What a run shows while it goes: a progress bar on a terminal, a plain line now and then anywhere else.

The way of writing numbers for people (durations, counts, bytes) is here too, once for every command.
"""

import math
import os
import sys
import unicodedata
from time import monotonic
from types import TracebackType
from typing import TextIO, TypeVar

from rich.console import Console as RichConsole
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

#: Joiners that words and emoji of many languages are written with; other invisible characters are made visible.
JOINERS = "\u200c\u200d"


Bar = TypeVar("Bar", bound="WorkBar")


class Lines:
    """Lines for people: above what moves on a terminal, one after the other anywhere else."""

    file: TextIO

    def note(self, text: str) -> None:
        """Print a line of information."""
        self._print(visible(text))

    def warning(self, text: str) -> None:
        """Print a line that should not be missed."""
        self._print(f"warning: {visible(text)}", "yellow")

    def _terminal(self) -> RichConsole | None:
        """Return the terminal, if the file is one."""
        raise NotImplementedError

    def _print(self, text: str, style: str = "") -> None:
        text = encodable(text, self.file)
        if terminal := self._terminal():
            terminal.print(Text(text, style=style), soft_wrap=True)
        else:
            print(text, file=self.file, flush=True)


class WorkBar(Lines):
    """A bar on a terminal for work of which perhaps a share is known to be done; used as a ``with`` block around it.

    Anywhere else there are lines now and then, when the one who works thinks that they are due.
    """

    def __init__(self, file: TextIO, transient: bool) -> None:
        self.file = file
        self.is_terminal = is_terminal(file)
        console = RichConsole(file=file, force_terminal=self.is_terminal, highlight=False)
        columns = BarColumn(), TextColumn("{task.description}", markup=False)
        self.bar = Progress(*columns, console=console, transient=transient, disable=not self.is_terminal)

    def __enter__(self: Bar) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, task: TaskID, line: str, share: float | None, is_due: bool) -> None:
        """Move the bar, or print the line if it is due."""
        self.bar.update(task, description=line, completed=share or 0, total=None if share is None else 1)
        if is_due and not self.is_terminal:
            self._print(line)

    def _terminal(self) -> RichConsole | None:
        return self.bar.console if self.is_terminal else None


class Console(Lines):
    """Shows the progress of a training run; used as a ``with`` block around it.

    ``start_step`` is the step that a resumed run goes on from: the time left is reckoned from the speed of this
    session alone. A terminal gets two lines that move (a bar; the numbers) and everything else above them; a pipe, a
    file or a notebook gets plain lines, at most one in two seconds and, as the run grows long, one a minute.
    """

    def __init__(self, total_steps: int, start_step: int = 0, file: TextIO | None = None) -> None:
        self.file = file or sys.stdout
        self.total_steps = total_steps
        self.start_step = start_step
        self._step = start_step
        self._numbers = ""
        self._started = self._printed = monotonic()
        self._live = self._make_live() if is_terminal(self.file) else None

    def _make_live(self) -> Live:
        console = RichConsole(file=self.file, force_terminal=True, highlight=False)
        return Live(console=console, get_renderable=self._bar, refresh_per_second=4)

    def __enter__(self) -> "Console":
        self._started = monotonic()
        self._printed = -math.inf
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the terminal as it was, the last state of the bar on it; harmless when done already."""
        if self._live:
            self._live.stop()

    def step(
        self,
        step: int,
        *,
        train_loss: float,
        smoothed_loss: float,
        learning_rate: float,
        grad_norm: float,
        tokens_per_second: float,
    ) -> None:
        """Show that a step is done: losses in nats per token, the gradient's norm before clipping."""
        self._step = step
        self._numbers = (
            f"loss {train_loss:.4f}  smoothed {smoothed_loss:.4f}  lr {learning_rate:.2e}  grad {grad_norm:.3g}  "
            f"{format_count(tokens_per_second)} tok/s"
        )
        if self._live is None and self._line_is_due():
            self._printed = monotonic()
            self._print(f"{self._position()}  {self._numbers}  {self._times()}")

    def evaluation(self, step: int, val_loss: float, bits_per_byte: float, best: bool) -> None:
        """Print a validation loss (nats per token), the same in bits per byte, and whether it is the lowest so far."""
        line = f"step {step}  validation loss {val_loss:.4f}  {bits_per_byte:.4f} bits per byte"
        self._print(line + ("  the best so far" if best else ""), "bold")

    def sample(self, step: int, text: str) -> None:
        """Print a sample of text, with nothing in it that a terminal would take for a command."""
        self._print(f"sample at step {step}:", "bold")
        self._print("\n".join("  " + line for line in visible(text).split("\n")), "dim")

    def _terminal(self) -> RichConsole | None:
        return self._live.console if self._live else None

    def _line_is_due(self) -> bool:
        now = monotonic()
        gap = min(max(2.0, (now - self._started) / 50), 60.0)
        return self._step >= self.total_steps or now - self._printed >= gap

    def _bar(self) -> RenderableType:
        """Return the two lines at the foot of the terminal."""
        line = Table.grid(padding=(0, 2, 0, 0), expand=True)
        line.add_column(ratio=1)
        for _ in range(2):
            line.add_column(no_wrap=True)
        bar = ProgressBar(self.total_steps, self._step, complete_style="cyan", finished_style="green")
        line.add_row(bar, Text(self._position()), Text(self._times()))
        return Group(line, Text(self._numbers, style="dim", no_wrap=True, overflow="ellipsis"))

    def _position(self) -> str:
        width = len(str(self.total_steps))
        return f"step {self._step:>{width}}/{self.total_steps}  {100 * self._step // self.total_steps:>3} %"

    def _times(self) -> str:
        elapsed, done = monotonic() - self._started, self._step - self.start_step
        if done <= 0 or self._step >= self.total_steps:
            return format_duration(elapsed)
        left = elapsed / done * (self.total_steps - self._step)
        return f"{format_duration(elapsed)}, {format_duration(left)} left"


def byte_bar(show: bool = True) -> Progress:
    """Return a bar on stderr for bytes that are read or fetched, gone in the end; nothing where that is no terminal."""
    columns = TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    disable = not show or not is_terminal(sys.stderr)
    return Progress(*columns, console=RichConsole(stderr=True), transient=True, disable=disable)


def is_terminal(file: TextIO) -> bool:
    """Return whether a file is a terminal on which lines can be redrawn."""
    return file.isatty() and os.environ.get("TERM") != "dumb"


def say(text: str) -> None:
    """Print a text, with escapes for what a terminal would obey and for what the output's encoding does not have."""
    print(encodable(visible(text), sys.stdout))


def encodable(text: str, file: TextIO) -> str:
    """Return text with escapes for the characters that a file's encoding does not have."""
    encoding = file.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def visible(text: str) -> str:
    r"""Return text with control characters, bidirectional overrides and the like as escapes; newlines and tabs stay.

    >>> visible("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return "".join(c if c in "\n\t" + JOINERS or _is_printed(c) else _escape(c) for c in text)


def _is_printed(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units.

    >>> [format_duration(s) for s in (0.42, 43, 72, 3725, 180000)]
    ['0.4 s', '43 s', '1 min 12 s', '1 h 02 min', '2 d 02 h']
    """
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, small, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part:02d} {small}"
    return f"{whole} s"


def format_count(number: float) -> str:
    """Return a count in three digits or so.

    >>> [format_count(n) for n in (0, 812, 52_300, 3_400_000, 124_000_000, 2e12)]
    ['0', '812', '52.3 k', '3.4 M', '124 M', '2 T']
    """
    return _scaled(number, 1000, ("", "k", "M", "G", "T", "P", "E"))


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "thread"), plural(1200, "thread"), plural(2, "launch"), plural(3, "FAULT")
    ('1 thread', '1,200 threads', '2 launches', '3 FAULTS')
    """
    ending = "es" if noun.endswith(("s", "ch")) else "S" if noun.isupper() else "s"
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def format_bytes(number: float) -> str:
    """Return a size in bytes, in powers of 1024.

    >>> [format_bytes(n) for n in (812, 4096, 3 * 1024**2 + 1, 5.5 * 1024**3)]
    ['812 B', '4 KiB', '3 MiB', '5.5 GiB']
    """
    return _scaled(number, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def _scaled(number: float, base: int, units: tuple[str, ...]) -> str:
    if not math.isfinite(number):
        return str(number)
    power = 0
    while abs(number) >= 999.5 and power < len(units) - 1:
        number, power = number / base, power + 1
    digits = f"{number:.0f}" if abs(number) >= 99.95 or power == 0 else f"{number:.1f}".removesuffix(".0")
    return f"{digits} {units[power]}".rstrip()
