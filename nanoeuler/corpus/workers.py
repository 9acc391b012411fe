"""Processes that turn documents into tokens, so that all cores do.

Each has a pipe of its own to this process and a thread here that waits at its end: a batch of documents goes out, its
tokens come back. A pipe tells at either end that the other is gone: a worker that was killed is an error here, and
workers whose parent was killed end by themselves.
"""

import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from nanoeuler.corpus.seen import HASH, hash_document
from nanoeuler.corpus.shards import format_for
from nanoeuler.errors import UserError
from nanoeuler.tokenizer import Tokenizer, load_tokenizer

#: Fresh processes: a copy of this one would take its threads' locks with it, in whatever state they are.
PROCESSES = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Encoded:
    """A batch of N documents as tokens, one document after another, each begun by the end-of-text token."""

    tokens: np.ndarray  # all of them, uint16 or uint32
    lengths: np.ndarray  # (N,) int64, tokens of each document
    text_bytes: np.ndarray  # (N,) int64, UTF-8 bytes of each document
    hashes: np.ndarray  # (N,) uint64, of those bytes


def encode_documents(tokenizer: Tokenizer, documents: list[str]) -> Encoded:
    """Encode a batch.

    Raises:
        UserError: a document is not valid Unicode.
    """
    dtype = format_for(tokenizer.vocab_size).dtype
    begin = np.array([tokenizer.end_of_text], dtype)
    parts, lengths, text_bytes, hashes = [], [], [], []
    for document in documents:
        tokens = tokenizer.encode_ordinary(document)  # first, for its error
        text = document.encode()
        parts += [begin, tokens.astype(dtype)]
        lengths.append(1 + len(tokens))
        text_bytes.append(len(text))
        hashes.append(hash_document(text))
    return Encoded(
        np.concatenate([begin[:0], *parts]),
        np.array(lengths, np.int64),
        np.array(text_bytes, np.int64),
        np.array(hashes, HASH),
    )


class Workers:
    """Worker processes that encode with the tokenizer saved in a folder; used as a ``with`` block around them."""

    def __init__(self, count: int, tokenizer_folder: Path) -> None:
        self._processes: list[BaseProcess] = []
        self._idle: SimpleQueue[tuple[BaseProcess, Connection]] = SimpleQueue()
        self._threads = ThreadPoolExecutor(count, "corpus-worker")
        for _ in range(count):
            self._start(str(tokenizer_folder))

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.terminate()  # it has nothing to lose; a thread that waits for its answer sees the pipe end
        self._threads.shutdown()
        for process in self._processes:
            process.join()

    def submit(self, documents: list[str]) -> "Future[Encoded]":
        """Have a batch encoded by whichever worker is free first.

        The future raises a :class:`UserError` where the worker raised one or has died.
        """
        return self._threads.submit(self._encode, documents)

    def _start(self, folder: str) -> None:
        here, there = PROCESSES.Pipe()
        process = PROCESSES.Process(target=_serve, args=(there, folder), daemon=True)
        with _interrupts_held_back():
            process.start()
        there.close()  # else this process would itself hold the pipe open when the worker has died
        self._processes.append(process)
        self._idle.put((process, here))

    def _encode(self, documents: list[str]) -> Encoded:
        process, pipe = self._idle.get()  # there are as many threads as workers: one is idle
        try:
            pipe.send(documents)
            answer: Encoded | UserError = pipe.recv()
        except (EOFError, OSError):
            raise UserError(_why_dead(process)) from None
        finally:
            self._idle.put((process, pipe))
        if isinstance(answer, UserError):
            raise answer
        return answer


def _why_dead(process: BaseProcess) -> str:
    process.join(5)
    code = process.exitcode or 0
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    memory = ", which mostly means that memory ran out" if code == -getattr(signal, "SIGKILL", 0) else ""
    return f"a worker process {how}{memory}; run again to go on, with fewer --workers if it was memory"


def _serve(pipe: Connection, folder: str) -> None:
    """Be a worker: answer every batch, until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal; the parent sees to it
    tokenizer: Tokenizer | None = None
    with suppress(EOFError, OSError):
        while True:
            documents = pipe.recv()
            try:
                tokenizer = tokenizer or load_tokenizer(folder)
                answer: Encoded | UserError = encode_documents(tokenizer, documents)
            except UserError as error:
                answer = error
            pipe.send(answer)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Hold Ctrl-C back from this thread, and from the process it starts until that ignores it by itself."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
