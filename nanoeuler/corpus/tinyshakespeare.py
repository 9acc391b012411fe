"""TinyShakespeare: a megabyte of his plays, put together by Andrej Karpathy for char-rnn in 2015."""

import os
from pathlib import Path

from nanoeuler.download import cache_folder, fetch, read_published
from nanoeuler.errors import UserError

NAME = "tinyshakespeare"
FILE = "tinyshakespeare.txt"
URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def load(url: str = URL, patience: float = 120.0, pass_over: bool = False) -> tuple[str, str]:
    """Return the text, and in a few words where it came from.

    Looked for in ``./data``, in the folder that the environment variable ``NANOEULER_DATA`` names and in the cache,
    and else downloaded to the cache within ``patience`` seconds.

    A file of the right name and the wrong content in one of the user's folders is an error, or with ``pass_over`` is
    left alone and mentioned. In the cache, which is ours, it is replaced.

    Raises:
        UserError: the text is nowhere and cannot be fetched, or a file of that name is another.
    """
    wrong: list[str] = []
    folders = [Path(folder) for folder in ("data", os.environ.get("NANOEULER_DATA")) if folder]
    cached = cache_folder() / FILE
    for path in [*(folder / FILE for folder in folders), cached]:
        try:
            return _read(path), f"from {path}" + _passed_over(wrong)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except UserError as error:
            if not pass_over and path != cached:
                raise
            wrong.append(str(error))
    try:
        fetch(url, cached, SHA256, patience)
    except UserError as error:
        places = ", ".join(str(folder) for folder in [*folders, cached.parent])
        raise UserError(f"no good {FILE} in {places}; {error}{_passed_over(wrong)}") from None
    return _read(cached), f"downloaded to {cached}" + _passed_over(wrong)


def _passed_over(wrong: list[str]) -> str:
    return "".join(f"; passed over {message}" for message in wrong)


def _read(path: Path) -> str:
    return read_published(path, SHA256, "TinyShakespeare as published").decode("ascii")
