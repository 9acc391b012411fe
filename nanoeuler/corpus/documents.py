"""What every source of documents has in common: its options, its batches, and the sieve that rows pass through."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nanoeuler.console import plural
from nanoeuler.corpus.filters import Condition
from nanoeuler.errors import UserError, nearest

#: A batch is handed over when it has this many documents or characters, or this many rows have been looked at.
BATCH_DOCUMENTS = 1000
BATCH_CHARACTERS = 1_000_000
BATCH_ROWS = 10_000

DEFAULT_COLUMN = "text"

NOT_UTF8 = "not valid UTF-8"
EMPTY = "empty"
TOO_SHORT = "too short"
TOO_LONG = "too long"


@dataclass(frozen=True)
class Options:
    """What decides which documents a source gives. Lengths are in characters."""

    text_column: str | None = None  # None: "text", or the only column of strings
    conditions: tuple[Condition, ...] = ()  # all of them must be met
    min_characters: int = 0
    max_characters: int | None = None
    separator: str | None = None  # between the documents of a .txt file; None: <|endoftext|>
    revision: str | None = None  # of a hub's data set: a branch, tag or commit; None: the newest


@dataclass
class Batch:
    """Neighbouring documents of a source, and what was left out among them."""

    documents: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)  # reason -> rows
    notes: list[str] = field(default_factory=list)  # where a reason, but those asked for, came up for the first time
    rows: int = 0  # looked at: documents and skips
    state: Any = None  # JSON: read(state) goes on after this batch


class Source(ABC):
    """Documents in a fixed order, from any place in it."""

    #: JSON: what was asked for and where it comes from. Equal descriptions are the same documents.
    description: Mapping[str, Any]
    #: What to tell before reading begins, such as files that were left out.
    notes: Sequence[str] = ()
    #: JSON: the time that each file was last written to, where it comes from files that may be written to.
    times: Mapping[str, int] = {}

    @abstractmethod
    def read(self, state: Any | None = None) -> Iterator[Batch]:
        """Yield batches from the beginning, or from where the batch with ``state`` ended.

        Raises:
            UserError: the documents cannot be had, or a column does not suit the options.
        """

    @abstractmethod
    def progress(self) -> tuple[int, int | None]:
        """Return how much has been read, and how much there is if that is known: both in bytes, or both in rows."""


class Row(NamedTuple):
    """One row of a source: a line, a record, a whole file."""

    values: Mapping[str, Any] | None  # column -> value; None where the row cannot be read
    place: str  # "line 17", for people
    state: Any  # from where to go on after this row
    fault: str = ""  # why it cannot be read: a reason to count by
    detail: str = ""  # more about that, for the note


class Sieve:
    """Turns rows into batches: applies the conditions, and counts every row that is left out by its reason.

    A value that a row lacks is as good as null. That there is such a column at all is checked beforehand, for the file
    or data set as a whole: see :func:`choose_columns`.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.batch = Batch()
        self._characters = 0
        self._noted = {TOO_SHORT, TOO_LONG, *map(str, options.conditions)}  # what was asked for needs no note

    def batches(self, rows: Iterable[Row], column: str, name: str) -> Iterator[Batch]:
        """Yield full batches of the rows of the file (or data set) ``name``; what remains stays for the next call."""
        for row in rows:
            self._take(row, column, name)
            batch = self.batch
            batch.rows += 1
            batch.state = row.state
            if (
                len(batch.documents) >= BATCH_DOCUMENTS
                or self._characters >= BATCH_CHARACTERS
                or batch.rows >= BATCH_ROWS
            ):
                yield self.hand_over()

    def hand_over(self) -> Batch:
        """Return the batch as it is, and begin the next."""
        batch, self.batch, self._characters = self.batch, Batch(), 0
        return batch

    def _take(self, row: Row, column: str, name: str) -> None:
        text: Any = None
        reason, detail = row.fault, row.detail
        if row.values is not None:
            text = row.values.get(column)
            reason, detail = self._judge(row.values, column, f"{name}: {row.place}")
        if not reason:
            self.batch.documents.append(text)
            self._characters += len(text)
            return
        self.batch.skipped[reason] += 1
        if reason not in self._noted:
            self._noted.add(reason)
            self.batch.notes.append(f"{name}: {row.place}: {reason}" + (f": {detail}" if detail else ""))

    def _judge(self, values: Mapping[str, Any], column: str, place: str) -> tuple[str, str]:
        """Return the reason to leave a row out, "" for a good one, and more about it."""
        for condition in self.options.conditions:
            try:
                met = condition.met(values.get(condition.column))
            except TypeError as error:
                raise UserError(f"{place}: {error}") from None
            if not met:
                return str(condition), ""
        text = values.get(column)
        if text is None:
            return f"no {column}", ""
        if not isinstance(text, str):
            return f"{column} is not a string", f"a value of type {type(text).__name__}"
        if not text or text.isspace():
            return EMPTY, ""
        if len(text) < self.options.min_characters:
            return TOO_SHORT, plural(len(text), "character")
        if self.options.max_characters is not None and len(text) > self.options.max_characters:
            return TOO_LONG, plural(len(text), "character")
        try:
            text.encode()
        except UnicodeEncodeError as error:  # JSON can say half of a surrogate pair
            return NOT_UTF8, f"character {error.start} is {text[error.start]!a}"
        return "", ""


def choose_columns(columns: Mapping[str, bool], options: Options, name: str) -> tuple[str, list[str]]:
    """Return the column of the text, and all columns that are needed, the text's first and none twice.

    ``columns`` are those of the file or data set ``name``, and whether each holds strings, as far as is known.

    Raises:
        UserError: one of them is not there, it is not clear which is the text, or that holds something else.
    """
    text = options.text_column or DEFAULT_COLUMN
    strings = [column for column, is_string in columns.items() if is_string]
    if options.text_column is None and text not in columns and len(strings) == 1:
        text = strings[0]
    for wanted, why in [(text, ""), *((c.column, f", which '{c}' asks for") for c in options.conditions)]:
        if wanted in columns:
            continue
        there = ", ".join(columns) or "none"
        advice = "; --text-column names the column of the text" if wanted == DEFAULT_COLUMN and not why else ""
        raise UserError(f"{name}: no column '{wanted}'{why}{nearest(wanted, columns)}; columns: {there}{advice}")
    if not columns[text]:
        others = f"; columns of strings: {', '.join(strings)}; --text-column names the column of the text"
        raise UserError(f"{name}: column '{text}' holds no strings{others if strings else ''}")
    return text, list(dict.fromkeys([text, *(condition.column for condition in options.conditions)]))
