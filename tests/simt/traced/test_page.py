"""The page of a trace: valid and complete HTML, the numbers beside their lines, nothing from elsewhere, all escaped."""

import html
import html.parser
import json
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from numba import cuda, float32
from simt.traced import kernels

from nanoeuler import simt
from nanoeuler.errors import UserError
from nanoeuler.simt.traced.page import document, notebook, page, save_page, summary_of
from nanoeuler.simt.traced.page.html import VOID, element, words
from nanoeuler.simt.traced.page.prose import prose
from nanoeuler.simt.traced.page.source import coloured, percent
from nanoeuler.simt.traced.page.thumbnail import png, thumbnail
from nanoeuler.simt.traced.part import Part, trace_part

#: What the HTML standard and SVG let stand without an end tag, or close themselves in SVG's way.
ELSEWHERE = re.compile(r"(?:https?:|ftp:|^//|file:)", re.I)


class Reader(html.parser.HTMLParser):
    """Takes a page apart: elements must be closed in order, an attribute be there once, and no script in one."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.outside: list[tuple[str, str]] = []
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), (tag, names)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "action", "data", "poster", "srcset", "xlink:href", "formaction"):
                target = value or ""
                self.links += [target[1:]] if target.startswith("#") else []
                self.outside += [] if target.startswith(("#", "data:")) else [(tag, target)]
            assert not name.startswith("on"), f"a handler in the markup: {tag} {name}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside == "style":
            assert not re.search(r"@import|url\((?!#|data:)", data), "a style from elsewhere"
        if inside not in ("style", "script"):
            self.texts.append(data)


def read(text: str) -> Reader:
    """Return a page taken apart, after looking at all that must be right of any."""
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert text.startswith("<!DOCTYPE html>")
    assert len(reader.ids) == len(set(reader.ids))
    assert set(reader.links) <= set(reader.ids)
    assert reader.outside == []
    for tag in ("html", "head", "title", "body", "main", "h1"):
        assert reader.tags.count(tag) == 1 + (tag == "title") * reader.tags.count("svg") + _titles(reader, tag)
    assert '<html lang="en">' in text
    return reader


def _titles(reader: Reader, tag: str) -> int:
    """Return how many titles are tooltips of pictures."""
    return reader.tags.count("title") - 1 - reader.tags.count("svg") if tag == "title" else 0


def rows_of(text: str) -> dict[int, str]:
    """Return the rows of the listing of the first launch's kernel by line."""
    return {
        int(n): row for row, n in re.findall(r'(<tr><th scope="row" class="at" id="launch-1-line-(\d+)".*?</tr>)', text)
    }


def traced_copy(n: int = 40) -> simt.Trace:
    return simt.trace(kernels.copy, 2, 32, (np.zeros(n, np.float32), np.arange(n, dtype=np.float32)))


def line_of(trace: simt.Trace, text: str) -> int:
    return next(n for n in range(trace.first_line, trace.last_line + 1) if text in trace.source_line(n))


# The page


def test_a_page_has_the_source_with_its_numbers() -> None:
    trace = traced_copy()
    text = page(trace, title="Copy")
    read(text)
    assert "<title>Copy</title>" in text
    assert "<p>Copy, with a guard.</p>" in text
    rows = rows_of(text)
    assert list(rows) == list(range(trace.first_line, trace.last_line + 1))
    guard, copied = rows[line_of(trace, "if i <")], rows[line_of(trace, "out[i] = ")]
    assert 'data-label="times">2<' in guard.replace(' style="--share:1.000"', "")
    assert re.search(r'data-label="lanes"[^>]*>32<', guard)
    assert "sectors" not in guard
    assert re.search(r'data-label="lanes"[^>]*>20<', copied)  # 32 and 8
    assert re.search(r'data-label="sectors"[^>]*>2.5<', copied)  # 4 and 1 sectors
    assert re.search(r'data-label="used"[^>]*>100 %<', copied)
    assert "<code>        out[i] = x[i]</code>" in copied


@pytest.mark.parametrize("name", ["ways", "exchanged", "sliced", "nothing", "scaled_by_table", "leaving"])
def test_pages_of_all_kinds_of_kernels(name: str) -> None:
    x = {"sliced": np.ones((8, 3), np.float32)}.get(name, np.arange(32, dtype=np.float32))
    out = {"sliced": np.zeros((8, 3), np.float32), "leaving": np.zeros((4, 5), np.float32)}.get(
        name, np.zeros(33, np.float32)
    )
    args = (x,) if name == "nothing" else (out, x)
    threads = {"sliced": 8, "leaving": 4}.get(name, 32)
    launch = trace_part(getattr(kernels, name), 1, threads, args, Part())
    text = page(launch, title=name, card="T4")
    read(text)
    assert "Roofline" in text
    assert len(text) < 2_000_000


def test_odd_launches() -> None:
    """One thread, 33, three axes, several blocks, a single warp, some lines only, a 0-dimensional array."""
    for grid, block, how in (
        (1, 1, {}), (3, 33, {}), ((1, 2, 2), (3, 2, 4), {}), (2, 64, {"warps": 1}), (1, 32, {"lines": 1}),
    ):  # fmt: skip
        trace = simt.trace(kernels.copy, grid, block, (np.zeros(100, np.float32), np.ones(100, np.float32)), **how)
        read(page(trace, title="odd"))
    read(page(simt.trace(whole, 1, 1, (np.array(0, np.float32),)), title="a number"))


@cuda.jit
def whole(x):
    """Write an array without axes."""
    x[()] = float32(2)


def test_functions_that_are_called_have_listings_too() -> None:
    out, x = np.zeros(33, np.float32), np.arange(32, dtype=np.float32)
    text = page(simt.trace(kernels.ways, 1, 32, (out, x)), title="ways")
    assert "<code>clipped</code> called, kernels.py, line " in text
    assert text.count('class="source"') == 2


def test_faults_come_before_everything_else() -> None:
    trace = simt.trace(kernels.unordered, 1, 64, (np.zeros(64, np.float32),))
    text = page(trace, title="race")
    read(text)
    assert text.index('role="alert"') < text.index("A race: the barrier") < text.index('class="tiles"')
    assert "race in kernel unordered" in text
    assert "put cuda.syncthreads() between" in text


def test_of_several_launches_the_faulty_ones_are_named_at_the_top() -> None:
    trace = simt.trace(kernels.unordered, 1, 64, (np.zeros(64, np.float32),))
    text = page([traced_copy(), trace], title="race")
    read(text)
    named = '<a href="#launch-2"><code>unordered</code><strong class="warning"> ▲ 1 fault</strong></a>'
    assert text.index(named) < text.index("<main>")


def test_a_deadlock_has_a_page() -> None:
    launch = trace_part(kernels.parted, 1, 8, (np.zeros(8, np.float32),), Part())
    text = page(launch, title="parted")
    read(text)
    assert "barrier divergence" in text


def test_several_launches_in_one_page() -> None:
    text = page([traced_copy(), traced_copy(50)], title="two", about="Copy twice.\n\nArgs:\n    out: where to.")
    reader = read(text)
    assert reader.tags.count("article") == 2
    assert '<a href="#launch-2">' in text
    assert "<p>Copy twice.</p>" in text
    assert "<li><code>out</code> where to.</li>" in text


def test_pictures_and_the_stepper_are_in_the_page() -> None:
    a = np.arange(64, dtype=np.float32).reshape(8, 8)
    launch = trace_part(kernels.product, (2, 2), (4, 4), (np.zeros((8, 8), np.float32), a, a), Part())
    text = page(launch, title="product")
    read(text)
    for title in ("Source, line by line", "Step by step", "Arrays", "A warp in memory", "In time"):
        assert f"<h3>{title}</h3>" in text
    assert text.count("<svg") > 8
    assert "nanoeuler-stepper" in text
    assert "What is shown is block (0, 0, 0)." in text


def test_a_trace_with_variables_can_be_stepped_through() -> None:
    args = np.zeros(4, np.float32), np.ones(4, np.float32)
    assert "nanoeuler-stepper" in page(simt.trace(kernels.copy, 1, 32, args, variables=True), title="copy")
    without = page(simt.trace(kernels.copy, 1, 32, args), title="copy")
    assert "nanoeuler-stepper" not in without
    assert "Not here: the launch is too long for a page" in without


def test_steppers_that_are_too_long_together_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    args = np.zeros(4, np.float32), np.ones(4, np.float32)
    trace = simt.trace(kernels.copy, 1, 32, args, variables=True)
    room = len(document._stepper(trace, 10**9))
    monkeypatch.setattr(document, "STEPS", 2 * room)
    text = page([trace, trace, trace], title="copy")
    read(text)
    assert text.count('class="nanoeuler-stepper"') == 2
    assert text.count("Not here: the launch") == 1


def test_everything_of_others_is_escaped(tmp_path: Path) -> None:
    """Names, comments, docstrings and texts of a kernel, in a file with such a name, and the title."""
    folder = tmp_path / "<b>&"
    folder.mkdir()
    script = folder / "<i>&.py"
    script.write_text(
        'from numba import cuda\n\n\n@cuda.jit\ndef kernel(out):\n    """</script><script>alert(1)</script> & <b>"""\n'
        "    i = cuda.grid(1)  # <!-- </style> \x1b[31m\n    out[i] = 1 < 2 and i > 0\n"
    )
    scope: dict = {"__name__": "others"}
    exec(compile(script.read_text(), str(script), "exec"), scope)
    launch = trace_part(scope["kernel"], 1, 32, (np.zeros(32, np.float32),), Part())
    text = page(launch, title="</title><script>alert(1)</script>", about="`<b>` and <i>")
    reader = read(text)
    assert "alert" not in reader.tags
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "</script><script>alert(1)</script> & <b>" in "".join(reader.texts)
    assert "i" not in reader.tags
    assert str(tmp_path) not in text


def test_the_same_trace_gives_the_same_page() -> None:
    def made() -> str:
        a = np.arange(64, dtype=np.float32).reshape(8, 8)
        launch = trace_part(kernels.product, (2, 2), (4, 4), (np.zeros((8, 8), np.float32), a, a), Part())
        return page(launch, title="product", card="T4")

    assert made() == made()


def test_a_page_stays_small_and_says_what_is_left_out() -> None:
    n = 1 << 12
    x = np.ones((64, 64), np.float32)
    trace = simt.trace(many, n // 256, 256, tuple(x.copy() for _ in range(8)))
    text = page(trace, title="many")
    read(text)
    assert len(text) < 5_000_000
    assert [a for a in "abcdefgh" if f"<summary>{a}: who touches what</summary>" not in text] == []
    text = page([trace] * 4, title="many")
    read(text)
    assert len(text) < 5_000_000
    assert "These pictures are too large for this page:" in text
    assert '<li>h: who touches what: <code>trace.grid("h")</code></li>' in text
    assert "--kernel many, where a script is traced" in text


def test_lines_worth_a_look_have_their_pictures_before_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out has a name that no heading of the page has, and how to see it stands behind it."""
    out, x = np.zeros(32, np.float32), np.arange(160, dtype=np.float32)
    trace = simt.trace(kernels.strided_through_tile, 1, 32, (out, x))
    far, store = line_of(trace, "= x["), line_of(trace, "s[i * 8] = ")
    monkeypatch.setattr(document, "ROOM", 0)
    monkeypatch.setattr(document, "STEPS", 0)
    text = page(trace, title="strided")
    read(text)
    advice = text[text.index("<h4>Worth a look") : text.index("<h3>Source, line by line")]
    assert {f"launch-1-line-{far}", f"launch-1-line-{store}"} <= set(re.findall('href="#([^"]*)"', advice))
    shown = re.findall(r'<details class="figure"[^>]*><summary>((?:sectors|banks)[^<]*)</summary>', text)
    assert [name.split(":")[0] for name in shown] == [
        *(f"sectors, line {far}", f"sectors, line {store + 2}", f"banks, line {far}", f"banks, line {store + 2}")
    ]
    left_out = text[text.index("These pictures are too large") :]
    assert '<li>animation of s: <code>trace.animation("s")</code></li>' in left_out
    assert '<li>out: who touches what: <code>trace.grid("out")</code></li>' in left_out
    assert "--kernel" not in left_out
    monkeypatch.undo()
    text = page(trace, title="strided")
    assert "too large" not in text
    assert text.count("<summary>animation of s</summary>") == 1


def test_what_cannot_be_drawn_at_all_says_why() -> None:
    x = np.zeros((100, 100), np.float32)
    text = page(simt.trace(filled, 10, 1000, (x,)), title="filled")
    read(text)
    assert "<code>trace.grid(&quot;x&quot;)" not in text
    assert re.search(r'<code>trace.grid\("x"\)</code> – x has 10,000 elements, and a picture shows 4,096', text)


@cuda.jit
def filled(x):
    """Touch more elements than a picture shows."""
    i = cuda.grid(1)
    x[i // 100, i % 100] = 1


def test_without_floating_point_there_is_no_roofline() -> None:
    counts, x = np.zeros(4, np.int64), np.arange(32)
    text = page(simt.trace(kernels.histogram, 1, 32, (counts, x)), title="histogram", card="T4")
    assert "T4: no roofline, for there are no floating-point operations." in text
    assert "The roofline of T4" not in text


def test_what_the_columns_mean_stands_under_the_source() -> None:
    text = page([traced_copy(), traced_copy(50)], title="two")
    assert text.count("<summary>What the numbers mean</summary>") == 2
    assert text.index('class="source"') < text.index("What the numbers mean") < text.index("<h3>Step by step</h3>")


@cuda.jit
def many(a, b, c, d, e, f, g, h):
    """Touch eight arrays."""
    i = cuda.grid(1)
    row, column = i // 64, i % 64
    a[row, column] = b[row, column] + c[row, column] + d[row, column]
    e[row, column] = f[row, column] + g[row, column] + h[row, column]


def test_nothing_may_come_from_elsewhere() -> None:
    text = page(traced_copy(), title="copy")
    assert "default-src &#x27;none&#x27;" in text
    reader = read(text)
    assert reader.tags.count("link") == 0
    without = re.sub(r"http://www\.w3\.org/[\w/]+", "", text)  # the names of SVG's namespaces
    assert not re.search(r"https?://", without)


def test_an_unknown_card() -> None:
    with pytest.raises(UserError, match="no card"):
        page(traced_copy(), title="copy", card="GTX 1")


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "new" / "page.html"
    save_page(target, traced_copy(), title="copy")
    assert target.read_text() == page(traced_copy(), title="copy")
    with pytest.raises(UserError, match="cannot write it"):
        save_page(target / "below.html", traced_copy(), title="copy")
    with pytest.raises(UserError, match="no card"):
        save_page(target, traced_copy(), title="other", card="none")
    assert target.read_text() == page(traced_copy(), title="copy")
    assert [p.name for p in target.parent.iterdir()] == ["page.html"]


def test_a_page_keeps_a_summary() -> None:
    kept = {"a": [1, None, "</script> & é"], "b": 0.25}
    text = page(traced_copy(), title="copy", summary=kept)
    read(text)
    assert summary_of(text) == kept
    assert summary_of(page(traced_copy(), title="copy")) is None
    assert json.loads(json.dumps(kept)) == kept


# In a notebook


def test_a_cell_shows_a_trace_in_a_frame_of_its_own() -> None:
    out, x = np.zeros(32, np.float32), np.arange(160, dtype=np.float32)
    trace = simt.trace(kernels.strided_through_tile, 1, 32, (out, x))
    shown = notebook(trace)
    assert re.fullmatch(r'<iframe class="nanoeuler-frame" title="[^"<>]*" style="[^"<>]*" srcdoc="[^"<>]*"></iframe>',
                        shown)  # fmt: skip
    text = html.unescape(shown.partition('srcdoc="')[2])
    text = text.rpartition('"></iframe>')[0]
    reader = read_part(text)
    assert reader.links == []  # they would lead to the notebook
    assert 'class="source"' in text
    assert "Worth a look" in text
    assert f'print(trace), trace.grid("out"), trace.sectors({line_of(trace, "= x[")}), trace.banks(' in text
    assert len(shown) < 60_000


def read_part(text: str) -> Reader:
    """Return a document taken apart that is no page of ours."""
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert reader.outside == []
    assert len(reader.ids) == len(set(reader.ids))
    return reader


def test_a_cell_shows_faults_first_and_escapes_all() -> None:
    trace = simt.trace(kernels.unordered, 1, 64, (np.zeros(64, np.float32),))
    text = html.unescape(notebook(trace))
    assert text.index('role="alert"') < text.index('class="source"')
    text = notebook(simt.trace(kernels.nothing, 1, 1, (np.zeros(1, np.float32),)))
    assert "trace.sectors(" not in text
    assert "trace.grid(" not in text


# Its parts


def test_elements() -> None:
    assert element("p", words('<&> "'), class_="a", title='"<') == '<p class="a" title="&quot;&lt;">&lt;&amp;&gt; "</p>'
    assert element("br") == "<br>"
    assert element("td") == "<td></td>"
    assert element("details", open=True, hidden=False, id=None) == "<details open></details>"
    assert words("a\x00\x1b\u202e") == "a\\x00\\x1b\\u202e"


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        (None, ""),
        ("", ""),
        ("One\n    line, and `two`.", "<p>One line, and <code>two</code>.</p>"),
        ("See :mod:`a.b` and ``c``.\n\nMore.", "<p>See <code>a.b</code> and <code>c</code>.</p><p>More.</p>"),
        ("Formula::\n\n    a = b\n", '<p>Formula:</p><pre class="doc" tabindex="0">a = b</pre>'),
        ("Formula:\n\n    a = b\n\nText", '<p>Formula:</p><pre class="doc" tabindex="0">    a = b</pre><p>Text</p>'),
        ("a    b\nc    d", '<pre class="doc" tabindex="0">a    b\nc    d</pre>'),
        (
            "Do.\n\nArgs:\n    x: what it\n        is.\n    *y: more.\n\nRaises:\n    UserError: never.",
            '<p>Do.</p><h4>Arguments</h4><ul class="arguments"><li><code>x</code> what it is.</li>'
            '<li><code>*y</code> more.</li></ul><h4>Errors</h4><ul class="arguments">'
            "<li><code>UserError</code> never.</li></ul>",
        ),
        ("<b>`<i>`", "<p>&lt;b&gt;<code>&lt;i&gt;</code></p>"),
    ],
)
def test_docstrings(docstring: str | None, expected: str) -> None:
    assert prose(docstring) == expected


def test_colours_of_source(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text('def f(x):\n    """Two\n    lines."""\n    return x + 1  # "no" < text\n\nif (\n')
    lines = coloured(str(path), range(1, 5))
    assert lines[0] == '<span class="k">def</span> f(x):'
    assert lines[1] == '    <span class="s">"""Two</span>'
    assert lines[2] == '<span class="s">    lines."""</span>'
    assert lines[3].endswith('<span class="m">1</span>  <span class="c"># "no" &lt; text</span>')
    assert coloured(str(path), range(6, 7)) == ["if ("]  # no Python by itself
    assert coloured(str(tmp_path / "missing.py"), range(1, 3)) == ["", ""]


def test_shares() -> None:
    assert [percent(s) for s in (0, 0.125, 0.5, 0.99999, 1, 1.5)] == [
        "0 %",
        "12.5 %",
        "50 %",
        "99.9 %",
        "100 %",
        "150 %",
    ]


def test_thumbnails() -> None:
    image, shown = thumbnail(traced_copy(40))
    assert image.startswith("data:image/png;base64,")
    assert shown == "threads over out"
    assert thumbnail(simt.trace(kernels.nothing, 1, 1, (np.zeros(1, np.float32),))) == ("", "")
    assert thumbnail(traced_copy(3000))[1] == "threads over out"


def test_a_png_is_one() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    data = png(pixels)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (3, 2)
    at = data.index(b"IDAT")
    length = struct.unpack(">I", data[at - 4 : at])[0]
    raw = zlib.decompress(data[at + 4 : at + 4 + length])
    assert raw == b"\0" + bytes(range(12)) + b"\0" + bytes(range(12, 24))
    assert struct.unpack(">I", data[at + 4 + length : at + 8 + length])[0] == zlib.crc32(data[at : at + 4 + length])
