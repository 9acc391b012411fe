"""Writing files so that nothing is lost or half-written, and saying why where one cannot be written."""

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from nanoeuler.errors import UserError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a :class:`UserError` that names the file being written."""
    try:
        yield
    except OSError as error:
        advice = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "; free some space, then run again to go on"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            advice = "; check its permissions, then run again to go on"
        raise UserError(f"{path}: cannot write: {error.strerror}{advice}") from None


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that, whatever happens meanwhile, the path holds the old content or all of the new.

    Raises:
        OSError: the file cannot be written; the old one is untouched.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write to, which becomes ``path`` at the end of the block: all of it, or nothing is changed.

    The folder is made if it is missing.

    Raises:
        UserError: the disk is full, the folder is read-only, and so on; it names the path and the reason.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot write it: {error.strerror or error}") from None


@contextmanager
def folder_written_whole(path: Path) -> Iterator[Path]:
    """Give an empty folder to fill, which becomes ``path`` at the end of the block: all of it, or nothing is changed.

    A folder of that name steps aside first, and is removed in the end. The folder above is made if it is missing.

    Raises:
        UserError: the disk is full, the folder above is read-only, and so on; it names the path and the reason.
    """
    new, old = (path.with_name(f".{path.name}.{secrets.token_hex(4)}.{state}") for state in ("part", "old"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.mkdir()
            yield new
            for file in [*new.iterdir(), new]:
                flush(file)
            if path.exists():  # a folder cannot be renamed over another
                path.rename(old)
            new.rename(path)
            flush(path.parent)
        finally:
            if old.exists() and not path.exists():
                old.rename(path)
            for left in (new, old):
                shutil.rmtree(left, ignore_errors=True)
    except OSError as error:
        raise UserError(f"{path}: cannot write it: {error.strerror or error}") from None


def flush(path: Path) -> None:
    """Have the disk itself hold a file, or a directory's entries (fsync)."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open a directory
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, message: str) -> Iterator[None]:
    """Hold a lock file for the length of the block; it is made if it is missing, and stays. A process's end frees it.

    Raises:
        UserError: another process holds it: with ``message``; or the file cannot be made.
    """
    with writing(path):
        file = path.open("a")
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(message) from None
        except (ImportError, OSError):  # Windows and some network disks have no such locks: nothing keeps others out
            pass
        yield


def sha256_of_file(path: Path, progress: Callable[[int], None] = lambda size: None) -> str:
    """Return a file's SHA-256 in hexadecimal; ``progress`` is told the bytes of every piece that is read."""
    digest, block = hashlib.sha256(), memoryview(bytearray(1 << 20))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(block):
            digest.update(block[:size])
            progress(size)
    return digest.hexdigest()
