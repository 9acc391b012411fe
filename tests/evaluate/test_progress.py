import io
import re

from nanoeuler.evaluate import progress as module
from nanoeuler.evaluate.progress import Progress


def test_lines_with_share_speed_and_time_left(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    file = io.StringIO()
    with Progress("a text", file) as progress:
        progress.begin(1000)
        for _ in range(4):
            now[0] += 1.5
            progress.advance(250)
    assert file.getvalue().splitlines() == [
        "a text   50 %  167 tok/s  3.0 s, 3.0 s left",
        "a text  100 %  167 tok/s  6.0 s, 0.0 s left",
    ]


def test_a_terminal_gets_a_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    with Progress("a text", file := Terminal()) as progress:
        progress.begin(10)
        progress.advance(10)
    assert re.search(r"a text +100 %", file.getvalue())
