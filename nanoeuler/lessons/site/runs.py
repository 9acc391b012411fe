"""Runs solved notebooks, two at a time, and keeps what came out: a second build of the site is quick."""

import asyncio
import hashlib
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from time import monotonic
from typing import TextIO

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from nanoeuler.console import WorkBar, format_duration
from nanoeuler.device import why_no_gpu
from nanoeuler.download import cache_folder
from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.lessons.notebooks import solved_notebook, written
from nanoeuler.lessons.source import Lesson
from nanoeuler.lessons.trying import client

AT_ONCE = 2
PACKAGE = Path(__file__).parents[2]


class Progress(WorkBar):
    """Shows how many cells are done, and the time left; used as a ``with`` block around the runs."""

    def __init__(self, cells: int, file: TextIO | None = None) -> None:
        super().__init__(file or sys.stderr, transient=True)
        self._task = self.bar.add_task("", total=None)
        self._cells, self._done = cells, 0
        self._lock = threading.Lock()
        self._started = self._printed = monotonic()

    def advance(self, lesson: Lesson) -> None:
        """Show that one more cell is done, of this lesson."""
        with self._lock:
            self._done += 1
            now = monotonic()
            elapsed, share = now - self._started, self._done / max(self._cells, 1)
            times = f"{format_duration(elapsed)}, {format_duration(elapsed / share - elapsed)} left"
            is_due = now - self._printed >= min(max(2.0, elapsed / 50), 60.0)
            if is_due:
                self._printed = now
            line = f"cell {self._done}/{self._cells}  lesson {lesson.number}  {times}"
            self.show(self._task, line, share, is_due)


class Run:
    """One solved notebook on its way: run in a process of its own, unless it was before."""

    def __init__(self, lesson: Lesson) -> None:
        self.lesson = lesson
        self.notebook = solved_notebook(lesson)
        self.kept_at = _kept_at(lesson)
        self._client: NotebookClient | None = None
        self._ended = False

    @property
    def cells(self) -> int:
        """How many cells are to be run."""
        return sum(cell.cell_type == "code" for cell in self.notebook.cells)

    def kept(self) -> bool:
        """Take the outputs of an earlier run of the same notebook by the same code; whether there are any."""
        try:
            self.notebook = nbformat.reads(self.kept_at.read_text(encoding="utf-8"), as_version=4)
        except Exception:  # it is not there, or damaged in whatever way
            return False
        return True

    def execute(self, progress: Progress) -> None:
        """Run the notebook, and keep what came out. The learner's own progress is not touched.

        Raises:
            UserError: a cell fails; the message has the cell and its error.
        """

        def next_cell(cell: NotebookNode, cell_index: int) -> None:
            if self._ended:
                raise DeadKernelError("interrupted")

        def cell_done(cell: NotebookNode, cell_index: int) -> None:
            if cell.cell_type == "code":
                progress.advance(self.lesson)

        hooks = {"on_cell_start": next_cell, "on_cell_complete": cell_done, "log": _silent()}
        self._client = client(self.notebook, self.lesson.path.parents[1], **hooks)
        with tempfile.TemporaryDirectory() as scratch:
            environment = {**os.environ, "NANOEULER_PROGRESS": str(Path(scratch) / "progress.json")}
            try:
                asyncio.run(self._client.async_execute(env=environment))
            except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                raise UserError(f"lesson {self.lesson.number}: its solved notebook fails:\n{error}") from None
        self._keep()

    def _keep(self) -> None:
        """Keep the outputs, those of an older version of the lesson no longer; where that does not go, do without."""
        with suppress(UserError, OSError):
            with written_whole(self.kept_at) as file:
                file.write(nbformat.writes(self.notebook).encode())
            for old in self.kept_at.parent.glob(f"{self.lesson.name}-*.ipynb"):
                if old != self.kept_at:
                    old.unlink()

    def end(self) -> None:
        """End the run at once, its process too."""
        self._ended = True
        manager = self._client.km if self._client else None
        process = getattr(getattr(manager, "provisioner", None), "process", None)
        if process is not None:
            with suppress(OSError):
                process.kill()


def _silent() -> logging.Logger:
    """Return a log that nobody sees: what is wrong is told by errors."""
    log = logging.Logger("nanoeuler.lessons.site")
    log.addHandler(logging.NullHandler())
    return log


def executed(chosen: Iterable[Lesson]) -> list[NotebookNode]:
    """Return the solved notebooks of lessons with all their outputs.

    Raises:
        UserError: a cell of one fails.
    """
    runs = [Run(lesson) for lesson in chosen]
    new = [run for run in runs if not run.kept()]
    if new:
        with Progress(sum(run.cells for run in new)) as progress, ThreadPoolExecutor(AT_ONCE) as pool:
            futures = [pool.submit(run.execute, progress) for run in new]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    if future.done():
                        future.result()
            finally:  # all are done, or one has failed, or this is an interrupt
                for run in new:
                    run.end()
                pool.shutdown(wait=False, cancel_futures=True)
    return [run.notebook for run in runs]


# What outputs depend on -----------------------------------------------------------------------------------------------


def _kept_at(lesson: Lesson) -> Path:
    """Return where the outputs of a lesson are kept: another place for another notebook, or other code to run it."""
    digest = hashlib.sha256(written(solved_notebook, lesson))
    digest.update(_surroundings())
    return cache_folder() / "lessons" / f"{lesson.name}-{digest.hexdigest()[:20]}.ipynb"


def _surroundings() -> bytes:
    """Return what outputs depend on beside the notebook: nanoeuler's own files, versions, whether there is a GPU."""
    digest = hashlib.sha256(repr((sys.version, why_no_gpu() is None)).encode())
    for name in ("numpy", "numba", "numba-cuda"):
        with suppress(metadata.PackageNotFoundError):
            digest.update(f"{name} {metadata.version(name)}".encode())
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".js", ".css") and Path(__file__).parent not in path.parents:
            digest.update(str(path.relative_to(PACKAGE)).encode() + path.read_bytes())
    return digest.digest()
