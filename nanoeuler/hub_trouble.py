"""What to do when a hub or the network fails: try again where that may help, and else say what is wrong."""

import ast
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nanoeuler.errors import UserError, nearest

#: Seconds before each new attempt, on top of the libraries' own attempts.
PAUSES = (1.0, 5.0, 20.0)
#: Status codes that tell of a passing trouble, besides those from 500 on: timeout, too many requests.
PASSING = (408, 429)
#: Packages that the libraries, in one version or another, speak HTTP through.
HTTP_PACKAGES = ("httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "aiohttp")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Kind:
    """What of a hub is asked for, in the words of the messages."""

    noun: str
    revision: str  # how a revision is given: "--revision takes"
    offline: str  # what is missing without a network
    gone: str  # what to do where a file is not there any more


DATA_SET = Kind(
    "data set", "--revision takes", "a data set of the hub takes the network", "prepare it anew, in another folder"
)
MODEL = Kind(
    "model", "after the @ stands", "not all of it is in the cache", "the same command asks for the newest revision"
)


class Patience:
    """Waits after a passing trouble with a data set or a model, longer each time, and gives up in the end."""

    def __init__(
        self,
        asked_for: str,
        revision: str | None,
        kind: Kind,
        known: Sequence[str] = (),
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        self.asked_for = asked_for  # owner/name or owner/name:config
        self.revision = revision
        self.kind = kind
        self.known = known  # names that a misspelt one may have meant
        self.pauses = pauses
        self.is_known = False  # whether the hub has said that there is such a data set, and let us have it
        self._failures = 0

    def renew(self) -> None:
        """Forget the troubles: something has been got."""
        self._failures = 0

    def attempt(self, action: Callable[[], Result]) -> Result:
        """Return what a function returns, calling it again after a passing trouble.

        Raises:
            UserError: as :meth:`note`.
        """
        while True:
            try:
                result = action()
            except Exception as error:
                self.note(error)
                self.wait()
            else:
                self.renew()
                return result

    def note(self, error: Exception) -> str:
        """Return what the trouble is, in words, and when it is time for a new attempt.

        Raises:
            UserError: waiting does not help, or has not helped.
            Exception: the error itself, where it is none of the hub's, the network's or the user's.
        """
        if isinstance(error, UserError):
            raise error
        if not _is_passing(error):
            raise _explained(error, self) from None
        if self._failures == len(self.pauses):
            times = len(self.pauses) + 1
            raise UserError(
                f"{self.asked_for}: the hub does not answer as it should: {_words(error)} (tried {times} times). Check "
                "the network, or HF_ENDPOINT if it is set; the same command goes on from where it was"
            ) from None
        self._failures += 1
        return f"{self.asked_for}: {_words(error)}; trying again in {self.pauses[self._failures - 1]:g} s"

    def wait(self) -> None:
        """Wait as long as :meth:`note` said."""
        time.sleep(self.pauses[self._failures - 1])


def _is_passing(error: Exception) -> bool:
    """Return whether an error of the libraries is one of the network, or of a server in trouble."""
    status = _status(error)
    if status is not None:
        return status in PASSING or status >= 500
    if any(type(e).__name__ == "OfflineModeIsEnabled" for e in _chain(error)):
        return False
    return any(
        isinstance(e, ConnectionError | TimeoutError) or type(e).__module__.partition(".")[0] in HTTP_PACKAGES
        for e in _chain(error)
    )


def _explained(error: Exception, about: Patience) -> Exception:
    """Return a :class:`UserError` that says what is wrong with what was asked for, or the error as it is."""
    asked_for, revision, kind = about.asked_for, about.revision, about.kind
    name, _, config = asked_for.partition(":")
    names = {type(e).__name__ for e in _chain(error)}
    status, text = _status(error), str(error)
    if "OfflineModeIsEnabled" in names:
        return UserError(f"{asked_for}: HF_HUB_OFFLINE is set, and {kind.offline}")
    if "GatedRepoError" in names or status == 403 or (status == 401 and about.is_known):
        return UserError(
            f"{name}: the hub does not let us have it ({status or 'gated'}): accept the conditions on its "
            "page if it has any, and put a token that may read it into HF_TOKEN (or run: hf auth login)"
        )
    if "RevisionNotFoundError" in names:
        which = f"no revision '{revision}'" if revision else "no such revision"
        return UserError(f"{name}: the hub knows {which} of it; {kind.revision} a branch, tag or commit")
    if any(found.endswith("EntryNotFoundError") for found in names) or (status == 404 and about.is_known):
        return UserError(f"{asked_for}: a file of it is not there any more (404): {kind.gone}")
    if names & {"RepositoryNotFoundError", "DatasetNotFoundError"} or status in (401, 404):
        return UserError(
            f"{name}: the hub knows no such {kind.noun} ({status or 404}){nearest(name, about.known)}; if it is a "
            "private one, put a token that may read it into HF_TOKEN (or run: hf auth login)"
        )
    if "no longer supported" in text:
        return UserError(
            f"{name}: a program of its own loads this data set, and datasets runs such programs no more. The hub "
            "may have a copy in parquet, not always a whole one: --revision refs/convert/parquet"
        )
    choices = _choices(text)
    if "Config name is missing" in text:
        return UserError(f"{name}: say which of its configurations, as {name}:NAME; there are {choices}")
    if "BuilderConfig" in text and "not found" in text:
        hint = nearest(config, choices.split(", "))
        return UserError(f"{name}: no configuration '{config}'{hint}; there are {choices}")
    if "Bad split" in text or "Unknown split" in text:
        return UserError(f"{asked_for}: no split 'train' in it; there are {choices}")
    if names & {"DataFilesNotFoundError", "EmptyDatasetError"}:
        return UserError(f"{asked_for}: no files in it that datasets can read")
    if isinstance(error, OSError) and error.filename:  # of this machine: a full disk, a cache that is read-only
        return UserError(f"{asked_for}: {error.filename}: {error.strerror}")
    if names & {"ArrowInvalid", "DatasetGenerationError", "JSONDecodeError"} or isinstance(error, OSError):
        return UserError(f"{asked_for}: a file of it is damaged, or not what its name says: {_words(error)}")
    return error


def _choices(text: str) -> str:
    """Return the members of the list in a message of datasets, as a text for people."""
    written = re.search(r"\[.*?\]", text, re.S)
    try:
        return ", ".join(map(str, ast.literal_eval(written[0]))) if written else "others"
    except (ValueError, SyntaxError):
        return "others"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it came from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _status(error: Exception) -> int | None:
    """Return the status code that a server answered with, where that is what an error is about."""
    codes = (getattr(getattr(e, "response", None), "status_code", None) for e in _chain(error))
    return next((code for code in codes if isinstance(code, int)), None)


def _words(error: Exception) -> str:
    """Return the first line of what an error says, or of the one it came from."""
    if (status := _status(error)) is not None:
        return f"status {status}"
    for e in reversed(list(_chain(error))):
        if line := re.sub(r"^\[Errno -?\d+\] ", "", str(e).strip().partition("\n")[0]):
            return line
    return type(error).__name__
