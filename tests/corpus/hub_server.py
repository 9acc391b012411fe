"""A stand-in for the Hugging Face hub on this machine, which serves a folder of data sets or models and can misbehave.

It answers what the genuine libraries ask when a data set is streamed or a model is fetched: what there is
(``/api/datasets/...``, ``/api/models/...``, ``tree``, ``paths-info``) and the files (``resolve``, with ranges). A data
set or a model is the folder ``owner/name``; its commit is a hash of its files' names, sizes and times. The libraries
read their environment when they are imported, so they run in a process of their own.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

INFO = re.compile(r"/api/(datasets|models)/(?P<dataset>[^/]+/[^/]+)(/revision/(?P<revision>[^/]+))?")
TREE = re.compile(r"/api/datasets/(?P<dataset>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)/?(?P<path>.*)")
PATHS_INFO = re.compile(r"/api/(datasets|models)/(?P<dataset>[^/]+/[^/]+)/paths-info/(?P<revision>[^/]+)")
RESOLVE = re.compile(r"(/datasets)?/(?P<dataset>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")

#: What runs before a test's own code in a process with the libraries: nobody waits as long as they would.
WITHOUT_PAUSES = """
import time
pause = time.sleep
time.sleep = lambda seconds: pause(min(seconds, 0.01))
"""


@dataclass
class Trouble:
    """A way to misbehave, for the first ``times`` requests (None: all) whose path matches ``where``."""

    where: str  # regular expression, found anywhere in it
    status: int | None = None  # answer with this status code
    headers: dict[str, str] = field(default_factory=dict)
    sent: int | None = None  # promise all, send so many bytes and close the connection, or with stall fall silent
    stall: bool = False
    wrong: bool = False  # send as many bytes, but others
    times: int | None = None


class Hub:
    """The server; ``folder`` holds the data sets, ``home`` is where the libraries may keep what they like."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home
        self.kept = home.with_name(f"{home.name}_kept")  # commits that are not the newest any more
        self.timeout = 10  # seconds that the libraries wait for an answer
        self.troubles: list[Trouble] = []
        self.requests: list[str] = []  # "GET /path bytes=0-99"
        self.sent = 0  # bytes of all answers, without their headers
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self) -> str:
        """The address, for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What to add to the environment of a process so that the libraries take this server for the hub."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(self.home),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DOWNLOAD_TIMEOUT": str(self.timeout),
            "HF_HUB_ETAG_TIMEOUT": str(self.timeout),
            "NO_PROXY": "127.0.0.1",
        }

    def run(self, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python code in a process for which this server is the hub, all warnings being errors."""
        command = [sys.executable, "-W", "error", "-c", WITHOUT_PAUSES + code, *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        return subprocess.run(
            command, env=environment | self.environment, capture_output=True, text=True, timeout=120, check=False
        )

    def misbehave(self, where: str, **how: Any) -> None:
        """Misbehave from now on: see :class:`Trouble`."""
        self.troubles.append(Trouble(where, **how))

    def commit(self, dataset: str) -> str:
        """Return the commit of a data set: 40 hexadecimal digits that change when a file does."""
        digest = hashlib.sha1()
        root = self.folder / dataset
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            digest.update(
                f"{path.relative_to(root).as_posix()} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode()
            )
        return digest.hexdigest()

    def keep_commit(self, dataset: str) -> str:
        """Have the commit that a data set is at served as it is now, whatever becomes of its files; return it."""
        commit = self.commit(dataset)
        shutil.copytree(self.folder / dataset, self.kept / commit / dataset, copy_function=shutil.copy2)
        return commit

    def root(self, dataset: str, revision: str | None) -> Path | None:
        """Return the folder of a data set at a revision, or None if there is no such revision."""
        if revision in (None, "main", self.commit(dataset)):
            return self.folder / dataset
        kept = self.kept / revision / dataset
        return kept if kept.is_dir() else None

    def trouble_for(self, path: str) -> Trouble | None:
        """Return the trouble that a request for a path meets, and count it."""
        with self._lock:
            for trouble in self.troubles:
                if re.search(trouble.where, path) and trouble.times != 0:
                    if trouble.times is not None:
                        trouble.times -= 1
                    return trouble
        return None

    def close(self) -> None:
        """Stop."""
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_HEAD(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, body: bytes = b"") -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path} {self.headers.get('Range', '')}".rstrip())
            trouble = hub.trouble_for(path)
            if trouble is not None and trouble.status is not None:
                self._send(trouble.status, b'{"error": "as the test wants it"}', trouble.headers)
            elif match := INFO.fullmatch(path):
                self._info(match)
            elif match := TREE.fullmatch(path):
                self._tree(match)
            elif match := PATHS_INFO.fullmatch(path):
                self._paths_info(match, body)
            elif match := RESOLVE.fullmatch(path):
                self._resolve(match, trouble)
            else:
                self._not_found("EntryNotFound")

        def _root(self, match: re.Match[str]) -> Path | None:
            """Return the folder of the data set that a request is about, or None having answered that there is none."""
            if not (hub.folder / match["dataset"]).is_dir():
                return self._not_found("RepoNotFound")
            return hub.root(match["dataset"], match["revision"]) or self._not_found("RevisionNotFound")

        def _commit(self, match: re.Match[str]) -> str:
            """Return the commit that a request is about."""
            revision = match["revision"]
            return hub.commit(match["dataset"]) if revision in (None, "main") else revision

        def _info(self, match: re.Match[str]) -> None:
            if root := self._root(match):
                files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
                siblings = [{"rfilename": file} for file in files]
                facts = {"id": match["dataset"], "sha": self._commit(match), "siblings": siblings}
                self._send_json(facts | {"private": False, "gated": False, "disabled": False, "tags": []})

        def _tree(self, match: re.Match[str]) -> None:
            if root := self._root(match):
                folder = root / match["path"]
                if not folder.is_dir():
                    return self._not_found("EntryNotFound")
                recursive = parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() == "true"
                self._send_json([_entry(path, root) for path in sorted(folder.glob("**/*" if recursive else "*"))])

        def _paths_info(self, match: re.Match[str], body: bytes) -> None:
            if root := self._root(match):
                is_json = "json" in self.headers.get("Content-Type", "")
                paths = json.loads(body)["paths"] if is_json else parse_qs(body.decode())["paths"]
                self._send_json([_entry(root / path, root) for path in paths if (root / path).exists()])

        def _resolve(self, match: re.Match[str], trouble: Trouble | None) -> None:
            root = self._root(match)
            if root is None:
                return
            if not (root / match["path"]).is_file():
                return self._not_found("EntryNotFound")
            content = (root / match["path"]).read_bytes()
            commit = self._commit(match)
            digest = hashlib.sha1((commit + match["path"]).encode()).hexdigest()
            if match["path"].endswith(".safetensors"):  # the hub names large files by their SHA-256
                digest = hashlib.sha256(content).hexdigest()
            if trouble is not None and trouble.wrong:
                content = bytes(byte ^ 1 for byte in content)
            headers = {"ETag": f'"{digest}"', "X-Repo-Commit": commit}
            status, wanted = 200, re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if wanted and self.command == "GET":
                first, last = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
                headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
                status, content = 206, content[first : last + 1]
            self._send(status, content, headers | {"Accept-Ranges": "bytes"}, trouble)

        def _not_found(self, code: str) -> None:
            self._send(404, b'{"error": "not found"}', {"X-Error-Code": code})

        def _send_json(self, value: Any) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send(self, status: int, content: bytes, headers: dict[str, str], trouble: Trouble | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            content = content if trouble is None else content[: trouble.sent]
            with suppress(ConnectionError):  # a client that has had enough
                self.wfile.write(content)
                self.wfile.flush()
            hub.sent += len(content)
            if trouble is not None:
                self.close_connection = True
                if trouble.stall:
                    hub.over.wait(30)

    return Handler


def _entry(path: Path, root: Path) -> dict[str, Any]:
    """Return what the hub says of a file or folder."""
    name = path.relative_to(root).as_posix()
    kind, size = ("directory", 0) if path.is_dir() else ("file", path.stat().st_size)
    return {"type": kind, "path": name, "size": size, "oid": hashlib.sha1(name.encode()).hexdigest()}


FINEWEB_EDU = "HuggingFaceFW/fineweb-edu"
FINEWEB_EDU_CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*/*
- config_name: sample-10BT
  data_files:
  - split: train
    path: sample/10BT/*
---
# FineWeb-Edu
"""


def write_fineweb_edu(hub: Path, files: int = 3, rows: int = 40, row_group: int = 10) -> list[dict[str, Any]]:
    """Put a small FineWeb-Edu with its genuine columns and layout into a hub's folder; return the sample's rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    strings = [(name, pa.string()) for name in ("text", "id", "dump", "url", "file_path", "language")]
    numbers = [("language_score", pa.float64()), ("token_count", pa.int64()), ("score", pa.float64())]
    schema = pa.schema([*strings, *numbers, ("int_score", pa.int64())])
    root = hub / FINEWEB_EDU
    all_rows = [_page(number) for number in range(files * rows)]
    for folder in ("sample/10BT", "data/CC-MAIN-2024-10"):
        (root / folder).mkdir(parents=True)
    for i in range(files):
        table = pa.Table.from_pylist(all_rows[i * rows : (i + 1) * rows], schema)
        pq.write_table(table, root / f"sample/10BT/{i:03d}_00000.parquet", row_group_size=row_group)
    pq.write_table(pa.Table.from_pylist([_page(10**6)], schema), root / "data/CC-MAIN-2024-10/000_00000.parquet")
    (root / "README.md").write_text(FINEWEB_EDU_CARD)
    return all_rows


def _page(number: int) -> dict[str, Any]:
    text = f"Page {number}. Photosynthesis turns light into chemical energy 🌱.\n" * (1 + number % 4)
    facts = {"id": f"<urn:uuid:{number}>", "dump": "CC-MAIN-2024-10", "url": f"https://example.org/{number}"}
    language = {"file_path": "s3://commoncrawl/a.warc.gz", "language": "en", "language_score": 0.97}
    return {"text": text, **facts, **language, "token_count": 16, "score": 2.5 + number % 3, "int_score": number % 6}
