"""What a person sees when something is wrong: one message, never a traceback."""

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
