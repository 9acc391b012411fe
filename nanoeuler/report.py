"""A run on one page: ``report.html`` with its curves, samples and configuration, drawn by a few small functions.

The page holds everything it shows: no network, no library, and no script that it could not be read without.
:func:`line_chart` draws one chart as SVG, which is also a picture on its own (the README's are made with it).
"""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nanoeuler import __version__
from nanoeuler.config import Config, ModelConfig, Section
from nanoeuler.console import format_count, format_duration, visible
from nanoeuler.files import replace_file, writing
from nanoeuler.parameters import parameter_count, parameter_shapes

Point = tuple[float, float]
Record = dict[str, Any]

#: Fields of a record that are drawn.
FIELDS = (
    "train_loss", "smoothed_loss", "val_loss", "val_bits_per_byte", "learning_rate", "grad_norm", "tokens_per_second",
    "elapsed_seconds",
)  # fmt: skip

#: Samples on the page, and characters of each: the rest is in the run's directory.
MAX_SAMPLES = 20
MAX_SAMPLE_CHARACTERS = 4000

#: Largest over smallest gradient norm from which its axis is logarithmic.
WIDE_RANGE = 30

#: Numbers from here on are not drawn: the arithmetic of an axis would overflow.
LARGEST = 1e100


class Series(NamedTuple):
    """One curve. Points are (x, y) by increasing x; a y that is NaN or infinite leaves a gap.

    Kinds: ``line``; ``faint``, a noisy curve in the background, which may leave the frame; ``points``, a thin line
    with dots whose lowest one is labelled. ``color`` is a place in Okabe and Ito's colours, which people with any
    colour vision tell apart: 0 blue, 1 vermilion, 2 green, 3 purple, 4 orange, 5 sky blue on white.
    """

    name: str
    points: Sequence[Point]
    kind: Literal["line", "faint", "points"] = "line"
    color: int = 0


def write_report(
    run_directory: str | Path,
    config: Config,
    metrics: list[Record],
    samples: Sequence[tuple[int, str]],
    floor: float | None = None,
    notes: Sequence[str] = (),
) -> Path:
    """Write ``RUN/report.html`` and return its path; a reader of the old page never sees half of a new one.

    ``metrics`` are the records of :func:`nanoeuler.metrics.read_metrics`, ``samples`` pairs of step and text, oldest
    first. ``floor`` is the exact entropy of the corpus in nats per token, where it is known: no model's expected loss
    is lower. ``notes`` are sentences shown below the run's name.

    Raises:
        UserError: the file cannot be written; an older report stays as it was.
    """
    path = Path(run_directory) / "report.html"
    page = render_page(path.resolve().parent.name, config, metrics, samples, floor, notes)
    with writing(path):
        replace_file(path, page.encode("utf-8", "backslashreplace"))
    return path


def render_page(
    name: str,
    config: Config,
    metrics: list[Record],
    samples: Sequence[tuple[int, str]],
    floor: float | None = None,
    notes: Sequence[str] = (),
) -> str:
    """Return the whole page as HTML; arguments as for :func:`write_report`."""
    curves = {field: _points(metrics, field) for field in FIELDS}
    skipped = [record["step"] for record in metrics if record.get("skipped")]
    body = [
        _header(name, config, metrics, notes),
        _key_numbers(curves, floor),
        _charts(config, curves, skipped, floor) if metrics else "<p>No step yet.</p>\n",
        _samples(samples),
        _configuration(config),
        f"<footer>Drawn {datetime.now():%Y-%m-%d %H:%M} by nanoeuler {__version__}. "
        "Every step is in metrics.jsonl, beside this page.</footer>",
    ]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<link rel="icon" href="data:,">
<title>{_text(name)} · nanoeuler</title>
<style>{PALETTE}{PAGE_STYLE}</style>
</head>
<body>
{"".join(body)}
<script>{SCRIPT}</script>
</body>
</html>
"""


def _header(name: str, config: Config, metrics: list[Record], notes: Sequence[str]) -> str:
    step, total = (metrics[-1]["step"] if metrics else 0), config.training.total_steps
    status = f"Finished: {total:,} steps" if step >= total else f"Step {step:,} of {total:,}"
    items = "".join(f"<li>{_text(note)}</li>" for note in notes)
    return f"""<header>
<p class="overline">Training report</p>
<h1>{_text(name)}</h1>
<p class="status">{status} · {_text(_summary(config.model))}</p>
<div class="progress"><div style="width:{min(100, 100 * step / total):.1f}%"></div></div>
{f"<ul>{items}</ul>" if items else ""}
</header>
"""


def _summary(model: ModelConfig) -> str:
    """Return the architecture in a few words."""
    size = f", {format_count(parameter_count(parameter_shapes(model)))} parameters" if model.vocab_size else ""
    return f"{model.preset}, {model.num_layers} layers, {model.hidden_dim} channels{size}"


def _key_numbers(curves: dict[str, list[Point]], floor: float | None) -> str:
    """Return the row of numbers that a reader looks for first; a dash where there is none yet."""
    finite = {field: [point for point in curve if math.isfinite(point[1])] for field, curve in curves.items()}
    step, best = min(finite["val_loss"], key=itemgetter(1), default=(0, math.nan))
    bits = dict(finite["val_bits_per_byte"]).get(step, math.nan)
    _, smoothed = (finite["smoothed_loss"] or [(0, math.nan)])[-1]
    _, elapsed = (finite["elapsed_seconds"] or [(0, math.nan)])[-1]
    rates = [rate for _, rate in finite["tokens_per_second"]]
    evaluated = math.isfinite(best)
    above = "" if floor is None else f"<br>{best - floor:.3f} above entropy"
    numbers = [
        ("Best validation loss", _decimal(best), f"at step {step:,}{above}" if evaluated else ""),
        ("Bits per byte", _decimal(bits), "of the best evaluation" if evaluated else ""),
        ("Training loss", _decimal(smoothed), "smoothed, now"),
        ("Tokens per second", format_count(statistics.median(rates)) if rates else "–", "median"),
        ("Time", format_duration(elapsed) if math.isfinite(elapsed) else "–", "in training"),
    ]
    cells = "".join(f'<div><dt>{n}</dt><dd>{v}</dd><dd class="note">{c}</dd></div>' for n, v, c in numbers)
    return f'<dl class="numbers">{cells}</dl>\n'


def _charts(config: Config, curves: dict[str, list[Point]], skipped: list[float], floor: float | None) -> str:
    """Return the loss, drawn once for wide windows and once for narrow ones, and three small charts below it."""
    loss: dict[str, Any] = {
        "title": "Loss",
        "y_label": "nats per token",
        "rules": [] if floor is None else [(floor, "entropy of the corpus: all there is to learn")],
        "settled": 0.04,
        "marks": (f"{len(skipped)} skipped update{'s'[: len(skipped) != 1]}", skipped),
    }
    validation = [point for point in curves["val_loss"] if math.isfinite(point[1])]
    series = [
        Series("training", thin_out(curves["train_loss"], 1000), "faint"),
        Series("training, smoothed", thin_out(curves["smoothed_loss"], 1000)),
        Series("validation", validation, "points", color=1),
    ]
    norms = curves["grad_norm"]
    positive = [norm for _, norm in norms if 0 < norm < math.inf]
    wide = bool(positive) and max(positive) > WIDE_RANGE * min(positive)
    small = [
        line_chart([Series(f"{config.training.schedule} schedule", curves["learning_rate"])], title="Learning rate",
                   from_zero=True, width=320, height=220),
        line_chart(_noisy(norms), title="Gradient norm", y_label="before clipping",
                   log_y=wide, from_zero=not wide, width=320, height=220),
        line_chart(_noisy(curves["tokens_per_second"]), title="Throughput",
                   y_label="tokens per second", from_zero=True, width=320, height=220),
    ]  # fmt: skip
    return f"""<figure class="wide">{line_chart(series, **loss, width=920, height=420)}</figure>
<figure class="narrow">{line_chart(series, **loss, width=380, height=340)}</figure>
<div class="small">{"".join(f"<figure>{chart}</figure>" for chart in small)}</div>
"""


def _samples(samples: Sequence[tuple[int, str]]) -> str:
    """Return the samples, newest first and alone unfolded; of many, an even choice with the first and the last."""
    if not samples:
        return ""
    shown = min(len(samples), MAX_SAMPLES)
    chosen = [samples[round(i * (len(samples) - 1) / max(1, shown - 1))] for i in reversed(range(shown))]
    chosen[0] = samples[-1]
    parts = []
    for number, (step, text) in enumerate(chosen):
        cut = "…" if len(text) > MAX_SAMPLE_CHARACTERS else ""
        parts.append(
            f"<details{' open' if number == 0 else ''}><summary>Step {step:,}</summary>"
            f"<pre>\n{_text(text[:MAX_SAMPLE_CHARACTERS].strip(chr(10)))}{cut}</pre></details>\n"
        )
    left_out = f'<p class="note">{shown} of {len(samples)} samples.</p>' if shown < len(samples) else ""
    return f"<section><h2>Samples</h2>\n{''.join(parts)}{left_out}</section>\n"


def _configuration(config: Config) -> str:
    sections = (("Model", config.model), ("Training", config.training), ("Data", config.data))
    head = '<tr><th colspan="3" scope="rowgroup">{}</th></tr>\n'
    body = "".join(f"<tbody>{head.format(name)}{_rows(section)}</tbody>" for name, section in sections)
    return f"<section><h2>Configuration</h2>\n<table>{body}</table></section>\n"


def _rows(section: Section) -> str:
    """Return one table row for each key: name, value, meaning."""
    rows = []
    for key, field in type(section).model_fields.items():
        shown = json.dumps(getattr(section, key), ensure_ascii=False)
        rows.append(f"<tr><td>{key}</td><td>{_text(shown)}</td><td>{_text(field.description or '')}</td></tr>\n")
    return "".join(rows)


def _points(metrics: list[Record], field: str) -> list[Point]:
    """Return (step, value) of the records that have a field; a value that was not finite is NaN."""
    return [(r["step"], math.nan if r[field] is None else r[field]) for r in metrics if field in r]


def _noisy(points: list[Point]) -> list[Series]:
    """Return a noisy quantity as two curves: every step, faint, and the medians of fifty stretches."""
    size = -(-len(points) // 50)
    if size <= 2:
        return [Series("each step", points)]
    medians = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        finite = [value for _, value in stretch if math.isfinite(value)]
        medians.append((stretch[len(stretch) // 2][0], statistics.median(finite) if finite else math.nan))
    return [Series("each step", thin_out(points, 1000), "faint"), Series(f"median of {size:,}", medians)]


def _text(text: str) -> str:
    """Return any text as HTML that shows it."""
    return escape(visible(text))


def _decimal(number: float) -> str:
    return f"{number:.3f}" if math.isfinite(number) else "–"


# Charts


class Axis(NamedTuple):
    """A range of values, low < high, laid over a length in pixels."""

    low: float
    high: float
    length: float
    log: bool = False

    def position(self, value: float) -> float:
        """Return where a value lies, in pixels from the low end."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        share = ((math.log(value) if self.log else value) - low) / (high - low)
        return self.length * min(max(share, -5.0), 5.0)  # far outside is as good as anywhere outside


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str = "step",
    y_label: str = "",
    width: int = 1000,
    height: int = 440,
    log_y: bool = False,
    from_zero: bool = False,
    settled: float = 0.0,
    rules: Sequence[tuple[float, str]] = (),
    marks: tuple[str, Sequence[float]] = ("", ()),
) -> str:
    """Return a chart as one SVG element that is also a whole file: light or dark as the reader's screen is.

    Sizes are in pixels and scale with the element. ``rules`` are dashed horizontals with their labels, ``marks`` a
    name and the x of events, ticked on the frame's lower edge. With ``log_y`` values that are not positive leave
    gaps; ``from_zero`` starts a linear y axis at 0. What lies before the share ``settled`` of the x axis does not set
    the highest y: a loss that falls from far above enters at the top, and the rest of the run has the room.

    A curve is drawn with about one point per pixel at most, which keeps every extreme (see :func:`thin_out`), so the
    size of the picture does not grow with the run.
    """
    curves = [s._replace(points=_clean(s.points, log_y)) for s in series]
    legend = _legend(curves, marks, width)
    top, bottom, right = 64 + 24 * max((row for _, row, *_ in legend), default=0), 44, 22
    x_low, x_high = _x_range(curves, marks[1])
    room = 34 / (height - top - bottom) if rules else 0.05  # a rule's label stands below it
    y_low, y_high = _y_range(curves, rules, log_y, from_zero, room, x_low + settled * (x_high - x_low))
    y = Axis(y_low, y_high, height - top - bottom, log_y)
    y_ticks = _y_ticks(y, curves)
    left = 16 + 7 * max((len(label) for _, label in y_ticks), default=0)
    x = Axis(x_low, x_high, width - left - right)
    body = [
        f'<text x="0" y="16"><tspan class="title">{_text(title)}</tspan>'
        f'<tspan class="label" dx="10">{_text(y_label)}</tspan></text>',
        *(_legend_entry(*entry) for entry in legend),
        f'<g transform="translate({left} {top})">',
        _grid(x, y, _x_ticks(x), y_ticks),
        f'<text class="label" x="{x.length:g}" y="{y.length + 38:g}" text-anchor="end">{_text(x_label)}</text>',
        # A nested svg clips what leaves the frame above or below, but not a dot on its left or right edge.
        f'<svg x="-8" width="{x.length + 16:g}" height="{y.length:g}" viewBox="-8 0 {x.length + 16:g} {y.length:g}">',
        *(_curve(s, x, y) for s in curves if s.kind == "faint"),
        *(_rule(value, label, x, y) for value, label in rules),
        *(_curve(s, x, y) for s in curves if s.kind != "faint"),
        _marks(marks[1], x, y),
        "</svg>",
        *(_lowest(s.points, x, y) for s in curves if s.kind == "points"),
        "</g>",
    ]
    frame = f'data-frame="{left} {top} {x.length:g} {y.length:g}" data-log="{int(log_y)}"'
    axes = f'data-label="{_text(x_label)}" data-x="{x.low!r} {x.high!r}" data-y="{y.low!r} {y.high!r}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" width="{width}" height="{height}"
viewBox="0 0 {width} {height}" {frame} {axes}>
<title>{_text(title)}</title><desc>{_text(_description(curves))}</desc>
<style>{PALETTE}{CHART_STYLE}</style>
<rect class="surface" width="{width}" height="{height}"/>
{chr(10).join(part for part in body if part)}
</svg>"""


def _x_ticks(x: Axis) -> list[tuple[float, str]]:
    """Return places and labels of the ticks, one per 90 pixels or so; a step is not divided."""
    ticks = nice_ticks(x.low, x.high, max(1, min(int(x.length / 90), int(x.high - x.low))))
    return list(zip(ticks, tick_labels(ticks), strict=True))


def _y_ticks(y: Axis, curves: Sequence[Series]) -> list[tuple[float, str]]:
    """Return places and labels of the ticks, one per 60 pixels or so; none where there is nothing to read off."""
    if not any(math.isfinite(value) for curve in curves for _, value in curve.points):
        return []
    ticks = log_ticks(y.low, y.high) if y.log else nice_ticks(y.low, y.high, max(3, int(y.length / 60)))
    return list(zip(ticks, tick_labels(ticks), strict=True))


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """Return about ``count`` round numbers in [low, high] (Heckbert, "Nice numbers for graph labels", 1990).

    >>> nice_ticks(0, 2000, 5)
    [0, 500, 1000, 1500, 2000]
    """
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(nice for nice, limit in ((1, 1.5), (2, 3), (5, 7), (10, 11)) if rough < limit * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [_round_like(i * step, step) for i in range(first, last + 1)]


def _round_like(value: float, step: float) -> float:
    """Round off what the multiplication left behind the step's own decimals: 0.30000000000000004 is 0.3."""
    rounded = round(value, max(0, 2 - math.floor(math.log10(step))))
    return int(rounded) if rounded == int(rounded) else rounded


def log_ticks(low: float, high: float) -> list[float]:
    """Return the powers of ten in [low, high], and twice and five times them where that is less than three decades.

    >>> log_ticks(0.09, 3)
    [0.1, 0.2, 0.5, 1.0, 2.0]
    """
    factors = (1, 2, 5) if high / low < 1e3 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{factor}e{power}") for power in powers for factor in factors]
    ticks = ticks[:: -(-len(ticks) // 12)]
    return [tick for tick in ticks if low <= tick <= high]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Return the ticks of one axis as text, all in the same form.

    >>> tick_labels([0, 5000, 10000]), tick_labels([0, 0.0005, 0.001]), tick_labels([0, 2e-5])
    (['0', '5 k', '10 k'], ['0', '0.0005', '0.001'], ['0', '2×10⁻⁵'])
    """
    sizes = [abs(tick) for tick in ticks if tick] or [1.0]
    if min(sizes) < 1e-4 or max(sizes) >= 1e15 or (min(sizes) < 1 and max(sizes) >= 1e4):
        return [_scientific(tick) for tick in ticks]
    if max(sizes) >= 1e4:
        return [format_count(tick) for tick in ticks]
    return [f"{tick:,.10g}" for tick in ticks]


def _scientific(value: float) -> str:
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.3e}".split("e")
    superscript = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{float(mantissa):g}×10{superscript}"


def thin_out(points: Sequence[Point], limit: int) -> list[Point]:
    """Return about ``limit`` of the points at most: of each stretch the lowest and the highest, and both ends.

    A curve drawn from them covers the same pixels as one drawn from all. A stretch with no finite value is one gap.
    """
    if len(points) <= limit:
        return list(points)
    size = -(-2 * len(points) // limit)
    kept = [points[0]]
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        finite = [point for point in stretch if math.isfinite(point[1])] or stretch[:1]
        kept += sorted({min(finite, key=itemgetter(1)), max(finite, key=itemgetter(1))})
    return [*kept, points[-1]]


def _clean(points: Sequence[Point], log_y: bool) -> list[Point]:
    """Return the points with NaN for every y that cannot be drawn."""
    return [(x, y if abs(y) < LARGEST and (y > 0 or not log_y) else math.nan) for x, y in points]


def _y_range(
    curves: Sequence[Series],
    rules: Sequence[tuple[float, str]],
    log: bool,
    from_zero: bool,
    room: float,
    settled: float,
) -> Point:
    """Return the lowest and highest y to show, with a margin; one spike of a faint curve does not set them."""
    values = [value for value, _ in rules]
    for curve in curves:
        finite = [point for point in curve.points if math.isfinite(point[1])]
        later = sorted(y for x, y in finite if x >= settled) or [y for _, y in finite[-1:]]
        spare = len(later) // 200 if curve.kind == "faint" else 0
        values += [min(y for _, y in finite), later[-1 - spare]] if finite else []
    low, high = min(values, default=1.0), max(values, default=1.0)
    if log:
        margin = max((high / low) ** 0.06, 1.1)
        return low / margin, high * margin
    if from_zero:
        return min(0.0, low), 1.08 * high if high > 0 else 1.0
    span = (high - low) or abs(high) * 0.5 or 1.0
    return low - span * room, high + span * 0.05


def _x_range(curves: Sequence[Series], marks: Sequence[float]) -> Point:
    """Return 0 (or less) to the largest x."""
    xs = [x for curve in curves if curve.points for x in (curve.points[0][0], curve.points[-1][0])] + list(marks)
    low, high = min(xs, default=0.0), max(xs, default=1.0)
    return min(0.0, low), high if high > min(0.0, low) else low + 1.0


def _legend(
    curves: Sequence[Series], marks: tuple[str, Sequence[float]], width: int
) -> list[tuple[float, int, str, str]]:
    """Return (x, row, name, class) of each entry, in as many rows as the width asks for."""
    names = [(curve.name, f"{curve.kind} c{curve.color}") for curve in curves if curve.points]
    if marks[1]:
        names.append((marks[0], "mark"))
    entries: list[tuple[float, int, str, str]] = []
    x, row = 0.0, 0
    for name, style in names:
        needed = 30 + 6.7 * len(name)
        if x and x + needed > width:
            x, row = 0.0, row + 1
        entries.append((x, row, name, style))
        x += needed + 20
    return entries


def _legend_entry(x: float, row: int, name: str, style: str) -> str:
    y = 40 + 24 * row
    sign = f'<path class="{style}" d="M{x:g} {y - 4}h22"/>'
    if style.startswith("points"):
        sign += f'<circle class="dot {style.split()[1]}" cx="{x + 11:g}" cy="{y - 4}" r="3.5"/>'
    if style == "mark":
        sign = f'<path class="mark" d="M{x + 11:g} {y}v-9"/>'
    return f'{sign}<text class="legend" x="{x + 30:g}" y="{y}">{_text(name)}</text>'


def _grid(x: Axis, y: Axis, x_ticks: Sequence[tuple[float, str]], y_ticks: Sequence[tuple[float, str]]) -> str:
    """Return hairlines at the y ticks, short strokes at the x ticks, and the labels of both."""
    parts = []
    for value, label in y_ticks:
        at = _px(y.length - y.position(value))
        parts.append(f'<path class="grid" d="M0 {at}h{x.length:g}"/>')
        parts.append(f'<text class="tick" x="-10" y="{at}" dy="4" text-anchor="end">{label}</text>')
    parts.append(f'<path class="axis" d="M0 {y.length:g}h{x.length:g}"/>')
    for value, label in x_ticks:
        at = _px(x.position(value))
        parts.append(f'<path class="axis" d="M{at} {y.length:g}v5"/>')
        parts.append(f'<text class="tick" x="{at}" y="{y.length + 19:g}" text-anchor="middle">{label}</text>')
    return "\n".join(parts)


def _curve(series: Series, x: Axis, y: Axis) -> str:
    """Return the path of one curve, and its dots when they are few enough to be told apart."""
    drawn = [
        f"{_px(x.position(a))} {_px(y.length - y.position(b))}" if math.isfinite(b) else ""
        for a, b in thin_out(series.points, int(x.length))
    ]
    strokes = [list(group) for inked, group in groupby(drawn, bool) if inked]
    data = "".join(f"M{' '.join(stroke)}{'' if len(stroke) > 1 else 'h0'}" for stroke in strokes)
    dots = [place.split() for place in drawn if place]
    if len(dots) > (x.length / 12 if series.kind == "points" else 1):
        dots = []
    circles = "".join(f'<circle class="dot c{series.color}" cx="{a}" cy="{b}" r="3.5"/>' for a, b in dots)
    return f'<path class="{series.kind} c{series.color}" data-name="{_text(series.name)}" d="{data}"/>{circles}'


def _lowest(points: Sequence[Point], x: Axis, y: Axis) -> str:
    """Return a ring around the lowest point, with its value above it."""
    finite = [point for point in points if math.isfinite(point[1])]
    if not finite:
        return ""
    step, value = min(finite, key=itemgetter(1))
    across, down = x.position(step), y.length - y.position(value)
    anchor = "end" if across > x.length - 30 else "start" if across < 30 else "middle"
    return (
        f'<circle class="ring" cx="{_px(across)}" cy="{_px(down)}" r="7"/>'
        f'<text class="value halo" x="{_px(across)}" y="{_px(down - 16)}" text-anchor="{anchor}">{value:.3f}</text>'
    )


def _rule(value: float, label: str, x: Axis, y: Axis) -> str:
    at = _px(y.length - y.position(value))
    return (
        f'<path class="rule" d="M0 {at}h{x.length:g}"/>'
        f'<text class="label halo" x="{x.length:g}" y="{at}" dy="17" text-anchor="end">{_text(label)}</text>'
    )


def _marks(xs: Iterable[float], x: Axis, y: Axis) -> str:
    """Return ticks on the lower edge as one path; those that fall on the same pixel are one."""
    places = sorted({round(x.position(value)) for value in xs})
    return f'<path class="mark" d="{"".join(f"M{at} {y.length:g}v-9" for at in places)}"/>' if places else ""


def _description(curves: Sequence[Series]) -> str:
    """Return in words where each curve starts and ends, for those who cannot see it."""
    sentences = []
    for curve in curves:
        finite = [point for point in curve.points if math.isfinite(point[1])]
        if finite:
            (x0, y0), (x1, y1) = finite[0], finite[-1]
            sentences.append(f"{curve.name}: from {y0:.4g} at {x0:g} to {y1:.4g} at {x1:g}.")
    return " ".join(sentences) or "No data yet."


def _px(pixels: float) -> str:
    return f"{pixels:.2f}".rstrip("0").rstrip(".")


POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

#: Colours of page and charts: Okabe and Ito's (2008), three of them darkened for white. Paper is always white.
PALETTE = """
:root{--surface:#fff;--ink:#1c1f24;--muted:#686c74;--hair:#e5e4df;--axis:#a9a8a2;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b0578d;--c4:#c98a00;--c5:#3a9bd6;--alert:#c0392b;--faint:.32}
@media screen and (prefers-color-scheme:dark){:root{--surface:#0d1117;--ink:#e9e7e1;--muted:#9a9ea6;--hair:#252a31;
--axis:#5b5f66;--c0:#56b4e9;--c1:#e69f00;--c2:#009e73;--c3:#cc79a7;--c4:#f0e442;--c5:#d55e00;--alert:#ff8a75;--faint:.42}}
"""

CHART_STYLE = """
.chart text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:var(--ink)}
.chart .title{font-weight:600;font-size:15px}
.chart .label,.chart .tick{fill:var(--muted)}
.chart .tick{font-variant-numeric:tabular-nums}
.chart .value{font-weight:600}
.chart .halo{stroke:var(--surface);stroke-width:4px;stroke-linejoin:round;paint-order:stroke}
.chart .surface{fill:var(--surface)}
.chart path{fill:none}
.chart .grid{stroke:var(--hair)}
.chart .axis{stroke:var(--axis)}
.chart .rule{stroke:var(--ink);stroke-dasharray:5 4}
.chart .mark{stroke:var(--alert);stroke-width:2}
.chart .line,.chart .faint,.chart .points{stroke-linecap:round;stroke-linejoin:round}
.chart .line{stroke-width:2.2}
.chart .faint{stroke-width:1.2;opacity:var(--faint)}
.chart .points{stroke-width:1.8}
.chart .ring{fill:none;stroke:var(--ink);stroke-width:1.4}
.chart .c0{stroke:var(--c0)}.chart .c1{stroke:var(--c1)}.chart .c2{stroke:var(--c2)}
.chart .c3{stroke:var(--c3)}.chart .c4{stroke:var(--c4)}.chart .c5{stroke:var(--c5)}
.chart .dot{fill:var(--surface);stroke-width:2}
.chart .cross{stroke:var(--muted)}
"""

PAGE_STYLE = """
*{box-sizing:border-box}
body{margin:0 auto;padding:4.5rem 2rem 3rem;max-width:1064px;background:var(--surface);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
-webkit-text-size-adjust:100%}
h1,pre{font-family:"Iowan Old Style","Palatino Linotype",Palatino,"URW Palladio L",P052,Georgia,serif}
h1{margin:.2rem 0 .9rem;font-size:2.75rem;font-weight:500;line-height:1.1;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{margin:4rem 0 1rem;font-size:1.25rem;font-weight:600}
.overline,.status,.note,header ul,dt,footer{color:var(--muted)}
.overline{margin:0;font-size:.8rem;letter-spacing:.08em;text-transform:uppercase}
.status{margin:0 0 .6rem;text-wrap:pretty;font-variant-numeric:tabular-nums}
.progress{height:3px;background:var(--hair)}
.progress div{height:100%;background:var(--c0)}
header ul{margin:1rem 0 0;padding:0;list-style:none;font-size:.9rem}
.numbers{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:1.5rem 2rem;margin:3rem 0 3.5rem}
.numbers dt{font-size:.85rem}
.numbers dd{margin:0;font-size:1.8rem;line-height:1.35;white-space:nowrap;
font-variant-numeric:tabular-nums;letter-spacing:-.01em}
.numbers .note,.note{white-space:normal;font-size:.85rem;letter-spacing:0;line-height:1.4}
figure{position:relative;margin:0}
.chart{display:block;width:100%;height:auto;touch-action:pan-y}
.narrow{display:none}
.small{display:grid;grid-template-columns:repeat(auto-fit,minmax(280px,1fr));gap:2.5rem;margin-top:2.5rem}
.readout{position:absolute;pointer-events:none;z-index:1;padding:.45rem .7rem;border:1px solid var(--hair);
background:var(--surface);border-radius:4px;font-size:.8rem;line-height:1.5;white-space:nowrap;
font-variant-numeric:tabular-nums;box-shadow:0 2px 10px rgb(0 0 0/.12)}
.readout b{font-weight:600}
.readout i{display:inline-block;width:.6rem;height:.6rem;border-radius:50%;margin-right:.45rem}
details{border-top:1px solid var(--hair)}
details:last-of-type{border-bottom:1px solid var(--hair)}
summary{padding:.7rem 0;cursor:pointer;font-variant-numeric:tabular-nums}
pre{margin:.3rem 0 1.6rem;max-width:44rem;font-size:1.02rem;line-height:1.5;white-space:pre-wrap;
overflow-wrap:anywhere}
table{width:100%;border-collapse:collapse;font-size:.875rem;line-height:1.45}
th{padding:1.4rem 0 .4rem;text-align:left;font-weight:600;font-size:.95rem}
tbody:first-of-type th{padding-top:0}
td{padding:.32rem 1.5rem .32rem 0;border-top:1px solid var(--hair);vertical-align:top}
td:nth-child(-n+2){font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.8rem;
white-space:nowrap}
td:last-child{padding-right:0;color:var(--muted)}
footer{margin-top:4rem;font-size:.85rem}
@media screen and (max-width:720px){
body{padding:2.5rem 1.25rem 2rem}h1{font-size:2.1rem}
.wide{display:none}.narrow{display:block}
.numbers{grid-template-columns:1fr 1fr;margin:2.2rem 0 2.8rem}
td:last-child{display:none}td:nth-child(2){white-space:normal;overflow-wrap:anywhere;padding-right:0}}
@media print{.numbers{grid-template-columns:repeat(5,auto)}
body{padding:0;max-width:none;font-size:11pt}figure,tr{break-inside:avoid}h2{break-after:avoid}
.small{grid-template-columns:repeat(3,1fr);gap:1rem}}
"""

#: Reads values off the curves under the pointer: from the paths themselves, turned back into numbers.
SCRIPT = r"""
for (const svg of document.querySelectorAll("svg.chart")) {
  const numbers = key => svg.dataset[key].split(" ").map(Number);
  const [left, top, width, height] = numbers("frame"), [x0, x1] = numbers("x"), log = svg.dataset.log === "1";
  const [y0, y1] = log ? numbers("y").map(Math.log) : numbers("y");
  const toX = px => Math.round(x0 + px / width * (x1 - x0)).toLocaleString("en");
  const toY = px => {
    const y = y1 - px / height * (y1 - y0), value = log ? Math.exp(y) : y, text = value.toPrecision(4);
    return Math.abs(value) < 1e4 ? text : (+text).toLocaleString("en");
  };
  const curves = [...svg.querySelectorAll("path[data-name]")].map(path => ({
    name: path.dataset.name, color: getComputedStyle(path).stroke, soft: path.matches(".faint"),
    points: [...path.getAttribute("d").matchAll(/(-?[\d.]+) (-?[\d.]+)/g)].map(m => [+m[1], +m[2]]),
  })).filter(curve => curve.points.length);
  const title = svg.querySelector("title");
  svg.setAttribute("aria-label", title.textContent);
  title.remove();  // or the browser would cover the read-out with it
  const cross = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const readout = document.createElement("div");
  cross.setAttribute("class", "cross");
  readout.className = "readout";
  const hide = () => { cross.remove(); readout.remove(); };
  const show = event => {
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    const px = (event.clientX - box.left) / scale - left;
    if (px < -8 || px > width + 8 || !curves.length) return hide();
    const nearest = curves.map(c => c.points.reduce((a, b) => Math.abs(b[0] - px) < Math.abs(a[0] - px) ? b : a));
    const at = nearest.reduce((a, b) => Math.abs(b[0] - px) < Math.abs(a[0] - px) ? b : a)[0];
    cross.setAttribute("d", `M${left + at} ${top}v${height}`);
    const head = document.createElement("b");
    head.textContent = `${svg.dataset.label} ${toX(at)}`;
    readout.replaceChildren(head);
    nearest.forEach((point, i) => {
      const row = document.createElement("div"), dot = document.createElement("i");
      const where = Math.abs(point[0] - at) > 1 ? ` at ${toX(point[0])}` : "";
      dot.style.background = curves[i].color;
      dot.style.opacity = curves[i].soft ? .4 : 1;
      row.append(dot, `${curves[i].name} ${toY(point[1])}${where}`);
      readout.append(row);
    });
    svg.append(cross);
    svg.parentNode.append(readout);
    const x = (left + at) * scale, over = x + readout.offsetWidth + 16 > box.width;
    readout.style.left = `${Math.max(0, over ? x - readout.offsetWidth - 12 : x + 12)}px`;
    readout.style.top = `${(top + 8) * scale}px`;
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", hide);
}
"""
