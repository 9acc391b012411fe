"""Where text comes from (:func:`load_corpus`) and how its tokens become batches (:class:`Batches`)."""

from dataclasses import dataclass
from pathlib import Path

from nanoeuler.corpus import plays, tinyshakespeare
from nanoeuler.corpus.batches import Batches, check_vocabulary, split
from nanoeuler.corpus.text import read_text
from nanoeuler.errors import UserError, nearest

__all__ = ["Batches", "Corpus", "check_vocabulary", "load_corpus", "split"]

NAMES = [tinyshakespeare.NAME, plays.NAME]
WAYS_TO_PROVIDE = (
    "Three ways to provide it: give the path of a copy with --data.dataset PATH; put the file "
    f"{tinyshakespeare.FILE} into ./data or into the folder that the environment variable NANOEULER_DATA names; or "
    f"let it be downloaded once, with a network connection. (--data.dataset {plays.NAME} needs none of them.)"
)


@dataclass(frozen=True)
class Corpus:
    """A text to learn from."""

    name: str
    text: str
    reason: str  # one line: which corpus this is, and why
    entropy_bits: float | None = None  # bits per character that no model can go below, where it is known


def load_corpus(dataset: str | None, url: str = tinyshakespeare.URL, patience: float = 10.0) -> Corpus:
    """Return the corpus that a name or path stands for.

    With None that is TinyShakespeare if it is at hand or can be fetched within ``patience`` seconds, else the
    built-in plays.

    Raises:
        UserError: the corpus asked for cannot be had, the file cannot be used, or the name is unknown.
    """
    if dataset is None:
        try:
            text, origin = tinyshakespeare.load(url, patience, pass_over=True)
        except UserError as error:
            return _plays(
                "tinyshakespeare, the default, is not to be had; --data.dataset PATH or a folder named by "
                f"NANOEULER_DATA provides it ({error})"
            )
        return Corpus(tinyshakespeare.NAME, text, f"{tinyshakespeare.NAME}, the default, {origin}")
    if dataset == tinyshakespeare.NAME:
        try:
            text, origin = tinyshakespeare.load(url)
        except UserError as error:
            raise UserError(f"{dataset} is not to be had: {error}.\n{WAYS_TO_PROVIDE}") from None
        return Corpus(dataset, text, f"{dataset}, as asked for, {origin}")
    if dataset == plays.NAME:
        return _plays("as asked for")
    path = Path(dataset)
    try:
        return Corpus(path.stem, read_text(path), f"{path}, as asked for")
    except FileNotFoundError:
        raise UserError(
            f"'{dataset}' is neither a known corpus nor a file that exists{nearest(dataset, NAMES)}; "
            f"--data.dataset takes {', '.join(NAMES)}, or the path of a text file"
        ) from None


def _plays(why: str) -> Corpus:
    return Corpus(plays.NAME, plays.generate(), f"{plays.NAME}, built in: {why}", plays.entropy_per_character())
