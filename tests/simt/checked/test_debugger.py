"""``breakpoint()`` in a kernel: the debugger stops at that thread, knows its variables, and goes on over a barrier."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba import cuda, float32

from nanoeuler import simt

SCRIPT = """
import numpy as np
from numba import cuda, float32
from nanoeuler import simt

FACTOR = 3


@cuda.jit(device=True)
def times(v):
    w = v * float32(FACTOR)
    return w


@cuda.jit
def backwards(out, x):
    s = cuda.shared.array(4, float32)
    i = cuda.threadIdx.x
    if i == 2:
        breakpoint()
    s[i] = times(x[i])
    cuda.syncthreads()
    out[i] = s[3 - i]


x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
try:
    RUN
finally:
    print("out", out)
"""
CHECKED = 'simt.run(backwards, 1, 4, (out, x), executor="checked")'


LATE = SCRIPT.replace(
    "    out[i] = s[3 - i]", "    if i == 1:\n        breakpoint()\n    out[i] = s[3 - i]"
)  # behind the barrier too
TRACED = "simt.trace(backwards, 1, 4, (out, x))"


def debugged(
    folder: Path, run: str, commands: str, text: str = SCRIPT, by: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the script with ``run`` in it, the debugger's commands coming by its standard input."""
    script = folder / "script.py"
    script.write_text(text.replace("RUN", run))

    return subprocess.run(
        [sys.executable, *by, str(script)],
        input=commands,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


def test_it_stops_at_the_thread_and_shows_its_variables(tmp_path: Path) -> None:
    commands = "p i\np x[3], s[0]\np FACTOR\np cuda.threadIdx.x, cuda.blockDim.x, cuda.grid(1)\np x\nc\n"
    done = debugged(tmp_path, CHECKED, commands)
    assert done.stderr.splitlines() == ["kernel backwards, block (0, 0, 0), thread (2, 0, 0)"]
    told = done.stdout.replace("(Pdb) ", "").splitlines()
    assert told[0].startswith(f"> {tmp_path / 'script.py'}(21)backwards()")
    assert told[1:] == [
        "-> s[i] = times(x[i])",
        "np.int32(2)",
        "(np.float32(3.0), np.float32(0.0))",
        "3",
        "(2, 4, np.int64(2))",
        "x: float32[4]",
        "[0. 1. 2. 3.]",
        "out [9. 6. 3. 0.]",
    ]
    assert done.returncode == 0


def test_the_next_line_may_lie_behind_a_barrier(tmp_path: Path) -> None:
    done = debugged(tmp_path, CHECKED, "n\nn\np s[3]\nn\n")
    lines = [line for line in done.stdout.splitlines() if line.startswith("-> ")]
    assert lines == ["-> s[i] = times(x[i])", "-> cuda.syncthreads()", "-> out[i] = s[3 - i]"]
    assert "np.float32(9.0)" in done.stdout  # what another thread wrote meanwhile
    assert done.stdout.splitlines()[-1].endswith("out [9. 6. 3. 0.]")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_a_step_goes_into_a_device_function_and_not_into_ours(tmp_path: Path) -> None:
    done = debugged(tmp_path, CHECKED, "s\ns\ns\np w, FACTOR\nc\n")
    lines = [line for line in done.stdout.splitlines() if line.startswith("-> ")]
    assert lines[1:] == ["-> def times(v):", "-> w = v * float32(FACTOR)", "-> return w"]
    assert "(np.float32(6.0), 3)" in done.stdout


@pytest.mark.parametrize("run", ["trace", "step"])
def test_a_traced_kernel_stops_too(tmp_path: Path, run: str) -> None:
    done = debugged(tmp_path, f"simt.{run}(backwards, 1, 4, (out, x))", "p i\nc\n")
    assert "np.int32(2)" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("out [9. 6. 3. 0.]")


@pytest.mark.parametrize("run", [CHECKED, TRACED])
def test_behind_an_if_it_goes_on_to_the_next_line_and_at_its_end_to_the_next_thread(tmp_path: Path, run: str) -> None:
    done = debugged(tmp_path, run, "c\nn\n", LATE)
    lines = [line for line in done.stdout.splitlines() if line.startswith("-> ")]
    assert lines == ["-> s[i] = times(x[i])", "-> out[i] = s[3 - i]"]
    assert done.stdout.splitlines()[-1].endswith("out [9. 6. 3. 0.]")
    assert done.returncode == 0


def test_it_stops_under_pytest_whose_debugger_gives_the_terminal_back(tmp_path: Path) -> None:
    text = SCRIPT.partition("\n\nx, out =")[0] + (
        "\n\ndef test_it():\n    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)\n    RUN\n"
    )
    done = debugged(tmp_path, TRACED, "p i, x[3]\nc\n", text, by=("-m", "pytest", "-p", "no:cacheprovider", "-q"))
    assert "(np.int32(2), np.float32(3.0))" in done.stdout
    assert "1 passed" in done.stdout


def test_to_quit_ends_the_launch_and_leaves_arrays_as_they_were(tmp_path: Path) -> None:
    done = debugged(tmp_path, CHECKED, "q\n")
    assert done.stdout.splitlines()[-1].endswith("out [0. 0. 0. 0.]")
    assert "UserError: kernel backwards was left at a breakpoint: its arrays are as before it" in done.stderr
    assert "BdbQuit" not in done.stderr
    assert done.returncode == 1


def test_it_can_be_switched_off_and_another_debugger_be_named(tmp_path: Path) -> None:
    done = debugged(tmp_path, CHECKED, "", PYTHONBREAKPOINT="0")
    assert (done.stdout, done.stderr, done.returncode) == ("out [9. 6. 3. 0.]\n", "", 0)
    done = debugged(tmp_path, CHECKED, "", PYTHONBREAKPOINT="builtins.print")
    assert "thread (2, 0, 0)" in done.stderr
    assert done.stdout == "\nout [9. 6. 3. 0.]\n"


@cuda.jit
def stops(out):
    """Stop in two threads."""
    i = cuda.threadIdx.x
    if i % 2 == 1:
        breakpoint()
    out[i] = float32(i)


@cuda.jit
def stops_within(out):
    out[0] = breakpoint()


def test_a_hook_of_the_users_own_is_called_in_the_threads_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: seen.append(sys._getframe(1).f_locals["i"]))
    simt.run(stops, 1, 4, (np.zeros(4, np.float32),), executor="checked")
    assert seen == [1, 3]


def test_native_code_and_expressions_refuse_it_with_the_line() -> None:
    line = stops.py_func.__code__.co_firstlineno + 5
    with pytest.raises(
        simt.UnsupportedError, match=rf"test_debugger.py:{line}: breakpoint\(\).*simt.trace or simt.step"
    ):
        simt.run(stops, 1, 4, (np.zeros(4, np.float32),))
    with pytest.raises(simt.UnsupportedError, match=r"breakpoint\(\) within an expression"):
        simt.run(stops_within, 1, 4, (np.zeros(4, np.float32),), executor="checked")


def test_where_shows_the_kernel_and_the_script_alone(tmp_path: Path) -> None:
    done = debugged(tmp_path, CHECKED, "s\ns\nw\nc\n")
    stack = done.stdout[done.stdout.rindex("<module>") :]
    assert "backwards()" in stack
    assert "times()" in stack
    assert str(Path(simt.__file__).parent) not in done.stdout
