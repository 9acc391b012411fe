"""The corpus that ``data.dataset`` stands for."""

import os
from fractions import Fraction
from pathlib import Path

from nanoeuler.corpus import plays, tinyshakespeare
from nanoeuler.corpus.corpus import Corpus, Part
from nanoeuler.corpus.mixture import parse_mixture
from nanoeuler.corpus.names import HUB_NAMES
from nanoeuler.corpus.prepared import is_corpus, open_corpus
from nanoeuler.corpus.text import read_text
from nanoeuler.corpus.text_corpus import TextCorpus
from nanoeuler.errors import UserError, nearest

#: Texts that have a name.
NAMES = [tinyshakespeare.NAME, plays.NAME]
WAYS_TO_PROVIDE = (
    "Three ways to provide it: give the path of a copy with --data.dataset PATH; put the file "
    f"{tinyshakespeare.FILE} into ./data or into the folder that the environment variable NANOEULER_DATA names; or "
    f"let it be downloaded once, with a network connection. (--data.dataset {plays.NAME} needs none of them.)"
)


def load_corpus(dataset: str | None, url: str = tinyshakespeare.URL, patience: float = 10.0) -> Corpus:
    """Return the corpus that a name, a path or a mixture of them stands for.

    With None that is TinyShakespeare if it is at hand or can be fetched within ``patience`` seconds, else the
    built-in plays.

    Raises:
        UserError: the corpus asked for cannot be had, the file or folder cannot be used, or the name is unknown.
    """
    if dataset is None:
        return Corpus([load_default(url, patience)], [Fraction(1)])
    if "=" not in dataset or _exists(Path(dataset)):
        return Corpus([_load_one(dataset, url)], [Fraction(1)])
    mixture = parse_mixture(dataset)
    return Corpus([_load_one(name, url) for name, _ in mixture], [share for _, share in mixture])


def load_default(url: str = tinyshakespeare.URL, patience: float = 10.0) -> TextCorpus:
    """Return TinyShakespeare, or the plays where it cannot be had within ``patience`` seconds."""
    try:
        text, origin = tinyshakespeare.load(url, patience, pass_over=True)
    except UserError as error:
        return _plays(
            "tinyshakespeare, the default, is not to be had; --data.dataset PATH or a folder named by "
            f"NANOEULER_DATA provides it ({error})"
        )
    return TextCorpus(tinyshakespeare.NAME, text, f"{tinyshakespeare.NAME}, the default, {origin}")


def _load_one(dataset: str, url: str) -> Part:
    if dataset == tinyshakespeare.NAME:
        try:
            text, origin = tinyshakespeare.load(url)
        except UserError as error:
            raise UserError(f"{dataset} is not to be had: {error}.\n{WAYS_TO_PROVIDE}") from None
        return TextCorpus(dataset, text, f"{dataset}, as asked for, {origin}")
    if dataset == plays.NAME:
        return _plays("as asked for")
    path = Path(dataset)
    if _is_folder(path) and not any(path.glob("*.bin")) and is_corpus(Path("data", dataset)):
        return open_corpus(Path("data", dataset))  # prepared from the texts in the folder of the same name
    if _is_folder(path):
        try:
            return open_corpus(path)
        except UserError as error:
            raise UserError(f"{error}; --data.dataset takes the folder of a corpus, or one text file") from None
    try:
        return TextCorpus(path.stem, read_text(path), f"{path}, as asked for")
    except FileNotFoundError:
        return _load_prepared(dataset)


def _load_prepared(name: str) -> Part:
    """Return the corpus that was prepared under a name into one of the user's folders of data."""
    where = name.replace(":", "-")
    folders = [Path(folder) / where for folder in ("data", os.environ.get("NANOEULER_DATA")) if folder]
    for folder in folders:
        if is_corpus(folder):
            return open_corpus(folder)
    if name.partition(":")[0] in HUB_NAMES:
        raise UserError(
            f"{name} has not been prepared ({' and '.join(map(str, folders))}: no corpus there); this does it, and "
            f"--limit N takes only so many documents: python -m nanoeuler.corpus prepare {name} --out {folders[0]}"
        )
    raise UserError(
        f"'{name}' is neither a known corpus nor a file that exists{nearest(name, [*NAMES, *HUB_NAMES])}; "
        f"--data.dataset takes {', '.join(NAMES)}, the path of a text file, the folder of a prepared corpus, its name "
        "where that is in ./data, or several with weights: data/a=0.7,data/b=0.3"
    )


def _plays(why: str) -> TextCorpus:
    return TextCorpus(plays.NAME, plays.generate(), f"{plays.NAME}, built in: {why}", plays.entropy_per_character())


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with NUL in it
        return False


def _is_folder(path: Path) -> bool:
    return _exists(path) and path.is_dir()
