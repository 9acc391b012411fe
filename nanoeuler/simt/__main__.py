"""``python -m nanoeuler.simt NAME``: the commands of the kernel runner."""

import sys

from nanoeuler.errors import run_command, run_named
from nanoeuler.simt import check

COMMANDS = {"check": check.main}
USAGE = """usage: python -m nanoeuler.simt check [options] FILE.py [arguments of FILE.py]

check   runs a script with its CUDA kernels on the CPU, every access watched, and reports races, missed barriers,
        indices out of bounds and reads of memory that nothing wrote, each with its line

--help after the name lists its options"""


def main(arguments: list[str]) -> int | None:
    """Run the command that the first argument names; without one, say what there is.

    Raises:
        UserError: there is no such command.
    """
    return run_named(COMMANDS, USAGE, arguments)


if __name__ == "__main__":
    sys.exit(run_command(main))
