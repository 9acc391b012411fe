"""What a person sees when something is wrong: one message, never a traceback."""

import os
import subprocess
import sys

import pytest

from nanoeuler.errors import UserError, nearest, run_command


def test_nearest_names_one_close_word_or_none() -> None:
    assert nearest("cosin", ["linear", "cosine", "constant"]) == " (did you mean 'cosine'?)"
    assert nearest("xyz", ["linear", "cosine"]) == ""
    assert nearest("", ["linear"]) == ""
    assert nearest("linear", iter(["linear"])) == " (did you mean 'linear'?)"


def test_arguments_reach_the_command_and_its_code_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    assert run_command(lambda arguments: seen.append(arguments), ["a", "b"]) == 0
    assert run_command(lambda arguments: 3, []) == 3
    monkeypatch.setattr(sys, "argv", ["program", "--flag"])
    run_command(lambda arguments: seen.append(arguments))
    assert seen == [["a", "b"], ["--flag"]]


def test_a_user_error_is_one_message_and_code_2(capfd: pytest.CaptureFixture[str]) -> None:
    def command(arguments: list[str]) -> int:
        raise UserError("the file is empty")

    assert run_command(command, []) == 2
    assert capfd.readouterr() == ("", "error: the file is empty\n")


def test_ctrl_c_is_one_word_and_code_130(capfd: pytest.CaptureFixture[str]) -> None:
    def command(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    assert run_command(command, []) == 130
    assert capfd.readouterr() == ("", "interrupted\n")


def test_a_fault_of_ours_is_not_hidden() -> None:
    def command(arguments: list[str]) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_command(command, [])


@pytest.mark.parametrize("flush", ["True", "False"])
def test_a_reader_that_has_gone_is_not_worth_a_word(flush: str) -> None:
    code = (
        "import sys; from nanoeuler.errors import run_command\n"
        "def command(arguments):\n"
        f"    for i in range(100_000): print(i, flush={flush})\n"
        "sys.exit(run_command(command, []))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().strip() == b"0"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_an_error_of_the_system_or_of_memory_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    def full(arguments: list[str]) -> int:
        raise OSError(28, "No space left on device")

    def starved(arguments: list[str]) -> int:
        raise MemoryError("Unable to allocate 9 GiB")

    assert run_command(starved, []) == 2
    assert capsys.readouterr().err == "error: not enough memory: Unable to allocate 9 GiB\n"
    assert run_command(full, []) == 2
    assert capsys.readouterr().err == "error: output: No space left on device\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell closes and fills its streams")
@pytest.mark.parametrize(("stdout", "code"), [(">&-", 0), (">/dev/full", 2)])
def test_a_full_or_closed_stdout(stdout: str, code: int) -> None:
    if "full" in stdout and not os.path.exists("/dev/full"):  # noqa: PTH110
        pytest.skip("this system has no /dev/full")
    program = "from nanoeuler.errors import run_command; raise SystemExit(run_command(lambda a: print('x'), []))"
    done = subprocess.run(f'"{sys.executable}" -c "{program}" {stdout}', shell=True, stderr=subprocess.PIPE, text=True)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == (1 if code else 0)
