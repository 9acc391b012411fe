import dataclasses
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from corpora import write_corpus, write_llmc

from nanoeuler.corpus import PreparedCorpus, TextCorpus, load_corpus, plays, tinyshakespeare
from nanoeuler.download import sha256_of
from nanoeuler.errors import UserError

GOOD = b"First Citizen:\n"


def load_text(*arguments: Any, **more: Any) -> TextCorpus:
    """Return the only corpus that is loaded, a text."""
    (part,) = load_corpus(*arguments, **more).parts
    assert isinstance(part, TextCorpus)
    return part


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Have short texts stand for both corpora."""
    monkeypatch.setattr(tinyshakespeare, "SHA256", sha256_of(GOOD))
    monkeypatch.setattr(plays, "generate", lambda: "MOTH: Good day.\n")
    monkeypatch.setattr(plays, "entropy_per_character", lambda: 1.25)


def test_left_out_it_is_tinyshakespeare_where_it_is_at_hand(refusing):
    Path("data").mkdir()
    Path("data/tinyshakespeare.txt").write_bytes(GOOD)
    corpus = load_text(None, refusing)
    assert (corpus.name, corpus.text, corpus.entropy_bits) == ("tinyshakespeare", GOOD.decode(), None)
    assert corpus.reason == f"tinyshakespeare, the default, from {Path('data/tinyshakespeare.txt')}"


def test_or_can_be_fetched(serve):
    corpus = load_text(None, serve(GOOD))
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
    corpus = load_text(None, url, patience=0.5)
    assert (corpus.name, corpus.text, corpus.entropy_bits) == ("plays", "MOTH: Good day.\n", 1.25)
    assert corpus.reason.startswith("plays, built in: tinyshakespeare, the default, is not to be had")
    assert url in corpus.reason
    assert "\n" not in corpus.reason


def test_by_name_tinyshakespeare_or_three_ways_to_provide_it(refusing, serve):
    with pytest.raises(UserError) as error:
        load_corpus("tinyshakespeare", refusing)
    for way in ("--data.dataset PATH", "./data", "NANOEULER_DATA", "network connection", refusing):
        assert way in str(error.value)
    assert load_text("tinyshakespeare", serve(GOOD)).text == GOOD.decode()


def test_by_name_a_wrong_local_copy_is_named(serve):
    Path("data").mkdir()
    Path("data/tinyshakespeare.txt").write_bytes(b"something else")
    with pytest.raises(UserError, match=sha256_of(b"something else")) as error:
        load_corpus("tinyshakespeare", serve(GOOD))
    assert str(Path("data/tinyshakespeare.txt")) in str(error.value)


def test_plays_by_name():
    corpus = load_text("plays")
    assert (corpus.name, corpus.reason, corpus.entropy_bits) == ("plays", "plays, built in: as asked for", 1.25)


def test_a_path():
    Path("my book.txt").write_bytes(b"Ein Wort.\r\n")
    corpus = load_text("my book.txt")
    assert corpus.name == "my book"
    assert (corpus.text, corpus.entropy_bits) == ("Ein Wort.\r\n", None)
    assert "my book.txt" in corpus.reason
    with pytest.raises(dataclasses.FrozenInstanceError):
        corpus.text = ""


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ("owls", "'owls' is neither a known corpus nor a file"),
        ("missing/book.txt", "neither a known corpus nor a file"),
        ("tinyshakespear", r"did you mean 'tinyshakespeare'\?"),
        ("play", r"did you mean 'plays'\?"),
        ("", "neither a prepared corpus .* nor shards .*; --data.dataset takes the folder of a corpus, or one text"),
        (".", "neither a prepared corpus .* nor shards .*; --data.dataset takes the folder of a corpus, or one text"),
        ("x" * 5000, "cannot read it"),
    ],
)
def test_what_cannot_be_had(dataset, said):
    with pytest.raises(UserError, match=said) as error:
        load_corpus(dataset)
    if "neither" in said:
        assert str(Path(dataset)) in str(error.value)
        assert "--data.dataset takes" in str(error.value)


# --- prepared corpora


def load_prepared(dataset: str) -> PreparedCorpus:
    (part,) = load_corpus(dataset).parts
    assert isinstance(part, PreparedCorpus)
    return part


def test_a_folder_that_was_prepared():
    write_corpus(Path("somewhere/owls"))
    corpus = load_prepared("somewhere/owls")
    assert corpus.name == "owls"
    folder = Path("somewhere/owls")
    assert corpus.reason == f"{folder}, prepared from a test: 75 documents, 3 k tokens (bpe) in 5 shards"


def test_a_name_that_was_prepared_into_data_or_the_folder_of_the_environment(monkeypatch):
    write_corpus(Path("elsewhere/fineweb-edu"))
    monkeypatch.setenv("NANOEULER_DATA", "elsewhere")
    assert load_prepared("fineweb-edu").folder == Path("elsewhere/fineweb-edu")
    write_corpus(Path("data/fineweb-edu"))
    assert load_prepared("fineweb-edu").folder == Path("data/fineweb-edu")
    write_corpus(Path("data/fineweb-edu-sample-100BT"))
    assert load_prepared("fineweb-edu:sample-100BT").folder == Path("data/fineweb-edu-sample-100BT")


@pytest.mark.parametrize(
    ("name", "folder"), [("fineweb-edu", "fineweb-edu"), ("tinystories", "tinystories"), ("wikitext:x", "wikitext-x")]
)
def test_a_name_that_was_not_prepared_says_the_command(name, folder):
    with pytest.raises(UserError, match="has not been prepared") as error:
        load_corpus(name)
    assert str(error.value).endswith(f"python -m nanoeuler.corpus prepare {name} --out {Path('data', folder)}")


def test_tinyshakespeare_stays_the_text_also_where_it_was_prepared(serve):
    write_corpus(Path("data/tinyshakespeare"))
    assert load_text("tinyshakespeare", serve(GOOD)).text == GOOD.decode()
    assert load_prepared("data/tinyshakespeare").name == "tinyshakespeare"


def test_a_folder_of_texts_does_not_hide_the_corpus_made_of_them():
    write_corpus(Path("data/texts"))
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("raw", encoding="utf-8")
    assert load_prepared("texts").folder == Path("data/texts")


def test_a_folder_of_llmcs():
    write_llmc(Path("fineweb10B"))
    corpus = load_prepared("fineweb10B")
    assert (corpus.name, corpus.reason) == ("fineweb10B", "fineweb10B, 3 shards without a manifest")
    assert corpus.files == {"train": ["t_train_000001.bin", "t_train_000002.bin"], "val": ["t_val_000000.bin"]}


def test_a_folder_that_is_not_finished():
    Path("data/owls/.unfinished").mkdir(parents=True)
    with pytest.raises(UserError, match="not finished"):
        load_corpus("data/owls")


def test_a_mixture():
    write_corpus(Path("data/owls"))
    Path("a.txt").write_text("the owl saw")
    corpus = load_corpus("data/owls=0.7, a.txt = 0.3,plays=1")
    assert [part.name for part in corpus.parts] == ["owls", "a", "plays"]
    assert corpus.shares == [Fraction(7, 20), Fraction(3, 20), Fraction(1, 2)]
    assert corpus.name == "owls+a+plays"
    assert corpus.reason.startswith(f"a mixture: 35 % {Path('data/owls')}, prepared from a test")
    assert "; 15 % a.txt, as asked for; 50 % plays, built in: as asked for" in corpus.reason


def test_a_file_with_an_equals_sign_in_its_name_is_a_file():
    Path("a=1").write_text("the owl saw")
    assert load_text("a=1").text == "the owl saw"
