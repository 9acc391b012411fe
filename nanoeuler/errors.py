"""The one exception that is meant for the person at the keyboard, and how a command ends on it."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches


class UserError(Exception):
    """Something the user can mend. Its message says what is wrong, where, and what to do; no traceback is shown."""

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows instead of a traceback: IPython asks for it by this name."""
        return [str(self)]


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.5) -> str:
    """Return a hint such as ``" (did you mean 'cosine'?)"``, or ``""`` when nothing is close.

    >>> nearest("cosin", ["cosine", "linear"])
    " (did you mean 'cosine'?)"
    """
    close = get_close_matches(word, list(choices), n=1, cutoff=cutoff)
    return f" (did you mean '{close[0]}'?)" if close else ""


def run_named(
    commands: Mapping[str, Callable[[list[str]], int | None]], usage: str, arguments: list[str]
) -> int | None:
    """Run the one of several commands that the first argument names; without one, print what there is.

    Raises:
        UserError: there is no such command.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage)
        return None
    name, *options = arguments
    if name not in commands:
        raise UserError(f"unknown command '{name}'{nearest(name, commands)}: use {', '.join(commands)}")
    return commands[name](options)


def run_command(command: Callable[[list[str]], int | None], arguments: list[str] | None = None) -> int:
    """Run a command's main function; what the user can mend becomes one message on stderr and exit code 2."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115 (None where the caller closed it)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    try:
        code = command(sys.argv[1:] if arguments is None else arguments) or 0
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output (`| head`) has gone: not an error worth a word
        _discard_output()
        return 141
    except OSError as error:  # whatever file it was: those that are expected to fail are named where they are used
        _discard_output()
        print(f"error: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"error: not enough memory: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _discard_output() -> None:
    """Send what is still to be flushed to stdout nowhere: Python would fail on it once more at its end."""
    with suppress(OSError, ValueError):  # where it is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
