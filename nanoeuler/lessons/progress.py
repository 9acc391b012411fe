"""What has been done of the course, remembered on this machine: one small JSON file.

It is in ``XDG_STATE_HOME`` (``~/.local/state``) under ``nanoeuler``, or where ``NANOEULER_PROGRESS`` says. Keeping it
is never in the way of a lesson: what cannot be read steps aside, what cannot be written is told once and left.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from nanoeuler.errors import UserError
from nanoeuler.files import locked, replace_file

Record = dict[str, Any]


def place() -> Path:
    """Return the path of the file."""
    if named := os.environ.get("NANOEULER_PROGRESS"):
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else _home() / ".local" / "state") / "nanoeuler" / "lessons.json"


def _home() -> Path:
    """Return the user's folder; where there is none, as in some containers, the one for what is temporary."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(tempfile.gettempdir())


def done(lesson: int) -> set[str]:
    """Return the exercises of a lesson whose checks have passed."""
    return set(_known().get(str(lesson), {}).get("done", {}))


def mark(lesson: int, exercise: str) -> str | None:
    """Keep that a check has passed; return a word for the learner where that could not be done."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return _change(lambda record: _part(record, lesson, "done").setdefault(exercise, now))


def guessed(lesson: int, question: str) -> Any:
    """Return the guess that was made at a question; None where there was none."""
    return _known().get(str(lesson), {}).get("guesses", {}).get(question)


def keep_guess(lesson: int, question: str, value: Any) -> str | None:
    """Keep a guess, as JSON or as text; return a word for the learner where that could not be done."""
    kept = value if isinstance(value, (str, int, float, bool)) else str(value)
    return _change(lambda record: _part(record, lesson, "guesses").update({question: kept}))


def forget(lesson: int) -> str | None:
    """Forget all of a lesson; return a word for the learner where that could not be done."""
    return _change(lambda record: record.pop(str(lesson), None))


def _part(record: Record, lesson: int, name: str) -> Record:
    return record.setdefault(str(lesson), {}).setdefault(name, {})


def _known() -> Record:
    """Return what is kept; what is wrong with it is said."""
    record, word = _read()
    if word:
        print(word, file=sys.stderr)
    return record


def _read() -> tuple[Record, str | None]:
    """Return what is kept, and a word where the file is damaged: it has stepped aside then."""
    path = place()
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError):
            return {}, f"{path}: your progress cannot be read: {error.strerror}"
        record = None
    if not _well_formed(record):
        aside = path.with_name(f"{path.name}.damaged")
        try:
            path.replace(aside)
        except OSError:
            return {}, f"{path} is damaged: your progress cannot be read"
        return {}, f"your progress was damaged, and begins anew; the old file is {aside}"
    return record, None


def _well_formed(record: Any) -> bool:
    return isinstance(record, dict) and all(
        isinstance(lesson, dict) and all(isinstance(lesson.get(part, {}), dict) for part in ("done", "guesses"))
        for lesson in record.values()
    )


BUSY = "another notebook is keeping its progress"
SECONDS = 2.0  # for which it is waited for


def _change(change: Callable[[Record], Any]) -> str | None:
    """Read, change and write while no other notebook does; return a word where it does not go."""
    end = time.monotonic() + SECONDS
    while (word := _change_now(change)) == BUSY and time.monotonic() < end:
        time.sleep(0.02)
    return word


def _change_now(change: Callable[[Record], Any]) -> str | None:
    path = place()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(f"{path.name}.lock"), BUSY):
            record, word = _read()
            change(record)
            replace_file(path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())
        return word
    except UserError as error:
        return str(error)
    except OSError as error:
        return f"{path}: your progress is not kept: {error.strerror or error}"
