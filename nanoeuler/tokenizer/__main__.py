"""``python -m nanoeuler.tokenizer NAME``: train a tokenizer, use it, look at it."""

import sys
from collections.abc import Callable

from nanoeuler.errors import run_command, run_named
from nanoeuler.tokenizer.convert import decode_main, encode_main
from nanoeuler.tokenizer.train import train_main
from nanoeuler.tokenizer.view import inspect_main

COMMANDS: dict[str, Callable[[list[str]], int | None]] = {
    "train": train_main,
    "encode": encode_main,
    "decode": decode_main,
    "inspect": inspect_main,
}
USAGE = """usage: python -m nanoeuler.tokenizer {train,encode,decode,inspect} [options]

train     learn the merges of a byte-level BPE from text
encode    the token ids of a text
decode    the text of token ids
inspect   what a tokenizer has learned, and how it cuts a text

--help after the name lists its options"""


def main(arguments: list[str]) -> int | None:
    """Run the command that the first argument names; without one, say what there is.

    Raises:
        UserError: there is no such command.
    """
    return run_named(COMMANDS, USAGE, arguments)


if __name__ == "__main__":
    sys.exit(run_command(main))
