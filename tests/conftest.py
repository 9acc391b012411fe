"""Makes the folder ``tests`` importable, so that tests in its subfolders share :mod:`oracle`.

With fixtures for several folders: a server on this machine that can misbehave, and a world with nothing at hand.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nanoeuler.download import cache_folder

sys.path.insert(0, str(Path(__file__).parent))

Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Give ``serve(content, status=200, sent=None, stall=False)``, which starts a server and returns its URL.

    The server promises the whole content and sends the first ``sent`` bytes of it; then it closes the connection or,
    with ``stall``, keeps it open and silent.
    """
    servers: list[ThreadingHTTPServer] = []
    over = threading.Event()

    def start(content: bytes, status: int = 200, sent: int | None = None, stall: bool = False) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[:sent])
                self.wfile.flush()
                if stall:
                    over.wait(30)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/input.txt"

    yield start
    over.set()
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def refusing() -> str:
    """Give the URL of a port that nothing listens on."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return f"http://127.0.0.1:{server.server_port}/input.txt"


@pytest.fixture
def empty_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have an empty working directory, an empty cache and home, no NANOEULER_DATA and no proxy; give the cache."""
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    home.mkdir()
    monkeypatch.chdir(here)
    for name in ("HOME", "USERPROFILE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(home))
    for name in ("NANOEULER_DATA", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return cache_folder()
