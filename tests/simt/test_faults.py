"""Faults in words and pictures: the threads that met, one above the other, and their lines of source."""

from pathlib import Path

import pytest

from nanoeuler.simt.faults import OUT_OF_BOUNDS, RACE, Fault, KernelFaults, Party, picture

SOURCE = "".join(f"    line {n}\n" for n in range(1, 31))


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return the path of a file with thirty lines, all indented."""
    path = tmp_path / "kernels.py"
    path.write_text(SOURCE)
    return str(path)


def fault(file: str | None, *parties: Party) -> Fault:
    """Return a fault that these threads met, the last one to come first."""
    return Fault(RACE if len(parties) > 1 else OUT_OF_BOUNDS, "it is wrong", "kernel", file, parties)


def party(thread: int, line: int | None, action: str = "reads", file: str | None = None) -> Party:
    return Party((0, 0, 0), (thread, 0, 0), line, action, file)


def test_one_thread(file: str) -> None:
    assert picture(fault(file, party(3, 10))) == [
        "  > block (0, 0, 0), thread (3, 0, 0) reads",
        "          8 | line 8",
        "          9 | line 9",
        "  >      10 | line 10",
        "         11 | line 11",
        "         12 | line 12",
    ]


def test_two_threads_far_apart_the_first_to_come_on_top(file: str) -> None:
    assert picture(fault(file, party(3, 20, "writes"), party(4, 1))) == [
        "  1 block (0, 0, 0), thread (4, 0, 0) reads",
        "  2 block (0, 0, 0), thread (3, 0, 0) writes",
        "  1       1 | line 1",
        "          2 | line 2",
        "          3 | line 3",
        "            ...",
        "         18 | line 18",
        "         19 | line 19",
        "  2      20 | line 20",
        "         21 | line 21",
        "         22 | line 22",
    ]


def test_two_threads_on_one_line(file: str) -> None:
    assert picture(fault(file, party(3, 30), party(4, 30)))[-1] == "  1 2    30 | line 30"


def test_two_files_have_their_names(file: str, tmp_path: Path) -> None:
    other = tmp_path / "devices.py"
    other.write_text("only\n")
    lines = picture(fault(file, party(3, 5), party(4, 1, file=str(other))))
    assert lines[2:5] == ["  devices.py", "  1       1 | only", "  kernels.py"]


@pytest.mark.parametrize("place", [(None, 3), ("<string>", 3), ("missing.py", 3), ("kernels.py", None)])
def test_without_source_there_are_the_threads(place: tuple[str | None, int | None]) -> None:
    assert picture(fault(place[0], party(1, place[1]))) == ["  > block (0, 0, 0), thread (1, 0, 0) reads"]
    assert picture(fault(place[0])) == []


def test_a_cell_of_a_notebook_has_no_name() -> None:
    assert " kernel, line 7 of its cell: it is wrong" in str(fault("/tmp/ipykernel_12/345.py", party(3, 7)))
    assert " kernel, unknown line: it is wrong" in str(fault(None, party(3, None)))


def test_the_whole_message(file: str) -> None:
    first, second = fault(file, party(3, 10)), fault(None)
    lines = str(first).splitlines()
    assert lines[0] == "out of bounds in kernel kernel, kernels.py:10: it is wrong"
    assert lines[-1].startswith("  what to do: guard the access")
    assert str(second).startswith("out of bounds in kernel kernel, unknown line: it is wrong")
    assert str(KernelFaults([first])) == str(first)
    assert str(KernelFaults([first, second])) == f"2 faults\n{first}\n\n{second}"


BARRIER = "put cuda.syncthreads() between the two accesses"


@pytest.mark.parametrize(
    ("text", "other", "action", "wanted"),
    [
        (
            "counter[0] += 1",
            1,
            "writes",
            "let the threads add one after the other: cuda.atomic.add(counter, index, value)",
        ),
        ("s[t] += s[t + half]", 1, "reads", f"{BARRIER} (cuda.syncwarp() inside a warp), or use an atomic"),
        ("s[t] += s[t + half]", 40, "reads", f"{BARRIER}, or use an atomic"),
        ("s[0] = x[t]", 1, "writes", "let each thread write an element of its own, or one thread alone write this one"),
    ],
)
def test_what_to_do_about_a_race(text: str, other: int, action: str, wanted: str, tmp_path: Path) -> None:
    file = tmp_path / "adds.py"
    file.write_text(f"{text}\n")
    parties = Party((0, 0, 0), (other, 0, 0), 1, action), Party((0, 0, 0), (0, 0, 0), 1, "writes")
    fault = Fault(RACE, "two threads met", "adds", str(file), parties, "s", (0,))
    assert str(fault).splitlines()[-1] == f"  what to do: {wanted}"
