import io

import pytest

from nanoeuler.corpus import progress as module
from nanoeuler.corpus.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """Give a clock that stands still: a list of its one time."""
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def test_lines_for_a_pipe_now_and_then(clock):
    file = io.StringIO()
    with Progress(file) as progress:
        progress.begin(5_000_000)
        for second in range(1, 9):
            clock[0] += 1
            progress.update(1000 * second, 250_000 * second, 5_000_000 + 1_500_000 * second, 0.5 + second / 20)
    lines = file.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0] == " 60 %  2,000 documents  500 k tokens  1.5 MB/s  2.0 s, 16 s left"


def test_without_a_share_there_is_no_time_left(clock):
    file = io.StringIO()
    with Progress(file) as progress:
        progress.begin(0)
        clock[0] += 2
        progress.update(3, 70, 200, None)
    assert file.getvalue() == "3 documents  70 tokens  0.0 MB/s  2.0 s\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar_and_notes_that_stay(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    with Progress(file) as progress:
        progress.begin(0)
        progress.update(1_234, 70, 200, 0.25)
        progress.note("a \x1b[31m file")
        progress.warning("take care")
    shown = file.getvalue()
    assert "25 %" in shown
    assert "1,234 documents" in shown
    assert "a \\x1b[31m file" in shown
    assert "warning: take care" in shown
    assert shown.endswith("\x1b[2K")  # the bar is gone
