"""What a notebook's cell has put out, as HTML: printed text, pictures, and frames with a page of their own."""

import re
from collections.abc import Iterator
from typing import Any

from nbformat import NotebookNode

from nanoeuler.lessons.site.text import plain
from nanoeuler.simt.traced.page.html import element

ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # of colours on a terminal
COLUMNS = re.compile(r"\S {2,}\S|[─-╿]|^ +\S", re.MULTILINE)
NAME = re.compile(r"\bn[0-9a-f]{10}\b")  # of one of our pictures, under which all its rules and ids stand


class Outputs:
    """The outputs of one page: pictures that are there twice get names of their own."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def html(self, cell: NotebookNode) -> str:
        """Return all outputs of a cell; nothing where it has none."""
        made = "".join(self._each(cell.get("outputs", [])))
        return f'<div class="outputs">\n{made}</div>\n' if made else ""

    def _each(self, outputs: list[NotebookNode]) -> Iterator[str]:
        printed = ""
        for output in outputs:
            if output.output_type == "stream":
                printed += output.text
                continue
            if printed:
                yield _printed(printed)
                printed = ""
            if output.output_type == "error":
                yield _printed("\n".join(output.traceback))
            else:
                yield self._shown(output.data)
        if printed:
            yield _printed(printed)

    def _shown(self, data: Any) -> str:
        if "text/html" in data:
            content = self._renamed(data["text/html"])
            is_frame = content.lstrip().startswith("<iframe")
            return f'<div class="{"frame" if is_frame else "shown"}">{content}</div>\n'
        if "image/svg+xml" in data:
            return f'<div class="shown">{self._renamed(data["image/svg+xml"])}</div>\n'
        if "image/png" in data:
            source, said = f"data:image/png;base64,{data['image/png'].strip()}", data.get("text/plain", "a picture")
            return element("div", element("img", src=source, alt=said), class_="shown") + "\n"
        return _printed(data.get("text/plain", ""))

    def _renamed(self, content: str) -> str:
        """Return a picture under a name that no other on the page has."""
        for name in dict.fromkeys(NAME.findall(content)):
            number = self._seen[name] = self._seen.get(name, 0) + 1
            if number > 1:
                content = content.replace(name, f"{name}-{number}")
        return content


def _printed(text: str) -> str:
    """Return printed text; its lines may be broken where nothing in them stands in columns."""
    shown = ESCAPES.sub("", text).rstrip()
    kind = "printed" if COLUMNS.search(shown) else "printed words"
    return element("pre", element("samp", plain(shown)), class_=kind) + "\n" if shown else ""
