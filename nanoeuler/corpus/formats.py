"""How the rows of one file are read, by kind of file. Nothing but ``.json`` is ever held in memory whole.

A reader begins at any row it has ended at before: its position is two integers, whose meaning is the reader's own.
"""

import csv
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from nanoeuler.corpus.documents import DEFAULT_COLUMN, NOT_UTF8, Options, Row
from nanoeuler.corpus.filters import kind, number_from_text
from nanoeuler.errors import UserError

BLOCK = 1 << 20
PARQUET_ROWS = 1000
#: Rows that tell which columns a file of JSON has, each row having keys of its own.
ROWS_FOR_COLUMNS = 100
END_OF_TEXT = "<|endoftext|>"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

NOT_JSON = "not valid JSON"
NOT_AN_OBJECT = "not a JSON object"
NOT_CSV = "not valid CSV"

Position = tuple[int, int]
BEGINNING: Position = (0, 0)


@dataclass
class File:
    """A file to read: of a disk, or a text in memory that is read as one."""

    name: str  # for people
    kind: str  # one of FORMATS
    compression: str  # "", ".gz" or ".zst"
    size: int
    opener: Callable[[], BinaryIO]
    time: int | None = None  # when it was last written to, in nanoseconds; None for a text in memory
    at: Callable[[], int] = field(default=lambda: 0)  # bytes of it that have been read

    @contextmanager
    def open(self, position: int = 0) -> Iterator[BinaryIO]:
        """Give its content, decompressed, from a byte on; what is before it is decompressed and passed over."""
        with self.failing_clearly(), self.opener() as raw:
            self.at = lambda: self.size if raw.closed else raw.tell()
            with _decompressed(raw, self.compression, self.name) as stream:
                if not self.compression:
                    stream.seek(position)
                while self.compression and position:
                    position -= len(stream.read(min(position, BLOCK))) or position
                yield stream

    @contextmanager
    def failing_clearly(self) -> Iterator[None]:
        """Turn what goes wrong with the file into a :class:`UserError` that names it."""
        try:
            yield
        except (EOFError, zlib.error, OSError) as error:
            if isinstance(error, OSError) and error.errno:
                raise UserError(f"{self.name}: cannot read it: {error.strerror}") from None
            what = f"a truncated or damaged {self.compression or '.' + self.kind} file ({_first_line(error)})"
            raise UserError(f"{self.name}: {what}; get it again, or leave it out") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _decompressed(raw: BinaryIO, compression: str, name: str) -> BinaryIO:
    if compression == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw, mode="rb"))
    if compression == ".zst":
        pyarrow = import_pyarrow(name)  # zstandard's own stream takes a truncated file for a short one
        return cast(BinaryIO, io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, "r"), "zstd")))
    return raw


def import_pyarrow(name: str) -> Any:
    """Return the module pyarrow, which reading ``name`` takes.

    Raises:
        UserError: it is not installed.
    """
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        raise UserError(f"{name}: reading it takes pyarrow: pip install -e '.[data]'") from None


# --- .txt ---------------------------------------------------------------------------------------------------------


def _text_columns(file: File, options: Options) -> Mapping[str, bool]:
    return {DEFAULT_COLUMN: True}


def _text_rows(file: File, needed: list[str], options: Options, start: Position) -> Iterator[Row]:
    r"""Yield documents. Position: the byte that the next begins at, and how many came before.

    A separator of white space (a blank line) is text: it stays at the end of its document, as llm.c has it. Any other
    is a mark between documents, and goes together with the line breaks next to it. A byte order mark is not text.
    """
    separator = (END_OF_TEXT if options.separator is None else options.separator).encode()
    is_text = separator.isspace()
    offset, number = start
    with file.open(offset) as stream:
        for piece, is_last in _pieces(stream, separator):
            if is_last and not piece and number:  # nothing follows the last separator
                return
            begin, offset = offset, offset + len(piece) + len(separator)
            content = piece
            if is_text and not is_last:
                content += separator
            if not is_text and number:
                content = content.lstrip(b"\r\n")
                begin += len(piece) - len(content)
            if not is_text and not is_last:
                content = content.rstrip(b"\r\n")
            if begin == 0 and content.startswith(BYTE_ORDER_MARK):
                begin, content = len(BYTE_ORDER_MARK), content.removeprefix(BYTE_ORDER_MARK)
            number += 1
            place = f"document {number}"
            try:
                yield Row({DEFAULT_COLUMN: content.decode()}, place, (offset, number))
            except UnicodeDecodeError as error:
                yield Row(None, place, (offset, number), NOT_UTF8, _bad_byte(content, error, begin))


def _pieces(stream: BinaryIO, separator: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield what stands between the separators, and whether it is the last: the stream ends after it."""
    held = bytearray()
    while block := stream.read(BLOCK):
        searched = max(0, len(held) - len(separator) + 1)  # a separator may lie across two blocks
        held += block
        begin = 0
        while (end := held.find(separator, max(begin, searched))) >= 0:
            yield bytes(held[begin:end]), False
            begin = end + len(separator)
        del held[:begin]
    yield bytes(held), True


def _bad_byte(content: bytes, error: UnicodeDecodeError, begin: int) -> str:
    if begin == 0 and content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16 by its first two bytes; save it as UTF-8"
    return f"byte {begin + error.start} of the file is 0x{content[error.start]:02x}"


# --- .jsonl -------------------------------------------------------------------------------------------------------


class _Lines:
    """The lines of a file from a position on: the byte that the next begins at, and how many came before."""

    def __init__(self, stream: BinaryIO, start: Position) -> None:
        self._stream = stream
        self.offset, self.number = start

    def __iter__(self) -> Iterator[bytes]:
        for line in self._stream:
            begin = len(BYTE_ORDER_MARK) if self.offset == 0 and line.startswith(BYTE_ORDER_MARK) else 0
            self.offset += len(line)
            self.number += 1
            yield line[begin:]


def _jsonl_columns(file: File, options: Options) -> Mapping[str, bool]:
    return _columns_of_records(_jsonl_rows(file, [], options, BEGINNING))


def _jsonl_rows(file: File, needed: list[str], options: Options, start: Position) -> Iterator[Row]:
    with file.open(start[0]) as stream:
        lines = _Lines(stream, start)
        for line in lines:
            place, state = f"line {lines.number}", (lines.offset, lines.number)
            if line.isspace():
                continue
            try:
                yield _record(json.loads(line.decode().rstrip()), place, state)
            except UnicodeDecodeError as error:
                yield Row(None, place, state, NOT_UTF8, _bad_byte(line, error, lines.offset - len(line)))
            except json.JSONDecodeError as error:
                yield Row(None, place, state, NOT_JSON, f"column {error.colno}: {error.msg}")
            except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets thousands deep
                yield Row(None, place, state, NOT_JSON, str(error))


def _record(value: Any, place: str, state: Position) -> Row:
    """Return the row of a JSON object, or of a string, which is a text alone."""
    if isinstance(value, dict):
        return Row(value, place, state)
    if isinstance(value, str):
        return Row({DEFAULT_COLUMN: value}, place, state)
    return Row(None, place, state, NOT_AN_OBJECT, f"a value of type {kind(value)}")


def _columns_of_records(rows: Iterator[Row]) -> Mapping[str, bool]:
    """Return the keys of the first rows, in the order of their appearance; one with null alone may hold strings."""
    types: dict[str, set[str]] = {}
    for row in islice(rows, ROWS_FOR_COLUMNS):
        for column, value in (row.values or {}).items():
            types.setdefault(column, set()).update([] if value is None else [kind(value)])
    return {column: "string" in found or not found for column, found in types.items()}


# --- .json --------------------------------------------------------------------------------------------------------


def _json_columns(file: File, options: Options) -> Mapping[str, bool]:
    return _columns_of_records(_json_rows(file, [], options, BEGINNING))


def _json_rows(file: File, needed: list[str], options: Options, start: Position) -> Iterator[Row]:
    """Yield the objects of a list, the file being read whole. Position: how many came before; nothing.

    The list is the file, or the one list among the values of the object that the file is; an object with the text's
    column in it, or without a list, is a row by itself. Many a ``.json`` file is JSON lines in truth, and is read as
    such: its first line is an object, and more follows.
    """
    if _has_lines(file):
        yield from _jsonl_rows(file, needed, options, start)
        return
    with file.open() as stream:
        content = stream.read()
    try:
        value = json.loads(content.removeprefix(BYTE_ORDER_MARK).decode())
    except UnicodeDecodeError as error:
        raise UserError(f"{file.name}: not UTF-8 text: {_bad_byte(content, error, 0)}") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{file.name}: {NOT_JSON}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file.name}: {NOT_JSON}: {error}") from None
    records = _records(value, options.text_column or DEFAULT_COLUMN, file.name)
    for number, record in enumerate(islice(records, start[0], None), start[0] + 1):
        yield _record(record, f"item {number}", (number, 0))


def _records(value: Any, text_column: str, name: str) -> list[Any]:
    """Return the rows that the value of a whole file stands for.

    Raises:
        UserError: it is neither a list nor an object, or an object in which it is not clear what the rows are.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        raise UserError(f"{name}: neither a list of objects or strings nor an object, but a {kind(value)}")
    lists = [member for member in value.values() if isinstance(member, list)]
    if isinstance(value.get(text_column), str) or (value and not lists):
        return [value]
    if len(lists) > 1:
        raise UserError(
            f"{name}: an object with {len(lists)} lists in it, and without a string '{text_column}': which list has "
            "the rows is not clear"
        )
    return lists[0] if lists else []


def _has_lines(file: File) -> bool:
    """Return whether the first line is a JSON object and there is a second line that is not blank."""
    with file.open() as stream:
        line = stream.readline()
        if not line.removeprefix(BYTE_ORDER_MARK).startswith(b"{"):
            return False
        try:
            json.loads(line.removeprefix(BYTE_ORDER_MARK))
        except (ValueError, RecursionError):
            return False
        return any(not line.isspace() for line in stream)


# --- .csv ---------------------------------------------------------------------------------------------------------

csv.field_size_limit(2**31 - 1)  # the module's own limit of 131,072 is less than many a document


def _header(file: File) -> list[str]:
    with file.open() as stream:
        lines = _Lines(stream, BEGINNING)
        try:
            return next(csv.reader(line.decode() for line in lines), [])
        except UnicodeDecodeError as error:
            why = f"{NOT_UTF8}: {_bad_byte(error.object, error, lines.offset - len(error.object))}"
        except csv.Error as error:
            why = _csv_fault(error)
    raise UserError(f"{file.name}: its first line is not a header of columns: {why}")


def _csv_columns(file: File, options: Options) -> Mapping[str, bool]:
    return _by_name([(name, True) for name in _header(file)])


def _by_name(columns: Sequence[tuple[str, bool]]) -> Mapping[str, bool]:
    """Return columns by their names, and whether each holds strings.

    Those that share a name cannot be asked for by it, and are called otherwise: as two that may be strings, so that
    none of them, and no other, is taken for the only one.
    """
    times, seen = Counter(name for name, _ in columns), Counter[str]()
    named: dict[str, bool] = {}
    for name, is_text in columns:
        seen[name] += 1
        if times[name] == 1:
            named[name] = is_text
        else:
            named[f"{name} ({seen[name]} of {times[name]})"] = True
    return named


def _csv_fault(error: csv.Error) -> str:
    """Return what the module says of a fault, but for its advice to programmers."""
    text = str(error)
    return "a carriage return that is neither in quotes nor before a line feed" if "new-line" in text else text


def _csv_rows(file: File, needed: list[str], options: Options, start: Position) -> Iterator[Row]:
    """Yield records; a field is a string, or a number in a column that a condition compares with a number."""
    header = _header(file)
    numbers = {c.column for c in options.conditions if kind(c.expected) == "number"} - {needed[0]}
    with file.open(start[0]) as stream:
        lines = _Lines(stream, start)
        reader = csv.reader((line.decode(errors="surrogateescape") for line in lines), strict=True)
        if start == BEGINNING:
            next(reader, None)
        while True:
            place = f"line {lines.number + 1}"
            try:
                fields = next(reader, None)
            except csv.Error as error:
                yield Row(None, place, (lines.offset, lines.number), NOT_CSV, _csv_fault(error))
                continue
            state = (lines.offset, lines.number)
            if fields is None:
                return
            if not fields:  # a blank line
                continue
            if len(fields) != len(header):
                yield Row(None, place, state, NOT_CSV, f"{len(fields)} fields under {len(header)} columns")
                continue
            values: dict[str, Any] = dict(zip(header, fields, strict=True))
            for column in numbers:
                values[column] = number_from_text(values[column])
            yield Row(values, place, state)


# --- .parquet -----------------------------------------------------------------------------------------------------


def _parquet_columns(file: File, options: Options) -> Mapping[str, bool]:
    pyarrow = import_pyarrow(file.name)
    with _parquet(file) as parquet:
        return _by_name([(column.name, is_string(column.type, pyarrow)) for column in parquet.schema_arrow])


def is_string(type_: Any, pyarrow: Any) -> bool:
    """Return whether a type of pyarrow's is one of its types of strings."""
    types = pyarrow.types
    if types.is_dictionary(type_):
        return is_string(type_.value_type, pyarrow)
    return bool(types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_))


def _parquet_rows(file: File, needed: list[str], options: Options, start: Position) -> Iterator[Row]:
    """Yield the rows, a thousand in memory at a time. Position: how many came before; nothing."""
    with _parquet(file) as parquet:
        before, total = 0, max(parquet.metadata.num_rows, 1)
        file.at = lambda: file.size * before // total
        for group in range(parquet.num_row_groups):
            rows = parquet.metadata.row_group(group).num_rows
            if before + rows > start[0]:
                yield from _group_rows(parquet, group, needed, before, start[0])
            before += rows


def _group_rows(parquet: Any, group: int, needed: list[str], before: int, start: int) -> Iterator[Row]:
    """Yield the rows from number ``start`` on of a row group that ``before`` rows precede."""
    batches = parquet.iter_batches(PARQUET_ROWS, row_groups=[group], columns=needed, use_threads=False)
    for batch in batches:
        columns = [_values(batch.column(name)) for name in needed]
        for i in range(max(start - before, 0), len(batch)):
            values = {name: column[i] for name, column in zip(needed, columns, strict=True)}
            yield Row(values, f"row {before + i + 1}", (before + i + 1, 0))
        before += len(batch)


def _values(column: Any) -> list[Any]:
    """Return the values of a column of pyarrow's; bytes that are not UTF-8 become lone surrogates."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        plain = column.dictionary_decode() if hasattr(column, "dictionary_decode") else column
        values = plain.cast("large_binary").to_pylist()
        return [None if value is None else value.decode(errors="surrogateescape") for value in values]


@contextmanager
def _parquet(file: File) -> Iterator[Any]:
    """Give the ParquetFile, and turn pyarrow's errors into a :class:`UserError`."""
    pyarrow = import_pyarrow(file.name)
    with file.failing_clearly(), file.opener() as raw:
        try:
            with pyarrow.parquet.ParquetFile(raw) as parquet:
                yield parquet
        except pyarrow.ArrowInvalid as error:
            raise OSError(str(error)) from None


# ------------------------------------------------------------------------------------------------------------------


class Format(NamedTuple):
    """What is known of a kind of file."""

    columns: Callable[[File, Options], Mapping[str, bool]]  # column -> whether it holds strings
    rows: Callable[[File, list[str], Options, Position], Iterator[Row]]  # of the columns needed, from a position on


FORMATS = {
    "txt": Format(_text_columns, _text_rows),
    "jsonl": Format(_jsonl_columns, _jsonl_rows),
    "json": Format(_json_columns, _json_rows),
    "csv": Format(_csv_columns, _csv_rows),
    "parquet": Format(_parquet_columns, _parquet_rows),
}
COMPRESSIONS = (".gz", ".zst")


def kind_of(path: Path) -> tuple[str, str] | None:
    """Return the format and the compression that a file's name tells, or None for one that is not read here.

    >>> kind_of(Path("a/b.jsonl.gz")), kind_of(Path("b.TXT")), kind_of(Path("README.md"))
    (('jsonl', '.gz'), ('txt', ''), None)
    """
    compression = path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""
    suffix = (Path(path.stem) if compression else path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS or (suffix == "parquet" and compression):
        return None
    return suffix, compression


def kind_asked_for(path: Path) -> tuple[str, str]:
    """Return how to read a file that was asked for by its own name: as text, if its name tells nothing else.

    >>> kind_asked_for(Path("a.csv")), kind_asked_for(Path("README.md")), kind_asked_for(Path("LICENSE.gz"))
    (('csv', ''), ('txt', ''), ('txt', '.gz'))
    """
    suffix = path.suffix.lower()
    return kind_of(path) or ("txt", suffix if suffix in COMPRESSIONS else "")
