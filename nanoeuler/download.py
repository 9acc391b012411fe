"""Files from the network, kept in a cache: verified, and either whole or not there at all."""

import hashlib
import os
import queue
import sys
import threading
import time
from pathlib import Path

import requests

from nanoeuler.console import byte_bar
from nanoeuler.errors import UserError
from nanoeuler.files import written_whole

#: What the downloading thread hands over: first the size in bytes (None: unknown), then pieces, then b"" at the end.
Arrival = int | bytes | None | Exception


def cache_folder() -> Path:
    """Return the folder that downloads are kept in, where this operating system has such folders; it may not exist."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "nanoeuler"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "nanoeuler"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nanoeuler"


def sha256_of(data: bytes) -> str:
    """Return the SHA-256 of some bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def read_published(path: Path, sha256: str, what: str) -> bytes:
    """Return the content of a file that must be ``what`` was published, byte for byte.

    Raises:
        FileNotFoundError: there is no such file (NotADirectoryError likewise).
        UserError: it cannot be read, or its digest is another.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror}") from None
    if (found := sha256_of(data)) != sha256:
        raise UserError(f"{path}: not {what}: sha256 {found}, expected {sha256}")
    return data


def fetch(url: str, path: Path, sha256: str, patience: float = 120.0) -> None:
    """Download ``url`` to ``path``, with a progress bar on a terminal.

    The file takes its name only after its SHA-256 has been found right. All of it, name look-up included, must be
    done within ``patience`` seconds.

    Raises:
        UserError: the network, the server or the disk failed, it took too long, or the content is another.
    """
    arrived: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
    deadline = time.monotonic() + patience

    def next_arrival() -> Arrival:
        try:
            item = arrived.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise UserError(f"{url}: not here after {patience:g} seconds") from None
        if isinstance(item, Exception):
            raise UserError(f"{url}: {_cause(item)}")
        return item

    digest = hashlib.sha256()
    with written_whole(path) as file, byte_bar() as progress:
        # A thread, because no timeout of the socket covers the look-up of a name or several addresses in turn.
        threading.Thread(target=_receive, args=(url, patience, arrived), daemon=True).start()
        size = next_arrival()
        bar = progress.add_task(path.name, total=size if isinstance(size, int) else None)
        while isinstance(piece := next_arrival(), bytes) and piece:
            file.write(piece)
            digest.update(piece)
            progress.advance(bar, len(piece))
        if digest.hexdigest() != sha256:
            raise UserError(f"{url}: another file than expected: sha256 {digest.hexdigest()}, expected {sha256}")


def _receive(url: str, patience: float, arrived: "queue.SimpleQueue[Arrival]") -> None:
    """Put what comes from a URL into a queue: see :data:`Arrival`. Runs in a thread of its own."""
    deadline = time.monotonic() + patience
    try:
        # Identity: with compression on the way, Content-Length would not be the size of the file.
        headers = {"Accept-Encoding": "identity"}
        with requests.get(url, stream=True, timeout=patience, headers=headers) as response:
            response.raise_for_status()
            length = response.headers.get("Content-Length", "")
            arrived.put(int(length) if length.isdecimal() else None)
            for piece in response.iter_content(1 << 16):
                if time.monotonic() > deadline:  # nobody waits any longer
                    return
                arrived.put(piece)
        arrived.put(b"")
    except Exception as error:
        arrived.put(error)


def _cause(error: BaseException) -> str:
    """Return the few words at the bottom of a chain of exceptions: "[Errno 111] Connection refused"."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    while error.__context__ is not None:
        error = error.__context__
    return str(error) or type(error).__name__
