import dataclasses
from pathlib import Path

import pytest

from nanoeuler.corpus import load_corpus, plays, tinyshakespeare
from nanoeuler.corpus.download import sha256_of
from nanoeuler.errors import UserError

GOOD = b"First Citizen:\n"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Have short texts stand for both corpora."""
    monkeypatch.setattr(tinyshakespeare, "SHA256", sha256_of(GOOD))
    monkeypatch.setattr(plays, "generate", lambda: "MOTH: Good day.\n")
    monkeypatch.setattr(plays, "entropy_per_character", lambda: 1.25)


def test_left_out_it_is_tinyshakespeare_where_it_is_at_hand(refusing):
    Path("data").mkdir()
    Path("data/tinyshakespeare.txt").write_bytes(GOOD)
    corpus = load_corpus(None, refusing)
    assert (corpus.name, corpus.text, corpus.entropy_bits) == ("tinyshakespeare", GOOD.decode(), None)
    assert corpus.reason == f"tinyshakespeare, the default, from {Path('data/tinyshakespeare.txt')}"


def test_or_can_be_fetched(serve):
    corpus = load_corpus(None, serve(GOOD))
    assert (corpus.name, corpus.text) == ("tinyshakespeare", GOOD.decode())
    assert "downloaded to" in corpus.reason


@pytest.mark.parametrize("trouble", ["refused", "404", "stalls", "wrong"])
def test_or_else_the_plays_with_the_reason_in_one_line(trouble, serve, refusing):
    url = {
        "refused": lambda: refusing,
        "404": lambda: serve(b"", status=404),
        "stalls": lambda: serve(GOOD, sent=3, stall=True),
        "wrong": lambda: serve(GOOD[1:]),
    }[trouble]()
    corpus = load_corpus(None, url, patience=0.5)
    assert (corpus.name, corpus.text, corpus.entropy_bits) == ("plays", "MOTH: Good day.\n", 1.25)
    assert corpus.reason.startswith("plays, built in: tinyshakespeare, the default, is not to be had")
    assert url in corpus.reason
    assert "\n" not in corpus.reason


def test_by_name_tinyshakespeare_or_three_ways_to_provide_it(refusing, serve):
    with pytest.raises(UserError) as error:
        load_corpus("tinyshakespeare", refusing)
    for way in ("--data.dataset PATH", "./data", "NANOEULER_DATA", "network connection", refusing):
        assert way in str(error.value)
    assert load_corpus("tinyshakespeare", serve(GOOD)).text == GOOD.decode()


def test_by_name_a_wrong_local_copy_is_named(serve):
    Path("data").mkdir()
    Path("data/tinyshakespeare.txt").write_bytes(b"something else")
    with pytest.raises(UserError, match=sha256_of(b"something else")) as error:
        load_corpus("tinyshakespeare", serve(GOOD))
    assert str(Path("data/tinyshakespeare.txt")) in str(error.value)


def test_plays_by_name():
    corpus = load_corpus("plays")
    assert (corpus.name, corpus.reason, corpus.entropy_bits) == ("plays", "plays, built in: as asked for", 1.25)


def test_a_path():
    Path("my book.txt").write_bytes(b"Ein Wort.\r\n")
    corpus = load_corpus("my book.txt")
    assert corpus.name == "my book"
    assert (corpus.text, corpus.entropy_bits) == ("Ein Wort.\r\n", None)
    assert "my book.txt" in corpus.reason
    with pytest.raises(dataclasses.FrozenInstanceError):
        corpus.text = ""


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ("fineweb-edu", "neither a known corpus nor a file"),
        ("missing/book.txt", "neither a known corpus nor a file"),
        ("tinyshakespear", r"did you mean 'tinyshakespeare'\?"),
        ("play", r"did you mean 'plays'\?"),
        ("", "a folder"),
        (".", "a folder"),
        ("x" * 5000, "cannot read it"),
    ],
)
def test_what_cannot_be_had(dataset, said):
    with pytest.raises(UserError, match=said) as error:
        load_corpus(dataset)
    if "neither" in said:
        for word in (dataset, "tinyshakespeare, plays, or the path"):
            assert word in str(error.value)
