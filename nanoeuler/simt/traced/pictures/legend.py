"""What colours and hatchings mean, in a line under the picture."""

from collections.abc import Sequence

from nanoeuler.simt.traced.pictures.colours import INKS, ink_on
from nanoeuler.simt.traced.pictures.drawing import ROOT, breadth, number, tag, text

HEIGHT = 22.0  # of a line
_SIDE = 14.0


def box(x: float, y: float, look: str, pattern: str) -> str:
    """Return a small square in a colour or of a class, with a pattern on its lower half; or what is drawn already."""
    if look.startswith("<"):
        return f'<g transform="translate({number(x)} {number(y)})">{look}</g>'
    colour = {"fill": look} if look.startswith("#") else {"class_": look}
    made = tag("rect", x=x, y=y, width=_SIDE, height=_SIDE, rx=2, **colour)
    if pattern:
        made += tag("rect", x=x, y=y + _SIDE / 2, width=_SIDE, height=_SIDE / 2, fill=f"url(#{ROOT}-{pattern})")
    return made


def written(fill: str, kind: str = "w") -> str:
    """Return the name of the pattern that says written (``w``) or updated atomically (``a``) on a colour."""
    return kind + INKS[ink_on(fill)]


def scale(x: float, y: float, fills: Sequence[str], first: str, last: str) -> tuple[str, float]:
    """Return a ramp of colours with the names of its ends, and where it ends."""
    shown = fills if len(fills) <= 32 else [fills[n * (len(fills) - 1) // 31] for n in range(32)]
    start = x + breadth(first, 12) + 4
    each = max(3.0, 96 / len(shown))
    made = text(x, y + 11, first, class_="n-dim")
    made += "".join(
        tag("rect", x=start + n * each, y=y, width=each + 0.5, height=_SIDE, fill=f) for n, f in enumerate(shown)
    )
    end = start + each * len(shown) + 5
    return made + text(end, y + 11, last, class_="n-dim"), end + breadth(last, 12)


def legend(
    y: float,
    width: float,
    entries: Sequence[tuple[str, str, str]],
    ramp: tuple[str, Sequence[str], str, str] | None = None,
) -> tuple[str, float]:
    """Return a legend that begins at ``y``, and where it ends.

    Args:
        y: its upper edge.
        width: where its lines are broken.
        entries: of each thing the colour, class or drawing (``""``: an empty element), the pattern over it (``""``:
            none), and its meaning.
        ramp: what a ramp means, its colours, and the names of its ends; None: there is none.
    """
    made, x = "", 0.0
    if ramp is not None:
        name, fills, first, last = ramp
        drawn, x = scale(x, y, fills, first, last)
        made = drawn + text(x + 6, y + 11, name, class_="n-dim")
        x += breadth(name, 12) + 24
    for fill, pattern, meaning in entries:
        length = _SIDE + 6 + breadth(meaning, 12)
        if x and x + length > width:
            x, y = 0.0, y + HEIGHT
        made += box(x, y, fill or "n-empty n-hair", pattern)
        made += text(x + _SIDE + 6, y + 11, meaning, class_="n-dim")
        x += length + 18
    return made, y + _SIDE
