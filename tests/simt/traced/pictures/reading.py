"""Reads pictures back: every test of one goes through ``read``, which also checks what holds for all of them."""

import inspect
import math
import re
from typing import Any
from xml.etree import ElementTree

from nanoeuler.simt.traced.pictures.picture import Picture

SVG = "{http://www.w3.org/2000/svg}"
SIZES = ("width", "height", "r", "rx", "font-size", "stroke-width")
PLACES = ("x", "y", "cx", "cy")


def read(picture: Picture) -> ElementTree.Element:
    """Return the document, after looking for what no picture may have."""
    root = ElementTree.fromstring(picture.svg)
    assert root.tag == f"{SVG}svg"
    left, _, width, height = map(float, root.get("viewBox", "").split())
    assert (width, height) == (float(root.get("width", "")), float(root.get("height", "")))
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(set(ids)) == len(ids)
    assert all(name.startswith(root.get("class", "?") + "-") for name in ids)
    assert root.get("aria-labelledby", "").split() == ids[:2]
    assert [child.tag for child in root[:2]] == [f"{SVG}title", f"{SVG}desc"]
    for element in root.iter():
        for name in SIZES + PLACES:
            if (given := element.get(name)) is not None:
                assert math.isfinite(float(given)), (name, given)
                assert name in PLACES or float(given) >= 0, (name, given)
        numbers = element.get("d", "") + element.get("transform", "")
        assert not re.search(r"nan|inf", numbers), numbers
        if element.tag == f"{SVG}text" and not element.get("text-anchor"):
            assert float(element.get("x", "0")) <= left + width
    for name in re.findall(r"url\(#([^)]*)\)", picture.svg):
        assert name in ids
    return root


def marked(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """Return the elements that have an attribute ``data-NAME``."""
    return [element for element in root.iter() if element.get(f"data-{name}") is not None]


def told(element: ElementTree.Element) -> str:
    """Return an element's tooltip."""
    return element.findtext(f"{SVG}title") or ""


def texts(root: ElementTree.Element) -> list[str]:
    """Return all that is written in a picture."""
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def line_of(function: Any, text: str) -> int:
    """Return the number of the first line of a kernel that has ``text`` in it."""
    lines, first = inspect.getsourcelines(function.py_func)
    return next(first + n for n, line in enumerate(lines) if text in line)
