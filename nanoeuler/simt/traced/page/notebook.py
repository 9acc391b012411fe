"""What a notebook's cell shows of a trace: what is wrong, the source with its numbers, and what is worth a look."""

import html
import re

from nanoeuler.simt.traced.numbers import Numbers, numbers
from nanoeuler.simt.traced.page.document import document
from nanoeuler.simt.traced.page.html import element, words
from nanoeuler.simt.traced.page.source import listings, shown_path
from nanoeuler.simt.traced.page.summary import advice, faults
from nanoeuler.simt.traced.result import Trace

LINE, AROUND, MOST = 21, 150, 900  # pixels of a line of source, of what is around, and of the frame at most
STYLE = (
    "body{padding:2px 2px 6px;max-width:none;font-size:14px}h2{font-size:17px}h4{margin:12px 0 4px}"
    "p{margin:0 0 8px;max-width:none}.scroll{margin-bottom:8px}"
    ".faults{margin:8px 0;padding:8px 14px}.faults h3{font-size:15px}"
)
#: The notebook's theme where that can be seen, and as much height as it takes.
SCRIPT = """(() => {
  let frame = null;
  try { frame = window.frameElement; } catch (error) { return; }
  if (!frame) return;
  const [body, page] = [frame.ownerDocument.body, frame.ownerDocument.documentElement];
  const theme = () => {
    const jupyter = { true: "light", false: "dark" }[body.dataset.jpThemeLight];
    const code = ["light", "dark"].find((name) => body.classList.contains(`vscode-${name}`));
    const named = jupyter || code || page.getAttribute("theme") || page.dataset.theme;
    if (named === "dark" || named === "light") document.documentElement.dataset.theme = named;
  };
  const height = () => { frame.style.height = `${Math.min(2000, document.documentElement.offsetHeight)}px`; };
  theme();
  new MutationObserver(theme).observe(body, { attributes: true });
  new ResizeObserver(height).observe(document.documentElement);
})();"""


def notebook(trace: Trace) -> str:
    """Return a short summary of a trace as HTML, in a frame of its own, where its styles meet no others."""
    found = numbers(trace)
    launch = trace.launch
    accesses = f"{len(trace.accesses):,} access{'' if len(trace.accesses) == 1 else 'es'}"
    size = f"grid {launch.grid}, block {launch.block}, {accesses}"
    where = f"{shown_path(trace.file)}, line {trace.first_line} · {size}"
    body = [
        element("h2", element("code", words(trace.kernel))),
        element("p", words(where), class_="where"),
        faults(trace),
        _without_links(advice(trace, found, "")),
        listings(trace, found, ""),
        element("p", words("More: "), element("code", words(_calls(trace, found))), class_="note"),
        element("style", STYLE),
        element("script", SCRIPT),
    ]
    title = html.escape(f"Trace of {trace.kernel}", quote=True)
    lines = trace.last_line - trace.first_line + 1 + 4 * len(trace.faults)
    high = min(MOST, AROUND + LINE * lines)
    return (
        f'<iframe class="nanoeuler-frame" title="{title}" style="width:100%;height:{high}px;border:0" '
        f'srcdoc="{html.escape(document(title, body), quote=True)}"></iframe>'
    )


def _without_links(text: str) -> str:
    """Return HTML with its links as plain text: in a frame like this they would lead to the page around it."""
    return re.sub(r'<a href="#[^"]*">(.*?)</a>', r"\1", text)


def _calls(trace: Trace, found: Numbers) -> str:
    """Return what shows more of this trace, ready to be typed."""
    calls = ["print(trace)"]
    array = next(
        (a.name for a in found.arrays if a.scope == "global" and a.elements and len(trace.named(a.name)) == 1), None
    )
    calls += [f'trace.grid("{array}")'] if array is not None else []
    for name, has in (("sectors", lambda n: n.traffic.sectors), ("banks", lambda n: n.banks.wavefronts)):
        line = next((n.line for n in found.lines.values() if n.file == trace.file and has(n)), None)
        calls += [f"trace.{name}({line})"] if line is not None else []
    return ", ".join([*calls, "trace.timeline()", 'trace.save("page.html")'])
