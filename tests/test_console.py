"""What a run shows: plain lines off a terminal, two moving lines on one, and numbers as people write them."""

import io
import math
import os
import re
import sys

import pytest

from nanoeuler import console
from nanoeuler.console import Console, format_bytes, format_count, format_duration, is_terminal, say, visible

NUMBERS = {
    "train_loss": 2.0,
    "smoothed_loss": 2.1,
    "learning_rate": 3e-4,
    "grad_norm": 0.5,
    "tokens_per_second": 52_300.0,
}


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that a test winds by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(console, "monotonic", clock)
    return clock


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")


def run_plain(clock, steps, total, seconds_per_step, start=0):
    file = io.StringIO()
    with Console(total, start, file=file) as shown:
        for step in range(start + 1, start + steps + 1):
            clock.now += seconds_per_step
            shown.step(step, **NUMBERS)
    return file.getvalue().splitlines()


def test_plain_lines_hold_every_number_and_no_escape_code(clock):
    (line,) = run_plain(clock, steps=1, total=200, seconds_per_step=1.0)
    for part in ("step   1/200", "loss 2.0000", "smoothed 2.1000", "lr 3.00e-04", "grad 0.5", "52.3 k tok/s"):
        assert part in line
    assert line.endswith("1.0 s, 3 min 19 s left")
    assert "\x1b" not in line


def test_plain_lines_come_at_most_every_two_seconds(clock):
    lines = run_plain(clock, steps=100, total=1000, seconds_per_step=0.1)
    assert [int(re.search(r"(\d+)/", line)[1]) for line in lines] == [1, 21, 41, 61, 81]


def test_a_long_run_prints_one_line_a_minute(clock):
    lines = run_plain(clock, steps=5000, total=10**6, seconds_per_step=10.0)
    assert 5000 * 10 / 60 / 1.3 < len(lines) < 5000 * 10 / 60 + 150


def test_the_last_step_is_always_shown_with_the_whole_duration(clock):
    lines = run_plain(clock, steps=10, total=10, seconds_per_step=0.5)
    assert lines[-1].startswith("step 10/10  100 %")
    assert lines[-1].endswith("  5.0 s")


def test_the_time_left_counts_from_this_sessions_speed_only(clock):
    (line,) = run_plain(clock, steps=1, total=1000, seconds_per_step=1.0, start=899)
    assert line.endswith("1.0 s, 1 min 40 s left")  # 100 steps left at one a second, not 900 done in a second


def test_everything_but_steps_is_always_printed(clock):
    file = io.StringIO()
    with Console(10, file=file) as shown:
        shown.note("trains on plays")
        shown.warning("update skipped")
        shown.evaluation(5, 1.25, 1.8034, best=True)
        shown.evaluation(6, 1.5, 2.164, best=False)
        shown.sample(6, "ROMEO:\nHark!")
    assert file.getvalue().splitlines() == [
        "trains on plays",
        "warning: update skipped",
        "step 5  validation loss 1.2500  1.8034 bits per byte  the best so far",
        "step 6  validation loss 1.5000  2.1640 bits per byte",
        "sample at step 6:",
        "  ROMEO:",
        "  Hark!",
    ]


def test_a_stream_that_cannot_encode_gets_escapes(clock):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    with Console(10, file=file) as shown:
        shown.sample(1, "é \ud800")
    assert raw.getvalue().endswith(b"  \\xe9 \\ud800" + os.linesep.encode())
    file.close()


def test_a_terminal_gets_a_bar_and_no_plain_step_lines(clock):
    file = Terminal()
    with Console(60, 20, file=file) as shown:
        for step in range(21, 61):
            clock.now += 5.0
            shown.step(step, **NUMBERS)
        shown.note("a note [bold]as it is[/bold]")
    output = file.getvalue()
    assert "━" in output
    assert "step 60/60  100 %" in output
    assert "a note [bold]as it is[/bold]" in output
    assert not re.search(r"^step", output, re.MULTILINE)


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_the_terminal_is_left_as_it_was(clock, error):
    file, before = Terminal(), (sys.stdout, sys.stderr)
    try:
        with Console(10, file=file) as shown:
            shown.step(1, **NUMBERS)
            if error:
                raise error
    except (ValueError, KeyboardInterrupt):
        pass
    output = file.getvalue()
    assert output.count("\x1b[?25l") == 1  # the cursor is hidden once
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")  # and shown again at the end
    assert output.endswith("\n\x1b[?25h")  # the prompt will stand on a line of its own
    assert (sys.stdout, sys.stderr) == before
    shown.close()  # once more does no harm


def test_the_numbers_of_a_terminal_fit_eighty_columns(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    file = Terminal()
    with Console(100_000, file=file) as shown:
        clock.now += 4000
        shown.step(40_000, **NUMBERS)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("step  40000/100000   40 %  1 h 06 min, 1 h 40 min left" in line for line in lines)
    assert any(line.startswith("loss 2.0000  smoothed") and line.rstrip().endswith("tok/s") for line in lines)


def test_a_sample_cannot_command_the_terminal(clock):
    file = Terminal()
    with Console(10, file=file) as shown:
        shown.sample(1, "\x1b]0;title\x07 \x9b31m [red]x[/red] \u202eback\r\nline\tend")
    output = file.getvalue()
    assert r"\x1b]0;title\x07 \x9b31m [red]x[/red] \u202eback\r" in output
    assert not {"\x07", "\x9b", "\u202e"} & set(output)
    assert "\x1b]" not in output


@pytest.mark.parametrize(("encoding", "said"), [("utf-8", "é\\x1b[31m\\udcff\n"), ("ascii", "\\xe9\\x1b[31m\\udcff\n")])
def test_what_is_said_can_be_printed_anywhere(encoding, said, monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding, newline="")
    monkeypatch.setattr(sys, "stdout", out)
    say("é\x1b[31m\udcff")
    out.seek(0)
    assert out.read() == said


def test_visible_keeps_text_and_escapes_the_rest():
    assert (
        visible("naïve 漢字 \N{ROLLING ON THE FLOOR LAUGHING}\n\tx")
        == "naïve 漢字 \N{ROLLING ON THE FLOOR LAUGHING}\n\tx"
    )
    assert visible("a\x00b\x7fc\u2028d\ufeffe\udcffz") == r"a\x00b\x7fc\u2028d\ufeffe\udcffz"
    assert visible("\N{WOMAN}\u200d\N{PERSONAL COMPUTER}") == "\N{WOMAN}\u200d\N{PERSONAL COMPUTER}"


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    assert is_terminal(Terminal())
    assert not is_terminal(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not is_terminal(Terminal())


def test_forced_colours_do_not_put_a_bar_into_a_file(clock, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in "".join(run_plain(clock, steps=3, total=3, seconds_per_step=1.0))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (3599.7, "1 h 00 min"),
        (3725, "1 h 02 min"),
        (86_399.9, "1 d 00 h"),
        (180_000, "2 d 02 h"),
        (math.inf, "unknown"),
        (math.nan, "unknown"),
    ],
)
def test_format_duration(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (812, "812"),
        (999.4, "999"),
        (999.6, "1 k"),
        (52_300, "52.3 k"),
        (99_960, "100 k"),
        (999_700, "1 M"),
        (3_400_000, "3.4 M"),
        (1.5e18, "1.5 E"),
        (-4200, "-4.2 k"),
        (math.nan, "nan"),
    ],
)
def test_format_count(number, text):
    assert format_count(number) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (812, "812 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (5.5 * 2**30, "5.5 GiB")]
)
def test_format_bytes(size, text):
    assert format_bytes(size) == text
