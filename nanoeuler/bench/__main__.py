"""``python -m nanoeuler.bench NAME``: each benchmark is a command with options of its own."""

import sys

from nanoeuler.bench import corpus, loader, ops, simt, tokenizer, trace, train
from nanoeuler.errors import UserError, nearest, run_command

COMMANDS = {
    "corpus": corpus.main,
    "loader": loader.main,
    "ops": ops.main,
    "simt": simt.main,
    "tokenizer": tokenizer.main,
    "trace": trace.main,
    "train": train.main,
}


def main(arguments: list[str]) -> int | None:
    """Run the benchmark that the first argument names.

    Raises:
        UserError: there is no such benchmark.
    """
    known = "usage: python -m nanoeuler.bench {" + ",".join(COMMANDS) + "} [options]"
    if arguments[:1] in (["-h"], ["--help"]):
        print(f"{known}\n\n--help after the name lists its options")
        return None
    if not arguments:
        raise UserError(f"which benchmark? {known}")
    name, *options = arguments
    if name not in COMMANDS:
        raise UserError(f"unknown benchmark '{name}'{nearest(name, COMMANDS)}; {known}")
    return COMMANDS[name](options)


if __name__ == "__main__":
    sys.exit(run_command(main))
