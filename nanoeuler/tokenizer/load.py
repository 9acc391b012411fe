"""A tokenizer by its name, or from a file or a folder of any kind that we know."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nanoeuler.errors import UserError, nearest
from nanoeuler.tokenizer.alphabet import to_bytes
from nanoeuler.tokenizer.base import FILE, VERSION, Tokenizer
from nanoeuler.tokenizer.bpe import BPETokenizer
from nanoeuler.tokenizer.byte import ByteTokenizer
from nanoeuler.tokenizer.char import CharTokenizer
from nanoeuler.tokenizer.companions import adopt
from nanoeuler.tokenizer.files import read_bytes, read_json
from nanoeuler.tokenizer.gpt2 import find_gpt2, saved_gpt2
from nanoeuler.tokenizer.huggingface import TOKENIZER_FILE, read_huggingface
from nanoeuler.tokenizer.ranks import RANK_FILES, read_known_ranks
from nanoeuler.tokenizer.sentencepiece import LLAMA2C_FILE, read_llama2c
from nanoeuler.tokenizer.sentencepiece_model import MODEL_FILE, read_sentencepiece
from nanoeuler.tokenizer.vocab_merges import NAMES, read_vocab_merges

KINDS = ["char", "byte", "gpt2"]
#: Of two files that belong together, either name to the one with the vocabulary.
VOCABS = {name: vocab for vocab, merges in NAMES.items() for name in (vocab, merges)}
#: Names of which it is said what is wrong with the file when it is missing.
OTHERS = {TOKENIZER_FILE, MODEL_FILE, *VOCABS}
#: What a folder may have, and what a file may be, the first that is there.
FILES = (
    f"{FILE}, {TOKENIZER_FILE}, {', '.join(f'{a} + {b}' for a, b in NAMES.items())}, *.tiktoken, {MODEL_FILE} or "
    f"{LLAMA2C_FILE}"
)


def make_tokenizer(name_or_path: str, text: str) -> Tokenizer:
    """Return the tokenizer that ``data.tokenizer_path`` stands for.

    Args:
        name_or_path: char, byte, gpt2, or a folder or a file that :func:`load_tokenizer` reads.
        text: what char takes its vocabulary from; of no use to the others.

    Raises:
        UserError: the name is unknown, the path has no good tokenizer, or gpt2's vocabulary cannot be had.
    """
    if name_or_path == "char":
        return CharTokenizer(text)
    if name_or_path == "byte":
        return ByteTokenizer()
    if name_or_path == "gpt2":
        return find_gpt2()
    if not _exists(Path(name_or_path)):
        raise UserError(
            f"'{name_or_path}' is neither a tokenizer nor a file or folder{nearest(name_or_path, KINDS)}; "
            f"a tokenizer is {', '.join(KINDS)}, or a path to one: a folder with {FILES}, or one of these files"
        )
    return load_tokenizer(name_or_path)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Return the tokenizer in a folder, such as :meth:`Tokenizer.save` makes, or in a file of a kind that we know.

    In a folder our own file is looked for first, then those of others: see :data:`FILES`.

    Raises:
        UserError: there is none, or a file of it is missing, unreadable, damaged or of a later version.
    """
    path = Path(path)
    if not path.is_dir():
        return _read_file(path)
    first = [path / name for name in (FILE, TOKENIZER_FILE, *NAMES) if (path / name).exists()]
    model = [path / MODEL_FILE] if (path / MODEL_FILE).exists() else []
    found = first[:1] or sorted(path.glob(RANK_FILES)) or model or [path / LLAMA2C_FILE]
    if len(found) > 1:
        raise UserError(f"{path}: several tokenizers: {', '.join(file.name for file in found)}; give the path of one")
    if not found[0].exists():
        raise UserError(f"{path}: no saved tokenizer here: none of {FILES}")
    return _read_file(found[0])


def _read_file(path: Path) -> Tokenizer:
    """Return the tokenizer in a file, which its name tells the kind of."""
    readers: dict[str, Callable[[Path], Tokenizer]] = {
        FILE: _read_own,
        LLAMA2C_FILE: read_llama2c,
    }
    if path.name in readers:
        return readers[path.name](path)
    if path.match(RANK_FILES):
        return _read_ranks(path)
    if path.name not in OTHERS and not _exists(path):
        raise UserError(f"{path}: no saved tokenizer here: there is no such file or folder")
    if (tokenizer := _read_others(path)) is not None:
        return tokenizer
    if path.suffix == ".bin":
        return read_llama2c(path)
    raise UserError(f"{path}: no saved tokenizer here; a tokenizer's file is one of {FILES}")


def _read_others(path: Path) -> Tokenizer | None:
    """Return the tokenizer of a file that others have beside their models, with what is beside it.

    A file of another name is known by its ending, and kept under the name by which a folder of it is read again.
    """
    tokenizer: Tokenizer
    if path.name in VOCABS:
        path = path.with_name(VOCABS[path.name])
        name, tokenizer = path.name, read_vocab_merges(path, path.with_name(NAMES[path.name]))
    elif path.suffix == ".json":
        name, tokenizer = TOKENIZER_FILE, read_huggingface(path)
    elif path.suffix == ".model":
        name, tokenizer = MODEL_FILE, read_sentencepiece(path)
    else:
        return None
    adopt(tokenizer, path, name)
    return tokenizer


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with NUL in it
        return False


def _read_ranks(path: Path) -> Tokenizer:
    """Return the tokenizer of a rank file. What is not in the file stands in our own beside it, or is known to us."""
    beside = path.with_name(FILE)
    if beside.exists():
        tokenizer = _read_own(beside)
        if isinstance(tokenizer, BPETokenizer) and tokenizer.rank_file == read_bytes(path):
            return tokenizer
    return read_known_ranks(path)


def _read_own(path: Path) -> Tokenizer:
    """Return the tokenizer that :meth:`Tokenizer.save` wrote."""
    record = read_json(path)
    if not {"version", "kind"} <= record.keys():
        raise UserError(f"{path}: damaged: it is not the JSON of a saved tokenizer")
    if record["version"] != VERSION:
        raise UserError(f"{path}: version {record['version']!r} of the format; this nanoeuler reads {VERSION}")
    tokenizer = _from_record(path, record)
    if tokenizer.fingerprint != record.get("fingerprint"):
        raise UserError(f"{path}: damaged: the vocabulary is not the one that was saved")
    return tokenizer


def _from_record(path: Path, record: dict[str, Any]) -> Tokenizer:
    """Return the tokenizer that a record describes, if need be by the files beside it."""
    kind = record["kind"]
    if kind == "char" and isinstance(record.get("characters"), str):
        try:
            return CharTokenizer(record["characters"])
        except UserError as error:
            raise UserError(f"{path}: damaged: {error}") from None
    if kind == "byte":
        return ByteTokenizer()
    if kind == "gpt2":
        return saved_gpt2(path.parent)
    if kind == "llama2c":
        return read_llama2c(path.with_name(LLAMA2C_FILE))
    if kind == "huggingface" and record.get("file") in (TOKENIZER_FILE, MODEL_FILE, *NAMES):
        return _read_file(path.with_name(record["file"]))
    if kind == "bpe":
        return _bpe_from_record(path, record)
    raise UserError(f"{path}: damaged: no vocabulary for a tokenizer of the kind {kind!r}")


def _bpe_from_record(path: Path, record: dict[str, Any]) -> BPETokenizer:
    """Return the BPE of a record; that its merges are in order is left to the fingerprint."""
    try:
        vocab, pattern, special = record["vocab"], record["pattern"], record["special"]
        tokens = [to_bytes(token) for token in vocab]
        tokenizer = BPETokenizer.from_ranks(tokens, pattern, special, list(vocab.values()))
        return tokenizer.normalised() if record.get("nfc") else tokenizer
    except UserError as error:
        raise UserError(f"{path}: damaged: {error}") from None
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError):
        raise UserError(f"{path}: damaged: it is not the JSON of a saved BPE") from None
