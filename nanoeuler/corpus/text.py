"""A text file of the user's own, read exactly as it is."""

from pathlib import Path

from nanoeuler.errors import UserError


def read_text(path: Path) -> str:
    r"""Return the text of a UTF-8 file, character for character: ``\r\n`` stays ``\r\n``, a byte order mark stays.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: the file is a folder, unreadable, empty, binary, or not UTF-8.
    """
    try:
        if path.is_dir():
            raise UserError(f"{path}: a folder, and a dataset is one text file; give the path of the file in it")
        if path.exists() and not path.is_file():
            raise UserError(f"{path}: a device or a pipe, and a dataset is a file")
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror}") from None
    except ValueError:  # NUL or a lone surrogate
        raise UserError(f"{str(path)!r}: not the name of a file") from None
    return decode_text(data, path)


def decode_text(data: bytes, path: Path) -> str:
    """Decode the UTF-8 content of a file.

    Raises:
        UserError: the content is empty, binary or not UTF-8; ``path`` names the file in the message.
    """
    if not data:
        raise UserError(f"{path}: an empty file; there is nothing in it to learn from")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path}: UTF-16 text by its first two bytes; save it as UTF-8")
    if b"\0" in data:
        raise UserError(f"{path}: a binary file (byte {data.index(0)} is NUL), and a dataset is UTF-8 text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}. "
            "If it is text in another encoding, save it as UTF-8"
        ) from None
