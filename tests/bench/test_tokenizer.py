"""The benchmark of the tokenizer: its text, its runs and its report. No time is judged."""

import json
from itertools import islice
from pathlib import Path

import pytest

from nanoeuler.bench import tokenizer as bench
from nanoeuler.bench.__main__ import main
from nanoeuler.bench.tokenizer_runs import ENCODING, OURS, READABLE, RUST, run
from nanoeuler.bench.tokenizer_text import SCRIPTS, made_up_text
from nanoeuler.errors import UserError
from nanoeuler.tokenizer.pretokens import count_pretokens

NEED = "compares with it: python -m pip install -e '.[oracles]'"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of 200 kB."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_bytes(next(made_up_text(1, words=3000)).encode()[:200_000].rpartition(b" ")[0])
    return path


def test_made_up_text_is_like_a_language() -> None:
    """The same every time, of the size asked for, in all scripts, with many words of which a few are very frequent."""
    parts = list(made_up_text(2_000_000, words=20_000))
    assert parts == list(islice(made_up_text(9_000_000, words=20_000), len(parts)))
    size = sum(len(part.encode()) for part in parts)
    assert 2_000_000 <= size < 4_000_000
    counts = count_pretokens(parts)
    ranked = [count for _, count in counts.most_common()]
    assert 15_000 < len(ranked) < 60_000
    assert 0.2 < sum(ranked[:100]) / sum(ranked) < 0.7
    assert all(
        sum(letter in part for part in parts) for _, first, _ in SCRIPTS.values() for letter in first.split()[:5]
    )


def test_the_report(tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two contenders, the same merges, three encoders."""
    pytest.importorskip("tokenizers", reason=NEED)
    path = tmp_path / "report.json"
    main(["tokenizer", "--input", str(text), "--vocab-size", "400", "--steps", "2", "--json", str(path)])
    report = json.loads(path.read_text(encoding="utf-8"))
    (result,) = report["texts"]
    assert report["machine"]["tokenizers"]
    assert result["bytes"] == text.stat().st_size
    runs = result["runs"]
    assert {r["merges"] for name in (OURS, RUST) for r in runs[name]} == {runs[OURS][0]["merges"]}
    assert runs[OURS][0]["merges"].startswith("143 merges")
    assert runs[OURS][0]["pretokens"] == len(count_pretokens([text.read_text(encoding="utf-8")]))
    assert result["our_time"][RUST]["of_medians"] > 0
    assert {name: len(rates) for name, rates in result["encoding"].items()} == {OURS: 2, READABLE: 2, RUST: 2}
    printed = capsys.readouterr().out
    assert "peak memory" in printed
    assert "B/s" in printed


def test_ours_alone(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the library it says so and goes on."""
    monkeypatch.setattr(bench, "version_of", lambda package: None)
    monkeypatch.setattr(bench, "run", lambda task: {"rates": {OURS: [1e6]}} if task["name"] == ENCODING else run(task))
    main(["tokenizer", "--input", str(text), "--vocab-size", "260", "--steps", "1"])
    printed = capsys.readouterr()
    assert "tokenizers is not installed" in printed.err
    assert RUST not in printed.out


def test_different_merges_are_not_compared(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of different work say nothing."""
    monkeypatch.setattr(bench, "version_of", lambda package: "1")
    monkeypatch.setattr(bench, "run", lambda task: {"seconds": 1.0, "merges": task["name"]})
    with pytest.raises(UserError, match="the merges differ"):
        main(["tokenizer", "--input", str(text), "--steps", "1"])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="sizes of processes are read in /proc")
def test_memory_is_that_of_all_processes(tmp_path: Path) -> None:
    """Workers count."""
    path = tmp_path / "text.txt"
    path.write_bytes(b"word after word\n" * 700_000)
    alone, with_two = (
        run({"name": OURS, "file": str(path), "vocab_size": 257, "workers": workers}) for workers in (1, 2)
    )
    assert (alone["processes"], with_two["processes"]) == (1, 3)
    assert with_two["peak"] > 1.5 * alone["peak"]


def test_a_run_that_fails(tmp_path: Path) -> None:
    """Its last words are the message."""
    with pytest.raises(UserError, match=r"nanoeuler failed: .*none.txt: cannot read it"):
        run({"name": OURS, "file": str(tmp_path / "none.txt"), "vocab_size": 257, "workers": 1})


def test_wrong_options(tmp_path: Path) -> None:
    """A file that is not there; fewer tokens than bytes."""
    with pytest.raises(UserError, match="no such file"):
        main(["tokenizer", "--input", str(tmp_path / "none.txt")])
    with pytest.raises(UserError, match="--vocab-size"):
        main(["tokenizer", "--vocab-size", "256"])
