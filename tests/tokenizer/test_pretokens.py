"""Counting pre-tokens: the same counts however a text is cut, by however many processes, from documents or files."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer.texts import texts

from nanoeuler.errors import UserError
from nanoeuler.tokenizer import pretokens
from nanoeuler.tokenizer.patterns import PATTERNS, resolve, split
from nanoeuler.tokenizer.pretokens import count_files, count_piece, count_pretokens, read_documents
from nanoeuler.workers import Workers

END = "<|endoftext|>"


def by_definition(documents: list[str], pattern: str = "gpt2") -> dict[bytes, int]:
    """Return the counts of whole documents."""
    return Counter(piece.encode() for document in documents for piece in split(resolve(pattern), document))


@pytest.fixture
def tiny_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everything cut wherever it can be, and read a few bytes at a time."""
    monkeypatch.setattr(pretokens, "PIECE", 5)
    monkeypatch.setattr(pretokens, "BLOCK", 7)


@settings(deadline=None)
@given(st.sampled_from(list(PATTERNS)), st.lists(texts(60), max_size=4))
def test_words_are_cut_once(name: str, documents: list[str]) -> None:
    """Counting by distinct words gives what the pattern gives on the whole."""
    size, counts = count_piece(PATTERNS[name], documents)
    assert size == sum(len(document.encode()) for document in documents)
    assert counts == by_definition(documents, name)


@settings(deadline=None, max_examples=50)
@given(st.sampled_from([*PATTERNS, r"\w+\s\w+|(?s:.)"]), st.lists(texts(60), max_size=4))
def test_documents_in_pieces(name: str, documents: list[str]) -> None:
    """Cut wherever they can be, documents give what they give whole; by a pattern of one's own none is cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretokens, "PIECE", 5)
        done: list[tuple[int, int | None]] = []
        counts = count_pretokens(iter(documents), name, 1, lambda *state: done.append(state), total=17)
    assert counts == by_definition(documents, name)
    assert done[-1] == (sum(len(document.encode()) for document in documents), 17)
    assert done == sorted(done)


@settings(deadline=None, max_examples=50)
@given(st.sampled_from([*PATTERNS, r"\w+\s\w+|(?s:.)"]), texts(60), st.lists(texts(20), max_size=3))
def test_files_in_blocks(tmp_path_factory: pytest.TempPathFactory, name: str, text: str, more: list[str]) -> None:
    """Read a few bytes at a time, with separators and characters across the ends of blocks."""
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(END.join([text, *more]).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretokens, "PIECE", 5)
        patch.setattr(pretokens, "BLOCK", 7)
        first = text.removeprefix("\ufeff")  # at the beginning of a file that is a byte order mark
        assert count_files([path, path], name, workers=1) == by_definition([first, *more] * 2, name)


@pytest.mark.usefixtures("tiny_pieces")
def test_separators(tmp_path: Path) -> None:
    """The longest first; one with white space in it is not cut either; without any, all is text."""
    path = tmp_path / "a.txt"
    path.write_text("one<end of x>two<end of x> again<end>three<end of", encoding="utf-8")
    assert "".join(read_documents([path], "gpt2", ["<end>", "<end of x>"])) == "onetwo againthree<end of"
    assert "".join(read_documents([path], "gpt2", [])) == path.read_text(encoding="utf-8")


@pytest.mark.usefixtures("tiny_pieces")
def test_long_files_are_read_in_parts(tmp_path: Path) -> None:
    """A part is given before the rest has been read, however long the document is; one without end is given whole."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"many words\r\n" * 1000)
    parts = list(read_documents([path], "gpt2"))
    assert "".join(parts).encode() == path.read_bytes()
    assert max(map(len, parts)) < 30
    assert len(list(read_documents([path], r"(?s:.)"))) == 1
    path.write_bytes(b"a" * 10_000)
    assert list(read_documents([path], "gpt2")) == ["a" * 10_000]


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    for content in (b"\xef\xbb\xbfto be", b"to be", b"\xef\xbb\xbf", b""):
        (tmp_path / "a.txt").write_bytes(content)
        assert "".join(read_documents([tmp_path / "a.txt"], "gpt2")) == ("to be" if b"to" in content else "")


def test_documents_are_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more pieces are taken than are in work: memory does not grow with the corpus."""
    monkeypatch.setattr(pretokens, "PIECE", 1000)
    taken, counted = 0, 0

    def documents() -> Iterator[str]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            assert taken * 1000 - counted <= 10_000
            yield "word " * 200

    def progress(done: int, _: int | None) -> None:
        nonlocal counted
        counted = done

    assert count_pretokens(documents(), workers=2, progress=progress) == {b"word": 100, b" word": 19900, b" ": 100}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"caf\xe9", "byte 3 is 0xe9"),
        (b"a" * 12 + "é".encode() + b"\xff", "byte 14 is 0xff"),
        (b"abcdef\xe2\x82", "byte 6 is 0xe2"),  # cut short, at a block's end
        (b"abcdef\xe2\x82abc", "byte 6 is 0xe2"),  # begun in one block, broken in the next
    ],
)
@pytest.mark.usefixtures("tiny_pieces")
def test_invalid_utf8(tmp_path: Path, content: bytes, says: str) -> None:
    """The error names the file and the byte."""
    path = tmp_path / "broken.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"broken.txt: not UTF-8 text: {says}"):
        count_files([path])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing, or a folder."""
    with pytest.raises(UserError, match=r"none.txt: cannot read it: No such file"):
        count_files([tmp_path / "none.txt"])
    with pytest.raises(UserError, match="cannot read it"):
        count_files([tmp_path])


def test_documents_that_are_no_text() -> None:
    """Half a surrogate pair, here and in another process."""
    with pytest.raises(UserError, match=r"U\+D800 at position 1"):
        count_pretokens(["a\ud800"])


def test_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes count as one; their errors arrive here."""
    monkeypatch.setattr(pretokens, "PIECE", 2000)
    documents = [f"the {i} words, été中 {i % 7}\n" * 50 for i in range(50)]
    assert count_pretokens(documents, "gpt4", workers=2) == by_definition(documents, "gpt4")
    with pytest.raises(UserError, match=r"U\+D800 at position 0"):
        count_pretokens([*documents, "\ud800"], "gpt4", workers=2)


def test_a_process_that_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error, and no process is left."""
    monkeypatch.setattr(pretokens, "PIECE", 10)
    with Workers(2, count_piece, PATTERNS["gpt2"]) as pool:
        monkeypatch.setattr(pretokens, "Workers", lambda *_: nullcontext(pool))
        for process in pool._processes:
            process.kill()
        with pytest.raises(UserError, match="has ended"):
            count_pretokens(["text and more"] * 9, workers=2)
    assert all(process.returncode is not None for process in pool._processes)


SCRIPT = """
import sys
from nanoeuler.tokenizer import pretokens
pretokens.PIECE = 1000
def documents():
    for i in range(int(sys.argv[1])):
        yield "word " * 200
        print("taken", i, flush=True)
print(pretokens.count_pretokens(documents(), workers=2)[b"word"])
"""


def test_works_in_a_script_without_a_guard(tmp_path: Path) -> None:
    """The processes do not run the script again, as those of multiprocessing would."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    ran = subprocess.run([sys.executable, script, "20"], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [*(f"taken {i}" for i in range(20)), "20"]
    assert ran.stderr == ""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_ctrl_c_ends_the_processes(tmp_path: Path) -> None:
    """One traceback, of the script alone, and no process left behind."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    run = subprocess.Popen(
        [sys.executable, script, "1000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout
    while run.stdout.readline() != "taken 50\n":
        assert run.poll() is None
    children = [int(p) for f in Path(f"/proc/{run.pid}/task").iterdir() for p in (f / "children").read_text().split()]
    assert len(children) == 2
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")
    for child in children:
        patience = time.monotonic() + 30
        while Path(f"/proc/{child}").exists():
            assert time.monotonic() < patience, "a process lives on"
            time.sleep(0.01)
