"""Documents by name: a corpus that everybody knows, a data set of a hub, or files of one's own."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nanoeuler.corpus import plays, tinyshakespeare
from nanoeuler.corpus.documents import Batch, Options, Source
from nanoeuler.corpus.formats import kind_of
from nanoeuler.corpus.hub import open_dataset
from nanoeuler.corpus.local import open_files, open_text
from nanoeuler.corpus.names import HUB_NAMES, LOCAL_NAMES, NAMES
from nanoeuler.errors import UserError, nearest

__all__ = ["Batch", "Options", "Source", "open_source"]

BLANK_LINE = "\n\n"
#: owner/name and, after a colon, one of its configurations.
DATASET = re.compile(r"(?P<dataset>[\w][\w.-]*/[\w][\w.-]*)(:(?P<config>[^/:]+))?")


def open_source(
    wanted: str | Path | Sequence[str | Path],
    options: Options | None = None,
    earlier: Mapping[str, Any] | None = None,
) -> Source:
    """Return the documents of a name or of files; nothing but what tells the columns is read yet.

    ``wanted`` is a name of :data:`nanoeuler.corpus.names.NAMES`, with or without a configuration (``fineweb-edu``,
    ``fineweb-edu:sample-100BT``), a data set of the hub as ``owner/name`` or ``owner/name:config``, or one or more
    paths of files, folders and globs. What is on the disk comes before a data set of the same name. ``earlier`` is the
    description of the source that is to be gone on with, if there is one: see :mod:`nanoeuler.corpus.hub`.

    Raises:
        UserError: there is no such thing, it cannot be read, or a column that the options name is not there.
    """
    options = options or Options()
    paths = [wanted] if isinstance(wanted, str | Path) else list(wanted)
    if len(paths) != 1 or isinstance(paths[0], Path):
        return open_files(paths, options)
    only = paths[0]
    name, _, config = only.partition(":")
    if only in LOCAL_NAMES:
        return _open_local_name(only, options)
    if name in HUB_NAMES:
        known = HUB_NAMES[name]
        return open_dataset(known.dataset, config or known.config, options, known.rows_are_lines, earlier)
    if _is_path(only):
        return open_files(paths, options)
    if match := DATASET.fullmatch(only):
        lines = any(match["dataset"] == known.dataset and known.rows_are_lines for known in HUB_NAMES.values())
        return open_dataset(match["dataset"], match["config"], options, lines, earlier)
    if address := re.match(rf"(https?://[^/]+|hf:/)/datasets/({DATASET.pattern})", only):
        raise UserError(f"'{only}' is an address; a data set of the hub is given as {address['dataset']}")
    raise UserError(
        f"'{only}' is neither a file or folder, nor a known corpus{nearest(only, NAMES)}, nor a data set of the hub as "
        f"owner/name or owner/name:config; known corpora are {', '.join(NAMES)}"
    )


def _is_path(text: str) -> bool:
    """Return whether something is there or, by its form, a path is meant."""
    if any(c in text for c in "*?[\\") or text.startswith((".", "/", "~")) or text.endswith("/"):
        return True
    return kind_of(Path(text)) is not None or (text != "" and _exists(text))


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a name; NUL
        return False


def _open_local_name(name: str, options: Options) -> Source:
    if name == plays.NAME:
        return open_text(name, plays.generate(), BLANK_LINE, options, {"kind": "built in", "asked_for": [name]})
    text, _ = tinyshakespeare.load()
    published = {"url": tinyshakespeare.URL, "sha256": tinyshakespeare.SHA256}
    return open_text(name, text, BLANK_LINE, options, {"kind": "published", "asked_for": [name], **published})
