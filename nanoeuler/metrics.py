"""What a run measures: one JSON line per step in ``metrics.jsonl``, and the same numbers as TensorBoard events.

The JSON lines are the record that everything else is drawn from (see :mod:`nanoeuler.report`); the event files are
for those who have TensorBoard open already: ``tensorboard --logdir runs``.
"""

import errno
import json
import math
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from nanoeuler.console import visible
from nanoeuler.errors import UserError
from nanoeuler.files import replace_file, writing

#: Fields of a record that TensorBoard shows, by the name it shows them under.
TENSORBOARD_NAMES = {
    "train_loss": "loss/train",
    "val_loss": "loss/val",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "tokens_per_second": "tokens_per_second",
}

#: Seconds that TensorBoard events may wait in memory. ``metrics.jsonl`` never waits.
SYNC_SECONDS = 30.0


class MetricsLog:
    """Writes ``RUN/metrics.jsonl`` and ``RUN/tensorboard/``; closed by :meth:`close` or at the end of a ``with``.

    ``resume_step`` is the step of the checkpoint that the run goes on from: records of later steps, which that run
    will write again, are dropped, and so is a last line that a crash cut short. Without it the log starts empty.

    Raises:
        UserError: a file cannot be written, or an old ``metrics.jsonl`` has a damaged line other than its last.
    """

    def __init__(self, run_directory: str | Path, resume_step: int | None = None) -> None:
        self.path = Path(run_directory) / "metrics.jsonl"
        self._events_path = self.path.parent / "tensorboard"
        first_step = 0 if resume_step is None else resume_step + 1
        old = _lines(self.path) if first_step and self.path.exists() else ()
        kept = [line for line, record in old if record["step"] < first_step]
        with ExitStack() as on_failure:
            with writing(self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(self.path, b"".join(kept))
                self._file = on_failure.enter_context(self.path.open("ab", buffering=0))
            with writing(self._events_path):
                self._events = _open_events(self._events_path)
                on_failure.callback(_close_quietly, self._events)
                self._write_events(*_first_events(first_step))
                self.sync()
            on_failure.pop_all()

    def step(
        self,
        step: int,
        *,
        train_loss: float | None = None,
        smoothed_loss: float | None = None,
        learning_rate: float | None = None,
        grad_norm: float | None = None,
        tokens_per_second: float | None = None,
        elapsed_seconds: float | None = None,
        skipped: bool = False,
        val_loss: float | None = None,
        val_bits_per_byte: float | None = None,
    ) -> None:
        """Log one step: losses in nats per token, seconds since the run began; what is None is left out.

        ``skipped`` says that the update was not made, and is written only then. JSON has no NaN and no infinity:
        such a number is written as null, and the list ``non_finite`` names its field.

        Raises:
            UserError: the line cannot be written (a full disk); nothing of it is left in the file.
        """
        numbers = {
            "train_loss": train_loss,
            "smoothed_loss": smoothed_loss,
            "learning_rate": learning_rate,
            "grad_norm": grad_norm,
            "tokens_per_second": tokens_per_second,
            "elapsed_seconds": elapsed_seconds,
            "val_loss": val_loss,
            "val_bits_per_byte": val_bits_per_byte,
        }
        values = {name: float(number) for name, number in numbers.items() if number is not None}
        with writing(self.path):
            _write_whole(self._file, _to_line(int(step), values, skipped))
        shown = {name: values[field] for field, name in TENSORBOARD_NAMES.items() if field in values}
        with writing(self._events_path):
            self._write_events(_scalars_event(int(step), shown))
            if val_loss is not None or time.monotonic() - self._synced > SYNC_SECONDS:
                self.sync()

    def sample(self, step: int, text: str) -> None:
        """Show a sample of text in TensorBoard, as it is: Markdown, which TensorBoard would render, is kept from it.

        Raises:
            UserError: the event file cannot be written.
        """
        with writing(self._events_path):
            self._write_events(_text_event(int(step), text))
            self.sync()

    def sync(self) -> None:
        """Force all that was logged onto the disk: called before a checkpoint, so that none is ahead of its metrics.

        Raises:
            UserError: the disk is full.
        """
        with writing(self.path):
            os.fsync(self._file.fileno())
        with writing(self._events_path):
            self._events.flush()  # and fsync
        self._synced = time.monotonic()

    def close(self) -> None:
        """Write out what TensorBoard's file still lacks and close both files; closing twice is allowed.

        Raises:
            UserError: the disk is full. The files are closed all the same.
        """
        self._file.close()
        with writing(self._events_path):
            self._events.close()

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(UserError) if error else nullcontext():  # the first error is the one to hear of
            self.close()

    def _write_events(self, *events: Any) -> None:
        for event in events:
            self._events.write(event.SerializeToString())


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Return the records of a ``metrics.jsonl``, oldest first; a last line that a crash cut short is left out.

    Raises:
        UserError: there is no such file, or another line than the last is damaged.
    """
    return [record for _, record in _lines(Path(path))]


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield each line, with the newline at its end, and the record that it holds."""
    try:
        lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    except OSError as error:
        raise UserError(f"{path}: cannot read the metrics: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            record["step"] + 0
        except (ValueError, TypeError, KeyError):
            if number == len(lines):
                return
            raise UserError(f"{path}: line {number} is not the record of a step; remove that line") from None
        yield line + b"\n", record


def _to_line(step: int, values: dict[str, float], skipped: bool) -> bytes:
    """Return a record as one line of strict JSON."""
    non_finite = [name for name, value in values.items() if not math.isfinite(value)]
    record: dict[str, Any] = {"step": step, **values, **dict.fromkeys(non_finite)}
    if skipped:
        record["skipped"] = True
    if non_finite:
        record["non_finite"] = non_finite
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def _write_whole(file: Any, line: bytes) -> None:
    """Append a line with one write; if the disk takes only a part of it, take that part back."""
    written = file.write(line)
    if written != len(line):
        file.truncate(file.tell() - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _close_quietly(file: Any) -> None:
    with suppress(OSError):
        file.close()


# TensorBoard's event files, written through tensorboardX's record writer. Its SummaryWriter is not used: it hands
# events to a thread, which a full disk ends without a word, and whose full queue then stops the training.


def _open_events(directory: Path) -> Any:
    """Open a new event file whose name sorts after those already there, the order in which TensorBoard reads them."""
    from tensorboardX.record_writer import RecordWriter

    directory.mkdir(parents=True, exist_ok=True)
    count = sum(1 for _ in directory.glob("*tfevents*"))
    return RecordWriter(str(directory / f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}.{count:04d}"))


def _event(**fields: Any) -> Any:
    """Return an ``Event`` message of these fields; sub-messages are given as dictionaries."""
    from tensorboardX.proto.event_pb2 import Event

    return Event(wall_time=time.time(), **fields)


def _first_events(step: int) -> list[Any]:
    """Return the head of an event file, and the event that hides older ones of this step and later."""
    return [_event(file_version="brain.Event:2"), _event(step=step, session_log={"status": "START"})]


def _scalars_event(step: int, values: dict[str, float]) -> Any:
    scalars = [{"tag": name, "simple_value": value} for name, value in values.items()]
    return _event(step=step, summary={"value": scalars})


def _text_event(step: int, text: str) -> Any:
    from tensorboardX.summary import text as text_summary

    as_code = "\n".join("    " + line for line in visible(text).split("\n"))  # four spaces: Markdown's verbatim
    return _event(step=step, summary=text_summary("sample", as_code))
