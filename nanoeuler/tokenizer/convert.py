"""``python -m nanoeuler.tokenizer encode`` and ``decode``: text to ids and ids to text."""

import sys
from pathlib import Path

import numpy as np

from nanoeuler.config import Parser
from nanoeuler.console import is_terminal, visible
from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.tokenizer.files import decode_utf8, read_bytes, read_utf8
from nanoeuler.tokenizer.load import make_tokenizer

TOKENIZER_HELP = "gpt2, byte, char, or the folder or file of one"


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
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the ids as a NumPy array (.npy) [print them]")
    given = parser.parse_args(arguments)
    if given.file is not None and given.text is not None:
        raise UserError("both --text and a file are given; which is the text?")
    text = given.text if given.text is not None else read_input(given.file)
    ids = make_tokenizer(given.tokenizer, text).encode(text, "all" if given.special else ())
    if given.out is None:
        print(" ".join(map(str, ids.tolist())))
        return
    with written_whole(given.out) as file:
        np.save(file, ids)
    print(f"{given.out}: {len(ids):,} ids")


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
        print(visible(text))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())


def read_input(path: Path | None) -> str:
    """Return the text of a file, or of standard input.

    Raises:
        UserError: it cannot be read, or is not UTF-8.
    """
    if path is not None:
        return read_utf8(path)
    return decode_utf8(sys.stdin.buffer.read(), "standard input")


def _read_ids(words: list[str]) -> np.ndarray:
    """Return the ids on the command line, in the file that is named there, or on standard input."""
    where = "the command line"
    if len(words) == 1 and not _is_number(words[0]):
        where = words[0]
        if words[0].endswith(".npy"):
            return _read_array(Path(words[0]))
        words = read_utf8(Path(words[0])).replace(",", " ").split()
    elif not words:
        where, words = "standard input", read_input(None).replace(",", " ").split()
    for word in words:
        if not _is_number(word):
            raise UserError(f"{where}: {word[:40]!r} is no token id; ids are whole numbers")
    return np.array([int(word) for word in words], dtype=object)


def _is_number(word: str) -> bool:
    return word.removeprefix("-").isdecimal() and len(word) < 100


def _read_array(path: Path) -> np.ndarray:
    """Return the ids of an ``.npy`` file."""
    read_bytes(path)  # for its errors
    try:
        ids = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError):
        raise UserError(f"{path}: damaged, or not an array of NumPy") from None
    if ids.dtype.kind not in "iu":
        raise UserError(f"{path}: an array of {ids.dtype}, and token ids are whole numbers")
    return ids
