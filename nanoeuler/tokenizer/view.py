"""``python -m nanoeuler.tokenizer inspect``: what a tokenizer has learned, and how it cuts a text."""

import os
import sys
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.text import Text

from nanoeuler.config import Parser, number
from nanoeuler.console import encodable, format_bytes, is_terminal, plural, say, visible
from nanoeuler.errors import UserError
from nanoeuler.tokenizer.base import Tokenizer, utf8
from nanoeuler.tokenizer.bpe import BPETokenizer
from nanoeuler.tokenizer.char import CharTokenizer
from nanoeuler.tokenizer.convert import TOKENIZER_HELP, read_input
from nanoeuler.tokenizer.load import make_tokenizer
from nanoeuler.tokenizer.patterns import PATTERNS

SENTENCE = "Tokenizers don't see letters: they see 1234 pieces — naïve café, 東京, 🚀.\n    return x"
#: Backgrounds that follow each other, with black on them; and for terminals of few colours.
COLOURS = ("#aecbfa", "#fde293", "#a8dab5", "#f6aea9", "#d7aefb")
FEW_COLOURS = ("cyan", "yellow", "green", "magenta", "white")
#: Characters of a text that are shown cut.
MOST_SHOWN = 2000
#: Bytes of a token that are shown.
MOST_BYTES = 60
#: Special tokens that are named.
MOST_SPECIAL = 10


def inspect_main(arguments: list[str]) -> None:
    """``inspect``: print merges, longest tokens, bytes per token and a text as it is cut.

    Raises:
        UserError: the tokenizer or the text cannot be read.
    """
    parser = Parser(
        prog="python -m nanoeuler.tokenizer inspect",
        description="What a tokenizer has learned, and how it cuts a text.",
    )
    parser.add_argument("--tokenizer", required=True, metavar="T", help=TOKENIZER_HELP)
    parser.add_argument(
        "--merges", type=number(int, 0), default=10, metavar="N", help="merges to show, the first ones [10]"
    )
    parser.add_argument("--longest", type=number(int, 0), default=10, metavar="N", help="longest tokens to show [10]")
    parser.add_argument("--text", metavar="TEXT", help="the text to cut [a sentence with a bit of everything]")
    parser.add_argument("--file", type=Path, metavar="FILE", help="a file with the text")
    parser.add_argument("--ids", action="store_true", help="show the ids below the text")
    given = parser.parse_args(arguments)
    if given.file is not None and given.text is not None:
        raise UserError("both --text and --file are given; which is the text?")
    text = read_input(given.file) if given.file is not None else given.text
    tokenizer = make_tokenizer(given.tokenizer, SENTENCE if text is None else text)
    if text is None:
        text = tokenizer.characters if isinstance(tokenizer, CharTokenizer) else SENTENCE
    sections = [
        describe(tokenizer),
        first_merges(tokenizer, given.merges),
        longest_tokens(tokenizer, given.longest),
        bytes_per_token(tokenizer, text),
    ]
    say("\n\n".join("\n".join(lines) for lines in sections if lines) + "\n")
    show_cut(tokenizer, text[:MOST_SHOWN], given.ids)
    if len(text) > MOST_SHOWN:
        print(f"... these were the first {MOST_SHOWN:,} of {len(text):,} characters")


def describe(tokenizer: Tokenizer) -> list[str]:
    """Return lines that say what a tokenizer is."""
    lines = [f"{tokenizer.kind} tokenizer, {tokenizer.vocab_size:,} ids"]
    if isinstance(tokenizer, BPETokenizer):
        name = next((name for name, pattern in PATTERNS.items() if pattern == tokenizer.pattern), "its own")
        lines.append(f"256 bytes and {plural(len(tokenizer.tokens) - 256, 'merged token')}")
        lines.append(f"pattern      {name}: {tokenizer.pattern}")
    if tokenizer.special:
        lines.append(f"special      {_special_tokens(tokenizer)}")
    if tokenizer.bos is not None or tokenizer.eos is not None:
        lines.append(f"begin, end   BOS {_named(tokenizer, tokenizer.bos)}, EOS {_named(tokenizer, tokenizer.eos)}")
    if tokenizer.prefix:
        lines.append(f"prefix       {', '.join(_named(tokenizer, i) for i in tokenizer.prefix)}")
    if tokenizer.chat_template is not None:
        lines.append(f"chat         a template of {len(tokenizer.chat_template):,} characters")
    return [*lines, f"fingerprint  {tokenizer.fingerprint}"]


def _named(tokenizer: Tokenizer, i: int | None) -> str:
    """Return a special token by its text, which decoding may leave out, and its id."""
    return "none" if i is None else f"{next(token for token, other in tokenizer.special.items() if other == i)!r} {i}"


def _special_tokens(tokenizer: Tokenizer) -> str:
    """Return the first special tokens with their ids, and how many more there are."""
    first = ", ".join(f"{token!r} {i}" for token, i in islice(tokenizer.special.items(), MOST_SPECIAL))
    more = len(tokenizer.special) - MOST_SPECIAL
    return first + (f" and {more} more" if more > 0 else "")


def first_merges(tokenizer: Tokenizer, count: int) -> list[str]:
    """Return a line for each of the first merges."""
    if not isinstance(tokenizer, BPETokenizer) or count <= 0:
        return []
    lines = ["first merges"]
    for a, b in tokenizer.merges[:count]:
        left, right = tokenizer.tokens[a], tokenizer.tokens[b]
        lines.append(f"{tokenizer.id_of(left + right):>7}  {readable(left)} + {readable(right)}")
    return lines


def longest_tokens(tokenizer: Tokenizer, count: int) -> list[str]:
    """Return a line for each of the longest tokens, special ones left out."""
    if count <= 0:
        return []
    special = set(tokenizer.special.values())
    tokens = [(tokenizer.decode_bytes([i]), i) for i in tokenizer.token_ids().tolist() if i not in special]
    longest = sorted(tokens, key=lambda item: (-len(item[0]), item[1]))[:count]
    return ["longest tokens", *(f"{i:>7}  {readable(token)}" for token, i in longest)]


def bytes_per_token(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return a line that says how many bytes of a text a token stands for."""
    size, tokens = len(utf8(text)), len(tokenizer.encode(text))
    return [f"{format_bytes(size)} of text, {plural(tokens, 'token')}: {size / max(tokens, 1):.2f} bytes per token"]


def readable(token: bytes) -> str:
    r"""Return a token as Python would write it, as text if it is text; of one that is very long the beginning.

    >>> readable(" né".encode()), readable(b"\xe2\x82"), readable(b"-" * 1000)[-17:]
    ("' né'", "b'\\xe2\\x82'", "-'... 1,000 bytes")
    """
    cut, size = token[:MOST_BYTES], ""
    if len(token) > MOST_BYTES:
        cut, size = cut.decode("utf-8", "ignore").encode() or cut, f"... {len(token):,} bytes"
    try:
        return repr(cut.decode("utf-8")) + size
    except UnicodeDecodeError:
        return repr(cut) + size


def show_cut(tokenizer: Tokenizer, text: str, ids_below: bool = False) -> None:
    """Print a text as it is cut: on alternating backgrounds, or without colours with | between tokens."""
    coloured = is_terminal(sys.stdout) and "NO_COLOR" not in os.environ
    console = Console(file=sys.stdout, force_terminal=True, highlight=False) if coloured else None
    for line in lines_of_tokens(tokenizer, text):
        pieces = [encodable(piece, sys.stdout) for _, piece in line]
        if console:
            colours = COLOURS if console.color_system in ("256", "truecolor") else FEW_COLOURS
            styles = [f"black on {colours[i % len(colours)]}" for i in range(len(pieces))]
            console.print(Text.assemble(*zip(pieces, styles, strict=True)), soft_wrap=True)
        else:
            say("|".join(pieces))
        if ids_below:
            say("  " + " ".join(str(i) for i, _ in line))


def lines_of_tokens(tokenizer: Tokenizer, text: str) -> list[list[tuple[int, str]]]:
    r"""Return the tokens of a text as (id, what to show), cut into lines after tokens that end with a newline.

    A newline is shown as ⏎, a byte that is part of a character as ``\xe2``.
    """
    lines: list[list[tuple[int, str]]] = [[]]
    for i in tokenizer.encode(text).tolist():
        token = tokenizer.decode_bytes([i])
        shown = token.decode("utf-8", errors="backslashreplace")
        lines[-1].append((i, visible(shown).replace("\n", "⏎")))
        if token.endswith(b"\n"):
            lines.append([])
    return lines if lines[-1] else lines[:-1]
