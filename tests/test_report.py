"""The report: one well-formed page that needs nothing else, whatever the run has (or has not) measured so far."""

import math
import random
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from nanoeuler.config import Config
from nanoeuler.errors import UserError
from nanoeuler.report import Series, line_chart, log_ticks, nice_ticks, thin_out, tick_labels, write_report

VOID = {"meta", "link", "br"}
SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """A page taken apart; an element left open or closed twice is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
            self.text.setdefault(tag, []).append("")

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in set(self.open):
            self.text[tag][-1] += data

    def all(self, tag, **wanted):
        return [a for t, a in self.elements if t == tag and all(a.get(k) == v for k, v in wanted.items())]


def make_metrics(steps, eval_every=100, seed=0):
    noise = random.Random(seed).gauss
    metrics = []
    for step in range(1, steps + 1):
        loss = 1.5 + 2.7 * math.exp(-step / (steps * 0.1))
        record = {
            "step": step,
            "train_loss": loss + noise(0, 0.05),
            "smoothed_loss": loss,
            "learning_rate": 1e-3 * (1 - step / steps),
            "grad_norm": 0.4 + 20 * math.exp(-step / (steps * 0.02)),
            "tokens_per_second": 21_000 + noise(0, 500),
            "elapsed_seconds": 0.5 * step,
        }
        if step % eval_every == 0:
            record |= {"val_loss": loss + 0.06, "val_bits_per_byte": (loss + 0.06) / math.log(2)}
        metrics.append(record)
    return metrics


def write(tmp_path, metrics, samples=(), config=None, **more):
    path = write_report(tmp_path / "a-run", config or Config(), metrics, samples, **more)
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def run_directory(tmp_path):
    (tmp_path / "a-run").mkdir()
    return tmp_path / "a-run"


def test_the_page_shows_the_run(tmp_path, run_directory):
    metrics = make_metrics(2000)
    page = write(tmp_path, metrics, [(500, "early"), (2000, "late")], notes=["Resumed at step 500."])
    assert page.text["h1"] == ["a-run"]
    assert "Finished: 2,000 steps" in page.text["header"][0]
    assert "Resumed at step 500." in page.text["header"][0]
    numbers = page.text["dl"][0]
    for part in ("1.560", "at step 2,000", f"{1.56 / math.log(2):.3f}", "21 k", "16 min 40 s"):
        assert part in numbers
    drawn = {path["data-name"] for path in page.all("path") if "data-name" in path}
    assert drawn >= {"training", "training, smoothed", "validation", "cosine schedule", "each step", "median of 40"}
    assert {"Loss", "Learning rate", "Gradient norm", "Throughput"} <= set(page.text["title"])
    assert [path.name for path in run_directory.iterdir()] == ["report.html"]  # no temporary file is left


def test_the_page_loads_nothing(tmp_path):
    page = write(tmp_path, make_metrics(300), [(1, "see https://example.org/ and <img src=http://example.org/x>")])
    html = (tmp_path / "a-run" / "report.html").read_text(encoding="utf-8")
    for tag, attributes in page.elements:
        assert tag not in {"img", "iframe", "object", "embed", "use", "image", "form", "base"}
        for name, value in attributes.items():
            assert name not in {"src", "srcset", "action", "xlink:href"}
            assert not name.startswith("on")
            if name == "href":
                assert value == "data:,"
            if name != "xmlns":
                assert "//" not in (value or "")
    assert not re.search(r"@import|url\(|fetch\(|import\(|XMLHttpRequest|WebSocket", html)
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none'")


def test_whatever_is_in_a_sample_is_shown_and_not_obeyed(tmp_path):
    text = "</pre><script>alert('&')</script>\x1b[31m\x00\ud800 \N{SNOWMAN}\tx"
    page = write(tmp_path, make_metrics(10), [(10, text)], notes=["<b>& note"])
    assert page.text["pre"] == ["\n</pre><script>alert('&')</script>\\x1b[31m\\x00\\ud800 \N{SNOWMAN}\tx"]
    assert len(page.all("script")) == 1
    assert "<b>& note" in page.text["header"][0]


def test_a_run_name_or_a_value_cannot_break_out(tmp_path):
    run = tmp_path / "<i>&'\""
    run.mkdir()
    config = Config.model_validate({"data": {"dataset": "</td><script>\"'"}, "training": {"sample_prompt": "\n\x07"}})
    page = Page(write_report(run, config, make_metrics(3), []).read_text(encoding="utf-8"))
    assert page.text["h1"] == ["<i>&'\""]
    assert len(page.all("script")) == 1
    assert "</td><script>" in page.text["table"][0]


def test_the_newest_sample_is_open_and_the_others_are_folded(tmp_path):
    page = write(tmp_path, make_metrics(30), [(10, "first"), (20, "second"), (30, "\n\nthird\n")])
    assert [text.strip() for text in page.text["summary"]] == ["Step 30", "Step 20", "Step 10"]
    assert [text.strip() for text in page.text["pre"]] == ["third", "second", "first"]
    assert ["open" in details for details in page.all("details")] == [True, False, False]


def test_of_many_samples_an_even_choice_is_shown(tmp_path):
    page = write(tmp_path, make_metrics(10), [(step, f"text {step} " + "x" * 10_000) for step in range(1, 201)])
    steps = [int(text.split()[1]) for text in page.text["summary"]]
    assert len(steps) == 20
    assert (steps[0], steps[-1]) == (200, 1)
    assert steps == sorted(set(steps), reverse=True)
    assert max(map(len, page.text["pre"])) < 4100


def test_the_configuration_is_there_with_every_key(tmp_path):
    config = Config.model_validate({"training": {"learning_rate": 0.00317}, "model": {"vocab_size": 65}})
    page = write(tmp_path, [], config=config)
    cells = page.text["td"]
    table = dict(zip(cells[0::3], cells[1::3], strict=True))
    keys = [key for section in (config.model, config.training, config.data) for key in type(section).model_fields]
    assert list(table) == keys
    assert table["learning_rate"] == "0.00317"
    assert table["sample_prompt"] == '"\\n"'
    assert "821 k parameters" in page.text["header"][0]


def test_the_floor_is_drawn_and_named_only_when_it_is_known(tmp_path):
    label = "entropy of the corpus: all there is to learn"
    page = write(tmp_path, make_metrics(400), floor=1.45)
    assert page.text["body"][0].count(label) == 2  # once for wide windows, once for narrow ones
    assert len(page.all("path", **{"class": "rule"})) == 2
    assert "0.110 above entropy" in page.text["dl"][0]
    page = write(tmp_path, make_metrics(400))
    assert label not in page.text["body"][0]
    assert not page.all("path", **{"class": "rule"})


def test_skipped_updates_are_marked_and_counted(tmp_path):
    metrics = make_metrics(50)
    for step in (7, 30):
        metrics[step - 1] |= {"train_loss": None, "grad_norm": None, "skipped": True, "non_finite": ["train_loss"]}
    page = write(tmp_path, metrics)
    assert "2 skipped updates" in page.text["svg"][0]
    mark = page.all("path", **{"class": "mark"})[1]
    assert mark["d"].count("M") == 2
    training = page.all("path", **{"data-name": "training"})[0]
    assert training["d"].count("M") == 3  # the curve has two gaps


@pytest.mark.parametrize(
    "metrics",
    [
        [],
        make_metrics(1),
        make_metrics(1, eval_every=1),
        make_metrics(2),
        [{"step": 0, "val_loss": 4.2, "val_bits_per_byte": 6.1}],
        [{"step": s, "train_loss": None, "grad_norm": None, "smoothed_loss": None, "skipped": True} for s in range(9)],
        [{"step": s, "train_loss": math.nan, "grad_norm": math.inf, "smoothed_loss": 1e300} for s in range(1, 9)],
        [{"step": s, "train_loss": 2.0, "smoothed_loss": 2.0, "grad_norm": 0.0, "val_loss": 2.0} for s in range(1, 9)],
        [
            {"step": s, "train_loss": 10.0**s, "grad_norm": 10.0 ** (3 * s), "tokens_per_second": 0}
            for s in range(-9, 9)
        ],
    ],
    ids=[
        "none",
        "one",
        "one evaluated",
        "two",
        "before the first",
        "all skipped",
        "no number",
        "constant",
        "exploding",
    ],
)
@pytest.mark.parametrize("floor", [None, 1.5])
def test_odd_runs_still_make_a_whole_page(tmp_path, metrics, floor):
    page = write(tmp_path, metrics, floor=floor)
    numbers = " ".join(path.get("d") or "" for path in page.all("path"))
    assert "nan" not in numbers
    assert "inf" not in numbers
    assert "nan" not in page.text["body"][0].replace("nanoeuler", "")
    assert page.text["table"]


def test_a_long_run_is_a_small_page(tmp_path):
    metrics = make_metrics(100_000, eval_every=250)
    samples = [(step, "O gentle night! " * 300) for step in range(500, 100_001, 500)]
    write(tmp_path, metrics, samples, config=Config.model_validate({"training": {"total_steps": 100_000}}))
    assert (tmp_path / "a-run" / "report.html").stat().st_size < 400_000


def test_a_report_that_cannot_be_written_is_named_and_the_old_one_stays(tmp_path, run_directory, monkeypatch):
    write(tmp_path, make_metrics(5))
    old = (run_directory / "report.html").read_bytes()

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(UserError, match=r"report\.html: cannot write: No space left"):
        write_report(run_directory, Config(), make_metrics(6), [])
    assert (run_directory / "report.html").read_bytes() == old
    with pytest.raises(UserError, match=r"report\.html: cannot write"):
        write_report(tmp_path / "absent", Config(), [], [])


# Charts


def chart_of(*series, **more):
    return ET.fromstring(line_chart(series, title="A & B", **more))


def test_a_chart_is_a_file_of_its_own():
    svg = chart_of(
        Series("ours <1>", [(0, 3.0), (10, 1.0), (20, 2.0)], "points"), rules=[(1.5, "theirs")], y_label="nats"
    )
    assert svg.tag == SVG + "svg"
    assert svg.find(SVG + "title").text == "A & B"
    assert svg.find(SVG + "desc").text == "ours <1>: from 3 at 0 to 2 at 20."
    assert "prefers-color-scheme:dark" in svg.find(SVG + "style").text
    texts = ["".join(text.itertext()) for text in svg.iter(SVG + "text")]
    assert {"A & Bnats", "ours <1>", "theirs", "step", "1.000"} <= set(texts)  # the lowest point has its value


def test_points_lie_where_the_axes_say():
    svg = chart_of(Series("s", [(0, 1.0), (50, 3.0), (100, 2.0)]), width=600, height=300)
    _, _, width, height = map(float, svg.get("data-frame").split())
    low, high = map(float, svg.get("data-y").split())
    (path,) = [p for p in svg.iter(SVG + "path") if p.get("data-name") == "s"]
    numbers = [float(n) for n in re.findall(r"[\d.]+", path.get("d"))]
    assert numbers[0::2] == pytest.approx([0, width / 2, width], abs=0.01)
    assert [high - y / height * (high - low) for y in numbers[1::2]] == pytest.approx([1, 3, 2], abs=0.01)


def test_a_log_axis_is_logarithmic_and_leaves_out_what_it_cannot_show():
    svg = chart_of(Series("s", [(0, 0.01), (1, 0.1), (2, 1.0), (3, 0.0), (4, 10.0)]), log_y=True)
    (path,) = [p for p in svg.iter(SVG + "path") if p.get("data-name") == "s"]
    assert path.get("d").count("M") == 2
    heights = [float(place.split()[1]) for place in re.findall(r"[\d.]+ [\d.]+", path.get("d"))]
    steps = [a - b for a, b in pairwise(heights)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.03)
    assert "0.1" in [text.text for text in svg.iter(SVG + "text")]


def test_one_spike_of_a_noisy_curve_does_not_flatten_the_rest():
    noisy = [(step, 2.0 + 0.1 * (step % 2)) for step in range(1000)]
    noisy[500] = (500, 1000.0)
    high = float(chart_of(Series("s", noisy, "faint")).get("data-y").split()[1])
    assert high < 3


def test_the_start_of_a_steep_curve_may_leave_the_frame():
    points = [(step, 1 + 9 * math.exp(-step / 10)) for step in range(1, 1001)]
    low, high = map(float, chart_of(Series("s", points), settled=0.04).get("data-y").split())
    assert low < 1 < high < 1.5
    assert float(chart_of(Series("s", points)).get("data-y").split()[1]) > 9


def test_an_empty_chart_has_no_scale():
    svg = chart_of(Series("s", []))
    assert not [text for text in svg.iter(SVG + "text") if text.get("class") == "tick" and text.get("dy")]
    assert svg.find(SVG + "desc").text == "No data yet."


def test_nice_ticks_are_round_and_inside():
    assert nice_ticks(0, 2000, 10) == [0, 200, 400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000]
    assert nice_ticks(1.43, 4.2, 5) == [1.5, 2, 2.5, 3, 3.5, 4]
    assert nice_ticks(0, 0.3, 3) == [0, 0.1, 0.2, 0.3]
    assert nice_ticks(-1, 1, 4) == [-1, -0.5, 0, 0.5, 1]
    assert nice_ticks(0, 3e-4, 3) == [0, 1e-4, 2e-4, 3e-4]


@pytest.mark.parametrize("seed", range(5))
def test_nice_ticks_are_about_as_many_as_asked_for(seed):
    random_ = random.Random(seed)
    for _ in range(200):
        low = random_.uniform(-1, 1) * 10 ** random_.uniform(-6, 6)
        high = low + 10 ** random_.uniform(-3, 6)
        count = random_.randint(3, 12)
        ticks = nice_ticks(low, high, count)
        assert count / 2 - 1 <= len(ticks) <= 2 * count
        slack = 1e-6 * (high - low)
        assert all(low - slack <= tick <= high + slack for tick in ticks)
        assert ticks == sorted(set(ticks))


def test_log_ticks():
    assert log_ticks(0.15, 30) == [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    assert log_ticks(1e-4, 1e3) == [1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0]
    assert 2 <= len(log_ticks(1e-30, 1e30)) <= 12


def test_tick_labels():
    assert tick_labels([0, 500, 1000, 1500]) == ["0", "500", "1,000", "1,500"]
    assert tick_labels([0, 50_000, 100_000]) == ["0", "50 k", "100 k"]
    assert tick_labels([0, 5e-5, 1e-4]) == ["0", "5×10⁻⁵", "1×10⁻⁴"]
    assert tick_labels([1.5, 2, 2.5]) == ["1.5", "2", "2.5"]
    assert tick_labels([0.1, 1.0, 1e5]) == ["1×10⁻¹", "1×10⁰", "1×10⁵"]
    assert tick_labels([]) == []


def test_thinning_out_keeps_the_ends_and_every_extreme():
    points = [(step, math.sin(step / 300)) for step in range(10_001)]
    points[5555], points[7777] = (5555, 9.0), (7777, -9.0)
    points[1], points[9999] = (1, -0.5), (9999, 2.0)  # the ends are not extremes of their stretches
    thin = thin_out(points, 500)
    assert len(thin) <= 502
    assert (thin[0], thin[-1]) == (points[0], points[-1])
    assert {(5555, 9.0), (7777, -9.0)} <= set(thin)
    assert [x for x, _ in thin] == sorted(x for x, _ in thin)
    assert thin_out(points[:500], 500) == points[:500]


def test_thinning_out_keeps_long_gaps():
    points = [(step, math.nan if 400 <= step < 800 else 1.0) for step in range(1000)]
    thin = thin_out(points, 100)
    assert any(math.isnan(y) for _, y in thin)
    assert sum(math.isfinite(y) for _, y in thin) >= 2
