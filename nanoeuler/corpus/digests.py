"""The SHA-256 of every shard of a corpus, computed once: a small file in its folder remembers them.

What is remembered of a file holds as long as its size and its time of change are the same. In a folder that cannot be
written to nothing is remembered.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rich.progress import Progress

from nanoeuler.console import byte_bar, format_bytes, is_terminal, plural, visible
from nanoeuler.errors import UserError
from nanoeuler.files import replace_file, sha256_of_file

FILE = ".sha256.json"
#: Bytes of shards to read from which on a line says so, where there is no terminal for a bar.
LONG = 1 << 30

Entry = tuple[int, int, str]  # size, time of change in nanoseconds, SHA-256


def digests(folder: Path, files: Sequence[str]) -> Iterator[str]:
    """Yield the SHA-256 of files of a folder, one after the other; those that are not remembered are read.

    Raises:
        UserError: one is missing or cannot be read.
    """
    known = _remembered(folder)
    stamps = [_stamp(folder / file) for file in files]
    unknown = {i for i, file in enumerate(files) if known.get(file, (0, 0, ""))[:2] != stamps[i]}
    try:
        with _bar(folder, len(unknown), sum(stamps[i][0] for i in unknown)) as bar:
            for i, file in enumerate(files):
                if i in unknown:
                    known[file] = (*stamps[i], _sha256(folder / file, bar))
                yield known[file][2]
    finally:  # also when it is interrupted: what was read need not be read again
        if unknown:
            _remember(folder, known)


def _sha256(path: Path, bar: Progress) -> str:
    try:
        return sha256_of_file(path, lambda size: bar.advance(bar.task_ids[0], size))
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror}") from None


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror}") from None
    return stat.st_size, stat.st_mtime_ns


def _remembered(folder: Path) -> dict[str, Entry]:
    try:
        record = json.loads((folder / FILE).read_bytes())
        return {str(file): (int(size), int(time), str(sha256)) for file, (size, time, sha256) in record.items()}
    except (OSError, ValueError, TypeError, AttributeError):  # there is none, or it is of no use: read all
        return {}


def _remember(folder: Path, known: dict[str, Entry]) -> None:
    with suppress(OSError):
        replace_file(folder / FILE, (json.dumps(known) + "\n").encode())


def _bar(folder: Path, files: int, size: int) -> Progress:
    """Return a bar with its task, or print what is about to be done if it takes long and there is no terminal."""
    what = f"checking {plural(files, 'shard')} of {folder}, {format_bytes(size)}, once"
    if size >= LONG and not is_terminal(sys.stderr):
        print(visible(what), file=sys.stderr, flush=True)
    bar = byte_bar(show=size > 0)
    bar.add_task(what, total=size)
    return bar
