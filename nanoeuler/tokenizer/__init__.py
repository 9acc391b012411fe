"""Text to token ids and back, by characters, by bytes, or by GPT-2's byte pairs, behind one interface."""

import json
from pathlib import Path
from typing import Any

from nanoeuler.errors import UserError, nearest
from nanoeuler.tokenizer.base import FILE, VERSION, Tokenizer
from nanoeuler.tokenizer.byte import ByteTokenizer
from nanoeuler.tokenizer.char import CharTokenizer
from nanoeuler.tokenizer.gpt2 import GPT2Tokenizer, find_gpt2, saved_gpt2

__all__ = ["ByteTokenizer", "CharTokenizer", "GPT2Tokenizer", "Tokenizer", "load_tokenizer", "make_tokenizer"]

KINDS = ["char", "byte", "gpt2"]


def make_tokenizer(name_or_folder: str, text: str) -> Tokenizer:
    """Return the tokenizer that ``data.tokenizer_path`` stands for.

    Args:
        name_or_folder: char, byte, gpt2, or a folder that a tokenizer was saved in.
        text: what char takes its vocabulary from; of no use to the others.

    Raises:
        UserError: the name is unknown, the folder has no good tokenizer, or gpt2's vocabulary cannot be had.
    """
    if name_or_folder == "char":
        return CharTokenizer(text)
    if name_or_folder == "byte":
        return ByteTokenizer()
    if name_or_folder == "gpt2":
        return find_gpt2()
    if not Path(name_or_folder).exists():
        raise UserError(
            f"'{name_or_folder}' is neither a tokenizer nor a folder{nearest(name_or_folder, KINDS)}; "
            f"--data.tokenizer_path takes {', '.join(KINDS)}, or a folder with a saved tokenizer"
        )
    return load_tokenizer(name_or_folder)


def load_tokenizer(directory: str | Path) -> Tokenizer:
    """Return the tokenizer that :meth:`Tokenizer.save` wrote into a folder.

    Raises:
        UserError: there is none, or a file of it is missing, unreadable, damaged or of a later version.
    """
    path = Path(directory) / FILE
    record = _read_record(path)
    tokenizer: Tokenizer
    if record["kind"] == "char" and isinstance(record.get("characters"), str):
        try:
            tokenizer = CharTokenizer(record["characters"])
        except UserError as error:
            raise UserError(f"{path}: damaged: {error}") from None
    elif record["kind"] == "byte":
        tokenizer = ByteTokenizer()
    elif record["kind"] == "gpt2":
        tokenizer = saved_gpt2(path.parent)
    else:
        raise UserError(f"{path}: damaged: no vocabulary for a tokenizer of the kind {record['kind']!r}")
    if tokenizer.fingerprint != record.get("fingerprint"):
        raise UserError(f"{path}: damaged: the vocabulary is not the one that was saved")
    return tokenizer


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path.parent}: no saved tokenizer here ({path.name} is missing)") from None
    except OSError as error:
        raise UserError(f"{path}: cannot read the tokenizer: {error.strerror}") from None
    except ValueError:  # not JSON, or not even text
        raise UserError(f"{path}: damaged: it is not the JSON of a saved tokenizer") from None
    if not isinstance(record, dict) or not {"version", "kind"} <= record.keys():
        raise UserError(f"{path}: damaged: it is not the JSON of a saved tokenizer")
    if record["version"] != VERSION:
        raise UserError(f"{path}: version {record['version']!r} of the format; this nanoeuler reads {VERSION}")
    return record
