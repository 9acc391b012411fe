"""Documents of files: of a disk, and of a text in memory."""

import glob
import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from nanoeuler.console import plural
from nanoeuler.corpus import manifest
from nanoeuler.corpus.documents import DEFAULT_COLUMN, Batch, Options, Sieve, Source, choose_columns
from nanoeuler.corpus.formats import BEGINNING, COMPRESSIONS, FORMATS, File, kind_asked_for, kind_of
from nanoeuler.corpus.unfinished import HIDDEN
from nanoeuler.errors import UserError

KNOWN = ", ".join("." + name for name in FORMATS) + " (and " + ", ".join(COMPRESSIONS) + " of them, but of .parquet)"


class LocalFiles(Source):
    """The documents of files, in their order."""

    def __init__(self, files: Sequence[File], options: Options, description: dict[str, Any], notes: Sequence[str] = ()):
        """Look at every file's columns.

        Raises:
            UserError: a file cannot be read, or lacks a column; or an option is of sources of another kind.
        """
        if options.revision is not None:
            raise UserError(f"--revision is of the hub's data sets, and {description['asked_for'][0]} is none")
        if options.separator is not None and all(file.kind != "txt" for file in files):
            raise UserError("--separator stands between the documents of .txt files, and there is none")
        self.options = options
        self.notes = list(notes)
        self.files = list(files)
        self.times = {file.name: file.time for file in files if file.time is not None}
        self.description = description | {"files": [{"file": f.name, "bytes": f.size} for f in files]}
        self._columns = [self._choose(file) for file in files]
        self._current = 0

    def _choose(self, file: File) -> tuple[str, list[str]]:
        columns = FORMATS[file.kind].columns(file, self.options)
        file.at = lambda: 0
        if not columns:  # no row, or none that can be read: they are to be counted all the same
            column = self.options.text_column or DEFAULT_COLUMN
            return column, [column]
        return choose_columns(columns, self.options, file.name)

    def read(self, state: Any | None = None) -> Iterator[Batch]:
        """Yield batches; the state is the number of the file and the position in it."""
        first, *position = state or (0, *BEGINNING)
        sieve = Sieve(self.options)
        for number in range(first, len(self.files)):
            self._current = number
            file, (column, needed) = self.files[number], self._columns[number]
            start = (position[0], position[1]) if number == first else BEGINNING
            rows = FORMATS[file.kind].rows(file, needed, self.options, start)
            for batch in sieve.batches(rows, column, file.name):
                batch.state = [number, *batch.state]
                yield batch
        self._current = len(self.files)
        if sieve.batch.rows:
            sieve.batch.state = [self._current, *BEGINNING]
            yield sieve.hand_over()

    def progress(self) -> tuple[int, int]:
        """Return the bytes read of the files, compressed as they are, and their sizes' sum."""
        done = sum(file.size for file in self.files[: self._current])
        if self._current < len(self.files):
            done += self.files[self._current].at()
        return done, sum(file.size for file in self.files)


def open_text(name: str, text: str, separator: str, options: Options, description: dict[str, Any]) -> LocalFiles:
    """Return the documents of a text in memory, as if it were a ``.txt`` file; the options' separator comes first."""
    content = text.encode()
    file = File(name, "txt", "", len(content), lambda: io.BytesIO(content))
    chosen = separator if options.separator is None else options.separator
    return LocalFiles([file], replace(options, separator=chosen), description)


def open_files(paths: Sequence[str | Path], options: Options) -> LocalFiles:
    """Return the documents of files, of all files in folders and of what globs match: sorted within each of these.

    Of a folder only the kinds of file that documents come in are read; any other is read as text if it is named.

    Raises:
        UserError: one of them is missing or cannot be read, or there is not one file of a known kind.
    """
    found: list[Path] = []
    notes: list[str] = []
    for path in paths:
        found += _expand(path, notes)
    found = list(dict.fromkeys(found))
    files = [_file(path) for path in found]
    return LocalFiles(files, options, {"kind": "files", "asked_for": [str(path) for path in paths]}, notes)


def _file(path: Path) -> File:
    name = path.as_posix()

    def opener() -> BinaryIO:
        return path.open("rb")

    try:
        status = path.stat()
        return File(name, *kind_asked_for(path), status.st_size, opener, status.st_mtime_ns)
    except OSError as error:
        raise UserError(f"{name}: cannot read it: {error.strerror}") from None


def _expand(wanted: str | Path, notes: list[str]) -> list[Path]:
    """Return the files that a path stands for; what is left out of a folder goes to the notes."""
    path = Path(wanted)
    try:
        if path.is_dir():
            return _walk(path, notes)
        if path.is_file():
            return [path]
        if path.exists():
            raise UserError(f"{path}: a device or a pipe, and documents come from files")
    except (OSError, ValueError) as error:  # no permission; NUL or a lone surrogate in a name
        name = getattr(error, "filename", None) or wanted
        raise UserError(f"{name}: cannot read it: {getattr(error, 'strerror', error)}") from None
    if not glob.has_magic(str(wanted)):
        raise UserError(f"{path}: no such file or folder")
    matches = [Path(match) for match in sorted(glob.glob(str(wanted), recursive=True))]  # noqa: PTH207 (absolute too)
    if not matches:
        raise UserError(f"{path}: nothing matches this pattern")
    corpora = {here: _is_corpus(here) for here in {match.parent for match in matches}}
    notes += [_left_out(here) for here in sorted(here for here, is_one in corpora.items() if is_one)]
    files = [match for match in matches if match.is_file() and not corpora[match.parent]]
    if not files:
        raise UserError(f"{path}: no file matches this pattern, only folders")
    return files


def _walk(folder: Path, notes: list[str]) -> list[Path]:
    """Return the files in a folder and in those below it, sorted.

    Folders that are hidden, links or prepared corpora are left alone. So a corpus may be prepared in a folder of the
    texts that it is made of, and started again.
    """
    files: list[Path] = []
    hidden = 0
    for here, folders, names in os.walk(folder, onerror=_fail):
        links = [name for name in folders if Path(here, name).is_symlink()]
        notes += [f"{Path(here, name)}: left out: a link to a folder" for name in links]
        corpora = [name for name in folders if _is_corpus(Path(here, name))]
        notes += [_left_out(Path(here, name)) for name in sorted(corpora)]
        folders[:] = [name for name in folders if name not in corpora]
        found = [Path(here, name) for name in names]
        shown = [path for path in found if not any(p.startswith(".") for p in path.relative_to(folder).parts)]
        files += [path for path in shown if path.is_file() or path.is_symlink()]
        hidden += len(found) - len(shown)
    return _usable(sorted(files), str(folder), hidden, notes)


def _is_corpus(folder: Path) -> bool:
    """Return whether a folder holds a prepared corpus, finished or not."""
    return (folder / HIDDEN).is_dir() or ((folder / manifest.FILE).is_file() and any(folder.glob("*.bin")))


def _left_out(corpus: Path) -> str:
    return f"{corpus}: left out: a prepared corpus"


def _fail(error: OSError) -> None:
    raise error


def _usable(files: list[Path], wanted: str, hidden: int, notes: list[str]) -> list[Path]:
    """Return a folder's files of known kinds, and note what is left out."""
    usable = [path for path in files if kind_of(path)]
    unknown = Counter(path.suffix or "no ending" for path in files if not kind_of(path))
    left_out = [f"{plural(count, 'file')} ({ending})" for ending, count in sorted(unknown.items())]
    left_out += [plural(hidden, "hidden file")] * bool(hidden)
    how = _how(wanted, unknown)
    if not usable:
        there = f"; in it: {', '.join(left_out)}" if left_out else ""
        raise UserError(f"{wanted}: no file to read documents from{there}; such files are {KNOWN}{how}")
    if left_out:
        notes.append(f"{wanted}: left out: {', '.join(left_out)}{how}")
    return usable


def _how(folder: str, unknown: Counter[str]) -> str:
    """Return how to have files of an unknown kind read after all."""
    ending = next((ending for ending, _ in unknown.most_common() if ending.startswith(".")), None)
    return f"; what is named is read as text, such as '{folder}/**/*{ending}'" if ending else ""
