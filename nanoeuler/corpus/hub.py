"""Data sets of the Hugging Face hub, streamed through `datasets <https://huggingface.co/docs/datasets>`_.

Rows arrive as they are asked for; nothing of the data is kept on the disk (the library keeps a data set's README, a few
kilobytes, in its cache). HF_ENDPOINT, HF_HOME, HF_TOKEN and HF_HUB_DOWNLOAD_TIMEOUT are honoured by the libraries.

The commit is looked up once and recorded, so that a run that is resumed with it reads the same rows. To go on, the
library skips whole files, and reads the one it stopped in from its beginning.
"""

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from nanoeuler.corpus.arrow_exit import closed_at_exit
from nanoeuler.corpus.documents import Batch, Options, Row, Sieve, Source, choose_columns
from nanoeuler.corpus.names import HUB_NAMES
from nanoeuler.errors import UserError
from nanoeuler.hub_trouble import DATA_SET, Patience

SPLIT = "train"
#: The line that begins an article in wikitext: " = Title = ", and not " = = Section = = ".
HEADING = re.compile(r" = (?!= ).+(?<! =) = \n?")


class HubDataset(Source):
    """The documents of a data set's training split."""

    def __init__(self, dataset: Any, column: str, rows_are_lines: bool, options: Options, description: dict[str, Any]):
        self.options = options
        self.description = description
        self._dataset, self._column, self._rows_are_lines = dataset, column, rows_are_lines
        self._beginning = dataset.state_dict()
        self._rows = 0
        split = (dataset.info.splits or {}).get(SPLIT)
        self._total = split.num_examples if split else None

    def read(self, state: Any | None = None) -> Iterator[Batch]:
        """Yield batches; the state is the library's, how many rows came before, and lines of an unfinished article.

        When the hub fails, a batch of no rows has the note of it, and reading goes on from the batch before.
        """
        state = state or {"library": self._beginning, "rows": 0, "lines": []}
        patience = Patience(self.description["asked_for"][0], None, DATA_SET)
        patience.is_known = True
        while True:
            try:
                for batch in self._batches(state):
                    patience.renew()
                    state = batch.state
                    yield batch
                return
            except Exception as error:
                note = patience.note(error)
            yield Batch(notes=[note], state=state)
            patience.wait()

    def _batches(self, state: Any) -> Iterator[Batch]:
        self._rows = state["rows"]
        lines = list(state["lines"])  # of the article that is being read
        self._dataset.load_state_dict(state["library"])
        sieve = Sieve(self.options)

        def full_state() -> dict[str, Any]:
            return {"library": self._dataset.state_dict(), "rows": self._rows, "lines": list(lines)}

        stream = closed_at_exit(iter(self._dataset))
        try:
            texts = self._articles(stream, lines) if self._rows_are_lines else self._counted(stream)
            for batch in sieve.batches(texts, self._column, self.description["dataset"]):
                batch.state = full_state()
                yield batch
        finally:
            stream.close()
        if sieve.batch.rows:
            sieve.batch.state = full_state()
            yield sieve.hand_over()

    def _counted(self, stream: Iterator[Mapping[str, Any]]) -> Iterator[Row]:
        for values in stream:
            self._rows += 1
            yield Row(values, f"row {self._rows}", None)

    def _articles(self, stream: Iterator[Mapping[str, Any]], lines: list[str]) -> Iterator[Row]:
        """Yield articles; ``lines`` are those of the one that is being read. An empty row is a blank line."""
        for row in self._counted(stream):
            line = (row.values or {})[self._column] or "\n"
            if HEADING.fullmatch(line) and (not lines or lines[-1].isspace()):
                article = "".join(lines)
                lines[:] = [line]
                if article and not article.isspace():
                    yield Row({self._column: article}, f"the article before row {self._rows}", None)
            else:
                lines.append(line)
        article = "".join(lines)
        lines.clear()
        if article and not article.isspace():
            yield Row({self._column: article}, "the last article", None)

    def progress(self) -> tuple[int, int | None]:
        """Return the rows read, and how many there are where the data set's card says it."""
        return self._rows, self._total


def open_dataset(
    dataset: str,
    config: str | None,
    options: Options,
    rows_are_lines: bool = False,
    earlier: Mapping[str, Any] | None = None,
) -> HubDataset:
    """Return the documents of a data set of the hub.

    ``earlier`` is the description of the source that is to be gone on with: unless the options name a revision, the
    same data set is read at the commit it was at then, wherever the branch is now.

    Raises:
        UserError: the libraries are not installed, the hub is away or knows no such data set, configuration or
            revision, or does not let us have it, or a column that the options name is not there.
    """
    datasets, hub = _libraries(dataset)
    asked_for = f"{dataset}:{config}" if config else dataset
    if options.separator is not None:
        raise UserError(f"--separator stands between the documents of .txt files, and {dataset} is a data set of rows")
    place = {"kind": "hub", "asked_for": [asked_for], "dataset": dataset, "config": config, "split": SPLIT}
    is_same = earlier is not None and place == {name: earlier.get(name) for name in place}
    wanted = earlier["revision"] if earlier and is_same and options.revision is None else options.revision
    patience = Patience(asked_for, wanted, DATA_SET, [known.dataset for known in HUB_NAMES.values()])

    def load(**options: Any) -> Any:
        return datasets.load_dataset(dataset, name=config, split=SPLIT, streaming=True, revision=commit, **options)

    commit = patience.attempt(lambda: hub.HfApi().dataset_info(dataset, revision=wanted).sha)
    patience.is_known = True
    stream = patience.attempt(load)
    columns = patience.attempt(lambda: _columns(stream))
    column, needed = choose_columns(columns, options, asked_for)
    if set(needed) != set(columns):
        try:  # only these columns of a parquet file are then transferred
            stream = patience.attempt(lambda: load(columns=needed))
        except ValueError:  # other formats do not know how
            stream = stream.select_columns(needed)
    source = HubDataset(stream, column, rows_are_lines, options, place | {"revision": commit})
    if wanted != options.revision:
        source.notes = [f"{asked_for}: revision {commit}, as before; --revision with a new --out takes another"]
    return source


def _columns(dataset: Any) -> Mapping[str, bool]:
    """Return the columns, and whether each holds strings; from the first row where the library does not know them."""
    if dataset.features is not None:
        strings = ("string", "large_string", "string_view")
        return {name: getattr(feature, "dtype", None) in strings for name, feature in dataset.features.items()}
    rows = list(dataset.take(1))
    return {name: value is None or isinstance(value, str) for row in rows for name, value in row.items()}


def _libraries(dataset: str) -> tuple[Any, Any]:
    """Return the modules datasets and huggingface_hub, made quiet, and with patience left to us."""
    try:
        datasets, hub = import_module("datasets"), import_module("huggingface_hub")
    except ImportError:
        raise UserError(f"{dataset}: reading it from the hub takes datasets: pip install -e '.[data]'") from None
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.disable_progress_bars()
    hub.utils.logging.set_verbosity(hub.utils.logging.CRITICAL)
    hub.utils.disable_progress_bars()
    for name in ("STREAMING_READ_MAX_RETRIES", "STREAMING_OPEN_MAX_RETRIES"):
        setattr(datasets.config, name, 1)
    for name in ("STREAMING_READ_RETRY_INTERVAL", "STREAMING_OPEN_RETRY_INTERVAL"):
        setattr(datasets.config, name, 0)
    return datasets, hub
