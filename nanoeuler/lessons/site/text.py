"""Markdown as HTML: headings that can be linked to, formulas as MathML, code in colours, links that fit the site."""

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from nanoeuler.errors import UserError


@dataclass(frozen=True)
class Heading:
    """A heading of a page: 2 for a section, its id, and what it says, as HTML without links."""

    level: int
    id: str
    html: str


class Text:
    """The text of one page, rendered piece by piece.

    ``resolve`` is given where each link and picture leads, and returns where that is on the site. ``headings`` has
    those of the pieces so far.
    """

    def __init__(self, resolve: Callable[[str], str]) -> None:
        self.resolve = resolve
        self.headings: list[Heading] = []
        self._markdown = MarkdownIt("commonmark", {"html": True, "highlight": _fence})
        self._markdown.enable(["table", "strikethrough"])
        self._markdown.validateLink = lambda url: True  # type: ignore[method-assign]  # pictures in addresses, too
        self._markdown.use(dollarmath_plugin, double_inline=True, allow_labels=False, renderer=_formula)
        renderer: Any = self._markdown.renderer
        renderer.rules["math_inline_double"] = _double
        renderer.rules["table_open"] = lambda *_: '<div class="scroll"><table>\n'
        renderer.rules["table_close"] = lambda *_: "</table></div>\n"

    def html(self, source: str) -> str:
        """Return a piece of Markdown as HTML.

        Raises:
            UserError: a formula is none, or a link leads nowhere.
        """
        tokens = self._markdown.parse(source)
        for token in _flat(tokens):
            if token.type == "link_open":
                token.attrSet("href", self.resolve(str(token.attrGet("href"))))
            elif token.type == "image":
                token.attrSet("src", self.resolve(str(token.attrGet("src"))))
        for opening, inline in pairwise(tokens):
            if opening.type == "heading_open":
                opening.attrSet("id", self._heading(int(opening.tag[1]), inline))
        return str(self._markdown.renderer.render(tokens, self._markdown.options, {}))

    def _heading(self, level: int, inline: Token) -> str:
        """Keep a heading, and return its id: its words, and a number if there is another of that name."""
        parts = [token for token in inline.children or [] if not token.type.startswith("link_")]
        said = "".join(token.content for token in parts)
        name = re.sub(r"[^\w\- ]", "", said.lower()).strip().replace(" ", "-") or "section"
        taken = {heading.id for heading in self.headings} | TAKEN
        free = next(each for each in _numbered(name) if each not in taken)
        shown = self._markdown.renderer.render(parts, self._markdown.options, {})
        self.headings.append(Heading(level, free, str(shown)))
        return free


TAKEN = {"content"}  # ids that every page has


def _flat(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.children or [])


def _numbered(name: str) -> Iterator[str]:
    """Yield a name, then the same with numbers, without an end."""
    yield name
    number = 1
    while True:
        yield f"{name}-{number}"
        number += 1


# Formulas -------------------------------------------------------------------------------------------------------------


def formula(latex: str, display: bool) -> str:
    """Return a formula as MathML, which browsers draw by themselves.

    Raises:
        UserError: it is no formula that can be written so.
    """
    from math_core import LatexError, LatexToMathML

    try:
        return str(LatexToMathML(fancy_error=False).convert_with_local_state(latex, displaystyle=display))
    except LatexError as error:
        raise UserError(f"the formula {latex} cannot be shown: {error}") from None


def _formula(latex: str, how: dict[str, Any]) -> str:
    return formula(latex, how["display_mode"])


def _double(tokens: list[Token], at: int, *_: Any) -> str:
    """Return a display formula within a paragraph, where no ``div`` may stand."""
    return f'<span class="math block">{formula(tokens[at].content.strip(), True)}</span>'


# Code -----------------------------------------------------------------------------------------------------------------

BLANK = '<span class="o">...</span>'


def code(source: str, language: str = "python") -> str:
    """Return code in colours; its blanks, ``...``, are marked."""
    try:
        lexer = get_lexer_by_name(language or "text", stripnl=False, ensurenl=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False, ensurenl=False)
    shown = highlight(source.rstrip("\n"), lexer, HtmlFormatter(nowrap=True)).rstrip("\n")
    return f'<pre class="code"><code>{shown.replace(BLANK, BLANK_SHOWN)}</code></pre>\n'


BLANK_SHOWN = '<span class="blank">...</span>'


def _fence(source: str, language: str, attributes: str) -> str:
    return code(source, language)


def plain(text: str) -> str:
    """Return a text as the content of an element.

    >>> plain("a < b")
    'a &lt; b'
    """
    return html.escape(text, quote=False)
