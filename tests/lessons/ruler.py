"""Measures in a real browser how wide pages are."""

import html
import json
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
RULER = """<!doctype html><meta charset="utf-8"><title>ruler</title><pre id="told"></pre><script>
const told = {}, pages = PAGES, widths = [360, 390, 1280];
let left = pages.length * widths.length;
for (const page of pages) for (const width of widths) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  frame.onload = () => {
    const inner = frame.contentDocument;
    for (const fold of inner.querySelectorAll("details")) fold.open = true;
    told[`${page} ${width}`] = inner.documentElement.scrollWidth;
    if (--left === 0) document.getElementById("told").textContent = `told ${JSON.stringify(told)} end`;
  };
  frame.src = page;
  document.body.append(frame);
}
</script>"""


def widths(folder: Path, profile: Path) -> dict[str, int]:
    """Return how wide a browser makes each page, by its name and the width of the window."""
    assert BROWSER is not None
    names = json.dumps(sorted(path.name for path in folder.glob("*.html")))

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/ruler":
                return super().do_GET()
            content = RULER.replace("PAGES", names).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    quiet = ("disable-gpu", "disable-quic", "no-first-run", "disable-background-networking", "disable-sync")
    options = [*(f"--{o}" for o in quiet), "--disable-component-update", f"--user-data-dir={profile}"]
    try:
        done = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", *options, "--virtual-time-budget=60000", "--dump-dom",
             f"http://127.0.0.1:{server.server_port}/ruler"],
            capture_output=True, text=True, check=True, timeout=240,
        )  # fmt: skip
    finally:
        server.shutdown()
        server.server_close()
    found = re.search(r"told (\{.*?\}) end", html.unescape(done.stdout))
    assert found, done.stdout[:2000]
    return dict(json.loads(found[1]))


def require_fitting(folder: Path, profile: Path) -> None:
    """Require that no page is wider than the window, with all that is folded opened."""
    found = widths(folder, profile)
    assert len(found) == 3 * len(list(folder.glob("*.html")))
    assert {name: wide for name, wide in found.items() if wide > int(name.split()[-1])} == {}
