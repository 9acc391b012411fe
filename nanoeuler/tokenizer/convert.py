"""``python -m nanoeuler.tokenizer encode`` and ``decode``: text to ids and ids to text."""

import io
import re
import sys
from pathlib import Path
from tokenize import TokenError

import numpy as np

from nanoeuler.config import Parser
from nanoeuler.console import is_terminal, plural, say
from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.tokenizer.files import decode_utf8, read_bytes, read_utf8
from nanoeuler.tokenizer.load import make_tokenizer

TOKENIZER_HELP = "gpt2, byte, char, or the folder or file of one"
#: What is no name of a file: ``7``, ``1,2,3``, ``[1, 2, 3]``.
LIKE_IDS = re.compile(r"[-\d\s,\[\]]*")


def encode_main(arguments: list[str]) -> None:
    """``encode``: print the ids of a text, or write them into a file.

    Raises:
        UserError: the text cannot be read or encoded, or the ids cannot be written.
    """
    parser = Parser(
        prog="python -m nanoeuler.tokenizer encode",
        description="The token ids of a text. Without --text and FILE it is read from standard input.",
    )
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a UTF-8 text")
    parser.add_argument("--tokenizer", required=True, metavar="T", help=TOKENIZER_HELP)
    parser.add_argument("--text", metavar="TEXT", help="the text itself")
    parser.add_argument("--special", action="store_true", help="special tokens written in the text give their ids")
    parser.add_argument("--out", type=Path, metavar="FILE.npy", help="write the ids as a NumPy array [print them]")
    given = parser.parse_args(arguments)
    if given.file is not None and given.text is not None:
        raise UserError("both --text and a file are given; which is the text?")
    if given.out is not None and given.out.suffix != ".npy":
        raise UserError(f"--out {given.out}: ids are written as a NumPy array; give a name that ends in .npy")
    text = given.text if given.text is not None else read_input(given.file)
    ids = make_tokenizer(given.tokenizer, text).encode(text, "all" if given.special else ())
    if given.out is None:
        print(" ".join(map(str, ids.tolist())))
        return
    with written_whole(given.out) as file:
        np.save(file, ids)
    say(f"{given.out}: {plural(len(ids), 'id')}")


def decode_main(arguments: list[str]) -> None:
    """``decode``: print the text that ids stand for.

    Raises:
        UserError: the ids cannot be read.
    """
    parser = Parser(
        prog="python -m nanoeuler.tokenizer decode",
        description="The text of token ids. Without ids and FILE they are read from standard input.",
    )
    parser.add_argument("ids", nargs="*", metavar="ID|FILE", help="ids; or a file of them: .npy, or numbers in text")
    parser.add_argument("--tokenizer", required=True, metavar="T", help=TOKENIZER_HELP)
    given = parser.parse_args(arguments)
    if given.tokenizer == "char":
        raise UserError("the characters of a char tokenizer come from its text; give the folder that it was saved in")
    ids = _read_ids(given.ids)
    text = make_tokenizer(given.tokenizer, "").decode(ids)
    if is_terminal(sys.stdout):
        say(text)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())


def read_input(path: Path | None) -> str:
    """Return the text of a file, or of standard input where there is none, or ``-``.

    Raises:
        UserError: it cannot be read, or is not UTF-8.
    """
    if path is not None and path != Path("-"):
        return read_utf8(path)
    return decode_utf8(sys.stdin.buffer.read(), "standard input")


def _read_ids(words: list[str]) -> np.ndarray:
    """Return the ids on the command line, in the file that is named there, or on standard input."""
    if not words or words == ["-"]:
        return _parse_ids(read_input(None), "standard input")
    if len(words) > 1 or LIKE_IDS.fullmatch(words[0]):
        return _parse_ids(" ".join(words), "the command line")
    path = Path(words[0])
    return _read_array(path) if path.suffix == ".npy" else _parse_ids(read_utf8(path), words[0])


def _parse_ids(text: str, where: str) -> np.ndarray:
    """Return the ids in a text, with spaces or commas between them, and brackets around them if there are any."""
    words = text.translate(dict.fromkeys(map(ord, ",[]"), " ")).split()
    for word in words:
        if not _is_number(word):
            raise UserError(f"{where}: {word[:40]!r} is no token id; ids are whole numbers")
    return np.array([int(word) for word in words], dtype=object)


def _is_number(word: str) -> bool:
    return word.removeprefix("-").isdecimal() and len(word) < 100


def _read_array(path: Path) -> np.ndarray:
    """Return the ids of an ``.npy`` file."""
    data = io.BytesIO(read_bytes(path))
    try:
        ids = np.lib.format.read_array(data, allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError, SyntaxError, TokenError):  # what a damaged header may lead to
        raise UserError(f"{path}: damaged, or not an array of NumPy") from None
    if ids.dtype.kind not in "iu":
        raise UserError(f"{path}: an array of {ids.dtype}, and token ids are whole numbers")
    return ids
