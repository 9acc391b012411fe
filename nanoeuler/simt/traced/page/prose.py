"""Docstrings as HTML: paragraphs, lists of arguments, and blocks whose columns matter as they stand."""

import inspect
import re

from nanoeuler.simt.traced.page.html import element, words

_ALIGNED = re.compile(r"\S {3,}\S")  # a gap inside a line: a column, which a paragraph would lose


def prose(docstring: str | None) -> str:
    """Return a docstring as HTML. Indented and aligned lines are kept; the others are paragraphs.

    >>> prose("Add two numbers.")
    '<p>Add two numbers.</p>'
    """
    blocks = [b for b in re.split(r"\n[ \t]*\n", inspect.cleandoc(docstring or "").strip()) if b.strip()]
    return "".join(_block(block, before.endswith("::")) for before, block in zip(["", *blocks], blocks, strict=False))


def _block(block: str, literal: bool) -> str:
    """Return one block; ``literal`` where the one before announces it, with two colons."""
    lines = block.expandtabs().splitlines()
    section = re.fullmatch(r"(Args|Attributes|Raises|Returns|Yields):", lines[0])
    if section and len(lines) > 1:
        return _listed(section[1], inspect.cleandoc("\n".join(["", *lines[1:]])).splitlines())
    if literal or any(line.startswith("  ") or _ALIGNED.search(line) for line in lines):
        return element("pre", words("\n".join(lines)), class_="doc", tabindex="0")
    return element("p", _inline(" ".join(line.strip() for line in lines).replace("::", ":")))


TITLES = {"Args": "Arguments", "Raises": "Errors"}


def _listed(section: str, lines: list[str]) -> str:
    """Return the arguments of a function as a list; a line that is indented goes on with the one before."""
    items: list[str] = []
    for line in lines:
        if line.startswith(" ") and items:
            items[-1] += " " + line.strip()
        else:
            items.append(line.strip())
    made = []
    for item in items:
        name, colon, text = item.partition(": ")
        named = colon and re.fullmatch(r"[\w*]+(?: \(.*\))?", name)
        made.append(
            element("li", element("code", words(name)) + words(" ") + _inline(text) if named else _inline(item))
        )
    return element("h4", words(TITLES.get(section, section))) + element("ul", *made, class_="arguments")


def _inline(text: str) -> str:
    """Return a paragraph with what stands between backquotes as code."""
    made, end = "", 0
    for found in re.finditer(r"(?::[a-z:]+:)?(`{1,2})~?([^`]+)\1", text):
        made += words(text[end : found.start()]) + element("code", words(found[2]))
        end = found.end()
    return made + words(text[end:])
