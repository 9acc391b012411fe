"""SVG as text: elements, numbers and words that are safe to put into a document, and a head that all pictures share.

Text comes from anybody's kernel: it is escaped, and what XML does not allow is left out (XML 1.0, "Characters").
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

SANS, MONO = 0.58, 0.61  # how wide a character is, in its font size: on the safe side of the usual fonts
ROOT = "\0"  # stands for the picture's own class until that is known; no text of a kernel can have it in
_NOT_ALLOWED = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def tag(name: str, /, *content: str, **attributes: Any) -> str:
    """Return an element; ``class_`` and ``stroke_width`` are written as SVG has them, None leaves one out.

    ``content`` is SVG, as ``words`` makes it of a text; attributes are the picture's own, never a kernel's text.

    >>> tag("rect", tag("title", words("a < b")), x=1, width=2.5, class_="n-hair")
    '<rect x="1" width="2.5" class="n-hair"><title>a &lt; b</title></rect>'
    """
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}={_quoted(value)}"
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(content)}</{name}>" if content else f"<{name}{given}/>"


def _quoted(value: Any) -> str:
    return quoteattr(value) if isinstance(value, str) else f'"{number(value)}"'


def number(value: float) -> str:
    """Return a number with two decimals at most.

    Raises:
        ValueError: it is not finite, which no picture can show.

    >>> number(2.0), number(1 / 3), number(-0.001)
    ('2', '0.33', '0')
    """
    if not math.isfinite(value):
        raise ValueError(f"{value} in a picture")
    short = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short


def allowed(text: str) -> str:
    """Return a text without the characters that XML does not allow."""
    return _NOT_ALLOWED.sub("\ufffd", text)


def words(text: Any) -> str:
    """Return a text as the content of an element."""
    return escape(allowed(str(text)))


def text(x: float, y: float, content: Any, **attributes: Any) -> str:
    """Return one line of text."""
    return tag("text", words(content), x=x, y=y, **attributes)


def tooltip(content: Any) -> str:
    """Return what a browser shows when the pointer rests on the element around it."""
    return tag("title", words(content))


def breadth(content: str, size: float, each: float = SANS) -> float:
    """Return about how wide a text is, in pixels."""
    return len(content) * size * each


def shortened(content: str, width: float, size: float, each: float = SANS) -> str:
    """Return a text that fits ``width`` pixels, with ``…`` where something had to go.

    >>> shortened("total += a[row, k]", 60, 12)
    'total +…'
    """
    room = max(1, int(width / (size * each)))
    return content if len(content) <= room else content[: room - 1].rstrip() + "…"


def head(title: str, lines: Sequence[str], width: float, code: str = "") -> tuple[str, float]:
    """Return the title of a picture, a line of source and lines of explanation, and the y at which they end."""
    made = [text(0, 16, shortened(title, width, 16), class_="n-title")]
    y = 22.0
    if code:
        y += 17
        made.append(text(0, y, shortened(code, width, 12, MONO), class_="n-code"))
    for line in wrapped(lines, width, 12):
        y += 17
        made.append(text(0, y, line, class_="n-dim"))
    return "".join(made), y + 14


def wrapped(lines: Iterable[str], width: float, size: float) -> list[str]:
    """Return lines, broken between words so that each fits ``width`` pixels.

    >>> wrapped(["one two three"], 60, 12)
    ['one two', 'three']
    """
    found: list[str] = []
    for line in lines:
        row = ""
        for word in line.split(" "):
            longer = f"{row} {word}" if row else word
            if row and breadth(longer, size) > width:
                found.append(row)
                longer = word
            row = longer
        found.append(row)
    return found
