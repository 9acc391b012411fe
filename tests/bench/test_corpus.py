"""The benchmark of preparing a corpus: that both sides do the same work, and its report. No time is judged."""

import json
from types import SimpleNamespace

import pytest
from corpus.small_corpora import TOKENIZER, InlineWorkers

from nanoeuler.bench import corpus as bench
from nanoeuler.bench.__main__ import main
from nanoeuler.corpus import plays, prepare
from nanoeuler.errors import UserError


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Have a small text, a small tokenizer, and no processes."""
    monkeypatch.setattr(prepare, "Workers", InlineWorkers)
    monkeypatch.setattr(bench, "find_gpt2", lambda: TOKENIZER)
    monkeypatch.setattr(bench, "load_default", lambda: SimpleNamespace(text=plays.generate(30_000)))
    pages = bench.make_pages(20_000)
    monkeypatch.setattr(bench, "make_pages", lambda size: pages)


def test_pages_are_different_and_as_many_as_asked_for(monkeypatch):
    pages = bench.make_pages(0)
    assert len(set(pages)) == len(pages) == 5
    assert all(4000 <= len(page) < 4010 for page in pages)


def test_the_report(tmp_path, capsys):
    main(["corpus", "--rounds", "4", "--workers", "1", "--json", str(tmp_path / "report.json")])
    report = json.loads((tmp_path / "report.json").read_text())
    assert {"processor", "cores", "tiktoken"} <= report["machine"].keys()
    assert report["text_bytes"] >= 20_000
    for summary in report["seconds"].values():
        assert len(summary["rounds"][0]) == 4
    assert report["rates"]["tiktoken"] == report["text_bytes"] / report["seconds"]["tiktoken"]["median"]
    assert "of tiktoken's rate" in capsys.readouterr().out


def test_two_that_do_not_encode_alike(monkeypatch):
    monkeypatch.setattr(bench, "encoded", lambda pages, encoding, workers: 17)
    with pytest.raises(UserError, match="tiktoken's 17 and one for each of 5 pages: they do not encode alike"):
        main(["corpus", "--rounds", "1", "--workers", "1"])


def test_a_wrong_option():
    with pytest.raises(UserError, match="--megabytes"):
        main(["corpus", "--megabytes", "0"])
