"""``check`` runs scripts as users have them: silent on good ones, faults with lines, exit codes, the last words."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from simt.kernels.toolkit import need_toolkit

from nanoeuler.errors import UserError, run_command
from nanoeuler.simt.__main__ import main

SCRIPTS = Path(__file__).parent / "scripts"
GOOD = {
    "vector_add": ("sum 4000.0", "2 kernels found, 2 launched: 3 launches, 2,176 threads"),
    "matrix_multiply": ("product (11, 9)", "1 kernel found, 1 launched: 1 launch, 256 threads"),
    "reduction": ("sum 44850", "3 kernels found, 3 launched: 4 launches, 896 threads"),
    "histogram": ("counts [48 53 58 52 48 46 51 46 49 49]", "1 kernel found, 1 launched: 1 launch, 96 threads"),
    "laplace": ("middle True", "1 kernel found, 1 launched: 30 launches, 7,680 threads"),
    "sessions": ("sessions [0, 0, 2, 3, 3, 5, 6, 6]", "2 kernels found, 2 launched: 2 launches, 16 threads"),
    "monte_carlo": ("pi is about 3.16", "1 kernel found, 1 launched: 1 launch, 64 threads"),
}
FAULTY = ["faulty_reduction", "faulty_histogram", "faulty_stencil", "faulty_barrier", "faulty_import"]


def marked(script: str) -> set[tuple[str, int]]:
    """Return (kind, line) of each fault that the comments of a script announce."""
    lines = (SCRIPTS / f"{script}.py").read_text().splitlines()
    return {
        (kind.strip(), number)
        for number, line in enumerate(lines, 1)
        if "# fault:" in line
        for kind in line.split("# fault:")[1].split(",")
    }


def told(output: str) -> set[tuple[str, int]]:
    """Return (kind, line) of each fault in an output."""
    return {
        (kind, int(line)) for kind, line in re.findall(r"^([a-z0-9 ]+) in kernel \w+, \w+\.py:(\d+): ", output, re.M)
    }


@pytest.fixture
def write(tmp_path: Path):
    """Return a function that writes a script and gives its path."""

    def write(text: str, name: str = "script.py") -> str:
        path = tmp_path / name
        path.write_text("import numpy as np\nfrom numba import cuda\n" + text)
        return str(path)

    return write


KERNEL = """
@cuda.jit
def kernel(x):
    x[cuda.grid(1)] = 1
"""


@pytest.mark.parametrize("script", GOOD)
def test_a_good_script_gets_no_report(script: str, capsys: pytest.CaptureFixture) -> None:
    printed, summary = GOOD[script]
    assert main(["check", str(SCRIPTS / f"{script}.py")]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0] == printed
    assert output[1].startswith(summary)
    assert output[-1] == "no fault found"


@pytest.mark.parametrize("order", ["reverse", "random"])
def test_a_good_script_is_good_in_any_order(order: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["check", "--order", order, "--seed", "3", str(SCRIPTS / "reduction.py")]) == 0
    assert capsys.readouterr().out.startswith("sum 44850\n")


@pytest.mark.parametrize("script", FAULTY)
def test_each_fault_of_a_script_is_found_with_its_line(script: str, capsys: pytest.CaptureFixture) -> None:
    sys.modules.pop("stencil_kernels", None)
    assert main(["check", str(SCRIPTS / f"{script}.py"), "12"]) == 1
    expected = marked("stencil_kernels" if script == "faulty_import" else script)
    output = capsys.readouterr().out
    assert told(output) == expected
    assert f"\n{len(expected)} fault" in output


def test_the_report_of_a_race_shows_both_threads(capsys: pytest.CaptureFixture) -> None:
    main(["check", str(SCRIPTS / "faulty_reduction.py")])
    output, _, after = capsys.readouterr().out.partition("went on\n")
    assert output == (
        "race in kernel total, faulty_reduction.py:19: thread 1 writes s[1], which thread 0 reads at line 19, and "
        "nothing orders the two\n"
        "  1 block (0, 0, 0), thread (0, 0, 0) reads\n"
        "  2 block (0, 0, 0), thread (1, 0, 0) writes\n"
        "         17 | while half > 0:\n"
        "         18 |     if t < half:\n"
        "  1 2    19 |         s[t] += s[t + half]  # fault: race\n"
        "         20 |     half //= 2\n"
        "         21 | if t == 0:\n"
        "  what to do: put cuda.syncthreads() between the two accesses (cuda.syncwarp() inside a warp), or use an "
        "atomic\n\n"
    )
    pattern = r"1 kernel found, 1 launched: 1 launch, 64 threads, checked executor, [\d.]+ s\n1 fault: race 1\n"
    assert re.fullmatch(pattern, after)


def test_a_script_finds_its_arguments_and_its_neighbours(capsys: pytest.CaptureFixture) -> None:
    sys.modules.pop("stencil_kernels", None)
    argv, path, main_module = sys.argv, list(sys.path), sys.modules["__main__"]
    assert main(["check", str(SCRIPTS / "faulty_import.py"), "31", "--order", "of its own"]) == 1
    output = capsys.readouterr().out
    assert "ran ['31', '--order', 'of its own'] __main__" in output
    assert "never launched: idle" in output
    assert (sys.argv, sys.path, sys.modules["__main__"]) == (argv, path, main_module)


def test_a_script_that_launches_nothing(write, capsys: pytest.CaptureFixture) -> None:
    assert main(["check", str(SCRIPTS / "stencil_kernels.py")]) == 0
    output = capsys.readouterr().out
    assert output.startswith("2 kernels found, 0 launched")
    assert (
        'no kernel was launched (shifted, idle): call it in the file, for example under if __name__ == "__main__"'
        in (output)
    )
    assert "no fault" not in output
    assert main(["check", write("print('nothing')")]) == 0
    assert "nothing in the file is decorated with @cuda.jit" in capsys.readouterr().out


def test_a_kernel_used_as_a_device_function_counts_as_launched(write, capsys: pytest.CaptureFixture) -> None:
    text = KERNEL + "\n@cuda.jit\ndef outer(x):\n    kernel(x)\n\nouter[1, 4](np.zeros(4))\n"
    assert main(["check", write(text)]) == 0
    assert "never launched" not in capsys.readouterr().out


def test_each_fault_is_told_once_and_later_launches_run_unwatched(write, capsys: pytest.CaptureFixture) -> None:
    text = KERNEL + "\nfor n in (3, 3, 3, 3, 4, 8): kernel[1, 8](np.zeros(n))\n"
    assert main(["check", "--limit", "2", write(text)]) == 1
    output = capsys.readouterr().out
    assert output.count("out of bounds in kernel kernel, script.py:6") == 1
    assert output.endswith("1 fault: out of bounds 1\n")
    assert "2 launches ran unwatched: of one kernel with the same shapes the first 2 are watched" in output
    assert main(["check", "--limit", "all", write(text)]) == 1
    assert "unwatched" not in capsys.readouterr().out


def test_float64_can_be_allowed(write, capsys: pytest.CaptureFixture) -> None:
    text = "\n@cuda.jit\ndef half(x):\n    x[cuda.grid(1)] *= 0.1\n\nhalf[1, 4](np.zeros(4, np.float32))\n"
    assert main(["check", write(text)]) == 1
    assert told(capsys.readouterr().out) == {("float64", 6)}
    assert main(["check", "--allow-float64", write(text)]) == 0


@pytest.mark.parametrize(
    ("text", "code", "error"),
    [
        ("import sys\nsys.exit(3)", 3, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit('the end')", 1, "the end\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        (KERNEL + "\nkernel[1, 4](np.zeros(1))\nraise SystemExit(0)", 1, ""),
    ],
)
def test_exit_codes(text: str, code: int, error: str, write, capsys: pytest.CaptureFixture) -> None:
    assert main(["check", write(text)]) == code
    captured = capsys.readouterr()
    assert captured.err.endswith(error)
    assert "found" in captured.out


def test_the_traceback_of_a_script_shows_its_own_frames(write, capsys: pytest.CaptureFixture) -> None:
    path = write(KERNEL + "\ndef go():\n    kernel[1.5, 4](np.zeros(4))\n\ngo()\n")
    assert main(["check", path]) == 1
    error = capsys.readouterr().err
    assert "griddim must be a sequence of integers, got [1.5]" in error
    assert re.findall(r'File "(.*)", line (\d+)', error) == [(path, "11"), (path, "9")]


def test_an_interrupt_ends_with_the_summary(write, capsys: pytest.CaptureFixture) -> None:
    assert main(["check", write(KERNEL + "\nkernel[1, 4](np.zeros(1))\nraise KeyboardInterrupt")]) == 130
    output = capsys.readouterr().out
    assert "interrupted: this is what was found so far" in output
    assert output.endswith("1 fault: out of bounds 1\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import numba\nnumba.vectorize(['float32(float32)'], target='cuda')(lambda x: x)",
            r"script\.py:4: .*target 'cuda'",
        ),
        ("cuda.declare_device('dot', 'float32(float32)')", r"script\.py:3: the foreign function 'dot'"),
        (
            "\n@cuda.jit\ndef kernel(x):\n    x[0] = [1, 2]\n\ntry:\n    kernel[1, 1](np.zeros(1))\n"
            "except Exception:\n    pass\n",
            r"script\.py:6: `\[1, 2\]`",
        ),
    ],
)
def test_what_is_not_supported_is_named_with_its_line(text: str, message: str, write, capsys) -> None:
    assert run_command(main, ["check", write(text)]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_waiting_for_the_grid_is_not_supported(capsys: pytest.CaptureFixture) -> None:
    assert run_command(main, ["check", str(SCRIPTS / "grid_sync.py")]) == 2
    captured = capsys.readouterr()
    assert "grid_sync.py:9: cuda.cg.this_grid" in captured.err
    assert captured.out.endswith("no fault found, as far as it ran\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such file"),
        (b"def f(:\n", r"script.py:1: not Python: .*\n    def f\(:"),
        (b"\x00\x01", "not a? ?Python"),
        (b"x = '\xff'\n", "not Python"),
    ],
)
def test_a_file_that_cannot_be_run(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        main(["check", str(path)])


def test_a_folder_and_a_notebook_are_no_scripts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        main(["check", str(tmp_path)])
    with pytest.raises(UserError, match="nbconvert --to script"):
        main(["check", "lesson.ipynb"])


@pytest.mark.parametrize("options", ["", "--limit 0 x.py", "--order up x.py", "--limits 3 x.py"])
def test_wrong_options_end_with_2(options: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as end:
        main(["check", *options.split()])
    assert end.value.code == 2
    assert "usage: python -m nanoeuler.simt check" in capsys.readouterr().err


def test_the_commands_are_listed(capsys: pytest.CaptureFixture) -> None:
    assert main([]) is None
    assert "check   runs a script" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"unknown command 'chek' \(did you mean 'check'\?\)"):
        main(["chek"])


def test_the_compiled_executor(write, capsys: pytest.CaptureFixture) -> None:
    assert main(["check", "--executor", "compiled", write(KERNEL + "\nkernel[1, 4](np.zeros(3))\n")]) == 1
    output = capsys.readouterr().out
    assert "out of bounds in kernel kernel" in output
    assert "compiled executor" in output


def test_the_ptx_executor_runs_what_numba_cuda_compiles(capsys: pytest.CaptureFixture) -> None:
    need_toolkit()
    for script in ("monte_carlo", "matrix_multiply"):
        assert main(["check", "--executor", "ptx", str(SCRIPTS / f"{script}.py")]) == 0
        assert capsys.readouterr().out.startswith(GOOD[script][0])


# As the user starts it


def run(*arguments: str, folder: Path = SCRIPTS) -> subprocess.CompletedProcess:
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "nanoeuler.simt", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_as_a_command_a_faulty_script_ends_with_1() -> None:
    done = run("check", "faulty_import.py", "9")
    assert done.returncode == 1
    assert done.stderr == ""
    assert told(done.stdout) == marked("stencil_kernels")


def test_as_a_command_a_script_for_the_stock_simulator_runs(tmp_path: Path) -> None:
    text = "import os\nos.environ['NUMBA_ENABLE_CUDASIM'] = '1'\nimport numpy as np\nfrom numba import cuda\n"
    (tmp_path / "script.py").write_text(text + KERNEL + "\nx = np.zeros(4)\nkernel[1, 4](x)\nprint(x.sum())\n")
    done = run("check", "script.py", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("4.0\n1 kernel found")


def test_as_a_command_errors_go_to_stderr() -> None:
    done = run("check", "grid_sync.py")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "grid_sync.py:9" in done.stderr


def test_a_fault_is_told_before_its_launch_has_ended(write) -> None:
    """A Ctrl-C in a long launch loses nothing of what was found."""
    path = write("""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
@cuda.jit
def kernel(x):
    if cuda.blockIdx.x == 0:
        x[99] = 1
    for _ in range(100000000):
        x[0] += 1

kernel[1, 1](np.zeros(1))
""")
    command = [sys.executable, "-m", "nanoeuler.simt", "check", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("out of bounds in kernel kernel, script.py:9: ")
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "interrupted: this is what was found so far" in rest
    assert "1 fault: out of bounds 1" in rest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_faults_in_forked_processes_count(write) -> None:
    path = write("""
import os
@cuda.jit
def kernel(x):
    x[cuda.grid(1) + 1] = 1

child = os.fork()
if child == 0:
    kernel[1, 4](np.zeros(4))
    os._exit(0)
os.waitpid(child, 0)
""")
    done = run("check", path)
    assert done.returncode == 1
    assert "in processes that the script started: 1 launch, 1 fault" in done.stdout


def test_silence_of_an_executor_that_does_not_watch_is_no_proof(write) -> None:
    done = run("check", "--executor", "compiled", write(KERNEL + "\nkernel[1, 4](np.zeros(4))\n"))
    assert done.returncode == 0
    assert "no fault found; the compiled executor does not look for races" in done.stdout


def test_a_kernel_that_returns_a_value_is_refused(write) -> None:
    done = run("check", write("\n@cuda.jit\ndef kernel(x):\n    return x[0]\n\nkernel[1, 1](np.zeros(1))\n"))
    assert done.returncode == 2
    assert "script.py:6: a kernel that returns a value cannot be run here" in done.stderr
