"""What an unfinished preparation leaves in its folder, so that the same command goes on from there.

A hidden folder beside the finished shards::

    .unfinished/state.json                  replaced whole, now and then: how far everything is, the rest is undone
    .unfinished/seen.bin                    64-bit hashes of the documents so far, those beyond the state's count void
    .unfinished/NAME_train_000003.bin       the shard of each split that is being written, likewise
    .unfinished/tokenizer/                  for the processes that encode
    .unfinished/lock                        held by the process at work
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nanoeuler.errors import UserError
from nanoeuler.files import locked, replace_file, writing

HIDDEN = ".unfinished"
STATE = "state.json"
LOCK = "lock"
VERSION = 1


def read_state(hidden: Path) -> dict[str, Any] | None:
    """Return the state that was saved last, or None where there is none yet.

    Raises:
        UserError: it cannot be read, or is of another version.
    """
    path = hidden / STATE
    try:
        state = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot read it: {error.strerror}") from None
    except ValueError:
        state = None
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise UserError(f"{path}: not the state of a preparation by this nanoeuler; begin again with --restart")
    return state


def write_state(hidden: Path, state: dict[str, Any]) -> None:
    """Replace the state.

    Raises:
        UserError: it cannot be written; the old one is as it was.
    """
    path = hidden / STATE
    with writing(path):
        replace_file(path, (json.dumps({"version": VERSION, **state}) + "\n").encode())


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Return in words where two pieces of JSON differ.

    >>> differences({"source": {"revision": "a1", "files": 2}}, {"source": {"revision": "b2", "files": 2}})
    ["source.revision was 'a1', now 'b2'"]
    """
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        return [d for key in keys for d in differences(old.get(key), new.get(key), f"{where}.{key}".lstrip("."))]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{where}[{i}]")]
    if isinstance(old, list) and isinstance(new, list):
        gone, come = ([x for x in some if x not in others] for some, others in ((old, new), (new, old)))
        return [f"{where} lost {_short(x)}" for x in gone[:2]] + [f"{where} gained {_short(x)}" for x in come[:2]]
    return [] if old == new else [f"{where} was {_short(old)}, now {_short(new)}"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@contextmanager
def unfinished_folder(folder: Path) -> Iterator[Path]:
    """Make a corpus's folder and the hidden one in it, give that, and keep other processes out meanwhile.

    Raises:
        UserError: it cannot be made or written to, has files in it that no preparation left, or another process is
            at work there.
    """
    hidden = folder / HIDDEN
    if folder.exists() and not folder.is_dir():
        raise UserError(
            f"{folder}: not a folder, and a corpus takes one of its own: give a new or an empty one with --out"
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        foreign = sorted(path.name for path in folder.iterdir())
        if foreign and not hidden.exists():
            raise UserError(
                f"{folder} has other files in it ({', '.join(foreign[:3])}{', ...' if len(foreign) > 3 else ''}), and "
                "a corpus takes a folder of its own: give a new or an empty one with --out"
            )
        hidden.mkdir(exist_ok=True)
    with locked(hidden / LOCK, f"another process is preparing a corpus in {folder}: wait for it, or stop it"):
        with writing(folder):
            for path in folder.glob(".*.part"):  # what files.written_whole left when it was killed
                path.unlink()
        yield hidden


def forget_state(hidden: Path) -> None:
    """Remove the state; all else that a preparation has left is void without it, and undone by the next.

    Raises:
        UserError: it cannot be removed.
    """
    with writing(hidden):
        (hidden / STATE).unlink(missing_ok=True)


def remove_hidden(folder: Path) -> None:
    """Remove the hidden folder of a corpus that is finished."""
    shutil.rmtree(folder / HIDDEN, ignore_errors=True)  # Windows keeps an open file, the lock: it does no harm
