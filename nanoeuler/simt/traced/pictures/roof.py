"""The roofline of a card, and kernels under it: how fast can they be, and is it memory or arithmetic that limits them?

A kernel that does I floating-point operations for each byte that it moves runs at min(peak, I * bandwidth) at most (S.
Williams, A. Waterman, D. Patterson, "Roofline: An Insightful Visual Performance Model for Multicore Architectures",
2009). Both axes are logarithmic, so the roof is two straight lines.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nanoeuler.errors import UserError
from nanoeuler.simt.traced.pictures.drawing import allowed, head, number, tag, text, tooltip, wrapped
from nanoeuler.simt.traced.pictures.picture import Picture, picture

LEFT, WIDTH, HEIGHT, FOOT = 76.0, 600.0, 320.0, 60.0  # pixels: of the labels, of the plot, and below it
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def roof(
    points: Sequence[tuple[str, float, float | None]], *, card: str, peak_flops: float, bandwidth: float
) -> Picture:
    """Draw kernels under the roofline of a card.

    Args:
        points: for each its name, its arithmetic intensity in FLOP/byte (0 where nothing is computed: that has no place
            under the roof, and is only told; infinite where nothing is moved), and what was measured in FLOP/s; None:
            not measured, it is drawn at the roof.
        card: name of the card.
        peak_flops: the most operations that it does, in FLOP/s.
        bandwidth: the most bytes that it moves, in bytes/s.

    Example: ``roof([("saxpy", 1 / 6, None)], card="T4", peak_flops=8.1e12, bandwidth=320e9).save("saxpy.svg")``

    Raises:
        UserError: a number is negative or not a number, or there are more than 26 points.
    """
    for name, found in (("peak_flops", peak_flops), ("bandwidth", bandwidth)):
        if not 0 < found < math.inf:
            raise UserError(f"{name}={found}: give a positive number, in {'FLOP/s' if name[0] == 'p' else 'bytes/s'}")
    if len(points) > len(LETTERS):
        raise UserError(f"{len(points)} points are too many for one picture: give {len(LETTERS)} at most")
    for name, intensity, measured in points:
        if not intensity >= 0 or not 0 <= (measured or 0.0) < math.inf:
            raise UserError(f"'{name}' has intensity {intensity} and {measured} FLOP/s: neither can be negative or NaN")
    plot = _plot(points, peak_flops, bandwidth)
    title = f"The roofline of {card}"
    told = f"{si(peak_flops, 'FLOP/s')}, {si(bandwidth, 'B/s')}; the ridge is at {peak_flops / bandwidth:.3g} FLOP/byte"
    top, y = head(title, [told], LEFT + WIDTH)
    body = [
        top,
        f'<g transform="translate({number(LEFT)} {number(y)})">',
        *_axes(plot),
        *_roof(plot),
        *_pins(plot, points),
        "</g>",
    ]
    y += HEIGHT + FOOT
    lines = [_told(plot, *point) for point in points]
    for letter, line in zip(LETTERS, lines, strict=False):
        body.append(_letter(10, y, letter))
        for row in wrapped([line], LEFT + WIDTH - 26, 12):
            body.append(text(26, y + 4, row, class_="n-ink"))
            y += 17
        y += 7
    said = f"{told}. " + " ".join(f"{line}." for line in lines)
    return picture(title, said, LEFT + WIDTH + 8, y - 20, body)


@dataclass(frozen=True)
class Plot:
    """The roof, and the decades that the axes show."""

    peak: float
    bandwidth: float
    low_x: int
    high_x: int
    low_y: int
    high_y: int

    def x(self, intensity: float) -> float:
        """Return where an intensity lies, in pixels; 0 and what is infinite at the edges."""
        share = (math.log10(intensity) if intensity else -math.inf) - self.low_x
        return WIDTH * min(1.0, max(0.0, share / (self.high_x - self.low_x)))

    def y(self, flops: float) -> float:
        """Return where a speed lies, in pixels from above."""
        share = (math.log10(flops) if flops else -math.inf) - self.low_y
        return HEIGHT * (1.0 - min(1.0, max(0.0, share / (self.high_y - self.low_y))))

    def limit(self, intensity: float) -> float:
        """Return the most FLOP/s at an intensity."""
        return min(self.peak, intensity * self.bandwidth)


def _plot(points: Sequence[tuple[str, float, float | None]], peak: float, bandwidth: float) -> Plot:
    ridge = peak / bandwidth
    shown = [i for _, i, _ in points if 0 < i < math.inf]
    inside = [ridge / 20, ridge * 10, *(i / 1.5 for i in shown), *(i * 1.5 for i in shown)]
    low, high = math.floor(math.log10(min(inside))), math.ceil(math.log10(max(inside)))
    speeds = [peak, bandwidth * 10.0**low, *(m for _, _, m in points if m)]
    return Plot(
        peak, bandwidth, low, high, math.floor(math.log10(min(speeds))), math.ceil(math.log10(max(speeds)) + 0.6)
    )


def _axes(plot: Plot) -> Iterator[str]:
    """Yield the decades of both axes, and what they measure."""
    for decade in range(plot.low_x, plot.high_x + 1):
        x = number(plot.x(10.0**decade))
        yield tag("path", d=f"M{x} 0V{number(HEIGHT)}", class_="n-hair")
        name = f"{10.0**decade:g}"
        yield text(plot.x(10.0**decade), HEIGHT + 15, name, class_="n-dim", font_size=11, text_anchor="middle")
    for decade in range(plot.low_y, plot.high_y + 1):
        y = plot.y(10.0**decade)
        yield tag("path", d=f"M0 {number(y)}H{number(WIDTH)}", class_="n-hair")
        yield text(-8, y + 4, si(10.0**decade, "FLOP/s"), class_="n-dim", font_size=11, text_anchor="end")
    yield text(WIDTH / 2, HEIGHT + 32, "arithmetic intensity, FLOP/byte", class_="n-dim", text_anchor="middle")


def _roof(plot: Plot) -> Iterator[str]:
    """Yield the roof, what is under it, and the ridge."""
    ridge = plot.peak / plot.bandwidth
    left, top, ridge_x = plot.y(plot.bandwidth * 10.0**plot.low_x), plot.y(plot.peak), plot.x(ridge)
    corners = [number(v) for v in (left, ridge_x, top, WIDTH, HEIGHT)]
    y0, x1, y1, x2, y2 = corners
    yield tag("path", d=f"M0 {y0}L{x1} {y1}V{y2}H0z", class_="n-soft", stroke="none")
    yield tag("path", d=f"M{x1} {y1}H{x2}V{y2}H{x1}z", class_="n-idle", fill_opacity=0.5)
    yield tag("path", d=f"M{x1} {y1}V{y2}", class_="n-rule", stroke_dasharray="4 4")
    yield tag("path", d=f"M0 {y0}L{x1} {y1}H{x2}", class_="n-line", fill="none", stroke_width=2.5)
    angle = math.degrees(math.atan2(top - left, ridge_x))
    yield tag(
        "g",
        text(0, -8, si(plot.bandwidth, "B/s"), class_="n-ink", font_size=11, text_anchor="middle"),
        transform=f"translate({number(ridge_x / 2)} {number((left + top) / 2)}) rotate({number(angle)})",
    )
    yield text(WIDTH - 6, top - 8, si(plot.peak, "FLOP/s"), class_="n-ink", font_size=11, text_anchor="end")
    yield text(ridge_x - 10, HEIGHT - 12, "limited by memory", class_="n-dim", text_anchor="end")
    yield text(ridge_x + 10, HEIGHT - 12, "limited by arithmetic", class_="n-dim")


def _pins(plot: Plot, points: Sequence[tuple[str, float, float | None]]) -> Iterator[str]:
    """Yield a dot for each kernel that computes, with its letter above; letters and stems give way to each other."""
    taken: list[Stem] = []
    for letter, (name, intensity, measured) in zip(LETTERS, points, strict=False):
        if not intensity:
            continue
        speed = plot.limit(intensity) if measured is None else measured
        x, y = plot.x(intensity), plot.y(speed)
        stem = _stem((x, y), min(y, plot.y(plot.limit(intensity))), taken)
        taken.append(stem)
        at_x, at = stem[1]
        line = tag("path", d=f"M{number(x)} {number(y)}L{number(at_x)} {number(at)}", class_="n-line")
        dot = tag("circle", cx=x, cy=y, r=4, class_="n-op n-cut")
        place = {"data-point": allowed(name), "data-intensity": f"{intensity:g}", "data-flops": f"{speed:g}"}
        yield tag("g", tooltip(_told(plot, name, intensity, measured)), line, dot, _letter(at_x, at, letter), **place)


Stem = tuple[tuple[float, float], tuple[float, float]]  # from a dot to its letter


def _stem(dot: tuple[float, float], roof_at: float, taken: Sequence[Stem]) -> Stem:
    """Return the stem of a dot, to above the roof: straight if it can be, else askew, and longer if that won't do."""
    x, _ = dot
    for far in range(28, 280, 14):
        for degrees in sorted(range(-85, 90, 5), key=abs):
            angle = math.radians(degrees)
            end = x + far * math.sin(angle), roof_at - far * math.cos(angle)
            if 0 <= end[0] <= WIDTH and all(_apart((dot, end), other) for other in taken):
                return dot, end
    return dot, (x, roof_at - 21 * len(taken) - 21)


def _apart(a: Stem, b: Stem) -> bool:
    """Whether neither of two letters lies on the other, nor on the other's stem."""
    letters = math.dist(a[1], b[1]) >= 21
    return letters and min(_distance(a[1], b), _distance(b[1], a)) >= 11.5


def _distance(point: tuple[float, float], stem: Stem) -> float:
    """Return how far a point is from a stem."""
    (x0, y0), (x1, y1) = stem
    along = ((point[0] - x0) * (x1 - x0) + (point[1] - y0) * (y1 - y0)) / ((x1 - x0) ** 2 + (y1 - y0) ** 2)
    share = min(1.0, max(0.0, along))
    return math.dist(point, (x0 + share * (x1 - x0), y0 + share * (y1 - y0)))


def _letter(x: float, y: float, letter: str) -> str:
    """Return a letter in a disc."""
    disc = tag("circle", cx=x, cy=y, r=9, class_="n-mark n-cut")
    return disc + text(x, y + 4, letter, class_="n-on n-bold", font_size=11, text_anchor="middle")


def _told(plot: Plot, name: str, intensity: float, measured: float | None) -> str:
    """Return where a kernel stands, in words."""
    limit = plot.limit(intensity)
    by = "memory" if intensity * plot.bandwidth < plot.peak else "arithmetic"
    if intensity == 0:
        made = f"{name}: computes nothing"
    elif intensity == math.inf:
        made = f"{name}: moves nothing, at most {si(limit, 'FLOP/s')}, limited by {by}"
    else:
        made = f"{name}: {intensity:.3g} FLOP/byte, at most {si(limit, 'FLOP/s')}, limited by {by}"
    if measured is None:
        return made
    return f"{made}; measured {si(measured, 'FLOP/s')}" + (f", {measured / limit:.0%} of that" if limit else "")


def si(value: float, unit: str) -> str:
    """Return a value with the prefix that makes it short.

    >>> si(8.1e12, "FLOP/s"), si(320e9, "B/s"), si(0, "B/s")
    ('8.1 TFLOP/s', '320 GB/s', '0 B/s')
    """
    step = 0 if value <= 0 else min(5, max(0, math.floor(math.log10(value * 1.0005) / 3)))
    return f"{value / 1000**step:.3g} {('', 'k', 'M', 'G', 'T', 'P')[step]}{unit}"
