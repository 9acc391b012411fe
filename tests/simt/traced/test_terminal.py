"""The prompt: what it shows, what it understands, how it is left."""

import io
import os
import re
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="kernels are written with numba.cuda: python -m pip install -e '.[gpu]'")

from numba import cuda, float32, int32
from simt.traced.catalogue import CORRECT, FAULTY, traced

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.traced import terminal
from nanoeuler.simt.traced.screen import array_map, columns, flow, number, table
from nanoeuler.simt.traced.stepper import Stepper, step
from nanoeuler.simt.traced.terminal import selected


@cuda.jit
def tree(out, x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    half = 32
    while half > 8:
        if t < half:
            s[t] += pair(s, t + half)
        cuda.syncthreads()
        half //= 2
    cuda.atomic.add(out, 0, s[t])


@cuda.jit(device=True)
def pair(s, i):
    twice = s[i] * float32(2)
    return twice


@cuda.jit
def tiles(out):
    a = cuda.shared.array((16, 16), int32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    a[y, x] = x + y
    cuda.syncthreads()
    out[y, x] = a[x, y]


@cuda.jit
def lanes(out):
    t = cuda.threadIdx.x
    if t >= 3:
        return
    out[t] = cuda.shfl_sync(0b111, t, 0)


@cuda.jit
def waits(out):
    t = cuda.threadIdx.x
    if t < 2:
        cuda.syncthreads()
    out[t] = 1


@cuda.jit
def races(out):
    out[0] = cuda.threadIdx.x


def stepper(block=64):
    return step(tree, 1, block, (np.zeros(1, np.float32), np.arange(64, dtype=np.float32)))


@pytest.fixture
def talk(monkeypatch, capsys):
    """Return a function that sends lines to a stepper's prompt, and returns what follows each: the greeting first."""

    def send(at, *lines):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        at.interact()
        shown = capsys.readouterr().out
        assert all(len(line) <= 80 for line in shown.splitlines()), max(shown.splitlines(), key=len)
        assert "\x1b" not in shown
        parts = re.split(r"^\(step\) .*\n", shown, flags=re.MULTILINE)
        assert len(parts) == len(lines) + 1
        return [*parts[:-1], re.sub(r"\n\n$", "\n", parts[-1])]  # where the input ended a new line was begun

    return send


# Moves


def test_the_start(talk):
    (start,) = talk(stepper())
    assert start.splitlines()[0] == "tree: block (0, 0, 0) of 1, 26 steps. help lists the commands."
    assert "step 0 of 25, tree begins, 64 of 64 threads" in start
    assert re.search(r"^-> +\d+ \| def tree\(out, x\):$", start, re.MULTILINE)
    assert "warp 0  O###############################  32 of 32 lanes\nthread (0, 0, 0)\n" in start


def test_forward_and_back(talk):
    at = stepper()
    found = talk(at, "n", "next 2", "", "b", "back 3", "b", "b 4", "to 25", "n", "to 5", "n thread", "b w", "n 0")
    places = [m[1] if (m := re.search(r"^step (\d+) of", part, re.MULTILINE)) else None for part in found]
    assert places == ["0", "1", "3", "5", "4", "1", "0", None, "25", None, "5", "6", "5", None]
    assert found[7] == "this is step 0 of 25 already\n"
    assert found[9] == "this is step 25 of 25 already\n"


def test_other_debuggers_names(talk):
    at = stepper()
    found = talk(at, "s", "step 2", "bt")
    assert [part.splitlines()[1].split(",")[0] for part in found[1:3]] == ["step 1 of 25", "step 3 of 25"]
    assert found[3].startswith("tree, line ")


def test_what_a_condition_is(talk):
    at = stepper()
    inside = next(s.number for s in at.steps.list if at.trace.source_line(s.line).strip() == "if t < half:")
    found = talk(at, f"to {inside}", "thread 40", "n", "to 1")
    assert "true    TTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT  32 of 32\n" in found[1]
    assert "thread (0, 0, 0)  finds it true\n" in found[1]
    assert "true    ffffffffffffffffffffffffffffffff  0 of 32\n" in found[2]
    assert "thread (40, 0, 0)  finds it false\n" in found[2]
    assert "finds it" not in found[3] + found[4]


def test_barriers(talk):
    at = stepper()
    stops = [s.number for s in at.steps.list if s.barrier]
    found = talk(at, "barrier", "barrier", "barrier back", "barrier b", "barrier up")
    assert [re.search(r"^step (\d+)", part, re.MULTILINE)[1] for part in found[:-1]] == [
        *("0", str(stops[0]), str(stops[1]), str(stops[0]), "0")
    ]
    assert "barrier, 64 of 64 threads" in found[1]
    assert "passes syncthreads" in found[1]
    assert found[-1] == "barrier up: it is 'barrier' or 'barrier back'\n"


def test_playing_to_the_end(talk):
    at = stepper()
    (_, shown, _) = talk(at, "play 0", "q")
    assert [int(n) for n in re.findall(r"^step (\d+) of", shown, re.MULTILINE)] == list(range(1, 26))
    found = talk(stepper(), "play -1", "play fast", "play nan", "play 1e9")
    assert all(part.startswith("play ") and "give the seconds" in part for part in found[1:])


def test_ctrl_c_ends_playing_and_then_the_prompt(monkeypatch, capsys):
    def interrupt(seconds):
        assert seconds == 0.5
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    at = stepper()
    monkeypatch.setattr(sys, "stdin", io.StringIO("play\np t\n"))
    at.interact()
    assert at.position == 1
    shown = capsys.readouterr().out
    assert "(step) p t\n" in shown  # the prompt goes on

    monkeypatch.setattr(sys.stdin, "readline", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    at.interact()


# What is shown


def test_a_thread_and_its_deeds(talk):
    at = stepper()
    write = next(s.number for s in at.steps.list if s.kind == "return")
    _, found, lane, other = talk(at, f"to {write}", "thread 3", "thread 40")
    assert "tree goes on after the call, 32 of 64 threads" in found
    assert "thread (0, 0, 0)  writes s[0] = 64.0\n" in found
    assert "warp 0  ###O############################  32 of 32 lanes" in lane
    assert "  reads" not in lane  # it was read before the call
    assert "  t = 3  half = 32\n" in lane
    assert "warp 1  ........o.......................  0 of 32 lanes" in other
    assert re.search(r"thread \(40, 0, 0\) waits: it has done line \d+", other)


def test_variables_that_are_new_are_marked(talk):
    at = stepper()
    assert "  *t = 0\n" in talk(at, "to 2")[1]
    assert "  t = 0\n" in talk(at, "n")[1]


def test_a_thread_that_has_ended(talk):
    at = step(lanes, 1, 4, (np.zeros(3, np.int64),))
    found = talk(at, "to 4", "thread 3", "thread 1")
    assert "passes shfl_sync, gives 1, gets 0 from lane 0" in found[3]
    assert re.search(r"thread \(3, 0, 0\) has ended, in line \d+", found[2])
    assert "warp 0  ###o  3 of 4 lanes" in found[2]


def test_a_thread_that_waits_in_vain(talk):
    at = Stepper(simt.trace(waits, 1, 4, (np.zeros(4, np.int64),), variables=True))
    found = talk(at, "n 99", "thread 3", "b 2")
    assert re.search(r"thread \(0, 0, 0\) waits in vain, in line \d+", found[1])
    assert "thread (3, 0, 0)  writes out[3] = 1" in found[2]
    at.choose(0)
    assert "waits in vain at syncthreads" in talk(at, "barrier")[1]


def test_shared_arrays_fill(talk):
    at = stepper()
    load = next(s.number for s in at.steps.list if s.barrier) - 1
    before, after = talk(at, f"to {load - 1}", "n")[1:]
    assert before.endswith("shared s, float32 [64]: nothing written\n")
    rows = after.splitlines()[after.splitlines().index("shared s, float32 [64]: all written") + 1 :]
    assert [int(n) for row in rows for n in row.split("]")[1].split()] == list(range(64))

    at = step(tiles, 1, (16, 16), (np.zeros((16, 16), np.int32),))
    written = talk(at, "to 3", "thread 0,4")[2]
    rows = written.splitlines()[-8:]  # two rows of the array each
    assert rows == ["  " + ("w" if n == 2 else "#") * 16 for n in range(8)]
    read = talk(at, "barrier", "n")[2].splitlines()[-8:]
    assert read == ["  " + "#" * 4 + "rr" + "#" * 10] * 8


def test_faults_are_told_first(talk):
    at = step(races, 1, 33, (np.zeros(1, np.int64),))
    greeting = talk(at)[0].splitlines()
    assert greeting[1].startswith("race, line ")
    assert any("a GPU may do otherwise" in line for line in greeting)


# What can be asked for


def test_printing(talk):
    at = stepper()
    at.to(len(at.steps) - 1)
    at.choose(2)
    asked = "half", "x[3]", "s[t]", "s[t : t + 2]", "s[-1]", "out", "", "foo", "s[99]", "s[t", "s[f(1)]"
    found = talk(at, *(f"p {name}" for name in asked))[1:]
    assert found[0] == "half = 8\n"
    assert found[1] == "x[3] = 3.0\n"
    assert found[2] == "s[t] = 306.0\n"
    assert found[3].endswith("            306 315\n")
    assert found[4] == "s[-1] = 63.0\n"
    assert found[5].startswith("out: float32 [1]\n")
    assert found[6].startswith("what is ''? There is ")
    assert found[7] == "what is 'foo'? There is out, x, s, t, half\n"
    assert "out of bounds" in found[8]
    assert found[9].startswith("[t: ")
    assert "is no index" in found[10]


def test_printing_what_nothing_wrote(talk):
    at = stepper()
    found = talk(at, "p s[3]", "p s[:2]")
    assert found[1] == "s[3] = not written yet\n"
    assert found[2].endswith("            . .\n")


def test_variables_of_functions_around_are_known(talk):
    at = stepper()
    inside = next(s.number for s in at.steps.list if s.function == "pair" and s.kind == "statement")
    found = talk(at, f"to {inside}", "p twice", "p half", "where", "p i")
    assert found[2:4] == ["twice = 64.0\n", "half = 32\n"]
    assert [line.strip().split(",")[0] for line in found[4].splitlines()] == ["tree", "pair"]
    assert found[5] == "i = 32\n"


def test_records_are_printed_field_by_field(talk):
    _, steps = traced("record_array")
    found = talk(Stepper(steps.trace), "p points.charge[1]", "p points[:2]")
    assert re.fullmatch(r"points\.charge\[1\] = -?\d+\n", found[1])
    assert [line.split(":")[0] for line in found[2].splitlines() if "points" in line] == [
        *("points.position[0][", "points.position[1][", "points.position[2][", "points.charge[", "points.fixed[")
    ]


def test_locals_of_all_lanes(talk):
    at = stepper()
    add = next(s.number for s in at.steps.list if s.kind == "return")
    rows = [line.split() for line in talk(at, f"to {add}", "locals")[2].splitlines()]
    assert rows[0] == ["lane", "t", "half"]
    assert rows[1:] == [["#", str(t), str(t), "32"] for t in range(32)]
    rows = talk(at, "warp 1", "locals")[2].splitlines()
    assert rows[1].split() == [".", "0", "32", "32"]


def test_the_whole_function(talk):
    found = talk(stepper(), "list", "l")
    assert found[1] == found[2]
    assert len(found[1].splitlines()) == 13
    assert found[1].splitlines()[1].startswith("-> ")


def test_threads_and_warps(talk):
    at = step(tiles, 1, (16, 16), (np.zeros((16, 16), np.int32),))
    found = talk(at, "thread 3,5", "t (2, 1, 0)", "warp 7", "warp 8", "warp", "thread 16", "thread x", "thread")
    assert "thread (3, 5, 0)" in found[1]
    assert "thread (2, 1, 0)" in found[2]
    assert "thread (0, 14, 0)" in found[3]
    assert found[4] == "there is no warp 8: the block has 0 to 7\n"
    assert found[5] == "give the number of a warp: 0 has threads 0 to 31\n"
    assert found[6].startswith("thread (16,) is not in the block")
    assert found[7].startswith("'x' is no whole number: give a thread's x")
    assert found[8].startswith("give a thread's x")


def test_wrong_commands(talk):
    found = talk(stepper(), "nexxt", "ba", "to", "to 99", "n many", "?", "")
    assert found[1] == "no command 'nexxt' (did you mean 'next'?); help lists them\n"
    assert found[2] == "no command 'ba': back or barrier?; help lists them\n"
    assert found[3] == "give the number of a step, 0 to 25\n"
    assert found[4] == "there is no step 99: give 0 to 25\n"
    assert found[5] == "'many' is no whole number: give a number of steps, or 'thread', or 'warp'\n"
    assert found[6] == f"{terminal.HELP}\n"
    assert found[7].startswith("'many' is no whole number")  # the last move again


def test_quitting(talk):
    for word in ("q", "quit", "qu"):
        assert talk(stepper(), word)[1] == ""


@pytest.mark.parametrize("name", [*list(CORRECT)[::10], *list(FAULTY)[::10]])
def test_any_kernel_fits_in_80_columns(talk, name):
    _, steps = traced(name)
    at = Stepper(steps.trace)
    talk(at, "n", "n 3", "barrier", "locals", "where", "list", f"to {len(steps) // 2}", "locals")


# Pieces


def test_columns_below_each_other_where_they_do_not_fit():
    rows = [line for line, _ in columns(["lane", "aaaa", "bbbb", "cc"], [["# 0", "1", "2", "3"]], 10)]
    assert rows == ["lane  aaaa", " # 0     1", "lane  bbbb", " # 0     2", "lane  cc", " # 0   3"]
    assert [line for line, _ in columns(["lane"], [["# 0"]], 10)] == ["lane", " # 0"]


def test_words_flow():
    assert [line for line, _ in flow(["aa", "bb", "c" * 20], 10, "  ")] == ["aa  bb", "c" * 8]


def test_maps_of_arrays():
    nothing = np.zeros((16, 128), np.bool_)
    known = nothing.copy()
    known[:3] = True
    read = nothing.copy()
    read[0, 1] = True
    rows = array_map(known, read, nothing)
    assert rows == ["r" + "#" * 63, "+" * 64, *["." * 64] * 6]
    assert array_map(nothing[0, :70], nothing[0, :70], ~nothing[0, :70]) == ["w" * 64, "w" * 6 + " " * 58]
    assert array_map(~nothing[0, :3], nothing[0, :3], nothing[0, :3]) == ["###"]


def test_tables_of_arrays():
    array = np.ma.MaskedArray(np.arange(24).reshape(2, 3, 4), np.arange(24).reshape(2, 3, 4) == 5)
    rows = [line for line, _ in table(array, 80)]
    assert rows[:2] == ["    [0, 0]   0  1  2  3", "    [0, 1]   4  .  6  7"]
    assert len(rows) == 6
    many = [line for line, _ in table(np.arange(10_000), 80)]
    assert many[1].startswith("      [13]")
    assert len(many) == 25
    assert "[4:8]" in many[-1]


def test_numbers():
    values = (np.float32(1 / 3), np.float32(1e10), np.int64(-3), np.bool_(False), np.complex64(1 + 2j), np.float16(0.1))
    assert [number(v) for v in values] == ["0.3333", "1e+10", "-3", "False", "1+2j", "0.09998"]


@pytest.mark.parametrize("index", ["[__import__('os')]", "[(lambda: 0)()]", "[0].data", "[x.y]", "[[1]]", "[1", "[y]"])
def test_an_index_can_do_nothing_else(index):
    with pytest.raises(UserError):
        selected(np.ma.MaskedArray(np.zeros(3)), index, {"x": 1})


# In a real terminal

SCRIPT = """
    import numpy as np
    from numba import cuda
    from nanoeuler.simt.traced.stepper import step

    @cuda.jit
    def double(out, x):
        i = cuda.grid(1)
        out[i] = x[i] + x[i]

    out = np.zeros(3)
    print(step(double, 1, 3, (out, np.arange(3.0))))
    print("left", out)
"""


def test_the_prompt_opens_in_a_terminal(tmp_path):
    pty = pytest.importorskip("pty", reason="pseudo-terminals are for Unix")
    script = tmp_path / "double.py"
    script.write_text(textwrap.dedent(SCRIPT))
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    process = subprocess.Popen(
        [sys.executable, script], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    )
    os.close(theirs)
    os.write(ours, b"n\nn\nthread 2\np out\nq\n")
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux says that the other side has closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.wait(60) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert b"\x1b[" in shown  # colours
    assert "(step) " in text
    assert "thread (2, 0, 0)  reads x[2] == 2.0  reads x[2] == 2.0  writes out[2] = 4.0" in text
    assert "<Stepper of double: step 2 of 2, line 9>" in text
    assert "left [0. 2. 4.]" in text


def test_a_script_whose_input_is_a_pipe_goes_on(tmp_path):
    script = tmp_path / "double.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run([sys.executable, script], input="n\n", capture_output=True, text=True, check=True)
    assert done.stdout == "<Stepper of double: step 0 of 2, line 7>\nleft [0. 2. 4.]\n"
