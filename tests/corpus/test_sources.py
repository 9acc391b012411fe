"""Documents from files and names: what is read, what is left out and said, where reading goes on, what is an error."""

import csv
import gzip
import io
import json
import os
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanoeuler.corpus import documents, formats, plays, tinyshakespeare
from nanoeuler.corpus.filters import parse_condition
from nanoeuler.corpus.sources import Options, Source, open_source
from nanoeuler.errors import UserError

KINDS = ["txt", "jsonl", "json", "csv", "parquet"]
COMPRESSED = [("txt", ".gz"), ("jsonl", ".gz"), ("jsonl", ".zst"), ("txt", ".zst"), ("csv", ".gz"), ("json", ".zst")]
TEXTS = [
    "one",
    "two\nlines, and\r\nmore",
    'a "quoted" \\ one',
    "naïve 日本語 🌱",
    "  spaces  ",
    "\ttab",
    "long " * 3000,
]


def write(path: Path, texts: list[Any], **columns: list[Any]) -> Path:
    """Write a file of the kind and compression that its name tells: rows with a column of text and others."""
    kind, compression = formats.kind_of(path) or ("", "")
    table = {"text": texts, **columns}
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    content = b""
    if kind == "txt":
        content = "\n<|endoftext|>\n".join(texts).encode()
    elif kind == "jsonl":
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    elif kind == "json":
        content = json.dumps(rows, indent=1).encode()
    elif kind == "csv":
        lines = io.StringIO(newline="")
        csv.writer(lines).writerows([list(table), *(row.values() for row in rows)])
        content = lines.getvalue().encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="needs the extra 'data'")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(table), path, row_group_size=3)
        return path
    if compression == ".zst":
        content = pytest.importorskip("zstandard", reason="needs the extra 'data'").ZstdCompressor().compress(content)
    path.write_bytes(gzip.compress(content) if compression == ".gz" else content)
    return path


def read(source: Source, state: Any = None) -> list[str]:
    return [text for batch in source.read(state) for text in batch.documents]


def left_out(source: Source) -> tuple[Counter[str], list[str]]:
    batches = list(source.read())
    return sum((batch.skipped for batch in batches), Counter()), [note for batch in batches for note in batch.notes]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have batches of two documents, and blocks of five bytes."""
    monkeypatch.setattr(documents, "BATCH_DOCUMENTS", 2)
    monkeypatch.setattr(formats, "BLOCK", 5)
    monkeypatch.setattr(formats, "PARQUET_ROWS", 2)


@pytest.mark.parametrize(("kind", "compression"), [*((kind, "") for kind in KINDS), *COMPRESSED])
@pytest.mark.usefixtures("small_batches")
def test_every_kind_gives_its_documents_from_any_batch_on(tmp_path: Path, kind: str, compression: str) -> None:
    """Three files, so that batches lie across their borders; each state goes through JSON, to another source."""
    paths = [write(tmp_path / f"{i}.{kind}{compression}", TEXTS[i:] + TEXTS[:i]) for i in range(3)]
    expected = [text for i in range(3) for text in TEXTS[i:] + TEXTS[:i]]
    batches = list(open_source(paths).read())
    assert [text for batch in batches for text in batch.documents] == expected
    assert [batch.rows for batch in batches] == [2] * 10 + [1]
    for i, batch in enumerate(batches):
        assert read(open_source(paths), json.loads(json.dumps(batch.state))) == expected[2 * (i + 1) :]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    texts=st.lists(
        st.text(st.characters(exclude_categories=["Cs"])).filter(lambda t: not t.isspace() and t), min_size=1
    ),
    kind=st.sampled_from(["jsonl", "json", "csv", "parquet"]),
)
def test_any_text_arrives_as_it_is(tmp_path: Path, texts: list[str], kind: str) -> None:
    assert read(open_source(write(tmp_path / f"a.{kind}", texts))) == texts


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(
    text=st.text("ab \n", min_size=1, max_size=40), block=st.integers(1, 7), separator=st.sampled_from(["\n\n", "\n"])
)
def test_white_space_that_separates_stays_at_the_end_of_its_document(
    tmp_path: Path, text: str, block: int, separator: str
) -> None:
    (tmp_path / "a.txt").write_bytes(text.encode())
    source = open_source(tmp_path / "a.txt", Options(separator=separator))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "BLOCK", block)
        got = read(source)
    pieces = [piece + separator for piece in text.split(separator)[:-1]] + [text.split(separator)[-1]]
    assert got == [piece for piece in pieces if piece and not piece.isspace()]


@pytest.mark.parametrize(
    ("content", "separator", "expected"),
    [
        ("no separator\r\nat all\n", None, ["no separator\r\nat all\n"]),
        ("a\n<|endoftext|>\nb\n", None, ["a", "b\n"]),
        ("a\r\n<|endoftext|>\r\n\r\nb", None, ["a", "b"]),
        ("a<|endoftext|>b<|endoftext|>", None, ["a", "b"]),
        ("<|endoftext|>a", None, ["a"]),
        ("a <|endoftext|> b", None, ["a ", " b"]),
        ("a<|endoftext|>b\n===\nc", "===", ["a<|endoftext|>b", "c"]),
    ],
)
def test_marks_between_the_documents_of_a_text(
    tmp_path: Path, content: str, separator: str | None, expected: list[str]
) -> None:
    (tmp_path / "a.txt").write_bytes(content.encode())
    assert read(open_source(tmp_path / "a.txt", Options(separator=separator))) == expected


def test_tinyshakespeare_is_cut_as_llmc_cuts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "First Citizen:\nBefore we proceed.\n\nAll:\nSpeak, speak.\n\nLast:\nEnd.\n"
    monkeypatch.setattr(tinyshakespeare, "load", lambda: (text, "from a test"))
    source = open_source("tinyshakespeare")
    assert read(source) == ["First Citizen:\nBefore we proceed.\n\n", "All:\nSpeak, speak.\n\n", "Last:\nEnd.\n"]
    assert source.description["sha256"] == tinyshakespeare.SHA256


def test_plays_are_built_in() -> None:
    assert "".join(read(open_source("plays"))) == plays.generate()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('["a", "b"]', ["a", "b"]),
        ('[{"text": "a", "n": 1}, {"text": "b"}]', ["a", "b"]),
        ('{"version": 1, "data": [{"text": "a"}, {"text": "b"}]}', ["a", "b"]),
        ('{"text": "a"}\n{"text": "b"}\n', ["a", "b"]),  # JSON lines under another name
        ('\ufeff[{"text": "a"}]', ["a"]),
        ('[{"prompt": "a", "n": 1}]', ["a"]),  # the only column of strings
        ("[]", []),
        ("{}", []),
        ('{"text": "a"}', ["a"]),  # a file for each document
        ('{"text": "a"}\n', ["a"]),  # JSON lines, of which there is one
        ('{\n"text": "a",\n"tags": ["b", "c"]\n}', ["a"]),  # whose tags are no documents
        ('{"text": ["a", "b"]}', ["a", "b"]),
        ('{"data": [{"text": "a"}], "meta": {}}', ["a"]),
    ],
)
def test_shapes_of_json(tmp_path: Path, content: str, expected: list[str]) -> None:
    (tmp_path / "a.json").write_text(content, encoding="utf-8")
    assert read(open_source(tmp_path / "a.json")) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": [1], "b": [2]}', "an object with 2 lists in it, and without a string 'text'"),
        ('{"a": 1}', "no column 'text'; columns: a"),
        ("17", "neither a list of objects or strings nor an object, but a number"),
        ('[{"text": "a"},\n {"text": }]', "a.json: not valid JSON: line 2, column 11"),
        ("", "not valid JSON: line 1, column 1"),
        ("[" * 100_000, "not valid JSON"),
        (b'["\xff"]', "byte 2 of the file is 0xff"),
    ],
)
def test_json_that_is_no_list(tmp_path: Path, content: str | bytes, message: str) -> None:
    (tmp_path / "a.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as error:
        open_source(tmp_path / "a.json")
    assert message in str(error.value)


def test_lines_that_cannot_be_used_are_counted_and_the_first_of_each_kind_told(tmp_path: Path) -> None:
    lines = [
        b'{"text": "good", "n": 5}',
        b'{"text": "broken',
        b'{"text": "broken too"',
        b'{"text": "\xff"}',
        b'{"text": "half \\ud83c a pair"}',
        b'{"text": ""}',
        b'{"text": " \\n "}',
        b'{"text": null}',
        b'{"n": 1}',
        b'{"text": 7}',
        b"[1]",
        b"",
        b'{"text": "sh"}',
        b'{"text": "' + b"long" * 9 + b'"}',
        b'"a string alone"',
        "[" * 100_000 + "1",
        b'{"text": "good too"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    source = open_source(tmp_path / "a.jsonl", Options(min_characters=3, max_characters=20))
    skipped, notes = left_out(source)
    assert read(source) == ["good", "a string alone", "good too"]
    assert skipped == {
        "not valid JSON": 3,
        "not valid UTF-8": 2,
        "empty": 2,
        "no text": 2,
        "text is not a string": 1,
        "not a JSON object": 1,
        "too short": 1,
        "too long": 1,
    }
    assert len(notes) == len(skipped) - 2  # lengths were asked for
    name = (tmp_path / "a.jsonl").as_posix()
    assert notes[0].startswith(f"{name}: line 2: not valid JSON: column 10: Unterminated string")
    assert notes[1] == f"{name}: line 4: not valid UTF-8: byte {sum(map(len, lines[:3])) + 3 + 10} of the file is 0xff"
    assert f"{name}: line 10: text is not a string: a value of type int" in notes


def test_a_text_that_is_not_utf8_is_left_out_and_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"good\n<|endoftext|>\nb\xe9d\n<|endoftext|>\ngood too")
    (tmp_path / "b.txt").write_bytes("a text".encode("utf-16"))
    (tmp_path / "c.txt").write_bytes(b"")
    source = open_source(tmp_path)
    skipped, notes = left_out(source)
    assert read(source) == ["good", "good too"]
    assert skipped == {"not valid UTF-8": 2, "empty": 1}
    assert notes[0].endswith("a.txt: document 2: not valid UTF-8: byte 20 of the file is 0xe9")
    skipped, notes = left_out(open_source(tmp_path / "b.txt"))
    assert "UTF-16 by its first two bytes; save it as UTF-8" in notes[0]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    for kind, content in {"txt": "a\ufeff", "jsonl": '{"text": "a\ufeff"}', "csv": "text\na\ufeff"}.items():
        (tmp_path / f"a.{kind}").write_text("\ufeff" + content, encoding="utf-8")
        assert read(open_source(tmp_path / f"a.{kind}")) == ["a\ufeff"]
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfb\xe9d")
    assert left_out(open_source(tmp_path / "b.txt"))[1][0].endswith("byte 4 of the file is 0xe9")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_of_one_name(tmp_path: Path, kind: str) -> None:
    """They do not matter as long as none of them is asked for."""
    names, path = ["text", "n", "n"], tmp_path / f"a.{kind}"

    def write_with(names: list[str]) -> Path:
        if kind == "csv":
            path.write_text(",".join(names) + "\na,1,2\n")
        else:
            pyarrow = pytest.importorskip("pyarrow", reason="needs the extra 'data'")
            table = pyarrow.table([["a"], [1], [2]], names=names)
            pytest.importorskip("pyarrow.parquet").write_table(table, path)
        return path

    assert read(open_source(write_with(names))) == ["a"]
    with pytest.raises(
        UserError, match=r"no column 'n', which 'n >= 1' asks for.*columns: text, n \(1 of 2\), n \(2 of 2\)"
    ):
        open_source(path, Options(conditions=(parse_condition("n >= 1"),)))
    with pytest.raises(UserError, match=r"no column 'text'.*; columns: text \(1 of 2\), text \(2 of 2\), n"):
        open_source(write_with(["text", "text", "n"]))
    with pytest.raises(UserError, match=r"no column 'text'.*; columns: a \(1 of 2\), a \(2 of 2\), n"):
        open_source(write_with(["a", "a", "n"]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\na\n".encode("utf-16"), "not a header of columns: not valid UTF-8: UTF-16 by its first two bytes"),
        (b"t\xe9xt\na\n", "not valid UTF-8: byte 1 of the file is 0xe9"),
        (b"text,n\ra,1\r", "not a header of columns: a carriage return that is neither in quotes nor before"),
    ],
)
def test_csv_without_a_header_that_can_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        open_source(tmp_path / "a.csv")


def test_options_of_sources_of_another_kind(tmp_path: Path) -> None:
    """They would be without effect, which is not what is expected of them."""
    path = write(tmp_path / "a.jsonl", ["a"])
    with pytest.raises(UserError, match=r"--revision is of the hub's data sets, and .*a\.jsonl is none"):
        open_source(path, Options(revision="main"))
    with pytest.raises(UserError, match=r"--separator stands between the documents of \.txt files, and there is none"):
        open_source(path, Options(separator="==="))
    write(tmp_path / "b.txt", ["b"])
    assert read(open_source(tmp_path, Options(separator="==="))) == ["a", "b"]


def test_csv_with_broken_records(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(
        b'\xef\xbb\xbftext,score\ngood,1\n"two\nlines",2\n\ntoo,many,fields\nfew\nb\xffd,3\n,4\nlast,5\n"open,6\n'
    )
    source = open_source(tmp_path / "a.csv")
    skipped, notes = left_out(source)
    assert read(source) == ["good", "two\nlines", "last"]
    assert skipped == {"not valid CSV": 3, "not valid UTF-8": 1, "empty": 1}
    assert notes[0].endswith("a.csv: line 6: not valid CSV: 3 fields under 2 columns")


def test_documents_longer_than_the_csv_module_likes(tmp_path: Path) -> None:
    text = "long " * 100_000
    assert read(open_source(write(tmp_path / "a.csv", [text]))) == [text]


def test_invalid_utf8_within_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra 'data'")
    contents = pyarrow.array([b"good", b"b\xe9d", None, b"good too"], pyarrow.binary())
    broken = pyarrow.Array.from_buffers(pyarrow.string(), 4, contents.buffers())
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"text": broken}), tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet")
    assert read(source) == ["good", "good too"]
    assert left_out(source)[0] == {"not valid UTF-8": 1, "no text": 1}


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "parquet"])
def test_conditions(tmp_path: Path, kind: str) -> None:
    scores, languages = [5, None, 3, 4], ["en", "en", "en", "de"]
    path = write(tmp_path / f"a.{kind}", ["a", "b", "c", "d"], score=scores, language=languages)
    conditions = (parse_condition("score >= 4"), parse_condition("language == 'en'"))
    source = open_source(path, Options(conditions=conditions))
    assert read(source) == ["a"]
    assert left_out(source)[0] == {"score >= 4": 2, "language == 'en'": 1}


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "parquet"])
def test_columns_that_do_not_suit(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / f"a.{kind}", ["a"], title=["b"], score=["high"])
    cases = [
        (Options(text_column="txt"), f"a.{kind}: no column 'txt' (did you mean 'text'?); columns: text, title, score"),
        (
            Options(conditions=(parse_condition("scores >= 4"),)),
            "no column 'scores', which 'scores >= 4' asks for (did you mean 'score'?)",
        ),
        (
            Options(conditions=(parse_condition("score >= 4"),)),
            "column 'score' holds a string, 'high', and 'score >= 4' compares it with a number",
        ),
    ]
    for options, message in cases:
        with pytest.raises(UserError) as error:
            read(open_source(path, options))
        assert message in str(error.value)
    assert read(open_source(path, Options(text_column="title"))) == ["b"]
    if kind != "csv":  # in which all is strings
        with pytest.raises(UserError, match=r"column 'n' holds no strings; columns of strings: text; --text-column"):
            open_source(write(tmp_path / f"b.{kind}", ["a"], n=[1]), Options(text_column="n"))


def test_the_only_column_of_strings_is_the_text(tmp_path: Path) -> None:
    for kind in ("jsonl", "parquet"):
        path = write(tmp_path / f"a.{kind}", [1], content=["a"])  # a column named text, of numbers
        assert read(open_source(path, Options(text_column="content"))) == ["a"]
    (tmp_path / "b.jsonl").write_text('{"n": 1, "content": null}\n{"n": 2, "content": "a"}\n')
    assert read(open_source(tmp_path / "b.jsonl")) == ["a"]
    (tmp_path / "c.jsonl").write_text('{"question": "a", "answer": "b"}\n')
    with pytest.raises(UserError, match="columns: question, answer; --text-column names the column of the text"):
        open_source(tmp_path / "c.jsonl")


def test_a_folder_is_read_in_order_and_what_is_left_out_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for name in ("b/2.txt", "a.txt", "b/10.jsonl", "c.TXT", ".hidden/d.txt", "b/.e.txt"):
        write(folder / name, [name])
    (folder / "README.md").write_text("left out")
    (folder / "LICENSE").write_text("left out")
    source = open_source(folder)
    assert read(source) == ["a.txt", "b/10.jsonl", "b/2.txt", "c.TXT"]
    assert source.notes == [
        f"{folder}: left out: 1 file (.md), 1 file (no ending), 2 hidden files"
        f"; what is named is read as text, such as '{folder}/**/*.md'"
    ]
    assert source.description["kind"] == "files"
    assert [file["file"].removeprefix(folder.as_posix()) for file in source.description["files"]] == [
        "/a.txt", "/b/10.jsonl", "/b/2.txt", "/c.TXT",
    ]  # fmt: skip
    assert sum(file["bytes"] for file in source.description["files"]) == source.progress()[1]
    assert read(open_source(str(folder / "**/*.txt"))) == ["a.txt", "b/2.txt"]
    assert read(open_source([folder / "b", folder / "a.txt", folder / "b/2.txt"])) == ["b/10.jsonl", "b/2.txt", "a.txt"]


@pytest.mark.parametrize("is_finished", [True, False])
def test_prepared_corpora_are_left_alone(tmp_path: Path, is_finished: bool) -> None:
    """Their tokenizers and manifests are ``.json`` files, and one may lie among the texts that it is made of."""
    write(tmp_path / "texts/a.txt", ["a"])
    write(tmp_path / "texts/b/manifest.json", ["b"])  # what only has the name of one is read
    corpus = tmp_path / "texts/out"
    write(corpus / "tokenizer.json", ["no text"])
    (corpus / ".unfinished").mkdir()
    if is_finished:
        (corpus / ".unfinished").rmdir()
        write(corpus / "manifest.json", ["no text"])
        (corpus / "out_train_000000.bin").write_bytes(b"")
    for wanted in (tmp_path / "texts", str(tmp_path / "texts/**")):
        source = open_source(wanted)
        assert read(source) == ["a", "b"]
        assert f"{corpus}: left out: a prepared corpus" in source.notes


def test_progress_goes_from_nothing_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BATCH_DOCUMENTS", 100)
    for kind in ["jsonl", "jsonl.gz", "parquet", "txt"]:
        write(tmp_path / f"a.{kind}", [f"document {i} " * 20 for i in range(1000)])
    source = open_source(tmp_path)
    total = source.progress()[1]
    assert source.progress() == (0, total)
    seen = [source.progress()[0] for _ in source.read()]
    assert seen == sorted(seen)
    assert len(set(seen)) > 8
    assert source.progress() == (total, total)


def test_a_large_file_is_not_held_in_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [f"document {i} " + "x" * 1000 for i in range(20_000)])
    tracemalloc.start()
    try:
        count = sum(len(batch.documents) for batch in open_source(path).read())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert peak < path.stat().st_size / 4


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz", "a.jsonl.zst", "a.csv.gz", "a.json.gz", "a.parquet"])
@pytest.mark.parametrize("how", ["cut", "garbage"])
def test_truncated_and_damaged_files_are_named(tmp_path: Path, name: str, how: str) -> None:
    random = [os.urandom(200).hex() for _ in range(50)]
    path = write(tmp_path / name, random)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3] if how == "cut" else b"garbage" * 100)
    with pytest.raises(UserError) as error:
        read(open_source(path))
    assert f"{name}: a truncated or damaged .{name.rpartition('.')[2]} file (" in str(error.value)


def test_a_parquet_file_damaged_in_the_middle(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [os.urandom(500).hex() for _ in range(30)])
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.parquet: a truncated or damaged \.parquet file"):
        read(open_source(path))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("missing.txt", "missing.txt: no such file or folder"),
        ("./missing", "missing: no such file or folder"),
        ("nothing/*.txt", "nothing matches this pattern"),
        ("empty", "empty: no file to read documents from; such files are .txt, .jsonl"),
        ("useless", "useless: no file to read documents from; in it: 2 files (.md), 1 hidden file"),
        ("usel*", "usel*: no file matches this pattern, only folders"),
        ("tinystory", "'tinystory' is neither a file or folder, nor a known corpus (did you mean 'tinystories'?)"),
        ("", "is neither a file or folder"),
    ],
)
def test_paths_and_names_that_lead_nowhere(wanted: str, message: str) -> None:
    Path("empty").mkdir()
    Path("useless").mkdir()
    for name in ("a.md", "b.md", ".c.txt"):
        Path("useless", name).write_text("")
    with pytest.raises(UserError) as error:
        open_source(wanted)
    assert message in str(error.value)


def test_what_is_named_is_read_as_text(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "b").mkdir(parents=True)
    for name in ("a.md", "b/c.py", "LICENSE"):
        (folder / name).write_text(name, encoding="utf-8")
    (folder / "d.rst.gz").write_bytes(gzip.compress(b"d.rst"))
    assert read(open_source(f"{folder}/**/*.*")) == ["a.md", "b/c.py", "d.rst"]
    assert read(open_source([folder / "LICENSE", folder / "a.md"])) == ["LICENSE", "a.md"]


def test_links_and_what_they_lead_to(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    target = write(tmp_path / "elsewhere" / "a.txt", ["linked"])
    folder.mkdir()
    (folder / "a.txt").symlink_to(target)
    (folder / "below").symlink_to(target.parent)
    source = open_source(folder)
    assert read(source) == ["linked"]
    assert source.notes == [f"{folder / 'below'}: left out: a link to a folder"]
    target.unlink()
    with pytest.raises(UserError, match=r"a\.txt: cannot read it: No such file"):
        open_source(folder)


def test_a_file_without_one_good_line_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("broken\n" * 150 + '{"text": "good"}\n')
    (tmp_path / "b.jsonl").write_text("")
    (tmp_path / "c.csv").write_text("")
    source = open_source(tmp_path)
    assert read(source) == ["good"]
    assert left_out(source)[0] == {"not valid JSON": 150}


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.jsonl", ["a"])

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UserError, match=r"a\.jsonl: cannot read it: Permission denied"):
        open_source(path)


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("datasets", lambda folder: "fineweb-edu"),
        ("pyarrow.parquet", lambda folder: write(folder / "a.parquet", ["a"])),
        ("pyarrow.parquet", lambda folder: write(folder / "a.txt.zst", ["a"])),
    ],
)
def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, make: Callable[[Path], Any]
) -> None:
    wanted = make(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[data\]'"):
        read(open_source(wanted))
