"""Data sets of the hub, read by the genuine libraries from a stand-in on this machine.

The libraries take seconds to import and read their environment at that moment, so each test is one process and looks
at much.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from corpus.hub_server import FINEWEB_EDU, Hub, write_fineweb_edu

pytest.importorskip("datasets", reason="needs the extra 'data'")
pytestmark = pytest.mark.slow  # imports datasets, in a process of its own

START = """
import json, sys
from nanoeuler.corpus import documents
from nanoeuler.corpus.filters import parse_condition
from nanoeuler.corpus.sources import Options, open_source
from nanoeuler.errors import UserError
documents.BATCH_DOCUMENTS = 7
def everything(source, state=None):
    return [text for batch in source.read(state) for text in batch.documents]
def failure(name, options=None):
    try:
        everything(open_source(name, options))
    except UserError as error:
        return str(error)
"""


def run(hub: Hub, code: str) -> Any:
    """Return what the code prints as JSON; the process must end well and silent."""
    done = hub.run(START + code)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_fineweb_edu(hub: Hub) -> None:
    rows = write_fineweb_edu(hub.folder)
    commit = hub.commit(FINEWEB_EDU)
    got = run(
        hub,
        """
source = open_source("fineweb-edu")
batches = list(source.read())
states = json.loads(json.dumps([batch.state for batch in batches]))
rest = [everything(source, state) for state in states]
filtered = open_source("fineweb-edu", Options(conditions=(parse_condition("int_score >= 4"),), min_characters=100))
sieved = list(filtered.read())
print(json.dumps({
    "documents": [batch.documents for batch in batches], "rest": rest, "description": source.description,
    "progress": source.progress(),
    "sieved": sum((batch.documents for batch in sieved), []),
    "skipped": {reason: sum(b.skipped[reason] for b in sieved) for b in sieved for reason in b.skipped},
    "dump": everything(open_source("HuggingFaceFW/fineweb-edu")),
}))
""",
    )
    texts = [row["text"] for row in rows]
    assert [text for documents in got["documents"] for text in documents] == texts
    ends = [sum(map(len, got["documents"][: i + 1])) for i in range(len(got["documents"]))]
    assert got["rest"] == [texts[end:] for end in ends]
    assert got["description"] == {
        "kind": "hub",
        "asked_for": [f"{FINEWEB_EDU}:sample-10BT"],
        "dataset": FINEWEB_EDU,
        "config": "sample-10BT",
        "split": "train",
        "revision": commit,
    }
    assert got["progress"] == [120, None]
    good = [row["text"] for row in rows if row["int_score"] >= 4]
    assert got["sieved"] == [text for text in good if len(text) >= 100]
    assert got["skipped"] == {"int_score >= 4": 120 - len(good), "too short": sum(len(text) < 100 for text in good)}
    assert len(got["dump"]) == 1
    resolved = [request for request in hub.requests if "/resolve/" in request and FINEWEB_EDU in request]
    assert resolved
    assert all(f"/resolve/{commit}/" in request for request in resolved)


def write_parquet(path: Path, columns: dict[str, list[Any]], **how: Any) -> int:
    """Write a parquet file and return its size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **how)
    return path.stat().st_size


def test_only_needed_columns_are_transferred(hub: Hub) -> None:
    heavy = [f"{i:08d}" * 1_000_000 for i in range(4)]  # 32 MB
    columns = {"heavy": heavy, "text": [f"page {i}" for i in range(4)], "more": heavy}
    how = {"compression": "none", "use_dictionary": False, "row_group_size": 2}
    size = write_parquet(hub.folder / "some/pages/train.parquet", columns, **how)
    assert run(hub, 'print(json.dumps(everything(open_source("some/pages"))))') == columns["text"]
    assert hub.sent < size / 3


def test_json_lines_of_the_hub(hub: Hub) -> None:
    """Of a format whose columns are not known beforehand, and cannot be chosen in the transfer."""
    folder = hub.folder / "some/lines"
    folder.mkdir(parents=True)
    rows = [{"id": i, "text": f"line {i}" if i != 20 else None, "language": "en" if i % 2 else "de"} for i in range(40)]
    (folder / "train.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    got = run(
        hub,
        """
source = open_source("some/lines", Options(conditions=(parse_condition("language == 'de'"),)))
batches = list(source.read())
print(json.dumps([[b.documents, b.skipped, everything(source, json.loads(json.dumps(b.state)))] for b in batches]))
""",
    )
    texts = [row["text"] for row in rows if row["language"] == "de" and row["text"]]
    assert [text for documents, _, _ in got for text in documents] == texts
    assert [rest for _, _, rest in got] == [texts[7:], texts[14:], []]
    assert sum(skipped.get("no text", 0) for _, skipped, _ in got) == 1


def test_wikitext_lines_become_articles(hub: Hub) -> None:
    """With any batch size, and from any batch on: a heading begins an article, a section's does not."""
    articles = [
        " = Valkyria = \n\n The game . = = \n = = Plot = = \n One .\n = not a heading = \n\n",
        " = Plain = \n\n Two .\n\n",
        " = = = \n\n A title of one sign ?\n\n",
        " = Last = \n\n Three .\n",
    ]
    lines = ["\n", *"".join(articles).splitlines(keepends=True)]
    column = ["" if line == "\n" else line for line in lines]  # as the hub has them
    write_parquet(hub.folder / "Salesforce/wikitext/wikitext-103-raw-v1/train-00000.parquet", {"text": column})
    (hub.folder / "Salesforce/wikitext/README.md").write_text(
        "---\nconfigs:\n- config_name: wikitext-103-raw-v1\n  data_files:\n  - split: train\n"
        "    path: wikitext-103-raw-v1/train-*\n---\n"
    )
    got = run(
        hub,
        """
documents.BATCH_DOCUMENTS = 1
source = open_source("wikitext")
batches = list(source.read())
print(json.dumps([[b.documents, everything(source, json.loads(json.dumps(b.state)))] for b in batches]))
""",
    )
    expected = [articles[0], articles[1] + articles[2], articles[3]]
    assert [documents for documents, _ in got] == [[article] for article in expected]
    assert [rest for _, rest in got] == [expected[1:], expected[2:], []]


def test_passing_trouble_is_survived(hub: Hub) -> None:
    hub.timeout = 1
    texts = [f"page {i} of some" for i in range(40)]
    for name in ("breaks", "stalls", "errs", "busy"):
        write_parquet(hub.folder / name / "pages/train.parquet", {"text": texts}, row_group_size=10)
    hub.misbehave("/breaks/.*parquet", sent=100, times=8)
    hub.misbehave("/stalls/.*parquet", sent=100, stall=True, times=3)
    hub.misbehave("/errs/pages", status=500, times=3)
    hub.misbehave("/busy/pages", status=429, times=3)
    names = ["breaks/pages", "stalls/pages", "errs/pages", "busy/pages"]
    assert run(hub, f"print(json.dumps([everything(open_source(name)) for name in {names}]))") == [texts] * 4
    assert all(trouble.times == 0 for trouble in hub.troubles)


def test_break_while_reading_is_noted(hub: Hub) -> None:
    """The first file is read, then the second cannot be; once it can, reading goes on from the last batch."""
    for i in range(2):
        write_parquet(hub.folder / f"some/pages/train-{i}.parquet", {"text": [f"file {i}, page {j}" for j in range(9)]})
    hub.misbehave("train-1.parquet", status=500, times=8)
    got = run(
        hub,
        """
batches = list(open_source("some/pages").read())
print(json.dumps([sum((b.documents for b in batches), []), sum((b.notes for b in batches), [])]))
""",
    )
    assert got[0] == [f"file {i}, page {j}" for i in range(2) for j in range(9)]
    assert [note for note in got[1] if "trying again in 1 s" in note and "status 500" in note]


def test_errors(hub: Hub) -> None:
    write_fineweb_edu(hub.folder, files=1)
    page = {"text": ["a page"]}
    for name in ("private", "gated", "away", "damaged", "script", "test_only", "odd", "lost", "vanished", "expired"):
        write_parquet(hub.folder / "owner" / name / "train.parquet", page)
    (hub.folder / "owner/damaged/train.parquet").write_bytes(b"PAR1 and no more PAR1")
    (hub.folder / "owner/script/script.py").write_text("")
    (hub.folder / "owner/test_only/train.parquet").rename(hub.folder / "owner/test_only/test.parquet")
    (hub.folder / "owner/odd/train.parquet").rename(hub.folder / "owner/odd/train.xyz")
    hub.misbehave("/owner/private", status=401)
    hub.misbehave("/owner/gated", status=403, headers={"X-Error-Code": "GatedRepo"})
    hub.misbehave("owner/vanished/.*parquet", status=404)  # without the hub's own code of what is not found
    hub.misbehave("owner/expired/.*parquet", status=401)
    hub.misbehave("owner/away/resolve", status=500)
    hub.misbehave("owner/lost/.*parquet", status=404, headers={"X-Error-Code": "EntryNotFound"})
    got = run(
        hub,
        """
four = parse_condition("int_scores >= 4")
print(json.dumps({
    "unknown": failure("HuggingFaceFW/fineweb-eduu"), "configuration": failure("fineweb-edu:sample-10B"),
    "column": failure("fineweb-edu", Options(text_column="txt")),
    "condition": failure("fineweb-edu", Options(conditions=(four,))),
    "type": failure("fineweb-edu", Options(conditions=(parse_condition("score == 'high'"),))),
    "revision": failure("fineweb-edu", Options(revision="no-such-branch")),
    "numbers": failure("fineweb-edu", Options(text_column="score")),
    "address": failure("https://huggingface.co/datasets/HuggingFaceFW/fineweb-edu/tree/main"),
    **{name: failure("owner/" + name)
       for name in "private gated away damaged script test_only odd lost vanished expired".split()},
}))
""",
    )
    expected = {
        "unknown": "HuggingFaceFW/fineweb-eduu: the hub knows no such data set (404) (did you mean 'HuggingFaceFW/fine",
        "configuration": "no configuration 'sample-10B' (did you mean 'sample-10BT'?); there are default, sample-10BT",
        "column": "fineweb-edu:sample-10BT: no column 'txt' (did you mean 'text'?); columns: text, id, dump, url",
        "condition": "no column 'int_scores', which 'int_scores >= 4' asks for (did you mean 'int_score'?)",
        "type": "row 1: column 'score' holds a number, 2.5, and 'score == 'high'' compares it with a string",
        "revision": "HuggingFaceFW/fineweb-edu: the hub knows no revision 'no-such-branch' of it",
        "private": "owner/private: the hub knows no such data set (401); if it is a private one, put a token",
        "gated": "owner/gated: the hub does not let us have it (403): accept the conditions on its page",
        "away": "owner/away: the hub does not answer as it should: status 500 (tried 4 times)",
        "damaged": "owner/damaged: a file of it is damaged, or not what its name says",
        "script": "owner/script: a program of its own loads this data set",
        "test_only": "owner/test_only: no split 'train' in it; there are test",
        "odd": "owner/odd: no files in it that datasets can read",
        "lost": "owner/lost: a file of it is not there any more (404)",
        "vanished": "owner/vanished: a file of it is not there any more (404)",
        "expired": "owner/expired: the hub does not let us have it (401)",
        "numbers": "fineweb-edu:sample-10BT: column 'score' holds no strings; columns of strings: text, id, dump",
        "address": "is an address; a data set of the hub is given as HuggingFaceFW/fineweb-edu",
    }
    assert [f"{name}: {got[name]}" for name, part in expected.items() if part not in (got[name] or "")] == []


def test_unreachable_hub(hub: Hub) -> None:
    hub.close()
    got = run(hub, 'print(json.dumps(failure("fineweb-edu")))')
    assert "HuggingFaceFW/fineweb-edu:sample-10BT: the hub does not answer as it should: " in got
    assert "refused" in got
    assert "the same command goes on from where it was" in got


def test_a_reader_left_in_the_middle_ends_well(hub: Hub) -> None:
    write_fineweb_edu(hub.folder)
    got = run(hub, 'batches = open_source("fineweb-edu").read()\nprint(json.dumps(next(batches).documents))')
    assert len(got) == 7
