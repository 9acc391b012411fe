"""A picture: a whole SVG document, which a notebook shows and ``save`` writes.

Several pictures in one page do not disturb each other: each has a class of its own, made from its content, under which
all its rules and names stand. The same picture is the same text each time.
"""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nanoeuler.errors import UserError
from nanoeuler.files import written_whole
from nanoeuler.simt.traced.pictures.colours import PATTERNS, style_sheet
from nanoeuler.simt.traced.pictures.drawing import ROOT, number, tag, words

MARGIN = 16.0


@dataclass(frozen=True, repr=False)
class Picture:
    """An SVG picture. As the last value of a notebook's cell it is shown; ``save`` writes it to a file.

    Attributes:
        svg: the document, complete in itself.
        title: what it shows, in a few words.
    """

    svg: str
    title: str

    def _repr_html_(self) -> str:
        """Return the picture as notebooks show it: part of the page, so that tooltips work."""
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture: {self.title}; save('name.svg') writes it>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file that ends in ``.svg``: all of it, or nothing is changed.

        Raises:
            UserError: the path has another ending, or cannot be written.
        """
        target = Path(path)
        if target.suffix.lower() != ".svg":
            raise UserError(f"{target}: a picture is an SVG file: call it {target.stem or 'picture'}.svg")
        with written_whole(target) as file:
            file.write(self.svg.encode())


def picture(
    title: str, description: str, width: float, height: float, body: Iterable[str], *, style: str = ""
) -> Picture:
    """Return the picture with ``body`` in it, ``width`` by ``height`` pixels and a margin around.

    ``title`` and ``description`` are for readers who cannot see it, too. ROOT in ``body``, ``style`` and ``defs``
    becomes the picture's class.
    """
    box = " ".join(map(number, (-MARGIN, -MARGIN, width + 2 * MARGIN, height + 2 * MARGIN)))
    content = (
        tag("title", words(title), id=f"{ROOT}-title"),
        tag("desc", words(description), id=f"{ROOT}-desc"),
        tag("style", style_sheet(ROOT) + style),
        tag("defs", PATTERNS),
        tag("rect", x=-MARGIN, y=-MARGIN, width=width + 2 * MARGIN, height=height + 2 * MARGIN, rx=6, class_="n-paper"),
        *body,
    )
    svg = tag(
        *("svg", *content),
        xmlns="http://www.w3.org/2000/svg",
        class_=ROOT,
        viewBox=box,
        width=width + 2 * MARGIN,
        height=height + 2 * MARGIN,
        role="img",
        aria_labelledby=f"{ROOT}-title {ROOT}-desc",
        style="max-width:100%;height:auto",
    )
    root = "n" + hashlib.sha256(svg.encode()).hexdigest()[:10]
    return Picture(svg.replace(ROOT, root), title)
