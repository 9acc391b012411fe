"""``python -m nanoeuler.trace``: ops, kernels, scripts of one's own, the gallery; what is wrong is said in a line."""

import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nanoeuler import trace_examples, trace_gallery
from nanoeuler.errors import run_command
from nanoeuler.simt.traced.page import summary_of
from nanoeuler.trace import main

SCRIPT = '''
"""Adds and doubles."""
import sys
import numpy as np
from numba import cuda

@cuda.jit
def add(out, x, y):
    """Add two vectors."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]

@cuda.jit
def double(x):
    x[cuda.grid(1)] *= np.float32(2)

@cuda.jit
def never(x):
    x[0] = 1

n = int(sys.argv[1]) if len(sys.argv) > 1 else 40
x, out = cuda.to_device(np.arange(n, dtype=np.float32)), cuda.device_array(n, np.float32)
for times in range(3):
    add[(n + 31) // 32, 32](out, x, out if times else x)
double[1, n if n < 1000 else 32](out)
print("sum", out.copy_to_host().sum(), sys.argv[1:])
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "script.py") -> str:
    Path(name).write_text(text)
    return name


# Our own


def test_an_op(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert run_command(main, ["nanoeuler.gpu.rmsnorm:rmsnorm_forward", "--shape", "B=2,T=3,C=40"]) == 0
    out = capsys.readouterr().out
    assert "normalise_rows (rmsnorm.py:" in out
    assert "grid (6, 1, 1), block (32, 1, 1)" in out
    assert out.endswith("page: trace-rmsnorm_forward.html\n")
    page = Path("trace-rmsnorm_forward.html").read_text()
    assert "<title>rmsnorm_forward</title>" in page
    assert "Write the normalised rows" in page
    assert [p.name for p in folder.iterdir()] == ["trace-rmsnorm_forward.html"]


def test_every_launch_of_an_op_is_told_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, ["gelu_backward", "--out", "sub/p.html"]) == 0
    out = capsys.readouterr().out
    assert out.index("gradient_and_column_sums (gelu.py") < out.index("sum_columns (column_sums.py")
    page = Path("sub/p.html").read_text()
    assert 'href="#launch-2"' in page
    assert 'id="launch-2"' in page


def test_a_kernel_is_shown_alone_but_what_it_needs_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, ["gelu_backward", "--out", "all.html"]) == 0
    whole = capsys.readouterr().out
    assert run_command(main, ["sum_columns", "--shape", "N=12,C=33"]) == 0
    out = capsys.readouterr().out
    assert "gradient_and_column_sums" in whole
    assert out.startswith("sum_columns (")
    assert "page: trace-sum_columns.html" in out


def test_bfloat16(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, ["rmsnorm_forward", "--dtype", "bf16"]) == 0
    assert "widen_bfloat16" in capsys.readouterr().out


def test_part_of_a_launch(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, ["rmsnorm_forward", "--block", "2", "--warp", "0", "--lines", "1-60"]) == 0
    out = capsys.readouterr().out
    assert "ran 1 block of 12: (2, 0, 0)" in out
    assert "traced: block (2, 0, 0) of 12, warp 0, lines 1-60; --block X,Y,Z takes another block" in out


def test_of_a_large_launch_the_first_block_is_traced_and_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, ["fill", "--shape", "P=100000"]) == 0
    assert "traced: block (0, 0, 0) of 391; --block X,Y,Z takes another block" in capsys.readouterr().out


def test_of_a_long_launch_with_few_threads_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanoeuler.simt.traced.part.FEW", 1000)
    assert run_command(main, ["rmsnorm_forward"]) == 0
    assert "traced: block (0, 0, 0) of 12" in capsys.readouterr().out


def test_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, ["rmsnorm_forward", "--card", "rtx4090"]) == 0
    assert "on RTX 4090" in capsys.readouterr().out
    assert "RTX 4090" in Path("trace-rmsnorm_forward.html").read_text()


def test_stepping(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert run_command(main, ["rmsnorm_forward", "--step"]) == 0
    assert "normalise_rows" in capsys.readouterr().out
    assert not list(Path().glob("*.html"))


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, ["--list"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"nanoeuler.gpu.rmsnorm:rmsnorm_backward +│ B T C N +│ normalise_rows_backward, sum_columns", out)


def test_part_of_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, ["--list", "Rope"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"nanoeuler\S+", out) == ["nanoeuler.gpu.rope:rope_forward", "nanoeuler.gpu.rope:rope_backward"]
    assert "letters: B batch, T sequence, C channels, H query heads, D = C / H; those" in out


def test_a_file_that_is_no_script_does_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, [write("print('it runs')", "x.txt")]) == 2
    captured = capsys.readouterr()
    assert "x.txt is no op or kernel of ours, and no script: a script ends in .py" in captured.err
    assert "it runs" not in captured.out


def test_an_op_is_found_where_a_file_has_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    write("", "accumulate")
    assert run_command(main, ["accumulate"]) == 0
    assert "page: trace-accumulate.html" in capsys.readouterr().out


def test_versions_of_one_name_have_pages_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, ["ladder.rmsnorm:run_thread_per_row"]) == 0
    assert "page: trace-ladder.rmsnorm.run_thread_per_row.html" in capsys.readouterr().out


def test_the_source_has_the_width_of_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = {}
    for columns in (60, 120, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run_command(main, ["fill"]) == 0
        rows = [line for line in capsys.readouterr().out.splitlines() if " | " in line]
        longest[columns] = max(map(len, rows))
    assert longest[60] == longest[120] <= 120
    assert any(line.endswith("...") for line in rows) == (longest[200] == 200)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "what to trace?"),
        (["rmsnorm_forwrd", "--gallery", "x"], "no op or kernel 'rmsnorm_forwrd' (did you mean"),
        (["rmsnorm_forward", "--exit"], "unknown option '--exit'; see --help"),
        (["rmsnorm_forward", "--lines", "4000-5000"], "nothing that runs is there: normalise_rows is on lines "),
        (["rmsnorm_forward", "--out", "p.pdf"], "p.pdf is to be a page for a browser"),
        (["rmsnorm_forward", "--step", "--out", "p.html"], "--out does not go with --step"),
        (["rmsnorm_forward", "--step", "--lines", "1-60"], "--lines does not go with --step"),
        (["rmsnorm"], "nanoeuler.gpu.rmsnorm has rmsnorm_forward, rmsnorm_backward, normalise_rows"),
        (["--list", "quaternion"], "nothing of ours has 'quaternion' in its name"),
        (["rmsnrom_forward"], "did you mean 'rmsnorm_forward'"),
        (["rmsnorm_forward", "--shape", "X=3"], "has no 'X'; its letters are B (batch)"),
        (["rmsnorm_forward", "--shape", "N=1,C=100000000"], "too much for a trace"),
        (["rmsnorm_forward", "--shpae", "B=1"], "did you mean '--shape'"),
        (["rmsnorm_forward", "--card", "RTX 9999"], "no card 'RTX 9999'"),
        (["rmsnorm_forward", "--block", "x"], "'x' is no block: write X, X,Y or X,Y,Z"),
        (["rmsnorm_forward", "--block", "12"], "block (12,) is not in the grid"),
        (["rmsnorm_forward", "--warp", "1"], "warp 1 is not in a block of 32 threads"),
        (["rmsnorm_forward", "--warp", "-1"], "not a whole number of at least 0"),
        (["rmsnorm_forward", "--lines", "9-3"], "are no lines"),
        (["rmsnorm_forward", "--dtype", "float16"], "invalid choice"),
        (["rmsnorm_forward", "--kernel", "add"], "--kernel is for a script's kernels"),
        (["rmsnorm_forward", "--again"], "--again is for --gallery"),
        (["rmsnorm_forward", "--", "5"], "what follows -- is for a script"),
        (["missing.py"], "missing.py: there is no such file"),
        (["missing.py", "--shape", "B=1"], "--shape is for our own ops"),
        (["notes.ipynb"], "is a notebook: make a script of it first"),
        (["--gallery", "x", "--warp", "0"], "--warp is for a single launch"),
        (["--gallery", "x", "--block", "1"], "--block is for a single launch"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert run_command(main, arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not list(folder.iterdir())


def test_a_launch_that_is_too_long_says_how_to_choose_less(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanoeuler.simt.traced.part.FEW", 1000)
    monkeypatch.setattr("nanoeuler.simt.traced.part.MOST", 1000)
    assert run_command(main, ["ladder.linear:naive"]) == 2
    err = capsys.readouterr().err
    assert "error: the trace has more than 1,000 records: take --warp 0, --lines A-B, smaller arrays" in err


def test_a_launch_of_a_script_that_is_too_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nanoeuler.simt.traced.part.FEW", 20)
    monkeypatch.setattr("nanoeuler.simt.traced.part.MOST", 20)
    assert run_command(main, [write(SCRIPT)]) == 2
    err = capsys.readouterr().err
    assert (
        err == "error: script.py:25: the trace has more than 20 records: take --lines A-B, smaller arrays (--shape)\n"
    )


def test_a_page_that_cannot_be_written(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    write("", "file")
    assert run_command(main, ["accumulate", "--out", "file/page.html"]) == 2
    assert "error: file/page.html: cannot write it" in capsys.readouterr().err
    assert [p.name for p in folder.iterdir()] == ["file"]


@pytest.mark.parametrize("out", ["", ".", "/"])
def test_a_page_needs_a_name(capsys: pytest.CaptureFixture[str], folder: Path, out: str) -> None:
    assert run_command(main, ["accumulate", "--out", out]) == 2
    assert f"'{out}' is a folder: give a file" in capsys.readouterr().err
    assert not list(folder.iterdir())


def test_without_numba(capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "from nanoeuler.errors import run_command; from nanoeuler.trace import main\n"
        "sys.exit(run_command(main, ['rmsnorm_forward']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: running kernels takes Numba: in nanoeuler's folder, python -m pip install")


def test_help_needs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    for option in ("--shape", "--kernel", "--launch", "--block", "--warp", "--lines", "--card", "--gallery", "--step"):
        assert option in out


# Scripts


def test_a_script(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    name = write(SCRIPT)
    assert run_command(main, [name]) == 0
    out = capsys.readouterr().out
    assert "add (script.py:7), grid (2, 1, 1), block (32, 1, 1)" in out
    assert "double (script.py:14)" in out
    assert f"sum {2 * 4 * 780.0} []" in out
    assert out.endswith("page: trace-script.html\n")
    page = Path("trace-script.html").read_text()
    assert "Adds and doubles." in page
    assert "Add two vectors." in page
    assert str(folder) not in page


def test_a_function_of_one_line_is_listed_too(capsys: pytest.CaptureFixture[str]) -> None:
    head, kernel = SCRIPT.split("@cuda.jit", 1)
    function = "@cuda.jit(device=True)\ndef twice(v): return v + v\n\n"
    name = write(f"{head}{function}@cuda.jit{kernel}".replace("x[i] + y[i]", "twice(x[i])"))
    assert run_command(main, [name]) == 0
    assert "<code>twice</code> called, script.py, line 8" in Path("trace-script.html").read_text()


def test_two_runs_write_the_same_page() -> None:
    """Also where Python orders sets otherwise."""
    name, pages = write(SCRIPT), []
    for seed in "1", "2":
        command = [sys.executable, "-m", "nanoeuler.trace", name, "--out", "p.html"]
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True)
        pages.append(Path("p.html").read_bytes())
    assert pages[0] == pages[1]


def test_the_kernel_and_the_launch_of_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    name = write(SCRIPT)
    assert run_command(main, [name, "--kernel", "add", "--launch", "2", "--out", "p.html", "--", "50", "x"]) == 0
    out = capsys.readouterr().out
    assert "double (" not in out
    assert "loads again" not in out  # as in the first, which adds x to x
    assert "launch 2 of add (--launch N takes another)\n" in out
    assert out.splitlines()[-3:] == ["sum 9800.0 ['50', 'x']", "launched: add 3 times, double once", "page: p.html"]


def test_pages_of_other_kernels_and_launches_have_other_names(folder: Path) -> None:
    name = write(SCRIPT)
    for options in (["--kernel", "add"], ["--kernel", "double"], ["--kernel", "add", "--launch", "2"], []):
        assert run_command(main, [name, *options]) == 0
    pages = sorted(path.name for path in folder.glob("*.html"))
    assert pages == [
        *("trace-script-add-launch-2.html", "trace-script-add.html", "trace-script-double.html", "trace-script.html"),
    ]


def test_the_columns_are_explained_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, [write(SCRIPT)]) == 0
    out = capsys.readouterr().out
    assert out.count("times: how often a warp came to the line.") == 1
    assert out.count(" line   times lanes ") == 2


def test_lines_choose_the_kernels_of_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, [write(SCRIPT), "--lines", "14-17"]) == 0
    out = capsys.readouterr().out
    assert "double (script.py:14)" in out
    assert "add (script.py" not in out


STOPPING = SCRIPT.replace(
    "    if i < out.size:", "    if i == 5:\n        breakpoint()\n        print('here')\n    if i < out.size:"
)


@pytest.mark.parametrize(
    ("options", "heard"),
    [([], 1), (["--launch", "2", "--kernel", "add"], 1), (["--block", "0"], 1), (["--block", "1"], 0), (["--step"], 1)],
)
def test_a_breakpoint_stops_once_for_a_launch(
    options: list[str], heard: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the kernel runs for a page, and in no launch that is not traced."""
    stops: list[str] = []
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(sys._getframe(1).f_code.co_name))
    assert run_command(main, [write(STOPPING), "--kernel", "add", *options]) == 0
    assert stops == ["add"] * heard
    monkeypatch.undo()
    assert sys.breakpointhook.__name__ != "<lambda>"


def test_what_a_kernel_prints_is_read_once_for_a_launch(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, [write(STOPPING.replace("breakpoint()", "pass").replace("(3)", "(1)"))]) == 0
    assert capsys.readouterr().out.splitlines().count("here") == 1


def test_a_breakpoint_stops_once_where_a_launch_turns_out_long(monkeypatch: pytest.MonkeyPatch) -> None:
    stops: list[int] = []
    monkeypatch.setattr("nanoeuler.simt.traced.part.FEW", 200)
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(1))
    assert run_command(main, [write(STOPPING), "--kernel", "add"]) == 0
    assert len(stops) == 1


def test_of_a_large_launch_of_a_script_a_block_is_traced_and_all_of_it_run(capsys: pytest.CaptureFixture[str]) -> None:
    name = write(SCRIPT)
    assert run_command(main, [name, "--kernel", "add", "--", "20000"]) == 0
    out = capsys.readouterr().out
    assert "traced: block (0, 0, 0) of 625" in out
    total = 4 * np.arange(20000.0).sum() + 4 * np.arange(32.0).sum()
    assert float(re.search(r"sum (\S+)", out)[1]) == pytest.approx(total, rel=1e-6)


def test_a_fault_is_told_first_and_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    name = write(SCRIPT.replace("if i < out.size:", "if True:"))
    assert run_command(main, [name, "--kernel", "add"]) == 1
    out = capsys.readouterr().out
    assert "FAULT" in out
    assert "out of bounds" in out
    page = Path("trace-script-add.html").read_text()
    assert page.index('role="alert"') < page.index('class="tiles"')


def test_a_script_that_fails_still_gives_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    name = write(SCRIPT + "raise ValueError('mine')\n")
    assert run_command(main, [name]) == 1
    captured = capsys.readouterr()
    assert "ValueError: mine" in captured.err
    assert "runpy" not in captured.err
    assert "page: trace-script.html" in captured.out
    assert run_command(main, [write(SCRIPT + "sys.exit(7)\n")]) == 7


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (SCRIPT, ["--kernel", "ad"], "--kernel: no 'ad' was launched (did you mean 'add'?); launched were add, double"),
        (SCRIPT, ["--kernel", "add", "--launch", "4"], "--launch 4: add was launched 3 times"),
        (SCRIPT, ["--launch", "9"], "no kernel was launched 9 times: at most 3"),
        (SCRIPT, ["--launch", "0"], "'0' is not a whole number of at least 1"),
        (
            SCRIPT,
            ["--lines", "400-500"],
            "--lines 400-500: nothing that runs is there: add is on lines 7-12; double is",
        ),
        (
            SCRIPT,
            ["--out", "page.txt"],
            "--out: page.txt is to be a page for a browser: give a name that ends in .html",
        ),
        (SCRIPT, ["--out", "script.py/p.html"], "cannot write it: script.py is a file: give a folder"),
        (SCRIPT, ["--gallery", "pages"], "--gallery takes an op or a kernel of ours"),
        (SCRIPT, ["--block", "7"], "script.py:25: block (7,) is not in the grid (2, 1, 1)"),
        (SCRIPT, ["--kernel", "add", "--warp", "1"], "script.py:25: warp 1 is not in a block of 32 threads"),
        (SCRIPT, ["40"], "unknown option '40'; see --help"),
        (SCRIPT.partition("n = int")[0], [], "no kernel was launched (add, double, never): nothing to trace"),
        ("print(1)\n", [], "no kernel was launched: nothing to trace"),
        ("def f(:\n", [], "script.py:1: not Python"),
        (SCRIPT.replace("out[i] = x[i] + y[i]", "out[i] = open(x)"), [], "script.py:12: "),
    ],
)
def test_mistakes_with_scripts(
    text: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(main, [write(text), *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "--out" not in arguments or not captured.out  # nothing has run
    assert not Path("trace-script.html").exists()
    assert not Path("pages").exists()


def test_stepping_through_a_script(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert run_command(main, [write(SCRIPT), "--kernel", "add", "--step"]) == 0
    out = capsys.readouterr().out
    assert f"sum {2 * 4 * 780.0} []" in out  # the launch has been done once, not twice


# The gallery


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be two examples, and so two kernels."""
    kept = tuple(e for e in trace_examples.examples() if e.name in ("accumulate", "run_thread_per_row"))[:2]
    monkeypatch.setattr(trace_gallery, "examples", lambda: kept)


@pytest.mark.usefixtures("two")
def test_a_gallery(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, ["--gallery", "pages"]) == 0
    assert capsys.readouterr().out == "2 of 2 pages, 2 of them new: pages/index.html\n"
    names = sorted(p.name for p in Path("pages").iterdir())
    assert len(names) == 3
    assert names[:2] == ["accumulate-add.html", "index.html"]
    index = Path("pages/index.html").read_text()
    for name in names:
        assert name == "index.html" or f'href="{name}"' in index
    assert "data:image/png;base64," in index
    assert "Ladders" in index
    assert summary_of(Path("pages/accumulate-add.html").read_text())["grid"] == [3, 1, 1]


@pytest.mark.usefixtures("two")
def test_a_gallery_of_one_op_leaves_the_others_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, ["--gallery", "pages", "accumulate"]) == 0
    assert capsys.readouterr().out == "1 of 2 pages, 1 of them new: pages/index.html\n"
    assert "1 of 2 pages are still to be written" in Path("pages/index.html").read_text()
    run_command(main, ["--gallery", "pages"])
    assert "2 of 2 pages, 1 of them new" in capsys.readouterr().out
    run_command(main, ["--gallery", "pages", "accumulate:add", "--again"])
    assert "2 of 2 pages, 1 of them new" in capsys.readouterr().out


@pytest.mark.usefixtures("two")
def test_pages_that_are_up_to_date_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    pages = Path("pages")
    run_command(main, ["--gallery", "pages"])
    before, index = {p.name: p.stat().st_mtime_ns for p in pages.iterdir()}, (pages / "index.html").read_text()
    assert run_command(main, ["--gallery", "pages"]) == 0
    assert "2 of 2 pages, 0 of them new" in capsys.readouterr().out
    assert (pages / "index.html").read_text() == index
    assert before["accumulate-add.html"] == (pages / "accumulate-add.html").stat().st_mtime_ns
    os.utime(pages / "accumulate-add.html", (1, 1))  # older than the sources
    run_command(main, ["--gallery", "pages"])
    assert "1 of them new" in capsys.readouterr().out
    (pages / "accumulate-add.html").write_text("something else")
    run_command(main, ["--gallery", "pages"])
    assert "1 of them new" in capsys.readouterr().out
    run_command(main, ["--gallery", "pages", "--card", "T4"])  # otherwise made
    assert "2 of them new" in capsys.readouterr().out
    run_command(main, ["--gallery", "pages", "--card", "T4", "--again"])
    assert "2 of them new" in capsys.readouterr().out


@pytest.mark.usefixtures("two")
def test_an_interrupted_gallery_goes_on(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    written = trace_gallery.page

    def interrupted(*args: object, **how: object) -> str:
        if Path("pages/accumulate-add.html").exists():
            raise KeyboardInterrupt
        return written(*args, **how)

    monkeypatch.setattr(trace_gallery, "page", interrupted)
    assert run_command(main, ["--gallery", "pages"]) == 130
    captured = capsys.readouterr()
    assert "1 of 2 pages, 1 of them new" in captured.out
    assert "goes on from here" in captured.err
    assert "1 of 2 pages are still to be written" in Path("pages/index.html").read_text()
    assert sorted(p.name for p in Path("pages").iterdir()) == ["accumulate-add.html", "index.html"]
    monkeypatch.setattr(trace_gallery, "page", written)
    assert run_command(main, ["--gallery", "pages"]) == 0
    assert "2 of 2 pages, 1 of them new" in capsys.readouterr().out


def test_a_gallery_has_a_page_for_every_kernel_and_variant() -> None:
    found = trace_gallery.entries()
    assert len({e.file for e in found}) == len(found)
    assert {f"{e.example.module.split('.')[-1]}:{e.kernel}" for e in found} >= {
        "rmsnorm:normalise_rows", "linear:product", "linear:row_products", "rmsnorm:thread_per_row",
    }  # fmt: skip
    shown = {e.kernel for e in found}
    assert {address.split(":")[1] for address in trace_examples.kernels()} == shown
    assert sum(e.kernel == "product" for e in found) >= 3  # its operands are turned in three ways
    assert not any(e.example.about for e in trace_gallery.entries("bf16"))


def test_the_index_says_which_ops_launch_a_kernel() -> None:
    told = {entry.launched_by for entry in trace_gallery.entries()}
    assert "copy (heads)" in told
    assert any(text.startswith("linear_backward (feed-forward; head)") for text in told)
    assert any(text.startswith("rmsnorm_backward, layernorm_backward, ") for text in told)


def test_a_gallery_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(main, ["--gallery", write("", "x")]) == 2
    assert "x is a file: give a folder" in capsys.readouterr().err


@pytest.mark.slow
def test_control_c_ends_a_gallery_cleanly(folder: Path) -> None:
    command = [sys.executable, "-m", "nanoeuler.trace", "--gallery", "pages"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 120
    while not list(folder.glob("pages/*.html")) and time.monotonic() < limit:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "pages/index.html" in out
    assert "Traceback" not in err
    assert not [p.name for p in (folder / "pages").iterdir() if not p.name.endswith(".html")]
