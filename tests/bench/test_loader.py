"""The benchmark of the loader: what is measured, and its report. No time is judged."""

import json
from pathlib import Path

import numpy as np
import pytest

from nanoeuler.bench import loader as bench
from nanoeuler.bench import measure
from nanoeuler.bench.__main__ import main
from nanoeuler.corpus.shuffle import by_formula, by_sorting
from nanoeuler.errors import UserError

TINY = {
    "model": {"hidden_dim": 16, "num_layers": 1, "num_heads": 2, "max_seq_len": 16},
    "training": {"batch_size": 4, "workers": 1, "gradient_accumulation": 2},
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Have small shards, short turns, and no rest."""
    monkeypatch.setattr(bench, "SHARD_TOKENS", 700)
    monkeypatch.setattr(bench, "TURN", 3)
    monkeypatch.setattr(measure, "PAUSE", 0)


def test_the_report(tmp_path, capsys):
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    line = ["--config", str(tmp_path / "tiny.json"), "--steps", "5", "--windows", "1000"]
    main(["loader", *line, "--json", str(tmp_path / "report.json")])
    report = json.loads((tmp_path / "report.json").read_text())
    assert list(report["waiting"]) == ["without prefetch", "with prefetch"]
    for row in report["waiting"].values():
        waited, steps = (np.array(row[f"{what}_seconds"]["rounds"]) for what in ("waited", "step"))
        assert waited.shape == steps.shape == (2, 3)
        assert (waited < steps).all()
        assert row["share"] == pytest.approx(waited.sum() / steps.sum())
    assert report["gathered_tokens_per_second"] > 0
    assert list(report["shuffle"]) == ["by_sorting", "by_formula"]
    out = capsys.readouterr().out
    assert "waits for its batch" in out
    assert "1 k windows shuffled by formula" in out


def test_sorting_takes_sixteen_bytes_a_window_and_the_formula_none():
    assert bench.measure_shuffle(by_sorting, 100_000)["peak_bytes"] > 16 * 100_000
    assert bench.measure_shuffle(by_formula, 100_000)["peak_bytes"] < 100_000


def test_shards_are_removed():
    with bench.shards(65) as stream:
        folder = Path(stream.names[0]).parent
        assert len(list(folder.iterdir())) == bench.SHARDS
        assert len(stream) == bench.SHARDS * 700
    assert not folder.exists()


@pytest.mark.parametrize("line", [["--steps", "0"], ["--windows", "x"], ["--config", "none.json"]])
def test_a_wrong_option(line):
    with pytest.raises(UserError, match=line[0] if line[0] != "--config" else r"none\.json"):
        main(["loader", *line])
