"""HTML as text: elements, and words that are safe to put into a document.

Text comes from anybody's kernel. It goes through :func:`words`; attributes are quoted by :func:`element`.
"""

import html
from typing import Any

from nanoeuler.console import visible

VOID = {"br", "col", "hr", "img", "input", "link", "meta"}  # elements that have no end tag


def words(text: Any) -> str:
    """Return a text as the content of an element; characters that cannot be seen become escapes.

    >>> words("a < b")
    'a &lt; b'
    """
    return html.escape(visible(str(text)), quote=False)


def share_of(share: float | None) -> str | None:
    """Return the style by which a bar fills a ``share`` of its element; None for none."""
    return None if share is None else f"--share:{min(1, max(0, share)):.3f}"


def element(name: str, /, *content: str, **attributes: Any) -> str:
    """Return an element. ``class_`` and ``aria_label`` are written as HTML has them; None and False leave one out.

    ``content`` is HTML already, as ``words`` makes it of a text.

    >>> element("td", words("1 < 2"), class_="number", data_label="lanes")
    '<td class="number" data-label="lanes">1 &lt; 2</td>'
    """
    given = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        given += f" {label}" if value is True else f' {label}="{html.escape(visible(str(value)))}"'
    return f"<{name}{given}>" if name in VOID else f"<{name}{given}>{''.join(content)}</{name}>"
