"""What is done and said when a hub, the network or the disk fails; with real libraries in the tests of both hubs."""

import errno

import pytest

from nanoeuler import hub_trouble
from nanoeuler.errors import UserError
from nanoeuler.hub_trouble import DATA_SET, MODEL, PAUSES, Kind, Patience

kinds = pytest.mark.parametrize("kind", [DATA_SET, MODEL], ids=lambda kind: kind.noun)


class HTTPError(Exception):
    """An error as the libraries raise it: with the response of a server."""

    def __init__(self, status: int) -> None:
        super().__init__("as the test wants it")
        self.response = type("Response", (), {"status_code": status})()


def said(kind: Kind, error: Exception, known: bool = False) -> str:
    patience = Patience("owner/name", "v1", kind, ["owner/names"])
    patience.is_known = known
    with pytest.raises(UserError) as caught:
        patience.note(error)
    return str(caught.value)


@kinds
def test_a_passing_trouble_is_waited_for_and_given_up_in_the_end(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(hub_trouble.time, "sleep", waited.append)
    answers: list[Exception | str] = [HTTPError(503), ConnectionError("refused"), "here", *[TimeoutError("late")] * 4]

    def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    patience = Patience("owner/name", None, kind)
    assert patience.attempt(ask) == "here"
    assert waited == list(PAUSES[:2])
    with pytest.raises(UserError, match=r"owner/name: the hub does not answer as it should: late \(tried 4 times\)"):
        patience.attempt(ask)
    assert answers == []
    assert waited == [*PAUSES[:2], *PAUSES]


@kinds
def test_what_is_not_there_or_not_for_us(kind: Kind) -> None:
    unknown = said(kind, HTTPError(404))
    assert unknown.startswith(f"owner/name: the hub knows no such {kind.noun} (404) (did you mean 'owner/names'?)")
    assert "a token that may read it into HF_TOKEN" in said(kind, HTTPError(401))
    assert "does not let us have it (401)" in said(kind, HTTPError(401), known=True)
    assert f"a file of it is not there any more (404): {kind.gone}" in said(kind, HTTPError(404), known=True)


@kinds
def test_a_full_disk_is_said_to_be_full(kind: Kind) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/cache/file")
    assert said(kind, error) == "owner/name: /cache/file: No space left on device"
    assert "a file of it is damaged" in said(kind, OSError("Consistency check failed"))


@kinds
def test_an_error_of_ours_is_not_made_the_hubs(kind: Kind) -> None:
    with pytest.raises(KeyError):
        Patience("owner/name", None, kind).note(KeyError("x"))
    assert said(kind, UserError("as it is")) == "as it is"
